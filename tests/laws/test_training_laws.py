"""The laws of training: figures of the Scaling Book, and what must hold for any machine and batch."""

from __future__ import annotations

import inspect
from dataclasses import fields
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ridgeline
from ridgeline.cost.explain import paragraphs_of
from ridgeline.cost.laws.system import LAWS, training_laws
from ridgeline.cost.questions.layer_communication import layer_communication
from ridgeline.errors import InputError

V5P = {"C_flops_per_s": 4.59e14, "W_ici_bytes_per_s": 1.8e11}
LLAMA3_70B = V5P | {"F": 28672, "n_axes": 3, "M_X": 2, "M_Y": 1}

rates = st.floats(1e9, 1e15)
widths = st.integers(256, 65536)
chips = st.integers(2, 10_000)


def test_the_gates_of_chapter_6_pass_one_after_the_other() -> None:
    laws = training_laws(**LLAMA3_70B, batch_tokens="4Mi", num_chips=8960, T=4096)

    assert [(gate.name, gate.passed) for gate in laws.gates] == [
        ("sequences", False),
        ("fsdp", False),
        ("mixed", True),
    ]
    assert laws["tokens_per_chip"] == pytest.approx(468.1, abs=0.1)
    assert laws["fsdp_critical_tokens_per_chip"] == 850
    assert laws["mixed_critical_tokens_per_chip"] == pytest.approx(453.6, abs=0.1)


def test_the_recommended_layout_of_chapter_6_is_1024_by_2_by_4() -> None:
    laws = training_laws(**LLAMA3_70B, batch_tokens="4Mi", num_chips=8960, T=4096)

    ways = ("capped_data_degree", "context_degree", "rounded_tensor_degree", "num_layout_chips")
    assert [laws[name] for name in ways] == [1024, 2, 4, 8192]
    assert (laws["whole_data_degree"], laws["whole_tensor_degree"]) == (2240, 4)
    assert laws.layout == "FSDP+TP"


def test_four_pods_fail_inside_the_pod_and_not_between_them() -> None:
    laws = training_laws(**LLAMA3_70B, batch_tokens="4Mi", num_chips=4 * 8960, num_slices=4, W_dcn_bytes_per_s=6.25e9)

    assert {gate.name: gate.passed for gate in laws.gates} == {"fsdp": False, "mixed": False, "dcn": True}
    assert laws.layout == "data parallel over DCN, FSDP+TP inside each pod"
    assert laws.reason == (
        "no scheme is bound by arithmetic; the closest is FSDP with tensor parallelism, whose communication takes "
        "1.97 times as long as arithmetic. "
        "117 tokens a chip, where FSDP asks for 850 and FSDP with tensor parallelism for 454: "
        "use at most 2,312 chips a slice, or a batch of at least 4.06M tokens a slice"
    )


def test_overlapping_both_kinds_of_communication_asks_for_a_quarter_of_the_tokens() -> None:
    summed, overlapped = (
        training_laws(alpha_flops_per_byte=2550, F=32768, overlapped=switch)["mixed_critical_tokens_per_chip"]
        for switch in (False, True)
    )

    assert (round(summed), round(overlapped)) == (397, 99)


def test_a_small_width_makes_the_mixed_scheme_worse_than_fsdp() -> None:
    """Question 3 of chapter 5: LLaMA-2 13B, F = 13,824."""
    laws = training_laws(alpha_flops_per_byte=2550, F=13824, n_axes=3, tokens_per_chip=900)

    assert laws["mixed_critical_tokens_per_chip"] > laws["fsdp_critical_tokens_per_chip"]
    assert laws.choice == "fsdp only"


def test_the_tensor_limit_depends_neither_on_the_batch_nor_on_the_dtype() -> None:
    laws = training_laws(**LLAMA3_70B, batch_tokens="4Mi", num_chips=8960, b_a=1)

    assert laws["tensor_whole_degree"] == 11
    assert not any(laws.depends("tensor_largest_degree", on=name) for name in ("B_tokens", "batch_tokens", "b_a"))


