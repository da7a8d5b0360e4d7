"""The answer to `ridgeline matmul`: how arrays lie, what their product needs, and which way is fastest."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan
from typing import TYPE_CHECKING

from ridgeline.cost.sharding.layout import array_layout, uneven_dim
from ridgeline.cost.sharding.mesh_machine import MeshMachine, machine_of_rates, machine_on
from ridgeline.cost.sharding.resharding import collectives_of, reshard
from ridgeline.cost.sharding.sharded_matmul import cases, inherited_output, strategies
from ridgeline.cost.sharding.strategy_cost import Setting, product_flops, step_cost, strategy_cost
from ridgeline.cost.sharding.strategy_explain import explain_array, explain_step, explain_strategy, gather_rules
from ridgeline.cost.sharding.strategy_thresholds import compute_bound_from, winner_changes
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.sharding import Product, Resharding, ShardedArray
from ridgeline.search.layouts import LayoutSearch, best_layouts
from ridgeline.search.matmul_answer import MatmulAnswer, ProductAnswer
from ridgeline.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ridgeline.cost.explain import Derivation
    from ridgeline.job.matmul_question import MatmulQuestion

_LAYOUTS = 6
"""How many layouts of a search are told."""

_EXPLAINED = 6
"""How many strategies are explained: the textbook's, and the fastest of the others."""


def answer_matmul(question: MatmulQuestion) -> MatmulAnswer:
    """How the arrays lie, and what is to be done with them.

    Raises:
        InputError: The mesh does not match the slice, or a search lacks what it needs.
        InfeasibleError: No layout fits, or no strategy leaves the result as asked.
    """
    machine, arrays = _machine(question), question.arrays
    match arrays:
        case ShardedArray():
            return _answer(question, machine, [arrays])
        case Resharding():
            return _answer_resharding(question, arrays, machine)
        case Product():
            return _answer_product(question, arrays, machine)


def _answer_resharding(question: MatmulQuestion, change: Resharding, machine: MeshMachine) -> MatmulAnswer:
    steps = collectives_of(reshard(change.source, change.target))
    exact, by_the_book = _settings(question, machine)
    costs = tuple(step_cost(step, exact, question.sizes) for step in steps)
    explained = (each for cost in costs for each in explain_step(cost, exact))
    return replace(
        _answer(question, machine, (change.source, change.target), explained),
        steps=costs,
        approximate_steps=tuple(step_cost(step, by_the_book, question.sizes) for step in steps),
    )


def _answer_product(question: MatmulQuestion, product: Product, machine: MeshMachine) -> MatmulAnswer:
    sizes, search = question.sizes, None
    exact, by_the_book = _settings(question, machine)
    if question.searches:
        search = _search(question, product, exact)
        product = search.best[0].product
    ways = strategies(product, fits=lambda array: uneven_dim(array, sizes=sizes, mesh=machine.mesh) is None)
    if not ways:
        raise InfeasibleError(
            "no strategy leaves the result so",
            reasons=[f"{product}: its axes do not divide what would be summed over all of them"],
            fix="leave fewer sums partial, or pad what is summed",
        )
    asked = [way for way in ways if way.is_as_asked]
    costs = tuple(strategy_cost(number, way, exact, sizes) for number, way in enumerate(ways, start=1))
    is_timed = not any(isnan(cost.time_s) for cost in costs)
    output, conflicts = inherited_output(product)
    answer = ProductAnswer(
        product=product,
        cases=cases(product),
        inherited_output=str(output),
        conflicts=conflicts,
        flops=float(product_flops(product, sizes)),
        strategies=costs,
        approximate=tuple(strategy_cost(n, way, by_the_book, sizes) for n, way in enumerate(ways, start=1)),
        compute_bound_from=tuple(compute_bound_from(way, exact, sizes) for way in ways) if is_timed else (),
        thresholds=winner_changes(asked, exact, sizes) if is_timed and search is None else (),
        rules=tuple(gather_rules(product, exact, sizes)),
        search=search,
    )
    fastest = sorted(costs[: len(asked)], key=lambda cost: (cost.number > 1, cost.time_s))[:_EXPLAINED]
    explained = (each for cost in fastest for each in explain_strategy(cost, exact, sizes))
    ruled = (each for rules in answer.rules for each in rules.derivations)
    arrays = (product.left, product.right, answer.best.strategy.output)
    whole = _answer(question, machine, arrays, (*explained, *ruled))
    return replace(whole, product=answer, notes=(*whole.notes, *_notes_on_compiler(answer, machine)))


