"""A job's model in MaxText's words: the name of its own file, or dimensions for one of its decoder blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from ridgeline.model.zoo import load_model, model_names

if TYPE_CHECKING:
    from ridgeline.export.maxtext_version import Value
    from ridgeline.job.serving import AnyJob

_FEWER_LAYERS = {"base", "name", "num_layers"}

_NOT_SCANNED: Final = frozenset({"gemma4-e2b", "gemma4-e4b", "qwen3-vl-2b", "qwen3-vl-4b"})
"""Models whose layers MaxText refuses to scan. Source: the checks in configs/types.py of MaxText 0.2.5."""

_COUNTED_IN_PAIRS: Final = "gemma2"
"""The decoder block whose number of layers MaxText counts in pairs of a local and a global one."""


def model_settings(job: AnyJob) -> dict[str, Value]:
    """The keys that describe a job's model.

    Raises:
        InputError: MaxText has neither the model nor a decoder block of its kind.
    """
    if (name := _known_name(job.model)) is not None:
        return _known(name) | _prediction(job.model)
    table = job.model_table
    if table is not None and "base" in table and set(table) <= _FEWER_LAYERS:
        base = load_model(str(table["base"])).name
        if base in maxtext_version().models:
            return _known(base) | {"base_num_decoder_layers": _layers(base, job.model)}
    return {"model_name": "default", **_dimensions(job.model), **_prediction(job.model)}


def _known(name: str) -> dict[str, Value]:
    """A model that MaxText has a file for."""
    return {"model_name": name, **({"scan_layers": False} if name in _NOT_SCANNED else {})}


def _prediction(model: ModelSpec) -> dict[str, Value]:
    """Modules that predict further tokens, if any run."""
    return {"mtp_num_layers": model.mtp_depth} if model.mtp_depth else {}


def _layers(base: str, model: ModelSpec) -> int:
    """A number of layers as MaxText counts them."""
    if not base.startswith(_COUNTED_IN_PAIRS):
        return model.num_layers
    if model.num_layers % 2:
        raise InputError(
            "MaxText has the layers of Gemma 2 in pairs",
            where="model.num_layers",
            value=model.num_layers,
            expected="an even number",
            fix=f"use {model.num_layers + 1}",
        )
    return model.num_layers // 2


def _known_name(model: ModelSpec) -> str | None:
    """The name of a model of the same architecture that MaxText has a file for."""
    known = [name for name in model_names() if name in maxtext_version().models]
    candidates = [model.name] if model.name in known else known
    return next((name for name in candidates if _architecture(load_model(name)) == _architecture(model)), None)


def _architecture(model: ModelSpec) -> ModelSpec:
    """A model without what says nothing of its operations."""
    return replace(model, name="", notes=(), context_length=0, mtp_layers=0, mtp_depth=0)


def _dimensions(model: ModelSpec) -> dict[str, Value]:
    """Dimensions of a decoder block: llama2, qwen2, qwen3, mixtral or qwen3_moe."""
    layer, layers = model.layers[0]
    mixer, mlp = layer.mixer, layer.mlp
    if not isinstance(mixer, AttentionSpec) or mlp is None:
        raise _unknown(model)
    plain_mixer = AttentionSpec(
        num_heads=mixer.num_heads,
        num_kv_heads=mixer.num_kv_heads,
        head_dim=mixer.head_dim,
        qkv_bias=mixer.qkv_bias,
        qk_norm=mixer.qk_norm,
    )
    plain_layer = LayerSpec(mixer=plain_mixer, mlp=_plain(mlp))
    plain_model = ModelSpec(
        name="",
        embed_dim=model.embed_dim,
        vocab_size=model.vocab_size,
        layers=((plain_layer, layers),),
        tied_embeddings=model.tied_embeddings,
    )
    block = _block(plain_mixer, mlp)
    if block is None or _architecture(model) != plain_model:
        raise _unknown(model)
    return {
        "decoder_block": block,
        "base_emb_dim": model.embed_dim,
        "base_num_decoder_layers": layers,
        "base_num_query_heads": mixer.num_heads,
        "base_num_kv_heads": mixer.num_kv_heads,
        "head_dim": mixer.head_dim,
        "vocab_size": model.vocab_size,
        "logits_via_embedding": model.tied_embeddings,
        "attention_bias": mixer.qkv_bias,
        "use_qk_norm": mixer.qk_norm is not None,
        "enable_dropout": False,
        **_mlp(mlp),
    }


def _plain(mlp: MlpSpec | MoeSpec) -> MlpSpec | MoeSpec:
    """The same widths with nothing else."""
    if isinstance(mlp, MlpSpec):
        return MlpSpec(mlp_dim=mlp.mlp_dim)
    return MoeSpec(num_experts=mlp.num_experts, top_k=mlp.top_k, expert_mlp_dim=mlp.expert_mlp_dim)


def _block(mixer: AttentionSpec, mlp: MlpSpec | MoeSpec) -> str | None:
    """MaxText's decoder block of equal layers with RMS norms and gated MLPs; None where it has none."""
    match isinstance(mlp, MoeSpec), mixer.qkv_bias, mixer.qk_norm:
        case False, False, None:
            return "llama2"
        case False, True, None:
            return "qwen2"
        case False, False, "head":
            return "qwen3"
        case True, False, None:
            return "mixtral"
        case True, False, "head":
            return "qwen3_moe"
        case _:
            return None


def _mlp(mlp: MlpSpec | MoeSpec) -> dict[str, Value]:
    if isinstance(mlp, MlpSpec):
        return {"base_mlp_dim": mlp.mlp_dim}
    return {
        "base_mlp_dim": mlp.expert_mlp_dim,
        "base_moe_mlp_dim": mlp.expert_mlp_dim,
        "num_experts": mlp.num_experts,
        "num_experts_per_tok": mlp.top_k,
    }


def _unknown(model: ModelSpec) -> InputError:
    return InputError(
        f"MaxText {maxtext_version().version} has no such model",
        where="model",
        value=model.name,
        expected="a model of MaxText, such a one with fewer layers, or equal layers of grouped-query attention and "
        "gated MLPs or experts",
        fix="choose a model that MaxText has, or `--program ours` to compile this one",
    )
