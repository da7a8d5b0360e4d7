"""Shapes as HLO writes them: `bf16[4,32,8192]{2,1,0:T(8,128)(2,1)S(5)}`, and tuples of such.

After the dimensions, the layout: dimensions from minor to major, the tile `T(8,128)` to whose multiples the minor
dimensions are padded, the memory space `S(n)` (none is HBM, 5 the host), and `E(n)`, the bits of a packed element.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import nan, prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

HBM = 0
HOST = 5
"""Memory space of pinned host memory in TPU programs."""

_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^{}]*)\})?")
_ORDER = re.compile(r"[\d,\s]*")
_TILE = re.compile(r"T\(([\d,]+)\)")
_SPACE = re.compile(r"S\((\d+)\)")
_ELEMENT_BITS = re.compile(r"E\((\d+)\)")
_COMMENT = re.compile(r"/\*.*?\*/")
_BRACKET = re.compile(r"[()\[\]{},]")

_BITS = {"token": 0, "opaque": 0, "pred": 8, "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128} | {
    f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)
}
_SMALL_FLOAT = re.compile(r"f(\d+)e\d+m\d+\w*")
_BYTE_BITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayShape:
    """An array.

    Attributes:
        dtype: As HLO writes it: `bf16`, `f8e4m3fn`, `s32`.
        dims: Sizes; the upper bound of a dynamic one.
        minor_to_major: Dimensions in layout order; empty where the text gives no layout.
        tile: The multiples to which the minor dimensions are padded, the minor-most last.
        memory_space: 0 is HBM; 5, the host's memory on TPU.
        element_bits: Of one element in memory; NaN for a dtype that is not known here.
    """

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    memory_space: int = HBM
    element_bits: float = nan

    @property
    def num_elements(self) -> int:
        """Elements, without padding."""
        return prod(self.dims)

    @property
    def size_bytes(self) -> float:
        """Bytes of the elements, without padding."""
        return self.num_elements * self.element_bits / _BYTE_BITS

    @property
    def allocated_bytes(self) -> float:
        """Bytes in memory: the minor dimensions padded to whole tiles."""
        order = self.minor_to_major or tuple(reversed(range(len(self.dims))))
        minor_first = [self.dims[axis] for axis in order]
        minor_first += [1] * (len(self.tile) - len(minor_first))
        tile = [*reversed(self.tile)] + [1] * (len(minor_first) - len(self.tile))
        padded = prod(-(-size // multiple) * multiple for size, multiple in zip(minor_first, tile, strict=True))
        return padded * self.element_bits / _BYTE_BITS

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleShape:
    """Several values handed on as one."""

    elements: tuple[Shape, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


Shape: TypeAlias = ArrayShape | TupleShape


def arrays(shape: Shape) -> Iterator[ArrayShape]:
    """The arrays of a shape, in order."""
    match shape:
        case ArrayShape():
            yield shape
        case TupleShape():
            for element in shape.elements:
                yield from arrays(element)


def size_bytes(shape: Shape) -> float:
    """Bytes of all the arrays of a shape, without padding."""
    return sum(array.size_bytes for array in arrays(shape))


def shape_end(text: str, start: int) -> int:
    """Where the shape that begins at `start` ends; ValueError where none begins or it is cut short."""
    if text.startswith("(", start):
        depth = 0
        for match in _BRACKET.finditer(text, start):
            depth += (match[0] in "([{") - (match[0] in ")]}")
            if depth == 0:
                return match.end()
        raise ValueError("the text ends inside a shape")
    match = _ARRAY.match(text, start)
    if match is None:
        raise ValueError("no shape")
    return match.end()


@lru_cache(maxsize=65536)
def parse_shape(text: str) -> Shape:
    """A shape from its text; ValueError where it is none.

    >>> shape = parse_shape("bf16[4,32,8192]{2,1,0:T(8,128)(2,1)S(5)}")
    >>> str(shape), shape.size_bytes, shape.memory_space
    ('bf16[4,32,8192]', 2097152.0, 5)
    >>> str(parse_shape("(s32[], /*index=1*/f32[8]{0})"))
    '(s32[], f32[8])'
    """
    text = _COMMENT.sub("", text).strip() if "/*" in text else text.strip()
    if text.startswith("("):
        if not text.endswith(")"):
            raise ValueError(f"not a shape: {text}")
        return TupleShape(elements=tuple(parse_shape(element) for element in _elements(text[1:-1])))
    match = _ARRAY.fullmatch(text)
    if match is None:
        raise ValueError(f"not a shape: {text}")
    return _array(dtype=match[1], dims=match[2], layout=match[3] or "")


def _array(*, dtype: str, dims: str, layout: str) -> ArrayShape:
    order, _, rest = layout.partition(":")
    tile, space, packed = _TILE.search(rest), _SPACE.search(rest), _ELEMENT_BITS.search(rest)
    sizes = tuple(int(size.strip().removeprefix("<=")) for size in dims.split(",") if size.strip())
    axes = _ints(order) if _ORDER.fullmatch(order) else ()
    if axes and sorted(axes) != list(range(len(sizes))):
        raise ValueError(f"layout {{{layout}}} does not order {len(sizes)} dimensions")
    multiples = _ints(tile[1]) if tile else ()
    if 0 in multiples:
        raise ValueError(f"layout {{{layout}}} has an empty tile")
    return ArrayShape(
        dtype=dtype,
        dims=sizes,
        minor_to_major=axes,
        tile=multiples,
        memory_space=int(space[1]) if space else HBM,
        element_bits=int(packed[1]) if packed else _bits(dtype),
    )


def _bits(dtype: str) -> float:
    """Bits of an element that the layout does not say is packed: a whole number of bytes."""
    small = _SMALL_FLOAT.fullmatch(dtype)
    bits = int(small[1]) if small else _BITS.get(dtype, nan)
    return bits and max(bits, _BYTE_BITS)


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number.strip())


def _elements(text: str) -> Iterator[str]:
    """The parts of a tuple between commas that stand in no brackets."""
    depth, start = 0, 0
    for match in _BRACKET.finditer(text):
        if match[0] != ",":
            depth += 1 if match[0] in "([{" else -1
        elif depth == 0:
            yield text[start : match.start()]
            start = match.end()
    if text[start:].strip():
        yield text[start:]
