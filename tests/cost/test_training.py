"""The step: FLOPs counted by hand, work that adds up, laws that hold for every plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.cost.causes import time_by_cause
from ridgeline.cost.training.executed import executed_flops
from ridgeline.cost.training.held_weights import local_elements
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.step import roofline_s, training_step
from ridgeline.model.accounting import operations
from ridgeline.model.operations import Span
from ridgeline.model.parameters import count_parameters
from ridgeline.model.spec import LayerSpec, MlpSpec
from ridgeline.search.meshes import legal_meshes, limits_of
from tests.cost.settings import ATTENTION, DENSE, SPARSE, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.work import Part

TOKENS = 256 * 2048
LAYER_WEIGHTS = 2048 * 128 * (16 + 2 * 8) + 16 * 128 * 2048 + 3 * 2048 * 8192
HEAD_WEIGHTS = 2048 * 32768
ATTENTION_FLOPS = 4 * 1024 * 16 * 128  # forward, a token and layer: 4·(S/2)·N·H


def flops_of(step: Part) -> float:
    return sum(float(amount) for resource, amount in step.work.amounts.items() if resource.startswith("flops"))


def test_a_step_without_recomputation_does_three_times_the_forward_matmuls() -> None:
    setting = setting_on("v5e:2x2")
    step = training_step(setting, one_plan(setting, {"fsdp": 4}, policy="none"))

    matmuls = 6 * TOKENS * (8 * LAYER_WEIGHTS + HEAD_WEIGHTS) / 4
    attention = 3 * TOKENS * 8 * ATTENTION_FLOPS / 4
    assert flops_of(step) == pytest.approx(matmuls + attention)


def test_full_remat_repeats_all_but_the_last_matmul_of_a_layer() -> None:
    setting = setting_on("v5e:2x2")
    kept = training_step(setting, one_plan(setting, {"fsdp": 4}, policy="none"))
    full = training_step(setting, one_plan(setting, {"fsdp": 4}, policy="full"))

    repeated = 2 * TOKENS * 8 * (LAYER_WEIGHTS - 2048 * 8192) + TOKENS * 8 * ATTENTION_FLOPS
    assert flops_of(full) - flops_of(kept) == pytest.approx(repeated / 4)


def test_logits_in_tiles_are_computed_again_in_the_backward_pass() -> None:
    setting = replace(setting_on("v5e:2x2"), vocab_tiling=4)

    executed = executed_flops(setting, one_plan(setting, {"fsdp": 4}, policy="none"), block_keys=None)

    once = 2 * TOKENS * HEAD_WEIGHTS / 4
    logits = {each.phase: each.flops for each in executed if each.part == "head/logits"}
    assert logits == pytest.approx({"forward": once, "recompute": once, "backward": 2 * once})


def test_keeping_the_attention_output_spares_its_recomputation() -> None:
    setting = setting_on("v5e:2x2")
    without = training_step(setting, one_plan(setting, {"fsdp": 4}, policy="minimal"))
    kept = training_step(setting, one_plan(setting, {"fsdp": 4}, policy="minimal_with_context"))

    assert flops_of(without) - flops_of(kept) == pytest.approx(TOKENS * 8 * ATTENTION_FLOPS / 4)


def test_fsdp_gathers_the_layers_weights_twice_and_reduces_their_gradients_once() -> None:
    """Bytes over the busiest of the two lines of a v5e:2x2: 3/4 of bf16 weights over two links, three times."""
    setting = setting_on("v5e:2x2")
    step = training_step(setting, one_plan(setting, {"fsdp": 4}))

    norms = 8 * 2 * 2048
    gathered = 3 * 2 * (8 * LAYER_WEIGHTS + norms) + 2 * 2 * (2 * HEAD_WEIGHTS + 2048)
    assert float(step.work.amounts["link.weights"]) == pytest.approx(gathered * 3 / 4 / 2)


def test_tensor_parallelism_gathers_and_scatters_the_stream_in_every_branch() -> None:
    """Forward 2, recomputation 1 gather and, for the first branch's output, 1 scatter; backward 2; two branches."""
    setting = setting_on("v5e:2x2")
    step = training_step(setting, one_plan(setting, {"tp": 4}))

    stream = TOKENS * 2048 * 2
    assert float(step.work.amounts["link.tensor"]) == pytest.approx(8 * (2 * 5 + 1) * stream * 3 / 4 / 2)


def test_expert_parallelism_sends_every_copy_there_and_back_in_both_passes() -> None:
    """On a line of two, half of each device's bytes cross the link: dispatch and combine, forward and backward, and
    both again in between: experts need their inputs, and the router's gradient needs the outputs."""
    setting = setting_on("v5e:2x2", model=SPARSE)
    step = training_step(setting, one_plan(setting, {"ep": 2, "fsdp": 2}))

    copies = TOKENS / 4 * 2 * 2048 * 2
    assert float(step.work.amounts["link.expert"]) == pytest.approx(8 * 6 * copies / 2)


def test_a_pipeline_of_four_fed_with_eight_microbatches_idles_three_eighths_of_its_work() -> None:
    setting = setting_on("v5p:2x2x1")
    step = training_step(setting, one_plan(setting, {"pp": 4}, microbatches=8))
    children = {child.name: child for child in step.children}
    bubble = next(part for _, part in step.walk() if part.name == "bubble")
    backward = next(part for _, part in step.walk() if part.name == "backward")

    layers_s = children["forward"].expected_s + backward.expected_s
    assert bubble.expected_s == pytest.approx(3 / 8 * layers_s)


