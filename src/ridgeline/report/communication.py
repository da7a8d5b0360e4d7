"""How a plan communicates, and the flags that follow, on a screen and as JSON."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Paragraphs, Table
from ridgeline.report.chart import Axis, Chart, Curve, Mark
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.train import VERDICTS
from ridgeline.units import format_bytes, format_count, format_decimal_bytes, format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.export.communication_flags import FlagAdvice
    from ridgeline.report.blocks import Piece
    from ridgeline.search.communication import AccumulationCost, CollectiveUse, Engine
    from ridgeline.study.communication import FlaggedCommunication

_ENGINES: dict[Engine, str] = {
    "sparse_core": "SparseCore",
    "continuation_fusion": "TensorCore, fused",
    "tensor_core": "TensorCore",
    "megascale": "hosts",
    "gpu": "GPU kernels",
}
_WAITS: dict[Engine, str] = {"continuation_fusion": " by flags", "tensor_core": ", which waits"}
"""Behind an engine beside which nothing else goes on by default."""

_ROOM = 1.1
_LEAST_SHOWN = 0.0005
"""Part of the step below which a collective is only counted."""


def communication_pieces(found: FlaggedCommunication) -> Iterator[Piece]:
    """Collectives, micro-steps, advice, flags."""
    answer = found.answer
    if not answer.collectives:
        yield Paragraphs(title="Collectives", lines=(Cell(text="None: no axis of the mesh is larger than 1."),))
        return
    shown = [use for use in answer.collectives if use.busy_s >= _LEAST_SHOWN * answer.step_s]
    hidden = len(answer.collectives) - len(shown)
    exposed_s = sum(use.exposed_s for use in answer.collectives)
    yield Table(
        title=f"Collectives of a step: {format_seconds(exposed_s)} of {format_seconds(answer.step_s)} shows",
        columns=("collective", "along", "phase", "runs", "arrays", "on the wires", "shows", "hidden by", "carried by"),
        right=frozenset({3, 4, 5, 6}),
        rows=tuple(_use_row(use) for use in shown),
        note=f"on one device{f'; {format_count(hidden)} more take next to no time' if hidden else ''}",
    )
    if len(answer.accumulation) > 1:
        yield Table(
            title="What gradient accumulation costs: the same batch, mesh and policy",
            columns=("micro-steps", "weights moved", "of it shows", "step", "memory"),
            right=frozenset({0, 1, 2, 3, 4}),
            rows=tuple(_accumulation_row(each) for each in answer.accumulation),
            note="weights are gathered, and their gradients scattered, in every micro-step",
        )
    yield Paragraphs(title="Gathers", lines=tuple(Cell(text=line) for line in answer.advice))
    if found.flags:
        yield Table(
            title="Flags that follow",
            columns=("flag", "because", "known trouble"),
            rows=tuple(_flag_row(each) for each in found.flags),
            note="--json names the source of each",
        )


def communication_chart(found: FlaggedCommunication, *, title: str) -> Chart:
    """What more micro-steps cost in time and save in memory."""
    costs = found.answer.accumulation
    times_s = [each.expected_s for each in costs] or [found.answer.step_s]
    most = max((each.micro_steps for each in costs), default=1)
    return Chart(
        title=f"{title}: micro-steps of one batch",
        x=Axis(title="micro-steps", low=1 / 2, high=most * 2, shown=_written, step=2),
        y=Axis(
            title="step",
            low=0,
            high=max(times_s) * _ROOM,
            shown=format_seconds,
            step=10 ** floor(log10(max(times_s))),
            linear=True,
        ),
        curves=(
            Curve(name="step", points=tuple((each.micro_steps, each.expected_s) for each in costs)),
            Curve(
                name="waits for weights",
                points=tuple((each.micro_steps, each.exposed_s) for each in costs),
                dashed=True,
            ),
        ),
        marks=tuple(
            Mark(
                name=f"{format_bytes(each.needed_bytes)}, {VERDICTS[each.verdict][0]}",
                x=each.micro_steps,
                y=each.expected_s,
            )
            for each in costs
        ),
        numbered=True,
    )


def _written(count: float) -> str:
    return f"{count:g}"


def communication_json(found: FlaggedCommunication) -> dict[str, Json]:
    """The same in base units."""
    answer = found.answer
    return {
        "step_s": answer.step_s,
        "collectives": jsonable(answer.collectives),
        "gradient_accumulation": jsonable(answer.accumulation),
        "advice": list(answer.advice),
        "flags": [
            {
                "name": each.flag.name,
                "value": each.flag.value,
                "reason": each.flag.reason,
                "default": each.default or None,
                "trouble": each.trouble or None,
                "source": each.source,
            }
            for each in found.flags
        ],
    }


def _use_row(use: CollectiveUse) -> tuple[Cell, ...]:
    return (
        Cell(text=use.carried_out_as.replace("_", "-")),
        Cell(text=" ".join(use.axes)),
        Cell(text=use.phase),
        Cell(text=format_count(round(use.count))),
        Cell(text=format_decimal_bytes(use.array_bytes)),
        Cell(text=format_seconds(use.busy_s)),
        Cell(text=_shown(use), tone="warn" if use.exposed_s > use.busy_s / 2 else "plain"),
        Cell(text=use.behind),
        Cell(
            text=_ENGINES[use.engine] + ("" if use.is_asynchronous else _WAITS.get(use.engine, "")),
            tone="plain" if use.is_asynchronous else "warn",
        ),
    )


def _shown(use: CollectiveUse) -> str:
    share = f" {format_fraction(use.exposed_s / use.busy_s)}" if use.busy_s > 0 else ""
    return f"{format_seconds(use.exposed_s)}{share}"


def _accumulation_row(each: AccumulationCost) -> tuple[Cell, ...]:
    return (
        Cell(text=format_count(each.micro_steps)),
        Cell(text=format_decimal_bytes(each.gathered_bytes)),
        Cell(text=format_seconds(each.exposed_s)),
        Cell(text=format_seconds(each.expected_s)),
        Cell(text=format_bytes(each.needed_bytes), tone=VERDICTS[each.verdict][1]),
    )


def _flag_row(each: FlagAdvice) -> tuple[Cell, ...]:
    is_default = each.is_default
    return (
        Cell(text=each.flag.written, tone="dim" if is_default else "plain"),
        Cell(text=f"{each.flag.reason}{' (the default)' if is_default else ''}"),
        Cell(text=each.trouble, tone="warn"),
    )
