"""Every legal plan as a row of columns: meshes crossed with micro-steps, pipelines and remat policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.columns import PlanColumns
from ridgeline.cost.placement import GROUPS
from ridgeline.job.job import BATCH_AXES, MESH_AXES, Remat
from ridgeline.job.mesh import pinned_degrees
from ridgeline.job.remat import CHECKPOINT_NAMES, KEPT_ON_DEVICE, LAYER_INPUT, OFFLOADED, keeps_unnamed, placements
from ridgeline.search.link_columns import stacked_links, taken_links
from ridgeline.search.meshes import divisors, legal_meshes, limits_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.columns import TrainingSetting
    from ridgeline.job.job import Job
    from ridgeline.search.meshes import Limits, Mesh, Meshes

MOST_ACCUMULATION = 64
"""Largest number of micro-steps that is searched; more can be pinned."""

MICROBATCHES_PER_STAGE = (1, 2, 4, 8, 16)
"""Microbatches that are searched, in multiples of the stages."""

REPEATS = (1, 2, 4)
"""Circular repeats that are searched."""

LEAST_ON_DEVICE = Remat(policy="custom", tensors={LAYER_INPUT: "offload"})
"""The policy under which a plan needs the least memory of its device."""

_ROW_COLUMNS = ("mesh", "remat", "accumulation", "microbatches", "repeats", "gather_once", "moments_on_host")
"""What of a table has an entry for every row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """All plans of a search, a row each.

    Attributes:
        meshes: Distinct meshes.
        remats: Distinct remat policies.
        mesh: Index into `meshes`, by row.
        remat: Index into `remats`, by row.
        accumulation: Micro-steps, by row.
        microbatches: Per pipeline pass, by row.
        repeats: Circular repeats, by row.
        gather_once: 1 where a pipeline's weights are gathered once a step, by row.
        degrees: Degrees of every mesh, by axis.
        links: Wiring of every mesh, by group.
        saved: By checkpoint name, 1 where a policy keeps it on the device; `*` where it keeps everything.
        offloaded: By checkpoint name, 1 where a policy keeps it on the host.
        moments_on_host: 1 where the optimizer's moments live on the host, by row.
    """

    meshes: tuple[Mesh, ...]
    remats: tuple[Remat, ...]
    mesh: NDArray[np.int64]
    remat: NDArray[np.int64]
    accumulation: NDArray[np.float64]
    microbatches: NDArray[np.float64]
    repeats: NDArray[np.float64]
    gather_once: NDArray[np.float64]
    degrees: Mapping[str, NDArray[np.float64]]
    links: Mapping[str, Link]
    saved: Mapping[str, NDArray[np.float64]]
    offloaded: Mapping[str, NDArray[np.float64]]
    moments_on_host: NDArray[np.float64]

    def __len__(self) -> int:
        """Rows."""
        return len(self.mesh)

    def mesh_of(self, index: int) -> Mesh:
        """The mesh of a row."""
        return self.meshes[int(self.mesh[index])]

    def remat_of(self, index: int) -> Remat:
        """The remat policy of a row."""
        return self.remats[int(self.remat[index])]

    def rows(self, index: NDArray[np.int64]) -> PlanTable:
        """Some of the plans."""
        return replace(self, **{name: getattr(self, name)[index] for name in _ROW_COLUMNS})

    def followed_by(self, other: PlanTable) -> PlanTable:
        """These plans, and behind them others over the same meshes, and over these policies or more."""
        return replace(
            other, **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _ROW_COLUMNS}
        )

    def with_moments_on_host(self) -> PlanTable:
        """The same plans, the optimizer's moments on the host."""
        return replace(self, moments_on_host=np.ones(len(self)))

    def with_policies(self, remats: Sequence[Remat], *, moments_on_host: NDArray[np.float64]) -> PlanTable:
        """The same plans, each under a policy of its own, and with its moments where that wants them."""
        policies = (*self.remats, *remats)
        saved, offloaded = _kept_tables(policies)
        return replace(
            self,
            remats=policies,
            remat=np.arange(len(self.remats), len(policies)),
            saved=saved,
            offloaded=offloaded,
            moments_on_host=moments_on_host,
        )

    def columns(self, rows: slice | NDArray[np.int64]) -> PlanColumns:
        """The plans of some rows, as the cost functions take them."""
        mesh, remat = self.mesh[rows], self.remat[rows]
        return PlanColumns(
            degrees={axis: column[mesh] for axis, column in self.degrees.items()},
            accumulation=self.accumulation[rows],
            microbatches=self.microbatches[rows],
            repeats=self.repeats[rows],
            gather_once=self.gather_once[rows],
            saved={name: column[remat] for name, column in self.saved.items()},
            offloaded={name: column[remat] for name, column in self.offloaded.items()},
            moments_on_host=self.moments_on_host[rows],
            links={group: taken_links(link, mesh) for group, link in self.links.items()},
        )

    def row(self, index: int) -> PlanColumns:
        """One plan with scalar columns: what the explanation is computed from."""
        mesh, remat = self.mesh_of(index), int(self.remat[index])
        return PlanColumns(
            degrees={axis: float(degree) for axis, degree in mesh.degrees.items()},
            accumulation=float(self.accumulation[index]),
            microbatches=float(self.microbatches[index]),
            repeats=float(self.repeats[index]),
            gather_once=float(self.gather_once[index]),
            saved={name: float(column[remat]) for name, column in self.saved.items()},
            offloaded={name: float(column[remat]) for name, column in self.offloaded.items()},
            moments_on_host=float(self.moments_on_host[index]),
            links=dict(mesh.links),
        )


