"""Operations on the residual stream that some families add around their layers.

Per-layer inputs, AltUp and Laurel (Gemma 3n), hyper-connections (DeepSeek-V4).
Symbols: D embed, P width of a per-layer input, n residual streams, r rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.model.operations import Block, Elementwise, Lookup, Operation
from ridgeline.model.scope import SIGMOID_FLOPS, Scope
from ridgeline.model.spec import NormSpec

if TYPE_CHECKING:
    from ridgeline.model.spec import ModelSpec

_RMS = NormSpec()


def per_layer_input_block(layer_name: str, *, embed_dim: int, width: int) -> Block:
    """Gates the token's own vector for this layer with the stream and adds it: D→P, multiply, P→D, norm."""
    scope = Scope(block=f"{layer_name}/per_layer_input")
    return Block(
        name="per_layer_input",
        operations=(
            scope.matmul("gate", "per_layer_gate", embed=embed_dim, unit=width),
            Elementwise(
                path=scope.path("gated"),
                read_elements=2 * width,
                write_elements=width,
                flops_per_token=(SIGMOID_FLOPS + 2) * width,
                axes=("unit",),
            ),
            scope.matmul("projection", "per_layer_projection", unit=width, embed=embed_dim),
            scope.norm("post_norm", _RMS, embed_dim, fused=True),
            scope.residual(embed_dim),
        ),
    )


def per_layer_embedding(scope: Scope, spec: ModelSpec, *, width: int) -> tuple[Operation, ...]:
    """The tokens' vectors for all layers: a table row, plus a projection of the embedding, normed.

    Args:
        scope: The embedding's.
        spec: The model.
        width: P.
    """
    total = spec.num_layers * width
    table = scope.weight("per_layer", vocab=spec.per_layer_vocab_size, unit=total)
    return (
        Lookup(path=scope.path("per_layer"), weight=table, width=total),
        scope.matmul("per_layer_projection", "per_layer_inputs", embed=spec.embed_dim, unit=total),
        Elementwise(
            path=scope.path("per_layer_norm"),
            read_elements=2 * total,
            write_elements=total,
            flops_per_token=5 * total,
            axes=("unit",),
            weights=scope.norm_weights("per_layer_norm", _RMS, width),
        ),
    )


def laurel_operations(scope: Scope, *, embed_dim: int, rank: int) -> tuple[Operation, ...]:
    """A learned residual of low rank beside attention: D→r→D, norm."""
    return (
        scope.matmul("left", "laurel_left", embed=embed_dim, unit=rank),
        scope.matmul("right", "laurel_right", unit=rank, embed=embed_dim),
        scope.norm("norm", _RMS, embed_dim),
    )


def altup_block(layer_name: str, *, embed_dim: int, streams: int) -> Block:
    """Predicts n streams before the layer and corrects them after it.

    Source: Baykal et al., "Alternating Updates for Efficient Transformers" (NeurIPS 2023), section 3.
    """
    scope = Scope(block=f"{layer_name}/altup")
    moved = streams * embed_dim
    return Block(
        name="altup",
        operations=(
            scope.norm("router_norm", _RMS, embed_dim),
            scope.matmul("router", "altup_router", quantizable=False, embed=embed_dim, unit=streams),
            Elementwise(
                path=scope.path("predict"),
                read_elements=moved,
                write_elements=moved,
                flops_per_token=2 * streams * moved,
                weights=(scope.weight("predict", unit=streams**3),),
            ),
            Elementwise(
                path=scope.path("correct"),
                read_elements=moved + embed_dim,
                write_elements=moved,
                flops_per_token=3 * moved,
                weights=(scope.weight("correct", unit=streams**2), scope.weight("correct/scale", norm=embed_dim)),
            ),
        ),
    )


def altup_projection(scope: Scope, *, embed_dim: int, streams: int) -> Operation:
    """Makes the n - 1 further streams at the bottom, and brings them back at the top: D→D each."""
    return scope.matmul("altup", "altup_streams", embed=embed_dim, unit=(streams - 1) * embed_dim)


def hyper_connection(scope: Scope, *, embed_dim: int, streams: int) -> tuple[Operation, ...]:
    """Mixes n streams into a branch's input and its output back into them; the mixing is computed per token.

    Source: Zhu et al., "Hyper-Connections" (arXiv:2409.19606), the dynamic form; n·D → n(n + 2) coefficients.
    """
    moved, coefficients = streams * embed_dim, streams * (streams + 2)
    return (
        scope.matmul("coefficients", "hyper_coefficients", quantizable=False, embed=moved, unit=coefficients),
        Elementwise(
            path=scope.path("mix"),
            read_elements=2 * moved + embed_dim,
            write_elements=moved + embed_dim,
            flops_per_token=2 * (streams + 2) * moved,
            weights=(scope.weight("mix/base", unit=coefficients), scope.weight("mix/scale", unit=3)),
        ),
    )


def hyper_head(scope: Scope, *, embed_dim: int, streams: int) -> tuple[Operation, ...]:
    """Mixes n streams into one before the final norm."""
    moved = streams * embed_dim
    return (
        scope.matmul("coefficients", "hyper_coefficients", quantizable=False, embed=moved, unit=streams),
        Elementwise(
            path=scope.path("mix"),
            read_elements=moved,
            write_elements=embed_dim,
            flops_per_token=2 * moved,
            weights=(scope.weight("mix/base", unit=streams), scope.weight("mix/scale", unit=1)),
        ),
    )
