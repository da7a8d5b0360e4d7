"""bf16, int8 and fp8 side by side: Amdahl's law, the chip, the options, and published pairs."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ridgeline.cli.app import main
from ridgeline.cost.training.step import training_step
from ridgeline.errors import InputError
from ridgeline.hardware.catalog import load_chip
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, PlanRequest, Quantization, Remat, Workload
from ridgeline.job.precision import parse_quantization
from ridgeline.model.zoo import load_model
from ridgeline.report.blocks import Report
from ridgeline.report.precision import precision_chart, precision_pieces
from ridgeline.report.terminal import screen
from ridgeline.search.pinned import pinned_columns
from ridgeline.search.precision import PrecisionAnswer, SamePlan, precisions, same_plan
from ridgeline.search.precision_facts import COMPILED, PUBLISHED
from tests.measured.cases import measured_cases

FP8, INT8 = (parse_quantization({"kind": kind, "scaling": "fixed"}, where="") for kind in ("fp8", "int8"))
FSDP = PlanRequest(mesh={"fsdp": -1}, remat=Remat(policy="full"), gradient_accumulation=1)


def job_of(model: str, on: str, *, seq_len: int = 4096, plan: PlanRequest = FSDP) -> Job:
    hardware = parse_slice(on)
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=hardware,
        workload=Workload(seq_len=seq_len, global_batch=hardware.num_devices),
        plan=plan,
    )


def on_one_plan(job: Job, recipe: Quantization) -> SamePlan:
    return same_plan(*pinned_columns(job), recipe)


@cache
def answer_on(on: str) -> PrecisionAnswer:
    job = job_of("llama3.1-8b", on)
    return precisions(job, global_batch=job.hardware.num_devices)


def test_the_lines_of_the_law_add_up_to_the_step_without_and_with_the_recipe() -> None:
    setting, columns = pinned_columns(job_of("llama3.1-8b", "tpu7x:4x4x4"))
    law = same_plan(setting, columns, FP8)

    assert law.before_s == pytest.approx(float(training_step(setting, columns).expected_s))
    assert law.after_s == pytest.approx(float(training_step(replace(setting, quantization=FP8), columns).expected_s))


def test_matmuls_of_layers_are_eligible_and_neither_scores_nor_the_head_are() -> None:
    """Llama 3.1 8B, by hand: weights of a layer against the head's and the scores of a causal half, all of them thrice.

    Under full remat the layer's own are computed four times, the head's three, attention's forward twice; the bound's
    backward pass of attention is twice its forward.
    """
    width, mlp, heads, kv_heads, head, vocab, layers, tokens = 4096, 14336, 32, 8, 128, 128256, 32, 4096
    matmuls = layers * 2 * (width * heads * head * 2 + width * kv_heads * head * 2 + 3 * width * mlp)
    scores = layers * 4 * heads * head * tokens / 2
    in_layers = 4 * matmuls - 2 * layers * width * mlp  # the last matmul of a layer is not computed again
    whole = in_layers + 4 * scores + 3 * 2 * width * vocab

    law = on_one_plan(job_of("llama3.1-8b", "tpu7x:4x4x4"), FP8)

    assert law.eligible_flops_share == pytest.approx(in_layers / whole, rel=0.03)


def test_no_recipe_is_faster_than_eligible_matmuls_in_no_time() -> None:
    law = on_one_plan(job_of("deepseek3-671b", "tpu7x:8x8x8"), FP8)

    assert law.speedup < law.speedup_limit_ratio
    assert law.matmul_speedup < 2


@pytest.mark.parametrize(("on", "native"), [("tpu7x:4x4x4", "fp8"), ("v6e:8x8", "int8"), ("v5p:4x4x4", "int8")])
def test_a_chip_gains_from_the_format_that_it_multiplies_and_loses_scales_with_the_other(on: str, native: str) -> None:
    recipes = {each.recipe.kind: each for each in answer_on(on).recipes}
    (other,) = set(recipes) - {native}

    assert recipes[native].is_native
    assert recipes[native].same_plan.speedup > 1
    assert not recipes[other].is_native
    assert recipes[other].same_plan.matmul_speedup == 1
    assert recipes[other].same_plan.speedup < 1


def test_compiled_cycles_agree_with_the_catalogue_on_what_is_native() -> None:
    """1.5 times as fast or more: what an upcast spares in memory traffic is less."""
    for name, compiled in COMPILED.items():
        peaks = load_chip(name).peak_flops_per_s
        for kind in ("int8", "fp8"):
            assert (compiled.speedup(kind) > 1.5) == (kind in peaks), (name, kind)


def test_dynamic_scales_take_a_pass_over_inputs_and_output_gradients_and_fixed_ones_none() -> None:
    job = job_of("llama3.1-8b", "tpu7x:4x4x4")
    dynamic = on_one_plan(job, parse_quantization({"kind": "fp8", "scaling": "dynamic"}, where=""))
    others = [
        on_one_plan(job, parse_quantization({"kind": "fp8", "scaling": way}, where="")) for way in ("static", "fixed")
    ]

    assert dynamic.scales_s > 0
    assert [each.scales_s for each in others] == [0, 0]
    assert dynamic.after_s > others[0].after_s


def pass_bytes(job: Job, recipe: Quantization, ending: str) -> float:
    """Bytes of the passes whose names end so, in one step of a plan."""
    setting, columns = pinned_columns(job)
    step = training_step(replace(setting, quantization=recipe), columns)
    rate = setting.hbm_bytes_per_s * setting.efficiency.vector
    leaves = [part for _, part in step.walk() if part.composition == "leaf" and part.name.endswith(ending)]
    return sum(float(part.expected_s) for part in leaves) * rate


DYNAMIC = parse_quantization({"kind": "fp8", "scaling": "dynamic"}, where="")
BLOCKS = parse_quantization({"kind": "fp8", "granularity": "sub_channel"}, where="")


def test_products_of_one_input_find_its_scale_once() -> None:
    """Llama 3.1 8B, one sequence of 4,096 a device, by hand, in elements of a layer and token.

    Forward, and again in the backward pass: the input of query, key and value, that of the output projection, that of
    gate and up, that of down. Output gradients: of each product.
    """
    width, mlp, heads, kv_heads, head = 4096, 14336, 32, 8, 128
    inputs = width + heads * head + width + mlp
    gradients = heads * head + 2 * kv_heads * head + width + 2 * mlp + width
    job = job_of("llama3.1-8b", "tpu7x:4x4x4")

    assert pass_bytes(job, DYNAMIC, "/scale") == pytest.approx(2 * 4096 * 32 * (2 * inputs + gradients))


def test_gathered_weights_are_read_and_rounded_before_each_pass_of_a_layer() -> None:
    """Two bytes read and one written, of all weights of 32 layers, forward and backward; norms and head stay."""
    width, mlp, heads, kv_heads, head = 4096, 14336, 32, 8, 128
    weights = 32 * (width * head * (2 * heads + 2 * kv_heads) + 3 * width * mlp)
    job = job_of("llama3.1-8b", "tpu7x:4x4x4")

    assert pass_bytes(job, FP8, "/round") == pytest.approx(2 * 3 * weights)


def test_weights_that_are_kept_rounded_are_not_rounded_again() -> None:
    kept = job_of("llama3.1-8b", "tpu7x:4x4x4", plan=replace(FSDP, remat=Remat(policy="none")))
    again = job_of("llama3.1-8b", "tpu7x:4x4x4")

    assert pass_bytes(again, FP8, "/round") == pytest.approx(2 * pass_bytes(kept, FP8, "/round"))


def test_scales_of_sub_channels_are_paid_on_the_vector_unit_and_in_rounding_again() -> None:
    """Three operations on a partial sum of 128: 3/(2·128) of the FLOPs of the eligible matmuls, at 9.6 TFLOP/s."""
    job = job_of("llama3.1-8b", "tpu7x:4x4x4")
    setting, columns = pinned_columns(job)
    blocks, tensor = on_one_plan(job, BLOCKS), on_one_plan(job, DYNAMIC)
    flops = sum(
        float(part.work.amounts.get("flops.fp8", 0.0))
        for _, part in training_step(replace(setting, quantization=BLOCKS), columns).walk()
        if part.composition == "leaf"
    )

    assert blocks.blocks_s == pytest.approx(flops * 3 / 256 / 9.6e12)
    assert blocks.rounding_s > tensor.rounding_s
    assert blocks.scales_s > tensor.scales_s
    assert blocks.after_s > tensor.after_s


def test_a_chip_whose_vector_unit_has_no_public_rate_is_not_asked_for_sub_channels() -> None:
    job = replace(job_of("llama3.1-8b", "v6e:8x8"), plan=replace(FSDP, quantization=BLOCKS))

    with pytest.raises(InputError) as refused:
        precisions(job, global_batch=64)
    assert (refused.value.where, refused.value.value) == ("plan.quantization.granularity", "sub_channel")


def test_noise_of_stochastic_rounding_is_taken_as_nothing_and_said_to_be() -> None:
    job = job_of("llama3.1-8b", "tpu7x:4x4x4")
    noisy = parse_quantization({"kind": "fp8", "rounding": "stochastic"}, where="")

    assert on_one_plan(job, noisy) == on_one_plan(job, DYNAMIC)
    asked = precisions(replace(job, plan=replace(FSDP, quantization=noisy)), global_batch=128)
    effect = next(option.effect for option in asked.recipes[1].options if option.name == "rounding")
    assert "which is taken as nothing; so is noise" in effect


def test_explain_shows_where_the_cost_of_converting_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama3.1-8b", "--on=v5e:4x4", "--seq-len=4096", "--global-batch=16", "--mesh=fsdp=16", "--remat=full")

    assert main(["train", *words, "--precision", "--explain"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "formula P·(b_w + narrow_bytes + scale_bytes)" in text
    assert "assumes weights are gathered before they are rounded" in text
    assert "formula elements_size·b_a" in text


def test_every_option_of_a_recipe_has_a_stated_effect() -> None:
    for recipe in answer_on("tpu7x:4x4x4").recipes:
        assert [option.name for option in recipe.options] == ["granularity", "scaling", "rounding"]
        assert all(option.effect for option in recipe.options)


def test_kept_activations_and_gathered_weights_of_half_the_bytes_are_planned_anew() -> None:
    answer = answer_on("tpu7x:4x4x4")
    fp8 = next(each for each in answer.recipes if each.recipe.kind == "fp8")

    assert fp8.narrow is not None
    assert fp8.narrow.memory.parts["saved_activations"] < answer.best.memory.parts["saved_activations"]
    assert 0.5 < fp8.gathered_bytes / answer.gathered_bytes < 0.65  # the table and the head stay as they are


def test_a_longer_sequence_gains_less_because_scores_stay_in_bf16() -> None:
    short, long = (on_one_plan(job_of("llama3.1-8b", "tpu7x:4x4x4", seq_len=length), FP8) for length in (4096, 32768))

    assert long.eligible_flops_share < short.eligible_flops_share
    assert long.speedup < short.speedup


def published_pairs() -> list[tuple[str, float, float]]:
    """Name, measured and predicted gain of fp8 runs on Ironwood beside the bf16 run of the same day and plan."""
    cases = {case.id: case for case in measured_cases()}
    found: list[tuple[str, float, float]] = []
    for name, case in cases.items():
        plain = cases.get(name.replace("-fp8-", "-bf16-"))
        if plain is None or case is plain or "-fp8-" not in name or case.assumed:
            continue
        law = on_one_plan(case.job, FP8)
        found.append((name, plain.step_s / case.step_s, law.speedup))
    return found


def test_published_gains_of_fp8_are_predicted_within_a_fifth_and_their_mean_within_a_tenth() -> None:
    pairs = published_pairs()
    errors = [predicted / measured - 1 for _, measured, predicted in pairs]

    assert len(pairs) >= 6
    assert max(map(abs, errors)) < 0.2
    assert abs(sum(errors) / len(errors)) < 0.1


def test_the_page_states_these_pairs_and_these_cycles() -> None:
    page = (Path(__file__).parents[2] / "docs" / "precision.md").read_text(encoding="utf-8")
    rows = {cells[0]: cells[1:] for line in page.splitlines() if (cells := [c.strip() for c in line.split("|")[1:-1]])}

    for name, measured, predicted in published_pairs():
        shown, told, error = rows[name]
        assert shown == f"{measured:.2f}"
        assert float(told) == pytest.approx(predicted, abs=0.02)  # calibration may move it by so much unnoticed
        assert float(error.strip("%")) / 100 == pytest.approx(float(told) / measured - 1, abs=0.01)
    for chip, compiled in COMPILED.items():
        beside = (f"{compiled.cycles[kind]:,} ({compiled.speedup(kind):.2f}×)" for kind in ("int8", "fp8"))
        assert rows[chip] == [f"{compiled.cycles['bf16']:,}", *beside]


def test_dense_short_sequences_gain_most_then_experts_then_long_sequences_as_published() -> None:
    predicted = {name: gain for name, _, gain in published_pairs()}

    def gain(start: str) -> float:
        return next(value for name, value in predicted.items() if name.startswith(start))

    assert gain("tpu7x-llama3.1-405b") > gain("tpu7x-deepseek-v3") > gain("tpu7x-llama3.1-70b-256c-128k")


def test_int8_leaves_experts_in_bf16_as_the_published_recipe_does() -> None:
    """Mixtral 8x7B on 256 v6e: int8 ran 1.09 times as fast as bf16 of the day before."""
    cases = {case.id: case for case in measured_cases()}
    narrow, plain = (cases[f"v6e-mixtral-8x7b-256c-4k-{run}"] for run in ("int8-20241030", "bf16-20241029"))

    law = on_one_plan(narrow.job, INT8)

    assert law.eligible_flops_share < 0.3
    assert law.speedup == pytest.approx(plain.step_s / narrow.step_s, rel=0.1)


def test_the_screen_shows_the_law_the_published_range_and_the_upcast() -> None:
    text = screen(Report(headline="", pieces=tuple(precision_pieces(answer_on("tpu7x:4x4x4"), chip="tpu7x"))))

    assert {f"{each.speedup:.2f}" for each in PUBLISHED["tpu7x"]} <= set(text.split())
    assert "this job, by the estimate, fixed scales" in text
    assert "No native int8" in text
    assert "2,775,112 cycles" in text


def test_the_chart_starts_where_matmuls_are_as_fast_as_in_bf16_and_marks_every_recipe() -> None:
    chart = precision_chart(answer_on("tpu7x:4x4x4"), title="")

    assert [curve.points[0] for curve in chart.curves] == [(1, pytest.approx(1.0))] * 2
    assert len(chart.marks) == 2


def test_the_command_prints_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama3.1-8b", "--on=v6e:4x4", "--seq-len=4096", "--global-batch=16", "--mesh=fsdp=16", "--remat=full")

    assert main(["train", *words, "--precision", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["precision"]
    assert [each["recipe"]["kind"] for each in found["recipes"]] == ["int8", "fp8"]
    assert found["compiled_cycles"]["int8"] == 1_745_702
    assert main(["train", *words, "--precision", "--laws"]) == 2


def test_plans_made_anew_say_their_micro_steps_and_whose_recipes_are_meant() -> None:
    twice = replace(FSDP, gradient_accumulation=2)
    found = precisions(job_of("llama3.1-8b", "h100:8", plan=twice), global_batch=16)
    text = screen(Report(headline="", pieces=tuple(precision_pieces(found, chip="h100"))))

    assert "fsdp=8, 2 micro-steps" in text
    assert "MaxText" not in text
    assert found.best.plan.gradient_accumulation == 2
