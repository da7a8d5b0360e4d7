"""`--precision`: bf16, int8 and fp8 side by side, what each does to the step, and what keeps it from doing more.

Each is answered twice: under the plan that is best in bf16, where the whole difference is that of the arithmetic, and
planned anew, where fewer bytes may buy another plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import ATTENTION, COMMUNICATION, RECOMPUTE, time_by_cause
from ridgeline.cost.columns import gathered_shards, tokens_per_microbatch
from ridgeline.cost.explain import derive
from ridgeline.cost.product import is_quantized, product_demand
from ridgeline.cost.training.collectives import part_of, step_collectives
from ridgeline.cost.training.quantization_pass import (
    NARROW_BYTES,
    SCALE_BYTES,
    SUB_CHANNEL_SIZE,
    partial_sums_flops,
    rounding_pass_bytes,
    scale_pass_bytes,
)
from ridgeline.cost.training.step import training_step
from ridgeline.errors import InfeasibleError
from ridgeline.job.precision import parse_quantization
from ridgeline.model.accounting import operations
from ridgeline.model.operations import ExpertMatmul, Matmul
from ridgeline.search.pinned import pinned_columns, pinned_to
from ridgeline.search.precision_facts import options_of
from ridgeline.search.train import train
from ridgeline.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.work import Part
    from ridgeline.job.job import Dtype, Job, Quantization
    from ridgeline.model.operations import ModelTree
    from ridgeline.search.answer import PlanEstimate
    from ridgeline.search.precision_facts import OptionEffect
    from ridgeline.search.train import Progress

KINDS: Final = ("int8", "fp8")
"""Recipes laid beside bf16."""

_GRADIENTS: Final = ("", "/input_gradient", "/weight_gradient")
_SCALE, _ROUND, _BLOCKS = "/scale", "/round", "/blocks"
"""Last words of the leaves of a quantized product."""

_WEIGHTS: Final = {"weights", "expert_weights"}
_NOTICEABLE: Final = 0.02
"""Part of a step from which something is named as what low precision does not touch."""

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SamePlan:
    """One plan in bf16 and with a recipe: Amdahl's law, laid out.

    Attributes:
        eligible_flops_share: FLOPs of the matmuls that the recipe takes over those of the whole step.
        eligible_s: Time of those matmuls in bf16, recomputation included.
        quantized_s: Time of the same with the recipe.
        scales_s: Time that looking for scales adds.
        rounding_s: Time that rounding gathered weights adds.
        blocks_s: Time that adding up the partial sums of sub-channels adds.
        rest_s: Everything else of the bf16 step.
        uncovered_s: Communication that shorter matmuls no longer hide.
    """

    eligible_flops_share: float
    eligible_s: float
    quantized_s: float
    scales_s: float
    rounding_s: float
    blocks_s: float
    rest_s: float
    uncovered_s: float

    @property
    def matmul_speedup(self) -> float:
        """Of the eligible matmuls."""
        return self.eligible_s / self.quantized_s if self.quantized_s else 1.0

    @property
    def before_s(self) -> float:
        """The step in bf16."""
        return self.eligible_s + self.rest_s

    @property
    def after_s(self) -> float:
        """The step with the recipe."""
        return self.quantized_s + self.converting_s + self.rest_s + self.uncovered_s

    @property
    def converting_s(self) -> float:
        """What the recipe does beside its products."""
        return self.scales_s + self.rounding_s + self.blocks_s

    @property
    def speedup(self) -> float:
        """Of the step."""
        return self.before_s / self.after_s

    @property
    def speedup_limit_ratio(self) -> float:
        """Of the step if eligible matmuls took no time at all."""
        return self.before_s / self.rest_s if self.rest_s > 0 else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeAnswer:
    """What one recipe would do.

    Attributes:
        recipe: The recipe; its kind names it.
        is_native: Whether the chip multiplies in that format faster than in bf16.
        same_plan: Under the best plan of bf16.
        fixed_speedup: Of the step under that plan, over bf16, were its scales given as published runs have them.
        options: What each of its options does to the time of a step.
        best: Planned anew; None where nothing fits.
        speedup: Of the step planned anew, over bf16.
        narrow: Planned anew with activations kept in that format too; None where nothing fits.
        narrow_speedup: Of that, over bf16.
        gathered_bytes: Weights that a device gathers in a step of the bf16 plan, were those of eligible matmuls
            gathered in the recipe's format.
        derivations: Where the costs of converting come from, for the largest of its products.
    """

    recipe: Quantization
    is_native: bool
    same_plan: SamePlan
    fixed_speedup: float
    options: tuple[OptionEffect, ...]
    best: PlanEstimate | None
    speedup: float
    narrow: PlanEstimate | None
    narrow_speedup: float
    gathered_bytes: float
    derivations: tuple[Derivation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionAnswer:
    """bf16 and the recipes.

    Attributes:
        best: The best plan in bf16.
        global_batch: Sequences of a step, the same for all.
        gathered_bytes: Weights that a device gathers in a step of it.
        recipes: int8 and fp8.
        reason: Why this job gains what it does, in a sentence.
    """

    best: PlanEstimate
    global_batch: int
    gathered_bytes: float
    recipes: tuple[RecipeAnswer, ...]
    reason: str


def precisions(job: Job, *, global_batch: int, progress: Progress | None = None) -> PrecisionAnswer:
    """bf16 beside int8 and fp8.

    Args:
        job: The question; the options of its own recipe hold for that kind.
        global_batch: Sequences of a step.
        progress: Told how far it is.

    Raises:
        InfeasibleError: Nothing fits in bf16.
    """
    question = replace(
        job,
        workload=replace(job.workload, global_batch=global_batch),
        plan=replace(job.plan, quantization=None),
    )
    best = train(question).best
    setting, columns = pinned_columns(pinned_to(question, best.plan, global_batch=global_batch))
    found: list[RecipeAnswer] = []
    for kind in KINDS:
        if progress is not None:
            progress(f"planning with {kind}", len(found) / len(KINDS))
        found.append(_recipe_answer(question, _recipe(job, kind), best, setting, columns))
    return PrecisionAnswer(
        best=best,
        global_batch=global_batch,
        gathered_bytes=_gathered_bytes(setting, columns, None),
        recipes=tuple(found),
        reason=_reason(best, found),
    )


def _recipe(job: Job, kind: str) -> Quantization:
    own = job.plan.quantization
    return own if own is not None and own.kind == kind else parse_quantization({"kind": kind}, where="--precision")


def _recipe_answer(
    question: Job, recipe: Quantization, best: PlanEstimate, setting: TrainingSetting, columns: PlanColumns
) -> RecipeAnswer:
    plan = question.plan
    quantized = replace(question, plan=replace(plan, quantization=recipe))
    again = _planned(quantized)
    kept: Dtype = "fp8" if recipe.kind == "fp4" else recipe.kind
    narrow = _planned(replace(quantized, plan=replace(quantized.plan, dtypes=replace(plan.dtypes, activations=kept))))
    same = same_plan(setting, columns, recipe)
    return RecipeAnswer(
        recipe=recipe,
        is_native=recipe.kind in setting.hardware.chip.peak_flops_per_s,
        same_plan=same,
        fixed_speedup=same_plan(setting, columns, replace(recipe, scaling="fixed")).speedup,
        options=options_of(
            recipe,
            scales_share=same.scales_s / same.before_s,
            rounding_share=same.rounding_s / same.before_s,
            blocks_share=same.blocks_s / same.before_s,
            narrows_apart=setting.hardware.chip.switch is not None,
        ),
        best=again,
        speedup=_speedup(best, again),
        narrow=narrow,
        narrow_speedup=_speedup(best, narrow),
        gathered_bytes=_gathered_bytes(setting, columns, recipe),
        derivations=tuple(_derivations(setting, columns, recipe)),
    )


def _derivations(setting: TrainingSetting, columns: PlanColumns, recipe: Quantization) -> Iterator[Derivation]:
    """What converting for the largest product moves and computes, in one microbatch."""
    path, op = max(_eligible(setting.tree, recipe), key=lambda found: found[1].weight.size, default=("", None))
    if op is None:
        return
    rows = tokens_per_microbatch(setting, columns)
    demand = product_demand(op, rows=rows, setting=replace(setting, quantization=recipe), columns=columns)
    in_blocks = recipe.granularity == "sub_channel"
    found = [
        derive(
            rounding_pass_bytes,
            P=float(op.weight.size / gathered_shards(op.weight, columns)),
            b_w=setting.compute_bytes,
            narrow_bytes=NARROW_BYTES[recipe.kind],
            scale_bytes=SCALE_BYTES / SUB_CHANNEL_SIZE if in_blocks else 0.0,
        )
    ]
    if recipe.scaling == "dynamic":
        elements = float(demand.rows * demand.contracted_width / demand.num_shards)
        found.append(derive(scale_pass_bytes, elements_size=elements, b_a=setting.activation_bytes))
    if in_blocks:
        found.append(derive(partial_sums_flops, product_flops=float(demand.flops), block_size=SUB_CHANNEL_SIZE))
    yield from (replace(each, quantity=f"{recipe.kind}, {path}: {each.quantity}") for each in found)


def _planned(job: Job) -> PlanEstimate | None:
    try:
        return train(job).best
    except InfeasibleError:
        return None


def _speedup(best: PlanEstimate, other: PlanEstimate | None) -> float:
    return float("nan") if other is None else best.step.expected_s / other.step.expected_s


def same_plan(setting: TrainingSetting, columns: PlanColumns, recipe: Quantization) -> SamePlan:
    """One plan without and with a recipe.

    Args:
        setting: The job; its own recipe is not looked at.
        columns: The plan (scalar columns).
        recipe: The recipe.
    """
    names = frozenset(f"{path}{gradient}" for path, _ in _eligible(setting.tree, recipe) for gradient in _GRADIENTS)
    before = training_step(replace(setting, quantization=None), columns)
    after = training_step(replace(setting, quantization=recipe), columns)
    eligible_s, eligible_flops = _matmuls(before, names)
    quantized_s, _ = _matmuls(after, names)
    scales_s, rounding_s, blocks_s = (_named(after, ending) for ending in (_SCALE, _ROUND, _BLOCKS))
    rest_s = float(before.expected_s) - eligible_s
    return SamePlan(
        eligible_flops_share=eligible_flops / sum(_flops(leaf) for _, leaf in _leaves(before)),
        eligible_s=eligible_s,
        quantized_s=quantized_s,
        scales_s=scales_s,
        rounding_s=rounding_s,
        blocks_s=blocks_s,
        rest_s=rest_s,
        uncovered_s=float(after.expected_s) - quantized_s - scales_s - rounding_s - blocks_s - rest_s,
    )


def _eligible(tree: ModelTree, recipe: Quantization) -> Iterator[tuple[str, Matmul | ExpertMatmul]]:
    """Products that a recipe takes, with their paths."""
    for path, operation, _ in operations(tree):
        if isinstance(operation, Matmul | ExpertMatmul) and is_quantized(operation, recipe):
            yield path, operation


def _matmuls(step: Part, names: frozenset[str]) -> tuple[float, float]:
    """Time and FLOPs of the leaves of some parts."""
    found = [leaf for path, leaf in _leaves(step) if part_of(path) in names]
    return sum(float(leaf.expected_s) for leaf in found), sum(map(_flops, found))


def _named(step: Part, ending: str) -> float:
    """Time of the leaves whose names end so."""
    return sum(float(leaf.expected_s) for _, leaf in _leaves(step) if leaf.name.endswith(ending))


def _leaves(step: Part) -> Iterator[tuple[str, Part]]:
    return ((path, part) for path, part in step.walk() if part.composition == "leaf")


def _flops(leaf: Part) -> float:
    return sum(float(work) for resource, work in leaf.work.amounts.items() if resource.startswith("flops."))


def _gathered_bytes(setting: TrainingSetting, columns: PlanColumns, recipe: Quantization | None) -> float:
    """Weights that a device gathers in a step, those of eligible matmuls in the recipe's format."""
    eligible = set[str]() if recipe is None else {op.weight.name for _, op in _eligible(setting.tree, recipe)}
    return sum(
        each.total_bytes / (setting.compute_bytes if each.part in eligible else 1.0)
        for each in step_collectives(setting, columns)
        if each.kind == "all_gather" and each.group in _WEIGHTS
    )