def test_shards_of_the_parameters_sum_to_the_whole() -> None:
    setting = setting_on("v5e:2x2")
    total = count_parameters(setting.tree).total
    norms = 8 * 2 * 2048 + 2048
    sharded = float(local_elements(setting, one_plan(setting, {"fsdp": 4})))

    # norm scales carry the `norm` axis, which no mesh axis splits
    assert sharded == pytest.approx((total - norms) / 4 + norms)


def test_adam_in_f32_needs_sixteen_bytes_a_parameter_with_its_gradient() -> None:
    setting = setting_on("v5e:1x1", global_batch=1)
    memory = training_memory(setting, one_plan(setting, {}))
    state = sum(float(memory.parts[part]) for part in ("parameters", "optimizer", "gradients"))

    assert state == pytest.approx(16 * count_parameters(setting.tree).total)


def test_full_remat_keeps_one_stream_a_layer() -> None:
    setting = setting_on("v5e:2x2")
    memory = training_memory(setting, one_plan(setting, {"fsdp": 4}))

    assert float(memory.parts["saved_activations"]) == pytest.approx(8 * TOKENS / 4 * 2048 * 2)


def test_a_pattern_of_unlike_layers_keeps_one_input_and_computes_all_of_its_layers_again() -> None:
    def layer(span: Span) -> LayerSpec:
        return LayerSpec(mixer=replace(ATTENTION, span=span), mlp=MlpSpec(mlp_dim=8192))

    local, whole = layer(Span(kind="sliding", window=512)), layer(Span())
    pattern = replace(DENSE, layers=((local, 3), (whole, 1)) * 2)
    memory, alike = (
        training_memory(setting, one_plan(setting, {"fsdp": 4}))
        for setting in (setting_on("v5e:2x2", model=pattern), setting_on("v5e:2x2"))
    )

    assert float(memory.parts["saved_activations"]) == pytest.approx(float(alike.parts["saved_activations"]) / 4)
    assert float(memory.parts["layer_working_set"]) > 3 * float(alike.parts["layer_working_set"])


def test_the_head_alone_can_be_the_peak() -> None:
    setting = setting_on("v5e:2x2", model=replace(DENSE, vocab_size=262144), global_batch=256)
    memory = training_memory(setting, one_plan(setting, {"fsdp": 4}))
    logits = TOKENS / 4 * 262144 * 2

    assert float(memory.parts["head_working_set"]) > 0
    assert float(memory.total_bytes) > 2 * logits


def test_causes_add_up_to_the_step() -> None:
    for model, mesh in ((DENSE, {"fsdp": 2, "tp": 2}), (SPARSE, {"ep": 2, "fsdp": 2})):
        setting = setting_on("v5e:2x2", model=model)
        step = training_step(setting, one_plan(setting, mesh))

        assert sum(time_by_cause(step).values()) == pytest.approx(float(step.expected_s))


def test_every_matmul_of_the_model_is_a_part_of_the_tree() -> None:
    setting = setting_on("v5e:2x2", model=SPARSE)
    paths = {path for path, _ in training_step(setting, one_plan(setting, {"fsdp": 4})).walk()}

    for path, operation, _ in operations(setting.tree):
        if type(operation).__name__.endswith("Matmul"):
            layer, block, name = path.split("/", 2) if path.startswith("layer") else ("", *path.split("/", 1))
            assert any(name in part and block in part and layer in part for part in paths), path


MESHES = legal_meshes(
    setting_on("tpu7x:2x2x2").hardware,
    limits_of(setting_on("tpu7x:2x2x2", model=SPARSE).tree, seq_len=2048, global_batch=256),
    {},
).legal


@given(mesh=st.sampled_from(MESHES), policy=st.sampled_from(["full", "save_out_proj", "minimal_with_context", "none"]))
@settings(max_examples=60, deadline=None)
def test_the_bound_never_exceeds_the_estimate(mesh, policy: str) -> None:  # noqa: ANN001 - a Mesh
    setting = setting_on("tpu7x:2x2x2", model=SPARSE)
    stages = mesh.degrees["pp"]
    step = training_step(setting, one_plan(setting, dict(mesh.degrees), policy=policy, microbatches=stages))

    assert float(roofline_s(step.work, setting)) <= float(step.expected_s)


@given(mesh=st.sampled_from(MESHES), more=st.floats(1.01, 8))
@settings(max_examples=40, deadline=None)
def test_faster_links_and_memory_never_slow_a_step(mesh, more: float) -> None:  # noqa: ANN001 - a Mesh
    setting = setting_on("tpu7x:2x2x2", model=SPARSE)
    chip = setting.hardware.chip
    faster_chip = replace(
        chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * more, network_bytes_per_s=chip.network_bytes_per_s * more
    )
    faster = replace(
        setting,
        hardware=replace(setting.hardware, chip=faster_chip),
        link_bytes_per_s=setting.link_bytes_per_s * more,
    )
    plan = one_plan(setting, dict(mesh.degrees), microbatches=mesh.degrees["pp"])

    assert float(training_step(faster, plan).expected_s) <= float(training_step(setting, plan).expected_s)


@given(mesh=st.sampled_from(MESHES))
@settings(max_examples=40, deadline=None)
def test_keeping_more_never_adds_work_and_never_saves_memory(mesh) -> None:  # noqa: ANN001 - a Mesh
    setting = setting_on("tpu7x:2x2x2")
    if mesh.degrees["ep"] > 1:
        return
    plans = [
        one_plan(setting, dict(mesh.degrees), policy=policy, microbatches=mesh.degrees["pp"])
        for policy in ("full", "save_qkv_proj", "save_dot_except_mlp", "minimal", "minimal_with_context")
    ]
    work = [flops_of(training_step(setting, plan)) for plan in plans]
    saved = [float(training_memory(setting, plan).parts["saved_activations"]) for plan in plans]

    assert work == sorted(work, reverse=True)
    assert saved == sorted(saved)
