"""What stands where: for each layer its mixer, its span, its channel mixer and its positions.

Files say this in a dozen ways (a list of words, a period, a count of leading layers, a string with one
letter per layer); each way is one small function here and ends in the same record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.model.huggingface.config import MOST_LAYERS
from ridgeline.model.operations import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.model.huggingface.config import Config

Mixer: TypeAlias = Literal["attention", "linear", "both", "cross", "none"]
Channel: TypeAlias = Literal["dense", "moe", "none"]

_CAUSAL = Span()
_FULL = "full_attention"
_SLIDING = "sliding_attention"
_LETTERS: dict[str, tuple[Mixer, Channel]] = {
    "M": ("linear", "none"),
    "*": ("attention", "none"),
    "-": ("none", "dense"),
    "E": ("none", "moe"),
}
"""Nemotron-H writes one letter per layer."""
_SINGLE_BLOCKS: dict[str, tuple[Mixer, Channel]] = {
    "mamba": _LETTERS["M"],
    "linear_attention": _LETTERS["M"],
    "attention": _LETTERS["*"],
    "full_attention": _LETTERS["*"],
    "mlp": _LETTERS["-"],
    "moe": _LETTERS["E"],
}
_LINEAR_WORDS = {"linear_attention", "mamba", "mamba2"}
_ATTENTION_WORDS = {
    *(_FULL, _SLIDING, "attention", "global", "local", "chunked_attention", "indexed_attention", "global_attention"),
    *("deepseek_sparse_attention", "minimax_m3_sparse"),
    *("full", "sliding", "local_attention", "compressed_sparse_attention", "heavily_compressed_attention"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One layer of the stack.

    Attributes:
        index: Its number, from 0.
        mixer: What mixes along the sequence; `cross` reads another modality, `both` are side by side.
        span: Which keys its attention sees.
        channel: What mixes along the features.
        rotary: Positions by rotation.
        own_kv: False where it reads the keys and values of an earlier layer.
    """

    index: int
    mixer: Mixer
    span: Span
    channel: Channel
    rotary: bool
    own_kv: bool

    @property
    def is_local(self) -> bool:
        """Its attention is bound by a window."""
        return self.span.kind == "sliding"


def places(config: Config) -> tuple[Place, ...]:
    """Every layer of the stack, from the first to the last."""
    kinds = _single_blocks(config) or tuple(zip(_mixers(config), _channels(config), strict=True))
    count = len(kinds)
    spans = _spans(config, count)
    rotary = _rotary(config, spans)
    num_shared = config.count("num_kv_shared_layers", 0, least=0)
    return tuple(
        Place(
            index=index,
            mixer=mixer,
            span=spans[index],
            channel=channel,
            rotary=rotary[index],
            own_kv=index < count - num_shared,
        )
        for index, (mixer, channel) in enumerate(kinds)
    )


def _single_blocks(config: Config) -> tuple[tuple[Mixer, Channel], ...] | None:
    """Nemotron-H: a layer is one mixer or one MLP, written as letters or as a list."""
    if not config.family.single_blocks:
        return None
    pattern = config.word("hybrid_override_pattern")
    if pattern:
        if not set(pattern) <= set(_LETTERS) or len(pattern) > MOST_LAYERS:
            config.refuse("hybrid_override_pattern", pattern, f"the letters {' '.join(_LETTERS)}, one for each layer")
        return tuple(_LETTERS[letter] for letter in pattern)
    listed = config.values.get("layer_types")
    words = config.words("layer_types", len(listed) if isinstance(listed, list) else 0)
    if not words or len(words) > MOST_LAYERS:
        config.refuse("hybrid_override_pattern", "(absent)", "a letter for each layer", what="a key is missing")
    for word in words:
        if word not in _SINGLE_BLOCKS:
            config.refuse("layers_block_type", word, f"one of {', '.join(_SINGLE_BLOCKS)}")
    return tuple(_SINGLE_BLOCKS[word] for word in words)


def _mixers(config: Config) -> tuple[Mixer, ...]:
    layers = range(config.num_layers)
    cross = config.indices("cross_attention_layers")
    if cross is not None:
        return tuple("cross" if index in cross else "attention" for index in layers)
    if config.family.linear is None:
        return ("attention",) * len(layers)
    if config.has("mamba_d_ssm"):
        return ("both",) * len(layers)
    words = config.words("layer_types", len(layers))
    if words is not None:
        return tuple("linear" if word in _LINEAR_WORDS else "attention" for word in words)
    attention = config.indices("attn_layer_indices")
    if attention is not None:
        return tuple("attention" if index in attention else "linear" for index in layers)
    if config.has("full_attention_interval"):
        interval = config.count("full_attention_interval")
        return tuple("linear" if (index + 1) % interval else "attention" for index in layers)
    if config.has("attn_layer_period"):
        period, offset = config.count("attn_layer_period"), config.count("attn_layer_offset", 0, least=0)
        return tuple("attention" if index % period == offset else "linear" for index in layers)
    return ("linear",) * len(layers)


def _spans(config: Config, count: int) -> tuple[Span, ...]:
    """The span of every layer; layers without attention get one too, which nobody asks for."""
    window = None if config.values.get("use_sliding_window") is False else config.optional_count("sliding_window")
    chunk = config.optional_count("attention_chunk_size")
    longest = config.optional_count("max_position_embeddings")
    sliding = Span(kind="sliding", window=window) if window and not (longest and window >= longest) else _CAUSAL
    chunked = Span(kind="chunked", window=chunk) if chunk else _CAUSAL
    spans = {_SLIDING: sliding, "sliding": sliding, "local": sliding, "local_attention": sliding}
    spans["chunked_attention"] = chunked
    return tuple(spans.get(word, _CAUSAL) for word in _span_words(config, count))


