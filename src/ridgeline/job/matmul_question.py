"""Reads a question about sharded arrays: the notation, and what was said beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, isnan, nan, prod
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from ridgeline.errors import InputError, nearest
from ridgeline.hardware.scaling_book import slice_of_the_book
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.mesh import parse_pairs
from ridgeline.job.notation import read_mesh, read_notation, read_sizes
from ridgeline.job.rates_reading import BYTES_OF_ELEMENT, read_dtype
from ridgeline.job.said import Said
from ridgeline.job.sharding import Product, Question, Resharding, ShardedArray, joined, ways
from ridgeline.job.transfer_reading import FIGURES, WIRINGS
from ridgeline.units import (
    format_count,
    format_fraction,
    parse_bytes,
    parse_bytes_per_s,
    parse_duration,
    parse_flops_per_s,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.said import Value
    from ridgeline.job.transfer import TorusWiring

Pairs: TypeAlias = str | Mapping[str, int | None] | None
"""`X=4,Y=8`, or a mapping, in which None leaves a size open."""

_MOST_AXES = 4
"""Strategies grow as a power of the number of mesh axes."""


class MatmulArguments(TypedDict, total=False):
    """What can be said beside the notation, as an argument or a flag; None says nothing.

    Keys:
        sizes: Elements along each dimension.
        mesh: Devices along each mesh axis, outermost first; the axes of the slice, X, Y and Z, if it is not said.
        on: The slice that the mesh lies on.
        figures: Whose: `catalog`, or `scaling-book` for those that the book uses.
        dtype: Of all arrays, or by array: a name, or the bytes of an element.
        compute_dtype: Whose matmul rate counts; that of the widest operand if it is not said.
        memory: What the arrays may take of a device, for a search.
        peak: FLOP/s of a device, C.
        hbm_bandwidth: Bytes/s of a device's memory.
        link_bandwidth: Bytes/s of one link, one way, W.
        axis_bandwidth: Bytes/s of both links of a ring axis together, W_ici.
        hop: Least time of a hop.
        wiring: `ring` or `line`, whatever the slice is.
    """

    sizes: Pairs
    mesh: Pairs
    on: str | None
    figures: str | None
    dtype: str | float | Mapping[str, str | float] | None
    compute_dtype: str | None
    memory: str | float | None
    peak: str | float | None
    hbm_bandwidth: str | float | None
    link_bandwidth: str | float | None
    axis_bandwidth: str | float | None
    hop: str | float | None
    wiring: str | None


class StatedRates(TypedDict, total=False):
    """What a question states of the machine; it takes the place of the catalogue's figure.

    Keys:
        peak_flops_per_s: Of a device, C.
        hbm_bytes_per_s: Of a device; without it, and without a slice, memory is left out.
        link_bytes_per_s: One link, one way, W.
        axis_bytes_per_s: Both links of a ring axis together, W_ici.
        hop_s: Least time of a hop; without it, and without a slice, latency is left out.
        wiring: Of the torus.
    """

    peak_flops_per_s: float
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    axis_bytes_per_s: float
    hop_s: float
    wiring: TorusWiring


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulQuestion:
    """A question about sharded arrays; what it leaves open is NaN.

    Attributes:
        arrays: What is asked of which arrays.
        sizes: Elements along each dimension.
        mesh: Devices along each mesh axis.
        hardware: The slice under the mesh; None where rates are stated, or nothing.
        rates: What is stated of the machine.
        dtypes: By array: a name, or the bytes of an element as text.
        compute_dtype: Whose matmul rate counts.
        memory_bytes: What the arrays may take of a device; infinite without a limit.
        where: How the mesh was written, for error messages.
    """

    arrays: Question
    sizes: Mapping[str, float]
    mesh: Mapping[str, float]
    hardware: Slice | None
    rates: StatedRates
    dtypes: Mapping[str, str]
    compute_dtype: str
    memory_bytes: float
    where: str

    @property
    def element_bytes(self) -> Mapping[str, float]:
        """Bytes of one element, by the name of the array."""
        return {name: BYTES_OF_ELEMENT.get(dtype) or float(dtype) for name, dtype in self.dtypes.items()}

    @property
    def searches(self) -> bool:
        """Whether layouts are to be chosen."""
        return isinstance(self.arrays, Product) and (self.arrays.left.is_free or self.arrays.right.is_free)


def read_matmul(notation: str, arguments: MatmulArguments, *, written: Callable[[str], str]) -> MatmulQuestion:
    """The question that a notation and arguments ask.

    Args:
        notation: Such as `A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]`.
        arguments: What was said beside it.
        written: From an argument's name to how the user wrote it.

    Raises:
        InputError: Something is malformed, unknown, missing, or does not fit something else.
    """
    said = Said(arguments={name: _value(value) for name, value in arguments.items()}, written=written)
    said.refuse_unless(MatmulArguments.__annotations__, question="matmul")
    hardware = _slice(said)
    mesh = _mesh(arguments.get("mesh"), hardware, where=written("mesh"))
    arrays = read_notation(notation, mesh=mesh, where=written("notation"))
    arrays = _freed(arrays) if mesh is not None and prod(mesh.values()) > 1 else arrays
    sizes = _sizes(arguments.get("sizes"), arrays, must=hardware is not None, where=written("sizes"))
    known_mesh = dict.fromkeys(_axes_used(arrays), nan) if mesh is None else mesh
    _check_few(known_mesh, where=written("mesh" if mesh is not None else "notation"))
    for array in arrays_of(arrays):
        _check_even(array, sizes, known_mesh, where=written("sizes"))
    dtypes = _dtypes(arguments.get("dtype"), arrays, where=written("dtype"))
    return MatmulQuestion(
        arrays=arrays,
        sizes=sizes,
        mesh=known_mesh,
        hardware=hardware,
        rates=_rates(said),
        dtypes=dtypes,
        compute_dtype=_compute_dtype(arguments.get("compute_dtype"), arrays, dtypes, where=written("compute_dtype")),
        memory_bytes=said.number("memory", parse_bytes) or inf,
        where=written("mesh"),
    )


def _value(value: object) -> Value:
    """What was said, as text if it is a mapping."""
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _slice(said: Said) -> Slice | None:
    """The slice that was named, with the figures of whom was said."""
    if not said.has("on"):
        return None
    hardware = parse_slice(str(said.arguments["on"]), where=said.written("on"))
    by_the_book = said.choice("figures", FIGURES, "catalog") == "scaling-book"
    return slice_of_the_book(hardware, where=said.written("on")) if by_the_book else hardware


def arrays_of(question: Question) -> tuple[ShardedArray, ...]:
    """Every array of a question."""
    match question:
        case ShardedArray():
            return (question,)
        case Resharding():
            return question.source, question.target
        case Product():
            return question.arrays


def _axes_used(question: Question) -> dict[str, None]:
    return dict.fromkeys(axis for array in arrays_of(question) for axis in (*array.used, *array.partial))


def _mesh(mesh: Pairs, hardware: Slice | None, *, where: str) -> Mapping[str, float] | None:
    """The mesh as it was written, or the axes of the slice under the names X, Y, Z and Core."""
    if mesh is not None:
        return read_mesh(mesh, where=where)
    if hardware is None:
        return None
    axes = hardware.axes if hardware.dcn is None else (hardware.dcn, *hardware.axes)
    return {axis.name.capitalize(): axis.size for axis in axes}


def _freed(question: Question) -> Question:
    """A product in which nothing is laid out asks for layouts."""
    if not isinstance(question, Product) or _axes_used(question) or any(a.is_free for a in question.arrays[:2]):
        return question
    left, right, output = (replace(array, is_free=True) for array in question.arrays)
    return Product(left=left, right=right, output=output)


def _sizes(sizes: Pairs, question: Question, *, must: bool, where: str) -> dict[str, float]:
    """Elements along every dimension; all open where no size is said and none must be."""
    dims = dict.fromkeys(dim for array in arrays_of(question) for dim in array.dims)
    if sizes is None and not must:
        return dict.fromkeys(dims, nan)
    known = {} if sizes is None else read_sizes(sizes, where=where)
    for dim in known:
        if dim not in dims:
            raise InputError(
                f"no array has a dimension {dim}",
                where=where,
                value=dim,
                expected=f"sizes of {', '.join(dims)}" if dims else "no sizes: the array is a number",
                fix=nearest(dim, dims) or f"leave {dim} out",
            )
    if missing := [dim for dim in dims if dim not in known]:
        raise InputError(
            "size missing",
            where=where,
            value=", ".join(f"{dim}={size}" for dim, size in known.items()),
            expected=f"a size for each of {', '.join(dims)}",
            fix=f"add {','.join(f'{dim}=…' for dim in missing)}",
        )
    return {dim: known[dim] for dim in dims}


def _check_few(mesh: Mapping[str, float], *, where: str) -> None:
    if len(mesh) > _MOST_AXES:
        raise InputError(
            "too many mesh axes",
            where=where,
            value=", ".join(mesh),
            expected=f"at most {_MOST_AXES}",
            fix="join axes that are used alike into one",
        )


def _check_even(array: ShardedArray, sizes: Mapping[str, float], mesh: Mapping[str, float], *, where: str) -> None:
    """Refuses a dimension that its mesh axes do not divide."""
    for dim, axes in array.layout.items():
        size, shards = sizes[dim], ways(axes, mesh)
        if isnan(size / shards) or not size % shards:
            continue
        padded = -(-size // shards) * shards
        raise InputError(
            f"dimension {dim} of {array.name} does not divide over {joined(axes)}",
            where=f"{where}: {dim}",
            value=f"{dim}={size:g} over {joined(axes)}={shards:g}",
            expected=f"a multiple of {format_count(shards)}",
            fix=f"pad {dim} to {format_count(padded)} ({format_fraction(padded / size - 1)} more), or split it less",
        )


def _dtypes(dtype: str | float | Mapping[str, str | float] | None, question: Question, *, where: str) -> dict[str, str]:
    """The dtype of every array: its own, or that of all; bf16 if none is said."""
    names = dict.fromkeys(array.name for array in arrays_of(question))
    if dtype is None or isinstance(dtype, int | float) or (isinstance(dtype, str) and "=" not in dtype):
        return dict.fromkeys(names, read_dtype("bf16" if dtype is None else dtype, where=where))
    pairs = parse_pairs(dtype, where=where, example="A=bf16,W=int8") if isinstance(dtype, str) else dtype
    for name in pairs:
        if name not in names:
            raise InputError(
                f"there is no array {name}",
                where=where,
                value=name,
                expected=f"names among {', '.join(names)}",
                fix=nearest(name, names) or f"leave {name} out",
            )
    return {name: read_dtype(pairs.get(name, "bf16"), where=f"{where}: {name}") for name in names}


def _compute_dtype(dtype: str | None, question: Question, dtypes: Mapping[str, str], *, where: str) -> str:
    """The dtype that was said, or that of the widest operand."""
    if dtype is not None:
        return read_dtype(dtype, where=where)
    operands = [dtypes[array.name] for array in arrays_of(question)[:2]]
    return max(operands, key=lambda name: BYTES_OF_ELEMENT.get(name) or float(name))


def _rates(said: Said) -> StatedRates:
    """The rates that were said, none of them zero."""
    if said.has("link_bandwidth") and said.has("axis_bandwidth"):
        raise said.refuse(
            "the rate of a link is said twice",
            "link_bandwidth",
            expected=f"one of {said.written('link_bandwidth')} and {said.written('axis_bandwidth')}, twice as much",
            fix=f"leave {said.written('link_bandwidth')} out",
        )
    rates = StatedRates()
    if (peak_flops_per_s := said.number("peak", parse_flops_per_s)) is not None:
        rates["peak_flops_per_s"] = _positive(peak_flops_per_s, said, "peak")
    if (hbm_bytes_per_s := said.number("hbm_bandwidth", parse_bytes_per_s)) is not None:
        rates["hbm_bytes_per_s"] = _positive(hbm_bytes_per_s, said, "hbm_bandwidth")
    if (link_bytes_per_s := said.number("link_bandwidth", parse_bytes_per_s)) is not None:
        rates["link_bytes_per_s"] = _positive(link_bytes_per_s, said, "link_bandwidth")
    if (axis_bytes_per_s := said.number("axis_bandwidth", parse_bytes_per_s)) is not None:
        rates["axis_bytes_per_s"] = _positive(axis_bytes_per_s, said, "axis_bandwidth")
    if (hop_s := said.number("hop", parse_duration)) is not None:
        rates["hop_s"] = hop_s
    if said.has("wiring"):
        rates["wiring"] = said.choice("wiring", WIRINGS, "ring")
    return rates


def _positive(rate: float, said: Said, name: str) -> float:
    if rate > 0:
        return rate
    raise said.refuse("a rate of zero", name, expected="a rate above zero", fix="leave it out, or state it")
