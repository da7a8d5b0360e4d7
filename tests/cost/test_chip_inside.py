"""The inside of a chip: rates from arrays and clocks, and how the compiler really pads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.hardware.catalog import chip_names, load_chip

if TYPE_CHECKING:
    from ridgeline.hardware.chip import Chip

TPUS = [chip for name in chip_names() if (chip := load_chip(name)).vpu is not None]
CLOCKED = [chip for chip in TPUS if chip.clock_cycles_per_s is not None]


@pytest.mark.parametrize("chip", CLOCKED, ids=lambda chip: chip.name)
def test_arrays_at_their_clock_give_the_published_peak(chip: Chip) -> None:
    assert ridgeline.mxu(on=chip.name)["chip_flops_per_s"] == pytest.approx(chip.peak_flops_per_s["bf16"], rel=0.005)


@pytest.mark.parametrize("chip", CLOCKED, ids=lambda chip: chip.name)
def test_vector_units_at_their_clock_give_the_rate_of_the_catalogue(chip: Chip) -> None:
    known = ridgeline.vpu(on=chip.name)

    assert ("vector_flops_per_s" in known) == (chip.vector_flops_per_s is not None)
    if "vector_flops_per_s" in known:
        assert known["vector_flops_per_s"] == pytest.approx(chip.vector_flops_per_s, rel=0.005)


def test_a_unit_is_what_the_book_says_of_it() -> None:
    # Scaling Book, ch. 2: 5e13 FLOP/s an array of v5e at 1.5 GHz, 16,384 ALUs, four times that on v6e
    known = ridgeline.mxu(array="128x128", clock="1.5GHz", count=4, versus=256)

    assert known["unit_flops_per_s"] == 49152e9
    assert known["chip_flops_per_s"] == 4 * 49152e9
    assert (known["num_alus"], known["gain_ratio"]) == (16384, 4)


def test_a_rate_in_flops_is_half_as_many_multiply_adds() -> None:
    assert ridgeline.mxu(peak=1.97e14)["multiply_adds_count_per_s"] == 0.985e14


def test_registers_hold_what_the_book_says() -> None:
    # Scaling Book, ch. 2, appendix C: v4 has 2048 adders and 32 registers of (8, 128)
    known = ridgeline.vpu(on="v4")

    assert (known["num_adders"], known["register_elements"], known["registers_bytes"]) == (2048, 1024, 32 * 4096)


def test_what_is_not_known_of_a_unit_is_refused_not_guessed() -> None:
    known = ridgeline.vpu(on="v6e")

    assert "vector_flops_per_s" not in known
    with pytest.raises(ridgeline.InputError):
        _ = known["vector_flops_per_s"]


@pytest.mark.parametrize(
    ("shape", "element_bytes", "padded_bytes"),
    # Sizes of program inputs that libtpu 0.0.42.1 reports, compiled for v5e and for TPU7x, which agree
    [
        ((3, 300), 4, 6144),
        ((1, 300), 4, 1536),
        ((5, 300), 4, 12288),
        ((9, 300), 4, 24576),
        ((300,), 4, 2048),
        ((5000,), 4, 20480),
        ((3, 300), 2, 3072),
        ((1, 300), 2, 1536),
        ((9, 300), 2, 12288),
        ((17, 1024), 2, 49152),
        ((1001, 1024), 2, 2064384),
        ((300,), 2, 1024),
        ((10, 20, 1024), 2, 491520),
        ((1, 300), 1, 1536),
        ((9, 300), 1, 6144),
        ((33, 1024), 1, 40960),
        ((1024, 1024), 1, 1048576),
        ((300,), 1, 512),
        ((3, 300), 0.5, 1536),
        ((9, 300), 0.5, 3072),
        ((300,), 0.5, 512),
    ],
)
def test_memory_is_padded_as_the_compiler_pads_it(
    shape: tuple[int, ...], element_bytes: float, padded_bytes: int
) -> None:
    tiling = ridgeline.padding(shape, dtype=element_bytes).of("memory")

    assert tiling.padded_bytes == padded_bytes
    assert tiling.padded_bytes - tiling.wasted_bytes == ridgeline.padding(shape, dtype=element_bytes).array_bytes


def test_every_generation_pads_a_matrix_to_its_own_units() -> None:
    units = [tiling for tiling in ridgeline.padding("100x300").tilings if tiling.place == "matrix unit"]

    assert [(tiling.chips, tiling.shape) for tiling in units] == [
        (("v3", "v4", "v5e", "v5p"), (128, 384)),
        (("v6e", "tpu7x"), (256, 512)),
    ]
    assert units[0].wasted_fraction == pytest.approx(1 - 100 * 300 / (128 * 384))


@pytest.mark.parametrize(("dtype", "rows"), [("f32", 8), ("bf16", 16), ("int8", 32), ("int4", 64)])
def test_a_register_packs_narrow_elements_several_to_a_sublane(dtype: str, rows: int) -> None:
    assert ridgeline.padding("100x300", dtype=dtype).of("registers").tile == (rows, 128)


def test_an_array_that_fills_its_tiles_wastes_nothing() -> None:
    assert {tiling.wasted_fraction for tiling in ridgeline.padding("512x512", dtype="bf16").tilings} == {0}
