"""How many FLOPs a training step "has", by whose count: published rates and MFU differ by up to a third.

All count the weights a token meets, forward and twice backward, and leave recomputation out unless said
otherwise. They differ in what a weight is, and in how much of attention's S×S square counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ridgeline.errors import InputError, nearest
from ridgeline.model.accounting import (
    TRAINING_PASSES,
    forward_flops_per_token,
    keys_read,
    operations,
    scores_flops_per_token,
)
from ridgeline.model.operations import Attention, ExpertMatmul, Matmul, Recurrence
from ridgeline.model.parameters import count_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.model.operations import ModelTree


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopConvention:
    """A way of counting.

    Attributes:
        name: What to call it.
        weights: `matmuls` counts what is multiplied (the unembedding once, lookups never); `parameters`
            counts every parameter a token visits, embedding tables and norms included.
        attention: Which query-key pairs count: `causal` those that are seen (windows exact), `half_window`
            the same but half a window instead of almost all of it, `full` the whole square, `none` none.
        layer_passes: Forward and backward passes through the layers; 4 counts full recomputation.
        used_by: Where and when.
        source: Where it is written.
    """

    name: str
    weights: Literal["matmuls", "parameters"]
    attention: Literal["causal", "half_window", "full", "none"]
    used_by: str
    source: str
    layer_passes: int = TRAINING_PASSES


_MAXTEXT = "https://github.com/AI-Hypercomputer/maxtext"

_KNOWN = (
    FlopConvention(
        name="maxtext",
        weights="matmuls",
        attention="causal",
        used_by="MaxText since late 2025 (`TFLOP/s/device`); this planner",
        source=f"{_MAXTEXT}/blob/e591f30cb/src/maxtext/utils/maxtext_utils.py",
    ),
    FlopConvention(
        name="maxtext_2025",
        weights="matmuls",
        attention="half_window",
        used_by="MaxText from July 2025 (v0.1.5, tutorial-v1.3.0); differs from `maxtext` for sliding windows only",
        source=f"{_MAXTEXT}/pull/1988",
    ),
    FlopConvention(
        name="maxtext_2024",
        weights="matmuls",
        attention="full",
        used_by="MaxText from mid 2024 to July 2025 (tpu-recipes v0.1.0 to v0.1.4)",
        source=f"{_MAXTEXT}/blob/2e1ebad7c/MaxText/maxtext_utils.py",
    ),
    FlopConvention(
        name="maxtext_2023",
        weights="parameters",
        attention="causal",
        used_by="MaxText's v5p tables, December 2023 to March 2024",
        source=f"{_MAXTEXT}/blob/76bd53b0f/MaxText/train.py",
    ),
    FlopConvention(
        name="palm",
        weights="parameters",
        attention="full",
        used_by="PaLM, MaxText's v5e tables of October 2023, llm-foundry",
        source="https://arxiv.org/abs/2204.02311, appendix B: 6N + 12·L·H·Q·T",
    ),
    FlopConvention(
        name="six_n_d",
        weights="parameters",
        attention="none",
        used_by="scaling laws; MaxText's v4 tables of April 2023",
        source="https://arxiv.org/abs/2001.08361, section 2.1: 6N",
    ),
    FlopConvention(
        name="megatron",
        weights="matmuls",
        attention="full",
        used_by="Megatron-LM's model FLOPs; the same sum as `maxtext_2024`",
        source="https://arxiv.org/abs/2205.05198, equation 8: 72·L·h²·(1 + s/6h + V/12hL)",
    ),
    FlopConvention(
        name="megatron_hardware",
        weights="matmuls",
        attention="full",
        layer_passes=4,
        used_by="Megatron-LM's achieved TFLOP/s of 2021, full recomputation counted",
        source="https://arxiv.org/abs/2104.04473, section 5.1: 96·L·h²·(1 + s/6h + V/16Lh)",
    ),
)

CONVENTIONS: Final[Mapping[str, FlopConvention]] = {convention.name: convention for convention in _KNOWN}
"""Every convention, by name."""


def flop_convention(name: str, *, where: str) -> FlopConvention:
    """The convention of a name.

    Args:
        name: E.g. `maxtext`.
        where: The flag or key, for the error message.
    """
    if name not in CONVENTIONS:
        known = ", ".join(CONVENTIONS)
        fix = nearest(name, CONVENTIONS) or "use one of those"
        raise InputError("unknown FLOP convention", where=where, value=name, expected=f"one of {known}", fix=fix)
    return CONVENTIONS[name]


def training_flops_per_token(tree: ModelTree, *, seq_len: int, convention: FlopConvention) -> float:
    """FLOPs of one token's share of a training step, as the convention counts them.

    >>> from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
    >>> from ridgeline.model.tree import model_tree
    >>> layer = LayerSpec(mixer=AttentionSpec(num_heads=1, num_kv_heads=1, head_dim=8), mlp=MlpSpec(mlp_dim=16))
    >>> tree = model_tree(ModelSpec(name="tiny", embed_dim=8, vocab_size=32, layers=((layer, 1),)))
    >>> for name in ("maxtext", "maxtext_2024", "six_n_d"):  # matmuls: 4·8·8 + 3·8·16 + 8·32 = 896 weights
    ...     print(name, training_flops_per_token(tree, seq_len=10, convention=CONVENTIONS[name]))
    maxtext 5856.0
    maxtext_2024 6336.0
    six_n_d 7056.0
    """
    attention = sum(
        _passes(path, convention) * num_layers * _attention_flops(operation, seq_len, convention)
        for path, operation, num_layers in operations(tree)
        if isinstance(operation, Attention)
    )
    if convention.weights == "parameters":
        return TRAINING_PASSES * 2 * count_parameters(tree).active + attention
    return attention + sum(
        _passes(path, convention) * num_layers * forward_flops_per_token(operation, seq_len=seq_len)
        for path, operation, num_layers in operations(tree)
        if isinstance(operation, Matmul | ExpertMatmul | Recurrence)
    )


def _passes(path: str, convention: FlopConvention) -> int:
    """The logits are never computed again."""
    return TRAINING_PASSES if path.startswith("head/") else convention.layer_passes


def _attention_flops(operation: Attention, seq_len: int, convention: FlopConvention) -> float:
    """Forward, of one layer and token."""
    span = operation.span
    match convention.attention:
        case "none":
            keys = 0.0
        case "full":
            keys = seq_len / operation.tokens_per_key
        case "causal":
            keys = keys_read(operation, seq_len=seq_len)
        case "half_window":
            keys = min(span.window, seq_len) / 2 if span.kind == "sliding" else keys_read(operation, seq_len=seq_len)
    return scores_flops_per_token(operation, num_keys=keys)
