"""Where a number comes from, on the screen and as JSON."""

from dataclasses import replace

import pytest

from ridgeline.cost.collectives import all_gather_s
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.roofline import matmul_flops
from ridgeline.report.blocks import Facts, Report
from ridgeline.report.derivations import derivation_pieces, derivations_json, explained
from ridgeline.report.terminal import render

GATHER = derive(all_gather_s, V_bytes=34e6, N=4, n=2, W_bytes_per_s=4.5e10)


def rows_of(derivation: Derivation) -> dict[str, str]:
    block = derivation_pieces([derivation])[-1]
    assert isinstance(block, Facts)
    return {label: cell.text for label, cell in block.rows}


def derivation(formula: str, *, value: float = 1.0, unit: str = "", **values: float) -> Derivation:
    return Derivation(
        quantity="rows", value=value, unit=unit, formula=formula, values=tuple(values.items()), assumes="", source="x"
    )


def test_a_number_shows_its_formula_with_and_without_the_values() -> None:
    assert rows_of(GATHER) == {
        "formula": "T = V · (N − 1)/N / (n · W)",
        "with": "V = 34.0 MB, N = 4, n = 2, W = 45.0 GB/s",
        "so": "T = 34.0 MB · (4 − 1)/4 / (2 · 45.0 GB/s) = 283 µs",
        "assumes": "bandwidth-bound; exact for rings and, with n = 1, for lines.",
        "source": "Scaling Book, ch. 3, all-gather.",
    }


def test_a_block_is_headed_by_what_it_is_and_its_value() -> None:
    assert derivation_pieces([GATHER])[1].title == "All gather: 283 µs"


def test_a_formula_without_a_left_side_is_worked_too() -> None:
    assert rows_of(derive(matmul_flops, B=2, D=3, F=28672))["so"] == "2·2·3·28,672 = 344 kFLOP"


def test_a_time_is_found_under_the_name_the_formula_gives_it() -> None:
    worked = derivation("T = N/2 · t_hop", value=8e-6, unit="s", N=16, hop_s=1e-6)

    assert rows_of(worked)["so"] == "T = 16/2 · 1.00 µs = 8.00 µs"


def test_a_greek_letter_is_found_under_its_spelt_out_name() -> None:
    worked = derivation("Y = F / α", value=10.0, F=25500.0, alpha_flops_per_byte=2550.0)

    assert rows_of(worked)["so"] == "Y = 25,500 / 2,550 FLOP/B = 10"


def test_a_value_and_a_letter_that_are_left_over_belong_together() -> None:
    worked = derivation("num_chips · max(C, 1)", value=6e15, unit="flops_per_s", num_chips=3, chip_flops_per_s=2e15)

    assert rows_of(worked)["so"] == "3 · max(2.00 PFLOP/s, 1) = 6.00 PFLOP/s"


def test_a_value_that_the_formula_has_no_name_for_is_said_in_words() -> None:
    assert rows_of(derivation("b > b_fsdp", fsdp_critical_tokens=850.0))["with"] == "fsdp critical = 850 tokens"


def test_a_title_spells_the_words_of_a_name_as_people_do() -> None:
    hosts = replace(derivation("N / 4", value=32.0, N=128), quantity="num hosts")

    assert derivation_pieces([hosts])[-1].title == "Number of hosts: 32"


def test_long_times_stay_in_seconds_where_a_formula_counts_in_them() -> None:
    worked = derivation("chip_s / 3600 · price", value=8.0, unit="usd", chip_s=7200.0, price=4.0)

    assert rows_of(worked)["so"] == "7,200 s / 3600 · 4 = $8.00"


def test_a_time_by_its_letter_is_shown_as_one() -> None:
    worked = derivation("T_lower = max(T_math, T_comms)", value=6e-4, unit="s", T_math=6e-4, T_comms=2e-4)

    assert rows_of(worked)["so"] == "T_lower = max(600 µs, 200 µs) = 600 µs"


def test_a_value_called_by_its_unit_alone_is_shown_in_it() -> None:
    assert rows_of(derivation("flops / C", flops=6e15, C_flops_per_s=2e15))["with"] == (
        "flops = 6.00 PFLOP, C = 2.00 PFLOP/s"
    )


def test_a_formula_that_names_other_things_than_the_values_is_not_worked() -> None:
    assert "so" not in rows_of(derivation("visible + edges · block/2", visible_keys=3.0))


def test_a_square_is_not_part_of_a_letters_name() -> None:
    assert rows_of(derivation("B = 4·α²/F", value=8.0, unit="tokens", α=2.0, F=2.0))["so"] == "B = 4·2²/2 = 8 tokens"


@pytest.mark.parametrize(("holds", "word"), [(True, "yes"), (False, "no")])
def test_a_condition_is_answered_in_words(*, holds: bool, word: str) -> None:
    assert rows_of(derivation("B > α/n", value=holds, B=850.0, α=2550.0, n=3.0))["so"] == f"850 > 2,550/3: {word}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(28672.0, "28,672"), (0.375, "0.375"), (28487.6, "28,488"), (1.97e14, "1.97e+14"), (float("inf"), "inf")],
)
def test_plain_numbers_are_written_out_while_they_are_short(value: float, text: str) -> None:
    assert rows_of(derivation("x", value=value, x=value))["with"] == f"x = {text}"


def test_nothing_is_shown_where_nothing_was_derived() -> None:
    report = Report(headline="Answer", pieces=())

    assert explained(report, []) == report


def test_the_explanation_follows_the_answer() -> None:
    screen = render(explained(Report(headline="Answer", pieces=()), [GATHER]), width=80, colour=False)

    assert screen.startswith("Answer\n\nWhere the numbers come from\n")


def test_json_carries_the_derivation_in_base_units() -> None:
    (entry,) = derivations_json([GATHER])

    assert entry == {
        "quantity": "all gather",
        "value": pytest.approx(34e6 * 0.75 / (2 * 4.5e10)),
        "unit": "s",
        "formula": "T = V · (N − 1)/N / (n · W)",
        "values": {"V_bytes": 34e6, "N": 4, "n": 2, "W_bytes_per_s": 4.5e10},
        "assumes": "bandwidth-bound; exact for rings and, with n = 1, for lines.",
        "source": "Scaling Book, ch. 3, all-gather.",
    }
