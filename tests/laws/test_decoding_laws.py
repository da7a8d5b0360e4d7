"""The laws of serving agree with each other, and with what counting and a search by hand give."""

from __future__ import annotations

from math import isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ridgeline
from ridgeline.errors import InputError

V5E = {"C_flops_per_s": 1.97e14, "W_hbm_bytes_per_s": 8.1e11, "hbm_bytes": 16e9}


@given(st.sampled_from([8, 16, 32]), st.integers(1024, 32768))
def test_one_sequence_more_than_fit_does_not_fit(num_chips: int, T: int) -> None:
    given = {"P": 70e9, "b_w": 1, "token_cache_bytes": 163840, "T": T, "num_chips": num_chips, "hbm_bytes": 16e9}
    room = ridgeline.decode_laws(**given)["num_fitting_sequences"]

    fits = [ridgeline.decode_laws(B=B, **given)["weights_and_caches_fit"] for B in (max(room, 1), room + 1)]
    assert fits == [room > 0, False]


@given(st.floats(1.05, 8), st.integers(512, 16384))
def test_the_batch_of_a_longer_step_takes_just_that_long(ratio: float, T: int) -> None:
    given = {"P": 70e9, "b_w": 1, "token_cache_bytes": 163840, "T": T, "num_chips": 16} | V5E
    alone = ridgeline.decode_laws(latency_ratio=ratio, **given)
    batch = alone["affordable_rows"]

    step_s = ridgeline.decode_laws(B=batch, **given)["decode_step_s"]
    assert isclose(step_s, ratio * alone["lone_step_s"], rel_tol=1e-9)


@given(st.integers(1, 4096), st.sampled_from([2.5, 3.5, 4.0]), st.sampled_from([2, 3]))
def test_splitting_both_dimensions_is_quicker_from_the_critical_number_of_chips(N: int, ratio: float, n: int) -> None:
    given = {"D": 8192, "F": 8192 * ratio, "N": N, "B": 64, "W_ici_bytes_per_s": 9e10, "n_axes": n}
    laws = ridgeline.decode_laws(**given)

    assert laws["stationary_is_quicker"] == (laws["stationary_link_s"] < laws["mlp_link_s"])


def test_no_other_split_of_both_dimensions_communicates_less() -> None:
    given = {"D": 8192, "F": 32768, "N": 256, "B": 64, "W_ici_bytes_per_s": 9e10}
    best = ridgeline.decode_laws(**given)

    others = [ridgeline.decode_laws(stationary_model_degree=X, **given) for X in (2, 4, sqrt(32), 8, 16)]
    assert min(other["stationary_link_s"] for other in others) == pytest.approx(best["stationary_link_s"])
    assert best["stationary_link_factor"] == pytest.approx(sqrt(128))


def test_a_step_waits_for_arithmetic_from_the_critical_batch_on() -> None:
    given = {"P": 8e9, "b_w": 1, "num_chips": 4} | V5E

    bounds = [ridgeline.decode_laws(B=B, **given).step_bound for B in (121, 122)]  # 197 / 0.81 / 2 = 121.6
    assert bounds == ["memory", "compute"]


def test_the_cache_is_split_by_heads_then_sequences_then_tokens() -> None:
    names = ("cache_head_degree", "cache_batch_degree", "cache_token_degree")

    assert [ridgeline.decode_laws(Y=32, K=8, B=64)[name] for name in names] == [8, 4, 1]
    assert [ridgeline.decode_laws(Y=32, K=8, B=2)[name] for name in names] == [8, 2, 2]


@given(st.floats(0.3, 0.6), st.floats(0.65, 0.9))
def test_better_drafts_are_worth_more_of_them(low: float, high: float) -> None:
    tried = {"num_draft_tokens": [0, 1], "loop_s": [10.0, 11.0]}

    best = [ridgeline.draft_lengths(acceptance_fraction=[1.0, (1 + a) / 2], **tried).best for a in (low, high)]
    assert best[0] <= best[1]


def test_one_measurement_does_not_say_how_many_tokens_to_draft() -> None:
    with pytest.raises(InputError, match="two numbers of drafts at least"):
        ridgeline.draft_lengths(num_draft_tokens=[3], loop_s=[20.0], acceptance_fraction=[0.7])


def test_only_splitting_matrices_helps_to_generate() -> None:
    schemes = ["fsdp", "data", "sequence", "model"]
    decode, prefill = (ridgeline.decode_layout(schemes, phase=phase) for phase in ("decode", "prefill"))

    assert (decode.helpful, prefill.helpful) == (("model",), ("sequence", "model"))
    assert decode.reasons["fsdp"] == "weights travel over links in every step, which are slower than memory"


def test_a_scheme_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="unknown scheme"):
        ridgeline.decode_layout(["magic"])


def test_more_chips_than_the_largest_slice_has_are_refused() -> None:
    with pytest.raises(InputError, match="no slice is so large"):
        ridgeline.smallest_slice("v5e", 257)


def test_the_laws_take_a_model_by_name() -> None:
    laws = ridgeline.decode_laws("llama3.1-70b", T=8192, b_w=1, b_a=1, num_chips=16, **V5E)

    assert laws["token_cache_bytes"] == 163840
    assert laws["num_fitting_sequences"] == (16 * 16e9 - laws["P"]) // (163840 * 8192)
