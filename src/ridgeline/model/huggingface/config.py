"""A config.json under one set of names: aliases resolved, family defaults filled in, values checked.

Names are those of Llama's config (`hidden_size`, `num_key_value_heads`, …) whatever the file calls them.
A key that the file sets to null counts as said (it is not replaced by the family's default).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.model.huggingface.families import Family, Flag
    from ridgeline.model.huggingface.json_file import Json

MOST_LAYERS = 10_000
LARGEST_COUNT = 2**26
"""No dimension of a real model comes near: the widest layer has about 2^17 elements, the largest table 2^19 rows."""

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embed", "hidden_size", "n_embd", "d_model"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": (
        *("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
        *("num_attention_groups", "num_query_groups", "attn_config.kv_n_heads"),
    ),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "intermediate_size": (
        *("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "ffn_config.ffn_hidden_size"),
    ),
    "dense_intermediate_size": ("dense_intermediate_size", "intermediate_size_mlp"),
    "vocab_size": ("padded_vocab_size", "vocab_size"),
    "max_position_embeddings": (
        *("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx", "max_sequence_length"),
    ),
    "sliding_window": ("sliding_window", "window_size", "sliding_window_size"),
    "layer_types": ("layer_types", "layers_block_type"),
    "num_experts": (
        *("num_experts", "n_routed_experts", "moe_num_experts", "num_local_experts", "ffn_config.moe_num_experts"),
    ),
    "num_experts_per_tok": (
        *("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k_experts"),
        *("moe_k", "moe_topk", "moe_top_k", "ffn_config.moe_top_k"),
    ),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "num_shared_experts": (*("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),),
    "shared_expert_intermediate_size": (
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
        *("share_expert_dim", "shared_intermediate_size"),
    ),
    "mtp_layers": ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    "local_num_attention_heads": (
        *("swa_num_attention_heads", "num_sliding_attention_heads", "attention_other_setting.num_attention_heads"),
    ),
    "local_num_key_value_heads": ("swa_num_key_value_heads", "attention_other_setting.num_attention_groups"),
    "local_head_dim": ("swa_head_dim", "attention_other_setting.head_dim"),
    "local_v_head_dim": ("swa_v_head_dim",),
    "mamba_num_heads": ("mamba_n_heads", "mamba_num_heads"),
    "mamba_head_dim": ("mamba_d_head", "mamba_head_dim"),
    "mamba_num_groups": ("mamba_n_groups", "n_groups"),
    "mamba_state_dim": ("mamba_d_state", "ssm_state_size"),
    "mamba_conv_kernel": ("mamba_d_conv", "conv_kernel"),
    "mamba_conv_bias": ("mamba_conv_bias", "use_conv_bias"),
    "mamba_chunk_size": ("mamba_chunk_size", "chunk_size"),
}
"""Our name of each key, and what files call it, first match wins; a dot reaches into a nested object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The decoder's part of a config.json.

    Attributes:
        where: File, and the key of the nested object if it is one, for messages.
        family: How its `model_type` builds a decoder.
        values: The file's values and the family's defaults, under our names.
        defaulted: Dimensions that the file leaves to the family.
    """

    where: str
    family: Family
    values: Mapping[str, Json]
    defaulted: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """The key is there and not null."""
        return self.values.get(key) is not None

    def count(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least `least`; `default` when absent or null."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                self.refuse(key, "(absent)", "a whole number", what="a key is missing")
            return default
        most = MOST_LAYERS if key == "num_hidden_layers" else LARGEST_COUNT
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(key, value, f"a whole number from {least} to {most}")
        return value

    def optional_count(self, key: str) -> int | None:
        """A whole number of at least 1; None when absent, null or 0."""
        return self.count(key, 0, least=0) or None

    def flag(self, key: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, value, "true or false")
        return value

    def decides(self, flag: Flag) -> bool:
        """A fixed flag of the family, or what the config says under the key it names."""
        return self.flag(flag) if isinstance(flag, str) else flag

    def counts(self, key: str, length: int) -> tuple[int, ...] | None:
        """A list of whole numbers, its first `length` entries; None when the key is absent, empty or no list."""
        items = self._entries(key, length)
        if items is None:
            return None
        for item in items:
            if not isinstance(item, int) or not 0 <= item <= LARGEST_COUNT:
                self.refuse(key, item, "whole numbers")
        return tuple(int(item) for item in items if isinstance(item, int))

    def words(self, key: str, length: int) -> tuple[str, ...] | None:
        """A list of words, its first `length` entries; None when the key is absent."""
        items = self._entries(key, length)
        if items is None:
            return None
        for item in items:
            if not isinstance(item, str):
                self.refuse(key, item, "a list of words")
        return tuple(item for item in items if isinstance(item, str))

    def word(self, key: str) -> str:
        """A text; "" when absent or of another type."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def indices(self, key: str) -> frozenset[int] | None:
        """Layer numbers, as a list or as text with commas; None when the key is absent."""
        value = self.values.get(key)
        if value is None:
            return None
        items: Sequence[object] = (
            value.split(",") if isinstance(value, str) else value if isinstance(value, list) else ()
        )
        numbers = [str(item).strip() for item in items if str(item).strip()]
        if isinstance(value, int | float) or not all(number.isdecimal() and len(number) < 7 for number in numbers):
            self.refuse(key, value, "a list of layer numbers")
        return frozenset(map(int, numbers))

    def objects(self, key: str, length: int) -> tuple[Config, ...] | None:
        """A list of nested objects, one per layer, each read in this one's family; None when absent."""
        items = self._entries(key, length)
        if items is None:
            return None
        nested: list[Config] = []
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                self.refuse(key, item, "a list of objects")
            nested.append(Config(where=f"{self.where}: {key}[{number}]", family=self.family, values=item))
        return tuple(nested)

    def nested(self, key: str) -> Config:
        """A nested object; an empty one when absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.refuse(key, value, "an object")
        return Config(where=f"{self.where}: {key}", family=self.family, values=value or {})

    def number(self, key: str, default: float) -> float:
        """A finite number above 0 and below 2^26."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < LARGEST_COUNT:
            self.refuse(key, value, "a number above 0")
        return float(value)

    def refuse(self, key: str, value: object, expected: str, *, what: str = "a value is not usable") -> NoReturn:
        """Raise an InputError about one key, under the name the file has for it."""
        raise InputError(
            f"config.json: {what}",
            where=f"{self.where}: {key}",
            value=value,
            expected=expected,
            fix="mend the file, or take the one the model was published with",
        )

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return self.count("num_hidden_layers")

    def _entries(self, key: str, length: int) -> list[Json] | None:
        value = self.values.get(key)
        if not value or not isinstance(value, list):
            return None
        if len(value) < length:
            self.refuse(key, f"{len(value)} entries", f"one for each of the {length} layers")
        # Longer lists go on with the multi-token-prediction layers.
        return value[:length]


def canonical(values: Mapping[str, Json]) -> dict[str, Json]:
    """The same values under our names; keys without an alias keep theirs.

    >>> canonical({"n_layer": 2, "n_inner": None, "attn_config": {"kv_n_heads": 8}})["num_key_value_heads"]
    8
    """
    renamed: dict[str, Json] = dict(values)
    for name, spellings in ALIASES.items():
        found = [_reach(values, spelling) for spelling in spellings if _says(values, spelling)]
        if found:
            renamed[name] = next((value for value in found if value is not None), None)
    return renamed


def _says(values: Mapping[str, Json], spelling: str) -> bool:
    outer, _, inner = spelling.partition(".")
    value = values.get(outer)
    return (isinstance(value, dict) and inner in value) if inner else outer in values


def _reach(values: Mapping[str, Json], spelling: str) -> Json:
    outer, _, inner = spelling.partition(".")
    value = values[outer]
    return value[inner] if inner and isinstance(value, dict) else value
