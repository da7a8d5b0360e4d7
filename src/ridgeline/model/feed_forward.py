"""The operations of the channel mixer: MLP and mixture of experts.

Symbols: D embed, F mlp, E experts, k top-k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation, Dispatch, Elementwise, ExpertMatmul, Operation
from ridgeline.model.scope import SIGMOID_FLOPS
from ridgeline.model.spec import MlpSpec

if TYPE_CHECKING:
    from ridgeline.model.scope import Scope
    from ridgeline.model.spec import MoeSpec


def mlp_operations(scope: Scope, spec: MlpSpec, *, embed_dim: int) -> tuple[Operation, ...]:
    """Up-projection (with a gate, or fused with it), activation function, down-projection."""
    mlp_dim, bias = spec.mlp_dim, spec.bias
    if spec.gated and not spec.fused:
        up = (
            scope.matmul("gate", "mlpwi_0", bias=bias, embed=embed_dim, mlp=mlp_dim),
            scope.matmul("up", "mlpwi_1", bias=bias, embed=embed_dim, mlp=mlp_dim),
        )
    else:
        up = (scope.matmul("up", "mlpwi", bias=bias, embed=embed_dim, mlp=mlp_dim * (1 + spec.gated)),)
    return (
        *up,
        _activation(scope, width=mlp_dim, gated=spec.gated, axis="mlp"),
        scope.matmul("down", "mlpwo", bias=bias, mlp=mlp_dim, embed=embed_dim),
    )


def moe_operations(scope: Scope, spec: MoeSpec, *, embed_dim: int) -> tuple[Operation, ...]:
    """Router, dispatch, experts, combine; then the shared expert and the dense MLP beside them, if any."""
    travels = spec.latent_dim or embed_dim
    down = scope.matmul("latent_down", "moe_latent", embed=embed_dim, unit=travels)
    up = scope.matmul("latent_up", "moe_latent_out", unit=travels, embed=embed_dim)
    return (
        scope.matmul(
            "router", "router_logits", bias=spec.router_bias, quantizable=False, embed=embed_dim, unit=spec.num_experts
        ),
        _top_k(scope, spec),
        *((down,) if spec.latent_dim else ()),
        Dispatch(path=scope.path("dispatch"), top_k=spec.top_k, width=travels),
        *_experts(scope.under("experts"), spec, travels),
        Dispatch(path=scope.path("combine"), top_k=spec.top_k, width=travels),
        Elementwise(
            path=scope.path("weighted_sum"),
            read_elements=spec.top_k * travels,
            write_elements=travels,
            flops_per_token=2 * spec.top_k * travels,
        ),
        *((up,) if spec.latent_dim else ()),
        *_beside_experts(scope, spec, embed_dim),
    )


def _top_k(scope: Scope, spec: MoeSpec) -> Elementwise:
    """Softmax over the experts and the choice of the best k."""
    return Elementwise(
        path=scope.path("top_k"),
        read_elements=spec.num_experts,
        write_elements=2 * spec.top_k,
        flops_per_token=spec.num_experts * (3 + spec.top_k),
        axes=("unit",),
        weights=(scope.weight("top_k/correction", unit=spec.num_experts),) if spec.score_correction else (),
    )


def _experts(scope: Scope, spec: MoeSpec, embed_dim: int) -> tuple[Operation, ...]:
    inward = {"embed_moe": embed_dim, "mlp_moe": spec.expert_mlp_dim}
    outward = {"mlp_moe": spec.expert_mlp_dim, "embed_moe": embed_dim}
    gate = (_expert_matmul(scope, spec, "gate", "moe_mlpwi_0", **inward),) if spec.gated else ()
    return (
        *gate,
        _expert_matmul(scope, spec, "up", "moe_mlpwi_1" if spec.gated else "moe_mlpwi_0", **inward),
        _activation(scope, width=spec.top_k * spec.expert_mlp_dim, gated=spec.gated, axis="mlp_moe"),
        _expert_matmul(scope, spec, "down", "moe_mlpwo", **outward),
    )


def _expert_matmul(scope: Scope, spec: MoeSpec, name: str, output: str, **dims: int) -> ExpertMatmul:
    (_, (axis, width)) = dims.items()
    return ExpertMatmul(
        path=scope.path(name),
        weight=scope.weight(name, experts=spec.num_experts, **dims),
        top_k=spec.top_k,
        output=Activation(name=output, axes=(axis,), shape=(width,), copies=spec.top_k),
        bias=scope.weight(f"{name}/bias", experts=spec.num_experts, **{axis: width}) if spec.bias else None,
    )


def _beside_experts(scope: Scope, spec: MoeSpec, embed_dim: int) -> tuple[Operation, ...]:
    """What every token visits besides its chosen experts."""
    shared = MlpSpec(mlp_dim=spec.shared_mlp_dim, gated=spec.gated)
    dense = MlpSpec(mlp_dim=spec.dense_mlp_dim, gated=spec.gated)
    score = scope.matmul("shared/score", "shared_score", quantizable=False, embed=embed_dim, unit=1)
    return (
        *(mlp_operations(scope.under("shared"), shared, embed_dim=embed_dim) if spec.shared_mlp_dim else ()),
        *((score,) if spec.shared_gate else ()),
        *(mlp_operations(scope.under("dense"), dense, embed_dim=embed_dim) if spec.dense_mlp_dim else ()),
    )


def _activation(scope: Scope, *, width: int, gated: bool, axis: str) -> Elementwise:
    """SiLU and its kin; with a gate it reads both halves and multiplies them."""
    return Elementwise(
        path=scope.path("activation"),
        read_elements=width * (1 + gated),
        write_elements=width,
        flops_per_token=width * (SIGMOID_FLOPS + 1 + gated),
        axes=(axis,),
    )
