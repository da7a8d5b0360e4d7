"""Slice names: what each stands for, and what a wrong one is told."""

import json
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import chip_names, load_chip
from ridgeline.hardware.slice import PhysicalAxis, Slice
from ridgeline.hardware.topology import legal_shapes, nvlink_group, parse_slice, wraparound, written

MAXTEXT_TOPOLOGIES = json.loads(Path(__file__).with_name("maxtext_topologies.json").read_text(encoding="utf-8"))
TPUS = [name for name in chip_names() if load_chip(name).torus is not None]
GPUS = [name for name in chip_names() if load_chip(name).switch is not None]


@st.composite
def slice_names(draw: st.DrawFn) -> str:
    """A canonical slice name: any chip, any legal shape or count, one slice or several."""
    chip = load_chip(draw(st.sampled_from(chip_names())))
    if chip.torus is not None:
        shape = draw(st.sampled_from(legal_shapes(chip.torus)))
        num_slices = draw(st.integers(1, 50))
        return f"{chip.name}:{written(shape)}" if num_slices == 1 else f"{num_slices}*{chip.name}:{written(shape)}"
    switch = chip.switch
    assert switch is not None
    return f"{chip.name}:{draw(st.integers(1, 20_000).filter(lambda count: nvlink_group(chip, switch, count)))}"


def axis(hardware: Slice, name: str) -> PhysicalAxis:
    return next(axis for axis in hardware.axes if axis.name == name)


def wiring(hardware: Slice) -> str:
    return " ".join(f"{axis.name}{axis.size}:{axis.wiring}" for axis in hardware.axes)


@given(slice_names())
def test_the_name_of_a_slice_parses_back_to_the_slice(name: str) -> None:
    hardware = parse_slice(name)

    assert hardware.name == name
    assert parse_slice(hardware.name) == hardware


@given(slice_names())
def test_the_axes_of_a_slice_hold_each_of_its_devices_once(name: str) -> None:
    hardware = parse_slice(name)

    assert prod(axis.size for axis in hardware.axes) == hardware.devices_per_slice
    assert hardware.num_devices == hardware.devices_per_slice * (hardware.dcn.size if hardware.dcn else 1)


@given(st.sampled_from(TPUS).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(shapes(name)))), st.data())
def test_axes_may_be_written_in_any_order_and_keep_it(
    chip_and_shape: tuple[str, tuple[int, ...]], data: st.DataObject
) -> None:
    chip, shape = chip_and_shape
    reordered = data.draw(st.permutations(shape))

    named = parse_slice(f"{chip}:{written(tuple(reordered))}")
    assert named.shape == tuple(reordered)
    assert parse_slice(named.name) == named
    assert sorted(axis.wiring for axis in named.axes) == sorted(
        axis.wiring for axis in parse_slice(f"{chip}:{written(shape)}").axes
    )


def shapes(chip: str) -> tuple[tuple[int, ...], ...]:
    torus = load_chip(chip).torus
    assert torus is not None
    return legal_shapes(torus)


@given(
    st.text(max_size=40) | st.from_regex(r"[0-9]{0,9}\*?(v5p|h100|gb200|tpu7x|v5e)[:-][0-9x-]{0,12}", fullmatch=True)
)
def test_any_text_is_a_slice_or_refused_with_a_way_out(text: str) -> None:
    match slice_or_refusal(text):
        case InputError() as refusal:
            assert refusal.where == "hardware"
            assert refusal.fix
        case Slice() as hardware:
            assert 1 <= hardware.num_chips <= 1_000_000


def slice_or_refusal(text: str) -> Slice | InputError:
    try:
        return parse_slice(text, where="hardware")
    except InputError as refusal:
        return refusal


@pytest.mark.parametrize(("name", "shape", "devices", "wraps"), MAXTEXT_TOPOLOGIES["topologies"])
def test_a_cloud_name_means_what_maxtext_takes_it_for(name: str, shape: str, devices: int, wraps: str) -> None:
    hardware = parse_slice(name)

    assert written(hardware.shape) == shape
    assert hardware.num_devices == devices
    assert hardware.chip.torus is not None
    assert "".join("FT"[wrap] for wrap in wraparound(hardware.chip.torus, hardware.shape)) == wraps


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("v5litepod-16", "v5e:4x4"),
        ("2*v5litepod-256", "2*v5e:16x16"),
        ("tpu7x-4x4x4", "tpu7x:4x4x4"),
        ("Ironwood:4x4x4", "tpu7x:4x4x4"),
        (" V5P-512 ", "v5p:4x8x8"),
        ("v3-32", "v3:4x4"),
        ("v3-2048", "v3:32x32"),
        ("a100:8", "a100-80gb:8"),
    ],
)
def test_one_slice_has_several_names(name: str, same: str) -> None:
    assert parse_slice(name) == parse_slice(same)
    assert parse_slice(name).name == same


