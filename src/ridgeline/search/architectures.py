"""`--architectures`: which architecture of this parameter count runs fastest here.

The model is traded for others of its size, one dimension at a time (`model/reshaping.py`): each is planned anew and put
beside the job's own. What pays by itself is then tried together. How well each would learn is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import COMMUNICATION, time_by_cause
from ridgeline.cost.columns import tokens_per_microbatch
from ridgeline.cost.product import product_demand
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.model.accounting import operations
from ridgeline.model.operations import ExpertMatmul, Matmul
from ridgeline.model.parameters import ParameterCount, count_parameters
from ridgeline.model.reshaping import has_dimension, reshaped
from ridgeline.model.tree import model_tree
from ridgeline.search.estimate import step_flops
from ridgeline.search.pinned import pinned_columns, pinned_to
from ridgeline.search.setting import training_setting
from ridgeline.search.train import train
from ridgeline.units import format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.job.job import Job
    from ridgeline.model.spec import ModelSpec
    from ridgeline.search.answer import PlanEstimate, TrainAnswer
    from ridgeline.search.train import Progress

BAND: Final = 0.03
"""Fraction by which parameters may differ from the job's, all of them and those a token visits."""

TRADES: Final[Mapping[str, tuple[float, ...]]] = {
    "num_layers": (0.5, 0.75, 4 / 3, 2.0),
    "mlp_ratio": (2 / 3, 1.5),
    "num_heads": (0.5, 2.0),
    "num_kv_heads": (0.5, 2.0),
    "head_dim": (0.5, 2.0),
    "num_experts": (0.5, 2.0),
}
"""Dimension to the factors that are tried."""

TILE: Final = 128
"""What widths are a multiple of where a chip's matrix units have no published size."""

NOTICEABLE: Final = 0.005
"""Part of a step from which a difference is one."""

MOST_CAUSES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixUse:
    """How the matmuls of a plan meet the matrix units.

    Attributes:
        filled_fraction: Their FLOPs over those of their weights padded to whole tiles; 1 where all is aligned.
        intensity_flops_per_byte: Their FLOPs over the HBM bytes of operands and outputs.
        exposed_fraction: Part of the step in which nothing but communication goes on.
    """

    filled_fraction: float
    intensity_flops_per_byte: float
    exposed_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One shape of the model.

    Attributes:
        factor_of_dimension: How much larger each dimension is than the job's; empty for the job's own.
        model: The model.
        parameters: How many it has.
        flops_per_token: Of a training step, as MFU counts them.
        best: The plan; None where there is none.
        use: Of that plan; None without.
        time_ratio: Time of a step over that of the job's own; NaN without a plan.
        because: What makes the difference, in words; "" where there is none.
        reason: Why there is no plan.
    """

    factor_of_dimension: Mapping[str, float]
    model: ModelSpec
    parameters: ParameterCount
    flops_per_token: float
    best: PlanEstimate | None
    use: MatrixUse | None
    time_ratio: float = nan
    because: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitecturesAnswer:
    """The job's model and others of its size.

    Attributes:
        own: The job's.
        found: All that have the size, the job's among them, fastest first; those without a plan last.
        tile: What widths are a multiple of.
        left_out: Trades that no shape within the band makes.
        because: Why the fastest is it, in words.
    """

    own: Architecture
    found: tuple[Architecture, ...]
    tile: int
    left_out: tuple[Mapping[str, float], ...] = field(default_factory=tuple)
    because: str = ""


def architectures(job: Job, answer: TrainAnswer, *, progress: Progress | None = None) -> ArchitecturesAnswer:
    """Shapes of the job's size, each planned anew.

    Args:
        job: The question.
        answer: Its answer.
        progress: Told how far it is.
    """
    whole = replace(job, workload=replace(job.workload, global_batch=answer.global_batch))
    tile = max(job.hardware.chip.mxu_shape or (TILE,))
    own = _architecture(whole, {}, job.model, answer.best)
    shapes = {
        (name, factor): reshaped(job.model, {name: factor}, tile=tile, band=BAND)
        for name, factors in TRADES.items()
        for factor in factors
        if has_dimension(job.model, name)
    }
    found: dict[tuple[str, float], Architecture] = {}
    asked = list(_distinct(job.model, shapes))
    for trade, model in asked:
        if progress is not None:
            progress(f"planning with {_in_words(trade)}", len(found) / (len(asked) + 1))
        found[trade] = _planned(whole, own, dict([trade]), model)
    together = _together(whole, own, found, tile=tile)
    ranked = sorted(
        (own, *found.values(), *together),
        key=lambda each: (each.best is None, each.time_ratio if each.best is not None else 0.0),
    )
    return ArchitecturesAnswer(
        own=own,
        found=tuple(ranked),
        tile=tile,
        left_out=tuple(dict([trade]) for trade, model in shapes.items() if model is None),
        because=_why(own, ranked[0]),
    )


def _distinct(
    own: ModelSpec, shapes: Mapping[tuple[str, float], ModelSpec | None]
) -> Iterator[tuple[tuple[str, float], ModelSpec]]:
    """Shapes that are neither the job's own nor, whatever they are called, one before them."""
    seen = {replace(own, name="")}
    for trade, model in shapes.items():
        if model is not None and (nameless := replace(model, name="")) not in seen:
            seen.add(nameless)
            yield trade, model


