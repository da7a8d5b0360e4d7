"""The answer to `ridgeline matmul` as a screen. `matmul_json.py` is the same for programs."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, isnan
from typing import TYPE_CHECKING

from ridgeline.job.sharding import joined
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.units import format_bytes, format_count, format_decimal_bytes, format_flops, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.sharding.layout import ArrayLayout
    from ridgeline.cost.sharding.sharded_matmul import Case
    from ridgeline.cost.sharding.strategy_cost import Bound, StepCost, StrategyCost
    from ridgeline.report.blocks import Piece
    from ridgeline.search.layouts import LayoutChoice, LayoutSearch
    from ridgeline.search.matmul_answer import MatmulAnswer, ProductAnswer

_BOUNDS: Mapping[Bound, str] = {
    "compute": "compute",
    "hbm": "HBM",
    "ici": "links",
    "network": "network",
    "latency": "latency",
    "unknown": "unknown",
}
_CASES: Mapping[Case, str] = {
    1: "splits nothing that is summed: nothing to communicate",
    2: "splits what is summed, in one operand only: gather that one, or multiply blocks and reduce",
    3: "splits what is summed, in both operands: devices hold partial sums, which are reduced",
    4: "would split two dimensions of the result: gather one operand, either",
}
_UNKNOWN, _NOTHING = "unknown", "–"
_SHOWN_STRATEGIES = 6
_SHOWN_THRESHOLDS = 6
_COLLECTIVES = ("of", "collective", "over", "V", "time", "waits for")
_COLLECTIVES_NOTE = "V: bytes gathered, or held by a device before they are reduced or exchanged"


def matmul_report(answer: MatmulAnswer) -> Report:
    """The screen: arrays, case, strategies, their collectives, thresholds, and what was taken for granted."""
    on = f" on {answer.machine.name}" if answer.machine.name else ""
    return Report(
        headline=f"{answer.question.arrays}{on}",
        pieces=(
            *_setting(answer),
            *([_known(_arrays(answer.arrays))] if not isnan(answer.arrays[0].num_shards) else []),
            *(_product(answer.product) if answer.product else ()),
            *([] if answer.product else _resharding(answer)),
            *([Paragraphs(title="Taken for granted", lines=tuple(map(_line, answer.notes)))] if answer.notes else []),
        ),
    )


def _setting(answer: MatmulAnswer) -> Iterator[Piece]:
    question, machine = answer.question, answer.machine
    rows: list[tuple[str, str]] = []
    if not any(isnan(size) for size in question.sizes.values()):
        rows.append(("sizes", ", ".join(f"{dim} {_size(size)}" for dim, size in question.sizes.items())))
    if machine.mesh and not isnan(machine.num_devices):
        rows.append(("mesh", " × ".join(f"{axis} {size:g}" for axis, size in machine.mesh.items())))
    if machine.placement:
        rows.append(("placed on", ", ".join(f"{axis} on {on}" for axis, on in machine.placement.items())))
    if not any(isnan(layout.array_bytes) for layout in answer.arrays):
        rows.append(("dtypes", ", ".join(f"{name} {dtype}" for name, dtype in question.dtypes.items())))
    if rows:
        yield Facts(rows=tuple((label, Cell(text=text)) for label, text in rows))


def _arrays(layouts: Sequence[ArrayLayout]) -> Table:
    return Table(
        title="Arrays",
        columns=("array", "shape", "on a device", "a device", "all devices", "copies"),
        rows=tuple(
            (
                Cell(text=str(layout.array), tone="strong"),
                Cell(text=_shape(layout.shape)),
                Cell(text=_shape(layout.local_shape)),
                Cell(text=format_bytes(layout.device_bytes)),
                Cell(text=format_bytes(layout.total_bytes)),
                Cell(text=_count(layout.replication_factor)),
            )
            for layout in layouts
        ),
        right=frozenset({3, 4, 5}),
    )


def _resharding(answer: MatmulAnswer) -> Iterator[Piece]:
    """The steps from one layout to another; of a single array, that it can lie so."""
    if answer.steps:
        total = format_seconds(sum(cost.time_s for cost in answer.steps))
        collectives = Table(
            title="Collectives" if total == _UNKNOWN else f"Collectives: {total}",
            columns=_COLLECTIVES[1:],
            rows=tuple(_step_row(cost) for cost in answer.steps),
            right=frozenset({2, 3}),
            note=_COLLECTIVES_NOTE,
        )
        yield _known(collectives)
    elif len(answer.arrays) > 1:
        yield Paragraphs(lines=(Cell(text="No communication: every device has what it shall hold."),))
    elif any(isnan(array.num_shards) for array in answer.arrays):
        yield Paragraphs(lines=(Cell(text="A device can hold such a block; a mesh and sizes say how much that is."),))


def _product(product: ProductAnswer) -> Iterator[Piece]:
    if product.search:
        yield _layouts(product.search)
    yield Facts(title=f"Case {product.case}", rows=tuple(_case_rows(product)))
    shown = _shown(product)
    yield _known(_strategies(product, shown))
    if any(cost.steps for cost in shown):
        collectives = Table(
            title="Their collectives",
            columns=_COLLECTIVES,
            rows=tuple((Cell(text=str(cost.number)), *_step_row(step)) for cost in shown for step in cost.steps),
            right=frozenset({3, 4}),
            note=_COLLECTIVES_NOTE,
        )
        yield _known(collectives)
    if product.thresholds or product.compute_bound_from:
        yield Facts(title="From which size on", rows=tuple(_threshold_rows(product, shown)))


def _shown(product: ProductAnswer) -> list[StrategyCost]:
    """The textbook's strategy and the fastest of the others, in the order of their numbers."""
    first, *others = product.strategies
    fastest = sorted(others, key=lambda cost: (cost.time_s, cost.number))[: _SHOWN_STRATEGIES - 1]
    return [first, *sorted(fastest, key=lambda cost: cost.number)]


