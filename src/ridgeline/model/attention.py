"""The operations of attention: multi-head, grouped-query, multi-query, and multi-head latent.

Symbols: D embed, N query heads, K kv heads, H head_dim.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation, Attention, Elementwise, Operation, Span
from ridgeline.model.scope import ROTARY_FLOPS, SIGMOID_FLOPS, norm_flops
from ridgeline.model.spec import NormSpec

if TYPE_CHECKING:
    from ridgeline.model.scope import Scope
    from ridgeline.model.spec import AttentionSpec, IndexerSpec, MlaSpec

_LAYER_NORM = NormSpec(bias=True)


def attention_operations(scope: Scope, spec: AttentionSpec, *, embed_dim: int) -> tuple[Operation, ...]:
    """Projections, rotary embedding, attention itself, output projection."""
    return (
        *_projections(scope, spec, embed_dim),
        *_query_key_pass(scope, spec),
        *(_block_indexer(scope.under("indexer"), spec.indexer, embed_dim) if spec.indexer else ()),
        _scores(scope, spec),
        *(_output_gate(scope, spec) if spec.output_gate or spec.head_gate else ()),
        scope.matmul(
            "out",
            "out_proj",
            contracted=2,
            bias=spec.out_bias,
            heads=spec.num_heads,
            head_dim=_v_head_dim(spec),
            embed=embed_dim,
        ),
    )


def _v_head_dim(spec: AttentionSpec) -> int:
    return spec.head_dim if spec.v_head_dim is None else spec.v_head_dim


def _projections(scope: Scope, spec: AttentionSpec, embed_dim: int) -> tuple[Operation, ...]:
    bias, width = spec.qkv_bias, spec.head_dim
    if spec.fused_qkv:
        heads = spec.num_heads + 2 * spec.num_kv_heads
        return (scope.matmul("qkv", "qkv_proj", bias=bias, embed=embed_dim, heads=heads, head_dim=width),)
    gate = scope.matmul("gate", "output_gate", bias=bias, embed=embed_dim, heads=spec.num_heads, head_dim=width)
    key = scope.matmul("key", "key_proj", bias=bias, embed=embed_dim, kv_heads=spec.num_kv_heads, head_dim=width)
    value = scope.matmul(
        "value", "value_proj", bias=bias, embed=embed_dim, kv_heads=spec.num_kv_heads, head_dim=_v_head_dim(spec)
    )
    return (
        *_query(scope, spec, embed_dim),
        *((gate,) if spec.output_gate else ()),
        *((key,) if spec.own_kv else ()),
        *((value,) if spec.own_kv and not spec.shared_kv_projection else ()),
    )


def _query(scope: Scope, spec: AttentionSpec, embed_dim: int) -> tuple[Operation, ...]:
    """One matmul, or two with a norm between them; and a gate of one element per head, if any."""
    heads, width, rank = spec.num_heads, spec.head_dim, spec.query_rank
    gate = (scope.matmul("head_gate", "head_gate", embed=embed_dim, heads=heads),) if spec.head_gate else ()
    if rank is None:
        return (
            scope.matmul("query", "query_proj", bias=spec.qkv_bias, embed=embed_dim, heads=heads, head_dim=width),
            *gate,
        )
    return (
        scope.matmul("query_down", "query_wa_proj", embed=embed_dim, q_lora=rank),
        scope.norm("query_norm", NormSpec(), rank, saved_as="mla_q"),
        scope.matmul("query", "query_proj", q_lora=rank, heads=heads, head_dim=width),
        *gate,
    )


def _query_key_pass(scope: Scope, spec: AttentionSpec) -> tuple[Elementwise, ...]:
    """Norms of q and k and the rotary embedding: one pass over both, when there is either."""
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim * spec.own_kv
    rotary = Elementwise(
        path=scope.path("rotary"),
        read_elements=query + key,
        write_elements=query + key,
        flops_per_token=ROTARY_FLOPS * (query + key),
        axes=("heads",),
    )
    if spec.qk_norm is None:
        return (rotary,) if spec.rotary else ()
    kind, whole = spec.qk_norm_spec, spec.qk_norm == "full"
    query_scales = scope.norm_weights("qk_norm/query", kind, query if whole else spec.head_dim)
    key_scales = scope.norm_weights("qk_norm/key", kind, key if whole else spec.head_dim) if key else ()
    norm = replace(
        rotary,
        path=scope.path("qk_norm"),
        flops_per_token=norm_flops(kind, query + key),
        weights=query_scales + key_scales,
    )
    return (norm, replace(rotary, read_elements=0, write_elements=0)) if spec.rotary else (norm,)


def _scores(scope: Scope, spec: AttentionSpec) -> Attention:
    v_head_dim = _v_head_dim(spec)
    return Attention(
        path=scope.path("scores"),
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        qk_head_dim=spec.head_dim,
        v_head_dim=v_head_dim,
        span=spec.span,
        output=Activation(name="context", axes=("heads", "head_dim"), shape=(spec.num_heads, v_head_dim)),
        cache_elements=spec.num_kv_heads * (spec.head_dim + v_head_dim),
        sinks=scope.weight("scores/sinks", heads=spec.num_heads) if spec.sinks else None,
        cached=spec.own_kv and not spec.cross,
        selected_keys=spec.indexer.top_k if spec.indexer else 0,
    )


def _output_gate(scope: Scope, spec: AttentionSpec) -> tuple[Elementwise]:
    width = spec.num_heads * _v_head_dim(spec)
    gates = width if spec.output_gate else spec.num_heads
    return (
        Elementwise(
            path=scope.path("output_gate"),
            read_elements=width + gates,
            write_elements=width,
            flops_per_token=(SIGMOID_FLOPS + 1) * width,
            axes=("heads",),
        ),
    )


def mla_operations(scope: Scope, spec: MlaSpec, *, embed_dim: int) -> tuple[Operation, ...]:
    """Low-rank projections, their norms, up-projections, attention, output projection.

    Source: DeepSeek-V2 (arXiv:2405.04434) section 2.1; the unabsorbed form that training and prefill use.
    """
    return (
        *_mla_query(scope, spec, embed_dim),
        *_mla_key_value(scope, spec, embed_dim),
        *(_indexer(scope.under("indexer"), spec, spec.indexer, embed_dim) if spec.indexer else ()),
        _mla_scores(scope, spec),
        scope.matmul(
            "out",
            "out_proj",
            contracted=2,
            bias=spec.bias,
            heads=spec.num_heads,
            head_dim=spec.v_head_dim,
            embed=embed_dim,
        ),
    )


def _mla_query(scope: Scope, spec: MlaSpec, embed_dim: int) -> tuple[Operation, ...]:
    heads, width, rank = spec.num_heads, spec.qk_nope_head_dim + spec.qk_rope_head_dim, spec.q_lora_rank
    if rank is None:
        return (scope.matmul("query", "query_proj", embed=embed_dim, heads=heads, head_dim=width),)
    return (
        scope.matmul("query_down", "query_wa_proj", bias=spec.bias, embed=embed_dim, q_lora=rank),
        scope.norm("query_norm", NormSpec(), rank, saved_as="mla_q"),
        scope.matmul("query_up", "query_proj", q_lora=rank, heads=heads, head_dim=width),
    )


def _mla_key_value(scope: Scope, spec: MlaSpec, embed_dim: int) -> tuple[Operation, ...]:
    heads, rank, nope, rope = spec.num_heads, spec.kv_lora_rank, spec.qk_nope_head_dim, spec.qk_rope_head_dim
    key = scope.matmul("key_up", "key_proj", kv_lora=rank, heads=heads, head_dim=nope)
    # The key that is kept carries the position part too, the same for every head.
    key = replace(key, output=replace(key.output, shape=(heads, nope + rope)))
    return (
        scope.matmul("kv_down", "kv_wa_proj", bias=spec.bias, embed=embed_dim, kv_lora=rank + rope),
        scope.norm("kv_norm", NormSpec(), rank, saved_as="mla_kv"),
        key,
        scope.matmul("value_up", "value_proj", kv_lora=rank, heads=heads, head_dim=spec.v_head_dim),
        Elementwise(
            path=scope.path("rotary"),
            read_elements=(heads + 1) * rope,
            write_elements=(heads + 1) * rope,
            flops_per_token=ROTARY_FLOPS * (heads + 1) * rope,
            axes=("heads",),
        ),
    )


def _mla_scores(scope: Scope, spec: MlaSpec) -> Attention:
    return Attention(
        path=scope.path("scores"),
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_heads,
        qk_head_dim=spec.qk_nope_head_dim + spec.qk_rope_head_dim,
        v_head_dim=spec.v_head_dim,
        span=Span(),
        output=Activation(name="context", axes=("heads", "head_dim"), shape=(spec.num_heads, spec.v_head_dim)),
        cache_elements=spec.kv_lora_rank + spec.qk_rope_head_dim,
        selected_keys=spec.selected_keys or (spec.indexer.top_k if spec.indexer else 0),
    )


def _indexer(scope: Scope, mla: MlaSpec, spec: IndexerSpec, embed_dim: int) -> tuple[Operation, ...]:
    """A small multi-query scorer over all earlier keys; attention then reads only the best.

    Source: DeepSeek-V3.2 report (arXiv:2512.02556) section 2.1.
    """
    query = (
        scope.matmul("query", "indexer_query", embed=embed_dim, heads=spec.num_heads, head_dim=spec.head_dim)
        if mla.q_lora_rank is None
        else scope.matmul(
            "query", "indexer_query", q_lora=mla.q_lora_rank, heads=spec.num_heads, head_dim=spec.head_dim
        )
    )
    return (
        query,
        scope.matmul("key", "indexer_key", embed=embed_dim, head_dim=spec.head_dim),
        scope.norm("key_norm", _LAYER_NORM, spec.head_dim),
        scope.matmul("head_weights", "indexer_weights", quantizable=False, embed=embed_dim, heads=spec.num_heads),
        _index_scores(scope, spec),
    )


def _block_indexer(scope: Scope, spec: IndexerSpec, embed_dim: int) -> tuple[Operation, ...]:
    """The same for grouped-query attention: normed queries and one key, without weights for the heads."""
    query = scope.matmul("query", "indexer_query", embed=embed_dim, heads=spec.num_heads, head_dim=spec.head_dim)
    width = spec.num_heads * spec.head_dim
    query_norm = replace(scope.norm("query_norm", NormSpec(), spec.head_dim), read_elements=width, write_elements=width)
    return (
        query,
        query_norm,
        scope.matmul("key", "indexer_key", embed=embed_dim, head_dim=spec.head_dim),
        scope.norm("key_norm", NormSpec(), spec.head_dim),
        _index_scores(scope, spec),
    )


def _index_scores(scope: Scope, spec: IndexerSpec) -> Attention:
    return Attention(
        path=scope.path("scores"),
        num_heads=spec.num_heads,
        num_kv_heads=1,
        qk_head_dim=spec.head_dim,
        v_head_dim=0,
        span=Span(),
        output=Activation(name="indexer_cutoff_threshold", axes=("unit",), shape=(1,)),
        cache_elements=spec.head_dim,
    )
