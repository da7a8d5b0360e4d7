"""The operations of linear-time sequence mixers: Mamba 1 and 2, the gated delta rule.

Symbols: D embed, I inner width, S state size, G groups, Q chunk length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation, Elementwise, Operation, Recurrence
from ridgeline.model.scope import SIGMOID_FLOPS
from ridgeline.model.spec import NormSpec

if TYPE_CHECKING:
    from ridgeline.model.scope import Scope
    from ridgeline.model.spec import GatedDeltaSpec, MambaSpec

_RMS_NORM = NormSpec()

_WITH_STATES_AGAIN = 3.0
"""The gradient of a chunked form first repeats what gave the states, then goes back through both: mamba_ssm 2,
`_mamba_chunk_scan_combined_bwd`; flash-linear-attention, `chunk_gated_delta_rule_bwd`."""


def mamba_operations(scope: Scope, spec: MambaSpec, *, embed_dim: int) -> tuple[Operation, ...]:
    """In-projection, short convolution, scan, gate and out-projection."""
    mixer = _mamba_1(scope, spec) if spec.version == 1 else _mamba_2(scope, spec)
    extra = 0 if spec.version == 1 else 2 * spec.num_groups * spec.state_dim + spec.num_heads
    return (
        scope.matmul("in", "mamba_in", bias=spec.proj_bias, embed=embed_dim, mlp=2 * spec.inner_dim + extra),
        *mixer,
        scope.matmul("out", "mamba_out", bias=spec.proj_bias, mlp=spec.inner_dim, embed=embed_dim),
    )


def _mamba_1(scope: Scope, spec: MambaSpec) -> tuple[Operation, ...]:
    inner, state, rank = spec.inner_dim, spec.state_dim, spec.dt_rank
    scan = Recurrence(
        path=scope.path("scan"),
        flops_per_token=selective_scan_flops(inner_dim=inner, state_dim=state),
        read_elements=2 * inner + 2 * state,
        write_elements=inner,
        state_elements=inner * state,
        axes=("mlp",),
        weights=(scope.weight("scan/decay", mlp=inner, state=state), scope.weight("scan/skip", mlp=inner)),
        output=Activation(name="mamba_scan", axes=("mlp",), shape=(inner,)),
    )
    norms = tuple(
        scope.norm(f"{name}_norm", _RMS_NORM, width) for name, width in (("dt", rank), ("b", state), ("c", state))
    )
    return (
        _convolution(scope, channels=inner, kernel=spec.conv_kernel, bias=spec.conv_bias),
        scope.matmul("x", "mamba_x", mlp=inner, unit=rank + 2 * state),
        *(norms if spec.inner_norms else ()),
        scope.matmul("dt", "mamba_dt", bias=True, unit=rank, mlp=inner),
        scan,
        _gate(scope, inner),
    )


def _mamba_2(scope: Scope, spec: MambaSpec) -> tuple[Operation, ...]:
    inner, state, heads, groups = spec.inner_dim, spec.state_dim, spec.num_heads, spec.num_groups
    channels = inner + 2 * groups * state
    scan = Recurrence(
        path=scope.path("scan"),
        flops_per_token=state_space_dual_flops(
            inner_dim=inner, state_dim=state, num_groups=groups, chunk_tokens=spec.chunk_tokens
        ),
        read_elements=2 * channels + heads,
        write_elements=inner,
        state_elements=inner * state,
        axes=("heads",),
        weights=tuple(scope.weight(f"scan/{name}", heads=heads) for name in ("decay", "skip", "dt_bias")),
        output=Activation(name="mamba_scan", axes=("mlp",), shape=(inner,)),
        between_elements=state_space_dual_between_elements(
            inner_dim=inner, state_dim=state, num_groups=groups, chunk_tokens=spec.chunk_tokens
        ),
        gradient_passes=_WITH_STATES_AGAIN,
    )
    return (
        _convolution(scope, channels=channels, kernel=spec.conv_kernel, bias=spec.conv_bias),
        scan,
        _gate(scope, inner),
        *((scope.norm("gate_norm", _RMS_NORM, inner, fused=True),) if spec.gate_norm else ()),
    )


def gated_delta_operations(scope: Scope, spec: GatedDeltaSpec, *, embed_dim: int) -> tuple[Operation, ...]:
    """Projections, short convolution, gated delta rule, gated norm, output projection."""
    key_width = spec.num_key_heads * spec.key_head_dim
    value_heads, value_width = spec.num_value_heads, spec.num_value_heads * spec.value_head_dim
    channels = 2 * key_width + value_width
    handed = delta_rule_handed_elements(
        key_head_dim=spec.key_head_dim, value_head_dim=spec.value_head_dim, chunk_tokens=spec.chunk_tokens
    )
    rule = Recurrence(
        path=scope.path("delta_rule"),
        flops_per_token=value_heads
        * delta_rule_flops(
            key_head_dim=spec.key_head_dim, value_head_dim=spec.value_head_dim, chunk_tokens=spec.chunk_tokens
        ),
        read_elements=channels + 2 * value_heads + value_heads * handed,
        write_elements=value_width + value_heads * handed,
        state_elements=value_width * spec.key_head_dim,
        axes=("heads",),
        weights=tuple(scope.weight(f"delta_rule/{name}", heads=value_heads) for name in ("decay", "dt_bias")),
        output=Activation(name="context", axes=("heads", "head_dim"), shape=(value_heads, spec.value_head_dim)),
        between_elements=value_heads * spec.chunk_tokens,
        gradient_passes=_WITH_STATES_AGAIN,
        whole_heads=(spec.num_key_heads, value_heads),
    )
    gate = _gate(scope, value_width)
    return (
        scope.matmul("qkv", "qkv_proj", embed=embed_dim, heads=channels),
        scope.matmul("gate", "output_gate", embed=embed_dim, heads=value_width),
        scope.matmul("beta_decay", "beta_decay", quantizable=False, embed=embed_dim, heads=2 * value_heads),
        _convolution(scope, channels=channels, kernel=spec.conv_kernel, bias=False),
        rule,
        gate,
        Elementwise(
            path=scope.path("gate_norm"),
            read_elements=0,
            write_elements=0,
            flops_per_token=4 * value_width,
            axes=("heads",),
            weights=scope.norm_weights("gate_norm", _RMS_NORM, spec.value_head_dim),
        ),
        scope.matmul("out", "out_proj", heads=value_width, embed=embed_dim),
    )


def _convolution(scope: Scope, *, channels: int, kernel: int, bias: bool) -> Recurrence:
    """A causal depthwise convolution over the last `kernel` tokens, then SiLU."""
    weights = (scope.weight("conv", mlp=channels, conv=kernel),)
    return Recurrence(
        path=scope.path("conv"),
        flops_per_token=channels * (2 * kernel + SIGMOID_FLOPS + 1),
        read_elements=channels,
        write_elements=channels,
        state_elements=channels * (kernel - 1),
        axes=("mlp",),
        weights=(*weights, scope.weight("conv/bias", mlp=channels)) if bias else weights,
        output=Activation(name="conv", axes=("mlp",), shape=(channels,)),
    )


def _gate(scope: Scope, width: int) -> Elementwise:
    """Multiply by SiLU of the gate."""
    return Elementwise(
        path=scope.path("gated"),
        read_elements=2 * width,
        write_elements=width,
        flops_per_token=(SIGMOID_FLOPS + 2) * width,
        axes=("mlp",),
    )


def selective_scan_flops(*, inner_dim: int, state_dim: int) -> float:
    """FLOPs a token of Mamba's selective scan: 9 for each of the I·S state elements, 2 for the skip.

    For each element: dt·A, its exponential, dt·B·x (2), decay of the state, the add, C·h (2), the sum
    over states. Source: Gu and Dao (arXiv:2312.00752), algorithm 2 and section 3.3.

    >>> selective_scan_flops(inner_dim=4, state_dim=2)
    80
    """
    return 9 * inner_dim * state_dim + 2 * inner_dim


def state_space_dual_flops(*, inner_dim: int, state_dim: int, num_groups: int, chunk_tokens: int) -> float:
    """FLOPs a token of Mamba-2's chunked scan: 2Q(G·S + I) within a chunk, 4·I·S across chunks.

    Within: C·Bᵀ per group and its product with x. Across: the state a chunk adds and the output it gives.
    Source: Dao and Gu (arXiv:2405.21060), section 6 (block decomposition), full Q×Q blocks.

    >>> state_space_dual_flops(inner_dim=4, state_dim=2, num_groups=1, chunk_tokens=8)
    128
    """
    within = 2 * chunk_tokens * (num_groups * state_dim + inner_dim)
    return within + 4 * inner_dim * state_dim


def state_space_dual_between_elements(*, inner_dim: int, state_dim: int, num_groups: int, chunk_tokens: int) -> float:
    """Elements a token that kernels of Mamba-2's chunked scan hand on in f32: 2·I·S/Q of states, G·Q of products.

    A chunk's state is handed from the kernel that sums it to the one that carries it across chunks, and from there to
    the one that reads it; C·Bᵀ within the chunk from its own kernel to the last.
    Source: mamba_ssm 2, `_mamba_chunk_scan_combined_fwd`: chunk_state, state_passing, bmm_chunk, chunk_scan.

    >>> state_space_dual_between_elements(inner_dim=8, state_dim=4, num_groups=1, chunk_tokens=2)
    34.0
    """
    return 2 * inner_dim * state_dim / chunk_tokens + num_groups * chunk_tokens


def delta_rule_handed_elements(*, key_head_dim: int, value_head_dim: int, chunk_tokens: int) -> float:
    """Elements of a token and head that the kernels of the delta rule hand on: w, u, u less the past, dk·dv/C.

    Source: flash-linear-attention, `chunk_gated_delta_rule_fwd`: recompute_w_u, the states, the output.

    >>> delta_rule_handed_elements(key_head_dim=2, value_head_dim=3, chunk_tokens=3)
    10.0
    """
    return key_head_dim + 2 * value_head_dim + key_head_dim * value_head_dim / chunk_tokens


def delta_rule_flops(*, key_head_dim: int, value_head_dim: int, chunk_tokens: int) -> float:
    """FLOPs a token and head of the chunked gated delta rule.

    Within a chunk of C tokens: k·kᵀ, q·kᵀ and T·k cost 2C·dk each, T·v and the output 2C·dv each, the
    triangular inverse T C²/3; across chunks three products with the dk×dv state.
    Source: Yang et al. (arXiv:2406.06484) section 3.2; gating (arXiv:2412.06464) adds only elementwise work.

    >>> delta_rule_flops(key_head_dim=2, value_head_dim=3, chunk_tokens=3)
    111.0
    """
    within = 2 * chunk_tokens * (3 * key_head_dim + 2 * value_head_dim) + chunk_tokens**2 / 3
    return within + 6 * key_head_dim * value_head_dim
