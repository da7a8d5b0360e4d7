"""What the tiles of an attention kernel cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from ridgeline.cost.calibration import load_efficiency, load_prior
from ridgeline.cost.kernel_time import visited_keys
from ridgeline.cost.training.attention_program import tile_start_ratio
from ridgeline.cost.training.operation import operation_cost
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES, AttentionKernel, ContextParallelism, Job, PlanRequest, Remat, Workload
from ridgeline.model.operations import Attention, Span
from ridgeline.model.zoo import load_model
from ridgeline.search.train import pinned_row

if TYPE_CHECKING:
    from ridgeline.job.job import AttentionProgram

SEQ_LEN = 65_536
JOB = Job(
    model_reference="llama3.1-8b",
    model=load_model("llama3.1-8b"),
    hardware=parse_slice("v5p:2x2x2"),
    workload=Workload(seq_len=SEQ_LEN, global_batch=8),
    plan=PlanRequest(mesh={**dict.fromkeys(MESH_AXES, 1), "fsdp": 8}, remat=Remat(policy="full")),
)


def attention_s(
    tile: int | None, *, queries: int | None = None, kernel: AttentionProgram | None = None, ways: int = 1
) -> tuple[float, float]:
    """Forward and backward of a layer's scores on one chip, the sequence split in so many ways."""
    plan = replace(
        JOB.plan,
        mesh={**JOB.plan.mesh, "fsdp": 8 // ways, "cp": ways},
        attention=AttentionKernel(kernel=kernel, block_q=queries or tile, block_kv=tile),
    )
    setting, columns = pinned_row(replace(JOB, plan=plan))
    operations = (each for block in setting.tree.layers[0].blocks for each in block.operations)
    scores = next(each for each in operations if isinstance(each, Attention))
    cost = operation_cost(scores, rows=float(SEQ_LEN), setting=setting, columns=columns)
    forward_s, backward_s = (
        max(float(part.expected_s) for part in parts if part.resource == "compute")
        for parts in (cost.forward, cost.backward)
    )
    return forward_s, backward_s


def test_starting_a_tile_costs_as_much_as_its_pairs_where_it_has_no_more() -> None:
    visited = visited_keys(
        Span(kind="full"),
        visible_keys=8192.0,
        sequence_keys=8192.0,
        tile=(512.0, 512.0),
        tile_pairs=512.0 * 512.0,
        row_keys=0.0,
    )

    assert visited == 2 * 8192.0


def test_small_tiles_take_as_much_longer_as_starting_them_costs() -> None:
    pairs = load_prior("v5p").attention_tile_pairs * tile_start_ratio("v5p")

    ratio = attention_s(512)[0] / attention_s(2048)[0]

    assert ratio == pytest.approx((1 + pairs / 512**2) / (1 + pairs / 2048**2), rel=0.08)
    assert 1.5 < ratio < 2.0


def test_splash_with_tiles_of_512_takes_on_v5p_what_axlearn_timed() -> None:
    """2 sequences of 8,192 tokens, a window of 1,024: 1.4 ms with 16 heads, 6.7 with 88. The first half lacks keys."""
    efficiency, peak_flops_per_s = load_prior("v5p"), 459e12
    visited = visited_keys(
        Span(kind="sliding", window=1024),
        visible_keys=1024 - 1024 * 1023 / 2 / 8192,
        sequence_keys=8192.0,
        tile=(512.0, 512.0),
        tile_pairs=efficiency.attention_tile_pairs * tile_start_ratio("v5p"),
        row_keys=efficiency.attention_row_keys,
    )
    head_s = 4 * 2 * 8192 * visited * 128 / (peak_flops_per_s * efficiency.attention_forward)

    assert head_s == pytest.approx((6.7e-3 - 1.4e-3) / (88 - 16), rel=0.01)


def test_a_job_that_states_no_tile_is_costed_with_the_one_of_the_fastest_kernels() -> None:
    assert attention_s(None) == attention_s(1024)


def test_a_backward_pass_in_two_kernels_takes_1_3_times_as_long() -> None:
    forward_s, backward_s = attention_s(512, kernel="splash")
    same_s, longer_s = attention_s(512, kernel="flash")

    assert same_s == forward_s
    assert longer_s / backward_s == pytest.approx(1.3, rel=1e-3)


def test_a_tile_has_no_more_queries_than_a_device() -> None:
    """Of 65,536 over 8 devices each has 8,192."""
    assert attention_s(2048, queries=16_384, ways=8) == attention_s(2048, queries=8_192, ways=8)
    assert attention_s(2048, queries=16_384) != attention_s(2048, queries=8_192)


def gradient_sum_s(tile: int, *, hardware: str = "v6e:2x4", most: Literal[3] | None = None, **plan: object) -> float:
    """Of a layer's queries at 8 sequences of 65,536 tokens: parts of its gradient added up, on one of 8 chips."""
    kernel = AttentionKernel(kernel="splash", block_q=tile, block_kv=tile, dq_reduction_steps=most)
    job = replace(JOB, hardware=parse_slice(hardware), plan=replace(JOB.plan, **{"attention": kernel, **plan}))
    setting, columns = pinned_row(job)
    operations = (each for block in setting.tree.layers[0].blocks for each in block.operations)
    scores = next(each for each in operations if isinstance(each, Attention))
    cost = operation_cost(scores, rows=float(SEQ_LEN), setting=setting, columns=columns)
    return sum(float(part.expected_s) for part in cost.backward if part.name.endswith("/gradient_sum"))


def test_one_kernel_for_all_gradients_leaves_a_part_of_the_queries_for_each_tile_of_keys_to_add_up() -> None:
    """32 heads of 128: 65,536/2,048 = 32 parts in f32 are read and one in bf16 written; 4 parts are in bf16."""
    elements, rate_bytes_per_s = 65_536 * 32 * 128, 1.64e12 * load_efficiency("v6e").hbm

    assert gradient_sum_s(2048) == pytest.approx(elements * (32 * 4 + 2) / rate_bytes_per_s, rel=0.01)
    assert gradient_sum_s(16_384) == pytest.approx(elements * (4 * 2 + 2) / rate_bytes_per_s, rel=0.01)
    assert gradient_sum_s(2048, most=3) == pytest.approx(elements * (3 * 2 + 2) / rate_bytes_per_s, rel=0.01)
    assert gradient_sum_s(65_536) == 0.0


def test_around_a_ring_each_step_adds_up_the_parts_of_its_own_keys() -> None:
    """8 steps of 8,192 keys: 4 parts each in bf16, where all keys at once would be 32 in f32."""
    mesh = {**JOB.plan.mesh, "fsdp": 1, "cp": 8}
    ring, gathered = (
        gradient_sum_s(2048, mesh=mesh, context=ContextParallelism(strategy=strategy))
        for strategy in ("ring", "all_gather")
    )

    assert ring / gathered == pytest.approx(8 * (4 * 2 + 2) / (32 * 4 + 2))


def test_kernels_of_their_own_for_queries_and_on_gpus_have_nothing_to_add_up() -> None:
    two_kernels = AttentionKernel(kernel="flash", block_q=512, block_kv=512)

    assert gradient_sum_s(512, attention=two_kernels) == 0.0
    assert gradient_sum_s(512, hardware="h100:8") == 0.0
