"""Clusters of GPUs as XLA's GPU compiler is asked for them, and which compiler a slice is compiled by."""

from __future__ import annotations

import pytest

from ridgeline.compiler import installed
from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.gpu import gpu_topology
from ridgeline.compiler.installed import check_installed, is_installed, own_compiler, usable_compiler
from ridgeline.compiler.our_program import OurProgram
from ridgeline.errors import InputError, MissingExtraError
from ridgeline.hardware.topology import parse_slice
from tests.compiler.jobs import tiny_job


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("h100:1", "1x1x1"),
        ("h100:8", "1x1x8"),
        ("h100:64", "8x1x8"),
        ("b200:16", "2x1x8"),
        ("gb200:72", "1x18x4"),
        ("gb200:128", "2x16x4"),
    ],
)
def test_a_cluster_is_domains_of_nvlink_hosts_and_gpus_of_a_host(name: str, shape: str) -> None:
    assert gpu_topology(parse_slice(name)).shape == shape


def test_the_compiler_is_told_what_one_gpu_is_like() -> None:
    lines = gpu_topology(parse_slice("h100:8")).target.splitlines()

    assert lines[0].startswith("gpu_device_info { threads_per_block_limit: 1024 ")
    assert "core_count: 132" in lines[0]
    assert "cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }" in lines[0]
    assert lines[1:] == ['platform_name: "CUDA"', 'device_description_str: "NVIDIA H100"']


def test_a_chip_without_the_compilers_figures_is_refused() -> None:
    with pytest.raises(InputError, match="the GPU compiler's figures of this chip are not known"):
        gpu_topology(parse_slice("mi300x:8"))


def test_a_slice_is_compiled_by_the_compiler_of_its_chips_or_by_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = [parse_slice(name) for name in ("v5p:2x2x1", "gb200:72")]
    assert [own_compiler(hardware) for hardware in slices] == ["tpu", "gpu"]

    monkeypatch.setattr(installed, "find_spec", lambda name: name if name == "jax" else None)
    assert [usable_compiler(hardware) for hardware in slices] == ["cpu", "cpu"]
    with pytest.raises(MissingExtraError, match=r"pip install 'ridgeline\[cuda\]'"):
        check_installed("gpu")


def test_xla_for_gpus_compiles_for_gpus_that_are_not_there(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed("gpu"):
        pytest.skip("the CUDA plugin is not installed")
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))

    memory = compile_program(OurProgram(job=tiny_job(hardware="h100:4"), compiler="gpu")).outcome.memory

    assert memory is not None
    # As for TPUs: matrices split by four, norms and the batch beside them, in f32 with two moments.
    matrices = 2 * 1024 * 256 + 2 * (256 * 128 * (4 + 2 + 2 + 4) + 3 * 256 * 512)
    expected = 3 * 4 * (matrices / 4 + 5 * 256) + 2 * (256 + 1) * 4
    assert memory.arguments_bytes == pytest.approx(expected, rel=0.01)
    assert memory.peak_bytes == memory.arguments_bytes + memory.outputs_bytes - memory.aliased_bytes + (
        memory.temporaries_bytes
    )
