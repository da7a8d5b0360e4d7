"""Where Muon's iterations run, and what they take of a device: arithmetic, traffic, collectives, memory.

    sharded     each matrix's products are split as the weight is: operands gathered, partial sums added (XLA)
    whole       a device takes whole matrices, as many as are its share; their shards travel to it and back
    replicated  every device gathers and takes every matrix

Under a distributed optimizer a replica's part of the state is whole matrices already, split by tensor parallelism
alone, each part made orthogonal by itself (Megatron-LM, `--muon-tp-mode blockwise`).

Source: compiled programs (`orthogonalization.py`); Liu et al., arXiv:2502.16982; Levanter, optim/grugmuon.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from ridgeline.cost.collectives import Transfer, exchange, gather, reduce
from ridgeline.cost.columns import MESH_AXES_OF, REPLICAS, state_shards, weight_shards
from ridgeline.cost.roofline import attained_s
from ridgeline.cost.training.leaves import transfer_part
from ridgeline.cost.training.orthogonalization import (
    NUM_ITERATIONS,
    newton_schulz_bytes,
    newton_schulz_flops,
    newton_schulz_gathered_bytes,
    newton_schulz_held_bytes,
    newton_schulz_summed_bytes,
)
from ridgeline.cost.training.pipeline import held_share
from ridgeline.cost.work import Number, Part, Work, larger, smaller
from ridgeline.job.job import BYTES_OF
from ridgeline.model.operations import ExpertMatmul, Matmul, sides_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.job.job import Orthogonalization
    from ridgeline.model.operations import Dimensions

_DTYPE: Final = "bf16"
_PRODUCTS: Final = 3 * NUM_ITERATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matrices:
    """The equal matrices of one weight on one device of the busiest stage.

    Attributes:
        name: Of the weight.
        num_layers: Layers of the stage that have the weight.
        count: Layers times experts.
        short_width: Shorter side of one matrix, as iterations see it.
        long_width: Longer side.
        short_shards: Ways in which a product splits the shorter side.
        long_shards: Ways in which it splits the longer one.
        short_group: Group of devices that split the shorter side.
        long_group: Group that splits the longer one.
        weight_group: Group over which the weight is gathered.
        size: Elements of all of them, not split.
        shards: Ways in which each is stored.
        num_owners: Devices that share out whole matrices; 1 unless they do.
    """

    name: str
    num_layers: Number
    count: Number
    short_width: Number
    long_width: Number
    short_shards: Number
    long_shards: Number
    short_group: str
    long_group: str
    weight_group: str
    size: Number
    shards: Number
    num_owners: Number

    @property
    def sides(self) -> dict[str, Number]:
        """What the formulas of `orthogonalization.py` are told of one matrix, by letter."""
        return {"m": self.short_width, "n": self.long_width, "p": self.short_shards, "q": self.long_shards}

    @property
    def flops(self) -> Number:
        """Of this device's part of one matrix."""
        return newton_schulz_flops(**self.sides)


def placement_of(setting: TrainingSetting) -> Orthogonalization:
    """Where the iterations run."""
    stated = setting.optimizer.orthogonalize
    return stated or ("whole" if setting.optimizer.distributed else "sharded")


def orthogonalization(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Part]:
    """The iterations on all matrices of a device, once a step; nothing hides the collectives that products wait for."""
    if not setting.optimizer.is_muon:
        return
    found = list(_matrices(setting, columns))
    expected_s: Number = 0.0
    least_s: Number = 0.0
    flops: Number = 0.0
    for each in found:
        once_s = _iterations_s(each, each.count / each.num_owners, setting=setting)
        expected_s = expected_s + once_s
        least_s = larger(least_s, _iterations_s(each, 1.0, setting=setting))
        flops = flops + each.flops * each.count / each.num_owners
    yield Part(
        name="newton_schulz",
        phase="optimizer",
        resource="compute",
        expected_s=larger(expected_s, least_s),
        work=Work(amounts={f"flops.{_DTYPE}": flops}),
    )
    groups = {group for each in found for group in (each.short_group, each.long_group, each.weight_group)}
    for group in sorted(groups):
        for word, moved in _moved(group, found, setting=setting, columns=columns):
            yield replace(
                transfer_part(f"{group}/{word}", "optimizer", group, moved, setting=setting), phase="optimizer"
            )


def busiest_matrix(setting: TrainingSetting, columns: PlanColumns) -> tuple[str, dict[str, float]]:
    """Of one plan, the weight whose matrices take most FLOPs, and what `newton_schulz_flops` is told of one of them."""
    most = max(_matrices(setting, columns), key=lambda each: float(each.flops * each.count / each.num_owners))
    return most.name, {letter: float(value) for letter, value in most.sides.items()}


