"""What the forward pass keeps for the backward pass: MaxText's policies, as data.

A layer names some of its intermediates (`query_proj`, `context`, `mlpwo`, …). A policy says of each name
whether its value stays on the device, moves to host memory, or is computed again in the backward pass.
The layer's input is always kept, for it is what the rest is computed from.

Source: MaxText, `layers/nnx_decoders.py` and `configs/types.py` at commit e591f30cb (2026-08-22); the two
retired names are those of Google's MLPerf 4.0 training scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, get_args

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import Placement, Remat

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

_Switch = TypeVar("_Switch", "float", "NDArray[np.float64]")

LAYER_INPUT: Final = "decoder_layer_input"
"""The one name that cannot be recomputed."""

_QKV = ("query_proj", "key_proj", "value_proj", "kv_proj")
_ALL_QKV = (*_QKV, "qkv_proj")
_DENSE_MLP = ("mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo")
_DOTS = (*_ALL_QKV, "out_proj", *_DENSE_MLP)
_LATENTS = ("query_wa_proj", "kv_wa_proj", "mla_q", "mla_kv", "indexer_cutoff_threshold")
_EXPERTS = ("moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo")

CUSTOM_NAMES: Final = (LAYER_INPUT, "context", "attention_out", *_DOTS, *_LATENTS, *_EXPERTS)
"""Names that a `custom` policy may place."""

CHECKPOINT_NAMES: Final = (*CUSTOM_NAMES, "quantization")
"""Every name; `quantization` tags the residuals of quantized matmuls, which only presets place."""

KEPT_ON_DEVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "full": (),
    "save_out_proj": ("out_proj",),
    "save_qkv_proj": _ALL_QKV,
    "save_dot_except_mlp": (*_ALL_QKV, "out_proj"),
    "save_dot_except_mlpwi": (*_ALL_QKV, "out_proj", "mlpwo"),
    "save_dot_with_context_except_mlp": (*_ALL_QKV, "context", "out_proj"),
    "minimal": _DOTS,
    "minimal_with_context": (*_DOTS, "context"),
    "minimal_with_quantization": (*_DOTS, "quantization"),
    "minimal_with_context_and_quantization": (*_DOTS, "context", "quantization"),
    "none": CHECKPOINT_NAMES,
}
"""By preset: the names kept on the device besides the layer's input. `none` keeps unnamed values too."""

OFFLOADED: Final[Mapping[str, tuple[str, ...]]] = {"qkv_proj_offloaded": _QKV, "minimal_offloaded": _DOTS}
"""By preset: the names moved to host memory; everything else is computed again."""

ALIASES: Final[Mapping[str, str]] = {
    "minimal_flash": "minimal_with_context",
    "save_dot_except_logits": "minimal",
    "save_dot_except_logits_ffn1": "save_dot_except_mlpwi",
}
"""Retired names of presets."""

POLICIES: Final = (*KEPT_ON_DEVICE, *OFFLOADED, "custom")
"""Every policy."""

_ALSO_NAMED: Final[Mapping[str, str]] = {"moe_mlpwi_0": "mlpwi_0", "moe_mlpwo": "mlpwo"}
# In MaxText's dropless expert path these two values carry a second name each (the second `up` does not),
# and a value is kept if any of its names is.

_STRONGEST_FIRST: Final[tuple[Placement, ...]] = ("device", "offload", "remat")


def parse_remat(policy: str, tensors: Mapping[str, str], *, where: str) -> Remat:
    """The policy that a user names, aliases resolved.

    Args:
        policy: A preset, an alias or `custom`.
        tensors: For `custom`: name to `device`, `offload` or `remat`; names left out are computed again.
        where: The key or flag of the policy, for error messages.
    """
    name = ALIASES.get(policy, policy)
    if name not in POLICIES:
        fix = nearest(policy, (*POLICIES, *ALIASES)) or "use one of those"
        raise InputError("unknown remat policy", where=where, value=policy, expected=", ".join(POLICIES), fix=fix)
    if tensors and name != "custom":
        raise InputError(
            "a preset policy does not take tensors",
            where=where,
            value=policy,
            expected='policy = "custom" beside tensors',
            fix=f'use policy = "custom", or leave out {", ".join(tensors)}',
        )
    if not tensors and name == "custom":
        raise InputError(
            "the custom policy places no tensor",
            where=where,
            value=policy,
            expected="at least one tensor with device, offload or remat",
            fix='add e.g. context = "device", or use policy = "full"',
        )
    return Remat(policy=name, tensors={tensor: _placement(tensor, text, where) for tensor, text in tensors.items()})


def placements(remat: Remat) -> Mapping[str, Placement]:
    """Where the value of every checkpoint name goes.

    >>> placements(Remat(policy="save_out_proj"))["out_proj"]
    'device'
    >>> placements(Remat(policy="minimal"))["context"]
    'remat'
    """
    named: dict[str, Placement] = {name: _named_placement(remat, name) for name in CHECKPOINT_NAMES}
    return {name: _stronger(own, named[_ALSO_NAMED.get(name, name)]) for name, own in named.items()}


def placement_columns(
    on_device: Mapping[str, _Switch], on_host: Mapping[str, _Switch]
) -> tuple[dict[str, _Switch], dict[str, _Switch]]:
    """Where values end up when names are placed as said: `placements` for switches, or columns of them.

    >>> placement_columns({"mlpwi_0": 1.0, "moe_mlpwi_0": 0.0}, {"mlpwi_0": 0.0, "moe_mlpwi_0": 1.0})
    ({'mlpwi_0': 1.0, 'moe_mlpwi_0': 1.0}, {'mlpwi_0': 0.0, 'moe_mlpwi_0': 0.0})

    Args:
        on_device: By name, 1 where it is kept on the device.
        on_host: By name, 1 where it is kept on the host.
    """
    device, host = dict(on_device), dict(on_host)
    for own, other in _ALSO_NAMED.items():
        if own in device and other in device:
            device[own] = _either(on_device[own], on_device[other])
            host[own] = _either(on_host[own], on_host[other]) * (1.0 - device[own])
    return device, host


def _either(one: _Switch, other: _Switch) -> _Switch:
    return one + other - one * other


def keeps_unnamed(remat: Remat) -> bool:
    """Whether values without a name (norms, activation functions) are kept as well."""
    return remat.policy == "none"


def _named_placement(remat: Remat, name: str) -> Placement:
    if remat.policy == "custom":
        return remat.tensors.get(name, "device" if name == LAYER_INPUT else "remat")
    if name == LAYER_INPUT or name in KEPT_ON_DEVICE.get(remat.policy, ()):
        return "device"
    return "offload" if name in OFFLOADED.get(remat.policy, ()) else "remat"


def _stronger(one: Placement, other: Placement) -> Placement:
    return min((one, other), key=_STRONGEST_FIRST.index)


def _placement(tensor: str, text: str, where: str) -> Placement:
    if tensor not in CUSTOM_NAMES:
        raise InputError(
            "unknown tensor in a remat policy",
            where=where,
            value=tensor,
            expected=", ".join(CUSTOM_NAMES),
            fix=nearest(tensor, CUSTOM_NAMES) or "use one of those",
        )
    allowed = [place for place in get_args(Placement) if (tensor, place) != (LAYER_INPUT, "remat")]
    if text not in allowed:
        raise InputError(
            f"unknown placement of {tensor}",
            where=where,
            value=text,
            expected=", ".join(allowed),
            fix=nearest(text, allowed) or f"use one of {', '.join(allowed)}",
        )
    return next(place for place in _STRONGEST_FIRST if place == text)
