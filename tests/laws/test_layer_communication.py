"""What each scheme moves for one layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.questions.layer_communication import BACKWARD, FORWARD, layer_communication
from ridgeline.errors import InputError

SIZES = {"B_tokens": 4194304, "D": 8192, "F": 28672, "X": 512, "Y": 8}
B, D, F, X, Y = SIZES.values()

sizes = st.integers(1, 4096)


def test_the_bytes_of_each_scheme_are_those_of_the_book_s_table() -> None:
    table = {scheme: layer_communication(scheme, **SIZES).table_bytes for scheme in FORWARD}

    assert table == {
        "dp": 8 * D * F,
        "fsdp": 12 * D * F,
        "tp": 8 * B * D,
        "mixed": 4 * B * D / X + 4 * D * F / Y + 8 * B * D / X + 8 * D * F / Y,
    }


def test_the_flops_of_each_scheme_are_those_of_the_book_s_table() -> None:
    flops = {scheme: layer_communication(scheme, **SIZES).flops for scheme in FORWARD}

    assert flops == {
        "dp": 12 * B * D * F / X,
        "fsdp": 12 * B * D * F / X,
        "tp": 12 * B * D * F / Y,
        "mixed": 12 * B * D * F / (X * Y),
    }


def test_the_mixed_row_of_the_table_counts_more_than_its_algorithm_moves() -> None:
    mixed = layer_communication("mixed", **SIZES)

    assert mixed.listed_bytes == 10 * B * D / X + 12 * D * F / Y
    assert mixed.moved_bytes == 8 * B * D / X + 12 * D * F / Y


@given(sizes, sizes, sizes, sizes)
def test_the_mixed_scheme_is_its_parts(b: int, d: int, f: int, ways: int) -> None:
    """With one tensor way it moves FSDP's weights, with one data way tensor parallelism's activations."""
    fsdp = layer_communication("fsdp", B_tokens=b, D=d, F=f, X=ways).forward
    tp = layer_communication("tp", B_tokens=b, D=d, F=f, Y=ways).forward
    as_fsdp = layer_communication("mixed", B_tokens=b, D=d, F=f, X=ways).forward
    as_tp = layer_communication("mixed", B_tokens=b, D=d, F=f, Y=ways).forward

    assert fsdp is not None
    assert tp is not None
    assert as_fsdp is not None
    assert as_tp is not None
    assert as_fsdp.weights_bytes == fsdp.weights_bytes
    assert as_tp.activations_bytes == tp.activations_bytes


def test_only_activations_are_on_the_critical_path() -> None:
    paths = {scheme: layer_communication(scheme).critical_path for scheme in FORWARD}

    assert paths == {"dp": "none", "fsdp": "none", "tp": "activations", "mixed": "activations"}


def test_the_schedule_says_over_which_ways_only_where_there_are_two_kinds() -> None:
    assert layer_communication("tp").schedule["backward"] == (
        "all_gather:dOut",
        "all_gather:In (reusable)",
        "reduce_scatter:dIn",
    )
    assert layer_communication("mixed").schedule["forward"][0] == "all_gather_Y:In"


def test_every_gradient_is_summed_once_and_every_weight_gathered_twice_under_fsdp() -> None:
    steps = [(each.kind, each.array) for each in (*FORWARD["fsdp"], *BACKWARD["fsdp"])]

    for weight in ("W_in", "W_out"):
        assert steps.count(("all_gather", weight)) == 2
        assert steps.count(("reduce_scatter", f"d{weight}")) == 1


def test_a_gate_moves_as_the_matrix_beside_it_does() -> None:
    plain, gated = (layer_communication("fsdp", **SIZES, gated=switch) for switch in (False, True))

    assert plain.moved_bytes is not None
    assert gated.moved_bytes == plain.moved_bytes * 3 / 2
    assert gated.schedule["forward"] == ("all_gather:W_in", "all_gather:W_gate", "all_gather:W_out")


def test_without_sizes_there_is_a_schedule_and_no_number() -> None:
    answer = layer_communication("fsdp")

    assert answer.num_collectives == 6
    assert (answer.flops, answer.moved_bytes, answer.derivations) == (None, None, ())


def test_a_bound_is_known_only_with_both_rates() -> None:
    without = layer_communication("mixed", **SIZES, C_flops_per_s=4.59e14).forward
    assert without is not None
    assert without.summed_bound is None


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError) as refused:
        layer_communication("fdsp")

    assert (refused.value.expected, refused.value.fix) == ("dp, fsdp, tp, mixed", "did you mean fsdp, dp?")


def test_a_number_by_a_wrong_name_is_refused() -> None:
    with pytest.raises(InputError, match="unknown number\n  where:    tokens"):
        layer_communication("fsdp", tokens=4096, D=8, F=32)
