"""The collectives of a compiled program laid beside those of the equation, row by row, each difference with its reason.

A row is one kind along one set of mesh axes in one part and phase. The compiler may do the same in another way: it
merges collectives, sums where it could scatter, gathers in the pass that computes again. Such equivalences are looked
for in that order, from the narrowest to the widest, and a row that none of them covers says so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.hlo.collectives import DCN_AXIS
from ridgeline.job.job import DCN_AXES
from ridgeline.study.collective_reasons import explained
from ridgeline.study.collective_row import CollectiveRow, half_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ridgeline.cost.training.collectives import StepCollective
    from ridgeline.hlo.collectives import Collective
    from ridgeline.hlo.summary import PlacedCollective
    from ridgeline.study.collective_row import Half

    _Key: TypeAlias = tuple[str, frozenset[str], str, str]
    """Kind, mesh axes, part, phase or pass."""


def join_collectives(
    found: Sequence[PlacedCollective], predicted: Sequence[StepCollective], *, mesh: Mapping[str, int], micro_steps: int
) -> tuple[CollectiveRow, ...]:
    """Both accounts as rows: missing and unexpected ones first.

    Args:
        found: By the compiler.
        predicted: By the equation.
        mesh: Degree of each axis.
        micro_steps: Passes of one step.
    """
    expected = list(_by_wire(_as_written(predicted, found), mesh))
    rows = list(_rows(found, expected, mesh))
    reasons = explained(rows, micro_steps=micro_steps)
    named = (replace(row, reason=reason) for row, reason in zip(rows, reasons, strict=True))
    return tuple(sorted(named, key=lambda row: row.order))


def _as_written(predicted: Iterable[StepCollective], found: Iterable[PlacedCollective]) -> Iterator[StepCollective]:
    """Unlike layers by one name, `layer`, where the program that repeats them gives them but one."""
    sections = {placed.place.part.partition("/")[0] for placed in found}
    for each in predicted:
        section, _, rest = each.part.partition("/")
        is_renamed = section.endswith("_layer") and section not in sections and "layer" in sections
        yield replace(each, part=f"layer/{rest}") if is_renamed else each


def _by_wire(predicted: Iterable[StepCollective], mesh: Mapping[str, int]) -> Iterator[StepCollective]:
    """Collectives that span slices as what runs inside each of them, and what runs between them.

    Between slices travels the share that a device has of the array inside its slice, as the equation's wiring has it.
    """
    for each in predicted:
        across = tuple(axis for axis in each.axes if axis in DCN_AXES)
        inside = tuple(axis for axis in each.axes if axis not in DCN_AXES)
        if inside:
            yield replace(each, axes=inside)
        if across:
            yield replace(each, axes=across, array_bytes=each.array_bytes / prod(mesh[axis] for axis in inside))


def _rows(
    found: Sequence[PlacedCollective], predicted: Sequence[StepCollective], mesh: Mapping[str, int]
) -> Iterator[CollectiveRow]:
    """Rows that both have, in the same phase or at least in the same half of the step; then what only one has."""
    parts: defaultdict[tuple[str, frozenset[str], Half], set[str]] = defaultdict(set)
    expected: defaultdict[_Key, list[StepCollective]] = defaultdict(list)
    for each in predicted:
        parts[each.kind, frozenset(each.axes), half_of(each.phase)].add(each.part)
        expected[each.kind, frozenset(each.axes), each.part, each.phase].append(each)
    compiled: defaultdict[_Key, list[Collective]] = defaultdict(list)
    for placed in found:
        axes, phase = _axes(placed.collective, mesh), placed.place.phase
        kind = placed.collective.kind.removeprefix("ragged_")
        known = parts[kind, frozenset(axes), half_of(phase)]
        key = (kind, frozenset(axes), _owner(placed.place.part, known), phase)
        compiled[key].append(placed.collective)
    for key in [key for key in expected if key in compiled]:
        row = _row(key, compiled[key], expected[key], mesh)
        if row.agrees:
            yield row
            del compiled[key], expected[key]
    halves: defaultdict[_Key, tuple[list[_Key], list[_Key]]] = defaultdict(lambda: ([], []))
    for key in expected:
        halves[*key[:3], half_of(key[3])][1].append(key)
    for key in compiled:
        half = "backward" if not key[3] and (*key[:3], "forward") not in halves else half_of(key[3])
        halves[*key[:3], half][0].append(key)
    for ours, theirs in halves.values():
        first = (ours or theirs)[0]
        yield _row(
            first,
            [each for key in ours for each in compiled[key]],
            [each for key in theirs for each in expected[key]],
            mesh,
        )


def _row(
    key: _Key, found: Sequence[Collective], predicted: Sequence[StepCollective], mesh: Mapping[str, int]
) -> CollectiveRow:
    kind, axes, part, phase = key
    ordered = (*(axis for axis in mesh if axis in axes), *sorted(axes - mesh.keys()))
    return CollectiveRow(
        kind=kind,
        axes=ordered,
        part=part,
        phase=phase,
        found=tuple(found),
        predicted_count=sum((each.count for each in predicted), start=0.0),
        predicted_bytes=sum(each.total_bytes for each in predicted) if predicted else None,
    )


def _axes(found: Collective, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The mesh axes of a compiled collective; between slices, those of the mesh that lie there."""
    if found.axis == DCN_AXIS:
        return tuple(axis for axis, degree in mesh.items() if axis in DCN_AXES and degree > 1) or (DCN_AXIS,)
    return tuple(axis for axis in found.axis.split("+") if axis)


def _owner(part: str, known: Iterable[str]) -> str:
    """The part of the equation that a part lies in; itself if there is none."""
    around = [each for each in known if part == each or part.startswith(f"{each}/")]
    return max(around, key=len, default=part)
