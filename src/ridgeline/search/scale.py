"""`scale`: the same job on more and more chips, planned anew at each size, and where it stops to pay.

strong  the batch stays: how much faster does it get
weak    the batch grows with the chips: how much of each chip's throughput is left
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from ridgeline.cost.causes import COMMUNICATION, time_by_cause
from ridgeline.cost.explain import derive
from ridgeline.cost.laws.of_job import laws_of_job
from ridgeline.cost.scaling import gained_share, scaling_efficiency, scaling_speedup
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.hardware.sizes import resized
from ridgeline.hardware.topology import torus_slice
from ridgeline.job.mesh import FREE, check_mesh
from ridgeline.search.train import train
from ridgeline.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.cost.explain import Derivation
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate, TrainAnswer
    from ridgeline.search.train import Progress

LEAST_GAIN: Final = 0.5
"""Share of the speed that more chips could bring which they must bring, or scaling has ended."""

LEAST_LOSS: Final = 0.1
"""Share of the time that more chips lose below which a cause is not named."""

MOST_CAUSES: Final = 2
"""Causes named."""

_MESH: Final = "plan.mesh"

_LAWS: Final = ("alpha", "fsdp critical", "num fsdp chips", "mixed critical", "num mixed chips")
"""Quantities of the laws that say how far a batch spreads before communication shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """The job on one slice.

    Attributes:
        hardware: The slice.
        global_batch: Sequences per step.
        answer: What `train` answers; None where there is no plan.
        reason: Why there is none.
        speedup: Tokens/s over those of the smallest slice with a plan; NaN without a plan.
        efficiency: Tokens/s a chip over those of the smallest slice with a plan; NaN without a plan.
    """

    hardware: Slice
    global_batch: int
    answer: TrainAnswer | None
    reason: str = ""
    speedup: float = float("nan")
    efficiency: float = float("nan")

    @property
    def best(self) -> PlanEstimate | None:
        """The plan; None where there is none."""
        return None if self.answer is None else self.answer.best

    @property
    def tokens_per_s(self) -> float:
        """Throughput of the whole slice; NaN without a plan."""
        return float("nan") if self.best is None else self.best.tokens_per_s_per_chip * self.hardware.num_chips

    @property
    def communication_fraction(self) -> float:
        """Part of the step in which nothing but communication goes on; NaN without a plan."""
        if self.best is None:
            return float("nan")
        causes = time_by_cause(self.best.step.parts)
        waiting_s = sum(time_s for cause, time_s in causes.items() if cause in COMMUNICATION.values())
        return waiting_s / self.best.step.expected_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingSize:
    """A number of chips of which nothing was planned.

    Attributes:
        num_chips: As asked for.
        reason: Why: there is no such slice, or no whole batch for it.
    """

    num_chips: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleAnswer:
    """What `ridgeline scale` answers.

    Attributes:
        job: The question, on the slice it names.
        weak: Whether the batch grows with the chips.
        points: From fewest chips to most.
        missing: Sizes that were asked for and are not among them.
        batch_found_on: The slice of which the largest sensible batch was taken; None where the job gives one.
        ends: The last size worth having; None when scaling goes on to the largest asked for.
        ends_because: What binds beyond it.
        laws: How far the batch spreads before communication shows, at peak rates; empty off a torus.
        derivations: Where the numbers come from.
    """

    job: Job
    weak: bool
    points: tuple[ScalePoint, ...]
    missing: tuple[MissingSize, ...]
    batch_found_on: Slice | None
    ends: ScalePoint | None
    ends_because: str
    laws: tuple[Derivation, ...]
    derivations: tuple[Derivation, ...]

    @property
    def planned(self) -> tuple[ScalePoint, ...]:
        """The sizes that have a plan; at least one."""
        return tuple(point for point in self.points if point.best is not None)

    @property
    def communication_binds(self) -> ScalePoint | None:
        """The smallest size whose step waits for links or the network above all; None for none."""
        bound = (point for point in self.points if point.best and point.best.busiest in {"ici", "network"})
        return next(bound, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The batch that is held, or that grows in proportion to the chips from some slice on."""

    sequences: int
    hardware: Slice
    is_found: bool

    def on(self, hardware: Slice, *, weak: bool) -> float:
        """Sequences a step on another slice; for `weak` not always whole."""
        return self.sequences * hardware.num_chips / self.hardware.num_chips if weak else self.sequences


def scale(job: Job, *, chips: Sequence[int], weak: bool = False, progress: Progress | None = None) -> ScaleAnswer:
    """A job at several sizes of its slice.

    Args:
        job: The question. Its batch stays as it is; without one, it is the largest sensible one at the smallest size
            that has a plan.
        chips: Numbers of chips.
        weak: Let the batch grow with the chips, from the job's own at the job's own slice, or from the batch found.
        progress: Told how far it is.

    Raises:
        InfeasibleError: There is no such slice, or there is a plan at no size.
    """
    slices, missing = _slices(job, chips)
    tell = progress or _quiet
    batch = _batch(job, slices, tell)
    points: list[ScalePoint] = []
    for index, hardware in enumerate(slices):
        tell(f"planning for {hardware.num_chips:,} chips", index / len(slices))
        sequences = batch.on(hardware, weak=weak)
        if sequences % 1:
            of = f"{batch.sequences:,} sequences on {batch.hardware.num_chips:,} chips are {sequences:g} on these"
            missing.append(MissingSize(num_chips=hardware.num_chips, reason=of))
            continue
        points.append(_point(job, hardware, int(sequences)))
    rated = _rated(job, points, [size.reason for size in missing])
    ends, because = _end(rated)
    laws = tuple(_laws(job, rated))
    return ScaleAnswer(
        job=job,
        weak=weak,
        points=rated,
        missing=tuple(sorted(missing, key=lambda size: size.num_chips)),
        batch_found_on=batch.hardware if batch.is_found else None,
        ends=ends,
        ends_because=because,
        laws=laws,
        derivations=(*_comparisons(rated, ends), *laws, *_of_plan(rated, ends)),
    )


def _quiet(what: str, fraction: float) -> None:
    """No progress."""
    del what, fraction


def _slices(job: Job, chips: Sequence[int]) -> tuple[list[Slice], list[MissingSize]]:
    """The slices of those sizes, smallest first, and the sizes of which there is none."""
    found: list[Slice] = []
    missing: list[MissingSize] = []
    for count in sorted(set(chips)):
        try:
            found.append(resized(job.hardware, count))
        except InputError as error:
            missing.append(MissingSize(num_chips=count, reason=f"{error.what}; {error.fix}"))
    if not found:
        raise InfeasibleError(
            f"no slice of {job.hardware.chip.name} has such a number of chips",
            reasons=[size.reason for size in missing[:3]],
            fix="ask for those sizes; `ridgeline chips` has all shapes",
        )
    return found, missing


def _batch(job: Job, slices: Sequence[Slice], progress: Progress) -> _Batch:
    """The job's own, or the largest sensible one at the smallest size that has a plan."""
    given = job.workload.global_batch
    if given is not None:
        return _Batch(sequences=given, hardware=job.hardware, is_found=False)
    reasons: list[str] = []
    for hardware in slices:
        progress(f"looking for the batch of {hardware.num_chips:,} chips", 0.0)
        outcome = _planned(replace(job, hardware=hardware))
        if not isinstance(outcome, InputError | InfeasibleError):
            return _Batch(sequences=outcome.global_batch, hardware=hardware, is_found=True)
        reasons.append(f"{hardware.name}: {_reason(outcome)}")
    raise _never(job, reasons)


def _planned(job: Job) -> TrainAnswer | InputError | InfeasibleError:
    """What `train` answers, or why it does not."""
    try:
        check_mesh(job.plan.mesh, job.hardware, where=_MESH)
        return train(job)
    except (InputError, InfeasibleError) as error:
        return error


def _point(job: Job, hardware: Slice, global_batch: int) -> ScalePoint:
    workload = replace(job.workload, global_batch=global_batch)
    outcome = _planned(replace(job, hardware=hardware, workload=workload))
    if isinstance(outcome, InputError | InfeasibleError):
        return ScalePoint(hardware=hardware, global_batch=global_batch, answer=None, reason=_reason(outcome))
    return ScalePoint(hardware=hardware, global_batch=global_batch, answer=outcome)


def _reason(error: InputError | InfeasibleError) -> str:
    """Why there is no plan, in one sentence."""
    if isinstance(error, InfeasibleError):
        return (*error.reasons, error.what)[0]
    return f"{error.what}: {error.value}" if error.where == _MESH else error.what


def _never(job: Job, reasons: Sequence[str]) -> InfeasibleError:
    is_rigid = bool(job.plan.mesh) and FREE not in job.plan.mesh.values()
    return InfeasibleError(
        f"{job.model_reference} has a plan at none of these sizes",
        reasons=reasons[-3:],
        fix=f"leave an axis of the mesh open, e.g. fsdp={FREE}"
        if is_rigid
        else "use more chips, shorter sequences, another batch or another mesh",
    )


def _rated(job: Job, points: Sequence[ScalePoint], missing: Sequence[str]) -> tuple[ScalePoint, ...]:
    """The points beside the first that has a plan."""
    first = next((point for point in points if point.best is not None), None)
    if first is None:
        raise _never(job, [f"{point.hardware.name}: {point.reason}" for point in points] or missing)
    return tuple(
        replace(
            point,
            speedup=scaling_speedup(tokens_per_s=point.tokens_per_s, first_tokens_per_s=first.tokens_per_s),
            efficiency=scaling_efficiency(**_beside(point, first)),
        )
        for point in points
    )


def _beside(point: ScalePoint, first: ScalePoint) -> dict[str, float]:
    return {
        "tokens_per_s": point.tokens_per_s,
        "num_chips": float(point.hardware.num_chips),
        "first_tokens_per_s": first.tokens_per_s,
        "first_chips": float(first.hardware.num_chips),
    }


def _gain(fewer: ScalePoint, more: ScalePoint) -> dict[str, float]:
    return {
        "tokens_per_s": more.tokens_per_s,
        "num_chips": float(more.hardware.num_chips),
        "fewer_tokens_per_s": fewer.tokens_per_s,
        "fewer_chips": float(fewer.hardware.num_chips),
    }


def _step_beyond(points: Sequence[ScalePoint]) -> tuple[ScalePoint, ScalePoint | None]:
    """The last size worth having, and the next one, which brings less than half of the speed that it could.

    A size that brings too little is passed over where a larger one is worth it beside the last that was: a number of
    chips with awkward divisors ends nothing.
    """
    last, *further = [point for point in points if point.best is not None]
    poor: ScalePoint | None = None
    for point in further:
        if gained_share(**_gain(last, point)) >= LEAST_GAIN:
            last, poor = point, None
        elif poor is None:
            poor = point
    return last, poor


def _end(points: Sequence[ScalePoint]) -> tuple[ScalePoint | None, str]:
    """The last size worth having, and why the next is not."""
    last, poor = _step_beyond(points)
    if poor is not None:
        return last, _why(last, poor)
    beyond = next((point for point in points if point.hardware.num_chips > last.hardware.num_chips), None)
    if beyond is not None:
        return last, f"with {beyond.hardware.num_chips:,} chips there is no plan: {beyond.reason}"
    return None, ""


def _why(fewer: ScalePoint, more: ScalePoint) -> str:
    """What more chips ran into, in words: the time they lose beside a step that shrank in proportion, by cause."""
    if fewer.best is None or more.best is None:
        return more.reason
    share = max(gained_share(**_gain(fewer, more)), 0.0)
    said = f"{more.hardware.num_chips:,} chips bring {share:.0%} of the speed that they could"
    grown = more.global_batch / fewer.global_batch * fewer.hardware.num_chips / more.hardware.num_chips
    before, after = (time_by_cause(each.step.parts) for each in (fewer.best, more.best))
    lost_s = {cause: time_s - grown * before.get(cause, 0.0) for cause, time_s in after.items()}
    total_s = more.best.step.expected_s - grown * fewer.best.step.expected_s
    largest = sorted(lost_s.items(), key=lambda item: -item[1])[:MOST_CAUSES]
    named = [f"{cause} {format_seconds(time_s)}" for cause, time_s in largest if time_s > LEAST_LOSS * total_s]
    step = f"of a step of {format_seconds(more.best.step.expected_s)}, {format_seconds(total_s)} is lost"
    causes = f", to {' and '.join(named)}" if named else ""
    return f"{said}; {step}{causes}; {more.best.bound_reason}"


def _laws(job: Job, points: Sequence[ScalePoint]) -> Iterator[Derivation]:
    """How far the batch spreads over one slice at peak rates, by the laws; nothing off a torus."""
    chip = job.hardware.chip
    if chip.torus is None:
        return
    shapes = [point.hardware.shape for point in points if point.hardware.num_slices == 1]
    shape = max(shapes or [points[-1].hardware.shape], key=prod)
    workload = replace(job.workload, global_batch=points[-1].global_batch)
    one = replace(job, hardware=torus_slice(chip, chip.torus, shape, 1), workload=workload)
    for derivation in laws_of_job(one, {}).laws.derivations:
        if derivation.quantity in _LAWS and derivation.unit != "tokens":
            yield derivation


def _comparisons(points: Sequence[ScalePoint], ends: ScalePoint | None) -> Iterator[Derivation]:
    """Each size's efficiency, and the gain that ends the scaling."""
    first, *further = [point for point in points if point.best is not None]
    for point in further:
        of_size = derive(scaling_efficiency, **_beside(point, first))
        yield replace(of_size, quantity=f"efficiency on {point.hardware.name}")
    last, poor = _step_beyond(points)
    if ends is not None and poor is not None:
        yield replace(derive(gained_share, **_gain(last, poor)), quantity=f"gain from {poor.hardware.name}")


def _of_plan(points: Sequence[ScalePoint], ends: ScalePoint | None) -> Iterator[Derivation]:
    """Where the numbers of the last plan worth having come from."""
    last = ends or [point for point in points if point.answer is not None][-1]
    for derivation in () if last.answer is None else last.answer.derivations:
        yield replace(derivation, quantity=f"{derivation.quantity}, on {last.hardware.name}")