def _in_words(trade: tuple[str, float]) -> str:
    name, factor = trade
    return f"{name} ×{factor:.2g}"


def _together(
    job: Job, own: Architecture, found: Mapping[tuple[str, float], Architecture], *, tile: int
) -> Iterator[Architecture]:
    """The best trade of each dimension that pays by itself, all of them at once, if that is a shape of this size."""
    paying: dict[str, float] = {}
    for (name, factor), each in sorted(found.items(), key=lambda item: item[1].time_ratio):
        if each.time_ratio < 1 - NOTICEABLE:
            paying.setdefault(name, factor)
    while len(paying) > 1:
        model = reshaped(job.model, paying, tile=tile, band=BAND)
        if model is not None:
            yield _planned(job, own, paying, model)
            return
        paying.popitem()


def _planned(job: Job, own: Architecture, factor_of_dimension: Mapping[str, float], model: ModelSpec) -> Architecture:
    asked = replace(job, model=model)
    try:
        best = train(asked).best
    except (InfeasibleError, InputError) as error:
        reason = error.reasons[0] if isinstance(error, InfeasibleError) else error.what
        return replace(_architecture(asked, factor_of_dimension, model, None), reason=reason)
    found = _architecture(asked, factor_of_dimension, model, best)
    before = own.best
    if before is None:
        return found
    return replace(
        found, time_ratio=best.step.expected_s / before.step.expected_s, because=_causes(before, best, MOST_CAUSES)
    )


def _architecture(
    job: Job, factor_of_dimension: Mapping[str, float], model: ModelSpec, best: PlanEstimate | None
) -> Architecture:
    batch = job.workload.global_batch or 1
    tree = model_tree(model)
    setting, use = training_setting(job, global_batch=batch), None
    if best is not None:
        use = matrix_use(*pinned_columns(pinned_to(job, best.plan, global_batch=batch)), best)
    return Architecture(
        factor_of_dimension=factor_of_dimension,
        model=model,
        parameters=count_parameters(tree),
        flops_per_token=step_flops(setting) / (batch * setting.seq_len),
        best=best,
        use=use,
        time_ratio=1.0 if best is not None else nan,
    )


def matrix_use(setting: TrainingSetting, columns: PlanColumns, best: PlanEstimate) -> MatrixUse:
    """How the matmuls of a plan meet the matrix units.

    Args:
        setting: The job.
        columns: The plan (scalar columns).
        best: The same plan, costed.
    """
    rows = tokens_per_microbatch(setting, columns)
    flops = padded = traffic_bytes = 0.0
    for _, op, num_layers in operations(setting.tree):
        if isinstance(op, Matmul | ExpertMatmul):
            demand = product_demand(op, rows=rows, setting=setting, columns=columns)
            flops += num_layers * float(demand.flops)
            padded += num_layers * float(demand.flops * demand.idle_factor)
            traffic_bytes += num_layers * float(demand.traffic_bytes)
    causes = time_by_cause(best.step.parts)
    waiting_s = sum(time_s for cause, time_s in causes.items() if cause in COMMUNICATION.values())
    return MatrixUse(
        filled_fraction=flops / padded,
        intensity_flops_per_byte=flops / traffic_bytes,
        exposed_fraction=waiting_s / best.step.expected_s,
    )


def _causes(before: PlanEstimate, after: PlanEstimate, most: int) -> str:
    """Where the difference of two steps lies, the largest first, in words."""
    ours, theirs = time_by_cause(before.step.parts), time_by_cause(after.step.parts)
    more = {cause: theirs.get(cause, 0.0) - ours.get(cause, 0.0) for cause in {*ours, *theirs}}
    named = sorted(more.items(), key=lambda item: -abs(item[1]))[:most]
    return ", ".join(
        f"{cause} {'+' if time_s > 0 else '−'}{format_seconds(abs(time_s))}"
        for cause, time_s in named
        if abs(time_s) > NOTICEABLE * before.step.expected_s
    )


def _why(own: Architecture, first: Architecture) -> str:
    """Why the fastest is faster than the job's, in words."""
    if first.best is None or first.time_ratio > 1 - NOTICEABLE or own.use is None or first.use is None:
        return "no other shape of this size is faster here by half a percent"
    before, after, flops = own.use, first.use, first.flops_per_token / own.flops_per_token - 1
    return (
        f"{format_fraction(1 - first.time_ratio)} less time: {first.because or 'a little of everything'}; of a token "
        f"{format_fraction(abs(flops))} {'more' if flops > 0 else 'fewer'} model FLOPs; matrix units filled to "
        f"{format_fraction(after.filled_fraction)} (the job's: {format_fraction(before.filled_fraction)}); matmuls of "
        f"{after.intensity_flops_per_byte:,.0f} FLOP a byte of HBM ({before.intensity_flops_per_byte:,.0f}); exposed "
        f"communication {format_fraction(after.exposed_fraction)} ({format_fraction(before.exposed_fraction)})"
    )
