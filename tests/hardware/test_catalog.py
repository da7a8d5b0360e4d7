"""The catalogue: every number sourced, and the ones that matter checked against published tables."""

import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import chip_names, load_chip
from ridgeline.hardware.chip import Chip

GIB = 2**30
FILES = {
    file.name.removesuffix(".toml"): tomllib.loads(file.read_text(encoding="utf-8"))
    for file in (resources.files("ridgeline.hardware") / "catalog").iterdir()
    if file.name.endswith(".toml")
}
CHIPS = [load_chip(name) for name in chip_names()]
TERMS = {"on_demand", "spot", "flex_start", "commit_1y", "commit_3y"}


def bare_numbers(table: dict[str, Any], path: str = "") -> Iterator[str]:
    """Keys of numbers that are not the `value` of a table with `kind` and `source`."""
    for key, entry in table.items():
        if isinstance(entry, dict):
            yield from bare_numbers(entry, f"{path}{key}.")
        elif isinstance(entry, int | float) and not (key == "value" and {"kind", "source"} <= table.keys()):
            yield path + key


def test_every_number_of_the_catalogue_has_a_kind_and_a_source() -> None:
    found = [f"{name}: {key}" for name, file in FILES.items() for key in bare_numbers(file)]

    assert not found


def test_a_number_without_a_source_is_found() -> None:
    assert list(bare_numbers({"hbm_bytes": {"value": 1}, "a": {"b": 2.0}})) == ["hbm_bytes.value", "a.b"]


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_every_fact_is_of_a_known_kind_and_a_derived_one_shows_its_derivation(chip: Chip) -> None:
    for key, fact in chip.facts.items():
        assert fact.kind in {"published", "measured", "derived"}, key
        assert len(fact.source) > len("https://"), key
        assert fact.value > 0, key
        assert fact.note or fact.kind != "derived", key


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_every_price_has_a_term_a_region_a_date_and_a_source(chip: Chip) -> None:
    for price in chip.prices:
        assert price.usd_per_chip_hour > 0
        assert price.term in TERMS
        assert price.provider
        assert price.region
        assert price.date == "unknown" or price.date >= "2024"
        assert price.source


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_the_price_to_plan_with_is_on_demand_and_commitments_cost_less(chip: Chip) -> None:
    if chip.prices:
        first = chip.prices[0]
        assert first.term == "on_demand"
        same_place = [
            price for price in chip.prices if (price.provider, price.region) == (first.provider, first.region)
        ]
        assert all(price.usd_per_chip_hour <= first.usd_per_chip_hour for price in same_place)


def test_chips_without_a_public_price_have_none() -> None:
    without = {chip.name for chip in CHIPS if not chip.prices}

    assert without >= {"b300", "gb300", "mi300x", "mi325x", "mi355x"}
    assert without.isdisjoint({"tpu7x", "v6e", "h100", "h200", "b200"})


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_narrower_numbers_are_never_slower(chip: Chip) -> None:
    peaks = chip.peak_flops_per_s
    order = ["f32", "tf32", "bf16", "fp8", "fp4"]
    rates = [peaks[dtype] for dtype in order if dtype in peaks]

    assert rates == sorted(rates)
    assert all(peaks[dtype] > peaks["bf16"] for dtype in ("int8", "int4") if dtype in peaks)


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_a_program_may_use_most_of_the_memory_but_not_more_than_there_is(chip: Chip) -> None:
    # v5p is documented as 95 GiB and reports 95.74 GiB usable: the chip has 96.
    there_is = 96 * GIB if chip.name == "v5p" else chip.hbm_bytes

    assert 0.9 * there_is < chip.usable_hbm_bytes < there_is


@pytest.mark.parametrize("chip", CHIPS, ids=chip_names())
def test_a_chip_has_either_a_torus_or_a_switch(chip: Chip) -> None:
    assert (chip.torus is None) != (chip.switch is None)
    assert (chip.torus is None) == (chip.tensorcores_per_chip is None) == (chip.vmem_bytes is None)


@pytest.mark.parametrize(
    ("name", "bf16_tflops", "hbm_gib", "hbm_gb_per_s"),
    [
        # https://docs.cloud.google.com/tpu/docs/v3, v4, v5e, v5p, v6e, tpu7x: the tables of each page
        ("v3", 123, 32, 900),
        ("v4", 275, 32, 1200),
        ("v5e", 197, 16, 819),
        ("v5p", 459, 95, 2765),
        ("v6e", 918, 32, 1638),
        ("tpu7x", 2307, 192, 7380),
        # The vendors' pages; capacities as their tools report them
        ("a100-40gb", 312, 40, 1555),
        ("a100-80gb", 312, 80, 2039),
        ("h100", 989.5, 80, 3350),
        ("h200", 989.5, 141, 4800),
        ("b200", 2250, 180, 8000),
        ("gb200", 2500, 189471 / 1024, 8000),
        ("b300", 2250, 275040 / 1024, 8000),
        ("gb300", 2500, 284208 / 1024, 8000),
        ("mi300x", 1307.4, 192, 5300),
        ("mi325x", 1307.4, 256, 6000),
        ("mi355x", 2500, 288, 8000),
        ("h100-pcie", 756.5, 80, 2000),
        ("h100-nvl", 835.5, 94, 3900),
        ("gh200-96gb", 989.5, 96, 4000),
        ("gh200-144gb", 989.5, 144, 4900),
        ("h20", 148, 96, 4000),
        ("l4", 121, 24, 300),
        ("l40s", 362.05, 46068 / 1024, 864),
        ("rtx-4090", 165.2, 24, 1008),
        ("rtx-pro-6000", 467.8, 97887 / 1024, 1597),
    ],
)
def test_peak_and_memory_are_the_published_ones(
    name: str, bf16_tflops: float, hbm_gib: float, hbm_gb_per_s: float
) -> None:
    chip = load_chip(name)

    assert chip.peak_flops_per_s["bf16"] == bf16_tflops * 1e12
    assert chip.hbm_bytes == hbm_gib * GIB
    assert chip.hbm_bytes_per_s == hbm_gb_per_s * 1e9


