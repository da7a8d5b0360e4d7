"""Collectives, transfers from chip to chip, and paths of several stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

SIZE = ("V", "bytes", "total_bytes", "size_bytes", "size", "nbytes", "array_bytes", "buffer", "V_bytes")
"""What items call the bytes of an array."""

SHAPES = (
    ("shape",),
    ("dims",),
    ("B", "T", "D"),
    ("B", "D"),
    ("B", "F"),
    ("E", "F"),
    ("D", "F"),
    ("I", "J"),
    ("J", "K"),
    ("M", "K"),
    ("rows", "cols"),
    ("elements",),
    ("B",),
    ("D",),
)
"""What items call the dimensions of an array, the first that is there."""

ELEMENT = (
    "bpe",
    "bytes_per_element",
    "bytes_per_el",
    "bytes_per_elem",
    "element_bytes",
    "itemsize",
    "dtype_bytes",
    "b",
)
SIZES = (
    "axes",
    "axis_sizes_used",
    "mesh_axes",
    "N",
    "n",
    "ways",
    "devices",
    "num_devices",
    "chips",
    "D_devices",
    "ring",
)
LETTERS = ("X", "Y", "Z")
SHARDED = ("sharded", "residual", "other_shards", "shards", "other", "unused")

RATES = {
    "W_bidi": "axis_bandwidth",
    "W_ici": "axis_bandwidth",
    "W": "axis_bandwidth",
    "W_ici_bidi": "axis_bandwidth",
    "ici_bidi": "axis_bandwidth",
    "W_one_way": "link_bandwidth",
    "W_one": "link_bandwidth",
    "W_link": "link_bandwidth",
    "W_uni": "link_bandwidth",
    "W_ici_one_way": "link_bandwidth",
    "ici_one_way": "link_bandwidth",
    "t_min": "hop",
    "t_hop": "hop",
    "hop": "hop",
    "hop_latency": "hop",
    "latency_per_hop": "hop",
    "n_axes": "axes",
    "num_axes": "axes",
}
"""What items call rates and latencies, and what the API does."""

FIELDS = {
    "t": "approximate_s",
    "time": "approximate_s",
    "t_total": "approximate_s",
    "total": "approximate_s",
    "t_comm": "approximate_s",
    "t_comms": "approximate_s",
    "t_bw": "approximate_bandwidth_s",
    "t_bandwidth": "approximate_bandwidth_s",
    "t_approx": "approximate_bandwidth_s",
    "t_book": "approximate_bandwidth_s",
    "t_lat": "latency_s",
    "t_latency": "latency_s",
    "latency": "latency_s",
    "floor": "latency_s",
    "t_floor": "latency_s",
    "t_exact": "time_s",
    "t_exact_ring": "time_s",
    "t_ring": "if_ring_s",
    "t_if_ring": "if_ring_s",
    "t_wrap": "if_ring_s",
    "t_comms_if_ring": "if_ring_s",
    "t_line": "if_line_s",
    "t_nowrap": "if_line_s",
    "t_no_wrap": "if_line_s",
    "t_comms_nowrap": "if_line_s",
    "t_ag": "each_kind_s.all_gather",
    "t_rs": "each_kind_s.reduce_scatter",
    "t_ar": "each_kind_s.all_reduce",
    "t_a2a": "each_kind_s.all_to_all",
    "t_all_gather": "each_kind_s.all_gather",
    "t_reduce_scatter": "each_kind_s.reduce_scatter",
    "t_all_reduce": "each_kind_s.all_reduce",
    "t_all_to_all": "each_kind_s.all_to_all",
    "all_gather": "each_kind_ratio.all_gather",
    "reduce_scatter": "each_kind_ratio.reduce_scatter",
    "all_reduce": "each_kind_ratio.all_reduce",
    "all_to_all": "each_kind_ratio.all_to_all",
    "regime": "regime",
    "latency_bound": "is_latency_bound",
    "is_latency_bound": "is_latency_bound",
    "bound": "bound",
    "threshold": "threshold_bytes",
    "buffer_threshold": "threshold_bytes",
    "threshold_bytes": "threshold_bytes",
    "V_crit": "threshold_bytes",
    "hop_threshold": "hop_threshold_bytes",
    "per_hop_threshold": "hop_threshold_bytes",
    "Y": "latency_bound_shards",
    "Y_crit": "latency_bound_shards",
    "Y_min": "latency_bound_shards",
    "Y_threshold": "latency_bound_shards",
    "ways": "latency_bound_shards",
    "n_crit": "latency_bound_shards",
    "shard": "shard_bytes",
    "shard_bytes": "shard_bytes",
    "per_device": "shard_bytes",
    "per_shard": "shard_bytes",
    "bytes_per_shard": "shard_bytes",
    "per_hop": "one_way.hop_bytes",
    "buffer": "array_bytes",
    "array": "array_bytes",
    "array_bytes": "array_bytes",
    "total_bytes": "array_bytes",
    "V": "group_bytes",
    "bytes": "group_bytes",
    "hops": "hops",
    "n_hops": "hops",
    "uni_hops": "one_way.hops",
    "bi_hops": "two_way.hops",
    "bidi_hops": "two_way.hops",
    "uni_bytes_per_hop": "one_way.hop_bytes",
    "bi_bytes_per_hop": "two_way.hop_bytes",
    "bidi_bytes_per_hop": "two_way.hop_bytes",
    "hop_bw_time": "one_way.hop_transfer_s",
    "hop_time": "one_way.hop_transfer_s",
    "t_hop": "one_way.hop_transfer_s",
    "t_uni": "one_way.bandwidth_s",
    "t_one_way": "one_way.bandwidth_s",
    "t_bi": "two_way.bandwidth_s",
    "t_bidi": "two_way.bandwidth_s",
    "chunks": "exchange.chunks",
    "chunk_bytes": "exchange.chunk_bytes",
    "bytes_per_device": "exchange.device_bytes",
    "uni_ag": "exchange.one_way_gather_link_bytes",
    "uni_a2a": "exchange.one_way_link_bytes",
    "uni_ratio": "exchange.one_way_ratio",
    "bidi_gain_ag": "exchange.gather_gain_ratio",
    "bidi_gain_a2a": "exchange.exchange_gain_ratio",
    "bidi_ratio": "exchange.two_way_ratio",
    "bwd": "transpose",
    "backward": "transpose",
    "transpose": "transpose",
}
"""What items call an answer, and where it stands in the result."""

VERBS = (
    "AllGather_",
    "ReduceScatter_",
    "AllReduce_",
    "AllToAll_",
    "Gather over ",
    "gather over ",
    "gathered over ",
    "over both ",
    "Reduce over ",
    "reduce over ",
    "Scatter over ",
    "ToAll over ",
    "along ",
)
HEADS = ("{}", "{{{}", "X{}", "X,{}", "X, {}", "X and {}", "XY{}", "X, Y and {}")
"""What stands before the axes of a collective in a sentence, and how an axis stands among them."""

TRANSFER_NAMES = {
    "slice": "topology",
    "mesh": "topology",
    "topology": "topology",
    "grid": "topology",
    "src": "start",
    "source": "start",
    "start": "start",
    "dst": "end",
    "dest": "end",
    "destination": "end",
    "end": "end",
    "hops": "hops",
    "n_hops": "hops",
    "ports": "ports",
    "links": "ports",
    "wrap": "wraps",
    "wraps": "wraps",
    "wraparound": "wraps",
    **{name: argument for name, argument in RATES.items() if argument != "axes"},
    "W": "link_bandwidth",
}
PATH_RATES = {
    "W_pcie": "host_bandwidth",
    "W_host": "host_bandwidth",
    "W_hbm": "hbm_bandwidth",
    "C": "peak",
    "C_bf16": "peak",
    "chips": "chips",
    "rows": "rows",
}
STAGES = {"t_gather": "t_ici", "t_allgather": "t_ici", "t_load": "t_pcie", "t_host": "t_pcie", "t_math": "t_mxu"}
STAGES = STAGES | {"t_compute": "t_mxu", "t_read": "t_hbm"}
PATH_FIELDS = {
    "array_bytes": "array_bytes",
    "bytes": "array_bytes",
    "flops": "compute_flops",
    "t_allgather_alt": "gather_limit_s",
    "t_total": "pipelined_s",
    "total": "pipelined_s",
    "t_lower": "pipelined_s",
    "t_pipelined": "pipelined_s",
    "t_sum": "summed_s",
    "t_upper": "summed_s",
    "t_serial": "summed_s",
    "bottleneck": "bottleneck",
    "bound": "bottleneck",
}
TRANSFER_FIELDS = {
    "hops": "hops",
    "n_hops": "hops",
    "ports": "ports",
    "links": "ports",
    "usable_ports": "ports",
    "bytes": "size_bytes",
    "array_bytes": "size_bytes",
    "size": "size_bytes",
    "t_first": "first_byte_s",
    "t_first_byte": "first_byte_s",
    "first_byte": "first_byte_s",
    "first": "first_byte_s",
    "latency": "first_byte_s",
    "t_latency": "first_byte_s",
    "t_bw": "transfer_s",
    "t_bandwidth": "transfer_s",
    "t_transfer": "transfer_s",
    "transfer": "transfer_s",
    "t_stream": "transfer_s",
    "t": "total_s",
    "t_total": "total_s",
    "total": "total_s",
}
BOOK = {"figures": "scaling-book"}

WIRINGS = {True: "ring", False: "line"}
ONE_WAY = {"wiring": "one_way"}
INT8_BYTES = 1

KINDS = {"ag": "all_gather", "rs": "reduce_scatter", "ar": "all_reduce", "a2a": "all_to_all"}
KINDS = KINDS | {kind: kind for kind in KINDS.values()}


@adapter("collective.all_gather", "collective.latency")
def all_gather(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    return answers_of("all_gather", inputs, wanted)


@adapter("collective.reduce_scatter")
def reduce_scatter(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    return answers_of("reduce_scatter", inputs, wanted)


@adapter("collective.all_reduce")
def all_reduce(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    return answers_of("all_reduce", inputs, wanted)


@adapter("collective.all_to_all")
def all_to_all(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    return answers_of("all_to_all", inputs, wanted)


@adapter("collective.p2p")
def transfer(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    """A path where the item knows a rate beside that of the links; else from chip to chip."""
    said = transfer_arguments(inputs)
    if not PATH_RATES.keys().isdisjoint(inputs):
        path = ridgeline.path(**said, **{PATH_RATES[name]: inputs[name] for name in PATH_RATES if name in inputs})
        stages = {f"t_{stage.name}": stage.time_s for stage in path.stages}
        renamed = {key: stages[STAGES[key]] for key in wanted if key in STAGES if STAGES[key] in stages}
        return stages | renamed | picked(path, wanted, PATH_FIELDS)
    return picked(ridgeline.point_to_point(**said), wanted, TRANSFER_FIELDS)


def transfer_arguments(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Array, topology and positions under the names of the API."""
    said = {argument: inputs[name] for name, argument in TRANSFER_NAMES.items() if name in inputs}
    if "n" in inputs:
        return said | {"shape": (inputs["n"], inputs["n"]), "dtype": element_of(inputs, usual=2)}
    said = said | array_of(inputs)
    chip = [inputs[name] for name in ("chip", "tpu") if name in inputs]
    if chip and "topology" in said:
        on = f"{chip[0]}:{'x'.join(str(size) for size in said['topology'])}"
        return {name: value for name, value in said.items() if name != "topology"} | {"on": on} | BOOK
    return said