@given(rates, rates, widths, chips, st.floats(1e3, 1e9))
def test_no_split_communicates_less_than_the_best_one(C: float, W: float, F: int, N: int, B: float) -> None:
    best = training_laws(B_tokens=B, F=F, N=N)["optimal_data_degree"]

    def moved(X: float) -> float:
        layer = layer_communication(
            "mixed", B_tokens=B, D=1, F=F, X=X, Y=N / X, M_X=2, C_flops_per_s=C, W_ici_bytes_per_s=W
        )
        return layer.forward.weights_s + layer.forward.activations_s

    assert moved(best) <= min(moved(best * factor) for factor in (0.5, 0.9, 1.1, 2.0)) * (1 + 1e-9)


@given(rates, rates, widths, chips, st.floats(1e3, 1e9))
def test_the_compute_ratio_is_that_of_the_layers_times_at_the_best_split(
    C: float, W: float, F: int, N: int, B: float
) -> None:
    laws = training_laws(C_flops_per_s=C, W_ici_bytes_per_s=W, B_tokens=B, F=F, N=N)
    X = laws["optimal_data_degree"]

    layer = layer_communication(
        "mixed", B_tokens=B, D=64, F=F, X=X, Y=N / X, M_X=2, C_flops_per_s=C, W_ici_bytes_per_s=W
    ).forward

    assert layer is not None
    assert layer.weights_s == pytest.approx(layer.activations_s)
    assert layer.math_s / (layer.weights_s + layer.activations_s) == pytest.approx(laws["mixed_compute_ratio"])


@given(rates, rates, widths, chips)
def test_at_its_critical_batch_fsdp_computes_as_long_as_it_communicates(C: float, W: float, F: int, N: int) -> None:
    laws = training_laws(C_flops_per_s=C, W_ici_bytes_per_s=W, N=N, n_axes=2)

    layer = layer_communication(
        "fsdp",
        B_tokens=laws["fsdp_critical_tokens"],
        D=64,
        F=F,
        X=N,
        M_X=2,
        C_flops_per_s=C,
        W_ici_bytes_per_s=W,
    )

    assert layer.forward is not None
    assert layer.backward is not None
    assert layer.forward.math_s == pytest.approx(layer.forward.weights_s)
    assert layer.backward.math_s == pytest.approx(layer.backward.weights_s)


@given(rates, rates, widths, st.floats(1.01, 10))
def test_more_link_bandwidth_never_asks_for_more_tokens(C: float, W: float, F: int, more: float) -> None:
    slow, fast = (training_laws(C_flops_per_s=C, W_ici_bytes_per_s=rate, F=F, n_axes=3) for rate in (W, W * more))

    for quantity in ("fsdp_critical_tokens_per_chip", "mixed_critical_tokens_per_chip"):
        assert fast[quantity] < slow[quantity]
    assert fast["tensor_largest_degree"] > slow["tensor_largest_degree"]


@given(widths, chips, st.floats(1e3, 1e9))
def test_a_rounded_split_never_uses_more_chips_than_there_are(F: int, N: int, B: float) -> None:
    laws = training_laws(B_tokens=B, F=F, N=N)

    assert laws["num_layout_chips"] <= N
    assert laws["whole_data_degree"] * laws["whole_tensor_degree"] == N


@given(st.floats(1, 5000), widths, rates)
def test_a_compute_bound_split_exists_exactly_above_the_critical_batch(b: float, F: int, alpha: float) -> None:
    laws = training_laws(tokens_per_chip=b, F=F, alpha_flops_per_byte=alpha)

    critical = laws["mixed_critical_tokens_per_chip"]
    if abs(b / critical - 1) > 1e-6:
        assert laws["compute_bound_split_exists"] == laws["mixed_is_compute_bound"]


@given(st.integers(2, 512), st.integers(1, 16))
def test_experts_ask_for_more_tokens_by_e_over_k(E: int, k: int) -> None:
    dense = training_laws(alpha_flops_per_byte=2550, n_axes=3, F=4096)
    sparse = training_laws(alpha_flops_per_byte=2550, n_axes=3, F=4096, E=E, k=k)

    for quantity in ("fsdp_critical_tokens_per_chip", "mixed_critical_tokens_per_chip"):
        assert sparse[quantity] == pytest.approx(dense[quantity] * E / k)


@given(st.floats(1e6, 1e12), st.integers(2, 4096), st.floats(4, 16))
def test_every_stage_of_zero_needs_less_than_the_one_before(P: float, X: int, kappa: float) -> None:
    stages = [training_laws(P=P, X=X, kappa=kappa, stage=stage)["zero_bytes"] for stage in range(4)]

    assert stages == sorted(stages, reverse=True)
    assert stages[0] == pytest.approx((4 + kappa) * P)
    assert stages[3] == pytest.approx((4 + kappa) * P / X)


