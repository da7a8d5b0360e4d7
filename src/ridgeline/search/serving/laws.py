"""What laws say of a serving plan: from where on matmuls compute, and what limits tensor parallelism."""

from __future__ import annotations

from dataclasses import replace
from math import isinf, nan
from typing import TYPE_CHECKING, Final

from ridgeline.cost.explain import derive
from ridgeline.cost.laws.batch import alpha_flops_per_byte, tensor_largest_degree
from ridgeline.cost.laws.decode import beta_ratio, crossover_keys, decode_critical_rows, tensor_memory_degree
from ridgeline.cost.serving.step import serving_pass
from ridgeline.cost.training.held_weights import step_weights
from ridgeline.model.accounting import operations
from ridgeline.model.operations import ExpertMatmul
from ridgeline.search.serving.answer import DecodeLaws
from ridgeline.search.serving.plans import decode_pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.search.serving.candidates import Candidates

_SAME: Final = 1e-9


def decode_laws(found: Candidates, index: int) -> DecodeLaws:
    """The laws of a candidate, in numbers."""
    said = {name: each.value for name, each in law_derivations(found, index).items()}
    return DecodeLaws(
        critical_batch_size=said["critical_batch_size"],
        context_crossover_tokens=said["context_crossover_tokens"],
        tensor_compute_degree=said.get("tensor_compute_degree"),
        tensor_memory_degree=said.get("tensor_memory_degree"),
    )


def law_derivations(found: Candidates, index: int) -> dict[str, Derivation]:
    """The laws of a candidate by their names in `DecodeLaws`; those of links hold on a torus only."""
    return dict((*_of_memory(found, index), *_of_links(found, index)))


def _of_memory(found: Candidates, index: int) -> Iterator[tuple[str, Derivation]]:
    """Where arithmetic overtakes reading weights, and where reading caches does."""
    machine, row = found.table.machine, int(found.decode[index])
    mesh = found.table.mesh_of(row)
    num_experts, top_k, axes = _experts(found)
    copies = mesh.batch_ways / (1 if num_experts == 1.0 else mesh.degrees.get("ep", 1))
    critical = derive(
        decode_critical_rows,
        b_w=machine.weight_element_bytes(axes),
        C_flops_per_s=machine.peak_flops_per_s(machine.product_dtype(axes)),
        W_bytes_per_s=machine.peak_hbm_bytes_per_s,
        num_copies=copies,
        E=num_experts,
        k=top_k,
    )
    yield "critical_batch_size", replace(critical, quantity="critical batch, in sequences")
    crossover = _crossover(machine, decode_pass(found.table.row(row), machine))
    yield "context_crossover_tokens", replace(crossover, quantity="context crossover at the plan's batch, in tokens")


def _crossover(machine: ServingMachine, step: Pass) -> Derivation:
    """Where caches take as long as weights: they grow with the context by straight pieces, each flatter than the last.

    Newton's method from the left, on a concave line of pieces, ends in the right piece.
    """
    sequences = float(step.columns.sequences_size)

    def read_bytes(keys: float) -> tuple[float, float]:
        work = serving_pass(machine, replace(step, context_keys=keys)).work.amounts
        return float(work.get("hbm.kv_cache", 0.0)) / sequences, float(work.get("hbm.weights", nan))

    keys = 1.0
    while True:
        (here, weight_bytes), (further, _) = read_bytes(keys), read_bytes(keys + 1.0)
        token_bytes = further - here
        found = derive(
            crossover_keys,
            weight_bytes=weight_bytes,
            B=sequences,
            token_cache_bytes=token_bytes,
            full_cache_bytes=here - token_bytes * keys,
        )
        if not found.value > keys * (1.0 + _SAME):
            return found
        if isinf(found.value):
            return found
        keys = found.value


def _of_links(found: Candidates, index: int) -> Iterator[tuple[str, Derivation]]:
    """Ways of tensor parallelism with which links keep up, in devices; none where a slice has no links."""
    machine, row = found.table.machine, int(found.decode[index])
    chip = machine.hardware.chip
    num_axes = sum(size > 1 for size in machine.hardware.shape)
    if chip.torus is None or num_axes == 0:
        return
    width, axis_bytes_per_s = _mlp_width(found), 2 * chip.torus.link_bytes_per_s
    width *= chip.devices_per_chip
    alpha = alpha_flops_per_byte(
        C_flops_per_s=chip.peak_flops_per_s[machine.compute_dtype], W_ici_bytes_per_s=axis_bytes_per_s
    )
    compute = derive(tensor_largest_degree, F=width, alpha_flops_per_byte=alpha, n_tensor_axes=num_axes)
    yield "tensor_compute_degree", replace(compute, quantity="ways of tensor parallelism while matmuls compute")
    memory = derive(
        tensor_memory_degree,
        F=width,
        B=float(found.table.batch_size[row]) / found.table.mesh_of(row).batch_ways,
        beta_ratio=beta_ratio(W_hbm_bytes_per_s=chip.hbm_bytes_per_s, W_ici_bytes_per_s=axis_bytes_per_s),
        b_w=machine.weight_element_bytes(_experts(found)[2]),
        b_a=machine.activation_element_bytes,
    )
    yield "tensor_memory_degree", replace(memory, quantity="ways of tensor parallelism while weights are read")


def _experts(found: Candidates) -> tuple[float, float, tuple[str, ...]]:
    """Experts, those that a token visits, and their logical axes; 1, 1 and an MLP's of a dense model."""
    for _, operation, _ in operations(found.table.machine.setting.tree):
        if isinstance(operation, ExpertMatmul):
            return float(operation.weight.shape[0]), float(operation.top_k), operation.weight.axes
    return 1.0, 1.0, ("embed", "mlp")


def _mlp_width(found: Candidates) -> float:
    """F: the widest MLP's; of experts, all that a token visits together."""
    _, top_k, _ = _experts(found)
    widths = [
        size * (top_k if axis == "mlp_moe" else 1.0)
        for tensor, _, _ in step_weights(found.table.machine.setting.tree)
        for axis, size in zip(tensor.axes, tensor.shape, strict=True)
        if axis in {"mlp", "mlp_moe"}
    ]
    return max(widths, default=nan)
