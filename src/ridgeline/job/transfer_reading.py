"""Reads questions about moving arrays: flags of the command line, or arguments of a call, become typed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, TypedDict, TypeGuard, get_args

from ridgeline.hardware.scaling_book import slice_of_the_book
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.rates_reading import bytes_of, read_dtype
from ridgeline.job.transfer import Axis, CollectiveGiven, Path, Route, TorusWiring, read_axes, size_on
from ridgeline.units import parse_bytes, parse_bytes_per_s, parse_duration, parse_flops_per_s, parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.said import Said, Value

WIRINGS: tuple[TorusWiring, ...] = get_args(TorusWiring)

FIGURES = ("catalog", "scaling-book")
"""Whose figures a slice has."""


class ArrayArguments(TypedDict, total=False):
    """What can be said of the array and the wires, as an argument or a flag; None says nothing.

    Keys:
        bytes: Of the whole array: `34MB`.
        shape: Or its shape, `2048x8192`.
        dtype: Of its elements, or their bytes; bf16.
        on: The slice: `v5e:8x16`.
        figures: `catalog`, or `scaling-book` for the figures of the book.
        link_bandwidth: Of one link, one way, in place of the slice's.
        axis_bandwidth: Of both links of a ring axis.
        hop: Least time of a hop.
    """

    bytes: Value
    shape: str | Sequence[int] | None
    dtype: Value
    on: str | None
    figures: str | None
    link_bandwidth: Value
    axis_bandwidth: Value
    hop: Value


class CollectiveArguments(ArrayArguments, total=False):
    """What can be said of a collective.

    Keys:
        axis: Over which axes: `x,y`, `x=4`; without a slice, sizes: `4,4`.
        sharded: Other axes over which the array stays split, or the number of ways.
        axes: Number of axes, where their sizes are left open.
        wiring: `ring`, `line`, or `one_way`, whatever the slice is.
        network_bandwidth: Of one chip's share of the network.
    """

    axis: str | int | Sequence[str | int] | None
    sharded: str | int | Sequence[str | int] | None
    axes: Value
    wiring: str | None
    network_bandwidth: Value


class PointToPointArguments(ArrayArguments, total=False):
    """What can be said of a transfer from chip to chip.

    Keys:
        start: Position of the sender: `0,0`.
        end: Of the receiver.
        topology: Chips along each axis, in place of a slice: `4x4`.
        wraps: Whether its axes close.
        hops: Between the two chips, in place of positions.
        ports: Links over which they can exchange at once.
    """

    start: str | Sequence[int] | None
    end: str | Sequence[int] | None
    topology: str | Sequence[int] | None
    wraps: bool | Sequence[bool] | None
    hops: Value
    ports: Value


class PathArguments(PointToPointArguments, total=False):
    """What can be said of a path of stages.

    Keys:
        chips: Over whose hosts the array is spread.
        rows: Of the matrix multiplied with it.
        host_bandwidth: Host to chip, of one chip.
        hbm_bandwidth: Of one chip's memory.
        peak: FLOPs a second of one chip.
        compute_dtype: Whose peak counts; bf16.
    """

    chips: Value
    rows: Value
    host_bandwidth: Value
    hbm_bandwidth: Value
    peak: Value
    compute_dtype: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveQuestion:
    """A collective: of how many bytes, over which axes, on what; NaN for what is left open.

    Attributes:
        size_bytes: Of the whole array; NaN where its shape is among what is given.
        axes: Over which.
        hardware: The slice; None where rates are stated.
        given: What is stated beside it.
    """

    size_bytes: float
    axes: tuple[Axis, ...]
    hardware: Slice | None
    given: CollectiveGiven


@dataclass(frozen=True, slots=True, kw_only=True)
class PathQuestion:
    """A transfer, from chip to chip or along a path of stages.

    Attributes:
        size_bytes: Of the array; NaN where its shape is among what is given.
        start: Position of the sender; empty for the first chip.
        end: Of the receiver; empty where it is not said.
        hardware: The slice; None where topology or distance are stated.
        compute_dtype: Whose peak a product runs at.
        given: What is stated beside it.
    """

    size_bytes: float
    start: tuple[int, ...]
    end: tuple[int, ...]
    hardware: Slice | None
    compute_dtype: str
    given: Path


def joined(arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments of a call with sequences as they would be written: names, positions and truth values by commas."""
    return {
        name: ",".join(map(str, value)) if name in _BY_COMMAS and _is_sequence(value) else value
        for name, value in arguments.items()
    }


def read_collective(said: Said) -> CollectiveQuestion:
    """The question that was asked of a collective.

    Raises:
        InputError: Something was said that is malformed, or that has no meaning here.
    """
    said.refuse_unless(CollectiveArguments.__annotations__, question="a collective")
    hardware = _slice(said)
    axes = _axes(said, "axis", hardware)
    given: CollectiveGiven = {**_array(said), **_wires(said)}
    if said.has("network_bandwidth"):
        given["network_bytes_per_s"] = _rate(said, "network_bandwidth")
    if said.has("wiring"):
        given["wiring"] = said.choice("wiring", WIRINGS, "ring")
    if said.has("axes"):
        given["num_axes"] = _whole(said, "axes")
    if said.has("sharded"):
        given["sharded"] = _axes(said, "sharded", hardware)
    return CollectiveQuestion(size_bytes=_size_bytes(said), axes=axes, hardware=hardware, given=given)


