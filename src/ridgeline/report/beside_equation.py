"""A compiled program beside the equation: collectives and parts as tables and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Paragraphs, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import (
    format_bytes,
    format_count,
    format_decimal_bytes,
    format_flops,
    format_fraction,
    format_things,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.report.blocks import Piece
    from ridgeline.report.jsonable import Json
    from ridgeline.study.beside_equation import BesideEquation, HostMemory, PartRow
    from ridgeline.study.collective_row import CollectiveRow

_ABSENT = Cell(text="–", tone="dim")
_MOST_ROWS = 16
_ENGINES = {"tensor_core": "TensorCore", "sparse_core": "SparseCore", "megascale": "hosts", "": "–"}
_UNEXPLAINED = "unexplained"


def beside_json(beside: BesideEquation) -> dict[str, Json]:
    """Both accounts in base units, of one device and one step."""
    return {
        "collectives": [_collective_json(row) for row in beside.collectives],
        "parts": [_part_json(row) for row in beside.parts],
        "predicted_flops": jsonable(beside.predicted_flops),
        "recomputed_share": jsonable(beside.recomputed_share),
        "predicted_recomputed_share": jsonable(beside.predicted_recomputed_share),
    }


def host_json(host: HostMemory) -> dict[str, Json]:
    """What all devices of a host keep in its memory."""
    return {
        "bytes_per_host": jsonable(host.total_bytes),
        "devices_per_host": host.num_devices,
        "predicted_bytes_per_host": jsonable(host.predicted_bytes),
        "ram_bytes": jsonable(host.ram_bytes),
        "exceeds": host.exceeds,
    }


def _collective_json(row: CollectiveRow) -> dict[str, Json]:
    first = row.found[0] if row.found else None
    return {
        "kind": row.kind,
        "axis": "+".join(row.axes) or None,
        "part": row.part or None,
        "phase": row.phase or None,
        "num_devices": None if first is None else jsonable(first.num_devices),
        "count": jsonable(row.count),
        "array_bytes": jsonable(max((each.array_bytes for each in row.found), default=0.0)),
        "bytes": jsonable(row.total_bytes),
        "async": any(each.is_async for each in row.found),
        "engine": None if first is None else first.engine or None,
        "name": None if first is None else first.name,
        "predicted_count": jsonable(row.predicted_count),
        "predicted_bytes": jsonable(row.predicted_bytes),
        "ratio": jsonable(row.ratio),
        "reason": row.reason,
    }


def _part_json(row: PartRow) -> dict[str, Json]:
    return {
        "part": row.place.part or None,
        "phase": row.place.phase or None,
        "flops": jsonable(row.flops),
        "predicted_flops": jsonable(row.predicted_flops),
        "ratio": jsonable(row.ratio),
        "hbm_bytes": jsonable(row.hbm_bytes),
        "estimated_cycles": jsonable(row.estimated_cycles),
    }


def host_pieces(host: HostMemory) -> Iterator[Piece]:
    """A host's memory, where either witness keeps anything in it."""
    if not (host.total_bytes or host.predicted_bytes):
        return
    there = "" if host.ram_bytes is None else f" of {format_bytes(host.ram_bytes)}"
    by = "by the equation"
    if host.device_bytes is not None:
        by = f"{format_bytes(host.device_bytes)} a device; {format_bytes(host.predicted_bytes)} by the equation"
    devices = format_things(host.num_devices, "device")
    text = f"{devices} of a host keep {format_bytes(host.total_bytes)}{there} in its memory together ({by})."
    if host.exceeds:
        text += " That is more than it has; the compiler looks at one device alone."
    yield Paragraphs(title="Memory of a host", lines=(Cell(text=text, tone="bad" if host.exceeds else "plain"),))


def collective_pieces(rows: Sequence[CollectiveRow]) -> Iterator[Piece]:
    """What differs, with reasons; then what agrees."""
    differing = [row for row in rows if row.reason]
    agreeing = [row for row in rows if not row.reason]
    if differing:
        unexplained = sum(row.reason == _UNEXPLAINED for row in differing)
        yield _differing(differing, unexplained)
    if agreeing:
        yield _agreeing(agreeing)


