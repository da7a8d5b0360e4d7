"""bf16, int8 and fp8 side by side, on a screen and as JSON."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from ridgeline.job.mesh import mesh_in_words
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Table
from ridgeline.report.chart import Axis, Chart, Curve, Mark
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.search.precision_facts import COMPILED, PUBLISHED
from ridgeline.units import format_bytes, format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.report.blocks import Piece, Tone
    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.precision import PrecisionAnswer, RecipeAnswer

_ABSENT = Cell(text="–", tone="dim")
_SAME = 0.005
_FASTEST = 4.0
_FASTER = tuple(1 + quarter / 4 for quarter in range(13))
"""Speed-ups that are drawn: up to four times, by quarters."""
_NOTHING_S = 1e-6
"""What rounding leaves of a difference of two steps."""


def precision_pieces(answer: PrecisionAnswer, *, chip: str) -> Iterator[Piece]:
    """Amdahl's law laid out, plans made anew, options, and what others measured and compiled."""
    yield _law(answer)
    yield _replanned(answer, chip)
    yield Paragraphs(title="Why no more", lines=tuple(Cell(text=line) for line in _why(answer, chip)))
    for recipe in answer.recipes:
        rows = tuple((option.name, Cell(text=f"{option.value}: {option.effect}")) for option in recipe.options)
        yield Facts(title=f"Options of the {recipe.recipe.kind} recipe", rows=rows)
    yield from _evidence(answer, chip)


def precision_chart(answer: PrecisionAnswer, *, title: str) -> Chart:
    """What a step gains from faster eligible matmuls, a curve a recipe; marked, what its format brings here."""
    laws = [(recipe.recipe.kind, recipe.same_plan) for recipe in answer.recipes]
    high = max(law.before_s / (law.eligible_s / _FASTEST + law.rest_s) for _, law in laws)
    return Chart(
        title=f"{title}: faster matmuls and the step",
        x=Axis(title="eligible matmuls, times as fast", low=1, high=_FASTEST, shown=_times, step=1, linear=True),
        y=Axis(title="step, times as fast", low=0.8, high=max(high, 1.0) * 1.1, shown=_times, step=0.5, linear=True),
        curves=tuple(
            Curve(
                name=f"{kind}: {format_fraction(law.eligible_s / law.before_s)} of the step",
                points=tuple((times, law.before_s / (law.eligible_s / times + law.rest_s)) for times in _FASTER),
            )
            for kind, law in laws
        ),
        marks=tuple(Mark(name=f"{kind}, with its scales", x=law.matmul_speedup, y=law.speedup) for kind, law in laws),
    )


def precision_json(answer: PrecisionAnswer, *, chip: str) -> dict[str, Json]:
    """The same in base units."""
    return {
        "reason": answer.reason,
        "global_batch": answer.global_batch,
        "gathered_bytes": answer.gathered_bytes,
        "bf16": _plan_json(answer.best),
        "recipes": [_recipe_json(recipe) for recipe in answer.recipes],
        "published": jsonable(PUBLISHED.get(chip, ())),
        "compiled_cycles": dict(COMPILED[chip].cycles) if chip in COMPILED else None,
    }


def _law(answer: PrecisionAnswer) -> Table:
    """The best plan of bf16 with each recipe: what becomes of its step."""
    return Table(
        title=f"The best bf16 plan in low precision: a step of {format_seconds(answer.best.step.expected_s)}",
        columns=(
            "recipe",
            "eligible FLOPs",
            "their time",
            "becomes",
            "",
            "scales",
            "rounding",
            "the rest",
            "uncovered",
            "step",
            "as fast",
        ),
        right=frozenset(range(1, 11)),
        rows=tuple(_law_row(recipe) for recipe in answer.recipes),
        note=(
            f"{mesh_in_words(answer.best.plan.mesh)}, remat {answer.best.plan.remat.policy}; rounding: of gathered "
            "weights, and partial sums of sub-channels; uncovered: communication that shorter matmuls no longer hide"
        ),
    )


def _law_row(recipe: RecipeAnswer) -> tuple[Cell, ...]:
    same = recipe.same_plan
    return (
        Cell(text=recipe.recipe.kind),
        Cell(text=format_fraction(same.eligible_flops_share)),
        Cell(text=format_seconds(same.eligible_s)),
        Cell(text=format_seconds(same.quantized_s)),
        Cell(text=f"({_times(same.matmul_speedup)})"),
        _time(same.scales_s),
        _time(same.rounding_s + same.blocks_s),
        Cell(text=format_seconds(same.rest_s)),
        _time(same.uncovered_s),
        Cell(text=format_seconds(same.after_s), tone="strong"),
        _gain(same.speedup),
    )


def _replanned(answer: PrecisionAnswer, chip: str) -> Table:
    program = "MaxText" if chip in COMPILED else "published"
    rows = [_plan_row("bf16", answer.best, 1.0, answer.gathered_bytes)]
    for recipe in answer.recipes:
        kind = recipe.recipe.kind
        rows.append(_plan_row(f"{kind} matmuls", recipe.best, recipe.speedup, answer.gathered_bytes))
        if recipe.is_native:
            name = f"{kind} throughout"
            rows.append(_plan_row(name, recipe.narrow, recipe.narrow_speedup, recipe.gathered_bytes))
    return Table(
        title="Planned anew",
        columns=("precision", "step", "as fast", "mesh", "remat", "kept activations", "gathered weights"),
        right=frozenset({1, 2, 5, 6}),
        rows=tuple(rows),
        note=(
            "bytes of a device; kept activations in a narrow format are counted, though no "
            f"{program} recipe keeps them; narrow gathers are not: compiled programs gather bf16"
        ),
    )