@pytest.mark.parametrize(
    ("name", "chips", "dtype", "total_flops_per_s"),
    [
        ("v3", 1024, "bf16", 126e15),  # pod, https://docs.cloud.google.com/tpu/docs/v3
        ("v5e", 256, "int8", 100e15),  # pod, https://docs.cloud.google.com/tpu/docs/v5e
        ("tpu7x", 9216, "fp8", 42.5e18),  # pod, https://docs.cloud.google.com/tpu/docs/tpu7x
        ("gb200", 72, "bf16", 360e15 / 2),  # rack, half the sparse figure, nvidia.com/en-us/data-center/gb200-nvl72
        ("gb300", 72, "fp4", 1080e15),  # rack, dense, nvidia.com/en-us/data-center/gb300-nvl72
        ("b300", 8, "fp4", 105e15),  # HGX B300, dense, nvidia.com/en-us/data-center/hgx
    ],
)
def test_peaks_add_up_to_what_is_published_for_whole_systems(
    name: str, chips: int, dtype: str, total_flops_per_s: float
) -> None:
    assert chips * load_chip(name).peak_flops_per_s[dtype] == pytest.approx(total_flops_per_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "chips", "links", "all_reduce_bytes_per_s"),
    [
        # "All-reduce bandwidth per Pod" on each chip's page; every link of the pod carries its share
        ("v3", 1024, 4, 340e12),
        ("v4", 4096, 6, 1.1e15),
        ("v5e", 256, 4, 51.2e12),
        ("v6e", 256, 4, 102.4e12),
    ],
)
def test_links_add_up_to_the_published_all_reduce_rate_of_a_pod(
    name: str, chips: int, links: int, all_reduce_bytes_per_s: float
) -> None:
    torus = load_chip(name).torus

    assert torus is not None
    assert chips * links * torus.link_bytes_per_s == pytest.approx(all_reduce_bytes_per_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "usable_gib_per_device"), [("v4", 30.75), ("v5e", 15.75), ("v5p", 95.74), ("v6e", 31.25), ("tpu7x", 94.75)]
)
def test_usable_memory_is_what_real_devices_report(name: str, usable_gib_per_device: float) -> None:
    chip = load_chip(name)

    per_device_bytes = chip.usable_hbm_bytes / chip.devices_per_chip
    assert per_device_bytes / GIB == pytest.approx(usable_gib_per_device, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "slower_than_bf16_or_missing"),
    [
        ("v4", "int8"),
        ("v5e", "fp8"),
        ("v5p", "fp8"),
        ("v6e", "fp8"),
        ("tpu7x", "int8"),
        ("a100", "fp8"),
        ("b300", "int8"),
    ],
)
def test_a_dtype_without_a_faster_path_is_absent(name: str, slower_than_bf16_or_missing: str) -> None:
    assert slower_than_bf16_or_missing not in load_chip(name).peak_flops_per_s


def test_a_chip_answers_to_its_name_in_any_case_and_to_its_aliases() -> None:
    assert load_chip("TPU7x") is load_chip("ironwood") is load_chip("tpu7x")
    assert load_chip("a100") is load_chip("a100-80gb")
    assert load_chip("v5litepod") is load_chip("v5e")
    assert load_chip("NVIDIA H200-SXM-141GB") is load_chip("h200_sxm") is load_chip("h200")
    assert load_chip("AMD Instinct MI325X") is load_chip("mi325x")
    assert load_chip("TPU v6e") is load_chip("trillium") is load_chip("v6e")


def test_no_two_chips_share_a_name() -> None:
    names = [alias for chip in CHIPS for alias in (chip.name, *chip.aliases)]

    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


def test_a_file_is_named_for_its_chip() -> None:
    assert {name: file["name"] for name, file in FILES.items()} == {name: name for name in chip_names()}


def test_chips_are_listed_by_vendor_and_from_the_oldest_to_the_newest() -> None:
    assert chip_names()[:6] == ("v3", "v4", "v5e", "v5p", "v6e", "tpu7x")
    assert chip_names()[-3:] == ("mi300x", "mi325x", "mi355x")


def test_an_unknown_chip_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(InputError) as refused:
        load_chip("h1000", where="--on")

    assert str(refused.value) == (
        "unknown chip\n"
        "  where:    --on\n"
        "  value:    h1000\n"
        f"  expected: one of {', '.join(chip_names())}\n"
        "  fix:      did you mean h100?"
    )


def test_a_misspelt_alias_is_recognised_too() -> None:
    with pytest.raises(InputError) as refused:
        load_chip("ironwod")

    assert refused.value.fix == "did you mean ironwood?"