def _span_words(config: Config, count: int) -> tuple[str, ...]:
    """Which layers the window binds, by the first key that says so."""
    layers = range(count)
    words = config.words("layer_types", count)
    if words is not None:
        known = _ATTENTION_WORDS
        if config.family.linear is not None:
            known = known | _LINEAR_WORDS | set(_SINGLE_BLOCKS)
        for word in words:
            if word not in known:
                config.refuse("layer_types", word, f"one of {', '.join(sorted(known))}")
        return words
    listed = config.counts("hybrid_layer_pattern", count)
    if listed is not None:
        return tuple(_SLIDING if entry else _FULL for entry in listed)
    if config.has("attention_types"):
        return _repeated_words(config, count)
    if config.has("no_rope_layers") or config.has("no_rope_layer_interval"):
        return tuple("chunked_attention" if rotated else _FULL for rotated in _rotated_layers(config, count) or ())
    match config.family.window:
        case "none":
            return (_FULL,) * count
        case "all":
            return (_SLIDING,) * count
        case "upper":
            first = config.count("max_window_layers", 0, least=0)
            return tuple(_SLIDING if index >= first else _FULL for index in layers)
        case "periodic":
            return _periodic(config, count)


def _periodic(config: Config, count: int) -> tuple[str, ...]:
    """A window in all layers but every n-th; or a string of L and G that repeats (EXAONE 4)."""
    letters = config.word("sliding_window_pattern")
    if letters:
        if not set(letters) <= {"L", "G"}:
            config.refuse("sliding_window_pattern", letters, "a number, or a string of L and G")
        return tuple(_SLIDING if letters[index % len(letters)] == "L" else _FULL for index in range(count))
    period = config.optional_count("sliding_window_pattern") or 1
    return tuple(_SLIDING if (index + 1) % period else _FULL for index in range(count))


def _repeated_words(config: Config, count: int) -> tuple[str, ...]:
    """GPT-Neo: `[[["global", "local"], 12]]`."""
    words: list[str] = []
    groups = config.values["attention_types"]
    for group in groups if isinstance(groups, list) else ():
        if not (isinstance(group, list) and len(group) == 2 and isinstance(group[0], list)):
            config.refuse("attention_types", group, "[[words], repetitions]")
        repetitions = group[1]
        if not isinstance(repetitions, int) or not 0 < repetitions <= count:
            config.refuse("attention_types", repetitions, f"repetitions from 1 to {count}")
        words += [_SLIDING if word == "local" else _FULL for word in group[0]] * repetitions
    if len(words) < count:
        config.refuse("attention_types", f"{len(words)} layers", f"{count} layers")
    return tuple(words[:count])


def _rotary(config: Config, spans: Sequence[Span]) -> tuple[bool, ...]:
    """Layers that rotate queries and keys."""
    listed = _rotated_layers(config, len(spans))
    if listed is not None:
        return listed
    if config.family.rotary == "local" and config.has("sliding_window"):
        return tuple(span.kind == "sliding" for span in spans)
    return (bool(config.family.rotary) and not config.flag("alibi"),) * len(spans)


def _rotated_layers(config: Config, count: int) -> tuple[bool, ...] | None:
    """Llama 4, SmolLM3: every n-th layer has no positions; None in other families."""
    listed = config.counts("no_rope_layers", count)
    if listed is not None:
        return tuple(bool(entry) for entry in listed)
    if not config.has("no_rope_layer_interval"):
        return None
    interval = config.count("no_rope_layer_interval")
    return tuple((index + 1) % interval != 0 for index in range(count))


def _channels(config: Config) -> tuple[Channel, ...]:
    """Dense or sparse, by the first key that says so."""
    count = config.num_layers
    layers = range(count)
    if not _has_experts(config):
        return ("dense",) * count
    words = config.words("mlp_layer_types", count)
    if words is not None:
        return tuple("dense" if word == "dense" else "moe" for word in words)
    for key in ("moe_layers", "moe_layers_enum"):
        indices = config.indices(key)
        if indices is not None:
            return tuple("moe" if index in indices else "dense" for index in layers)
    listed = config.counts("moe_layer_freq", count)
    if listed is not None:
        return tuple("moe" if entry else "dense" for entry in listed)
    return tuple("moe" if _is_sparse(config, index) else "dense" for index in layers)


def _has_experts(config: Config) -> bool:
    """More than one expert, in this layer's list or for all."""
    if config.values.get("enable_moe_block") is False:
        return False
    return isinstance(config.values.get("num_experts"), list) or config.count("num_experts", 0, least=0) > 1


def _is_sparse(config: Config, index: int) -> bool:
    """Whether the rules with periods and offsets make a layer sparse; a rule that is absent always holds."""
    last = config.values.get("moe_layer_end_index")
    end = last if isinstance(last, int) and last >= 0 else config.num_layers - 1
    start = config.count("moe_layer_start_index", 0, least=0)
    return (
        index >= config.count("first_k_dense_replace", 0, least=0)
        and index % config.count("moe_layer_freq", 1) == 0
        and index % config.count("expert_layer_period", 1) == config.count("expert_layer_offset", 0, least=0)
        and (index + 1) % config.count("decoder_sparse_step", 1) == 0
        and (index + 1) % config.count("interleave_moe_layer_step", 1) == 0
        and (index + 1) % config.count("moe_layer_frequency", 1) == 0
        and index not in (config.indices("mlp_only_layers") or ())
        and start <= index <= end
        and (index + 1) % config.count("moe_layer_interval", 1) == 0
    )
