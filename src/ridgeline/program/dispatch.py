"""Tokens on their way to experts and back, on one device inside `shard_map`.

dropless  a row for every copy of a token, sorted by expert; under expert parallelism rows travel to the device that
          holds their expert and back, as many to each device as it happens to be
capacity  room for so many tokens of a sequence in every expert, filled from the sequence's start; what finds no room
          is dropped

How many rows a device receives is known only when the program runs, while its arrays have one size: that of the worst
case, in which all devices send all they can to one.

Shapes: T tokens of a device, k experts a token visits, E experts, L experts of a device, n devices that share experts,
R rows, D width of a row, C tokens an expert has room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

EXPERT_AXIS: Final = "ep"
"""The mesh axis that shares out experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where tokens go.

    Attributes:
        experts: Numbers of the chosen experts, [T, k].
        gates: Their weights in the sum, f32, [T, k].
        num_experts: E.
        num_ways: n.
    """

    experts: Array
    gates: Array
    num_experts: int
    num_ways: int

    @property
    def top_k(self) -> int:
        """Experts a token visits."""
        return self.experts.shape[-1]

    @property
    def num_local(self) -> int:
        """Experts of a device."""
        return self.num_experts // self.num_ways


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Rows at the device that computes them, sorted by expert; a tail that no expert has is not computed.

    Attributes:
        rows: [R, D].
        group_sizes: Rows of each expert, [L].
        expert_of_row: L in the tail, [R].
        sent: Rows that each device sends to each, [n, n].
        order: From the sorted rows to those that arrived, [R]; None where none travelled.
    """

    rows: Array
    group_sizes: Array
    expert_of_row: Array
    sent: Array
    order: Array | None


def sorted_copies(tokens: Array, choice: Choice) -> tuple[Array, Array, Array]:
    """A row for each copy of a token, sorted by expert, with the order and its inverse: [T·k, D], [T·k], [T·k]."""
    import jax.numpy as jnp

    order = jnp.argsort(choice.experts.reshape(-1), stable=True)
    inverse = jnp.argsort(order)
    return permuted(tokens, order, inverse, copies=choice.top_k), order, inverse


def arrived(rows: Array, choice: Choice, *, is_ragged: bool) -> Arrival:
    """Sorted rows at the devices that hold their experts.

    Args:
        rows: Copies sorted by expert, [T·k, D].
        choice: Which expert each has.
        is_ragged: Whether the compiler can send as many rows as there are; else all that could be are sent.
    """
    import jax
    import jax.numpy as jnp

    ours = jnp.sum(choice.experts.reshape(-1, 1) == jnp.arange(choice.num_experts), axis=0, dtype=jnp.int32)
    if choice.num_ways == 1:
        expert_of_row = jnp.sort(choice.experts.reshape(-1))
        return Arrival(rows=rows, group_sizes=ours, expert_of_row=expert_of_row, sent=jnp.zeros((1, 1)), order=None)
    ways, local = choice.num_ways, choice.num_local
    counts = jax.lax.all_gather(ours, EXPERT_AXIS).reshape(ways, ways, local)
    sent, mine = counts.sum(axis=2), counts[:, jax.lax.axis_index(EXPERT_AXIS)]
    most = rows.shape[0] // choice.top_k * min(choice.top_k, local)
    received = exchanged(rows, sent, num_rows=ways * most, most=most, is_ragged=is_ragged)
    # Rows come sender by sender, each sender's sorted by expert.
    piece = jnp.sum(jnp.arange(ways * most)[:, None] >= jnp.cumsum(mine.reshape(-1)), axis=1)
    expert = jnp.where(piece < ways * local, piece % local, local)
    order = jnp.argsort(expert, stable=True)
    return Arrival(
        rows=permuted(received, order, jnp.argsort(order)),
        group_sizes=mine.sum(axis=0),
        expert_of_row=expert[order],
        sent=sent,
        order=order,
    )


def returned(outputs: Array, arrival: Arrival, choice: Choice, *, is_ragged: bool) -> Array:
    """Experts' outputs back on the devices of their tokens, sorted by expert: [R, D] to [T·k, D]."""
    import jax.numpy as jnp

    if arrival.order is None:
        return outputs
    num_rows = choice.experts.size
    most = num_rows // choice.top_k * min(choice.top_k, choice.num_local)
    unsorted = permuted(outputs, jnp.argsort(arrival.order), arrival.order)
    return exchanged(unsorted, arrival.sent.T, num_rows=num_rows, most=most, is_ragged=is_ragged)


def weighted_sum(rows: Array, inverse: Array, order: Array, choice: Choice) -> Array:
    """Each token's sum over its experts: [T·k, D] sorted by expert to [T, D]."""
    import jax.numpy as jnp

    copies = permuted(rows, inverse, order).reshape(*choice.gates.shape, -1)
    weighted = copies * choice.gates[..., None].astype(copies.dtype)
    return jnp.sum(weighted, axis=1, dtype=jnp.float32).astype(rows.dtype)


