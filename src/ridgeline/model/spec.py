"""What a decoder is made of: one frozen record per choice an architecture makes.

A model is a list of (layer, count); a layer is a sequence mixer (attention, MLA, Mamba, gated delta,
or none) and a channel mixer (MLP, mixture of experts, or none) with their norms. Every architecture we
read is a composition of these; none has a class of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ridgeline.model.operations import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NormSpec:
    """A normalisation: a scale of the normalised width, and a bias if `bias`; `scale=False` has neither."""

    scale: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerSpec:
    """Sparse attention's scorer: a few small heads pick `top_k` keys for each query."""

    num_heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """Multi-head, grouped-query or multi-query attention.

    Attributes:
        num_heads: N.
        num_kv_heads: K (N for MHA, 1 for MQA).
        head_dim: H of queries and keys.
        v_head_dim: H of values; None means `head_dim`.
        span: Which keys a query sees.
        qkv_bias: Biases on the three input projections.
        out_bias: Bias on the output projection.
        qk_norm: None, `head` (a scale of head_dim, for q and for k) or `full` (of N·H and K·H).
        qk_norm_spec: Its kind of norm.
        fused_qkv: One matmul for q, k and v (MaxText's `qkv_proj`).
        query_rank: Width of a low-rank, normalised query projection (Step-3); None projects directly.
        output_gate: A gate of N·H elements computed beside the query (Qwen3-Next).
        head_gate: A gate of one element per head (Step-3.7).
        sinks: A learned logit per head (gpt-oss).
        own_kv: False where keys and values come from an earlier layer (Gemma 3n), which has no K and V weights here.
        shared_kv_projection: V reuses K's projection (Gemma 4's global layers).
        cross: Keys and values come from another modality (Llama 3.2 Vision).
        rotary: Queries and keys are rotated by position; False for learned positions, ALiBi and NoPE layers.
        indexer: A scorer that picks the blocks of keys a query reads (MiniMax-M3), if any.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    span: Span = field(default_factory=Span)
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["head", "full"] | None = None
    qk_norm_spec: NormSpec = field(default_factory=NormSpec)
    fused_qkv: bool = False
    query_rank: int | None = None
    output_gate: bool = False
    head_gate: bool = False
    sinks: bool = False
    own_kv: bool = True
    shared_kv_projection: bool = False
    cross: bool = False
    rotary: bool = True
    indexer: IndexerSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaSpec:
    """Multi-head latent attention (DeepSeek).

    Attributes:
        num_heads: N.
        q_lora_rank: Width of the query's latent; None projects queries directly.
        kv_lora_rank: Width of the latent that is cached.
        qk_nope_head_dim: Width of q and k without position.
        qk_rope_head_dim: Width with position (shared by all heads on the key side).
        v_head_dim: Width of v.
        bias: Biases on the down-projections and the output.
        indexer: Sparse attention's scorer, if any.
        selected_keys: Keys a query reads at most, picked here or in an earlier layer; 0 for all.
    """

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    bias: bool = False
    indexer: IndexerSpec | None = None
    selected_keys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttentionSpec:
    """One key-value head over a window of tokens and over compressed keys beyond it (DeepSeek-V4).

    Attributes:
        num_heads: N.
        head_dim: H; key and value are the same vector.
        q_lora_rank: Width of the query's latent.
        output_groups: Groups of heads that are projected apart before the output projection.
        output_rank: Width that each group is projected to.
        window: Tokens whose own keys a query sees.
        tokens_per_key: Tokens merged into one compressed key; 0 for a window alone.
        indexer: The scorer that picks compressed keys, if any.
    """

    num_heads: int
    head_dim: int
    q_lora_rank: int
    output_groups: int
    output_rank: int
    window: int
    tokens_per_key: int = 0
    indexer: IndexerSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSpec:
    """A selective state-space layer.

    Attributes:
        version: 1 (Jamba) or 2 (Nemotron-H, with heads and groups).
        inner_dim: Expanded width.
        state_dim: N of the state.
        conv_kernel: Width of the short convolution.
        conv_bias: Bias of the convolution.
        dt_rank: Rank of the step-size projection (version 1).
        num_heads: Version 2.
        num_groups: Version 2.
        proj_bias: Biases of in and out projections.
        inner_norms: Version 1 with norms on dt, B and C (Jamba).
        gate_norm: Version 2 with a norm after the gate.
        chunk_tokens: Q of the chunked scan (version 2).
    """

    version: Literal[1, 2]
    inner_dim: int
    state_dim: int
    conv_kernel: int
    conv_bias: bool = True
    dt_rank: int = 0
    num_heads: int = 0
    num_groups: int = 1
    proj_bias: bool = False
    inner_norms: bool = False
    gate_norm: bool = True
    chunk_tokens: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaSpec:
    """Gated delta rule linear attention (Qwen3-Next)."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    chunk_tokens: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSpec:
    """A feed-forward block: gated (three matrices) or plain (two)."""

    mlp_dim: int
    gated: bool = True
    bias: bool = False
    fused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeSpec:
    """A mixture of experts.

    Attributes:
        num_experts: E, routed.
        top_k: Experts a token visits.
        expert_mlp_dim: F of one expert.
        gated: Three matrices per expert, or two.
        shared_mlp_dim: F of the always-active shared experts together; 0 for none.
        shared_gate: A learned scalar gate on the shared expert (Qwen).
        router_bias: Bias of the router's matmul.
        bias: Biases inside experts (gpt-oss).
        score_correction: A trained per-expert offset used for choosing only (DeepSeek's is not trained).
        dense_mlp_dim: F of a dense MLP that runs beside the experts (Gemma 4, Arctic); 0 for none.
        latent_dim: Width to which tokens are projected before they travel to experts (Nemotron 3 Super); None for D.
    """

    num_experts: int
    top_k: int
    expert_mlp_dim: int
    gated: bool = True
    shared_mlp_dim: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    bias: bool = False
    score_correction: bool = False
    dense_mlp_dim: int = 0
    latent_dim: int | None = None


