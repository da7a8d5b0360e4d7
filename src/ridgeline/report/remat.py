"""What a plan keeps where and what that is worth, value by value; memory against step time as a chart and as JSON."""

from __future__ import annotations

from math import floor, isnan, log2, log10
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Table
from ridgeline.report.chart import Axis, Chart, Curve, Guide, Mark
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import format_bytes, format_seconds, parse_bytes

if TYPE_CHECKING:
    from ridgeline.report.blocks import Tone
    from ridgeline.search.answer import KeptValue, RematAnswer, RematChoice, TrainAnswer

_PLACED: dict[str, tuple[str, Tone]] = {
    "device": ("on the device", "good"),
    "offload": ("on the host", "warn"),
    "remat": ("computed again", "dim"),
}
_GIB = parse_bytes("1GiB", where="the table")
_TICKS = 8
_ROOM = 1.05
_MOST_SLOWER = 1.5
"""Presets that are slower than this many times the best plan are not drawn."""
_ABSENT = Cell(text="–", tone="dim")


def remat_table(answer: RematAnswer) -> Table:
    """Each named value: where it is, the memory it takes, what the alternatives cost."""
    return Table(
        title="What is kept, and where",
        columns=("value", "placed", "memory", "computing it again", "of 1 GiB", "moving it to the host"),
        right=frozenset({2, 3, 4, 5}),
        rows=tuple(_value_row(value) for value in answer.values),
        note="time a step, each value by itself, the others as placed; best kept is what saves most of a GiB",
    )


def remat_json(answer: RematAnswer) -> dict[str, Json]:
    """The same in base units."""
    return {
        "frontier": [_choice_json(choice) for choice in answer.frontier],
        "presets": [_choice_json(choice) for choice in answer.presets],
        "values": jsonable(answer.values),
    }


def remat_chart(answer: TrainAnswer) -> Chart:
    """Memory that a device needs against step time: the frontier of custom policies, the presets, the limit."""
    remat, memory = answer.remat, answer.best.memory
    shown = [each for each in remat.presets if each.expected_s < _MOST_SLOWER * answer.best.step.expected_s]
    choices = (*remat.frontier, *shown)
    usable_bytes, waiting_bytes = memory.usable_bytes, memory.parts["logits_waiting"]
    high_bytes = max(usable_bytes, *(choice.needed_bytes for choice in choices)) * _ROOM
    times_s = [choice.expected_s for choice in choices]
    frontier = tuple((each.needed_bytes, each.expected_s) for each in remat.frontier)
    span_s = max(max(times_s) - min(times_s), 0.05 * min(times_s))
    return Chart(
        title=f"{answer.job.model.name} on {answer.job.hardware.name}: remat policies of the best plan",
        x=Axis(
            title="memory a device needs",
            low=0,
            high=high_bytes,
            shown=format_bytes,
            step=2 ** floor(log2(high_bytes / _TICKS)),
            linear=True,
        ),
        y=Axis(
            title="step",
            low=max(min(times_s) - span_s / 4, 0.0),
            high=max(times_s) + span_s / 2,
            shown=format_seconds,
            step=10 ** floor(log10(span_s)) / 2,
            linear=True,
        ),
        curves=(Curve(name="best custom", points=frontier),),
        marks=(
            Mark(name="the best plan", x=memory.total_bytes - waiting_bytes, y=answer.best.step.expected_s),
            *(Mark(name=each.remat.policy, x=each.needed_bytes, y=each.expected_s) for each in shown),
        ),
        guides=(Guide(name=f"usable {format_bytes(usable_bytes)}", x=usable_bytes),),
        numbered=True,
    )


def _value_row(value: KeptValue) -> tuple[Cell, ...]:
    word, tone = _PLACED[value.placement]
    a_gib = value.recompute_s / (value.device_bytes / _GIB) if value.device_bytes else float("nan")
    return (
        Cell(text=value.name),
        Cell(text=word, tone=tone),
        Cell(text=format_bytes(value.device_bytes)),
        _time(value.recompute_s),
        _time(a_gib),
        _time(value.offload_s),
    )


def _time(duration_s: float) -> Cell:
    return _ABSENT if isnan(duration_s) else Cell(text=f"+{format_seconds(duration_s)}")


def _choice_json(choice: RematChoice) -> dict[str, Json]:
    return {
        "remat": jsonable(choice.remat),
        "optimizer_state": choice.optimizer_state,
        "expected_s": choice.expected_s,
        "needed_bytes": choice.needed_bytes,
        "host_bytes": choice.host_bytes,
        "verdict": choice.verdict,
    }
