"""Every legal plan of one phase of serving as a row of columns: meshes crossed with batches and pieces of prompts."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.collectives import SERVING_GROUPS
from ridgeline.cost.serving.device import PhaseColumns, cached_attentions, held_cache_bytes, kv_head_shards
from ridgeline.cost.serving.machine import Pass
from ridgeline.cost.serving.memory import engine_bytes, engine_memory, page_tokens, sequences_count
from ridgeline.cost.work import larger
from ridgeline.job.job import SERVING_AXES
from ridgeline.search.link_columns import stacked_links, taken_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.serving.machine import ServingMachine
    from ridgeline.cost.training.memory import MemoryColumns
    from ridgeline.cost.work import Number
    from ridgeline.job.serving import CacheSplit
    from ridgeline.model.operations import ModelTree
    from ridgeline.search.serving.meshes import ServingMesh

CHUNKS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""Tokens of prompts in a pass that are searched for interleaved servers (vLLM's `max_num_batched_tokens`, of each
rank of attention data parallelism, less the sequences that decode)."""

MOST_SEQUENCES: Final = 16_384
"""Sequences that a server decodes at once, at most."""

MOST_PREFILL_SHARE: Final = 0.9
"""Share of passes that may read prompts; beyond, requests queue for long, and the mean says little."""

BATCH_STEP: Final = 0.005
"""Part by which batches differ where a limit falls between two that are searched."""

PROMPTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Prompts of a pass of a prefill server that are searched, in multiples of what shares out sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTable:
    """Plans of a phase, a row each.

    Attributes:
        machine: What all share.
        meshes: Distinct meshes.
        mesh: Index into `meshes`, by row.
        batch_size: Sequences of a pass that decodes, or prompts of one that only reads, by row.
        spread: 1 where the cache is spread beyond its heads, by row.
        chunk_tokens: Tokens of prompts beside decoding, of each that has sequences of its own, by row; 0 for servers
            that only decode, or only read.
    """

    machine: ServingMachine
    meshes: tuple[ServingMesh, ...]
    mesh: NDArray[np.int64]
    batch_size: NDArray[np.float64]
    spread: NDArray[np.float64]
    chunk_tokens: NDArray[np.float64]

    def __len__(self) -> int:
        """Rows."""
        return len(self.mesh)

    def rows(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> ServingTable:
        """Some of the plans."""
        return ServingTable(
            machine=self.machine,
            meshes=self.meshes,
            mesh=self.mesh[index],
            batch_size=self.batch_size[index],
            spread=self.spread[index],
            chunk_tokens=self.chunk_tokens[index],
        )

    def is_alike(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether two rows differ in nothing but their batch, or are one."""
        columns = (self.mesh, self.spread, self.chunk_tokens)
        return np.logical_and.reduce([column[one] == column[other] for column in columns])

    @property
    def batch_ways(self) -> NDArray[np.float64]:
        """Devices, or groups of them, that have sequences of their own, by row."""
        return np.array([float(mesh.batch_ways) for mesh in self.meshes])[self.mesh]

    @property
    def columns(self) -> PhaseColumns:
        """All plans as columns."""
        degrees = {axis: np.array([float(mesh.degrees.get(axis, 1)) for mesh in self.meshes]) for axis in SERVING_AXES}
        links: dict[str, Link] = {
            group: taken_links(stacked_links([mesh.links[group] for mesh in self.meshes]), self.mesh)
            for group in SERVING_GROUPS
        }
        return PhaseColumns(
            degrees={axis: column[self.mesh] for axis, column in degrees.items() if (column > 1).any()},
            batch_size=self.batch_size,
            links=links,
            cache_spread_share=self.spread,
        )

    def row(self, index: int) -> PhaseColumns:
        """One plan with scalar columns."""
        mesh = self.mesh_of(index)
        return PhaseColumns(
            degrees={axis: float(degree) for axis, degree in mesh.degrees.items()},
            batch_size=float(self.batch_size[index]),
            links=dict(mesh.links),
            cache_spread_share=float(self.spread[index]),
        )

    def mesh_of(self, index: int) -> ServingMesh:
        """The mesh of a row."""
        return self.meshes[int(self.mesh[index])]


def joined_tables(one: ServingTable, other: ServingTable) -> ServingTable:
    """The plans of both, of the same meshes."""
    return ServingTable(
        machine=one.machine,
        meshes=one.meshes,
        mesh=np.concatenate([one.mesh, other.mesh]),
        batch_size=np.concatenate([one.batch_size, other.batch_size]),
        spread=np.concatenate([one.spread, other.spread]),
        chunk_tokens=np.concatenate([one.chunk_tokens, other.chunk_tokens]),
    )


def decode_pass(columns: PhaseColumns, machine: ServingMachine, *, chunk_tokens: Number = 0.0) -> Pass:
    """A pass that adds a token to every sequence, each halfway through its reply, and may read prompts beside.

    A prompt is read by the devices that will have its sequence, a chunk of so many tokens at a time.
    """
    return Pass(
        columns=columns,
        num_decoding=columns.batch_size,
        context_keys=machine.setting.lengths.context_tokens,
        prompt_tokens=chunk_tokens * columns.rank_degree,
        each_tokens=machine.each_tokens,
    )


def prefill_pass(columns: PhaseColumns, machine: ServingMachine) -> Pass:
    """A pass that reads whole prompts."""
    prompt_tokens = columns.batch_size * machine.setting.lengths.mean_read_tokens
    return Pass(columns=columns, num_decoding=0.0, context_keys=0.0, prompt_tokens=prompt_tokens)


def decode_memory(columns: PhaseColumns, machine: ServingMachine, *, chunk_tokens: Number) -> MemoryColumns:
    """Memory of a device that decodes, and may read prompts beside."""
    rows = decode_pass(columns, machine, chunk_tokens=chunk_tokens).rows
    return engine_memory(machine, columns, pass_rows=rows)


def concurrency(columns: PhaseColumns, machine: ServingMachine, *, chunk_tokens: Number) -> tuple[Number, Number]:
    """Sequences that a server has room for: in pages, and to the byte."""
    memory = decode_memory(columns, machine, chunk_tokens=chunk_tokens)
    paged = own_cache_bytes(memory)
    ideal = paged - memory.parts["kv_cache"] + held_cache_bytes(machine.setting, columns)
    left, batch = engine_bytes(machine) - (memory.total_bytes - paged), columns.batch_size
    return (
        sequences_count(left_bytes=left, sequence_bytes=paged / batch),
        sequences_count(left_bytes=left, sequence_bytes=ideal / batch),
    )


def own_cache_bytes(memory: MemoryColumns) -> Number:
    """What sequences keep of their own, and what grows with their number: pages, and states."""
    return memory.parts["kv_cache"] + memory.parts["draft_kv_cache"] + memory.parts["states"]


def fits(table: ServingTable, *, chunk_tokens: Number) -> NDArray[np.bool_]:
    """Plans that have room for all their sequences of mean length, and on each rank for the longest there may be."""
    machine, columns = table.machine, table.columns
    memory = decode_memory(columns, machine, chunk_tokens=chunk_tokens)
    own, size = own_cache_bytes(memory), page_tokens(machine)
    longest = float(np.ceil(machine.setting.context_len / size)) * size / machine.setting.lengths.paged_tokens(size)
    needed = own * larger(longest * columns.rank_degree / columns.batch_size, 1.0)
    return np.broadcast_to(np.asarray(memory.total_bytes - own + needed <= engine_bytes(machine)), len(table))


def plainest_table(
    machine: ServingMachine, meshes: Sequence[ServingMesh], *, batch: int | None, cache: CacheSplit | None = None
) -> ServingTable:
    """Of every mesh, and both ways to split a cache, a server that only decodes; without a batch, its smallest."""
    splits = [
        (index, spread, batch or mesh.least_batch)
        for index, mesh in enumerate(meshes)
        for spread in _spreads(mesh, machine.setting.tree, cache)
        if (batch or mesh.least_batch) % mesh.least_batch == 0
    ]
    columns = np.array(splits, dtype=np.float64).reshape(-1, 3)
    none = np.zeros(len(splits))
    return _table(machine, meshes, columns[:, 0].astype(np.int64), columns[:, 2], columns[:, 1], none)


def decode_table(
    machine: ServingMachine,
    meshes: Sequence[ServingMesh],
    *,
    batch: int | None,
    chunks: Sequence[int],
    cache: CacheSplit | None = None,
) -> ServingTable:
    """Every plan of servers that decode; a chunk of 0 is for servers that do nothing else."""
    least = _crossed(plainest_table(machine, meshes, batch=batch, cache=cache), chunks)
    most = np.maximum(np.minimum(most_sequences(least), _most_read_sequences(least)), least.batch_size)
    sizes = [list(_batches(mesh.least_batch, batch)) for mesh in meshes]
    batches = [
        (row, size)
        for row, mesh in enumerate(map(int, least.mesh))
        for size in _with_all(sizes[mesh], meshes[mesh].least_batch, float(most[row]), batch)
    ]
    rows, counts = np.array(batches, dtype=np.int64).reshape(-1, 2).T
    return replace(least.rows(rows), batch_size=counts.astype(np.float64))


def _crossed(table: ServingTable, chunks: Sequence[int]) -> ServingTable:
    """Every plan with every piece of prompts."""
    rows, pieces = np.meshgrid(np.arange(len(table)), np.array(chunks, dtype=np.float64), indexing="ij")
    return replace(table.rows(rows.ravel()), chunk_tokens=pieces.ravel())


def most_sequences(table: ServingTable) -> NDArray[np.float64]:
    """Sequences that plans have room for beside what their passes make, which more sequences make more of.

    Beside what few of them make, more seem to fit than do; beside what so many make, fewer than could. Memory is a line
    between the two, or bends upwards, so that what the line says does fit.
    """

    def spare_bytes(batch_size: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What so many leave free, and how many there is room for beside what they make."""
        columns = replace(table, batch_size=batch_size).columns
        memory = decode_memory(columns, table.machine, chunk_tokens=table.chunk_tokens)
        free = engine_bytes(table.machine) - memory.total_bytes
        room = batch_size * (1.0 + free / own_cache_bytes(memory))
        return np.broadcast_to(np.asarray(free), len(table)), np.maximum(room, table.batch_size)

    _, above = spare_bytes(table.batch_size)
    lacking, below = spare_bytes(above)
    spared, _ = spare_bytes(below)
    part = np.divide(spared, spared - lacking, out=np.zeros(len(table)), where=spared > lacking)
    return below + np.clip(part, 0.0, 1.0) * (above - below)


def _most_read_sequences(table: ServingTable) -> NDArray[np.float64]:
    """Sequences of interleaved servers whose prompts are read in as large a share of passes as may be."""
    lengths = table.machine.setting.lengths
    most = MOST_PREFILL_SHARE * table.machine.reply_pass_count * table.chunk_tokens / lengths.mean_read_tokens
    return np.where(table.chunk_tokens > 0, most * table.batch_ways, np.inf)


def finer_batches(table: ServingTable, rows: NDArray[np.int64]) -> ServingTable:
    """Plans between each of these rows and the next, which is alike but for its batch: each `BATCH_STEP` larger."""
    found: list[tuple[int, int]] = []
    for row in rows.tolist():
        least = table.mesh_of(row).least_batch
        size, end = int(table.batch_size[row]), int(table.batch_size[row + 1])
        while (size := size + max(int(size * BATCH_STEP) // least, 1) * least) < end:
            found.append((row, size))
    finer, sizes = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return replace(table.rows(finer), batch_size=sizes.astype(np.float64))


def prefill_table(machine: ServingMachine, meshes: Sequence[ServingMesh], *, prompts: int | None) -> ServingTable:
    """Every plan of servers that only read prompts."""
    rows = [
        (index, count)
        for index, mesh in enumerate(meshes)
        for count in ([prompts] if prompts is not None else [mesh.least_batch * times for times in PROMPTS])
        if count % mesh.least_batch == 0
    ]
    columns = np.array(rows, dtype=np.float64).reshape(-1, 2)
    none = np.zeros(len(rows))
    return _table(machine, meshes, columns[:, 0].astype(np.int64), columns[:, 1], none, none)


def _table(
    machine: ServingMachine,
    meshes: Sequence[ServingMesh],
    mesh: NDArray[np.int64],
    batch_size: NDArray[np.float64],
    spread: NDArray[np.float64],
    chunk_tokens: NDArray[np.float64],
) -> ServingTable:
    return ServingTable(
        machine=machine,
        meshes=tuple(meshes),
        mesh=mesh,
        batch_size=batch_size,
        spread=np.asarray(spread, dtype=np.float64),
        chunk_tokens=chunk_tokens,
    )


def _spreads(mesh: ServingMesh, tree: ModelTree, cache: CacheSplit | None) -> tuple[float, ...]:
    """Both ways to split a cache, or the pinned one, where they differ: where there are more ways than heads."""
    fewest = min((operation.num_cached_heads for operation, _ in cached_attentions(tree)), default=mesh.tensor_ways)
    if float(kv_head_shards(K=float(fewest), Y=float(mesh.tensor_ways))) >= mesh.tensor_ways:
        return (0.0,)
    return (0.0, 1.0) if cache is None else (float(cache == "spread"),)


def _batches(least: int, pinned: int | None) -> Iterator[int]:
    """The pinned batch; or multiples of what shares out sequences, each half as much again or a third more."""
    if pinned is not None:
        if pinned % least == 0:
            yield pinned
        return
    sizes = {least * scale * step // 2 for power in range(15) for scale in (2**power,) for step in (2, 3)}
    yield from sorted(size for size in sizes if least <= size <= MOST_SEQUENCES and size % least == 0)


def _with_all(sizes: Sequence[int], least: int, room_size: float, pinned: int | None) -> Sequence[int]:
    """Those that there is room for, and as many as there is room for; a pinned one as it is."""
    if pinned is not None:
        return sizes
    largest = int(min(room_size, MOST_SEQUENCES)) // least * least
    below = sizes[: bisect_left(sizes, largest)]
    return [*below, largest] if largest >= least else below
