"""Pipeline parallelism: the layers in stages, and microbatches that follow one another through them.

All stages work at once, each on another microbatch, as one computation over an array that is split over them; then
each hands its result to the next. With `repeats` a stage holds several blocks of layers, and a microbatch passes
through all stages once for each: a circular pipeline, whose stages wait a smaller share of the time.

    iteration t, stage s:  unit u = t − s, which is microbatch u mod M in pass u div M;   t < M·R + P − 1

Shapes: P stages, M microbatches, R repeats, B sequences of a microbatch, S sequence, D embed.
Source: Narayanan et al., arXiv:2104.04473, section 2.2; the buffers are those of MaxText's pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.program.checkpoint import checkpointed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.sharding import Mesh

    from ridgeline.job.sharding import Axes
    from ridgeline.program.forward import ForwardProgram

    Stacked: TypeAlias = Mapping[str, Any]
    """Weights: a tree of [rounds, P, *shape]."""

    Round: TypeAlias = Callable[[Array, Any], Array]
    """A round of a loop over layers on one stage: from stream and weights to the stream behind it."""

    Carry: TypeAlias = tuple[Array, Array, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How microbatches pass through the stages.

    Attributes:
        num_stages: P.
        num_microbatches: M, a multiple of P.
        num_repeats: R: blocks of layers that a stage holds.
    """

    num_stages: int = 1
    num_microbatches: int = 1
    num_repeats: int = 1

    @property
    def num_iterations(self) -> int:
        """Until the last microbatch has left; all but M·R of them are bubble.

        >>> Schedule(num_stages=4, num_microbatches=8, num_repeats=2).num_iterations
        19
        """
        return self.num_microbatches * self.num_repeats + self.num_stages - 1

    @property
    def wait(self) -> int:
        """Iterations that a microbatch waits between two passes, for those behind it to enter first."""
        return self.num_microbatches - self.num_stages if self.num_repeats > 1 else 0