def _answer(
    question: MatmulQuestion,
    machine: MeshMachine,
    arrays: Iterable[ShardedArray],
    derivations: Iterable[Derivation] = (),
) -> MatmulAnswer:
    """The part that every question has: its arrays, and what was taken for granted."""
    layouts = tuple(
        array_layout(
            array,
            sizes=question.sizes,
            mesh=machine.mesh,
            copies=machine.copies,
            element_bytes=question.element_bytes[array.name],
        )
        for array in arrays
    )
    found = (*(each for layout in layouts for each in explain_array(layout)), *derivations)
    return MatmulAnswer(
        question=question,
        machine=machine,
        arrays=layouts,
        steps=(),
        approximate_steps=(),
        product=None,
        notes=tuple(_notes(question, machine)),
        derivations=tuple(each for each in found if not isnan(each.value)),
    )


def _machine(question: MatmulQuestion) -> MeshMachine:
    if question.hardware is None:
        return machine_of_rates(question.mesh, question.rates)
    mesh = {axis: int(size) for axis, size in question.mesh.items()}
    return machine_on(question.hardware, mesh, question.compute_dtype, question.rates, where=question.where)


def _settings(question: MatmulQuestion, machine: MeshMachine) -> tuple[Setting, Setting]:
    """The machine with exact collectives, and with the book's."""
    exact, by_the_book = (
        Setting(machine=machine, element_bytes=question.element_bytes, links=machine.links(approximate=approximate))
        for approximate in (False, True)
    )
    return exact, by_the_book


def _search(question: MatmulQuestion, product: Product, setting: Setting) -> LayoutSearch:
    """The best layouts under the limit that was said, or else the memory of a device."""
    if any(isnan(value) for value in (*question.sizes.values(), *question.mesh.values())):
        raise InputError(
            "a search needs a mesh and sizes",
            where=question.where,
            value=str(product),
            expected="sizes of every dimension, and a mesh or a slice",
            fix="give them, or write the layouts down with subscripts",
        )
    if isnan(setting.machine.peak_flops_per_s) or isnan(setting.machine.link_bytes_per_s):
        raise InputError(
            "a search needs the rates of a device and of its links",
            where=question.where,
            value=str(product),
            expected="a slice, or a peak and the bandwidth of a link or an axis",
            fix="name a slice, or write the layouts down with subscripts",
        )
    memory_bytes = question.memory_bytes
    if question.hardware is not None and memory_bytes == inf:
        memory_bytes = question.hardware.usable_hbm_bytes / question.hardware.num_devices
    return best_layouts(product, setting, question.sizes, memory_bytes=memory_bytes, count=_LAYOUTS)


def _notes(question: MatmulQuestion, machine: MeshMachine) -> Iterator[str]:
    if machine.copies > 1:
        named = format_count(machine.num_devices / machine.copies)
        yield (
            f"the mesh names {named} of {format_count(machine.num_devices)} devices: {machine.copies} sets of them do "
            "the same"
        )
    if question.memory_bytes < inf and not question.searches:
        yield "a limit on memory is for a search of layouts: these are given"
    if not (isinstance(question.arrays, ShardedArray) or isnan(machine.link_bytes_per_s)):
        yield from _notes_on_rates(question)


def _notes_on_compiler(answer: ProductAnswer, machine: MeshMachine) -> Iterator[str]:
    """Where the compiler is known to do otherwise with the same layouts (tests/matmul/test_programs.py)."""
    if "all_to_all" in {cost.step.kind for cost in answer.textbook.steps}:
        yield "XLA may choose to gather an operand where an exchange of the result moves less"
    if answer.conflicts and not machine.mesh.keys() <= answer.cases.keys():
        yield "XLA may choose to gather over mesh axes that nothing uses, after a permute of the blocks"


def _notes_on_rates(question: MatmulQuestion) -> Iterator[str]:
    hardware, rates = question.hardware, question.rates
    yield "collectives run one after another, at full bandwidth; a strategy overlaps them with arithmetic or not at all"
    if hardware is None:
        wiring = rates.get("wiring", "ring")
        yield f"each mesh axis is a {wiring} of its own" + ("" if "hop_s" in rates else "; latency is left out")
        if "hbm_bytes_per_s" not in rates:
            yield "reading and writing memory is left out"
    elif "peak_flops_per_s" not in rates and question.compute_dtype not in hardware.chip.peak_flops_per_s:
        yield f"{hardware.chip.name} has no rate of its own for {question.compute_dtype}: bf16's is used"