def _plan_row(name: str, plan: PlanEstimate | None, speedup: float, gathered_bytes: float) -> tuple[Cell, ...]:
    if plan is None:
        return (Cell(text=name), *(_ABSENT,) * 6)
    return (
        Cell(text=name),
        Cell(text=format_seconds(plan.step.expected_s)),
        _gain(speedup),
        Cell(text=f"{mesh_in_words(plan.plan.mesh)}{_passes(plan)}"),
        Cell(text=plan.plan.remat.policy),
        Cell(text=format_bytes(plan.memory.parts["saved_activations"])),
        Cell(text=format_bytes(gathered_bytes)),
    )


def _passes(plan: PlanEstimate) -> str:
    """Micro-steps and microbatches of a step; "" for one of each."""
    counts = {"micro-steps": plan.plan.gradient_accumulation, "microbatches": plan.plan.microbatches}
    return "".join(f", {count} {name}" for name, count in counts.items() if count > 1)


def _why(answer: PrecisionAnswer, chip: str) -> Iterator[str]:
    yield f"{answer.reason[:1].upper()}{answer.reason[1:]}."
    for recipe in answer.recipes:
        kind = recipe.recipe.kind
        if recipe.is_native or chip not in COMPILED:
            continue
        compiled = COMPILED[chip]
        cycles = f"{compiled.cycles[kind]:,} cycles beside {compiled.cycles['bf16']:,} in bf16"
        yield (
            f"No native {kind} here: operands are upcast. A compiled 8192-cube takes {cycles} "
            f"({_times(compiled.speedup(kind))})."
        )


def _evidence(answer: PrecisionAnswer, chip: str) -> Iterator[Piece]:
    """What others measured on this chip, this job's estimates in their place among it."""
    published = PUBLISHED.get(chip, ())
    if not published:
        return
    kinds = {each.kind for each in published}
    found = [(each.job, each.kind, each.speedup) for each in published]
    for recipe in answer.recipes:
        if recipe.recipe.kind in kinds:
            kind, scaling = recipe.recipe.kind, recipe.recipe.scaling
            found.append((f"this job, by the estimate, {scaling} scales", kind, recipe.same_plan.speedup))
            if scaling != "fixed":
                found.append(("this job, by the estimate, fixed scales", kind, recipe.fixed_speedup))
    yield Table(
        title="Beside what was published for this chip",
        columns=("run", "precision", "as fast as bf16"),
        right=frozenset({2}),
        rows=tuple(
            (Cell(text=run), Cell(text=kind), Cell(text=f"{speedup:.2f}"))
            for run, kind, speedup in sorted(found, key=lambda row: -row[2])
        ),
        note=f"{published[0].source}; published runs have fixed scales",
    )


def _time(spent_s: float) -> Cell:
    return Cell(text=format_seconds(spent_s)) if spent_s > _NOTHING_S else _ABSENT


def _times(speedup: float) -> str:
    return f"{speedup:.2f}×"


def _gain(speedup: float) -> Cell:
    if isnan(speedup):
        return _ABSENT
    tone: Tone = "good" if speedup > 1 + _SAME else "bad" if speedup < 1 - _SAME else "dim"
    return Cell(text=f"{speedup:.2f}", tone=tone)


def _recipe_json(recipe: RecipeAnswer) -> dict[str, Json]:
    same = recipe.same_plan
    return {
        "recipe": jsonable(recipe.recipe),
        "is_native": recipe.is_native,
        "fixed_speedup": recipe.fixed_speedup,
        "same_plan": {
            "eligible_flops_share": same.eligible_flops_share,
            "eligible_s": same.eligible_s,
            "quantized_s": same.quantized_s,
            "scales_s": same.scales_s,
            "rounding_s": same.rounding_s,
            "blocks_s": same.blocks_s,
            "rest_s": same.rest_s,
            "uncovered_s": same.uncovered_s,
            "matmul_speedup": same.matmul_speedup,
            "speedup": same.speedup,
            "speedup_limit": jsonable(same.speedup_limit_ratio),
        },
        "options": jsonable(recipe.options),
        "replanned": None if recipe.best is None else _plan_json(recipe.best) | {"speedup": recipe.speedup},
        "narrow_bytes": None
        if recipe.narrow is None
        else _plan_json(recipe.narrow) | {"speedup": recipe.narrow_speedup, "gathered_bytes": recipe.gathered_bytes},
    }


def _plan_json(plan: PlanEstimate) -> dict[str, Json]:
    return {
        "expected_s": plan.step.expected_s,
        "mesh": dict(plan.plan.mesh),
        "gradient_accumulation": plan.plan.gradient_accumulation,
        "microbatches": plan.plan.microbatches,
        "remat": jsonable(plan.plan.remat),
        "saved_activations_bytes": plan.memory.parts["saved_activations"],
        "memory_bytes": plan.memory.total_bytes,
    }
