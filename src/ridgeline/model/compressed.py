"""The operations of compressed attention (DeepSeek-V4).

A query sees the last `window` tokens through their own keys, and earlier ones through keys that each stand
for several tokens; key and value are one vector, shared by all heads.
Symbols: D embed, N query heads, H head_dim, m tokens per compressed key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation, Attention, Elementwise, Operation, Span
from ridgeline.model.scope import ROTARY_FLOPS
from ridgeline.model.spec import NormSpec

if TYPE_CHECKING:
    from ridgeline.model.scope import Scope
    from ridgeline.model.spec import CompressedAttentionSpec, IndexerSpec

_RMS = NormSpec()
_POOL_FLOPS = 6
"""Gate, bias, exponential, sum, weight, sum; per element."""


def compressed_attention_operations(
    scope: Scope, spec: CompressedAttentionSpec, *, embed_dim: int
) -> tuple[Operation, ...]:
    """Low-rank query, shared key-value, compression, attention over both kinds of keys, grouped output."""
    heads, width, rank = spec.num_heads, spec.head_dim, spec.q_lora_rank
    return (
        scope.matmul("query_down", "query_wa_proj", embed=embed_dim, q_lora=rank),
        scope.norm("query_norm", _RMS, rank, saved_as="mla_q"),
        scope.matmul("query_up", "query_proj", q_lora=rank, heads=heads, head_dim=width),
        scope.matmul("kv", "kv_wa_proj", embed=embed_dim, kv_lora=width),
        scope.norm("kv_norm", _RMS, width, saved_as="mla_kv"),
        Elementwise(
            path=scope.path("rotary"),
            read_elements=heads * width,
            write_elements=heads * width,
            flops_per_token=ROTARY_FLOPS * heads * width,
            axes=("heads",),
        ),
        *(_compressor(scope.under("compressor"), spec, embed_dim) if spec.tokens_per_key else ()),
        _scores(scope, spec),
        *((_compressed_scores(scope, spec),) if spec.tokens_per_key else ()),
        *_output(scope, spec, embed_dim),
    )


def _scores(scope: Scope, spec: CompressedAttentionSpec) -> Attention:
    return Attention(
        path=scope.path("scores"),
        num_heads=spec.num_heads,
        num_kv_heads=1,
        qk_head_dim=spec.head_dim,
        v_head_dim=spec.head_dim,
        span=Span(kind="sliding", window=spec.window),
        output=Activation(name="context", axes=("heads", "head_dim"), shape=(spec.num_heads, spec.head_dim)),
        cache_elements=spec.head_dim,
        sinks=scope.weight("scores/sinks", heads=spec.num_heads),
    )


def _compressed_scores(scope: Scope, spec: CompressedAttentionSpec) -> Attention:
    """The same kernel over the compressed keys: those the scorer picked, or all."""
    return replace(
        _scores(scope, spec),
        path=scope.path("compressed_scores"),
        span=Span(),
        sinks=None,
        selected_keys=spec.indexer.top_k if spec.indexer else 0,
        tokens_per_key=spec.tokens_per_key,
    )


def _compressor(scope: Scope, spec: CompressedAttentionSpec, embed_dim: int) -> tuple[Operation, ...]:
    """Keys that stand for m tokens; with a scorer, windows overlap and each token gives two vectors."""
    pool = _pool(scope, embed_dim=embed_dim, width=spec.head_dim, tokens=spec.tokens_per_key, twice=bool(spec.indexer))
    if spec.indexer is None:
        return pool
    return (*pool, *_indexer(scope.under("indexer"), spec, spec.indexer, embed_dim))


def _pool(scope: Scope, *, embed_dim: int, width: int, tokens: int, twice: bool) -> tuple[Operation, ...]:
    """A softmax-weighted mean of m tokens' vectors."""
    wide = 2 * width if twice else width
    return (
        scope.matmul("kv", "compressor_kv", embed=embed_dim, kv_lora=wide),
        scope.matmul("gate", "compressor_gate", embed=embed_dim, kv_lora=wide),
        Elementwise(
            path=scope.path("pool"),
            read_elements=2 * wide,
            write_elements=width / tokens,
            flops_per_token=_POOL_FLOPS * wide,
            axes=("kv_lora",),
            weights=(
                scope.weight("pool/position", unit=tokens, kv_lora=wide),
                *scope.norm_weights("pool", _RMS, width),
            ),
        ),
    )


def _indexer(
    scope: Scope, spec: CompressedAttentionSpec, indexer: IndexerSpec, embed_dim: int
) -> tuple[Operation, ...]:
    """Scores every compressed key with small heads over keys compressed the same way."""
    heads, width = indexer.num_heads, indexer.head_dim
    return (
        *_pool(scope, embed_dim=embed_dim, width=width, tokens=spec.tokens_per_key, twice=True),
        scope.matmul("query", "indexer_query", q_lora=spec.q_lora_rank, heads=heads, head_dim=width),
        scope.matmul("head_weights", "indexer_weights", quantizable=False, embed=embed_dim, heads=heads),
        Attention(
            path=scope.path("scores"),
            num_heads=heads,
            num_kv_heads=1,
            qk_head_dim=width,
            v_head_dim=0,
            span=Span(),
            output=Activation(name="indexer_cutoff_threshold", axes=("unit",), shape=(1,)),
            cache_elements=width,
            tokens_per_key=spec.tokens_per_key,
        ),
    )


def _output(scope: Scope, spec: CompressedAttentionSpec, embed_dim: int) -> tuple[Operation, ...]:
    """Each group of heads to `output_rank`, then all of them to D."""
    mixed = spec.output_groups * spec.output_rank
    # Block-diagonal: N·H rows in all, each projected within its own group.
    groups = scope.matmul(
        "out_groups", "out_groups", contracted=2, heads=spec.num_heads, head_dim=spec.head_dim, unit=spec.output_rank
    )
    return (
        replace(groups, output=replace(groups.output, shape=(mixed,))),
        scope.matmul("out", "out_proj", unit=mixed, embed=embed_dim),
    )