def orthogonalization_bytes(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """What iterations hold beside weights, gradients and moments: the equal matrices that need most, all at once.

    Where every device takes every matrix, those of one layer; where kernels are issued one by one, one.
    """
    if not setting.optimizer.is_muon:
        return 0.0
    most: Number = 0.0
    for each in _matrices(setting, columns):
        once = newton_schulz_held_bytes(**each.sides)
        at_once = each.count / each.num_owners
        if setting.is_eager:
            at_once = 1.0
        elif placement_of(setting) == "replicated":
            at_once = each.count / each.num_layers
        most = larger(most, once * larger(at_once, 1.0))
    return most


def _iterations_s(each: _Matrices, count: Number, *, setting: TrainingSetting) -> Number:
    """So many equal matrices; a product is one kernel over all, over each where the host issues every kernel."""
    efficiency = setting.efficiency
    kernels = count if setting.is_eager else 1.0
    traffic = newton_schulz_bytes(**each.sides)
    once_s = attained_s(
        flops=each.flops * count / kernels / _PRODUCTS,
        C_flops_per_s=setting.peak_flops_per_s(_DTYPE) * efficiency.matmul[_DTYPE],
        traffic_bytes=traffic * count / kernels / _PRODUCTS,
        W_bytes_per_s=setting.hbm_bytes_per_s * efficiency.hbm,
        fill_bytes=efficiency.matmul_fill_bytes,
    )
    return _PRODUCTS * kernels * (once_s + efficiency.matmul_overhead_s)


def _moved(
    group: str, found: list[_Matrices], *, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[tuple[str, Transfer]]:
    """What the iterations move over one group of devices."""
    link, b_x = columns.links[group], BYTES_OF[_DTYPE]
    where = placement_of(setting)
    if where == "sharded":
        gathered: Number = 0.0
        summed: Number = 0.0
        for each in found:
            if each.short_group == group:
                once = newton_schulz_gathered_bytes(m=each.short_width, n=each.long_width, q=each.long_shards)
                gathered = gathered + each.count * once * smaller(each.short_shards - 1.0, 1.0)
            if each.long_group == group:
                once = newton_schulz_summed_bytes(m=each.short_width, p=each.short_shards)
                summed = summed + each.count * once * smaller(each.long_shards - 1.0, 1.0)
        yield "all_gather", gather(link, gathered)
        yield "all_reduce", reduce(link, summed)
        return
    total: Number = 0.0
    for each in found:
        if where == "replicated" and group in {each.weight_group, "tensor"}:
            total = total + each.size * b_x
        elif each.weight_group == group and not setting.optimizer.distributed:
            total = total + 2.0 * each.size * b_x / each.shards
    yield ("all_gather", gather(link, total)) if where == "replicated" else ("all_to_all", exchange(link, total))


def _matrices(setting: TrainingSetting, columns: PlanColumns) -> Iterator[_Matrices]:
    for layer in setting.tree.layers:
        num_layers = layer.count * held_share(layer, setting, columns)
        for block in layer.blocks:
            for operation in block.operations:
                if isinstance(operation, Matmul | ExpertMatmul) and "vocab" not in operation.weight.axes:
                    yield _of_weight(operation, num_layers, setting=setting, columns=columns)


def _of_weight(
    operation: Matmul | ExpertMatmul, num_layers: Number, *, setting: TrainingSetting, columns: PlanColumns
) -> _Matrices:
    """The matrices of one weight: contracted dimensions by produced ones, for each layer and expert."""
    weight, num_experts, weight_group = operation.weight, 1.0, "weights"
    if isinstance(operation, ExpertMatmul):
        num_experts, weight_group = weight.shape[0] / columns.degrees["ep"], "expert_weights"
    taken: dict[str, None] = {}
    sides: list[tuple[int, Number, str]] = []
    for dimensions in sides_of(operation):
        mesh = _mesh_axes(dimensions, taken, setting=setting)
        taken |= mesh
        group = weight_group if "fsdp" in mesh else "tensor"
        sides.append((prod(size for _, size in dimensions), columns.degree(mesh), group))
    (short_width, short_shards, short), (long_width, long_shards, long) = sorted(sides, key=lambda side: side[0])
    shards = weight_shards(weight, columns, setting)
    if isinstance(operation, ExpertMatmul):
        shards = shards / columns.degrees["ep"]
    found = _Matrices(
        name=weight.name,
        num_layers=num_layers,
        count=num_layers * num_experts,
        short_width=short_width,
        long_width=long_width,
        short_shards=short_shards,
        long_shards=long_shards,
        short_group=short,
        long_group=long,
        weight_group=weight_group,
        size=num_layers * num_experts * short_width * long_width,
        shards=shards,
        num_owners=1.0,
    )
    return _placed(found, state_shards(weight, columns, setting) / weight_shards(weight, columns, setting), setting)


def _placed(found: _Matrices, replica_shards: Number, setting: TrainingSetting) -> _Matrices:
    """The matrices where they are not split product by product.

    Args:
        found: As the weight is split.
        replica_shards: Ways in which a distributed optimizer splits the state beyond the weight.
        setting: The setting.
    """
    if setting.optimizer.distributed:
        sides = found.short_width / found.short_shards, found.long_width / found.long_shards
        return replace(
            found,
            short_width=smaller(*sides),
            long_width=larger(*sides),
            short_shards=1.0,
            long_shards=1.0,
            num_owners=replica_shards,
        )
    match placement_of(setting):
        case "sharded":
            return found
        case "whole":
            return replace(found, short_shards=1.0, long_shards=1.0, num_owners=found.shards)
        case "replicated":
            return replace(found, short_shards=1.0, long_shards=1.0)


def _mesh_axes(dimensions: Dimensions, taken: dict[str, None], *, setting: TrainingSetting) -> dict[str, None]:
    """Mesh axes that split one side of a matrix and not the other side before it."""
    names = (name for axis, size in dimensions if size > 1 for name in MESH_AXES_OF.get(axis, ()))
    replicas = REPLICAS if setting.optimizer.distributed else ()
    return {name: None for name in names if name not in taken and name not in replicas}
