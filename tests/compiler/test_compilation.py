"""A tiny job through the compilers, each in its child process."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ridgeline.compiler import compilation, installed, process
from ridgeline.compiler.cache import cache_folder
from ridgeline.compiler.compilable import Command, Ended
from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.our_program import OurProgram, compiler_options
from ridgeline.compiler.process import Limits, failed, run_watched
from ridgeline.errors import InfeasibleError, InputError, MissingExtraError
from tests.compiler.jobs import TINY, tiny_job
from tests.messages import refusal

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("jax")


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def no_child(*_: object, **__: object) -> object:
    raise AssertionError


def test_xla_for_tpus_compiles_for_chips_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("libtpu")
    phases: list[str] = []
    found = compile_program(OurProgram(job=tiny_job(), compiler="tpu"), progress=phases.append)
    memory = found.outcome.memory
    assert memory is not None
    # 2 x 2 devices hold a quarter of the matrices each, in f32 with two moments; norms are on every device.
    matrices = 2 * 1024 * 256 + 2 * (256 * 128 * (4 + 2 + 2 + 4) + 3 * 256 * 512)
    norms, batch = 5 * 256, 2 * (256 + 1) * 4
    expected = 3 * 4 * (matrices / 4 + norms) + batch
    assert memory.arguments_bytes == pytest.approx(expected, rel=0.01)
    assert memory.peak_bytes > memory.arguments_bytes
    assert found.outcome.versions.keys() >= {"jax", "jaxlib", "libtpu"}
    assert {"starting the compiler", "compiling"} <= set(phases)
    assert found.hlo is not None
    text = gzip.decompress(found.hlo.read_bytes()).decode()
    assert "is_scheduled=true" in text
    assert "layer/attention/query" in text

    monkeypatch.setattr(compilation, "run_watched", no_child)
    again = compile_program(OurProgram(job=tiny_job(), compiler="tpu"))
    assert (found.is_cached, again.is_cached, again.outcome) == (False, True, found.outcome)


def test_a_program_that_does_not_fit_names_its_largest_values() -> None:
    pytest.importorskip("libtpu")
    job = tiny_job(model={**TINY, "vocab_size": 131_072}, workload__global_batch=512, workload__seq_len=1024)

    found = compile_program(OurProgram(job=job, compiler="tpu"))

    refusal, largest = found.outcome.refusal, found.outcome.largest
    assert refusal is not None
    assert refusal.where == "hbm"
    assert refusal.needed_bytes > refusal.available_bytes
    # Logits of 256 sequences of 1,024 tokens, a half of the vocabulary, in bf16.
    assert (largest[0].what, largest[0].size_bytes) == ("head/logits, forward", 256 * 1024 * 65_536 * 2)
    assert {"mu of head/logits", "nu of embedding/tokens"} <= {each.what for each in largest}
    assert found.hlo is not None


def test_the_cpu_compiler_stands_in_when_asked() -> None:
    found = compile_program(OurProgram(job=tiny_job(), compiler="cpu"))

    assert found.outcome.memory is not None
    assert found.outcome.memory.arguments_bytes > 0


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(time_s=0.0), "0 s are over"),
        (Limits(memory_bytes=1.0), "it uses more than 1 B of memory"),
    ],
)
def test_a_compilation_that_exceeds_its_limits_is_stopped(limits: Limits, reason: str) -> None:
    job = tiny_job(plan__remat="minimal")

    with pytest.raises(InfeasibleError) as caught:
        compile_program(OurProgram(job=job, compiler="cpu"), limits=limits)

    assert caught.value.what == "the compilation was stopped"
    assert caught.value.reasons[0] == reason


def test_an_interrupted_compilation_leaves_no_child_and_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def started(command: list[str], **more: object) -> subprocess.Popen[bytes]:
        children.append(subprocess.Popen(command, **more))
        return children[-1]

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "subprocess", SimpleNamespace(Popen=started, DEVNULL=subprocess.DEVNULL))
    before = set(cache_folder().rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        compile_program(OurProgram(job=tiny_job(plan__remat="minimal"), compiler="cpu"), progress=interrupt)

    assert [child.poll() for child in children] == [-signal.SIGKILL]
    assert set(cache_folder().rglob("*")) - before <= {cache_folder() / "compile"}


def test_what_cannot_be_lowered_is_said_as_bad_input() -> None:
    job = tiny_job(plan__attention={"kernel": "cudnn_flash_te"})

    with pytest.raises(InputError) as caught:
        compile_program(OurProgram(job=job, compiler="cpu"))

    assert str(caught.value) == refusal(
        "our program has no cudnn_flash_te attention here",
        where="plan.attention.kernel",
        value="cudnn_flash_te",
        expected="splash or dot_product",
        fix='use kernel = "dot_product", or leave it out',
    )


def test_a_terminated_compilation_ends_as_an_interrupted_one(tmp_path: Path) -> None:
    def terminate() -> str:
        signal.raise_signal(signal.SIGTERM)
        return ""

    command = Command(arguments=(sys.executable, "-c", "import time; time.sleep(60)"))
    with pytest.raises(KeyboardInterrupt):
        run_watched(command, tmp_path, Limits(), terminate)

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_child_that_dies_is_reported_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_TPU_ENVIRONMENT", {"JAX_PLATFORMS": "abacus"})

    with pytest.raises(InfeasibleError) as caught:
        compile_program(OurProgram(job=tiny_job(plan__remat="minimal"), compiler="cpu"))

    assert caught.value.what == "the compilation failed (exit code 1)"
    assert any("abacus" in reason for reason in caught.value.reasons)


def test_a_missing_compiler_is_met_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda name: None if name == "libtpu" else name)

    with pytest.raises(MissingExtraError, match=r"pip install 'ridgeline\[jax\]'"):
        compile_program(OurProgram(job=tiny_job(), compiler="tpu"))


def test_what_our_program_lacks_is_said_before_a_child_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "run_watched", no_child)

    with pytest.raises(InputError, match="our program has no quantization with static scales yet"):
        compile_program(
            OurProgram(job=tiny_job(plan__quantization={"kind": "fp8", "scaling": "static"}), compiler="cpu")
        )


def test_what_a_job_tells_the_compiler_becomes_its_options() -> None:
    job = tiny_job(plan__compiler={"scoped_vmem_kib": 61440, "sparse_core_offload": ["all_gather"]})

    assert compiler_options(job) == {
        "xla_tpu_scoped_vmem_limit_kib": "61440",
        "xla_tpu_enable_sparse_core_collective_offload_all_gather": "true",
        "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": "false",
        "xla_tpu_enable_sparse_core_collective_offload_all_reduce": "false",
    }


def test_a_compiler_that_crashes_has_its_last_words_shown_and_not_its_stack() -> None:
    words = "F0101 00:00:00.000000 1 bitcast.cc:1] Check failed: a == b bitcast between memory spaces"
    frames = ["*** Check failure stack trace: ***", *(f"    @     0x7f{number:06x}  (unknown)" for number in range(40))]

    error = failed(Ended(code=-6, said="\n".join([words, *frames]), elapsed_s=1.0, resident_bytes=0.0))

    assert error.what == "the compilation failed (ended by signal 6)"
    assert error.reasons == (words,)