def test_mfu_of_a_published_run_is_that_of_chapter_4() -> None:
    """DeepSeek-V3: 37B active parameters, 14.8T tokens, 2.79M H800 hours, half of a sparse FP8 peak."""
    laws = training_laws(
        P_active=37e9, run_tokens="14.8T", chip_s="2790000h", sparse_flops_per_s=3.026e15, sparsity_factor=2
    )

    assert laws["mfu"] == pytest.approx(0.217, rel=0.01)


@given(st.floats(1e18, 1e26), chips, rates, st.floats(0.05, 1.0))
def test_a_run_at_some_utilization_has_that_utilization(flops: float, num_chips: int, C: float, mfu: float) -> None:
    run_s = training_laws(run_flops=flops, num_chips=num_chips, C_flops_per_s=C, mfu=mfu)["run_s"]

    assert training_laws(run_flops=flops, num_chips=num_chips, C_flops_per_s=C, run_s=run_s)["mfu"] == pytest.approx(
        mfu
    )


def test_a_pipeline_waits_less_the_more_pieces_it_is_fed() -> None:
    """The book lists what stages hand over and gives no bubble; the planner's is Narayanan et al.'s."""
    laws = training_laws(num_stages=8, num_microbatches=32, num_repeats=2, B_tokens=65536, D=8192)

    assert laws["bubble_ratio"] == 7 / 64
    assert laws["hand_over_bytes"] == 2 * 65536 * 8192 / 32


def test_every_law_says_its_formula_and_its_source() -> None:
    silent = [name for name, formula in LAWS if not {"Formula", "Source"} <= paragraphs_of(formula).keys()]

    assert silent == []


def test_every_law_takes_what_others_give_or_callers_know() -> None:
    """A misspelt parameter would be a quantity that nothing gives and nobody would think of."""
    given_names = {name for name, _ in LAWS}
    taken = {name for _, formula in LAWS for name in inspect.signature(formula).parameters}

    assert {name for name in taken - given_names if name.islower() and len(name) > 6} == {
        "chip_hours",
        "hbm_bytes",
        "mlp_ratio",
        "num_chips_per_host",
        "num_chips_per_pod",
        "num_microbatches",
        "num_mlp_saved",
        "num_other_chips",
        "num_repeats",
        "num_slices",
        "num_stages",
        "num_stream_saved",
        "overlapped",
        "run_tokens",
        "sparse_flops_per_s",
        "sparsity_factor",
        "usd_per_chip_hour",
        "n_tensor_axes",
    }


def test_the_question_is_exported_with_its_record() -> None:
    laws = ridgeline.training_laws(alpha_flops_per_byte=2550, n_axes=1)

    assert laws["fsdp_critical_tokens_per_chip"] == 2550
    assert [field.name for field in fields(laws)] == ["known"]
    assert laws.derivations[0].formula == "b = α / n_axes · E / k"


def test_the_square_root_of_the_tokens_decides_the_ratio() -> None:
    few, many = (training_laws(alpha_flops_per_byte=2550, F=32768, tokens_per_chip=b) for b in (100, 400))

    assert many["mixed_compute_ratio"] / few["mixed_compute_ratio"] == pytest.approx(sqrt(4))


@pytest.mark.parametrize(
    ("numbers", "where"),
    [
        ({"batch_tokens": 5, "T": 4096, "num_chips": 8960}, "num_sequences"),
        ({"batch_tokens": "4Mi", "T": 1e20, "num_chips": 8960}, "num_sequences"),
        ({"num_chips": 128, "num_slices": 1000}, "N"),
    ],
)
def test_quantities_that_leave_less_than_one_of_something_are_refused(numbers: dict[str, float], where: str) -> None:
    with pytest.raises(InputError) as refused:
        training_laws(alpha_flops_per_byte=2550, n_axes=3, F=28672, **numbers)

    assert (refused.value.where, refused.value.expected) == (where, "at least 1")


def test_a_stage_of_zero_may_be_a_float_as_the_command_line_reads_it() -> None:
    assert training_laws(P=64, X=64, stage=1.0)["zero_bytes"] == 268
