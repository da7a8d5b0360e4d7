"""A machine with figures of one's own: what changes with them, and what stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.hardware.catalog import chip_names, load_chip
from ridgeline.hardware.chip import Fact
from ridgeline.hardware.figures import OWN_FIGURES, PEAK, own_figures, with_figures
from ridgeline.hardware.topology import parse_slice

SLICES = [f"{name}:16" if name[0] in "abghm" else f"2*{name}:4x4" for name in ("v5e", "v6e", "a100-40gb", "h100")]

figures = st.dictionaries(st.sampled_from([*OWN_FIGURES, f"{PEAK}bf16"]), st.floats(1, 1e18))


@given(st.sampled_from([*SLICES, "tpu7x:4x4x4", "mi300x:4"]), figures)
def test_what_was_replaced_can_be_read_off_the_machine(name: str, own: dict[str, float]) -> None:
    hardware = with_figures(parse_slice(name), own)

    assert own_figures(hardware.chip) == own
    assert hardware.name == name
    assert with_figures(parse_slice(name), own_figures(hardware.chip)) == hardware


@pytest.mark.parametrize("name", chip_names())
def test_a_chip_of_the_catalogue_has_no_figures_of_the_users(name: str) -> None:
    is_tpu = load_chip(name).torus is not None
    hardware = parse_slice(f"{name}:{'4x4' if name in V2D else '4x4x4'}" if is_tpu else f"{name}:8")

    assert own_figures(hardware.chip) == {}
    assert with_figures(hardware, {}) == hardware


V2D = ("v3", "v5e", "v6e")


def test_other_links_are_every_links_of_the_torus_and_not_those_inside_a_chip() -> None:
    before = parse_slice("2*tpu7x:4x4x4")
    after = with_figures(before, {"link_bytes_per_s": 2e11, "network_bytes_per_s": 5e10})

    assert [axis.bytes_per_s for axis in after.axes] == [2e11, 2e11, 2e11, before.axes[3].bytes_per_s]
    assert after.dcn is not None
    assert after.dcn.bytes_per_s == 5e10
    assert after.chip.torus is not None
    assert after.chip.torus.link_bytes_per_s == 2e11


def test_gpus_in_a_full_mesh_reach_the_same_share_of_other_links() -> None:
    # Four of eight MI300X have three of seven wires.
    before = parse_slice("mi300x:4")
    assert before.chip.switch is not None
    after = with_figures(before, {"link_bytes_per_s": 2 * before.chip.switch.bytes_per_s})

    assert after.axes[0].bytes_per_s == pytest.approx(2 * before.axes[0].bytes_per_s)


def test_a_figure_of_the_users_says_what_it_replaces() -> None:
    chip = with_figures(parse_slice("h100:8"), {"peak_flops_per_s.bf16": 8e14}).chip

    assert chip.peak_flops_per_s["bf16"] == 8e14
    assert chip.facts["peak_flops_per_s.bf16"] == Fact(
        value=8e14, kind="derived", source="job file", note="in place of 9.895e+14 (published)"
    )


def test_a_price_of_the_users_is_the_one_to_plan_with() -> None:
    hardware = with_figures(parse_slice("h100:8"), {"usd_per_chip_hour": 2.5})

    assert hardware.usd_per_hour == 20.0
