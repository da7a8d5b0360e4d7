"""How far an estimate may be off: half of the width of the interval that holds eight of ten measured steps.

Parts of a step are known to unequal degrees. Their uncertainties, each times its part's share of the step, are added in
quadrature, as errors that do not depend on each other. What no measured step had (this chip, this way to split, so many
chips) is one more term each.

The numbers stand in `calibration/steps/uncertainty.toml`; they are fitted to errors of held-out steps
(`docs/accuracy.md`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import hypot
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
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.work import Part
    from ridgeline.hardware.chip import Fact

ChipKind: TypeAlias = Literal["TPU", "GPU"]

Unseen: TypeAlias = Literal["chip", "parallelism", "model", "model_kind", "precision", "scale"]
"""What no measured step may have had."""

EXCHANGE, COMMUNICATION, ANYTHING, EXPERTS = "exchange", "communication", "anything", "experts"

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

WHOLE: Final = (ANYTHING, EXPERTS)
"""What has one of the whole step: kernels, flags and releases that no job states; the routing of tokens to experts."""

UNSEEN: Final[tuple[Unseen, ...]] = ("chip", "parallelism", "model", "model_kind", "precision", "scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the measured steps of one kind of chip had.

    Attributes:
        chips: Names.
        models: Families, by the letters that a model's name begins with.
        model_kinds: `dense`, `moe`, `mla`, `mla_moe`.
        parallelism: Ways to split beside FSDP and replicas: `tp`, `cp`, `ep`, `pp`, `slices`.
        precisions: Kinds of recipe, or the compute dtype.
        num_chips: The most that worked together.
    """

    chips: frozenset[str]
    models: frozenset[str]
    model_kinds: frozenset[str]
    parallelism: frozenset[str]
    precisions: frozenset[str]
    num_chips: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Half-widths of the 80% interval, as fractions.

    Attributes:
        values: By kind of chip and `PARTS`, `WHOLE` or what is unseen: `TPU.arithmetic`, `TPU.unseen_chip`.
        seen: What was seen, by kind of chip.
        facts: Every number with its source.
    """

    values: Mapping[str, float]
    seen: Mapping[ChipKind, Seen]
    facts: Mapping[str, Fact]


def model_family(name: str) -> str:
    """The family of a model, by the letters that its name begins with.

    >>> model_family("llama3.1-405b"), model_family("gpt-oss-120b"), model_family("yxtpu-272m")
    ('llama', 'gpt', 'yxtpu')
    """
    found = re.match(r"[A-Za-z]+", name)
    return found[0].lower() if found else name


def parallelism(degrees: Mapping[str, float]) -> frozenset[str]:
    """Ways to split a step beside FSDP and replicas within a slice.

    >>> sorted(parallelism({"fsdp": 64, "tp_sequence": 4, "dcn_dp": 2, "ep": 1}))
    ['slices', 'tp']

    Args:
        degrees: By mesh axis.
    """
    split = {axis for axis, degree in degrees.items() if degree > 1}
    found = {"slices" if axis.startswith("dcn") else axis.partition("_")[0] for axis in split}
    return frozenset(found - {"dp", "fsdp"})


def part_shares(step: Part, *, has_experts: bool) -> dict[str, float]:
    """What each uncertainty is multiplied by: a part's share of the step, 1 for what concerns the whole.

    Args:
        step: The tree of one plan (scalar times).
        has_experts: Whether tokens are routed.
    """
    shares: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for cause, time_s in time_by_cause(step).items():
        shares[PART_OF_CAUSE.get(cause, COMMUNICATION)] += time_s / float(step.expected_s)
    return {**shares, ANYTHING: 1.0, EXPERTS: float(has_experts)}


def half_width_fraction(
    *, share_of_part: Mapping[str, float], uncertainty: Uncertainty, kind: ChipKind, unseen: Sequence[Unseen]
) -> float:
    """Half of the interval's width over the estimate: low = expected/(1 + h), high = expected·(1 + h).

    Formula: h = √(Σ (share · u_part)² + Σ u_unseen²)

    Assumes: errors of parts do not depend on each other.

    Source: Ridgeline docs/accuracy.md.

    >>> values = {"TPU.arithmetic": 0.06, "TPU.anything": 0.08, "TPU.unseen_chip": 0.24}
    >>> known, shares = Uncertainty(values=values, seen={}, facts={}), {"arithmetic": 1.0, "anything": 1.0}
    >>> half_width_fraction(share_of_part=shares, uncertainty=known, kind="TPU", unseen=())
    0.1
    >>> half_width_fraction(share_of_part=shares, uncertainty=known, kind="TPU", unseen=["chip"])
    0.26

    Args:
        share_of_part: Of `part_shares`.
        uncertainty: What is known of errors.
        kind: Of chip.
        unseen: What no measured step had.
    """
    return hypot(
        *(share * uncertainty.values[f"{kind}.{part}"] for part, share in share_of_part.items()),
        *(uncertainty.values[f"{kind}.unseen_{what}"] for what in unseen),
    )


def uncertainty_keys() -> Iterator[str]:
    """Every key that `Uncertainty.values` must have."""
    for kind in ("TPU", "GPU"):
        yield from (f"{kind}.{part}" for part in (*PARTS, *WHOLE))
        yield from (f"{kind}.unseen_{what}" for what in UNSEEN)
