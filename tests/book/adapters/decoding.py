"""Decoding: how long a step takes, what a slice has room for, how it is split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

LETTERS = {"L", "D", "F", "N", "K", "H", "V", "E", "k"}
MODEL = {"L", "K", "H"}
"""Letters without which nothing is said of a model's cache."""

WIDTHS = {"f32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5, "fp4": 0.5}
"""Bytes of an element, by what items call its dtype."""

NAMES = {
    "B": "B",
    "batch": "B",
    "batch_size": "B",
    "bs": "B",
    "S": "T",
    "T": "T",
    "seq": "T",
    "seq_len": "T",
    "context": "T",
    "ctx": "T",
    "prompt": "T",
    "prompts": "T",
    "prompt_len": "T",
    "params": "P",
    "P": "P",
    "n_params": "P",
    "params_bytes": "weight_bytes",
    "param_bytes": "weight_bytes",
    "weights": "weight_bytes",
    "weights_bytes": "weight_bytes",
    "bytes_per_param": "b_w",
    "b_w": "b_w",
    "b_a": "b_a",
    "kv": "sequence_cache_bytes",
    "kv_seq": "sequence_cache_bytes",
    "kv_bytes": "sequence_cache_bytes",
    "kv_per_seq": "sequence_cache_bytes",
    "cache": "sequence_cache_bytes",
    "kv_token": "token_cache_bytes",
    "kv_per_token": "token_cache_bytes",
    "kv_bytes_per_token": "token_cache_bytes",
    "kv_elems": "token_cache_elements",
    "total": "held_bytes",
    "chips": "num_chips",
    "n_chips": "num_chips",
    "num_chips": "num_chips",
    "W": "W_hbm_bytes_per_s",
    "W_hbm": "W_hbm_bytes_per_s",
    "hbm_bw": "W_hbm_bytes_per_s",
    "bw": "W_hbm_bytes_per_s",
    "C": "C_flops_per_s",
    "C_bf16": "C_flops_per_s",
    "ridge": "hbm_flops_per_byte",
    "B_crit_dense": "decode_critical_rows",
    "hbm": "hbm_bytes",
    "hbm_bytes": "hbm_bytes",
    "W_ici": "W_ici_bytes_per_s",
    "t": "decode_step_s",
    "t_step": "decode_step_s",
    "step": "decode_step_s",
    "tpot": "decode_step_s",
    "G": "reply_tokens",
    "decode": "reply_tokens",
    "gen": "reply_tokens",
    "gen_len": "reply_tokens",
    "decode_len": "reply_tokens",
    "latency_ratio": "latency_ratio",
    "mfu": "mfu",
    "alpha": "alpha_flops_per_byte",
    "beta": "beta_ratio",
    "n_axes": "n_tensor_axes",
    "axes": "n_tensor_axes",
    "F": "F",
    "D": "D",
    "E": "E",
    "k": "k",
    "K": "K",
    "N": "N",
    "Y": "Y",
    "tp": "Y",
    "ways": "Y",
}
"""What an item calls a quantity of the laws."""

STEP = ("decode_step_s", "full_memory_step_s", "weight_load_s")
ROOM = ("num_fitting_sequences",)
CHIPS = ("num_memory_chips",)

FIELDS = {
    "t": STEP,
    "t_step": STEP,
    "step": STEP,
    "latency": STEP,
    "tpot": STEP,
    "t_kv": ("cache_read_s",),
    "t_cache": ("cache_read_s",),
    "t_attn": ("cache_read_s",),
    "t_params": ("weight_load_s",),
    "t_weights": ("weight_load_s",),
    "t_load": ("weight_load_s",),
    "t_math": ("decode_math_s",),
    "t_flops": ("decode_math_s",),
    "t_low": ("lone_step_s", "weight_load_s"),
    "t_min": ("lone_step_s", "weight_load_s"),
    "t_high": ("full_memory_step_s",),
    "t_full": ("full_memory_step_s",),
    "t_max": ("full_memory_step_s",),
    "t_exact": ("mlp_load_s",),
    "params_exact": ("num_mlp_parameters",),
    "tput": ("decode_tokens_per_s",),
    "throughput": ("decode_tokens_per_s",),
    "tokens_per_s": ("decode_tokens_per_s",),
    "per_chip": ("decode_tokens_per_s_per_chip",),
    "tput_per_chip": ("decode_tokens_per_s_per_chip",),
    "kv": ("batch_cache_bytes", "sequence_cache_bytes"),
    "kv_bytes": ("batch_cache_bytes", "sequence_cache_bytes"),
    "kv_total": ("batch_cache_bytes",),
    "cache": ("batch_cache_bytes", "sequence_cache_bytes"),
    "kv_seq": ("sequence_cache_bytes",),
    "kv_per_seq": ("sequence_cache_bytes",),
    "per_seq": ("sequence_cache_bytes",),
    "kv_token": ("token_cache_bytes",),
    "kv_per_token": ("token_cache_bytes",),
    "per_token": ("token_cache_bytes",),
    "params": ("P",),
    "param_bytes": ("weight_bytes",),
    "params_bytes": ("weight_bytes",),
    "weights": ("weight_bytes",),
    "total": ("held_bytes",),
    "fits": ("weights_and_caches_fit",),
    "B_crit": ("decode_critical_rows",),
    "B_crit_moe": ("decode_critical_rows",),
    "knee": ("decode_critical_rows",),
    "T_crit": ("decode_critical_rows",),
    "prompt_crit": ("decode_critical_rows",),
    "compute_bound": ("prompt_is_compute_bound", "batch_is_compute_bound", "matmuls_compute"),
    "chips": CHIPS,
    "min_chips": CHIPS,
    "n_chips": CHIPS,
    "chips_needed": CHIPS,
    "whole_chips": ("num_whole_memory_chips",),
    "slice_chips": ("num_rounded_memory_chips",),
    "hbm_total": ("slice_hbm_bytes",),
    "slice_hbm": ("slice_hbm_bytes",),
    "free": ("slice_free_bytes",),
    "free_hbm": ("slice_free_bytes",),
    "n_kv": ROOM,
    "n_seq": ROOM,
    "batch": ROOM,
    "max_batch": ROOM,
    "B_max": ROOM,
    "B": ROOM,
    "sequences": ROOM,
    "qps": ("requests_per_s",),
    "qps_per_chip": ("requests_per_s_per_chip",),
    "S": ("cache_overtakes_math_tokens", "crossover_keys"),
    "S_cross": ("cache_overtakes_math_tokens", "crossover_keys"),
    "S_crit": ("cache_overtakes_math_tokens", "crossover_keys"),
    "crossover": ("cache_overtakes_math_tokens", "crossover_keys"),
    "context": ("cache_overtakes_math_tokens", "crossover_keys"),
    "factor": ("cheaper_factor",),
    "ici_ways": ("tensor_largest_degree",),
    "": ("requests_per_s_per_chip", "decode_critical_rows"),
}
"""The quantities that an answer may be, the first that is known."""

SHARDING = FIELDS | {
    "ways": ("tensor_memory_degree", "tensor_largest_degree"),
    "Y_max": ("tensor_memory_degree", "tensor_largest_degree"),
    "max_ways": ("tensor_memory_degree", "tensor_largest_degree"),
    "tp_max": ("tensor_memory_degree", "tensor_largest_degree"),
    "Y": ("tensor_memory_degree", "tensor_largest_degree", "cache_head_degree"),
    "tp_compute": ("tensor_largest_degree",),
    "tp_hbm": ("tensor_memory_degree",),
    "beta": ("beta_ratio",),
    "alpha": ("alpha_flops_per_byte",),
    "ok": ("tensor_is_compute_bound",),
    "ok_hbm": ("tensor_reads_longer",),
    "t_ici": ("matmul_link_s",),
    "t_hbm": ("matmul_load_s",),
    "t_math": ("matmul_math_s", "mlp_math_s", "decode_math_s"),
    "X_opt": ("stationary_model_degree",),
    "YZ_opt": ("stationary_width_degree",),
    "t_2d": ("stationary_link_s",),
    "t_1d": ("mlp_link_s",),
    "coeff": ("stationary_link_factor",),
    "N_cross": ("stationary_critical_chips",),
    "N_cross_general": ("stationary_critical_chips",),
    "heads": ("cache_head_degree",),
    "kv_heads": ("cache_head_degree",),
    "head_ways": ("cache_head_degree",),
    "Z": ("cache_batch_degree",),
    "batch_ways": ("cache_batch_degree",),
    "seq_ways": ("cache_token_degree",),
}

ON_LINKS = {"W": "W_ici_bytes_per_s"}
"""Where chips are split, a bandwidth without a name is that of links."""

CACHES = {"layout", "cache_layout", "kv_layout", "cache", "spec"}
"""What items call the layout of keys and values."""

RANGES = {"range_", "range"}
"""What it also says beside numbers."""

TWICE = 2
"""The ratio of latencies that `doubling` means."""

IN_BYTES = 1
"""The width of `params` where none is said: they are counted in bytes."""

USUAL_CHIP = "v5e"

ONE_HEAD = 1
"""Key-value heads of multi-query attention."""

BOOK = {
    "low_latency": ("v4", "palm_540b_quickest"),
    "low_cost": ("v4", "palm_540b_cheapest"),
    "flattening": ("v4", "palm_540b_knee_batch"),
    "values": ("v5e", "critical_batch_sizes"),
    "plateau": ("v5e", "mlp_plateau_tokens_per_s"),
    "batch": ("v5e", "mlp_knee_batch"),
    "factor": ("general", "latency_over_bound_factor"),
    "ways": ("general", "decode_tensor_degrees"),
    "range_": ("general", "model_parallel_degrees"),
    "range": ("general", "model_parallel_degrees"),
}
"""What the book states without saying of what: figures, ranges, what others measured."""

SCHEDULES = (
    ("2d", "stationary"),
    ("weight-stationary", "stationary"),
    ("cache batch", "sequences"),
    ("kv cache", "sequences"),
)
"""A word of the sentence and the layout that it names."""


@adapter("inference.latency", "inference.throughput", "inference.plan", "inference.critical_batch", "inference.memory")
def decoding(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    found = stated(inputs, wanted) | answered(inputs, wanted, FIELDS, {}) | activations(inputs, wanted)
    if {"slice", "topology"}.intersection(wanted):
        laws = laws_of(inputs, {}, on_the_slice(inputs))
        name = ridgeline.smallest_slice(chip_of(inputs), laws["num_memory_chips"])
        number = laws["num_rounded_memory_chips"]
        found = found | dict.fromkeys(
            {"slice", "topology"}.intersection(wanted), number if "params" in wanted else name
        )
    if "knee" in wanted and "tput" in wanted:  # the axes of that chart: tokens a ms of a chip
        per_chip = answered(inputs, {"per_chip"}, FIELDS, {})["per_chip"]
        found["tput"] = ridgeline.rate_in(per_chip, "ms")
    return found


@adapter("inference.sharding")
def sharding(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    names = {} if {"W_hbm", "W_ici", "hbm"} & {*inputs} else ON_LINKS
    found = stated(inputs, wanted)
    if isinstance(inputs.get("F"), list) and isinstance(inputs.get("n_axes"), list):
        rows = [sharding(inputs | {"F": width}, {"ways"}) for width in inputs["F"]]
        return found | {key: [row["ways"] for row in rows] for key in wanted if key == "ways"}
    found = found | answered(inputs, wanted, SHARDING, names)
    if "bound" in wanted:
        found["bound"] = laws_of(inputs, names, {}).matmul_bound
    words = inputs["setup"].lower()
    layout = ridgeline.decode_layout(inputs.get("schemes", []), phase="prefill" if "prefill" in words else "decode")
    found = found | {key: layout.helpful for key in wanted if key in {"useful", "helpful", "allowed"}}
    named = [name for word, name in SCHEDULES if word in words]
    for name in named[:1]:
        found = found | {key: layout.schedules[name] for key in wanted if key == "schedule"}
        found = found | {key: layout.caches[name] for key in CACHES.intersection(wanted) if name in layout.caches}
    return found


def stated(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """What the book says without a number to go by; ranges also where there are numbers."""
    numbers = {*inputs}.difference({"setup"})
    keys = RANGES.intersection(wanted) if numbers else BOOK.keys() & {*wanted}
    places = {key: BOOK[key] for key in keys}
    figures = {key: ridgeline.scaling_book_figures(chip).figures[name] for key, (chip, name) in places.items()}
    rates = {key: ridgeline.rate_in(figure.value, "us") for key, figure in figures.items() if key == "plateau"}
    return {key: figure.value for key, figure in figures.items()} | rates


def answered(
    inputs: Mapping[str, Any],
    wanted: Collection[str],
    fields: Mapping[str, tuple[str, ...]],
    names: Mapping[str, str],
) -> dict[str, Any]:
    """Every answer that follows: of the item as it is, and of the variants that the ends of keys ask for."""
    found = {}
    for end, more in variants(inputs, wanted):
        asked = {key.removesuffix(end): key for key in wanted if key.endswith(end)}
        asked = {base: key for base, key in asked.items() if base in fields or base == "regime"}
        each = [laws_of(inputs | case, names, more) for case in cases(inputs)] if asked else []
        for base, key in asked.items():
            values = [value for laws in each for value in picked(laws, fields, base)]
            if values:
                first, *others = values
                found[key] = values if others else first
    return found


def picked(laws: Any, fields: Mapping[str, tuple[str, ...]], base: str) -> list[Any]:  # noqa: ANN401 - a result of the API
    """The first of an answer's quantities that is known; nothing where none is."""
    if base == "regime":
        return [laws.step_bound]
    known = [laws[quantity] for quantity in fields[base] if quantity in laws]
    return known[:1]


def variants(inputs: Mapping[str, Any], wanted: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ends of keys and what they change: a batch, a dtype, dtypes of weights and arithmetic, a slice; or nothing."""
    yield "", on_the_slice(inputs)
    for batch in inputs.get("batches", []):
        yield f"{batch}", {"B": batch}
        yield f"_{batch}", {"B": batch}
    for dtype, width in WIDTHS.items():
        yield dtype, of_dtype(inputs, dtype, width)
        yield f"_{dtype}", of_dtype(inputs, dtype, width)
        for computed in WIDTHS:
            if f"C_{computed}" in inputs:
                peak = {"b_w": width, "C_flops_per_s": inputs[f"C_{computed}"]}
                yield f"{dtype}_{computed}", peak
                yield f"_{dtype}_{computed}", peak
    for end in ("_k1", "_K1", "_mqa"):
        yield end, {"K": ONE_HEAD}
    for place in slices_in(wanted):
        chips = ridgeline.chips(f"v5e:{place}").num_chips
        yield f"_{place}", {"num_chips": chips, "Y": chips}


def of_dtype(inputs: Mapping[str, Any], dtype: str, width: float) -> dict[str, Any]:
    """What an item gives of one dtype; where it gives nothing, the width of its weights."""
    by_dtype = {name: value for name, value in inputs.items() if isinstance(value, dict) if dtype in value}
    given = {NAMES[name]: value[dtype] for name, value in by_dtype.items() if name in NAMES}
    peak = {"C_flops_per_s": inputs[f"C_{dtype}"]} if f"C_{dtype}" in inputs else {}
    if given:
        return given
    return {"b_w": width} | peak


def on_the_slice(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The chips of the first slice that the sentence names, where the item gives no number of them."""
    if {"chips", "n_chips", "num_chips", "ways"} & {*inputs}:
        return {}
    for place in slices_in(inputs["setup"].replace(",", " ").replace(".", " ").split()):
        return {"num_chips": ridgeline.chips(f"v5e:{place}").num_chips}
    return {}


def slices_in(words: Collection[str]) -> Iterator[str]:
    """The slice at the end of each word: `4x4` of `per_chip_4x4`."""
    for word in words:
        *_, place = word.split("_")
        match place.split("x"):
            case [one, other] if one.isdigit() and other.isdigit():
                yield place


def cases(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items, of single numbers, that one with lists stands for."""
    lists = {name: value for name, value in inputs.items() if isinstance(value, list) if name in NAMES}
    if not lists:
        return [{}]
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def laws_of(inputs: Mapping[str, Any], names: Mapping[str, str], more: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a result of the API
    """What the laws say of an item whose inputs are single numbers."""
    known = NAMES | names
    numbers = {name: value for name, value in inputs.items() if not isinstance(value, dict | str)}
    given = {known[name]: value for name, value in numbers.items() if name in known} | widths(inputs) | dict(more)
    if MODEL.issubset(inputs):
        letters = {name: value for name, value in (inputs | dict(more)).items() if name in LETTERS}
        beside = {name: value for name, value in given.items() if name not in LETTERS}
        return ridgeline.decode_laws(letters, **beside)
    laws = ridgeline.decode_laws(**given)
    if "reply_tokens" in given and "B" not in given and "num_fitting_sequences" in laws:
        return ridgeline.decode_laws(**given, B=laws["num_fitting_sequences"])  # as many as there is room for
    return laws


def widths(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Widths of elements, and what else an item says by a name that has two meanings."""
    found = {}
    if "bpe" in inputs:
        found = {"b_w": inputs["bpe"], "b_a": inputs["bpe"]}
    elif MODEL.issubset(inputs):
        named = [width for dtype, width in WIDTHS.items() if dtype in inputs["setup"]]
        found = {key: width for width in named[:1] for key in ("b_w", "b_a")}
    elif "weight_bytes" in inputs:
        found = {"b_w" if "params" in inputs else "weight_bytes": inputs["weight_bytes"]}
    elif "params" in inputs and "b_w" not in inputs:
        found = {"b_w": IN_BYTES}
    if "ways" in inputs and "chips" not in inputs:
        found["num_chips"] = inputs["ways"]
    if "n_axes" in inputs:
        found["n_axes"] = inputs["n_axes"]
    if "doubling" in inputs["setup"].lower():
        found["latency_ratio"] = TWICE
    return found


def activations(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """One activation: of an MLP's width for sequences that decode, of the model's for a prompt."""
    asked = {"act", "activations", "act_bytes", "bytes"}.intersection(wanted)
    wide = [inputs[name] for name in ("F", "D") if name in inputs]
    if not asked or not wide:
        return {}
    given = {"D": wide[0]} | ({"B": inputs["B"]} if "B" in inputs else {"T": inputs.get("T", inputs.get("S", 1))})
    given = given | ({"b_a": inputs["bpe"]} if "bpe" in inputs else {})
    return {key: ridgeline.decode_laws(**given)["activation_bytes"] for key in asked}


def chip_of(inputs: Mapping[str, Any]) -> str:
    """The chip that the sentence names; the book serves on v5e."""
    words = inputs["setup"].replace(",", " ").split()
    for word in words:
        if word in {"v5p", "v6e", "v4"}:
            return word
    return USUAL_CHIP
