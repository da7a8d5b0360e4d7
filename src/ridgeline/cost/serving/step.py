"""A whole pass of a server: its tree of parts, its lower bound, its estimate.

    pass = embedding + layers + head + sampling + overhead

Decode, prefill and a pass with both are the same tree: what differs is how many sequences add a token, and how many
tokens of prompts are read beside them. Weights are read once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.cost.collectives import gather
from ridgeline.cost.columns import MESH_AXES_OF, TENSOR_AXES
from ridgeline.cost.roofline import attained_s
from ridgeline.cost.serving.attention import attention_parts
from ridgeline.cost.serving.collectives import (
    all_reduce_part,
    collective_part,
    exchange_parts,
    stage_part,
    transposed_parts,
)
from ridgeline.cost.serving.memory import vocabulary_size
from ridgeline.cost.serving.narrowing import narrowing_parts
from ridgeline.cost.serving.products import product_part
from ridgeline.cost.training.step import embed_dim
from ridgeline.cost.work import NOTHING, Number, Part, Work, in_sequence, larger, smaller
from ridgeline.job.job import BYTES_OF
from ridgeline.model.operations import Attention, Dispatch, Elementwise, ExpertMatmul, Lookup, Matmul, Recurrence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.cost.serving.machine import Pass, ServingMachine
    from ridgeline.model.operations import Block, Operation

LEAST_KERNEL_S: Final = 1e-9
"""A part that takes less is none: an all-reduce of one device, prompts of a pass that reads none."""

SAMPLING_PASSES: Final = 3
"""Passes over f32 logits: the largest, the sum of exponentials, the draw."""


def serving_pass(machine: ServingMachine, step: Pass) -> Part:
    """The tree of one pass; `expected_s` of its root is the estimate."""
    parts = [*_model_parts(machine, step), *_draft_parts(machine, step)]
    return in_sequence("pass", "forward", [*parts, _waits(parts, machine, step), _overhead(machine, step)])


def kernels_count(part: Part) -> Number:
    """Kernels of a part: its leaves that take time, as often as they are repeated."""
    if not part.once:
        return smaller(part.expected_s / LEAST_KERNEL_S, 1.0)
    count: Number = 0.0
    for child in part.once:
        count = count + kernels_count(child)
    return count * part.times


def _model_parts(machine: ServingMachine, step: Pass) -> list[Part]:
    """A model from embedding to sampling; the logits of a prompt are those of its last token."""
    outputs = step.num_sequences * step.each_tokens
    num_outputs = outputs + step.prompt_rows / machine.setting.lengths.mean_read_tokens
    tree = machine.setting.tree
    layers = [
        in_sequence(
            layer.name,
            "forward",
            [_block(block, step=step, machine=machine) for block in layer.blocks],
            times=layer.count,
        )
        for layer in tree.layers
    ]
    return [
        in_sequence("embedding", "forward", list(_outside(tree.embedding, step.rows, step, machine))),
        *layers,
        *stage_part(step=step, machine=machine),
        in_sequence("head", "forward", list(_outside(tree.head, num_outputs, step, machine))),
        _sampling(num_outputs, step=step, machine=machine),
    ]


def _waits(parts: Sequence[Part], machine: ServingMachine, step: Pass) -> Part:
    """What devices wait for kernels of a pass that reads prompts: its host launches them one by one, ahead if it can.

    Source: vLLM, SGLang and TensorRT-LLM replay CUDA graphs of passes that only decode.
    """
    kernels: Number = 0.0
    busy_s: Number = 0.0
    for part in parts:
        kernels, busy_s = kernels + kernels_count(part), busy_s + part.expected_s
    waited_s = larger(machine.serving.launch_s * kernels - busy_s, 0.0) * smaller(step.prompt_tokens, 1.0)
    return Part(name="waits", phase="forward", resource="overhead", expected_s=waited_s)


def _overhead(machine: ServingMachine, step: Pass) -> Part:
    """What hosts do while devices wait."""
    return Part(name="overhead", phase="forward", resource="overhead", expected_s=host_s(machine, step))


def host_s(machine: ServingMachine, step: Pass) -> Number:
    """What hosts do: that of each stage once a pass, and one for each sequence of a rank that adds a token.

    Ranks schedule and sample for themselves, at once.
    """
    return machine.serving.host_s * step.columns.stages + machine.serving.sequence_s * step.num_sequences


def _draft_parts(machine: ServingMachine, step: Pass) -> list[Part]:
    """Drafts of the tokens that a later pass verifies, one after the other; the first reads prompts, too."""
    drafting = machine.drafting
    if drafting is None or drafting.drafter is None:
        return []
    drafter = replace(machine, setting=drafting.drafter, drafting=None)
    first, at_least = replace(step, each_tokens=1.0), larger(step.num_decoding, 1.0)
    further = replace(first, num_decoding=at_least, prompt_tokens=0.0)
    num_further = (drafting.num_draft_tokens - 1) * smaller(step.num_decoding, 1.0)
    return [
        in_sequence("draft", "forward", _model_parts(drafter, first)),
        in_sequence("further_drafts", "forward", _model_parts(drafter, further), times=num_further),
    ]


def roofline_s(work: Work, machine: ServingMachine) -> Number:
    """Lower bound of a pass: the busiest resource at its published peak, everything else perfectly hidden.

    max over { Σ FLOPs/peak of their dtype, Σ bytes read/W, bytes over each group's links/W, network }. Of experts it
    counts those that balanced routing reads.
    """
    chip = machine.hardware.chip
    arithmetic_s: Number = 0.0
    reading_s: Number = 0.0
    bound_s: Number = 0.0
    for resource, amount in work.amounts.items():
        kind, _, which = resource.partition(".")
        match kind:
            case "flops":
                arithmetic_s = arithmetic_s + amount / machine.peak_flops_per_s(which)
            case "hbm":
                reading_s = reading_s + amount / machine.peak_hbm_bytes_per_s
            case "link":
                bound_s = larger(bound_s, amount / machine.link_bytes_per_s)
            case _:
                bound_s = larger(bound_s, amount / chip.network_bytes_per_s)
    return larger(bound_s, larger(reading_s, arithmetic_s))


def _block(block: Block, *, step: Pass, machine: ServingMachine) -> Part:
    """One residual branch; its output is summed over tensor parallelism, split over what it is transposed to."""
    parts = [part for operation in block.operations for part in _parts(operation, step.rows, step, machine)]
    parts += narrowing_parts(block.operations, step=step, machine=machine)
    exchanged = transposed_parts(block.operations, rows=step.rows, step=step, machine=machine)
    stream_elements = step.rows * embed_dim(machine.setting.tree) / step.columns.transpose_degree
    stream_bytes = stream_elements * machine.activation_element_bytes
    summed = all_reduce_part("output/all_reduce", array_bytes=stream_bytes, step=step, machine=machine)
    return in_sequence(block.name, "forward", [*parts, *exchanged, summed])


def _outside(block: Block, rows: Number, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    """A block outside the layers; the loss is training's."""
    for operation in block.operations:
        if not (isinstance(operation, Elementwise) and operation.axes == ("vocab",)):
            yield from _parts(operation, rows, step, machine)
    yield from transposed_parts(block.operations, rows=rows, step=step, machine=machine)


def _parts(operation: Operation, rows: Number, step: Pass, machine: ServingMachine) -> Iterator[Part]:
    match operation:
        case Matmul() | ExpertMatmul():
            yield product_part(operation, rows=rows, step=step, machine=machine)
        case Attention():
            yield from attention_parts(operation, step=step, machine=machine)
        case Elementwise():
            elements = rows * (operation.read_elements + operation.write_elements) / _ways(operation.axes, step)
            rate = machine.efficiency.vector if operation.weights else machine.efficiency.elementwise
            yield _vector_pass(operation.path, elements, rate, machine)
        case Lookup():
            yield _vector_pass(operation.path, 2 * rows * operation.width, machine.efficiency.vector, machine)
        case Dispatch():
            yield from exchange_parts(operation, step=step, machine=machine)
        case Recurrence():
            yield _recurrence(operation, step=step, machine=machine)


def _ways(axes: tuple[str, ...], step: Pass) -> Number:
    """Ways in which what an elementwise pass runs over is split: the residual stream not over tensor parallelism."""
    is_split = any(TENSOR_AXES[0] in MESH_AXES_OF.get(axis, ()) for axis in axes)
    return step.columns.transpose_degree * (step.columns.tensor if is_split else 1.0)


def _vector_pass(path: str, elements: Number, efficiency: float, machine: ServingMachine) -> Part:
    """A pass over activations; fusion may spare it, so it counts in the estimate, not in the bound."""
    traffic_bytes = elements * machine.activation_element_bytes
    return Part(
        name=path,
        phase="forward",
        resource="hbm",
        expected_s=traffic_bytes / (machine.peak_hbm_bytes_per_s * efficiency) + machine.serving.kernel_s,
        work=NOTHING,
    )


def _recurrence(op: Recurrence, *, step: Pass, machine: ServingMachine) -> Part:
    """Decode reads and writes the state of each sequence; prompts go by chunks, as in training."""
    tensor, b_a = step.columns.tensor * step.columns.transpose_degree, machine.activation_element_bytes
    state_bytes = 2 * step.num_sequences * op.state_elements * BYTES_OF["f32"] / tensor
    flops = step.rows * op.flops_per_token / tensor
    expected_s = attained_s(
        flops=flops,
        C_flops_per_s=machine.attention_flops_per_s,
        traffic_bytes=state_bytes + step.rows * (op.read_elements + op.write_elements) * b_a / tensor,
        W_bytes_per_s=machine.vector_bytes_per_s,
        fill_bytes=machine.efficiency.matmul_fill_bytes,
    )
    expected_s = expected_s + machine.serving.kernel_s
    amounts = {"flops.bf16": flops, "hbm.kv_cache": state_bytes}
    return Part(name=op.path, phase="forward", resource="hbm", expected_s=expected_s, work=Work(amounts=amounts))


def _sampling(num_outputs: Number, *, step: Pass, machine: ServingMachine) -> Part:
    """Logits are gathered over tensor parallelism and drawn from; of the likeliest, each device finds its own."""
    logits = num_outputs * vocabulary_size(machine.setting) / step.columns.transpose_degree
    if machine.takes_likeliest:
        read_bytes = logits / step.columns.tensor * BYTES_OF["f32"]
        return Part(
            name="sampling", phase="forward", resource="hbm", expected_s=read_bytes / machine.vector_bytes_per_s
        )
    gathered = gather(step.columns.links["tensor"], logits * machine.activation_element_bytes)
    passes_bytes = SAMPLING_PASSES * logits * BYTES_OF["f32"]
    drawn = Part(name="draw", phase="forward", resource="hbm", expected_s=passes_bytes / machine.vector_bytes_per_s)
    return in_sequence(
        "sampling", "forward", [collective_part("logits/all_gather", "tensor", gathered, machine), drawn]
    )