MixerSpec: TypeAlias = AttentionSpec | MlaSpec | CompressedAttentionSpec | MambaSpec | GatedDeltaSpec
ChannelSpec: TypeAlias = MlpSpec | MoeSpec

StoredDtype: TypeAlias = Literal["bf16", "fp8", "int8", "int4", "fp4", "mxfp4"]
"""What checkpoints hold weights in, and engines compute with."""

INT4_GROUP_SIZE: Final = 128
"""Weights that share a scale where nothing is said: the default of AutoAWQ, GPTQModel and compressed-tensors' W4A16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpec:
    """How a published checkpoint that is narrower than bf16 holds its weights; training does not follow it.

    Attributes:
        weights: Of matrices. The embedding, the head and norms stay in bf16.
        experts: Of MLPs and experts, where these alone are narrowed, or more than the rest; None for as `weights`.
        compute: What engines narrow a matmul's activations to, as the checkpoint was made for; bf16 for as they are.
        kv_cache: Of keys and values, where scales for a narrow cache are published too; None for bf16.
        source: Where the checkpoint says so.
        group_size: Weights of int4 that share a scale.
    """

    weights: StoredDtype = "bf16"
    experts: StoredDtype | None = None
    compute: StoredDtype = "bf16"
    kv_cache: StoredDtype | None = None
    source: str = "its config.json"
    group_size: int = INT4_GROUP_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One decoder layer.

    Attributes:
        mixer: Sequence mixer, or None.
        mlp: Channel mixer, or None.
        norm: Kind of its norms.
        pre_norms: Norms before each branch; 1 with `parallel` when both branches share it.
        post_norm: A norm after each branch too (Gemma 2 and later).
        parallel: Both branches read the same input and are added together (GPT-J, PaLM, Falcon).
        beside: A second sequence mixer that reads the same input and is added to the first (Falcon-H1).
        per_layer_dim: Width of the token's own input to this layer (Gemma 3n, Gemma 4); 0 for none.
        altup_streams: Copies of the residual stream that are mixed around the layer (Gemma 3n); 0 for one.
        laurel_rank: Rank of the learned residual beside attention (Gemma 3n); 0 for none.
        hyper_streams: Residual streams of hyper-connections (DeepSeek-V4); 0 for a plain residual.
        extra_scales: Further trained scalars or vectors, in elements (rare oddities, each named in the reader).
    """

    mixer: MixerSpec | None
    mlp: ChannelSpec | None
    norm: NormSpec = field(default_factory=NormSpec)
    pre_norms: int = 2
    post_norm: bool = False
    parallel: bool = False
    beside: MixerSpec | None = None
    per_layer_dim: int = 0
    altup_streams: int = 0
    laurel_rank: int = 0
    hyper_streams: int = 0
    extra_scales: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A decoder.

    Attributes:
        name: Zoo name, or the name of the file it was read from.
        embed_dim: D.
        vocab_size: V.
        layers: (layer, how many), in order; equal neighbours are joined.
        tied_embeddings: Logits reuse the embedding table.
        final_norm: After the last layer; None for none.
        embedding_norm: After the lookup (BLOOM); None for none.
        max_position_embeddings: Rows of a learned position table; 0 for none.
        embedding_dim: Width of the table when it differs from D (OPT-350m); None for D.
        embedding_rows: Rows of the table when they are not V (Llama 3.2 Vision); None for V.
        per_layer_vocab_size: Rows of the table of per-layer inputs (Gemma 3n); 0 for none.
        logits_bias: Bias of the logits matmul (GPT-J, Phi).
        context_length: Longest sequence the model was made for; 0 when not stated.
        mtp_layers: Multi-token-prediction modules that exist beside the model (noted, not counted).
        mtp_depth: Such modules that run: further tokens that each position predicts in training, counted.
        stored: How its published checkpoint holds the weights; None for bf16, or for what is not known.
        notes: What a reader should know (assumed defaults, parts left out).
    """

    name: str
    embed_dim: int
    vocab_size: int
    layers: tuple[tuple[LayerSpec, int], ...]
    tied_embeddings: bool = False
    final_norm: NormSpec | None = field(default_factory=NormSpec)
    embedding_norm: NormSpec | None = None
    max_position_embeddings: int = 0
    embedding_dim: int | None = None
    embedding_rows: int | None = None
    per_layer_vocab_size: int = 0
    logits_bias: bool = False
    context_length: int = 0
    mtp_layers: int = 0
    mtp_depth: int = 0
    stored: StoredSpec | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return sum(count for _, count in self.layers)
