"""A plan's collectives, and the flags of the compiler that follow from them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.export.communication_flags import FlagAdvice, communication_flags
from ridgeline.search.communication import CommunicationAnswer, communication

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedCommunication:
    """How a plan communicates, and what the compiler is told for it.

    Attributes:
        answer: The collectives.
        flags: With reasons.
    """

    answer: CommunicationAnswer
    flags: tuple[FlagAdvice, ...]


def flagged_communication(job: Job, best: PlanEstimate, *, global_batch: int) -> FlaggedCommunication:
    """The collectives of a plan with their flags.

    Args:
        job: The question.
        best: The plan.
        global_batch: Sequences of a step.
    """
    answer = communication(job, best, global_batch=global_batch)
    carried: defaultdict[str, set[str]] = defaultdict(set)
    for use in answer.collectives:
        for kind in (use.kind, use.carried_out_as):
            carried[kind].add(use.engine)
    flags = communication_flags(
        chip=job.hardware.chip.name,
        carried=carried,
        traits=frozenset(_traits(job, best, answer)),
        layer_bytes=answer.layer_bytes,
    )
    return FlaggedCommunication(answer=answer, flags=flags)


def _traits(job: Job, best: PlanEstimate, answer: CommunicationAnswer) -> Iterator[str]:
    if any(len(words.split()) > 1 for use in answer.collectives for words in use.physical):
        yield "several_axes"
    if job.hardware.num_slices > 1:
        yield "slices"
    if best.memory.host_bytes > 0:
        yield "host"
    if any(use.group == "tensor" for use in answer.collectives):
        yield "tensor"