def answers_of(kind: str, inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """One collective, or the same over axes of several sizes."""
    if "axis_sizes" in inputs:
        return over_sizes(kind, inputs, wanted)
    answer = ridgeline.collective(kind, **arguments_of(inputs))
    backward = {
        key: ridgeline.collective(KINDS[named]).transpose
        for key in wanted
        for prefix, _, named in [key.partition("_")]
        if prefix in {"bwd", "backward", "transpose"}
        if named in KINDS
    }
    fields = FIELDS | {"ratio": f"each_kind_ratio.{kind}"}
    if not array_of(inputs):
        fields = fields | {"bytes": "hop_threshold_bytes"}
    if not axes_of(inputs)[0]:
        fields = fields | {"threshold": "hop_threshold_bytes", "buffer_threshold": "hop_threshold_bytes"}
    return backward | picked(answer, wanted, fields)


def over_sizes(kind: str, inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """A list for each answer, an item a size; and whether the size matters at all."""
    rest = {name: value for name, value in inputs.items() if name != "axis_sizes"}
    sizes = inputs["axis_sizes"]
    answers = [
        picked(ridgeline.collective(kind, **arguments_of({**rest, "N": size})), wanted, FIELDS) for size in sizes
    ]
    listed = {key: [each[key] for each in answers] for key in answers[0]}
    alike = {"all_equal", "equal", "independent"}
    compared = ridgeline.without_wraparound(sizes=sizes).is_independent
    return listed | {key: compared for key in wanted if key in alike}


def arguments_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of an item under the names of the API."""
    group, sharded = axes_of(inputs)
    said = {argument: inputs[name] for name, argument in RATES.items() if name in inputs}
    said = said | array_of(inputs)
    if group:
        said["axis"] = group
        said = {name: value for name, value in said.items() if name != "axes"}
    if sharded:
        said["sharded"] = sharded
    return said | wiring_of(inputs, said)


def wiring_of(inputs: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, str]:
    """A line where the item says so; one way where only that rate is known; else as the API has it."""
    for name in ("wrap", "wraps", "wraparound", "ring"):
        if name in inputs:
            return {"wiring": WIRINGS[inputs[name]]}
    return ONE_WAY if "link_bandwidth" in said and "axis_bandwidth" not in said else {}


def array_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes or shape of the array; a matrix of one size is square, and counted in elements if no bytes are said."""
    for name in SIZE:
        if name in inputs:
            return {"bytes": inputs[name]}
    if is_square(inputs):
        return {"shape": (inputs["N"], inputs["N"]), "dtype": element_of(inputs, usual=1)}
    for names in SHAPES:
        if set(names).issubset(inputs):
            sizes = [inputs[name] for name in names]
            return {"shape": flat(sizes), "dtype": element_of(inputs, usual=2)}
    return {}


def element_of(inputs: Mapping[str, Any], *, usual: int) -> float:
    for name in ELEMENT:
        if name in inputs:
            return inputs[name]
    return INT8_BYTES if "int8" in inputs["setup"] else usual


def flat(sizes: list[Any]) -> tuple[Any, ...]:
    """A shape that is given whole, or dimension by dimension."""
    return tuple(part for size in sizes for part in (size if isinstance(size, list) else [size]))


def axes_of(inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Sizes of the axes that the collective runs over, and of those that keep the array split."""
    others = tuple(inputs[name] for name in SHARDED if name in inputs)
    present = [letter for letter in LETTERS if letter in inputs]
    named = list(letters_in(inputs["setup"]))
    rest = tuple(inputs[letter] for letter in present if letter not in named)
    for name in ("D",) if is_square(inputs) else SIZES:
        if name in inputs:
            return flat([inputs[name]]), (*others, *rest)
    group = tuple(inputs[letter] for letter in present if letter in named)
    return (group, (*others, *rest)) if named else (rest, others)


def is_square(inputs: Mapping[str, Any]) -> bool:
    """Whether N is a side of a matrix on a ring of D devices: so where both are given and no bytes."""
    return {"N", "D"}.issubset(name for name in inputs if {"B", *SIZE}.isdisjoint(inputs))


def letters_in(setup: str) -> Iterator[str]:
    """Mesh axes that a sentence says the collective runs over: `AllGather_X`, `over X and Y`, `along Z`."""
    for verb in VERBS:
        for after in setup.split(verb)[1:]:
            for letter in LETTERS:
                if after.startswith(tuple(head.format(letter) for head in HEADS)):
                    yield letter


def picked(answer: object, wanted: Collection[str], fields: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a result by answer key; what the result leaves open is left out."""
    found = {key: reached(answer, fields[key]) for key in wanted if key in fields}
    return {key: value for key, value in found.items() if value is not None}


def reached(answer: object, place: str) -> object:
    for part in place.split("."):
        if answer is None:
            break
        answer = answer[part] if isinstance(answer, dict) else getattr(answer, part)
    return answer
