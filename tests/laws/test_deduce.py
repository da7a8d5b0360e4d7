"""A system of formulas: what is given stands, what follows follows, what is missing is named."""

from __future__ import annotations

import pytest

from ridgeline.cost.laws.deduce import deduce, read_quantities, system
from ridgeline.errors import InputError


def width_size(*, D: float, F: float = 1.0) -> float:
    """Formula: D + F

    Source: this test.
    """
    return D + F


def area_size(*, width_size: float, L: float) -> float:
    """Formula: width · L

    Source: this test.
    """
    return width_size * L


SYSTEM = system(width_size, area_size)


def test_what_follows_from_what_follows_is_found() -> None:
    assert deduce(SYSTEM, {"D": 2.0, "F": 3.0, "L": 4.0})["area_size"] == 20.0


def test_what_is_given_is_not_computed_again() -> None:
    known = deduce(SYSTEM, {"D": 2.0, "width_size": 7.0, "L": 2.0})

    assert known["area_size"] == 14.0
    assert list(known.derivations) == ["area_size"]


def test_a_default_is_put_in_only_where_nothing_is_known() -> None:
    assert deduce(SYSTEM, {"D": 2.0})["width_size"] == 3.0


def test_the_first_formula_that_applies_gives_the_quantity() -> None:
    twice = system(area_size) + system(area_size=width_size)

    assert deduce(twice, {"D": 2.0})["area_size"] == 3.0
    assert deduce(twice, {"D": 2.0, "width_size": 5.0, "L": 5.0})["area_size"] == 25.0


def test_a_quantity_that_cannot_be_said_names_what_is_missing() -> None:
    with pytest.raises(InputError) as refused:
        deduce(SYSTEM, {"L": 2.0})["area_size"]

    assert (refused.value.where, refused.value.expected) == ("area_size", "also width_size")


def test_a_misspelt_quantity_is_guessed() -> None:
    with pytest.raises(InputError) as refused:
        deduce(SYSTEM, {"widthsize": 2.0})

    assert refused.value.fix == "did you mean width_size?"


def test_a_quantity_depends_on_what_went_into_it_at_any_remove() -> None:
    known = deduce(SYSTEM, {"D": 2.0, "L": 4.0})

    assert known.depends("area_size", on="D")
    assert not known.depends("width_size", on="L")


def test_text_is_read_by_the_unit_of_the_name() -> None:
    read = read_quantities({"run_s": "2 days", "hbm_bytes": "96GB", "batch_tokens": "4Mi", "n_axes": 3})

    assert read == {"run_s": 172800.0, "hbm_bytes": 96e9, "batch_tokens": 4194304.0, "n_axes": 3}


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_quantity_is_a_finite_number_above_zero(value: float) -> None:
    with pytest.raises(InputError, match="unusable quantity"):
        read_quantities({"N": value})


def test_utilization_is_a_fraction() -> None:
    with pytest.raises(InputError) as refused:
        read_quantities({"mfu": 45}, where="--given")

    assert (refused.value.what, refused.value.where) == ("not a fraction", "--given: mfu")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_chips", 0.3, "a count, at least 1"),
        ("num_slices", 12.5, "a whole number"),
        ("X", 0.5, "a count, at least 1"),
        ("stage", 0.5, "0, 1, 2 or 3"),
        ("stage", 4, "0, 1, 2 or 3"),
        ("W_hbm_bytes_per_s", 0, "a finite number above zero"),
    ],
)
def test_each_quantity_has_its_range(name: str, value: float, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        read_quantities({name: value})

    assert (refused.value.where, refused.value.expected) == (name, expected)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("W_ici_bytes_per_s", "180GB/s", 1.8e11),
        ("C_flops_per_s", "459TFLOP/s", 4.59e14),
        ("overlapped", "yes", True),
        ("overlapped", "true", True),
        ("overlapped", "0", False),
    ],
)
def test_rates_have_units_and_switches_have_words(name: str, text: str, value: float) -> None:
    assert read_quantities({name: text}) == {name: value}


def test_a_switch_takes_no_other_word() -> None:
    with pytest.raises(InputError, match="not yes or no"):
        read_quantities({"overlapped": "perhaps"})


def test_an_unknown_quantity_is_answered_with_those_that_exist() -> None:
    with pytest.raises(InputError) as refused:
        deduce(SYSTEM, {"quux": 2.0})

    assert "width_size" in refused.value.expected
    assert "area_size" in refused.value.expected