def read_point_to_point(said: Said) -> PathQuestion:
    """The question that was asked of a transfer from chip to chip.

    Raises:
        InputError: Something was said that is malformed, or that has no meaning here.
    """
    said.refuse_unless(PointToPointArguments.__annotations__, question="a transfer from chip to chip")
    return _path_question(said)


def read_path(said: Said) -> PathQuestion:
    """The question that was asked of a path of stages.

    Raises:
        InputError: Something was said that is malformed, or that has no meaning here.
    """
    said.refuse_unless(PathArguments.__annotations__, question="a path of stages")
    return _path_question(said)


_BY_COMMAS = ("axis", "sharded", "start", "end", "wraps")

_WORDS = {"yes": True, "true": True, "ring": True, "no": False, "false": False, "line": False}


def _path_question(said: Said) -> PathQuestion:
    given: Path = {**_array(said), **_wires(said)}
    if said.has("topology"):
        given["topology"] = _numbers(said, "topology", least=1)
    if said.has("wraps"):
        given["wraps"] = tuple(_truth(said, word) for word in str(said.arguments["wraps"]).split(","))
        if len(given["wraps"]) == 1:
            given["wraps"] = given["wraps"][0]
    for name, key in (("hops", "hops"), ("ports", "ports"), ("chips", "num_chips"), ("rows", "rows")):
        if said.has(name):
            given[key] = _whole(said, name)
    if said.has("host_bandwidth"):
        given["pcie_bytes_per_s"] = _rate(said, "host_bandwidth")
    if said.has("hbm_bandwidth"):
        given["hbm_bytes_per_s"] = _rate(said, "hbm_bandwidth")
    if said.has("peak"):
        given["peak_flops_per_s"] = _rate(said, "peak", parse_flops_per_s)
    return PathQuestion(
        size_bytes=_size_bytes(said),
        start=_numbers(said, "start", least=0),
        end=_numbers(said, "end", least=0),
        hardware=_slice(said),
        compute_dtype=str(said.arguments.get("compute_dtype") or "bf16"),
        given=given,
    )


def _slice(said: Said) -> Slice | None:
    name = said.arguments.get("on")
    figures = said.choice("figures", FIGURES, "catalog")
    if name is None:
        return None
    hardware = parse_slice(str(name), where=said.written("on"))
    return hardware if figures == "catalog" else slice_of_the_book(hardware, where=said.written("on"))


def _axes(said: Said, name: str, hardware: Slice | None) -> tuple[Axis, ...]:
    text, where = said.arguments.get(name), said.written(name)
    axes = () if text is None else read_axes(str(text), where=where)
    if hardware is not None:
        for axis in axes:
            if axis.name or name == "axis":
                size_on(hardware, axis, where=where)
    return axes


def _size_bytes(said: Said) -> float:
    size_bytes = said.positive("bytes", parse_bytes)
    if size_bytes is not None and said.has("shape"):
        raise said.refuse("the array has bytes and a shape", "shape", expected="one of the two", fix="leave one out")
    return nan if size_bytes is None else size_bytes


def _array(said: Said) -> Route:
    array: Route = {}
    if said.has("shape"):
        array["shape"] = _numbers(said, "shape", least=1)
    if said.has("dtype"):
        array["element_bytes"] = bytes_of(read_dtype(said.arguments["dtype"], where=said.written("dtype")))
    return array


def _wires(said: Said) -> Route:
    wires: Route = {}
    if said.has("link_bandwidth"):
        wires["link_bytes_per_s"] = _rate(said, "link_bandwidth")
    if said.has("axis_bandwidth"):
        wires["axis_bytes_per_s"] = _rate(said, "axis_bandwidth")
    hop_s = said.number("hop", parse_duration)
    if hop_s is not None:
        wires["hop_s"] = hop_s
    return wires


def _rate(said: Said, name: str, parse: Callable[..., float] = parse_bytes_per_s) -> float:
    rate = said.number(name, parse)
    if rate == 0:
        raise said.refuse("nothing moves at this rate", name, expected="more than 0", fix="write, for example, 45GB/s")
    return nan if rate is None else rate


def _whole(said: Said, name: str) -> int:
    return parse_whole(said.arguments[name] or "", where=said.written(name))


def _numbers(said: Said, name: str, *, least: int) -> tuple[int, ...]:
    """Whole numbers joined by `x` or commas; empty where nothing was said."""
    text = said.arguments.get(name)
    words = [] if text is None else str(text).replace("x", ",").split(",")
    return tuple(parse_whole(word, where=said.written(name), least=least) for word in words)


def _truth(said: Said, word: str) -> bool:
    if word.strip().lower() not in _WORDS:
        raise said.refuse(
            "neither yes nor no", "wraps", expected="yes or no, once or for each axis", fix="write yes,no"
        )
    return _WORDS[word.strip().lower()]


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)
