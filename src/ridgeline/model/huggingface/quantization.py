"""What a config.json says of narrow weights: its `quantization_config`, by the method that wrote it.

Methods differ in words only: a format of weights, one of activations or none, and the modules that keep their dtype.
A method, a format or a mix of formats that is not known is named in a note; the weights are then taken as bf16.

Source: `transformers` 5.24.0, utils/quantization_config.py; `compressed_tensors`, quantization/quant_args.py;
vLLM 0.32.0, model_executor/layers/quantization.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.model.spec import StoredSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.model.huggingface.config import Config
    from ridgeline.model.huggingface.json_file import Json
    from ridgeline.model.spec import StoredDtype

_KEYS: Final = ("quantization_config", "compression_config")
_LEFT_OUT: Final = ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
"""What methods call the modules that keep their dtype."""

_EIGHT_BITS_BOTH: Final = StoredSpec(weights="fp8", compute="fp8")
_METHODS: Final[Mapping[str, StoredSpec]] = {
    "fp8": _EIGHT_BITS_BOTH,
    "fbgemm_fp8": _EIGHT_BITS_BOTH,
    "mxfp4": StoredSpec(experts="mxfp4"),
}
"""Methods with one format: `fp8` quantizes activations as it goes; `mxfp4` is of experts, activations stay in bf16."""

_MODELOPT: Final[Mapping[str, StoredSpec]] = {
    "FP8": _EIGHT_BITS_BOTH,
    "NVFP4": StoredSpec(weights="fp4", compute="fp4"),
}
"""By `quant_algo` of `modelopt`, whose words stand in the table or in its `quantization`."""

_WEIGHTS_OF_BITS: Final[Mapping[int, StoredSpec]] = {4: StoredSpec(weights="int4"), 8: StoredSpec(weights="int8")}
"""Of `awq` and `gptq`, which leave activations in bf16."""

_DTYPES: Final[Mapping[tuple[str, int], StoredDtype]] = {
    ("float", 8): "fp8",
    ("int", 8): "int8",
    ("int", 4): "int4",
    ("float", 4): "fp4",
}
"""By `type` and `num_bits` of compressed-tensors."""


def stored_weights(
    content: Mapping[str, Json], config: Config, *, has_experts: bool
) -> tuple[StoredSpec | None, tuple[str, ...]]:
    """How the checkpoint holds its weights, None for bf16; and notes on what could not be read.

    Args:
        content: The whole file.
        config: The part that is the decoder.
        has_experts: Whether it has any.

    Raises:
        InputError: The table is no table, its method no word, or its group size no number of weights.
    """
    found = next((table for part in (config.values, content) if (table := _table(part, config))), None)
    if found is None:
        return None, ()
    method = _method(found, config)
    read = _read(found, method.lower(), config)
    if read is None:
        what = f"the checkpoint is quantized by {method}, in a form that is not known here"
        return None, (f"{what}: its weights are taken as bf16; say plan.dtypes",)
    if read.weights == "bf16" and not has_experts:
        return None, (f"{method} is of experts alone, and there are none: the weights are taken as bf16",)
    if config.word("expert_dtype") == "fp4":  # DeepSeek-V4 says so beside it
        read = replace(read, experts="fp4")
    elif _leaves_attention(found, config.num_layers) and read.experts is None:
        read = replace(read, weights="bf16", experts=read.weights)
    return read, _notes(found)


def _table(part: Mapping[str, Json], config: Config) -> Mapping[str, Json] | None:
    for key in _KEYS:
        table = part.get(key)
        if isinstance(table, dict) and table:
            nested = table.get("quantization")
            return {**table, **nested} if isinstance(nested, dict) else table
        if table is not None and table != {}:
            config.refuse(key, table, "an object, as quantizing tools write it")
    return None


def _method(table: Mapping[str, Json], config: Config) -> str:
    method = table.get("quant_method")
    if method is not None and not isinstance(method, str):
        config.refuse("quant_method", method, "a word: awq, gptq, fp8, compressed-tensors, ...")
    return method or "a method without a name"


def _read(table: Mapping[str, Json], method: str, config: Config) -> StoredSpec | None:
    """The format of the modules that are converted."""
    if isinstance(groups := table.get("config_groups"), dict):  # compressed-tensors, and ModelOpt in its form
        return _of_groups(groups, table, config)
    if method in {"awq", "gptq"}:
        read = _WEIGHTS_OF_BITS.get(_bits(table))
        return read and _grouped(read, table.get("group_size", table.get("q_group_size")), config)
    if method.startswith("modelopt"):
        read = _MODELOPT.get(str(table.get("quant_algo")).upper())
        has_cache = str(table.get("kv_cache_quant_algo")).upper() == "FP8"
        return replace(read, kv_cache="fp8") if read and has_cache else read
    return _METHODS.get(method)


def _bits(table: Mapping[str, Json]) -> int:
    """Of a weight; files have them as a number or as its digits. 0 where they say nothing."""
    bits = table.get("bits", table.get("w_bit"))
    if isinstance(bits, str) and bits.strip() in {"4", "8"}:
        return int(bits)
    return bits if isinstance(bits, int) else 0


def _grouped(read: StoredSpec, size: Json, config: Config) -> StoredSpec:
    """With so many weights to a scale; -1 is a row of them, nothing is as most have it."""
    width = config.count("hidden_size")
    if size is None:
        return read
    if not isinstance(size, int) or isinstance(size, bool) or not (size == -1 or 1 <= size <= width):
        config.refuse("group_size", size, f"a whole number from 1 to the model's width, {width}, or -1 for a whole row")
    return replace(read, group_size=width if size == -1 else size) if read.weights == "int4" else read


def _of_groups(groups: Mapping[str, Json], table: Mapping[str, Json], config: Config) -> StoredSpec | None:
    """Of compressed-tensors: one format of weights and activations; several formats are not followed."""
    formats = {_format(group) for group in groups.values()}
    weights, inputs = formats.pop() if len(formats) == 1 else (None, None)
    if weights is None:
        return None
    cache = table.get("kv_cache_scheme")
    sizes = [scheme.get("group_size") for group in groups.values() if isinstance(scheme := _weights(group), dict)]
    stored = StoredSpec(weights=weights, compute=inputs or "bf16", kv_cache=_dtype(cache))
    return _grouped(stored, sizes[0], config) if weights == "int4" else stored


def _weights(group: Json) -> Json:
    return group.get("weights") if isinstance(group, dict) else None


def _format(group: Json) -> tuple[StoredDtype | None, StoredDtype | None]:
    parts = group if isinstance(group, dict) else {}
    return _dtype(parts.get("weights")), _dtype(parts.get("input_activations"))


def _dtype(scheme: Json) -> StoredDtype | None:
    if not isinstance(scheme, dict):
        return None
    kind, bits = scheme.get("type"), scheme.get("num_bits")
    return _DTYPES.get((kind, bits)) if isinstance(kind, str) and isinstance(bits, int) else None


def _left_out(table: Mapping[str, Json]) -> list[str]:
    lists = [names for key in _LEFT_OUT if isinstance(names := table.get(key), list)]
    return [name for names in lists for name in names if isinstance(name, str)]


def _leaves_attention(table: Mapping[str, Json], num_layers: int) -> bool:
    """Whether the attention of all layers keeps its dtype: one pattern says so, or an entry for each layer."""
    names = [name for name in _left_out(table) if "attn" in name]
    is_pattern = any(name.startswith("re:") or ".*." in name for name in names)
    return is_pattern or len(names) >= num_layers


def _notes(table: Mapping[str, Json]) -> tuple[str, ...]:
    if any("shared_expert" in name and "gate" not in name for name in _left_out(table)):
        return ("shared experts are left in bf16 by the checkpoint, and taken as narrow as the others here",)
    return ()
