"""The answers about moving an array between chips: a collective, one chip to another, a path of stages."""

from __future__ import annotations

from dataclasses import fields
from math import isnan
from typing import TYPE_CHECKING

from ridgeline.cost.questions.collective_answer import TRANSPOSES
from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.units import format_count, format_decimal_bytes, format_flops, format_rate_bytes_per_s, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ridgeline.cost.questions.collective_answer import Bound, CollectiveAnswer, ExchangeCounts
    from ridgeline.cost.questions.transfer_question import PathAnswer, PathStageName, PointToPointAnswer
    from ridgeline.report.blocks import Piece

_BOUNDS: Mapping[Bound, str] = {
    "ici": "the torus links",
    "core": "the pair of devices on a chip",
    "nvlink": "the scale-up network",
    "network": "the data-center network",
    "latency": "the least time of its hops",
    "nothing": "nothing: there is a single device",
}
_PATH: Mapping[PathStageName, str] = {
    "pcie": "host to chips, PCIe",
    "ici": "to one chip, ICI",
    "nvlink": "to one chip, NVLink",
    "hbm": "out of memory",
    "mxu": "matrix unit",
}


def collective_report(answer: CollectiveAnswer) -> Report:
    """How long a collective takes, why, and what would change it; what the question leaves open is left out."""
    of = "" if isnan(answer.array_bytes) else f" of {format_decimal_bytes(answer.array_bytes)}"
    over = " × ".join(answer.axes) or "a single device"
    where = f" of {answer.hardware}" if answer.hardware else ""
    headline = f"{answer.kind.replace('_', '-').capitalize()}{of} over {over}{where}"
    return Report(headline=headline, pieces=tuple(_collective_pieces(answer)))


def collective_json(answer: CollectiveAnswer) -> dict[str, Json]:
    """The object that `--json` prints."""
    return _json(answer)


def point_to_point_report(answer: PointToPointAnswer) -> Report:
    """How long from one chip to another; what the question leaves open is left out."""
    between = f"from {_position(answer.start)} to {_position(answer.end)}" if answer.start else "from chip to chip"
    size = "Any size " if isnan(answer.size_bytes) else f"{format_decimal_bytes(answer.size_bytes)} "
    total = "" if isnan(answer.total_s) else f": {format_seconds(answer.total_s)}"
    rows = (
        ("first byte", answer.first_byte_s, format_seconds),
        ("last byte", answer.total_s, format_seconds),
        ("of that, at full rate", answer.transfer_s, format_seconds),
        ("hops", answer.hops, format_count),
        ("links used at once", answer.ports, format_count),
        ("one link, one way", answer.link_bytes_per_s, format_rate_bytes_per_s),
    )
    known = [(label, formatted(value)) for label, value, formatted in rows if not isnan(value)]
    return Report(headline=f"{size}{between}{total}", pieces=(_facts("One chip to another", known),))


def point_to_point_json(answer: PointToPointAnswer) -> dict[str, Json]:
    """The object that `--json` prints."""
    return _json(answer)


def path_report(answer: PathAnswer) -> Report:
    """How long along a path of stages, and which of them is the bottleneck."""
    slowest = _PATH[answer.bottleneck]
    bars = Bars(
        title="Stages",
        bars=tuple(
            Bar(
                label=_PATH[stage.name],
                value=stage.time_s,
                text=format_seconds(stage.time_s),
                tone="warn" if stage.name == answer.bottleneck else "plain",
            )
            for stage in answer.stages
        ),
    )
    rows = [
        ("pipelined", f"{format_seconds(answer.pipelined_s)}, the slowest stage: {slowest}"),
        ("one after the other", format_seconds(answer.summed_s)),
    ]
    if not isnan(answer.compute_flops):
        rows.append(("arithmetic", format_flops(answer.compute_flops)))
    return Report(
        headline=f"{format_decimal_bytes(answer.array_bytes)} from all hosts to one chip: "
        f"{format_seconds(answer.pipelined_s)} pipelined",
        pieces=(_facts("The whole path", rows), bars),
    )


def path_json(answer: PathAnswer) -> dict[str, Json]:
    """The object that `--json` prints."""
    return _json(answer)


def _collective_pieces(answer: CollectiveAnswer) -> Iterator[Piece]:
    yield _facts("Time", _times(answer))
    if not isnan(answer.array_bytes):
        yield _facts("The array", _array(answer))
    if len(answer.stages) > 1:
        yield _wires(answer)
    if answer.one_way is not None and not isnan(answer.num_devices):
        yield _hop_by_hop(answer)
    if answer.exchange is not None and not isnan(answer.num_devices):
        yield _facts("Chunk by chunk, beside an all-gather", _chunks(answer.exchange))
    yield _siblings(answer)


