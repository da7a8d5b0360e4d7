"""Slices of our catalogue as the TPU compiler is asked for them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ridgeline.compiler.process import _TPU_ENVIRONMENT
from ridgeline.compiler.topology import abstract_topology
from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice


@pytest.mark.parametrize(
    ("name", "wrap", "host_bounds", "num_devices"),
    [
        ("v5e:1x1", (False, False, False), (1, 1, 1), 1),
        ("v5e:2x4", (False, False, False), (2, 2, 1), 8),
        ("v5e:8x16", (False, True, False), (2, 2, 1), 128),
        ("v6e:16x16", (True, True, False), (2, 2, 1), 256),
        ("v5p:2x2x1", (False, False, False), (2, 2, 1), 4),
        ("v5p:4x4x8", (True, True, True), (2, 2, 1), 128),
        ("tpu7x:2x4x4", (False, False, False), (2, 2, 1), 64),
        ("tpu7x:4x4x4", (True, True, True), (2, 2, 1), 128),
    ],
)
def test_a_slice_wraps_where_the_catalogue_says_so(
    name: str, wrap: tuple[bool, ...], host_bounds: tuple[int, ...], num_devices: int
) -> None:
    topology = abstract_topology(parse_slice(name))

    assert (topology.name, topology.wrap, topology.host_bounds) == (name, wrap, host_bounds)
    assert (topology.num_slices, topology.num_devices, topology.configuration) == (1, num_devices, "")


def test_several_slices_and_the_cores_of_a_v4_are_said() -> None:
    two = abstract_topology(parse_slice("2*v4:4x4x4"))

    assert (two.name, two.num_slices, two.num_devices, two.configuration) == ("v4:4x4x4", 2, 128, "megacore")


def test_a_gpu_is_no_topology_of_the_tpu_compiler() -> None:
    with pytest.raises(InputError, match="the TPU compiler knows TPUs alone"):
        abstract_topology(parse_slice("h100:8"))


SLICES = ("v3:4x4", "v4:4x4x8", "v5e:1x1", "v5e:16x8", "v5p:8x4x4", "v6e:8x4", "tpu7x:2x2x1", "2*tpu7x:4x4x4")


def test_the_compiler_counts_the_devices_of_the_catalogue() -> None:
    pytest.importorskip("libtpu")
    code = (
        "from ridgeline.compiler.topology import abstract_topology, describe_devices\n"
        "from ridgeline.hardware.topology import parse_slice\n"
        f"for name in {SLICES}: print(len(describe_devices(abstract_topology(parse_slice(name)))))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **_TPU_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.split() == [str(parse_slice(name).num_devices) for name in SLICES], done.stderr
