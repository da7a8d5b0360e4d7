"""Which precisions a server can have: those that engines have, on chips that have them.

Narrower weights, caches and matmuls are smaller, and are read and computed faster; what they cost in quality no formula
says. So none is taken that the job does not ask for, or leave open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.job.job import BYTES_OF
from ridgeline.model.accounting import operations
from ridgeline.model.operations import ExpertMatmul
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.hardware.chip import Chip
    from ridgeline.job.job import Dtype
    from ridgeline.job.serving import ServingDtypes, ServingJob

_NARROWEST_COUNTS: Final = 16

OPEN_KEYS: Final = ("weights", "kv_cache", "compute")
"""Precisions that a job can leave open."""


def searched_dtypes(job: ServingJob) -> tuple[ServingDtypes, ...]:
    """What is searched: what the job says, and for what it leaves open all that is no wider, the widest first."""
    held = [key for key in OPEN_KEYS if key not in job.plan.open_dtypes]
    said = job.plan.dtypes
    return (said, *(each for each in narrower_dtypes(job, said) if _alike(each, said, held)))


def narrower_dtypes(job: ServingJob, than: ServingDtypes) -> tuple[ServingDtypes, ...]:
    """What engines have that is narrower in something and wider in nothing, the widest first.

    Weights of 8 bits multiplied in bf16 or, where the chip has a rate for them, in 8 bits; weights of 4 bits multiplied
    in bf16, of a mixture of experts those of the experts alone, or in 4 bits; each with the cache as it is, or in
    8 bits.
    """
    has_experts = any(isinstance(op, ExpertMatmul) for _, op, _ in operations(model_tree(job.model)))
    found = dict.fromkeys(_engines_have(than, job.hardware.chip, has_experts=has_experts))
    narrower = [each for each in found if _widths(each) != _widths(than) and no_wider(each, than)]
    return tuple(sorted(narrower, key=width_bytes, reverse=True))


def width_bytes(dtypes: ServingDtypes) -> float:
    """Bytes of an element of each kind together, those of the narrowest counted many times over.

    Of plans as cheap that is taken where this is most: 8 bits throughout before 16 bits beside 4.

    >>> from ridgeline.job.serving import ServingDtypes
    >>> width_bytes(ServingDtypes(weights="fp8")) > width_bytes(ServingDtypes(experts="int4"))
    True
    """
    widths = _widths(dtypes)
    return sum(widths) + _NARROWEST_COUNTS * min(widths)


def no_wider(one: ServingDtypes, other: ServingDtypes) -> bool:
    """Whether the one is nowhere wider than the other."""
    return all(mine <= theirs for mine, theirs in zip(_widths(one), _widths(other), strict=True))


def dtypes_in_words(dtypes: ServingDtypes) -> str:
    """As a phrase.

    >>> from ridgeline.job.serving import ServingDtypes
    >>> dtypes_in_words(ServingDtypes(experts="fp4"))
    'weights bf16 (experts fp4), KV cache bf16, compute bf16'
    """
    experts = "" if dtypes.experts is None else f" (experts {dtypes.experts})"
    return f"weights {dtypes.weights}{experts}, KV cache {dtypes.kv_cache}, compute {dtypes.compute}"


def weights_in_words(weights: str, experts: str | None) -> str:
    """What weights are stored in, as a phrase.

    >>> weights_in_words("bf16", "fp4"), weights_in_words("fp8", None)
    ('experts fp4, the rest bf16', 'weights fp8')
    """
    return f"weights {weights}" if experts in {None, weights} else f"experts {experts}, the rest {weights}"


def with_dtypes(job: ServingJob, dtypes: ServingDtypes) -> ServingJob:
    """The job with all precisions said."""
    return replace(job, plan=replace(job.plan, dtypes=dtypes, open_dtypes=()))


def _engines_have(than: ServingDtypes, chip: Chip, *, has_experts: bool) -> Iterator[ServingDtypes]:
    rates = chip.peak_flops_per_s
    eight: Dtype = "fp8" if "fp8" in rates else "int8"
    four: Dtype = "fp4" if "fp4" in rates else "int4"
    narrows_experts = BYTES_OF[four] < BYTES_OF[than.experts or than.weights]
    formats: list[dict[str, Dtype]] = [
        {},
        {"weights": eight},
        *([{"weights": eight, "compute": eight}] if eight in rates else []),
        {"weights": four} if not has_experts else {"experts": four} if narrows_experts else {},
        *([{"weights": four, "compute": four}] if four == "fp4" else []),
    ]
    for kv_cache in (than.kv_cache, eight):
        for changed in formats:
            yield replace(than, kv_cache=kv_cache, **changed)


def _widths(dtypes: ServingDtypes) -> tuple[float, ...]:
    names = (dtypes.weights, dtypes.experts or dtypes.weights, dtypes.kv_cache, dtypes.compute)
    return tuple(BYTES_OF[name] for name in names)


def _alike(one: ServingDtypes, other: ServingDtypes, keys: list[str]) -> bool:
    held = [*keys, *(["experts"] if "weights" in keys else [])]
    return all(getattr(one, key) == getattr(other, key) for key in held)