@pytest.mark.parametrize(
    ("name", "chips", "devices", "hosts"),
    [
        ("v3-32", 16, 32, 4),
        ("v4-8", 4, 4, 1),
        ("v5p-512", 256, 256, 64),
        ("tpu7x-128", 64, 128, 16),
        ("v6e-256", 256, 256, 32),
        ("v5e:1x1", 1, 1, 1),
        ("4*v5e:16x16", 1024, 1024, 128),
        ("h100:64", 64, 64, 8),
        ("gb200:72", 72, 72, 18),
    ],
)
def test_a_slice_knows_its_chips_devices_and_hosts(name: str, chips: int, devices: int, hosts: int) -> None:
    hardware = parse_slice(name)

    assert (hardware.num_chips, hardware.num_devices, hardware.num_hosts) == (chips, devices, hosts)


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("v5p:4x4x8", "x4:ring y4:ring z8:ring"),
        ("v5p:2x4x4", "x2:line y4:line z4:line"),
        ("v4:2x2x1", "x2:line y2:line"),
        ("v5e:8x16", "x8:line y16:ring"),
        ("v6e:16x16", "x16:ring y16:ring"),
        ("v6e:8x8", "x8:line y8:line"),
        ("v5e:1x1", ""),
        ("v3:16x32", "x16:line y32:ring core2:line"),
        ("tpu7x:4x4x4", "x4:ring y4:ring z4:ring core2:line"),
        ("tpu7x:1x1x1", "core2:line"),
    ],
)
def test_whether_an_axis_wraps_depends_on_chip_and_shape(name: str, axes: str) -> None:
    assert wiring(parse_slice(name)) == axes


def test_the_chiplets_of_tpu7x_share_its_links_and_have_one_of_their_own() -> None:
    hardware = parse_slice("tpu7x:4x4x4")

    assert axis(hardware, "x").sharers == 2
    assert axis(hardware, "core").sharers == 1
    # "six times faster than a 1D ICI link": https://docs.cloud.google.com/tpu/docs/tpu7x
    assert axis(hardware, "core").bytes_per_s == 6 * axis(hardware, "x").bytes_per_s


def test_slices_are_joined_by_the_network_of_their_hosts() -> None:
    dcn = parse_slice("2*v5e:16x16").dcn

    assert dcn is not None
    assert (dcn.name, dcn.size, dcn.wiring) == ("dcn", 2, "switch")
    # Two 100 Gb/s NICs for the 8 chips of a host: https://docs.cloud.google.com/tpu/docs/v5e
    assert dcn.bytes_per_s * 8 == 2 * 100e9 / 8
    assert parse_slice("v5e:16x16").dcn is None


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("h100:1", ""),
        ("h100:4", "nvlink4:switch"),
        ("h100:8", "nvlink8:switch"),
        ("h100:1024", "nvlink8:switch network128:switch"),
        ("gb200:4", "nvlink4:switch"),
        ("gb200:64", "nvlink64:switch"),
        ("gb200:72", "nvlink72:switch"),
        ("gb200:128", "nvlink64:switch network2:switch"),
        ("gb300:256", "nvlink64:switch network4:switch"),
        ("gb200:144", "nvlink72:switch network2:switch"),
    ],
)
def test_gpus_fill_nvlink_domains_evenly_before_they_use_the_network(name: str, axes: str) -> None:
    assert wiring(parse_slice(name)) == axes


def test_gpus_in_a_full_mesh_have_one_link_to_each_other() -> None:
    xgmi_link_bytes_per_s = 64e9

    assert axis(parse_slice("mi300x:2"), "nvlink").bytes_per_s == xgmi_link_bytes_per_s
    assert axis(parse_slice("mi300x:4"), "nvlink").bytes_per_s == 3 * xgmi_link_bytes_per_s
    assert axis(parse_slice("mi300x:8"), "nvlink").bytes_per_s == 7 * xgmi_link_bytes_per_s


