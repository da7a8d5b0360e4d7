"""What the tiles of an attention kernel cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.calibration import load_prior
from ridgeline.cost.kernel_time import visited_keys
from ridgeline.cost.training.attention_program import tile_start_ratio
from ridgeline.cost.training.operation import operation_cost
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES, AttentionKernel, Job, PlanRequest, Remat, Workload
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
