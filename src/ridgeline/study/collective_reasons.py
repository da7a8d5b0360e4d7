"""Why a compiled program's collectives differ from the equation's: what XLA is known to do, looked for in the bytes.

Each rule looks at the rows that still differ and names those that it accounts for; the first that does gives the
reason. Rules go from the narrowest to the widest.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from math import isnan
from typing import TYPE_CHECKING, Final, TypeAlias

from ridgeline.job.job import DCN_AXES
from ridgeline.study.collective_row import AGREE, agree

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from ridgeline.study.collective_row import CollectiveRow, Half

    _Open: TypeAlias = dict[int, CollectiveRow]
    """Rows that still need a reason, by their number."""

    _Rule: TypeAlias = Callable[[_Open, "_Step"], Iterator[tuple[Iterable[int], str]]]
    """Names rows, with their reason."""

UNEXPLAINED: Final = "unexplained"

_REPEATED: Final = "not kept, and done again for the gradients"
_IN_F32: Final = "moved in f32, where the equation counts two bytes an element"

_SUMS: Final = {"reduce_scatter", "all_reduce"}
_OUTSIDE: Final = {"embedding", "head"}
_ACROSS: Final = {*DCN_AXES, "dcn"}
"""Axes across slices."""

_EXACT: Final = 2e-3
"""Difference that scalars and the scales of norms make."""

_SMALL: Final = 1e-3
"""Of everything that moves: what no estimate of time would notice."""

_WIDTHS: Final = {"", ", in f32", ", each done twice"}
"""What `_width` says."""

_MOST_SUMMANDS: Final = 6
"""Query, key and value in f32 for one gradient in bf16."""

_CHAIN: Final = (0.4, 1.1)
"""Bytes of a chain of permutes over those of the collective that it stands for: (N − 1)/N, or half that both ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What rules know beside the rows that differ.

    Attributes:
        rows: All rows.
        micro_steps: Passes of one step.
    """

    rows: Sequence[CollectiveRow]
    micro_steps: int

    @property
    def moved_bytes(self) -> float:
        """By all collectives of the program whose count is known."""
        return sum(row.total_bytes for row in self.rows if not isnan(row.total_bytes))


def explained(rows: Sequence[CollectiveRow], *, micro_steps: int) -> list[str]:
    """Of each row the reason why its two sides differ: "" where they agree, `unexplained` where no rule knows.

    Args:
        rows: All rows of a step.
        micro_steps: Passes of one step.
    """
    step = _Step(rows=rows, micro_steps=micro_steps)
    reasons = {number: UNEXPLAINED for number, row in enumerate(rows) if not row.agrees}
    for rule in _RULES:
        still = {number: rows[number] for number, reason in reasons.items() if reason == UNEXPLAINED}
        for numbers, reason in list(rule(still, step)):
            reasons |= dict.fromkeys(numbers, reason)
    return [reasons.get(number, "") for number in range(len(rows))]


def _unknown_counts(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    del step
    numbers = [number for number, row in still.items() if isnan(row.total_bytes)]
    yield numbers, "how often it runs cannot be read from the text"


def _merged(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """Several as one, or under another part: first where elements are as wide, then the narrowest scope first."""
    del step
    for widths, within, scope in product(({""}, _WIDTHS), (_EXACT, AGREE), _SCOPES[1:]):
        same = _grouped(still, lambda row, scope=scope: (row.kind, frozenset(row.axes), row.half, scope(row.part)))
        for members in same:
            if (width := _width(members.values(), within=within)) in widths:
                for number in members:
                    del still[number]
                where = "merged within the block" if scope is _block else "merged, or recorded under another part"
                yield members, f"{where}; together they agree{width}"


def _summed_whole(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """All-reduce and slice for reduce-scatter, by part, by block, by pass: first where the bytes are the very same."""
    del step
    reason = "a reduce-scatter written as an all-reduce, of which each device keeps its shard"
    for widths, within, scope in product(({""}, _WIDTHS), (_EXACT, AGREE), _SCOPES):
        sums = {number: row for number, row in still.items() if row.kind in _SUMS}
        for members in _grouped(sums, lambda row, scope=scope: (frozenset(row.axes), _half(row), scope(row.part))):
            kinds = {row.kind for row in members.values()}
            if kinds == _SUMS and (width := _width(members.values(), within=within)) in widths:
                for number in members:
                    del still[number]
                yield members, f"{reason}{width}"


def _summed_one_by_one(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """The gradients of query, key and value, or of gate and up, each summed before they are added."""
    del step
    sums = {number: row for number, row in still.items() if row.kind in _SUMS and row.half == "backward"}
    for scope in _SCOPES[1:3]:
        for members in _grouped(sums, lambda row, scope=scope: (frozenset(row.axes), scope(row.part))):
            predicted_bytes = sum(row.predicted_bytes or 0.0 for row in members.values())
            compiled_bytes = sum(row.total_bytes for row in members.values())
            if predicted_bytes < compiled_bytes <= _MOST_SUMMANDS * predicted_bytes * (1 + AGREE):
                for number in members:
                    del sums[number]
                yield members, "gradients of several matmuls, each summed before they are added"


def _summed_over_several_axes(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """One sum over dp and fsdp for a scatter over fsdp and a sum over dp of what is left."""
    del step
    sums = {number: row for number, row in still.items() if row.kind in _SUMS}
    for widths, scope in product(({""}, _WIDTHS), _SCOPES):
        for members in _grouped(sums, lambda row, scope=scope: (row.half, scope(row.part))):
            wide = {number: row for number, row in members.items() if len(row.axes) > 1 and row.found}
            axes = {axis for row in wide.values() for axis in row.axes}
            narrow = {n: row for n, row in members.items() if n not in wide and axes and set(row.axes) <= axes}
            scattered = [row for row in narrow.values() if row.kind == "reduce_scatter"]
            width = _width([*wide.values(), *scattered]) if scattered else None
            if width in widths:
                for number in (*wide, *narrow):
                    sums.pop(number, None)
                over = " and ".join(sorted(axes))
                yield (*wide, *narrow), f"one sum over {over} instead of one after the other{width}"


def _permuted(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """Collective matmuls: what would be gathered or scattered goes round in pieces beside the matmul."""
    del step
    for scope in _SCOPES[1:]:
        for members in _grouped(still, lambda row, scope=scope: (row.half, frozenset(row.axes), scope(row.part))):
            chains = {number: row for number, row in members.items() if row.kind == "collective_permute"}
            short = {number: (row.predicted_bytes or 0.0) - row.total_bytes for number, row in members.items()}
            asked = {number: missing for number, missing in short.items() if missing > 0}
            sent = sum(row.total_bytes for row in chains.values())
            if asked and _CHAIN[0] <= sent / sum(asked.values()) <= _CHAIN[1]:
                for number in (*chains, *asked):
                    del still[number]
                yield (*chains, *asked), "a chain of permutes beside the matmul (collective matmul)"


def _once_a_micro_step(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    if step.micro_steps > 1:
        for number, row in still.items():
            if row.predicted_bytes and agree(row.total_bytes, row.predicted_bytes * step.micro_steps):
                yield (number,), "in every micro-step; the equation does it once a step"
            elif row.predicted_bytes and agree(row.total_bytes * step.micro_steps, row.predicted_bytes):
                yield (number,), "once for all micro-steps"


def _twice_as_wide(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    del step
    for number, row in still.items():
        if row.predicted_bytes and agree(row.total_bytes, 2 * row.predicted_bytes):
            is_repeated = agree(row.count, 2 * row.predicted_count)
            yield (number,), _REPEATED if is_repeated else _IN_F32
        elif row.kind == "all_gather" and row.predicted_count < row.count < 2 * row.predicted_count:
            yield (number,), f"{_REPEATED}, in some of the layers"


def _ends_a_sum_over_slices(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """A sum between slices of which every device is given the whole."""
    summed = {row.part for row in step.rows if row.found and row.kind == "all_reduce" and set(row.axes) <= _ACROSS}
    for number, row in still.items():
        if row.kind == "all_gather" and row.predicted_bytes is None and row.part in summed:
            yield (number,), "ends a sum over the slices, of which the compiler keeps the whole"


def _in_another_pass(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    del step
    for members in _grouped(still, lambda row: (row.kind, frozenset(row.axes))):
        if (width := _width(members.values())) is not None:
            yield members, f"recorded in another pass or part; together they agree{width}"


def _gathered_once(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """A weight that the backward pass finds gathered already; a tied table, for the lookup and for the logits."""
    there = {(row.part, frozenset(row.axes)) for row in step.rows if row.kind == "all_gather" and row.found}
    for number, row in still.items():
        is_missing = row.kind == "all_gather" and not row.found and row.half == "backward"
        if is_missing and (row.part, frozenset(row.axes)) in there:
            yield (number,), "gathered once, and kept for the backward pass"
        elif row.kind == "all_gather" and row.predicted_bytes and agree(2 * row.total_bytes, row.predicted_bytes):
            yield (number,), "gathered once, and used twice"


def _nameless(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """What the text places in no part, but moves the very array that a part of the equation does."""
    for number, row in still.items():
        if row.part or not row.found:
            continue
        for other in step.rows:
            is_alike = (other.kind, set(other.axes)) == (row.kind, set(row.axes)) and other.predicted_bytes
            each_bytes = (other.predicted_bytes or 0.0) / (other.predicted_count or 1.0)
            if is_alike and agree(row.total_bytes / row.count, each_bytes, within=_EXACT):
                yield (number,), f"one of those of {other.part}, which the text places in no part"
                break


def _exchanged(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """As `_looked_up`, where all-to-alls show it beyond doubt."""
    if any(row.kind == "all_to_all" and _block(row.part) == "embedding" for row in still.values()):
        yield from _looked_up(still, step)


def _looked_up(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """Rows of the embedding table change devices where the equation has the table gathered, or exchanges others."""
    table = {number: row for number, row in still.items() if _block(row.part) == "embedding"}
    exchanges = [number for number, row in table.items() if row.predicted_bytes is None]
    predicted = {row.kind for row in step.rows if _block(row.part) == "embedding" and row.predicted_bytes is not None}
    instead = "has the table gathered" if "all_gather" in predicted else "exchanges them in other ways"
    yield exchanges, f"rows that are looked up change devices; the equation {instead}"
    moved = (row for row in step.rows if _block(row.part) == "embedding" and row.predicted_bytes is None)
    if any(row.found for row in moved):
        yield table.keys() - set(exchanges), "the table stays split; rows that are looked up change devices instead"


def _outside_the_layers(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    del step
    numbers = [number for number, row in still.items() if _block(row.part) in _OUTSIDE and row.predicted_bytes is None]
    yield numbers, "outside the layers, where the equation has no such exchange"


def _small(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    for number, row in still.items():
        if max(row.total_bytes, row.predicted_bytes or 0.0) <= _SMALL * step.moved_bytes:
            what = "a scale's gradient" if "norm" in row.part else "the loss" if row.part == "head/loss" else ""
            share = "less than 0.1% of all bytes"
            yield (number,), f"{what}: {share}" if what else share


def _between_slices(still: _Open, step: _Step) -> Iterator[tuple[Iterable[int], str]]:
    """Between slices the runtime chooses the collective."""
    del step
    across = {number: row for number, row in still.items() if set(row.axes) <= _ACROSS}
    for members in _grouped(across, lambda row: frozenset(row.axes)):
        if (width := _width(members.values())) is not None:
            yield members, f"between slices, in other pieces; together they agree{width}"


def _half(row: CollectiveRow) -> Half:
    """The half of a sum: what stands in no pass is the optimizer's, which follows the backward one."""
    return row.half if row.phase else "backward"


