"""FLOPs of the kernels that MaxText calls: splash attention of JAX and tokamax, and grouped matmuls.

HLO says of a kernel what it reads and writes, not what it computes; the shapes it reads and the job's mask do.
"""

from __future__ import annotations

from math import nan, prod
from typing import TYPE_CHECKING, Final

from ridgeline.hlo.shape import arrays
from ridgeline.model.operations import Attention
from ridgeline.model.tree import model_tree
from ridgeline.program.splash import visited_elements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.hlo.module import Computation, Instruction
    from ridgeline.hlo.shape import ArrayShape
    from ridgeline.hlo.summary import KernelRule
    from ridgeline.job.job import Job
    from ridgeline.model.operations import Span

_TILE: Final = 512
"""MaxText's tiles of queries and keys where none are given."""

_FUSED_OUTPUTS: Final = 3
"""What a backward kernel that does all at once returns: the gradients of q, k and v."""


def maxtext_kernel_rules(job: Job) -> Mapping[str, KernelRule]:
    """FLOPs of one run of each kernel, by the kernel's name."""
    attention = dict(_attention_rules(job))
    return {**attention, "gmm": _grouped_matmul_flops, "tgmm": _grouped_matmul_flops}


def _attention_rules(job: Job) -> Iterator[tuple[str, KernelRule]]:
    spans = _spans(job)
    for heads in ("mha", "mqa"):
        for segments in ("", "_segmented"):
            for phase in ("fwd", "dkv", "dq"):
                for residuals in ("_residuals", "_no_residuals"):
                    name = f"splash_{heads}_{phase}{segments}{residuals}"
                    yield name, _attention_rule(job, spans, phase=phase)


def _spans(job: Job) -> tuple[Span, ...]:
    """What the model's queries see, each kind once."""
    operations = (
        operation
        for layer in model_tree(job.model).layers
        for block in layer.blocks
        for operation in block.operations
        if isinstance(operation, Attention)
    )
    return tuple(dict.fromkeys(operation.span for operation in operations))


def _attention_rule(job: Job, spans: tuple[Span, ...], *, phase: str) -> KernelRule:
    """A rule by the shapes of queries, keys and values: [..., heads, sequence, head width]."""
    kernel, seq_len = job.plan.attention, job.workload.seq_len
    q_tile, kv_tile = (min(tile or _TILE, seq_len) for tile in (kernel.block_q, kernel.block_kv))

    def rule(computation: Computation, instruction: Instruction) -> float:
        read = list(_read(computation, instruction))
        heads = [shape for shape in read if shape.dtype.startswith(("bf", "f"))][:_FUSED_OUTPUTS]
        if len(heads) < _FUSED_OUTPUTS:
            return nan
        query, key, value = heads
        grids = [shape.dims for shape in read if shape.dtype.startswith(("s", "u")) and len(shape.dims) == len("hqk")]
        span = _span_of(spans, grids[0] if grids else (), seq_len=seq_len, q_tile=q_tile, kv_tile=kv_tile)
        # Under context parallelism a device has a part of the queries; load balancing gives each an equal share.
        pairs = visited_elements(span, seq_len=seq_len, q_tile=q_tile, kv_tile=kv_tile) * query.dims[-2] / seq_len
        keys, values = (2 * prod(query.dims[:-2]) * pairs * shape.dims[-1] for shape in (key, value))
        match phase:
            case "fwd":
                return keys + values
            case "dq":
                return 2 * keys + values
            case _:
                is_fused = len(list(arrays(instruction.shape))) >= _FUSED_OUTPUTS
                return (3 if is_fused else 2) * keys + 2 * values

    return rule


def _span_of(spans: tuple[Span, ...], grid: tuple[int, ...], *, seq_len: int, q_tile: int, kv_tile: int) -> Span:
    """Which of a model's masks a kernel has: its grid has as many steps as the mask's busiest row visits tiles."""

    def steps(span: Span) -> int:
        one_row = visited_elements(span, seq_len=seq_len, q_tile=seq_len, kv_tile=kv_tile) // (seq_len * kv_tile)
        window = span.window or seq_len
        return one_row if span.kind in {"causal", "full"} else min(one_row, -(-(window + q_tile - 1) // kv_tile) + 1)

    return min(spans, key=lambda span: min((abs(steps(span) - each) for each in grid[1:]), default=0))


def _grouped_matmul_flops(computation: Computation, instruction: Instruction) -> float:
    """Rows of tokens times a matrix of an expert each: `gmm` reads [m,k] and [e,k,n], `tgmm` [k,m] and [m,n]."""
    read = [shape for shape in _read(computation, instruction) if len(shape.dims) >= len("mk")]
    if len(read) < len(("tokens", "weights")):
        return nan
    tokens, other = read[0], read[1]
    output = next(arrays(instruction.shape), None)
    if output is None:
        return nan
    if len(other.dims) > len("mk"):  # the matrices of the experts
        return 2.0 * tokens.num_elements * output.dims[-1]
    return 2.0 * tokens.num_elements * other.dims[-1]


def _read(computation: Computation, instruction: Instruction) -> Iterator[ArrayShape]:
    """The arrays that an instruction reads, as far as the text defines them."""
    for index in range(len(instruction.operands)):
        operand = computation.operand(instruction, index)
        if operand is not None:
            yield from arrays(operand.shape)
