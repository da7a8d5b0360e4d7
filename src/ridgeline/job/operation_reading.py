"""Reads a question about one operation from what was said: flags of the command line, or arguments of a call."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Final, get_args

from ridgeline.errors import InputError, nearest
from ridgeline.job.operation import SHAPES, SIZES, OperationKind, OperationQuestion, Split, Sweep
from ridgeline.job.rates_reading import (
    DTYPES,
    RATES,
    UNITS,
    RateArguments,
    Unit,
    read_element_bytes,
    read_machine,
    read_memory,
    read_rates,
)
from ridgeline.job.transfer import Axis, read_axes, size_on, stated_size
from ridgeline.units import parse_bytes, parse_bytes_per_s, parse_count, parse_flops, parse_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.said import Said, Value

KINDS: Final[tuple[OperationKind, ...]] = get_args(OperationKind)

SIZE_NAMES: Final[Mapping[str, str]] = {
    "batch": "B",
    "rows": "B",
    "tokens": "B",
    "queries": "T",
    "keys": "S",
    "width": "D",
    "outputs": "F",
    "heads": "N",
    "kv_heads": "K",
    "head_dim": "H",
    "experts": "E",
    "top_k": "k",
}
"""What sizes may be called in place of their letter."""


class OperationArguments(RateArguments, total=False):
    """What can be said of an operation; sizes go by their letter.

    Keys:
        reads: Arrays an elementwise operation reads.
        writes: Arrays it writes.
        flops_per_element: What it computes of each element.
        flops: Of anything else, for `work`.
        bytes: Of anything else, for `work`.
        axis: Axes of the slice over which the contraction of a matmul, batched or of experts too, is split.
        chips: Or the number of chips that share it.
        link_bandwidth: Of one link between them, one way.
        scatter: Whether the sum is left scattered.
        sweep: A size to vary: `B=1:8192`.
    """

    B: Value
    T: Value
    S: Value
    D: Value
    F: Value
    N: Value
    K: Value
    H: Value
    E: Value
    k: Value
    reads: Value
    writes: Value
    flops_per_element: Value
    flops: Value
    bytes: Value
    axis: Value
    chips: Value
    link_bandwidth: Value
    scatter: bool | None
    sweep: str | None


_PLACES = ("weights_from", "activations_from")
_NO_PLACE: Mapping[OperationKind, tuple[str, ...]] = {"elementwise": ("weights_from",)}
"""An operation without weights has no place for them."""

_SPLITS: tuple[OperationKind, ...] = ("matmul", "batched_matmul", "expert_matmul")
_SPLIT = ("axis", "chips", "link_bandwidth", "scatter")
_EXTRAS: Mapping[OperationKind, tuple[str, ...]] = {
    **dict.fromkeys(_SPLITS, _SPLIT),
    "elementwise": ("reads", "writes", "flops_per_element"),
    "work": ("flops", "bytes"),
}
_USUAL_EXTRAS = {"reads": 1.0, "writes": 1.0, "flops_per_element": 1.0}
_ON_VECTOR_UNIT: tuple[OperationKind, ...] = ("dot", "elementwise")
_SELF_ATTENTION: Final = ("attention", "S")
"""Without a number of keys, a sequence attends to itself."""

_SWEEP = re.compile(r"\s*(?P<name>\w+)\s*=\s*(?P<first>[^:=]+):(?P<last>[^:=]+)")


def read_operation(kind: str, said: Said) -> OperationQuestion:
    """The question that an operation's name and arguments ask.

    Args:
        kind: `matmul`, `batched_matmul`, `expert_matmul`, `attention`, `elementwise`, `embedding`, `dot` or `work`.
        said: The arguments.

    Raises:
        InputError: Something is unknown, missing, malformed, or contradicts something else.
    """
    operation = _kind(kind, said)
    places = [place for place in _PLACES if place not in _NO_PLACE.get(operation, ())]
    if operation not in _SPLITS and said.has("axis"):
        raise said.refuse(
            f"the contraction of {operation} is not split here",
            "axis",
            expected=f"an operation whose contraction chips can share: {', '.join(_SPLITS)}",
            fix=f"leave {said.written('axis')} out, or ask of matmul",
        )
    said.refuse_unless(
        (*SIZES[operation], *_EXTRAS.get(operation, ()), *RATES, *DTYPES, *places, "unit", "sweep"), question=operation
    )
    chip, hardware = read_machine(said)
    weights_from, activations_from = read_memory(said, "weights_from"), read_memory(said, "activations_from")
    rates, note = read_rates(said, chip, memories=[weights_from, activations_from], unit=_unit(operation, said))
    sweep, split = _sweep(operation, said), _split(said, chip, hardware)
    sizes = _sizes(operation, said, sweep)
    if split is not None:
        widths = sweep.sizes if sweep is not None and sweep.letter == "D" else [sizes["D"]]
        _check_split(said, widths, split.num_chips)
    return OperationQuestion(
        kind=operation,
        machine=_machine(chip, hardware),
        sizes=sizes,
        element_bytes=read_element_bytes(said),
        rates=rates,
        weights_from=weights_from,
        activations_from=activations_from,
        split=split,
        sweep=sweep,
        mxu_shape=None if chip is None or _unit(operation, said) == "vpu" else chip.mxu_shape,
        notes=(note,) if note else (),
    )


def _kind(kind: str, said: Said) -> OperationKind:
    for known in KINDS:
        if known == kind.replace("-", "_"):
            return known
    raise InputError(
        "unknown operation",
        where=said.written("operation"),
        value=kind,
        expected=", ".join(KINDS),
        fix=nearest(kind, KINDS) or "write, for example, matmul",
    )


def _unit(kind: OperationKind, said: Said) -> Unit:
    return said.choice("unit", UNITS, "vpu" if kind in _ON_VECTOR_UNIT else "mxu")


def _machine(chip: Chip | None, hardware: Slice | None) -> str:
    if chip is None:
        return "a chip of the given rates"
    return f"one {chip.name} chip" if hardware is None else f"one chip of {hardware.name}"


def _sizes(kind: OperationKind, said: Said, sweep: Sweep | None) -> dict[str, float]:
    """Every size of the operation; one that is swept ends where its sweep does."""
    if kind == "work":
        return {"flops": _needed(said, "flops", parse_flops), "bytes": _needed(said, "bytes", parse_bytes)}
    swept = {} if sweep is None else {sweep.letter: sweep.sizes[-1]}
    stated = {
        letter: parse_whole(value, where=said.written(letter))
        for letter in SIZES[kind]
        if (value := said.arguments.get(letter)) is not None
    }
    sizes: dict[str, float] = {**_usual_sizes(kind, swept | stated), **swept, **stated}
    for letter in SIZES[kind]:
        if letter not in sizes and (kind, letter) != _SELF_ATTENTION:
            raise said.refuse(
                f"size {letter} is missing",
                letter,
                expected=f"every size of {kind}: {SHAPES[kind]}",
                fix=f"add {said.written(letter)}, or vary it: {said.written('sweep')} {letter}=1:8192",
            )
    _check_ratio(said, sizes)
    if kind == "elementwise":
        counted = {name: said.number(name, parse_count) for name in _USUAL_EXTRAS}
        sizes |= _USUAL_EXTRAS | {name: number for name, number in counted.items() if number is not None}
    return {letter: sizes[letter] for letter in (*SIZES[kind], *_USUAL_EXTRAS) if letter in sizes}


def _usual_sizes(kind: OperationKind, stated: Mapping[str, float]) -> dict[str, float]:
    """Sizes that may be left out: a row an example; one sequence, as many key-value heads as query heads."""
    if kind == "batched_matmul":
        return {"T": 1}
    if kind == "attention":
        return {"B": 1} | ({"K": stated["N"]} if "N" in stated else {})
    return {}


def _check_ratio(said: Said, sizes: Mapping[str, float]) -> None:
    if "K" in sizes and sizes["N"] % sizes["K"]:
        raise said.refuse(
            "key-value heads do not divide query heads",
            "K",
            expected=f"a divisor of {sizes['N']:.0f}",
            fix="give each key-value head as many query heads as the next",
        )
    if "k" in sizes and sizes["k"] > sizes["E"]:
        raise said.refuse(
            "more experts a row than there are", "k", expected=f"at most {sizes['E']:.0f}", fix="lower it"
        )


def _needed(said: Said, name: str, parse: Callable[..., float]) -> float:
    number = said.number(name, parse)
    if number is None:
        raise said.refuse(f"{name} is missing", name, expected="FLOPs and bytes", fix=f"add {said.written(name)}")
    return number


def _split(said: Said, chip: Chip | None, hardware: Slice | None) -> Split | None:
    """How the contraction is split, if it is."""
    if not said.has("axis") and not said.has("chips"):
        for name in ("scatter", "link_bandwidth"):
            if said.arguments.get(name):
                raise said.refuse("nothing is split", name, expected=f"{said.written('axis')} too", fix="leave it out")
        return None
    if said.has("chips") and (hardware is not None or said.has("axis")):
        raise said.refuse(
            "chips are counted where no axis is named", "chips", expected="one of the two", fix="name an axis"
        )
    named = "axis" if said.has("axis") else "chips"
    axes, where = read_axes(str(said.arguments[named]), where=said.written(named)), said.written(named)
    sizes = [
        stated_size(axis, where=where) if hardware is None else size_on(hardware, axis, where=where) for axis in axes
    ]
    return Split(
        num_chips=_chips_of(prod(sizes), axes, hardware),
        axes=axes,
        hardware=hardware,
        link_bytes_per_s=_link_rate(said, None if hardware is not None else chip, needed=hardware is None),
        scatter=bool(said.arguments.get("scatter")),
    )


def _chips_of(num_devices: int, axes: Sequence[Axis], hardware: Slice | None) -> int:
    """Chips that share the contraction; devices of one chip share it only where its own axis is named."""
    if hardware is None or all(axis.name != "core" for axis in axes):
        return num_devices
    return num_devices // hardware.chip.devices_per_chip


def _check_split(said: Said, widths: Sequence[float], num_chips: int) -> None:
    """Refuses a contraction, swept or not, that the chips cannot share evenly."""
    for width in widths:
        if width % num_chips:
            raise said.refuse(
                f"{width:.0f} does not divide over {num_chips} chips",
                "D",
                expected="chips that share the contraction evenly",
                fix=f"pad D to {-(-width // num_chips) * num_chips:.0f}",
            )


def _link_rate(said: Said, chip: Chip | None, *, needed: bool) -> float | None:
    """Bytes a second of one link, one way: stated, else those of a chip that is no slice."""
    stated = said.positive("link_bandwidth", parse_bytes_per_s)
    if stated is not None or not needed:
        return stated
    if chip is not None and chip.torus is not None:
        return chip.torus.link_bytes_per_s
    if chip is not None and chip.switch is not None:
        return chip.switch.bytes_per_s
    raise said.refuse(
        "no bandwidth of the links", "link_bandwidth", expected="bytes a second, one way", fix="or name a slice"
    )


def _sweep(kind: OperationKind, said: Said) -> Sweep | None:
    """A size from a first to a last value, doubling."""
    text = said.arguments.get("sweep")
    if text is None:
        return None
    where = said.written("sweep")
    match = _SWEEP.fullmatch(str(text))
    letter = SIZE_NAMES.get(match["name"], match["name"]) if match else ""
    if match is None or letter not in SIZES[kind]:
        names = [*SIZES[kind], *(name for name, known in SIZE_NAMES.items() if known in SIZES[kind])]
        raise InputError(
            "not a sweep" if match is None else f"{kind} has no size {match['name']}",
            where=where,
            value=text,
            expected=f"SIZE=FIRST:LAST, where SIZE is one of {', '.join(names)}" if names else "no sweep",
            fix=f"write, for example, {SIZES[kind][0]}=1:8192" if names else "leave it out",
        )
    first, last = (parse_whole(match[end], where=where) for end in ("first", "last"))
    if last < first:
        raise InputError(
            "the sweep runs backwards", where=where, value=text, expected="FIRST:LAST", fix=f"write {last}:{first}"
        )
    doubled = [size for power in range((last // first).bit_length()) if (size := first << power) <= last]
    return Sweep(letter=letter, sizes=tuple(dict.fromkeys([*doubled, last])))
