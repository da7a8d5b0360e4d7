"""What the forward pass keeps for the backward pass, as a policy of `jax.checkpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from ridgeline.job.remat import keeps_unnamed, placements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array

    from ridgeline.job.job import Remat

    LayerFunction: TypeAlias = Callable[[Array, Mapping[str, Array]], Array]
    """From the residual stream and a layer's weights to the stream behind it."""

Function = TypeVar("Function", bound="Callable[..., Any]")


def checkpointed(function: Function, remat: Remat) -> Function:
    """A layer, or a loop over some, whose backward pass computes again what the policy does not keep.

    The layer's input is kept whatever the policy says, for JAX keeps the arguments of a checkpointed function.
    """
    import jax

    if keeps_unnamed(remat):
        return function
    places = placements(remat)
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[name for name, place in places.items() if place == "device"],
        names_which_can_be_offloaded=[name for name, place in places.items() if place == "offload"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    # Inside a scan nothing is merged across the layer's border: the barrier against it would cost time only.
    return cast("Function", jax.checkpoint(function, policy=policy, prevent_cse=False))
