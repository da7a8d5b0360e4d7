"""Tiny models of the families that our program knows, in the form of the zoo's files."""

from __future__ import annotations

from typing import Any

_SIZES: dict[str, Any] = {"name": "tiny", "embed_dim": 32, "vocab_size": 64}
_GQA = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 8}

PLAIN: dict[str, dict[str, Any]] = {
    "multi-head (GPT)": _SIZES
    | {
        "num_layers": 2,
        "attention": {"num_heads": 4, "num_kv_heads": 4, "head_dim": 8, "qkv_bias": True, "out_bias": True}
        | {"rotary": False},
        "mlp": {"mlp_dim": 128, "gated": False, "bias": True},
        "norm": {"bias": True},
        "max_position_embeddings": 16,
        "tied_embeddings": True,
    },
    "multi-query": _SIZES
    | {
        "num_layers": 2,
        "attention": {"num_heads": 4, "num_kv_heads": 1, "head_dim": 8},
        "mlp": {"mlp_dim": 64},
    },
    "mixture of experts (Mixtral)": _SIZES
    | {
        "num_layers": 2,
        "attention": _GQA,
        "moe": {"num_experts": 4, "top_k": 2, "expert_mlp_dim": 16},
    },
}
"""Families of equal layers, whose gradients other tests look at."""

FAMILIES: dict[str, dict[str, Any]] = {
    "local-global (Gemma 3)": _SIZES
    | {
        "num_layers": 5,
        "pattern": ["local", "global"],
        "attention": {**_GQA, "qk_norm": "head"},
        "layer": {"local": {"attention": {"span": {"kind": "sliding", "window": 5}}}},
        "mlp": {"mlp_dim": 64},
        "post_norm": True,
        "tied_embeddings": True,
    },
    "chunked, sinks and gates, norms after blocks only": _SIZES
    | {
        "num_layers": 2,
        "pre_norms": 0,
        "post_norm": True,
        "pattern": ["chunked", "global"],
        "attention": {**_GQA, "sinks": True, "output_gate": True, "query_rank": 8, "shared_kv_projection": True},
        "layer": {"chunked": {"attention": {"span": {"kind": "chunked", "window": 6}}}},
        "mlp": {"mlp_dim": 64, "fused": True},
    },
    "latent attention, experts with shared ones (DeepSeek)": _SIZES
    | {
        "num_layers": 3,
        "leading": ["dense"],
        "pattern": ["moe"],
        "mla": {
            "num_heads": 4,
            "q_lora_rank": 24,
            "kv_lora_rank": 16,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 12,
        },
        "moe": {"num_experts": 4, "top_k": 2, "expert_mlp_dim": 16, "shared_mlp_dim": 32, "shared_gate": True},
        "layer": {"dense": {"mlp": {"mlp_dim": 64}}},
    },
    "parallel and plain (Falcon)": _SIZES
    | {
        "num_layers": 2,
        "parallel": True,
        "pre_norms": 1,
        "attention": {**_GQA, "fused_qkv": True},
        "mlp": {"mlp_dim": 64, "gated": False},
        "norm": {"bias": True},
    },
    "parallel behind two norms, all heads normed": _SIZES
    | {
        "num_layers": 2,
        "parallel": True,
        "attention": {**_GQA, "qk_norm": "full", "v_head_dim": 12, "head_gate": True},
        "mlp": {"mlp_dim": 64},
        "embedding_norm": {"bias": True},
        "embedding_dim": 16,
        "logits_bias": True,
    },
}
"""Families of several kinds of layer or of attention."""
