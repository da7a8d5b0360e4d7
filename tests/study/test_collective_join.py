"""Collectives of the compiler beside those of the equation."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.collectives import StepCollective
from ridgeline.hlo.collectives import Collective
from ridgeline.hlo.parts import Place
from ridgeline.hlo.summary import PlacedCollective
from ridgeline.study.collective_join import join_collectives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.cost.work import Phase
    from ridgeline.hlo.parts import Phase as TextPhase
    from ridgeline.study.collective_row import CollectiveRow

MESH = {"dp": 2, "fsdp": 4, "tp": 2}


def found(
    kind: str, axis: str, part: str, phase: TextPhase, array_bytes: float = 64e6, count: float = 2.0
) -> PlacedCollective:
    collective = Collective(
        name=kind,
        kind=kind,
        axis=axis,
        num_devices=4,
        array_bytes=array_bytes,
        count=count,
        is_async=True,
        engine="sparse_core",
        op_name="",
        line=1,
    )
    return PlacedCollective(place=Place(part=part, phase=phase), collective=collective)


def predicted(
    kind: str, axes: str, part: str, phase: Phase, array_bytes: float = 64e6, count: float = 2.0
) -> StepCollective:
    return StepCollective(
        kind=kind,
        group="weights",
        axes=tuple(axes.split("+")),
        part=part,
        phase=phase,
        count=count,
        array_bytes=array_bytes,
    )


def joined(
    compiled: Sequence[PlacedCollective], expected: Sequence[StepCollective], *, micro_steps: int = 1
) -> tuple[CollectiveRow, ...]:
    return join_collectives(compiled, expected, mesh=MESH, micro_steps=micro_steps)


UP, DOWN = "layer/mlp/up", "layer/mlp/down"


def test_the_same_collective_by_both_is_one_row_without_a_reason() -> None:
    rows = joined([found("all_gather", "fsdp", UP, "forward")], [predicted("all_gather", "fsdp", UP, "forward")])

    assert [(row.count, row.total_bytes, row.predicted_bytes, row.ratio, row.reason) for row in rows] == [
        (2.0, 128e6, 128e6, 1.0, "")
    ]


def test_what_is_gathered_again_belongs_to_the_backward_half_of_the_step() -> None:
    rows = joined([found("all_gather", "fsdp", UP, "recompute")], [predicted("all_gather", "fsdp", UP, "backward")])

    assert [(row.phase, row.reason) for row in rows] == [("recompute", "")]


def test_collectives_of_a_block_are_those_of_the_operations_in_it() -> None:
    rows = joined(
        [found("all_gather", "tp", "layer/mlp/norm", "forward")],
        [predicted("all_gather", "tp", "layer/mlp", "forward")],
    )

    assert [(row.part, row.reason) for row in rows] == [("layer/mlp", "")]


def test_missing_and_unexpected_ones_come_first() -> None:
    rows = joined(
        [found("all_gather", "fsdp", UP, "forward"), found("all_to_all", "fsdp", DOWN, "forward")],
        [predicted("all_gather", "fsdp", UP, "forward"), predicted("all_gather", "tp", DOWN, "forward")],
    )

    assert [(row.kind, bool(row.found), row.predicted_bytes, row.reason) for row in rows] == [
        ("all_gather", False, 128e6, "unexplained"),
        ("all_to_all", True, None, "unexplained"),
        ("all_gather", True, 128e6, ""),
    ]


@pytest.mark.parametrize(
    ("compiled", "expected", "reason"),
    [
        (
            [found("all_reduce", "fsdp", UP, "backward")],
            [predicted("reduce_scatter", "fsdp", UP, "backward")],
            "a reduce-scatter written as an all-reduce",
        ),
        (
            [found("reduce_scatter", "fsdp", UP, "backward", 128e6)],
            [predicted("reduce_scatter", "fsdp", part, "backward") for part in (UP, DOWN)],
            "merged within the block",
        ),
        (
            [found("all_reduce", "dp+fsdp", UP, "backward")],
            [
                predicted("reduce_scatter", "fsdp", UP, "backward"),
                predicted("all_reduce", "dp", UP, "backward", 16e6),
            ],
            "one sum over dp and fsdp instead of one after the other",
        ),
        (
            [found("collective_permute", "fsdp", UP, "forward", 16e6, 6.0)],
            [predicted("all_gather", "fsdp", UP, "forward")],
            "a chain of permutes beside the matmul",
        ),
        (
            [found("all_gather", "fsdp", UP, "forward", 64e6, nan)],
            [predicted("all_gather", "fsdp", UP, "forward")],
            "how often it runs cannot be read from the text",
        ),
        (
            [found("all_gather", "fsdp", UP, "forward", 128e6)],
            [predicted("all_gather", "fsdp", UP, "forward")],
            "moved in f32",
        ),
        (
            [found("all_gather", "fsdp", UP, "recompute", count=4.0)],
            [predicted("all_gather", "fsdp", UP, "backward")],
            "not kept, and done again for the gradients",
        ),
        (
            [found("all_gather", "fsdp", UP, "recompute", count=4.0)],
            [predicted("all_gather", "fsdp", UP, "backward", count=3.0)],
            "not kept, and done again for the gradients, in some of the layers",
        ),
        (
            [found("all_gather", "fsdp", "embedding/tokens", "forward", count=1.0)],
            [predicted("all_gather", "fsdp", "embedding/tokens", "forward", count=2.0)],
            "gathered once, and used twice",
        ),
    ],
)
def test_what_the_compiler_is_known_to_do_is_named(
    compiled: list[PlacedCollective], expected: list[StepCollective], reason: str
) -> None:
    for row in joined(compiled, expected):
        assert row.reason.startswith(reason)


def test_rows_of_the_table_that_change_devices_stand_for_gathering_it() -> None:
    rows = joined(
        [found("all_to_all", "fsdp", "embedding/tokens", "forward", 1e6)],
        [predicted("all_gather", "fsdp", "embedding/tokens", "forward")],
    )

    assert sorted(row.reason for row in rows) == [
        "rows that are looked up change devices; the equation has the table gathered",
        "the table stays split; rows that are looked up change devices instead",
    ]


def test_tokens_gathered_to_look_their_rows_up_are_told_where_the_equation_exchanges_rows() -> None:
    rows = joined(
        [
            found("all_to_all", "fsdp", "embedding/tokens", "forward", 1e6),
            found("all_gather", "fsdp", "embedding/tokens", "forward", 1e3),
        ],
        [predicted("all_to_all", "fsdp", "embedding/tokens", "forward", 1e6)],
    )

    gathered = next(row for row in rows if row.kind == "all_gather")
    assert "has the table gathered" not in gathered.reason
    assert all(row.reason != "unexplained" for row in rows)


def test_a_chain_of_permutes_stands_for_what_is_missing_beside_what_is_gathered_twice() -> None:
    compiled = [
        found("all_gather", "fsdp", UP, "recompute", count=4.0),
        found("collective_permute", "fsdp", UP, "backward", 16e6, 6.0),
    ]
    expected = [
        predicted("all_gather", "fsdp", UP, "backward"),
        predicted("reduce_scatter", "fsdp", UP, "backward"),
    ]

    assert {row.kind: row.reason for row in joined(compiled, expected)} == {
        "all_gather": "not kept, and done again for the gradients",
        "collective_permute": "a chain of permutes beside the matmul (collective matmul)",
        "reduce_scatter": "a chain of permutes beside the matmul (collective matmul)",
    }


def test_unlike_layers_that_the_text_calls_layer_are_one_row() -> None:
    expected = [
        predicted("all_gather", "fsdp", f"{name}/mlp/up", "forward") for name in ("local_layer", "global_layer")
    ]

    rows = joined([found("all_gather", "fsdp", UP, "forward", count=4.0)], expected)

    assert [(row.part, row.predicted_count, row.reason) for row in rows] == [(UP, 4.0, "")]


def test_a_gradient_summed_in_every_micro_step_is_named_so() -> None:
    compiled = [found("all_reduce", "dp", UP, "backward", count=8.0)]
    expected = [predicted("all_reduce", "dp", UP, "backward", count=2.0)]

    assert [row.reason for row in joined(compiled, expected, micro_steps=4)] == [
        "in every micro-step; the equation does it once a step"
    ]


def test_a_weight_that_the_backward_pass_finds_gathered_is_named_so() -> None:
    expected = [predicted("all_gather", "fsdp", UP, phase) for phase in ("forward", "backward")]

    rows = joined([found("all_gather", "fsdp", UP, "forward")], expected)

    assert [row.reason for row in rows] == ["gathered once, and kept for the backward pass", ""]


def test_between_slices_travels_the_share_of_a_device() -> None:
    mesh = {"dcn_fsdp": 2, "fsdp": 4}
    compiled = [
        found("all_gather", "fsdp", UP, "forward"),
        found("all_gather", "dcn", UP, "forward", 16e6),
    ]

    rows = join_collectives(
        compiled, [predicted("all_gather", "fsdp+dcn_fsdp", UP, "forward")], mesh=mesh, micro_steps=1
    )

    assert {row.axes: row.reason for row in rows} == {("fsdp",): "", ("dcn_fsdp",): ""}