def legal_plans(job: Job, setting: TrainingSetting) -> tuple[Limits, Meshes, PlanTable]:
    """What the model and the batch allow, the meshes with it, and every plan over them; what the job pins is held."""
    limits = limits_of(setting.tree, seq_len=setting.seq_len, global_batch=setting.global_batch)
    meshes = legal_meshes(
        job.hardware,
        limits,
        pinned_degrees(job.plan.mesh),
        placement=job.plan.placement,
        distributed=job.plan.optimizer.distributed,
    )
    layers = limits.chunks(job.hardware)
    return limits, meshes, plan_table(job, meshes.legal, global_batch=setting.global_batch, layers=layers)


def plan_table(job: Job, meshes: Sequence[Mesh], *, global_batch: int, layers: int) -> PlanTable:
    """Every plan over some meshes, what the job pins held; moments are on the device unless it says otherwise."""
    remats = searched_remats(job)
    feeds = [
        (index, *feed)
        for index, mesh in enumerate(meshes)
        for feed in _feeds(job, mesh, global_batch=global_batch, layers=layers)
    ]
    table = np.array(feeds, dtype=np.float64).reshape(-1, 5)
    count = len(remats)
    repeated = np.repeat(table, count, axis=0)
    saved, offloaded = _kept_tables(remats)
    return PlanTable(
        meshes=tuple(meshes),
        remats=remats,
        mesh=repeated[:, 0].astype(np.int64),
        remat=np.tile(np.arange(count), len(table)),
        accumulation=repeated[:, 1],
        microbatches=repeated[:, 2],
        repeats=repeated[:, 3],
        gather_once=repeated[:, 4],
        degrees={axis: np.array([float(mesh.degrees[axis]) for mesh in meshes]) for axis in MESH_AXES},
        links={group: stacked_links([mesh.links[group] for mesh in meshes]) for group in GROUPS},
        saved=saved,
        offloaded=offloaded,
        moments_on_host=np.full(len(repeated), float(job.plan.optimizer.state == "host")),
    )


