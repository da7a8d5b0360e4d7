"""How far an estimate may be off: half of the width of the interval that holds eight of ten measured steps.

Parts of a step are known to unequal degrees. Their uncertainties, each times its part's share of the step, are added in
quadrature, as errors that do not depend on each other. So is one for each trait of the job (the chip, the way to split,
the model's family and kind, the precision, the number of chips): whole where no measured job had it, and the less the
more had.

The numbers stand in `calibration/steps/uncertainty.toml`; they are fitted to errors of held-out steps
(`docs/accuracy.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import hypot, sqrt
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.cost.causes import (
    ATTENTION,
    BUBBLE,
    CONTENTION,
    HOST,
    MATMUL,
    OPTIMIZER,
    OVERHEAD,
    RECOMPUTE,
    VECTOR,
    time_by_cause,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.work import Part
    from ridgeline.hardware.chip import Fact

Trait: TypeAlias = Literal["chip", "parallelism", "model", "model_kind", "precision", "scale", "engine"]
"""What two jobs, or two servers, may have in common."""

Traits: TypeAlias = "Mapping[Trait, str]"
"""What a job has: the chip's name; ways to split (`ways_to_split`); `model_family`; `dense`, `moe`, `mla_moe`; the kind
of recipe or the compute dtype; `scale`."""

MeasuredJobs: TypeAlias = "Mapping[Trait, Mapping[str, int]]"
"""How many measured jobs, or servers, of one series had each value of a trait."""

EXCHANGE, COMMUNICATION, ANYTHING, EXPERTS, NARROW = "exchange", "communication", "anything", "experts", "narrow"

PART_OF_CAUSE: Final[Mapping[str, str]] = {
    MATMUL: "arithmetic",
    ATTENTION: "arithmetic",
    RECOMPUTE: "arithmetic",
    VECTOR: "memory",
    OPTIMIZER: "memory",
    BUBBLE: "waiting",
    OVERHEAD: "waiting",
    HOST: "waiting",
    CONTENTION: COMMUNICATION,
    "expert token exchange": EXCHANGE,
}
"""Which uncertainty a cause of `causes.py` falls under; the other causes are exposed communication."""

PARTS: Final = ("arithmetic", "memory", "waiting", COMMUNICATION, EXCHANGE)
"""What has an uncertainty times its share of the step."""

WHOLE: Final = (ANYTHING, EXPERTS, NARROW)
"""What has one of the whole step: kernels, flags and releases that no job states; the routing of tokens to experts;
kernels that have little to do."""

TRAITS: Final[tuple[Trait, ...]] = ("chip", "parallelism", "model", "model_kind", "precision", "scale")

PLAIN: Final = "fsdp"
"""The way to split of a step that is shared by FSDP and replicas alone."""

_WIDE: Final = 2048
"""Of the residual stream: up to there a model counts as narrow as a whole, beyond by less and less."""

_SCALES: Final = (8, 64, 256, 1024, 4096, 16384)
"""Numbers of chips at which a scale ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an interval is made of.

    Attributes:
        series: Estimates whose errors are of one sort, each with uncertainties of its own: of steps, kinds of chips.
        parts: Uncertainties of the estimate itself.
        traits: What it may have in common with measurements; an uncertainty of each.
    """

    series: tuple[str, ...]
    parts: tuple[str, ...]
    traits: tuple[Trait, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the uncertainties of a series.

        >>> Terms(series=("TPU",), parts=("anything",), traits=("chip",)).names
        ('anything', 'unseen_chip')
        """
        return (*self.parts, *(f"unseen_{trait}" for trait in self.traits))

    @property
    def keys(self) -> tuple[str, ...]:
        """Those of `Uncertainty.values`, series by series."""
        return tuple(f"{series}.{name}" for series in self.series for name in self.names)


STEP_TERMS: Final = Terms(series=("TPU", "GPU"), parts=(*PARTS, *WHOLE), traits=TRAITS)
"""What the interval of a training step is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Half-widths of the 80% interval, as fractions, and what they rest on.

    Attributes:
        values: By series and name of `Terms`: `TPU.arithmetic`, `TPU.unseen_chip`.
        measured_jobs: By series.
        facts: Every number with its source.
    """

    values: Mapping[str, float]
    measured_jobs: Mapping[str, MeasuredJobs]
    facts: Mapping[str, Fact]


def model_family(name: str) -> str:
    """The family of a model, by the letters that its name begins with.

    >>> model_family("llama3.1-405b"), model_family("gpt-oss-120b"), model_family("yxtpu-272m")
    ('llama', 'gpt', 'yxtpu')
    """
    found = re.match(r"[A-Za-z]+", name)
    return found[0].lower() if found else name