def _case_rows(product: ProductAnswer) -> Iterator[tuple[str, Cell]]:
    for axis, case in product.cases.items():
        yield axis, Cell(text=f"case {case}: {_CASES[case]}")
    if not product.cases:
        yield "axes", Cell(text="none splits an operand")
    if product.conflicts:
        twice = joined(product.conflicts)
        text = f"{product.inherited_output} would have {twice} twice: no device could hold a block of it"
        yield "illegal", Cell(text=text, tone="warn")
    if isfinite(product.flops):
        yield "product", Cell(text=f"{format_flops(product.flops)}, done once")


def _strategies(product: ProductAnswer, shown: Sequence[StrategyCost]) -> Table:
    best = product.best
    is_timed = not isnan(best.time_s)
    note = "FLOPs and memory of a device; repeats: devices that do the same; time: all overlapped, at least"
    if any(not cost.strategy.is_as_asked for cost in shown):
        note += "; (s): leaves the result scattered, if that may be"
    if hidden := len(product.strategies) - len(shown):
        note += f"; {hidden} slower ones are in --json"
    return Table(
        title=f"Strategies: the fastest is {best.number}, {best.strategy}" if is_timed else "Strategies",
        columns=("", "strategy", "result", "FLOPs", "repeats", "compute", "links", "time", "bound", "memory"),
        rows=tuple(_strategy_row(cost, is_best=is_timed and cost is best) for cost in shown),
        right=frozenset({3, 4, 5, 6, 7, 9}),
        note=note,
    )


def _strategy_row(cost: StrategyCost, *, is_best: bool) -> tuple[Cell, ...]:
    strategy = cost.strategy
    tone = "good" if is_best else "plain"
    return (
        Cell(text=str(cost.number), tone=tone),
        Cell(text=str(strategy) + ("" if strategy.is_as_asked else " (s)"), tone=tone),
        Cell(text=str(strategy.output)),
        Cell(text=format_flops(cost.flops)),
        Cell(text=_count(cost.redundancy_factor)),
        Cell(text=format_seconds(cost.compute_s)),
        Cell(text=format_seconds(cost.communication_s)),
        Cell(text=format_seconds(cost.time_s), tone=tone),
        Cell(text=_BOUNDS[cost.bound]),
        Cell(text=format_bytes(cost.peak_bytes)),
    )


def _step_row(cost: StepCost) -> tuple[Cell, ...]:
    return (
        Cell(text=f"{cost.step.kind.replace('_', '-')} {cost.step.before} -> {cost.step.after}"),
        Cell(text=joined(cost.step.axes)),
        Cell(text=format_decimal_bytes(cost.array_bytes)),
        Cell(text=format_seconds(cost.time_s)),
        Cell(text=_BOUNDS[cost.bound]),
    )


