"""Memory against the XLA:TPU compiler: published MaxText recipes, compiled whole with libtpu 0.0.52.

Peak is arguments and temporaries per device, host what the compiler places in pinned host memory per device.
Source: MaxText 0.2.5 `train_compile` of the recipes of tpu-recipes, as published (2025-12 and 2025-07).
"""

from __future__ import annotations

import pytest

from ridgeline.search.train import cost_pinned
from tests.measured.cases import measured_cases

COMPILED = {
    "tpu7x-llama3.1-70b-64c-8k-bf16-20251217": (85.5, 0.0, 0.05),
    "tpu7x-llama3.1-405b-256c-8k-bf16-20251219": (57.3, 101.5e9, 0.05),
    "v6e-llama3.1-70b-256c-8k-bf16-20250715": (26.8, 120.8e9, 0.20),
}
"""Case to compiled peak in GiB, host bytes, and how close the equation comes so far."""


@pytest.mark.parametrize("name", COMPILED)
def test_the_equation_comes_close_to_the_compiled_peak(name: str) -> None:
    case = next(case for case in measured_cases() if case.name == name)
    peak_gib, _, tolerance = COMPILED[name]

    assert cost_pinned(case.job).memory.total_bytes == pytest.approx(peak_gib * 2**30, rel=tolerance)


@pytest.mark.parametrize("name", COMPILED)
def test_offloaded_bytes_are_those_the_compiler_places_on_the_host(name: str) -> None:
    case = next(case for case in measured_cases() if case.name == name)
    chip = case.job.hardware.chip
    per_device = cost_pinned(case.job).memory.host_bytes / (chip.chips_per_host * chip.devices_per_chip)

    assert per_device == pytest.approx(COMPILED[name][1], rel=0.01, abs=1.0)