def _reason(best: PlanEstimate, recipes: list[RecipeAnswer]) -> str:
    """What the step goes to that no recipe touches."""
    native = [each for each in recipes if each.is_native]
    if not native:
        kinds = " nor ".join(each.recipe.kind for each in recipes)
        return f"this chip multiplies neither {kinds} faster than bf16: a recipe only adds scales"
    same = native[-1].same_plan
    step_s = best.step.expected_s
    causes = time_by_cause(best.step.parts)
    untouched = {name: time_s for name, time_s in causes.items() if name not in {"matmuls", RECOMPUTE}}
    moved_s = sum(untouched.pop(name, 0.0) for name in COMMUNICATION.values())
    named = {**untouched, "exposed communication": moved_s}
    shares = [(name, time_s / step_s) for name, time_s in named.items() if time_s > _NOTICEABLE * step_s]
    words = [f"{name} {format_fraction(share)}" for name, share in sorted(shares, key=lambda item: -item[1])]
    eligible = format_fraction(same.eligible_s / same.before_s)
    beside = f"; what stays: {', '.join(words[:_MOST_NAMED])}" if words else ""
    kept = " (attention's scores stay in bf16)" if ATTENTION in untouched else ""
    return (
        f"eligible matmuls are {eligible} of the step and become {same.matmul_speedup:.2f} times as fast"
        f"{beside}{kept}; "
        f"with eligible matmuls in no time at all, the step would be {same.speedup_limit_ratio:.2f} times as fast"
    )
