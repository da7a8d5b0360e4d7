"""The time and work of one operation, on one device, for one microbatch through one layer.

Forward and backward are separate leaves; recomputation is the forward again, where the plan does not keep
the output. Which tokens and which slice of a weight a device holds follows from the logical axes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.collectives import exchange, gather
from ridgeline.cost.columns import gathered_shards
from ridgeline.cost.kernel_time import visited_keys
from ridgeline.cost.product import product_demand, product_formula
from ridgeline.cost.roofline import (
    ATTENTION_BACKWARD_FACTOR,
    ATTENTION_BACKWARD_LEAST,
    attained_s,
    attention_flops,
    matmul_flops,
)
from ridgeline.cost.training.accumulation import added_gradient_bytes
from ridgeline.cost.training.attention_program import (
    narrow_attention_ratio,
    score_passes,
    scores_traffic_bytes,
    slower_ratios,
    tile_start_ratio,
)
from ridgeline.cost.training.context import causal_imbalance
from ridgeline.cost.training.expert_bias import BACKWARD_BYTES, FORWARD_BYTES, expert_bias_bytes
from ridgeline.cost.training.leaves import OperationCost, arithmetic_part, traffic_part, transfer_part
from ridgeline.cost.training.paged_stash import stashed_bytes
from ridgeline.cost.training.quantization_pass import NARROW_BYTES
from ridgeline.cost.training.query_gradient import query_gradient_bytes
from ridgeline.cost.training.rotary import BACKWARD_MOVES, FORWARD_MOVES, unfused_rotary_bytes
from ridgeline.cost.training.split_attention import split_attention
from ridgeline.cost.training.token_exchange import devices_visited_ratio, gathered_tokens_bytes, sent_once_ratio
from ridgeline.cost.work import Number, Part, Phase, Work, scaled, smaller
from ridgeline.job.job import BYTES_OF
from ridgeline.model.accounting import keys_in_reach, keys_read
from ridgeline.model.operations import Attention, Dispatch, Elementwise, ExpertMatmul, Lookup, Matmul, Recurrence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.kernel_time import Product
    from ridgeline.cost.product import ProductDemand
    from ridgeline.model.operations import Operation

_GATED_UNIT: Final = "experts/activation"
_WEIGHTED_SUM: Final = "weighted_sum"


def operation_cost(
    operation: Operation, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """Cost of an operation over `rows` tokens of this device (before tensor parallelism)."""
    match operation:
        case Matmul() | ExpertMatmul():
            return _product(operation, rows=rows, setting=setting, columns=columns)
        case Attention():
            return _attention(operation, rows=rows, setting=setting, columns=columns)
        case Elementwise() if operation.axes == ("vocab",):
            return _softmax_loss(operation, rows=rows, setting=setting, columns=columns)
        case Elementwise() if operation.path == "rotary" and not setting.fuses_rotary:
            return _unfused_rotary(operation, rows=rows, setting=setting, columns=columns)
        case Elementwise() if operation.path == _WEIGHTED_SUM and setting.expert_exchange == "send_once":
            return OperationCost(forward=(), backward=(), output=operation.name)
        case Elementwise() if operation.path == _GATED_UNIT and setting.fuses_experts:
            return OperationCost(forward=(), backward=(), output=operation.name)
        case Elementwise():
            return _elementwise(operation, rows=rows, setting=setting, columns=columns)
        case Lookup():
            elements = 2 * rows * operation.width / columns.tensor
            cost = _pass(operation.path, elements, setting=setting, efficiency=setting.efficiency.vector, output="")
            return cost if setting.trains(operation.weight) else replace(cost, backward=())
        case Dispatch():
            return _dispatch(operation, rows=rows, setting=setting, columns=columns)
        case Recurrence():
            return _recurrence(operation, rows=rows, setting=setting, columns=columns)


def _product(
    op: Matmul | ExpertMatmul, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """Y = x·W forward; backward the gradients of x and, where it is trained, of W, each as large."""
    demand = product_demand(op, rows=rows, setting=setting, columns=columns)
    flops, dtype, trained = demand.flops, demand.dtype, setting.trains(op.weight)

    def arithmetic(name: str, phase: Phase, product: Product) -> Part:
        formula, asked = product_formula(demand, product, setting=setting)
        if product == "weight_gradient" and setting.adds_gradients_in_products:
            made = op.weight.size * setting.gradient_bytes / gathered_shards(op.weight, columns)
            added = added_gradient_bytes(gradient_bytes=made, num_microbatches=columns.microsteps)
            asked["traffic_bytes"] = asked["traffic_bytes"] + added
        return arithmetic_part(name, phase, formula(**asked) + setting.efficiency.matmul_overhead_s, flops, dtype)

    return OperationCost(
        forward=(
            arithmetic(op.path, "forward", "output"),
            *_bias_pass(op, "forward", demand, setting=setting),
            *_stash_pass(op, "forward", demand, setting=setting),
        ),
        backward=(
            *_stash_pass(op, "backward", demand, setting=setting),
            *_bias_pass(op, "backward", demand, setting=setting),
            arithmetic(f"{op.path}/input_gradient", "backward", "input_gradient"),
            *((arithmetic(f"{op.path}/weight_gradient", "backward", "weight_gradient"),) if trained else ()),
        ),
        output=op.output.name,
    )


def _bias_pass(
    op: Matmul | ExpertMatmul, phase: Phase, demand: ProductDemand, *, setting: TrainingSetting
) -> Iterator[Part]:
    """Experts' biases added apart to outputs that leave the experts, where kernels are not compiled together."""
    leaves = isinstance(op, ExpertMatmul) and op.weight.axes[-1] == "embed_moe"
    if not leaves or op.bias is None or not setting.is_eager:
        return
    element_bytes = FORWARD_BYTES if phase == "forward" else BACKWARD_BYTES
    moved = expert_bias_bytes(B=demand.rows, F=demand.produced_width, element_bytes=element_bytes) / demand.num_shards
    path, elementwise = f"{op.path}/bias", setting.efficiency.elementwise
    yield traffic_part(path, phase, moved, setting=setting, efficiency=elementwise)


