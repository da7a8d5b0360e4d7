"""A job with what its source left open filled in: mesh and remat policy, and the other readings of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ridgeline.job.job import MESH_AXES, Remat

if TYPE_CHECKING:
    from ridgeline.job.job import Job

DEFAULT_REMAT: Final = "full"
"""What most training programs do unless told otherwise: keep the input of each layer."""

OTHER_REMATS: Final = ("minimal_with_context", "none")
"""The readings that are laid beside it: matmul outputs kept, and everything kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A job that is pinned.

    Attributes:
        job: It.
        assumed: What was filled in.
        alternatives: The same job under the other remat policies, where that was left open.
    """

    job: Job
    assumed: tuple[str, ...]
    alternatives: tuple[Job, ...]


def filled(job: Job, *, is_remat_sure: bool = True) -> Filled:
    """Pins what a job leaves open: fsdp over each slice, replicas across slices, and full remat.

    Args:
        job: As the source states it.
        is_remat_sure: False where its policy is a reading of ours, so that the others are laid beside it.
    """
    plan, assumed = job.plan, ()
    mesh = dict(plan.mesh)
    if not mesh:
        mesh = {"fsdp": job.hardware.devices_per_slice, "dcn_dp": job.hardware.num_slices}
        assumed = ("mesh: fsdp over each slice",)
    remat = plan.remat
    if remat is None:
        remat = Remat(policy=DEFAULT_REMAT)
        assumed = (*assumed, f"remat: {DEFAULT_REMAT}")
    pinned = replace(job, plan=replace(plan, mesh={**dict.fromkeys(MESH_AXES, 1), **mesh}, remat=remat))
    others = OTHER_REMATS if plan.remat is None or not is_remat_sure else ()
    return Filled(
        job=pinned,
        assumed=assumed,
        alternatives=tuple(
            replace(pinned, plan=replace(pinned.plan, remat=Remat(policy=name)))
            for name in others
            if name != remat.policy
        ),
    )
