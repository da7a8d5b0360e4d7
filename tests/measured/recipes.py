"""Published recipes for Ironwood, and what the planner chooses for the same jobs.

A recipe is a model on a slice at one sequence length and precision; its fastest published run stands for it. The
planner is given model, slice, batch, sequence length, precisions and the chunks of the logits; it chooses mesh,
micro-steps and remat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.cost.causes import time_by_cause
from ridgeline.search.train import cost_pinned, train
from tests.measured.cases import MeasuredCase, measured_cases
from tests.measured.wording import kept_in_words, mesh_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.search.answer import PlanEstimate

PUBLISHER = "AI-Hypercomputer/tpu-recipes"

LEAST_CAUSE = 0.005
"""Part of a step from which a difference of one cause is told."""

NOTHING = 0.0005
"""Part of a step below which two plans are equally fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A published plan beside the planner's.

    Attributes:
        case: The run.
        published: Its plan, costed.
        planned: The planner's choice.
    """

    case: MeasuredCase
    published: PlanEstimate
    planned: PlanEstimate

    @property
    def saved(self) -> float:
        """Part of the published plan's estimated step that the planner's saves; negative where it takes longer."""
        return 1 - self.planned.step.expected_s / self.published.step.expected_s

    @property
    def resolved(self) -> float:
        """Part of a step below which the planner takes two plans for equally fast."""
        step = self.published.step
        return (step.high_s / step.expected_s - 1) / 2


def published_recipes() -> tuple[MeasuredCase, ...]:
    """The fastest run of every recipe of which the whole plan is published."""
    fastest: dict[tuple[str, ...], MeasuredCase] = {}
    for case in measured_cases():
        job = case.job
        if job.hardware.chip.name != "tpu7x" or case.source.split()[0] != PUBLISHER or case.assumed:
            continue
        key = (job.model_reference, job.hardware.name, str(job.workload.seq_len), precision_in_words(case))
        if key not in fastest or case.step_s < fastest[key].step_s:
            fastest[key] = case
    return tuple(fastest.values())


def beside_the_planner(case: MeasuredCase) -> Recipe:
    """A recipe with the planner's choice."""
    question = replace(case.job, plan=replace(case.job.plan, mesh={}, remat=None, gradient_accumulation=None))
    return Recipe(case=case, published=cost_pinned(case.job), planned=train(question).best)


def precision_in_words(case: MeasuredCase) -> str:
    """`bf16`, or the recipe's kind."""
    recipe = case.job.plan.quantization
    return "bf16" if recipe is None else recipe.kind


def differences(recipe: Recipe) -> Iterator[str]:
    """What differs, in sentences: the choices, the time they save by cause, the memory."""
    choices = list(_choices(recipe))
    if not choices:
        yield "the same plan"
        return
    yield from choices
    step_s = recipe.published.step.expected_s
    before, after = (time_by_cause(plan.step.parts) for plan in (recipe.published, recipe.planned))
    changes = {cause: (after.get(cause, 0.0) - before.get(cause, 0.0)) / step_s for cause in {**before, **after}}
    told = [
        f"{cause} {change:+.1%}"
        for cause, change in sorted(changes.items(), key=lambda each: -abs(each[1]))
        if abs(change) >= LEAST_CAUSE
    ]
    causes = f" ({', '.join(told)} of the step)" if told else ""
    yield f"{_pace(recipe)}{causes}"
    if recipe.published.memory.verdict != "fits":
        yield "the published plan is too near the limit, or past it, for the planner to choose"


def _choices(recipe: Recipe) -> Iterator[str]:
    published, planned, model = recipe.published.plan, recipe.planned.plan, recipe.case.job.model
    ours, theirs = mesh_in_words(planned.mesh), mesh_in_words(published.mesh)
    if ours != theirs:
        yield f"mesh {ours} for {theirs}"
    if planned.gradient_accumulation != published.gradient_accumulation:
        yield f"{planned.gradient_accumulation} micro-steps for {published.gradient_accumulation}"
    kept, kept_before = kept_in_words(model, planned.remat), kept_in_words(model, published.remat)
    if kept != kept_before:
        yield "another remat policy"


def _pace(recipe: Recipe) -> str:
    """How much faster the planner's choice is, and whether the estimate can tell."""
    if abs(recipe.saved) < NOTHING:
        return "equally fast on paper"
    faster = "faster" if recipe.saved > 0 else "slower"
    verdict = "less than the estimate resolves" if abs(recipe.saved) < recipe.resolved else "which it does resolve"
    return f"{abs(recipe.saved):.1%} {faster} on paper, {verdict}"