def test_no_legal_slice_is_larger_than_its_pod() -> None:
    for name in TPUS:
        torus = load_chip(name).torus
        assert torus is not None
        assert max(map(prod, legal_shapes(torus))) == prod(torus.pod_shape)


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("", "not the name of a slice", "`ridgeline chips` lists the chips"),
        ("v5p:4x4x", "not the name of a slice", "write, for example, v5p:4x4x4"),
        ("v5p:4×4×4", "not the name of a slice", "write, for example, v5p:4x4x4"),
        ("v5p:٤x4x4", "not the name of a slice", "write, for example, v5p:4x4x4"),
        ("v5p:-4x4x4", "not the name of a slice", "write, for example, v5p:4x4x4"),
        ("h100", "not the name of a slice", "write, for example, h100:8"),
        ("a100-80gb", "not the name of a slice", "write, for example, a100-80gb:8"),
        ("v5p:0x4x4", "no such number of chips", "write, for example, v5p:4x4x4"),
        ("0*v5e:16x16", "no such number of slices", "write, for example, v5e:4x4"),
        ("1000000*v5e:16x16", "no such number of slices", "write, for example, v5e:4x4"),
        ("h100:1000000000", "no such number of chips", "write, for example, h100:8"),
        ("v5q:4x4x4", "unknown chip", "did you mean v5p, v5e?"),
        ("v5e:3x3", "v5e has no slice of that shape", "the nearest are v5e:4x4, v5e:2x4, v5e:2x2"),
        ("v5p:3x4x4", "v5p has no slice of that shape", "the nearest are v5p:4x4x4, v5p:2x4x4, v5p:4x4x8"),
        ("v5e:4x4x4", "v5e has no slice of that shape", "the nearest are v5e:8x8, v5e:8x16, v5e:4x8"),
        ("v5p:1x1x1", "v5p has no slice of that shape", "the nearest are v5p:2x2x1, v5p:2x2x2, v5p:2x2x4"),
        ("v5p:16x24x24", "v5p has no slice of that shape", "the nearest are v5p:16x20x24, v5p:12x24x24, v5p:16x20x28"),
        ("tpu7x:64", "a TPU slice is named by its shape", "the nearest are tpu7x:4x4x4, tpu7x:4x4x8, tpu7x:2x4x4"),
        (
            "v5p-500",
            "v5p has no slice of that size",
            "the nearest are v5p-384 (4x4x12), v5p-512 (4x8x8), v5p-640 (4x4x20)",
        ),
        ("v5litepod-7", "v5e has no slice of that size", "the nearest are v5e-4 (2x2), v5e-8 (2x4), v5e-16 (4x4)"),
        ("h100-64", "GPUs are named by their number", "write h100:64"),
        ("2*h100:8", "GPUs are named by their number", "write h100:16"),
        ("h100:12", "12 GPUs do not split evenly over hosts and NVLink domains", "the nearest are h100:8, h100:16"),
        ("gb200:76", "76 GPUs do not split evenly over hosts and NVLink domains", "the nearest are gb200:72, gb200:80"),
    ],
)
def test_a_slice_that_does_not_exist_is_refused_with_the_nearest_that_do(name: str, what: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_slice(name, where="--on")

    assert (refused.value.what, refused.value.where, refused.value.fix) == (what, "--on", fix)


def test_a_refusal_says_what_where_why_and_how_to_fix_it() -> None:
    with pytest.raises(InputError) as refused:
        parse_slice("v5p-500", where="job.toml: hardware")

    assert str(refused.value) == (
        "v5p has no slice of that size\n"
        "  where:    job.toml: hardware\n"
        "  value:    v5p-500\n"
        "  expected: a number of TensorCores, 2 a chip\n"
        "  fix:      the nearest are v5p-384 (4x4x12), v5p-512 (4x8x8), v5p-640 (4x4x20)"
    )


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("0*v5e:16x16", "1 to 3,906 slices of 256 chips"),  # 3,906 x 256 = 999,936
        ("1000000*v5e:16x16", "1 to 3,906 slices of 256 chips"),
        ("v5p:0x4x4", "1 to 1,000,000 chips"),
        ("h100:2000000", "1 to 1,000,000 chips"),
    ],
)
def test_a_number_that_nobody_has_is_refused_with_the_limits(name: str, limits: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_slice(name)

    assert refused.value.expected == limits
