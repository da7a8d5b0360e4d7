"""The collectives of a step, one by one: the tree's own leaves, those of weights told apart by weight.

A leaf of `training_step` moves all weights of a layer at once, which is what its time asks for. A program moves them
one by one; so does this account, whose bytes add up to the leaves'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.cost.columns import gathered_shards, tokens_per_microbatch, weight_shards
from ridgeline.cost.placement import groups_of
from ridgeline.cost.training.held_weights import group_of_replicas, stored_elements, trained_weights
from ridgeline.cost.training.layer import gathered_tensor_bytes
from ridgeline.cost.training.step import training_step
from ridgeline.cost.training.table_rows import exchanged_share
from ridgeline.model.operations import ExpertMatmul, weights_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number, Part, Phase
    from ridgeline.model.operations import Block, Tensor

KINDS: Final[Mapping[str, str]] = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_to_all": "all_to_all",
    "all_to_all_gradient": "all_to_all",
    "permute": "collective_permute",
}
"""The last word of a leaf's name, and what HLO calls the collective."""

_STRUCTURE = {"step", "forward", "backward", "backward_and_gradient_sync", "compute", "recompute", "gradient"}
"""Names of inner nodes that say when a part runs, not which part it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCollective:
    """One collective of a step, as often as it runs.

    Attributes:
        kind: As HLO calls it: `all_gather`, `reduce_scatter`, `all_reduce`, `all_to_all`, `collective_permute`.
        group: Of devices that communicate, one of `placement.GROUPS`.
        axes: Mesh axes larger than 1 that it lies along.
        part: Of the model: the weight or the block it belongs to; "" for none.
        phase: Of the step.
        count: Runs in one step on one device.
        array_bytes: Of the gathered, scattered, summed or exchanged array of one run.
    """

    kind: str
    group: str
    axes: tuple[str, ...]
    part: str
    phase: Phase
    count: float
    array_bytes: float

    @property
    def total_bytes(self) -> float:
        """Of all its runs."""
        return self.count * self.array_bytes


def step_collectives(setting: TrainingSetting, columns: PlanColumns) -> tuple[StepCollective, ...]:
    """Every collective of one plan's step that moves anything.

    Args:
        setting: The setting.
        columns: One plan (scalar columns).
    """
    step = training_step(setting, columns)
    found = (
        collective
        for path, leaf in step.walk()
        if (group := _group(leaf)) and float(columns.links[group].size) > 1
        for collective in _of_leaf(path, leaf, group, setting, columns)
    )
    return tuple(collective for collective in found if collective.total_bytes > 0)


def part_of(path: str) -> str:
    """The part of the model at a path of the step's tree.

    >>> part_of("step/forward/layer/compute/attention/query")
    'layer/attention/query'
    """
    return "/".join(name for name in path.split("/") if name not in _STRUCTURE)


def _group(leaf: Part) -> str:
    """The devices that a leaf's collective joins; "" for what is none."""
    links = (resource.partition(".") for resource in leaf.work.amounts)
    return next((group for kind, _, group in links if kind == "link" and leaf.composition == "leaf"), "")


def _of_leaf(
    path: str, leaf: Part, group: str, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[StepCollective]:
    """A leaf's collectives: those of a weight each, where it moves weights or their gradients."""
    within, count = part_of(path.removesuffix(f"/{leaf.name}")), float(leaf.times)
    match group:
        case _ if leaf.phase == "optimizer":
            arrays = [(within, count, leaf.array_bytes)]
        case "weights" | "expert_weights" if KINDS[leaf.name.rpartition("/")[2]] != "all_to_all":
            arrays = [
                (name, count, size_bytes)
                for name, size_bytes in _gathered(
                    within.partition("/")[0], group, setting, columns, is_gather=leaf.name.endswith("all_gather")
                )
            ]
        case "data" | "expert_data":
            arrays = list(_summed(count, leaf, group, setting, columns))
        case "weights":
            arrays = [(f"{within}/{leaf.name.rpartition('/')[0]}", count, leaf.array_bytes)]
        case _:
            arrays = [(within, count, leaf.array_bytes)]
    groups = groups_of(distributed=setting.optimizer.distributed)
    axes = tuple(axis for axis in groups[group] if float(columns.degrees[axis]) > 1)
    for part, times, array_bytes in arrays:
        yield StepCollective(
            kind=KINDS[leaf.name.rpartition("/")[2]],
            group=group,
            axes=axes,
            part=part,
            phase=leaf.phase,
            count=times,
            array_bytes=float(array_bytes),
        )


def _gathered(
    section: str, group: str, setting: TrainingSetting, columns: PlanColumns, *, is_gather: bool
) -> Iterator[tuple[str, Number]]:
    """The weights of a layer, of the embedding or of the head that are stored split: name, and bytes gathered."""
    rows = tokens_per_microbatch(setting, columns)
    for block in _blocks(section, setting):
        for operation in block.operations:
            if exchanged_share(operation, rows=rows, setting=setting) > 0:
                continue
            if isinstance(operation, ExpertMatmul) == (group == "expert_weights"):
                for tensor in weights_of(operation):
                    if _is_split(tensor, columns, setting) and (is_gather or setting.trains(tensor)):
                        size_bytes = gathered_tensor_bytes(tensor, columns=columns, element_bytes=setting.compute_bytes)
                        yield _owner(tensor), size_bytes


def _blocks(section: str, setting: TrainingSetting) -> Iterator[Block]:
    """The blocks of a part of the tree: a kind of layer, or what lies outside the layers."""
    tree = setting.tree
    yield from (block for block in (tree.embedding, tree.head) if block.name == section)
    yield from (block for layer in tree.layers if layer.name == section for block in layer.blocks)


def _owner(tensor: Tensor) -> str:
    """The part that a weight belongs to: a norm's scale to the norm."""
    return tensor.name.removesuffix("/scale").removesuffix("/bias")


def _is_split(tensor: Tensor, columns: PlanColumns, setting: TrainingSetting) -> bool:
    return float(weight_shards(tensor, columns, setting)) > float(gathered_shards(tensor, columns))


def _summed(
    count: float, leaf: Part, group: str, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[tuple[str, float, Number]]:
    """Every weight whose gradient replicas sum, or that they gather: runs, and bytes of what a device holds of it."""
    is_gradient = setting.optimizer.distributed and leaf.phase == "backward"
    element_bytes = setting.gradient_bytes if is_gradient else setting.compute_bytes
    for tensor, held, _ in trained_weights(setting, columns):
        if group_of_replicas(tensor, setting) == group:
            yield _owner(tensor), count * float(held), stored_elements(tensor, columns, setting) * element_bytes
