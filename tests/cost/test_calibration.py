"""Reading a calibration file."""

from __future__ import annotations

import pytest

from ridgeline.cost.calibration import calibrated_chips, load_efficiency, parse_efficiency, with_own_facts
from ridgeline.cost.kernel_time import PRODUCTS
from ridgeline.errors import InputError
from ridgeline.hardware.catalog import chip_names, load_chip

FACT = 'value = 0.5\nkind = "derived"\nsource = "assumed"'
KEYS = (
    *("matmul.bf16", "matmul_overhead_s", "matmul_fill_bytes", "vector", "elementwise", "hbm", "link", "network"),
    "pcie",
    *(f"{table}.{product}" for table in ("grouped_matmul", "grouped_edge_rows") for product in PRODUCTS),
    *("attention_forward", "attention_backward", "attention_block", "attention_tile_pairs", "attention_row_keys"),
    *("attention_head_dim.64", "grouped_partial_factor"),
    *("loss_forward_bytes", "loss_backward_bytes"),
    *("sustained", "sustained_narrow", "sustained_grouped", "launch_s"),
    *("overlap", "unhidden", "tensor_overlap", "step_overhead_s", "spread"),
    *("link_several_rings", "network_step_s", "network_launch_s", "sum_passes"),
    *("unhidden_gather", "unhidden_sum", "unhidden_network"),
)
COMPLETE = "\n".join(f"[{key}]\n{FACT}" for key in KEYS)


def test_every_chip_of_the_catalogue_is_calibrated() -> None:
    assert sorted(chip_names()) == list(calibrated_chips())


@pytest.mark.parametrize("name", calibrated_chips())
def test_every_dtype_with_a_peak_has_a_matmul_fraction(name: str) -> None:
    assert set(load_efficiency(name).matmul) == set(load_chip(name).peak_flops_per_s)


@pytest.mark.parametrize("name", calibrated_chips())
def test_every_number_says_where_it_is_from(name: str) -> None:
    assert all(fact.source and fact.note for fact in load_efficiency(name).facts.values())


def test_a_complete_file_becomes_the_numbers_it_states() -> None:
    efficiency = parse_efficiency(COMPLETE, where="mine.toml")

    assert efficiency.matmul == {"bf16": 0.5}
    assert efficiency.matmul_overhead_s == 0.5
    assert efficiency.facts["hbm"].kind == "derived"


def test_head_dim_128_is_the_reference_of_the_others() -> None:
    assert parse_efficiency(COMPLETE, where="mine.toml").attention_head_dim == {64: 0.5, 128: 1.0}


def test_a_missing_efficiency_is_named() -> None:
    with pytest.raises(InputError) as caught:
        parse_efficiency(COMPLETE.replace(f"[link]\n{FACT}", ""), where="mine.toml")

    assert (caught.value.what, caught.value.value) == ("an efficiency is missing", "link")


def test_an_unknown_efficiency_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        parse_efficiency(f"{COMPLETE}\n[overlaps]\n{FACT}", where="mine.toml")

    assert caught.value.fix.startswith("did you mean overlap")


@pytest.mark.parametrize(
    ("key", "broken"),
    [
        ("hbm", 'value = 1.2\nkind = "measured"\nsource = "s"'),
        ("hbm", 'value = 0.0\nkind = "measured"\nsource = "s"'),
        ("hbm", 'value = nan\nkind = "measured"\nsource = "s"'),
        ("hbm", 'value = 0.9\nkind = "guessed"\nsource = "s"'),
        ("hbm", 'value = 0.9\nkind = "measured"\nsource = ""'),
        ("hbm", 'value = 0.9\nkind = "measured"'),
        ("attention_block", 'value = inf\nkind = "measured"\nsource = "s"'),
        ("matmul_overhead_s", 'value = -1e-6\nkind = "measured"\nsource = "s"'),
    ],
)
def test_an_efficiency_out_of_range_or_without_source_is_refused_by_its_key(key: str, broken: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_efficiency(COMPLETE.replace(f"[{key}]\n{FACT}", f"[{key}]\n{broken}"), where="mine.toml")

    assert caught.value.where == f"mine.toml: {key}"


def test_a_head_dim_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match=r"attention_head_dim\.wide"):
        parse_efficiency(f"{COMPLETE}\n[attention_head_dim.wide]\n{FACT}", where="mine.toml")


def test_a_product_of_grouped_matmuls_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"grouped_matmul\.transposed"):
        parse_efficiency(f"{COMPLETE}\n[grouped_matmul.transposed]\n{FACT}", where="mine.toml")


def test_a_grouped_matmul_needs_all_three_products() -> None:
    with pytest.raises(InputError) as caught:
        parse_efficiency(COMPLETE.replace(f"[grouped_matmul.output]\n{FACT}", ""), where="mine.toml")

    assert caught.value.value == "grouped_matmul.output"


def test_a_bare_number_is_refused_for_it_has_no_source() -> None:
    with pytest.raises(InputError, match=r"mine\.toml: spread"):
        parse_efficiency("spread = 0.2", where="mine.toml")


def test_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(InputError, match="not a TOML file"):
        parse_efficiency("[hbm", where="mine.toml")


def test_a_chip_without_calibration_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        load_efficiency("tpu7")

    assert "tpu7x" in caught.value.fix


def test_a_second_file_states_some_numbers_anew_and_leaves_the_others() -> None:
    before = parse_efficiency(COMPLETE, where="mine.toml")

    after = with_own_facts(
        before, '[overlap]\nvalue = 0.7\nkind = "measured"\nsource = "my runs"\nnote = "12 runs"', where="steps.toml"
    )

    assert (after.overlap, after.unhidden) == (0.7, before.unhidden)
    assert (after.facts["overlap"].kind, after.facts["overlap"].note) == ("measured", "12 runs")


def test_a_second_file_is_read_as_strictly_as_the_first() -> None:
    before = parse_efficiency(COMPLETE, where="mine.toml")

    with pytest.raises(InputError, match="unknown efficiency"):
        with_own_facts(before, f"[overlaps]\n{FACT}", where="steps.toml")
    with pytest.raises(InputError, match="malformed efficiency"):
        with_own_facts(before, "[overlap]\nvalue = 1.5\nkind = 'measured'\nsource = 'x'", where="steps.toml")


def test_whole_steps_slow_everything_on_the_matrix_unit_alike() -> None:
    """Grouped and quantized ones keep a fraction of their own beside it."""
    alone = parse_efficiency(f"{COMPLETE}\n[matmul.fp8]\n{FACT}", where="mine.toml")

    step = alone.in_whole_steps

    assert step.matmul["bf16"] == alone.matmul["bf16"] * alone.sustained
    assert step.matmul["fp8"] / step.matmul["bf16"] == alone.sustained_narrow
    assert step.grouped_matmul["output"] / step.matmul["bf16"] == alone.sustained_grouped
    assert (step.attention_forward, step.vector) == (alone.attention_forward * alone.sustained, alone.vector)