def _differing(rows: Sequence[CollectiveRow], unexplained: int) -> Table:
    told = "each explained" if not unexplained else f"{format_count(unexplained)} unexplained"
    return Table(
        title=f"collectives that differ from the equation's ({told})",
        columns=("kind", "axis", "where", "compiler", "equation", "because"),
        rows=tuple(
            (
                Cell(text=row.kind.replace("_", "-"), tone="strong"),
                Cell(text="+".join(row.axes) or "–"),
                Cell(text=_where(row)),
                _amount(row.count, row.total_bytes) if row.found else _ABSENT,
                _ABSENT if row.predicted_bytes is None else _amount(row.predicted_count, row.predicted_bytes),
                Cell(text=row.reason, tone="warn" if row.reason == _UNEXPLAINED else "dim"),
            )
            for row in rows[:_MOST_ROWS]
        ),
        right=frozenset({3, 4}),
        note=_rest(len(rows)),
    )


def _agreeing(rows: Sequence[CollectiveRow]) -> Table:
    return Table(
        title="collectives as the equation has them",
        columns=("kind", "axis", "where", "count", "in all", "ratio", "", "engine"),
        rows=tuple(
            (
                Cell(text=row.kind.replace("_", "-"), tone="strong"),
                Cell(text="+".join(row.axes) or "–"),
                Cell(text=_where(row)),
                Cell(text=format_count(row.count)),
                Cell(text=format_decimal_bytes(row.total_bytes)),
                Cell(text=f"{row.ratio:.2f}"),
                Cell(text="async" if any(each.is_async for each in row.found) else "waits"),
                Cell(text=_ENGINES[row.found[0].engine], tone="dim"),
            )
            for row in rows[:_MOST_ROWS]
        ),
        right=frozenset({3, 4, 5}),
        note="; ".join(filter(None, ("ratio: the equation's bytes over the compiler's", _rest(len(rows))))),
    )


def parts_table(beside: BesideEquation) -> Table:
    """FLOPs and bytes by part and phase, the heaviest first."""
    rows = sorted(beside.parts, key=_weight, reverse=True)
    again = (
        f"{_share(beside.recomputed_share)} of all FLOPs, {_share(beside.predicted_recomputed_share)} by the equation"
    )
    return Table(
        title="parts",
        columns=("part", "phase", "FLOPs", "ratio", "HBM", "cycles"),
        rows=tuple(
            (
                Cell(text=row.place.part or "(no scope)"),
                Cell(text=row.place.phase or "–"),
                _known(row.flops, format_flops(row.flops)),
                _ABSENT if isnan(row.ratio) else Cell(text=f"{row.ratio:.2f}"),
                _known(row.hbm_bytes, format_decimal_bytes(row.hbm_bytes)),
                _ABSENT if isnan(row.estimated_cycles) else Cell(text=format_count(row.estimated_cycles)),
            )
            for row in rows[:_MOST_ROWS]
        ),
        right=frozenset({2, 3, 4, 5}),
        note="; ".join(
            filter(None, (f"computed again: {again}", "ratio: the equation's FLOPs over these", _rest(len(rows))))
        ),
    )


def _weight(row: PartRow) -> tuple[float, float]:
    flops = max(0.0 if isnan(row.flops) else row.flops, row.predicted_flops or 0.0)
    return flops, 0.0 if isnan(row.hbm_bytes) else row.hbm_bytes


def _where(row: CollectiveRow) -> str:
    return ", ".join(word for word in (row.part, row.phase) if word) or "no scope"


def _amount(count: float, moved_bytes: float) -> Cell:
    if isnan(moved_bytes):
        return Cell(text="unknown", tone="warn")
    return Cell(text=f"{format_count(count)} × {format_decimal_bytes(moved_bytes / count)}")


def _known(value: float, text: str) -> Cell:
    return Cell(text="unknown" if isnan(value) else text, tone="warn" if isnan(value) else "plain")


def _share(share: float) -> str:
    return "an unknown share" if isnan(share) else format_fraction(share)


def _rest(count: int) -> str:
    return f"{count - _MOST_ROWS} more in --json" if count > _MOST_ROWS else ""