def in_stages(stack: Array, schedule: Schedule) -> Array:
    """Weights stacked in the order of their rounds, [rounds, ...], as a pipeline holds them: [rounds / P, P, ...].

    Args:
        stack: R·P·n rounds.
        schedule: Its stages each hold n consecutive rounds for every one of R passes.
    """
    passes, stages = schedule.num_repeats, schedule.num_stages
    return stack.reshape(passes, stages, -1, *stack.shape[1:]).swapaxes(1, 2).reshape(-1, stages, *stack.shape[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A loop over layers, in stages.

    Attributes:
        program: Its schedule, layout and remat policy.
        mesh: The devices.
        one_round: What one stage does with the weights of one round.
    """

    program: ForwardProgram
    mesh: Mesh
    one_round: Round

    def __call__(self, stacked: Stacked, stream: Array) -> Array:
        """The stream behind all layers: [M·B, S, D], its sequences split over the stages first, to the same.

        Args:
            stacked: Of all rounds: those of pass r and stage s are [r·n:(r+1)·n, s].
            stream: In front of them.
        """
        import jax
        import jax.numpy as jnp

        schedule = self._schedule
        own = schedule.num_microbatches // schedule.num_stages
        # A device cuts its own sequences: nothing moves.
        waiting = stream.reshape(schedule.num_stages, -1, own, *stream.shape[1:]).swapaxes(1, 2)
        waiting = self._laid_out(waiting, ((), *self._stream))
        handed = self._laid_out(jnp.zeros_like(waiting[:, 0]), self._stream)
        queue = jnp.zeros((schedule.num_stages, schedule.wait, *handed.shape[1:]), stream.dtype)
        carry = waiting, handed, self._laid_out(queue, ((), *self._stream))
        iteration = checkpointed(lambda carry, t: self._iteration(stacked, carry, t), self.program.remat)
        iterations = jnp.arange(schedule.num_iterations)
        (left, *_), _ = jax.lax.scan(lambda carry, t: (iteration(carry, t), None), carry, iterations)
        # Microbatch 0 left into the slot that the last iteration of its pass read.
        left = jnp.roll(left, 1 - schedule.num_stages, axis=1)
        return left.swapaxes(1, 2).reshape(stream.shape)

    def _iteration(self, stacked: Stacked, carry: Carry, t: Array) -> Carry:
        """Every stage takes what it is handed, works on it, and hands it on.

        `waiting` [P, M/P, B, S, D] holds what has not entered yet, in front of stage 0, and what has left, behind the
        last; each iteration moves one slot of it a stage on. `handed` [P, B, S, D] is the result of the stage before;
        `queue` [P, wait, B, S, D] holds what waits for its next pass.
        """
        import jax.numpy as jnp

        schedule = self._schedule
        waiting, handed, queue = carry
        slot = t % waiting.shape[1]
        entering = moving = waiting[:, slot]
        if schedule.num_repeats > 1:
            again = handed
            if schedule.wait:
                place = t % schedule.wait
                again, queue = queue[:, place], queue.at[:, place].set(handed)
            entering = jnp.where(t < schedule.num_microbatches, entering, again)
        stage = jnp.arange(schedule.num_stages)[:, None, None, None]
        given = self._laid_out(jnp.where(stage == 0, entering, handed), self._stream)
        result = self._work(self._weights_of_pass(stacked, t), given)
        behind = jnp.where(stage == schedule.num_stages - 1, result, self._shifted(moving, -1))
        return waiting.at[:, slot].set(behind), self._shifted(result, 1), queue

    def _work(self, stacked: Stacked, given: Array) -> Array:
        """The rounds of one pass on all stages."""
        import jax

        round_of_all = jax.vmap(self.one_round, spmd_axis_name=self._stages)
        return jax.lax.scan(lambda stream, own: (round_of_all(stream, own), None), given, stacked)[0]

    def _weights_of_pass(self, stacked: Stacked, t: Array) -> Stacked:
        """The rounds that each stage works on: those of its microbatch's pass."""
        import jax
        import jax.numpy as jnp
        from jax.sharding import PartitionSpec

        schedule = self._schedule
        if schedule.num_repeats == 1:
            return stacked
        units = t - jnp.arange(schedule.num_stages)
        passes = jnp.clip(units // schedule.num_microbatches, 0, schedule.num_repeats - 1)

        def of_pass(stack: Array, number: Array) -> Array:
            rounds = stack.shape[0] // schedule.num_repeats
            return jax.lax.dynamic_slice_in_dim(stack, number[0] * rounds, rounds)

        split = PartitionSpec(None, self._stages)
        pick = jax.shard_map(
            of_pass,
            mesh=self.mesh,
            in_specs=(split, PartitionSpec(self._stages)),
            out_specs=split,
            axis_names=set(self._stages),
        )
        return jax.tree.map(lambda stack: pick(stack, passes), stacked)

    def _shifted(self, array: Array, by: int) -> Array:
        """Each stage's part, moved on by so many stages, around the ring."""
        import jax
        from jax.sharding import PartitionSpec

        count, split = self._schedule.num_stages, PartitionSpec(self._stages)
        pairs = [(stage, (stage + by) % count) for stage in range(count)]
        shift = jax.shard_map(
            lambda part: jax.lax.ppermute(part, self._stages, pairs),
            mesh=self.mesh,
            in_specs=split,
            out_specs=split,
            axis_names=set(self._stages),
        )
        return shift(array)

    @property
    def _schedule(self) -> Schedule:
        return self.program.pipeline

    @property
    def _stages(self) -> Axes:
        return self.program.layout.stages

    @property
    def _stream(self) -> tuple[Axes, ...]:
        return self.program.layout.stream

    def _laid_out(self, array: Array, axes: tuple[Axes, ...]) -> Array:
        """An array of all stages, split over them first."""
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(self._stages, *axes)))
