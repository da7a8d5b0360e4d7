"""Which part of a config.json describes the decoder, and of which family it is; or why it is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from ridgeline.errors import InputError, nearest
from ridgeline.model.huggingface.config import Config, canonical
from ridgeline.model.huggingface.families import FAMILIES, family_defaults
from ridgeline.model.huggingface.names import GENERATES, OTHER_PARTS, REFUSED, SAME_AS, SECTIONS, UNREAD_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.model.huggingface.json_file import Json

_LLAMA_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size")
_FALLBACK = "llama"
_DEEPEST = 3
"""Sections within sections: `thinker_config.text_config` is the deepest met."""


def decoder_section(content: Mapping[str, Json], *, where: str) -> tuple[Config, tuple[str, ...]]:
    """The decoder's own values, and notes on how they were found.

    Args:
        content: The whole file.
        where: The file, for messages.
    """
    _refuse_other_files(content, where)
    key, section = _language_model(content)
    types = [found for part in (section, content) if (found := _text(part, "model_type"))]
    for model_type in types:
        _refuse_type(model_type, where)
    if content.get("is_encoder_decoder") is True or section.get("is_encoder_decoder") is True:
        _refuse("it is an encoder-decoder; Ridgeline plans decoders", where, "is_encoder_decoder = true")
    values = canonical(section)
    if content.get("tie_word_embeddings") is not None:
        values["tie_word_embeddings"] = content["tie_word_embeddings"]
    where = f"{where}: {key}" if key else where
    name, notes = _family_name(types, content, values, where)
    defaults = canonical(_plain(family_defaults(name)))
    config = Config(
        where=where,
        family=FAMILIES[name],
        values={**defaults, **values},
        defaulted=tuple(key for key in _LLAMA_KEYS if key in defaults and key not in values),
    )
    others = [part for part in OTHER_PARTS if content.get(part)]
    left_out = (f"only the language model is read; left out: {', '.join(others)}",) if others else ()
    return config, (*notes, *left_out)


def _refuse_other_files(content: Mapping[str, Json], where: str) -> None:
    """Files beside a model's config that are easily taken for it."""
    if "peft_type" in content:
        _refuse("it is an adapter's config; the base model's is needed", where, f"peft_type = {content['peft_type']}")
    if "_class_name" in content and "model_type" not in content:
        _refuse("it is a diffusion model, not a language model", where, f"_class_name = {content['_class_name']}")
    if "weight_map" in content:
        _refuse("it is the index of a checkpoint, not a config", where, "weight_map")


def _refuse_type(model_type: str, where: str) -> None:
    if model_type in REFUSED:
        _refuse(REFUSED[model_type], where, f"model_type = {model_type}")


def _language_model(content: Mapping[str, Json]) -> tuple[str, Mapping[str, Json]]:
    """The nested object that describes the language model, with its key; the file itself when there is none."""
    keys: list[str] = []
    inner = content
    for _ in range(_DEEPEST):
        nested = [(key, part) for key in SECTIONS if isinstance(part := inner.get(key), dict) and part]
        if not nested:
            break
        key, inner = nested[0]
        keys.append(key)
    return ".".join(keys), inner


def _family_name(
    types: list[str], content: Mapping[str, Json], values: Mapping[str, Json], where: str
) -> tuple[str, tuple[str, ...]]:
    """The family, by the section's type, then the file's, then the class names; else Llama, with a note."""
    classes = _classes(content)
    for model_type in (*types, *(_guessed_type(name) for name in classes)):
        name = SAME_AS.get(model_type, model_type)
        if name in FAMILIES:
            return name, ()
    shown = types[0] if types else "(no model_type)"
    if classes and not any(word in name for name in classes for word in GENERATES):
        _refuse("it has no language-model head", where, f"architectures = {', '.join(classes)}")
    unread = [key for key in values if key.startswith(UNREAD_KEYS)]
    if unread:
        _refuse(f"its family is not known and {unread[0]} tells of layers unlike Llama's", where, shown)
    missing = [key for key in _LLAMA_KEYS if values.get(key) is None and key != "intermediate_size"]
    if missing or not (values.get("intermediate_size") or values.get("moe_intermediate_size")):
        guess = nearest(shown, FAMILIES)
        _refuse(f"its family is not known and it lacks {(missing or ['intermediate_size'])[0]}", where, shown, guess)
    return _FALLBACK, (f"model_type {shown} is not known: read as a Llama-like decoder",)


def _guessed_type(class_name: str) -> str:
    """`Qwen2MoeForCausalLM` to `qwen2_moe`.

    >>> _guessed_type("Qwen2MoeForCausalLM"), _guessed_type("GPT2LMHeadModel")
    ('qwen2_moe', 'gpt2')
    """
    stem = re.split(r"For[A-Z]|LMHead|Model$", class_name)[0]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()
    return snake.replace("_", "") if snake.replace("_", "") in FAMILIES else snake


def _classes(content: Mapping[str, Json]) -> tuple[str, ...]:
    classes = content.get("architectures")
    return tuple(name for name in classes if isinstance(name, str)) if isinstance(classes, list) else ()


def _text(part: Mapping[str, Json], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""


def _plain(defaults: Mapping[str, object]) -> dict[str, Json]:
    """TOML values are JSON values; only their type is wider."""
    return {key: value for key, value in defaults.items() if isinstance(value, dict | list | str | int | float)}


def _refuse(reason: str, where: str, value: str, guess: str = "") -> NoReturn:
    raise InputError(
        f"this config.json cannot be planned: {reason}",
        where=where,
        value=value,
        expected="a decoder-only language model (GPT, Llama, Mixtral, DeepSeek, Jamba, …)",
        fix=guess or "give the config.json of a decoder, or describe the model in a job file's [model] table",
    )
