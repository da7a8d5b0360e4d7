"""What the forward pass keeps for the backward pass, as a policy of `jax.checkpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from ridgeline.job.remat import keeps_unnamed, placements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array

    from ridgeline.job.job import Remat

    RoundFunction: TypeAlias = Callable[[Array, Mapping[str, Mapping[str, Array]]], Array]
    """From the residual stream and the weights of each layer of a loop's round to the stream behind them."""

Function = TypeVar("Function", bound="Callable[..., Any]")


def checkpointed(one_round: Function, remat: Remat, *, is_looped: bool = True) -> Function:
    """A round of a loop over layers, whose backward pass computes again what the policy does not keep.

    Its input is kept whatever the policy says, for JAX keeps the arguments of a checkpointed function. Where a round is
    a pattern of layers (Gemma 3's six), it is computed again as one, as MaxText does: between its layers only what the
    policy names is kept.

    Args:
        one_round: The round.
        remat: The policy.
        is_looped: Whether there are several rounds. XLA unrolls a loop of one, and would then merge what is computed
            again with what was computed first, which keeps it all.
    """
    import jax

    if keeps_unnamed(remat):
        return one_round
    places = placements(remat)
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[name for name, place in places.items() if place == "device"],
        names_which_can_be_offloaded=[name for name, place in places.items() if place == "offload"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    # Inside a loop nothing is merged across the round's border: the barrier against it would cost time only.
    return cast("Function", jax.checkpoint(one_round, policy=policy, prevent_cse=not is_looped))