def permuted(rows: Array, order: Array, inverse: Array, *, copies: int = 1) -> Array:
    """`rows[order // copies]`, its gradient gathered by the inverse order; a scatter would be slow.

    Args:
        rows: [R / copies, D].
        order: Numbers of copies, each once, [R].
        inverse: Where each copy went, [R].
        copies: Of every row.
    """
    import jax
    import jax.numpy as jnp

    def taken(rows: Array, order: Array, _: Array) -> Array:
        return rows[order // copies]

    def forward(rows: Array, order: Array, inverse: Array) -> tuple[Array, Array]:
        return taken(rows, order, inverse), inverse

    def backward(inverse: Array, gradient: Array) -> tuple[Array, None, None]:
        by_copy = gradient[inverse].reshape(-1, copies, gradient.shape[-1])
        return jnp.sum(by_copy, axis=1, dtype=jnp.float32).astype(gradient.dtype), None, None

    take = jax.custom_vjp(taken)
    take.defvjp(forward, backward)
    return take(rows, order, inverse)


def exchanged(rows: Array, sent: Array, *, num_rows: int, most: int, is_ragged: bool) -> Array:
    """Rows sent to the devices they are for, one receiver after another; they come one sender after another.

    Args:
        rows: [R, D].
        sent: Rows that each device sends to each, [n, n].
        num_rows: Rows there is room for; those that nobody fills are undefined.
        most: Rows that one device can send to one.
        is_ragged: As in `arrived`.
    """
    import jax

    send, num_sent = _ragged if is_ragged else _padded, rows.shape[0]

    def there(rows: Array, sent: Array) -> Array:
        return send(rows, sent, num_rows=num_rows, most=most)

    def forward(rows: Array, sent: Array) -> tuple[Array, Array]:
        return there(rows, sent), sent

    def backward(sent: Array, gradient: Array) -> tuple[Array, None]:
        return send(gradient, sent.T, num_rows=num_sent, most=most), None

    exchange = jax.custom_vjp(there)
    exchange.defvjp(forward, backward)
    return exchange(rows, sent)


def _ragged(rows: Array, sent: Array, *, num_rows: int, most: int) -> Array:
    """As many rows as there are: one ragged all-to-all."""
    import jax
    import jax.numpy as jnp

    del most
    here = jax.lax.axis_index(EXPERT_AXIS)
    return jax.lax.ragged_all_to_all(
        rows,
        jnp.empty((num_rows, rows.shape[1]), rows.dtype),
        input_offsets=_starts(sent)[here],
        send_sizes=sent[here],
        output_offsets=_starts(sent.T)[:, here],
        recv_sizes=sent[:, here],
        axis_name=EXPERT_AXIS,
    )


def _padded(rows: Array, sent: Array, *, num_rows: int, most: int) -> Array:
    """As many rows as could be: one all-to-all of equal pieces, for compilers that know no ragged one."""
    import jax
    import jax.numpy as jnp

    here, slots = jax.lax.axis_index(EXPERT_AXIS), jnp.arange(most)
    pieces = rows[jnp.minimum(_starts(sent)[here][:, None] + slots, rows.shape[0] - 1)]
    came = jax.lax.all_to_all(pieces, EXPERT_AXIS, 0, 0)
    ends, numbers = jnp.cumsum(sent[:, here]), jnp.arange(num_rows)
    sender = jnp.minimum(jnp.sum(numbers[:, None] >= ends, axis=1), len(ends) - 1)
    slot = jnp.minimum(numbers - _starts(sent.T)[here][sender], most - 1)
    return jnp.where((numbers < ends[-1])[:, None], came[sender, slot], 0)


def _starts(sizes: Array) -> Array:
    """Where each piece begins when a row's pieces follow one another: [n, n]."""
    import jax.numpy as jnp

    return jnp.cumsum(sizes, axis=1) - sizes


def with_capacity(tokens: Array, choice: Choice, *, capacity: int, compute: Callable[[Array], Array]) -> Array:
    """Each token's sum over those of its experts that had room for it: [b, s, D] to [b, s, D].

    Args:
        tokens: Sequences of a device, or its parts of them.
        choice: Of the b·s tokens.
        capacity: C.
        compute: The device's experts on the rows of each: [L, R, D] to [L, R, D].
    """
    import jax
    import jax.numpy as jnp

    batch, length, width = tokens.shape
    ways, local = choice.num_ways, choice.num_local
    chosen = jax.nn.one_hot(choice.experts, choice.num_experts, dtype=jnp.float32)
    gates = jnp.sum(chosen * choice.gates[..., None], axis=1).reshape(batch, length, -1)
    visits = jnp.sum(chosen, axis=1).reshape(batch, length, -1)
    place = jnp.where(visits > 0, jnp.cumsum(visits, axis=1) - 1, -1)
    taken = jax.nn.one_hot(place.astype(jnp.int32), capacity, dtype=tokens.dtype)  # [b, s, E, C]; no room: zero
    rows = jnp.einsum("bsd,bsec->ebcd", tokens, taken).reshape(ways, local, -1, width)
    if ways > 1:
        rows = jax.lax.all_to_all(rows, EXPERT_AXIS, 0, 0)
    outputs = compute(rows.swapaxes(0, 1).reshape(local, -1, width)).reshape(local, ways, -1, width).swapaxes(0, 1)
    if ways > 1:
        outputs = jax.lax.all_to_all(outputs, EXPERT_AXIS, 0, 0)
    weights = taken * gates[..., None].astype(taken.dtype)
    return jnp.einsum("ebcd,bsec->bsd", outputs.reshape(choice.num_experts, batch, capacity, width), weights)