def _times(answer: CollectiveAnswer) -> Iterator[tuple[str, str]]:
    if not isnan(answer.time_s):
        yield "exact", f"{format_seconds(answer.time_s)}, set by {_BOUNDS[answer.bound]}"
    if answer.approximate_s == answer.time_s:
        yield "as the book approximates", "the same"
    elif not isnan(answer.approximate_s):
        yield "as the book approximates", f"{format_seconds(answer.approximate_s)}, rings taken as long"
    yield "latency floor", _floor(answer)
    if answer.threshold_bytes > 0:
        regime = "" if answer.regime == "unknown" else f"; this is in the {answer.regime} regime"
        yield "latency-bound below", f"{format_decimal_bytes(answer.threshold_bytes)}{regime}"
    if answer.regime != "latency" and answer.if_ring_s < answer.if_line_s:
        yield (
            "if every axis closed",
            f"{format_seconds(answer.if_ring_s)}; if none did, {format_seconds(answer.if_line_s)}",
        )


def _floor(answer: CollectiveAnswer) -> str:
    if isnan(answer.latency_s):
        return "left out: no hop time is known"
    return f"{format_seconds(answer.latency_s)}, {format_count(answer.hops)} hops"


def _array(answer: CollectiveAnswer) -> Iterator[tuple[str, str]]:
    yield "whole", format_decimal_bytes(answer.array_bytes)
    if answer.group_bytes != answer.array_bytes:
        yield "of one group", f"{format_decimal_bytes(answer.group_bytes)}; other axes keep the rest"
    if not isnan(answer.num_devices):
        yield "of one device", f"{format_decimal_bytes(answer.shard_bytes)}, of {format_count(answer.num_devices)}"


def _wires(answer: CollectiveAnswer) -> Table:
    return Table(
        title="Kinds of wire, all at once",
        columns=("wire", "joins", "links", "one way", "time", "as the book"),
        rows=tuple(
            (
                Cell(text=stage.name, tone="strong"),
                Cell(text=format_count(stage.size)),
                Cell(text=format_count(stage.links)),
                Cell(text=format_rate_bytes_per_s(stage.bytes_per_s)),
                _known(stage.bandwidth_s, format_seconds),
                _known(stage.approximate_s, format_seconds),
            )
            for stage in answer.stages
        ),
        right=frozenset(range(1, 6)),
    )


def _hop_by_hop(answer: CollectiveAnswer) -> Table:
    ways = (("one way", answer.one_way), ("both ways", answer.two_way))
    return Table(
        title="A gather hop by hop",
        columns=("ring used", "hops", "sent per hop", "a hop at full rate", "gather"),
        rows=tuple(
            (
                Cell(text=words),
                Cell(text=format_count(steps.hops)),
                _known(steps.hop_bytes, format_decimal_bytes),
                _known(steps.hop_transfer_s, format_seconds),
                _known(steps.bandwidth_s, format_seconds),
            )
            for words, steps in ways
            if steps is not None
        ),
        right=frozenset(range(1, 5)),
        note=f"A hop takes its least time below {format_decimal_bytes(answer.hop_threshold_bytes)}."
        if answer.hop_threshold_bytes > 0
        else "",
    )


def _chunks(counts: ExchangeCounts) -> Iterator[tuple[str, str]]:
    if isnan(counts.chunk_bytes):
        yield "a device sends on", f"{format_count(counts.chunks)} chunks"
    else:
        yield "a device sends on", f"{format_count(counts.chunks)} chunks of {format_decimal_bytes(counts.chunk_bytes)}"
        yield "that is", f"{format_decimal_bytes(counts.device_bytes)}, {counts.gather_ratio:.3g} of the array"
        yield (
            "over a link, one way",
            f"{format_decimal_bytes(counts.one_way_link_bytes)}, {counts.one_way_ratio:.3g} of an all-gather's",
        )
    yield (
        "both ways are faster",
        f"{counts.exchange_gain_ratio:.3g} times; an all-gather {counts.gather_gain_ratio:.3g} times",
    )


def _siblings(answer: CollectiveAnswer) -> Table:
    return Table(
        title="Collectives of the same array, as the book approximates, latency left out",
        columns=("collective", "time", "× all-gather", "backward"),
        rows=tuple(
            (
                Cell(text=kind, tone="strong" if kind == answer.kind else "plain"),
                _known(answer.each_kind_s[kind], format_seconds),
                _known(ratio, "{:.3g}".format),
                Cell(text=TRANSPOSES[kind]),
            )
            for kind, ratio in answer.each_kind_ratio.items()
        ),
        right=frozenset({1, 2}),
    )


def _json(answer: CollectiveAnswer | PointToPointAnswer | PathAnswer) -> dict[str, Json]:
    values = {
        field.name: jsonable(getattr(answer, field.name)) for field in fields(answer) if field.name != "derivations"
    }
    return {**values, "derivations": derivations_json(answer.derivations)}


def _facts(title: str, rows: Iterable[tuple[str, str]]) -> Facts:
    return Facts(title=title, rows=tuple((label, Cell(text=text)) for label, text in rows))


def _known(value: float, formatted: Callable[[float], str]) -> Cell:
    return Cell(text="–", tone="dim") if isnan(value) else Cell(text=formatted(value))


def _position(position: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, position))})"