def ways_to_split(degrees: Mapping[str, float]) -> str:
    """How a step is split beside FSDP and replicas within a slice: `tp`, `cp`, `ep`, `pp`, `slices`, or several.

    >>> ways_to_split({"fsdp": 64, "tp_sequence": 4, "dcn_dp": 2, "ep": 1}), ways_to_split({"fsdp": 64})
    ('slices tp', 'fsdp')

    Args:
        degrees: By mesh axis.
    """
    split = {axis for axis, degree in degrees.items() if degree > 1}
    found = {"slices" if axis.startswith("dcn") else axis.partition("_")[0] for axis in split} - {"dp", "fsdp"}
    return " ".join(sorted(found)) or PLAIN


def scale(num_chips: int) -> str:
    """The scale of a number of chips: of some that differ by up to four times.

    >>> scale(4), scale(256), scale(2048), scale(100_000)
    ('up to 8', '65 to 256', '1,025 to 4,096', 'over 16,384')
    """
    least = 0
    for most in _SCALES:
        if num_chips <= most:
            return f"{least + 1:,} to {most:,}" if least else f"up to {most:,}"
        least = most
    return f"over {least:,}"


def part_shares(step: Part, *, has_experts: bool, embed_dim: int) -> dict[str, float]:
    """What each uncertainty is multiplied by: a part's share of the step, up to 1 for what concerns the whole.

    Args:
        step: The tree of one plan (scalar times).
        has_experts: Whether tokens are routed.
        embed_dim: Of the model.
    """
    shares: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for cause, time_s in time_by_cause(step).items():
        shares[PART_OF_CAUSE.get(cause, COMMUNICATION)] += time_s / float(step.expected_s)
    return {**shares, ANYTHING: 1.0, EXPERTS: float(has_experts), NARROW: min(1.0, _WIDE / embed_dim)}


def unseen_share(measured_jobs: int) -> float:
    """What is left of the uncertainty of a trait when some measured jobs had it.

    Formula: 1/√(1 + n)

    Assumes: jobs that share a trait differ from each other as much as the trait differs from others.

    Source: Ridgeline docs/accuracy.md; the deviation of a group's mean, known from n of its members.

    >>> unseen_share(0), unseen_share(3), unseen_share(99)
    (1.0, 0.5, 0.1)
    """
    return 1.0 / sqrt(1.0 + measured_jobs)


def measured_alike(traits: Traits, measured_jobs: MeasuredJobs) -> dict[Trait, int]:
    """How many measured jobs had each of a job's traits.

    >>> measured_alike({"chip": "v5e"}, {"chip": {"v5e": 19}}), measured_alike({"chip": "v3"}, {"chip": {"v5e": 19}})
    ({'chip': 19}, {'chip': 0})
    """
    return {trait: measured_jobs.get(trait, {}).get(value, 0) for trait, value in traits.items()}


def half_width_fraction(
    *, share_of_part: Mapping[str, float], uncertainty: Uncertainty, series: str, traits: Traits
) -> float:
    """Half of the interval's width over the estimate: low = expected/(1 + h), high = expected·(1 + h).

    Formula: h = √(Σ (share · u_part)² + Σ u_trait²/(1 + n_trait))

    Assumes: errors of parts do not depend on each other.

    Source: Ridgeline docs/accuracy.md.

    >>> values = {"TPU.arithmetic": 0.06, "TPU.anything": 0.08, "TPU.unseen_chip": 0.24}
    >>> known = Uncertainty(values=values, measured_jobs={"TPU": {"chip": {"v5e": 99}}}, facts={})
    >>> shares = {"arithmetic": 1.0, "anything": 1.0}
    >>> half_width_fraction(share_of_part=shares, uncertainty=known, series="TPU", traits={})
    0.1
    >>> half_width_fraction(share_of_part=shares, uncertainty=known, series="TPU", traits={"chip": "v3"})
    0.26

    Args:
        share_of_part: Of `part_shares`.
        uncertainty: What is known of errors.
        series: Which uncertainties are meant.
        traits: Of the job and its plan.
    """
    alike = measured_alike(traits, uncertainty.measured_jobs.get(series, {}))
    return hypot(
        *(share * uncertainty.values[f"{series}.{part}"] for part, share in share_of_part.items()),
        *(unseen_share(jobs) * uncertainty.values[f"{series}.unseen_{trait}"] for trait, jobs in alike.items()),
    )