def _stash_pass(
    op: Matmul | ExpertMatmul, phase: Phase, demand: ProductDemand, *, setting: TrainingSetting
) -> Iterator[Part]:
    """What an expert's product keeps for the backward pass, copied into pages and out of them.

    It keeps what it read, narrowed; gate and up read the same, and keep what the gated unit is made of.
    """
    if not setting.stashes_experts or not isinstance(op, ExpertMatmul):
        return
    kind = None if setting.quantization is None else setting.quantization.kind
    operand_bytes = NARROW_BYTES.get(kind or "", setting.activation_bytes)
    read_width = 0 if op.path.endswith("gate") else demand.contracted_width
    made_width = 0 if op.weight.axes[-1] == "embed_moe" else demand.produced_width
    moved = stashed_bytes(
        B=demand.rows, D=read_width, F=made_width, operand_bytes=operand_bytes, b_a=setting.activation_bytes
    )
    path, vector = f"{op.path}/stash", setting.efficiency.vector
    yield traffic_part(path, phase, moved / demand.num_shards, setting=setting, efficiency=vector)


def _attention(op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    is_plain = setting.attention_program == "dot_product"
    times_s = _plain_attention_s if is_plain else _fused_attention_s
    forward_s, backward_s = times_s(op, rows=rows, setting=setting, columns=columns)
    flops = _attention_flops(op, rows=rows, setting=setting, columns=columns)
    dtype, overhead_s = setting.dtypes.compute, setting.efficiency.matmul_overhead_s
    gradient = Part(
        name=f"{op.path}/gradient",
        phase="backward",
        resource="compute",
        expected_s=backward_s + overhead_s,
        work=Work(amounts={f"flops.{dtype}": flops * ATTENTION_BACKWARD_LEAST}),
    )
    forward = arithmetic_part(op.path, "forward", forward_s + overhead_s, flops, dtype)
    cost = split_attention(op, forward, gradient, rows=rows, setting=setting, columns=columns)
    if is_plain:
        return replace(cost, output="")  # its gradients read scores, which no name keeps
    added_up = _query_gradient(op, rows=rows, setting=setting, columns=columns)
    return replace(cost, backward=(*cost.backward, *added_up))


def _query_gradient(op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> Iterator[Part]:
    """Its parts added up, where one kernel computes all gradients; around a ring those of each step's keys."""
    if setting.hardware.chip.torus is None or setting.attention_program not in {None, "splash"}:
        return
    ring_steps = columns.degrees["cp"] if setting.context.strategy == "ring" else 1.0
    num_keys = setting.seq_len / op.tokens_per_key / ring_steps
    num_parts = smaller(num_keys / _tile(setting, columns, num_keys=num_keys)[1], setting.num_gradient_parts)
    elements = rows * op.num_heads * op.qk_head_dim / columns.tensor * ring_steps
    moved = query_gradient_bytes(elements=elements, num_parts=num_parts, b_a=setting.activation_bytes)
    yield traffic_part(f"{op.path}/gradient_sum", "backward", moved, setting=setting, efficiency=setting.efficiency.hbm)


def _attention_flops(op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Of scores that the mask lets through."""
    visible_keys = keys_read(op, seq_len=setting.seq_len)
    return attention_flops(T=rows, S=visible_keys, N=op.num_heads, H=_head_dim(op)) / columns.tensor


def _head_dim(op: Attention) -> float:
    """Mean of a key's and a value's."""
    return (op.qk_head_dim + op.v_head_dim) / 2


def _fused_attention_s(
    op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> tuple[Number, Number]:
    """Forward and backward of a kernel that computes blocks of scores and keeps none."""
    efficiency = setting.efficiency
    visible_keys = keys_read(op, seq_len=setting.seq_len)
    visited = visited_keys(
        op.span,
        visible_keys=visible_keys,
        sequence_keys=setting.seq_len / op.tokens_per_key,
        tile=_tile(setting, columns, num_keys=setting.seq_len / op.tokens_per_key),
        tile_pairs=efficiency.attention_tile_pairs * tile_start_ratio(setting.hardware.chip.name),
        row_keys=efficiency.attention_row_keys,
    )
    flops = _attention_flops(op, rows=rows, setting=setting, columns=columns)
    reached = efficiency.at_head_dim(_head_dim(op)) * visible_keys / visited
    rate = setting.peak_flops_per_s(setting.dtypes.compute) * reached
    busiest_flops = flops * _context_imbalance(op, setting=setting, columns=columns)
    slower_forward, slower_backward = slower_ratios(setting.hardware.chip.name, setting.attention_program)
    if setting.attention_in_fp8:
        ratio = setting.peak_flops_per_s("fp8") / setting.peak_flops_per_s(setting.dtypes.compute)
        slower_forward *= narrow_attention_ratio(reached_share=efficiency.attention_forward, peaks_ratio=ratio)
        slower_backward *= narrow_attention_ratio(reached_share=efficiency.attention_backward, peaks_ratio=ratio)
    return (
        slower_forward * busiest_flops / (rate * efficiency.attention_forward),
        ATTENTION_BACKWARD_FACTOR * busiest_flops / (rate * efficiency.attention_backward) * slower_backward,
    )


def _plain_attention_s(
    op: Attention, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> tuple[Number, Number]:
    """Forward and backward as products of matrices, and passes over all their scores."""
    efficiency, dtype = setting.efficiency, setting.dtypes.compute
    reach, num_heads = keys_in_reach(op, seq_len=setting.seq_len), op.num_heads / columns.tensor
    products_s = attention_flops(T=rows, S=reach, N=num_heads, H=_head_dim(op)) / (
        setting.peak_flops_per_s(dtype) * efficiency.matmul[dtype]
    )
    forward_s, backward_s = (
        scores_traffic_bytes(T=rows, S=reach, N=num_heads, b_a=setting.activation_bytes, num_passes=num_passes)
        / (setting.hbm_bytes_per_s * efficiency.elementwise)
        for num_passes in score_passes(is_compiled=setting.hardware.chip.switch is None)
    )
    return products_s + forward_s, ATTENTION_BACKWARD_LEAST * products_s + backward_s


def _tile(setting: TrainingSetting, columns: PlanColumns, *, num_keys: Number) -> tuple[Number, Number]:
    """Queries and keys of one tile: no more than a device has of either."""
    queries, keys = (size or setting.efficiency.attention_block for size in setting.attention_tile)
    return smaller(queries, setting.seq_len / columns.degrees["cp"]), smaller(keys, num_keys)


def _context_imbalance(op: Attention, *, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Work of the busiest device over the mean; a program balances a causal sequence unless it is told not to."""
    context = setting.context
    unbalanced = context.load_balance is False and context.strategy != "ulysses" and op.span.kind == "causal"
    return causal_imbalance(N=columns.degrees["cp"]) if unbalanced else 1.0


def _elementwise(op: Elementwise, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """A norm, which has a scale, looks at its input twice; what only maps rides in a matmul, or passes once."""
    efficiency = setting.efficiency.vector if op.weights else setting.efficiency.elementwise
    elements = rows * (op.read_elements + op.write_elements) / columns.tensor
    return _pass(op.path, elements, setting=setting, efficiency=efficiency, output=op.name)


def _unfused_rotary(op: Elementwise, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """Queries and keys rotated operation by operation."""
    elements = rows * op.write_elements / columns.tensor

    def passes(name: str, phase: Phase, num_moves: int) -> Part:
        moved = unfused_rotary_bytes(elements=elements, num_moves=num_moves, b_a=setting.activation_bytes)
        return traffic_part(name, phase, moved, setting=setting, efficiency=setting.efficiency.elementwise)

    return OperationCost(
        forward=(passes(op.path, "forward", FORWARD_MOVES),),
        backward=(passes(f"{op.path}/gradient", "backward", BACKWARD_MOVES),),
        output=op.name,
    )


def _pass(path: str, elements: Number, *, setting: TrainingSetting, efficiency: float, output: str) -> OperationCost:
    """A fused pass over memory; its gradient reads what it read, and the incoming gradient, and writes as much."""
    once = traffic_part(path, "forward", elements * setting.activation_bytes, setting=setting, efficiency=efficiency)
    gradient = replace(once, name=f"{path}/gradient", phase="backward", expected_s=2 * once.expected_s)
    return OperationCost(forward=(once,), backward=(gradient,), output=output)


def _softmax_loss(op: Elementwise, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """What softmax and cross entropy move beside the product that makes the logits, measured with it."""
    num_logits, efficiency = rows * op.read_elements / columns.tensor, setting.efficiency

    def passes(name: str, phase: Phase, logit_bytes: float) -> Part:
        return traffic_part(name, phase, num_logits * logit_bytes, setting=setting, efficiency=efficiency.hbm)

    return OperationCost(
        forward=(passes(op.path, "forward", efficiency.loss_forward_bytes),),
        backward=(passes(f"{op.path}/gradient", "backward", efficiency.loss_backward_bytes),),
        output=op.name,
    )


def _dispatch(op: Dispatch, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """Sorting tokens by expert moves each copy once; under expert parallelism they travel too, and back."""
    if setting.expert_capacity_ratio is not None:
        return _dispatch_by_mask(op, setting.expert_capacity_ratio, rows=rows, setting=setting, columns=columns)
    sorted_bytes = rows * _sorted_copies(op, setting=setting, columns=columns) * op.width / columns.tensor
    moved_bytes, vector = sorted_bytes * setting.activation_bytes, setting.efficiency.vector
    return OperationCost(
        forward=(
            traffic_part(f"{op.path}/sort", "forward", moved_bytes, setting=setting, efficiency=vector),
            *_waited_exchange(op, "forward", rows=rows, setting=setting, columns=columns),
        ),
        backward=(
            traffic_part(f"{op.path}/sort_gradient", "backward", moved_bytes, setting=setting, efficiency=vector),
            *_waited_exchange(op, "backward", rows=rows, setting=setting, columns=columns),
        ),
        output="",
    )


def _sorted_copies(op: Dispatch, *, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Copies of a token that are read and written where they are put in the order of their experts.

    Sent once, a token is read for each device it visits; and so are the sums of what its experts there have made.
    """
    if setting.expert_exchange != "send_once":
        return 2.0 * op.top_k
    return op.top_k * (1.0 + devices_visited_ratio(N=columns.degrees["ep"], k=op.top_k))


def _dispatch_by_mask(
    op: Dispatch, capacity_ratio: float, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> OperationCost:
    """With a capacity, tokens meet their places as a product with a mask; the weights in combine's have a gradient."""
    dtype, activation_bytes = setting.dtypes.compute, setting.activation_bytes
    num_places = setting.seq_len * op.top_k * capacity_ratio
    flops = matmul_flops(B=rows, D=op.width, F=num_places) / columns.tensor
    copies = rows * (1.0 + op.top_k * capacity_ratio) * op.width / columns.tensor
    once_s = attained_s(
        flops=flops,
        C_flops_per_s=setting.peak_flops_per_s(dtype) * setting.efficiency.matmul[dtype],
        traffic_bytes=(rows * num_places + copies) * activation_bytes,
        W_bytes_per_s=setting.hbm_bytes_per_s * setting.efficiency.hbm,
        fill_bytes=setting.efficiency.matmul_fill_bytes,
    )
    times = 1.0 if op.path == "dispatch" else 2.0
    gradient = arithmetic_part(f"{op.path}/mask_gradient", "backward", times * once_s, times * flops, dtype)
    return OperationCost(
        forward=(
            arithmetic_part(f"{op.path}/mask", "forward", once_s, flops, dtype),
            *_waited_exchange(op, "forward", rows=rows, setting=setting, columns=columns),
        ),
        backward=(gradient, *_waited_exchange(op, "backward", rows=rows, setting=setting, columns=columns)),
        output="",
    )


def _waited_exchange(
    op: Dispatch, phase: Phase, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[Part]:
    """The exchange, where the microbatch itself waits for it."""
    if not setting.expert_exchange_overlaps:
        yield from token_exchange(op, phase, rows=rows, setting=setting, columns=columns)


def token_exchange(
    op: Dispatch, phase: Phase, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[Part]:
    """Copies of tokens by all-to-all, or all tokens gathered and partial results summed; the quicker if free to choose.

    Sent once, a token crosses the network once to each domain, and fast links once to each device, whatever its copies
    there.
    """
    link = columns.links["expert"]
    tokens_bytes = rows * op.width * setting.activation_bytes / columns.tensor
    travel = exchange(link, tokens_bytes * op.top_k)
    if setting.expert_exchange == "send_once":
        ratio = sent_once_ratio(network_load=link.network_exchange_load, k=op.top_k)
        visited = devices_visited_ratio(N=columns.degrees["ep"], k=op.top_k)
        travel = replace(travel, network_bytes=travel.network_bytes * ratio, link_bytes=travel.link_bytes * visited)
    word = "all_to_all" if phase == "forward" else "all_to_all_gradient"
    sent = transfer_part(f"{op.path}/{word}", phase, "expert", travel, setting=setting)
    if setting.expert_exchange in {"all_to_all", "send_once"}:
        yield sent
        return
    word = "all_gather" if (op.path == "dispatch") == (phase == "forward") else "reduce_scatter"
    every = gather(link, gathered_tokens_bytes(tokens_bytes=tokens_bytes, N=columns.degrees["ep"]))
    gathered = transfer_part(f"{op.path}/{word}", phase, "expert", every, setting=setting)
    share = (
        1.0 if setting.expert_exchange == "all_gather" else np.where(gathered.expected_s < sent.expected_s, 1.0, 0.0)
    )
    yield scaled(sent, 1.0 - share)
    yield scaled(gathered, share)


def gathered_tokens(op: Dispatch, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> Number:
    """Bytes of the tokens of all devices that share out the experts, where they are gathered."""
    leaves = token_exchange(op, "forward", rows=rows, setting=setting, columns=columns)
    return sum((part.array_bytes * part.times for part in leaves if not part.name.endswith("all_to_all")), 0.0)


def _recurrence(op: Recurrence, *, rows: Number, setting: TrainingSetting, columns: PlanColumns) -> OperationCost:
    """The chunked form is made of small matmuls: matrix-unit FLOPs at the attention kernel's efficiency."""
    dtype = setting.dtypes.compute
    flops = rows * op.flops_per_token / columns.tensor
    passed_bytes = (op.read_elements + op.write_elements) * setting.activation_bytes
    handed_bytes = 2 * op.between_elements * BYTES_OF["f32"]
    traffic_bytes = rows * (passed_bytes + handed_bytes) / columns.tensor
    forward_s = attained_s(
        flops=flops,
        C_flops_per_s=setting.peak_flops_per_s(dtype) * setting.efficiency.attention_forward,
        traffic_bytes=traffic_bytes,
        W_bytes_per_s=setting.hbm_bytes_per_s * setting.efficiency.vector,
        fill_bytes=setting.efficiency.matmul_fill_bytes,
    )
    return OperationCost(
        forward=(arithmetic_part(op.path, "forward", forward_s, flops, dtype),),
        backward=(
            arithmetic_part(f"{op.path}/gradient", "backward", op.gradient_passes * forward_s, 2 * flops, dtype),
        ),
        output=op.output.name,
    )
