"""What the optimizer keeps of every weight, what its update moves, and where Muon makes matrices orthogonal.

    AdamW      two moments; weight, moments and gradient read, weight and moments written: one pass
    AdamH      the same, and matrices held at their norm: the update written, then read twice beside the weight
    Muon       one moment of the layers' matrices, which Newton-Schulz iterations turn into the update; AdamW elsewhere
    MuonH      Muon, its matrices held at their norm as AdamH's are
    Adafactor  no first moment, of a matrix's second its sums along rows and columns; the gradient is read three times

Source: optax.contrib.muon (the matrices of MaxText's `muon_utils.py`: all of the layers but norms, biases and
convolutions); Levanter, optim/adamh.py and optim/muonh.py; Shazeer and Stern, arXiv:1804.04235.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.columns import state_shards
from ridgeline.cost.laws.memory import gradient_bytes, optimizer_bytes, weight_bytes
from ridgeline.cost.training.held_weights import state_elements, trained_weights
from ridgeline.cost.training.layer import host_part
from ridgeline.cost.training.muon import orthogonalization
from ridgeline.cost.work import Number, Part, Work, in_sequence
from ridgeline.job.job import BYTES_OF
from ridgeline.model.operations import ExpertMatmul, Matmul, sides_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.model.operations import Dimensions, ModelTree, Tensor


def optimizer_part(setting: TrainingSetting, columns: PlanColumns) -> Part:
    """The update of all weights: memory traffic, and what makes Muon's matrices orthogonal before.

    Moments on the host come and go in the update itself, a layer's after the other's: nothing hides their transfer.
    """
    elements = state_elements(setting, columns)
    moments = 2 * moments_bytes(setting, columns)
    weights = 2 * weight_bytes(P=elements, b_w=BYTES_OF[setting.dtypes.weights])
    traffic = weights + gradient_bytes(P=elements, b_g=BYTES_OF[setting.dtypes.gradients]) + moments
    traffic = traffic + _further_bytes(setting, columns)
    update = Part(
        name="update",
        phase="optimizer",
        resource="hbm",
        expected_s=traffic / (setting.hbm_bytes_per_s * setting.efficiency.hbm),
        work=Work(amounts={"hbm": traffic}),
    )
    transfer = host_part("state/transfer", "optimizer", moments * columns.moments_on_host, setting)
    return in_sequence("optimizer", "optimizer", [*orthogonalization(setting, columns), update, transfer])


def moments_bytes(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Bytes of the optimizer's state that one device of the busiest stage stores."""
    first, second = moment_elements(setting, columns)
    optimizer = setting.optimizer
    if optimizer.kind in {"adamw", "adamh"}:
        return optimizer_bytes(P=first, b_mu=BYTES_OF[optimizer.mu_dtype], b_nu=BYTES_OF[optimizer.nu_dtype])
    return weight_bytes(P=first, b_w=BYTES_OF[optimizer.mu_dtype]) + weight_bytes(
        P=second, b_w=BYTES_OF[optimizer.nu_dtype]
    )


def moment_elements(setting: TrainingSetting, columns: PlanColumns) -> tuple[Number, Number]:
    """Elements of the first moment and of the second that one device of the busiest stage stores."""
    elements = state_elements(setting, columns)
    if setting.optimizer.kind in {"adamw", "adamh"}:
        return elements, elements
    first: Number = 0.0
    second: Number = 0.0
    matrices = matrix_sides(setting.tree)
    for tensor, held, _ in trained_weights(setting, columns):
        stored = tensor.size * held / state_shards(tensor, columns, setting)
        of_first, of_second = moments_of(tensor, setting=setting, matrices=matrices)
        first, second = first + stored * of_first, second + stored * of_second
    return first, second


def moments_of(
    tensor: Tensor, *, setting: TrainingSetting, matrices: Mapping[str, tuple[int, int]]
) -> tuple[float, float]:
    """Elements of both moments for each element of a weight.

    Args:
        tensor: The weight.
        setting: The setting.
        matrices: `matrix_sides` of its tree.
    """
    kind = setting.optimizer.kind
    if setting.optimizer.is_muon and tensor.name in matrices:
        return 1.0, 0.0
    if kind != "adafactor":
        return 1.0, 1.0
    rows, columns = matrices.get(tensor.name, (1, tensor.size))
    if "vocab" in tensor.axes:
        rows, columns = tensor.shape[0], tensor.size // tensor.shape[0]
    return 0.0, 1.0 if rows == 1 else (rows + columns) / (rows * columns)


def tensor_moments_bytes(tensor: Tensor, *, setting: TrainingSetting, matrices: Mapping[str, tuple[int, int]]) -> float:
    """Bytes of optimizer state for each element of a weight; the arguments of `moments_of`."""
    optimizer = setting.optimizer
    first, second = moments_of(tensor, setting=setting, matrices=matrices)
    return first * BYTES_OF[optimizer.mu_dtype] + second * BYTES_OF[optimizer.nu_dtype]


def matrix_sides(tree: ModelTree) -> dict[str, tuple[int, int]]:
    """Weights of the layers' products, which Muon takes: rows and columns of one matrix, by name."""
    found: dict[str, tuple[int, int]] = {}
    for layer in tree.layers:
        for block in layer.blocks:
            for operation in block.operations:
                if isinstance(operation, Matmul | ExpertMatmul) and "vocab" not in operation.weight.axes:
                    contracted, produced = sides_of(operation)
                    found[operation.weight.name] = _length(contracted), _length(produced)
    return found


def _length(dimensions: Dimensions) -> int:
    return prod(size for _, size in dimensions)


def _normed_names(tree: ModelTree) -> Iterator[str]:
    """Weights that AdamH and MuonH hold at their norm: all products' but a table that embeds tokens as well."""
    yield from matrix_sides(tree)
    if not tree.tied:
        for operation in tree.head.operations:
            if isinstance(operation, Matmul):
                yield operation.weight.name


def _further_bytes(setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Traffic of an update beyond one pass over weight, gradient and state.

    What Muon's iterations take and give is written and read once each, in the gradients' dtype. To hold a matrix at its
    norm, the update and the weight are read twice more; AdamH must write the update first. Adafactor reads the gradient
    for the sums, for the update's size and for the update.
    """
    kind = setting.optimizer.kind
    if kind == "adamw":
        return 0.0
    b_w, b_g = BYTES_OF[setting.dtypes.weights], BYTES_OF[setting.dtypes.gradients]
    matrices, normed = matrix_sides(setting.tree), frozenset(_normed_names(setting.tree))
    total: Number = 0.0
    for tensor, held, _ in trained_weights(setting, columns):
        element_bytes = 2.0 * b_g if kind == "adafactor" else 0.0
        if kind in {"adamh", "muonh"} and tensor.name in normed:
            element_bytes += 2.0 * (b_w + b_g)
        if setting.optimizer.is_muon and tensor.name in matrices:
            element_bytes += 2.0 * b_g
        elif kind in {"adamh", "muonh"} and tensor.name in normed:
            element_bytes += b_g
        total = total + tensor.size * held / state_shards(tensor, columns, setting) * element_bytes
    return total