def _grouped(rows: _Open, key: Callable[[CollectiveRow], Hashable]) -> list[_Open]:
    """Rows with the same key, those of which there are several."""
    groups: defaultdict[Hashable, _Open] = defaultdict(dict)
    for number, row in rows.items():
        groups[key(row)][number] = row
    return [members for members in groups.values() if len(members) > 1]


def _width(rows: Iterable[CollectiveRow], *, within: float = AGREE) -> str | None:
    """Whether both witnesses move the same over several rows, each of which only one side may have.

    Returns:
        What is to be said of width and repetition: "" where neither differs; None where the sums differ.
    """
    members = list(rows)
    predicted_bytes = sum(row.predicted_bytes or 0.0 for row in members)
    compiled_bytes = sum(row.total_bytes for row in members)
    if agree(compiled_bytes, predicted_bytes, within=within):
        return ""
    if not agree(compiled_bytes, 2 * predicted_bytes, within=within):
        return None
    is_repeated = agree(sum(row.count for row in members), 2 * sum(row.predicted_count for row in members))
    return ", each done twice" if is_repeated else ", in f32"


def _itself(part: str) -> str:
    """The part, nothing wider."""
    return part


def _section(part: str) -> str:
    """`layer`, `embedding` or `head`."""
    return part.partition("/")[0]


def _anywhere(part: str) -> str:
    """All parts as one."""
    del part
    return ""


def _block(part: str) -> str:
    """`layer/attention` of `layer/attention/query`; `embedding` and `head` whole."""
    section, _, rest = part.partition("/")
    return section if section in _OUTSIDE or not rest else f"{section}/{rest.partition('/')[0]}"


_SCOPES: Final = (_itself, _block, _section, _anywhere)
"""How far around a row its counterpart is looked for, narrowest first."""

_RULES: Final[tuple[_Rule, ...]] = (
    _unknown_counts,
    _exchanged,
    _merged,
    _summed_whole,
    _summed_over_several_axes,
    _summed_one_by_one,
    _permuted,
    _once_a_micro_step,
    _twice_as_wide,
    _between_slices,
    _ends_a_sum_over_slices,
    _in_another_pass,
    _gathered_once,
    _nameless,
    _small,
    _looked_up,
    _outside_the_layers,
)
"""In the order in which they are tried."""
