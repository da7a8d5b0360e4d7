"""From a config.json to a `ModelSpec`: the whole model, layer by layer."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from ridgeline.model.huggingface.channels import channel
from ridgeline.model.huggingface.json_file import load_object
from ridgeline.model.huggingface.mixers import linear_mixer, mixer
from ridgeline.model.huggingface.nas import searched_layers
from ridgeline.model.huggingface.patterns import places
from ridgeline.model.huggingface.quantization import stored_weights
from ridgeline.model.huggingface.section import decoder_section
from ridgeline.model.spec import LayerSpec, ModelSpec, MoeSpec, NormSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ridgeline.model.huggingface.config import Config
    from ridgeline.model.huggingface.json_file import Json
    from ridgeline.model.huggingface.patterns import Place

_ROWS_FOR_IMAGES = 8
"""Rows that Llama 3.2 Vision's table has beyond the vocabulary."""


def read_config(path: Path) -> ModelSpec:
    """The decoder that a Hugging Face config.json describes.

    A `model_type` that is known is read as its family's own code builds it. One that is not, but whose keys
    are those of a Llama-like decoder, is read as one; the spec's notes say so. Parts that are not the
    language model (vision and audio towers, multi-token-prediction heads) are left out, and noted.

    Args:
        path: The file; the model is named after it, or after its folder when it is called config.json.

    Raises:
        InputError: The file cannot be read, does not describe a decoder with attention, or has values
            that no model can have.
    """
    content = load_object(path)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return spec_from_object(content, name=name or path.stem, where=str(path))


def spec_from_object(content: Mapping[str, Json], *, name: str, where: str) -> ModelSpec:
    """The decoder that a config's content describes; `read_config` without the disk."""
    config, notes = decoder_section(content, where=where)
    layers = searched_layers(config) or tuple(_layer(config, place) for place in places(config))
    width, vocab = config.count("hidden_size"), config.count("vocab_size")
    table_width = config.count("word_embed_proj_dim", width)
    has_images = config.has("cross_attention_layers")
    mtp_layers = config.count("mtp_layers", 0, least=0)
    stored, of_stored = stored_weights(
        content, config, has_experts=any(isinstance(layer.mlp, MoeSpec) for layer in layers)
    )
    return ModelSpec(
        name=name,
        embed_dim=width,
        vocab_size=vocab,
        layers=tuple((layer, len(list(run))) for layer, run in groupby(layers)),
        tied_embeddings=config.flag("tie_word_embeddings"),
        final_norm=_final_norm(config),
        embedding_norm=_norm(config) if config.family.embedding_norm else None,
        max_position_embeddings=_position_rows(config),
        embedding_dim=None if table_width == width else table_width,
        embedding_rows=vocab + _ROWS_FOR_IMAGES if has_images else None,
        per_layer_vocab_size=config.count("vocab_size_per_layer_input", vocab) if layers[0].per_layer_dim else 0,
        logits_bias=config.decides(config.family.logits_bias),
        context_length=config.count("max_position_embeddings", 0, least=0),
        mtp_layers=mtp_layers,
        stored=stored,
        notes=(*notes, *_notes(config, mtp_layers=mtp_layers), *of_stored),
    )


def _layer(config: Config, place: Place) -> LayerSpec:
    """Both halves of the layer at a place, and its norms."""
    family = config.family
    parallel = config.decides(family.parallel)
    return LayerSpec(
        mixer=mixer(config, place),
        mlp=channel(config, place),
        norm=_norm(config),
        pre_norms=_parallel_norms(config) if parallel else family.pre_norms,
        post_norm=config.decides(family.post_norm),
        parallel=parallel,
        beside=linear_mixer(config) if place.mixer == "both" else None,
        per_layer_dim=config.count("hidden_size_per_layer_input", 0, least=0),
        altup_streams=config.count("altup_num_inputs", 0, least=0),
        laurel_rank=config.count("laurel_rank", 0, least=0),
        hyper_streams=config.count("hc_mult", 0, least=0),
        extra_scales=_extra_scales(config, place),
    )


def _parallel_norms(config: Config) -> int:
    """Falcon's newer architecture has a norm for each branch."""
    own = 2 if config.flag("new_decoder_architecture") else config.family.parallel_norms
    return config.count("num_ln_in_parallel_attn", own)


def _extra_scales(config: Config, place: Place) -> int:
    """Trained elements that no operation of the tree has a place for."""
    width, elements = config.count("hidden_size"), config.family.extra_scales
    if place.mixer == "cross":
        elements += 2  # Llama 3.2 Vision: a gate on each branch.
    if place.channel == "moe" and config.flag("enable_moe_block"):
        # Gemma 4: three more norms around the experts, the router's scale, one scale per expert.
        elements += 4 * width + config.count("num_experts")
    if place.channel == "moe" and config.flag("parallel_attn_mlp_res"):
        elements += width  # Arctic: the norm before the dense MLP.
    return elements


def _norm(config: Config) -> NormSpec:
    plain = not config.flag("layer_norm_elementwise_affine", default=True)
    return NormSpec(scale=False) if plain else config.family.norm


def _final_norm(config: Config) -> NormSpec | None:
    """OPT's post-norm variant, and files that say so, have none."""
    has_one = (
        config.flag("do_layer_norm_before", default=True)
        and not config.flag("_remove_final_layer_norm")
        and config.flag("post_layer_norm", default=True)
    )
    return _norm(config) if has_one else None


def _position_rows(config: Config) -> int:
    """Rows of a learned position table."""
    beyond = config.family.learned_positions
    return 0 if beyond is None else config.count("max_position_embeddings") + beyond


def _notes(config: Config, *, mtp_layers: int) -> tuple[str, ...]:
    """What a reader of the answer should know of the decoder itself."""
    notes: list[str] = []
    if config.defaulted:
        notes.append(f"not in the file, taken from the family's defaults: {', '.join(config.defaulted)}")
    if mtp_layers:
        notes.append(f"{mtp_layers} multi-token-prediction layer(s) are not counted")
    if config.has("cross_attention_layers"):
        notes.append("cross-attention layers are counted as if every token had an image token to attend to")
    return tuple(notes)