def searched_remats(job: Job) -> tuple[Remat, ...]:
    """The pinned policy, or every preset whose cost is known on this chip, and the custom one that needs least."""
    if job.plan.remat is not None:
        return (job.plan.remat,)
    offloading = tuple(OFFLOADED) if job.hardware.chip.pcie_bytes_per_s is not None else ()
    quantized = job.plan.quantization is not None
    names = [name for name in (*KEPT_ON_DEVICE, *offloading) if quantized or "quantization" not in name]
    least = (LEAST_ON_DEVICE,) if offloading else ()
    return (*(Remat(policy=name) for name in names), *least)


def _feeds(job: Job, mesh: Mesh, *, global_batch: int, layers: int) -> Iterator[tuple[int, int, int, int]]:
    """(accumulation, microbatches, repeats, gather_once) that a mesh can be fed with."""
    degrees = mesh.degrees
    ways = prod(degrees[axis] for axis in BATCH_AXES)
    sequences, stages = global_batch // ways, degrees["pp"] * degrees["dcn_pp"]
    for accumulation in _accumulations(sequences, stages, job.plan.gradient_accumulation):
        if stages == 1:
            yield accumulation, 1, 1, 0
        else:
            for fed in _pipelines(job, mesh, sequences // accumulation, stages, layers):
                yield accumulation, *fed


def _pipelines(job: Job, mesh: Mesh, sequences: int, stages: int, layers: int) -> Iterator[tuple[int, int, int]]:
    """(microbatches, repeats, gather_once) that stages can be fed with.

    Microbatches that pass more than once, and all of a program that is the same on every stage, are a multiple of the
    stages.
    """
    pipeline, needs_multiple = job.plan.pipeline, job.hardware.chip.vendor == "google"
    # A frame of interleaved stages may hold the embedding and the head as if they were layers (Megatron).
    spare = 0 if needs_multiple or pipeline.repeats is None else 2
    is_gathered = any(float(mesh.links[group].size) > 1 for group in ("weights", "expert_weights"))
    gathers = [pipeline.gather_once] if pipeline.gather_once is not None else [False, True][: 1 + is_gathered]
    for microbatches in _microbatches(sequences, stages, pipeline.microbatches):
        is_multiple = microbatches % stages == 0
        if needs_multiple and not is_multiple and pipeline.microbatches is None:
            continue
        for times in (pipeline.repeats,) if pipeline.repeats else REPEATS if is_multiple else (1,):
            if layers + spare >= stages * times:
                for once in gathers:
                    yield microbatches, times, int(once)


def _microbatches(sequences: int, stages: int, pinned: int | None) -> tuple[int, ...]:
    """The pinned number, or divisors of the sequences: for multiples of the stages the next as large, and all."""
    if pinned is not None:
        return (pinned,) if sequences % pinned == 0 else ()
    wanted = [*(stages * times for times in MICROBATCHES_PER_STAGE), sequences]
    found = [next((d for d in divisors(sequences) if d >= least), None) for least in wanted]
    return tuple(dict.fromkeys(count for count in found if count is not None))


def _accumulations(sequences: int, stages: int, pinned: int | None) -> tuple[int, ...]:
    """Micro-steps: the pinned number, or every divisor up to a limit; a pipeline has its microbatches instead."""
    if pinned is not None:
        return (pinned,) if sequences % pinned == 0 else ()
    if stages > 1:
        return (1,)
    return tuple(d for d in divisors(sequences) if d <= MOST_ACCUMULATION)


def _kept_tables(
    remats: Sequence[Remat],
) -> tuple[dict[str, NDArray[np.float64]], dict[str, NDArray[np.float64]]]:
    """For every checkpoint name, whether each policy keeps it on the device, and on the host."""
    placed = [placements(remat) for remat in remats]

    def where(place: str) -> dict[str, NDArray[np.float64]]:
        return {name: np.array([float(p[name] == place) for p in placed]) for name in CHECKPOINT_NAMES}

    everything = np.array([float(keeps_unnamed(remat)) for remat in remats])
    return {**where("device"), "*": everything}, where("offload")