def _threshold_rows(product: ProductAnswer, shown: Sequence[StrategyCost]) -> Iterator[tuple[str, Cell]]:
    for change in product.thresholds[:_SHOWN_THRESHOLDS]:
        text = f"{change.dim} = {_size(change.size)}: below it strategy {change.below}, above it {change.above}"
        yield "fastest", Cell(text=text, tone="strong")
    if more := len(product.thresholds[_SHOWN_THRESHOLDS:]):
        yield "", Cell(text=f"{more} more changes are in --json", tone="dim")
    if not product.thresholds and not product.search:
        yield "fastest", Cell(text=f"strategy {product.best.number} whatever one size is, the others as asked")
    for cost in shown:
        sizes = product.compute_bound_from[cost.number - 1]
        reached = [f"{dim} = {_size(size)}" for dim, size in sizes.items() if size > 1 and isfinite(size)]
        always = any(size <= 1 for size in sizes.values())
        text = ", or ".join(reached) or ("always" if always else "never, by one size alone")
        yield f"{cost.number} compute-bound", Cell(text=f"from {text}" if reached else text)


def _layouts(search: LayoutSearch) -> Table:
    best, *others = search.best
    unlimited = search.unlimited
    note = f"{format_count(search.count)} layouts compared"
    if isfinite(search.memory_bytes):
        note += f"; at most {format_bytes(search.memory_bytes)} of a device"
    if unlimited.cost.time_s < best.cost.time_s:
        note += (
            f". Without that limit {unlimited.product} would take {format_seconds(unlimited.cost.time_s)}, "
            f"with {format_bytes(unlimited.cost.peak_bytes)}"
        )
    return Table(
        title=f"Best layouts: {_laid_out(best)}",
        columns=("layouts", "time", "at rest", "memory", "why"),
        rows=tuple(_layout_row(choice, best) for choice in (best, *others)),
        right=frozenset({1, 2, 3}),
        note=note,
    )


def _layout_row(choice: LayoutChoice, best: LayoutChoice) -> tuple[Cell, ...]:
    return (
        Cell(text=_laid_out(choice), tone="good" if choice is best else "plain"),
        Cell(text=format_seconds(choice.cost.time_s)),
        Cell(text=format_bytes(choice.device_bytes)),
        Cell(text=format_bytes(choice.cost.peak_bytes)),
        Cell(text=_why(choice, best)),
    )


def _why(choice: LayoutChoice, best: LayoutChoice) -> str:
    """What a layout needs, and what that costs beside the best."""
    cost, strategy = choice.cost, choice.cost.strategy
    needs = f"{strategy}: links {format_seconds(cost.communication_s)}" if cost.steps else "no communication"
    if cost.redundancy_factor > 1:
        needs += f", every product {_count(cost.redundancy_factor)} times"
    slower = cost.time_s / best.cost.time_s
    if choice is best:
        return f"{needs}; waits for {_BOUNDS[cost.bound]}"
    return f"{needs}; " + ("as fast" if slower < 1.005 else f"{slower:.2f}× the time, waits for {_BOUNDS[cost.bound]}")


def _known(table: Table) -> Table:
    """The table without columns of which nothing is known, and without a note on them."""
    columns = [
        index
        for index in range(len(table.columns))
        if not table.rows or any(row[index].text not in {_UNKNOWN, _NOTHING} for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[index] for index in columns),
        rows=tuple(tuple(row[index] for index in columns) for row in table.rows),
        right=frozenset(place for place, index in enumerate(columns) if index in table.right),
        note=table.note if len(columns) == len(table.columns) else "",
    )


def _laid_out(choice: LayoutChoice) -> str:
    return " ".join(str(array) for array in choice.product.arrays)


def _shape(shape: Sequence[float]) -> str:
    return (
        _NOTHING if any(isnan(size) for size in shape) else " × ".join(f"{size:,.0f}" for size in shape) or "a number"
    )


def _count(count: float) -> str:
    return _UNKNOWN if isnan(count) else format_count(count)


def _size(size: float) -> str:
    return f"{size:,.0f}"


def _line(text: str) -> Cell:
    return Cell(text=text, tone="dim")
