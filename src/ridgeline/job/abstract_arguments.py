"""Reads the arguments that a function is compiled for: shapes, dtypes and layouts in place of arrays.

    arguments   value, value, …, name=value, …
    value       array   or   (value, …)   [value, …]   {name: value, …}   or   3   0.5   true   false   none   "text"
    array       dtype[dim, dim, …]        f32[] is a scalar
    dim         4096   or   4096_fsdp     split over a mesh axis   or   4096_{fsdp,tp}   over two, fsdp outermost

An array without subscripts is laid out by the function itself, or by the compiler; `4096_{}` says that nothing splits
it. What is no array is handed to the function as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

from ridgeline.errors import InputError, nearest
from ridgeline.units import parse_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.job.sharding import Axes

EXAMPLE: Final = "bf16[1024_fsdp,4096], {w: bf16[4096_fsdp,8192_tp]}"

DTYPES: Final[Mapping[str, str]] = {
    "pred": "bool",
    "s4": "int4",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "u4": "uint4",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "f4e2m1fn": "float4_e2m1fn",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "c64": "complex64",
}
"""HLO's word for a dtype, and JAX's; either may be written."""

_TOKEN = re.compile(r"""\s*("[^"]*"|'[^']*'|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:[KMG]i?)?|[A-Za-z_]\w*|\S)""")
_NUMBER = re.compile(r"-?\d.*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS: Final[Mapping[str, bool | None]] = {"true": True, "false": False, "none": None}
_LONGEST = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractArray:
    """An array that is not there.

    Attributes:
        dtype: JAX's name.
        dims: Elements along each dimension.
        axes: Of each dimension, the mesh axes that split it, outermost first; None where the layout is left open.
    """

    dtype: str
    dims: tuple[int, ...]
    axes: tuple[Axes, ...] | None = None

    def __str__(self) -> str:
        """As it is written: `bf16[1024_fsdp,4096]`."""
        dtype = next(word for word, name in DTYPES.items() if name == self.dtype)
        if self.axes is None:
            return f"{dtype}[{','.join(map(str, self.dims))}]"
        is_whole = not any(self.axes)
        dims = (
            f"{size}_{{{','.join(axes)}}}" if axes or is_whole else str(size)
            for size, axes in zip(self.dims, self.axes, strict=True)
        )
        return f"{dtype}[{','.join(dims)}]"


Value: TypeAlias = "AbstractArray | str | float | bool | tuple[Value, ...] | list[Value] | Mapping[str, Value] | None"
"""One argument: arrays, in whatever tree, and what is handed over as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractArguments:
    """What a function is called with.

    Attributes:
        positional: In order.
        keywords: By name.
    """

    positional: tuple[Value, ...]
    keywords: Mapping[str, Value]

    def __str__(self) -> str:
        """As it is written."""
        named = (f"{name}={written(value)}" for name, value in self.keywords.items())
        return ", ".join((*map(written, self.positional), *named))


def written(value: Value) -> str:
    """A value in the notation that is read here.

    >>> written({"w": AbstractArray(dtype="bfloat16", dims=(8, 4), axes=(("x", "y"), ())), "eps": 0.1})
    '{"w": bf16[8_{x,y},4], "eps": 0.1}'
    """
    match value:
        case AbstractArray():
            return str(value)
        case None | bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple():
            return f"({', '.join(map(written, value))})"
        case list():
            return f"[{', '.join(map(written, value))}]"
        case Mapping():
            pairs = (f'"{key}": {written(part)}' for key, part in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            return repr(value)


def read_arguments(text: str, *, mesh: Mapping[str, int], where: str) -> AbstractArguments:
    """The arguments that a text describes.

    Args:
        text: As typed.
        mesh: Degrees by axis.
        where: The flag, for error messages.

    Raises:
        InputError: Malformed at a column that the message names, or a layout that does not divide a dimension.

    >>> read_arguments("f32[8_x,4], scale=2", mesh={"x": 4}, where="--args").positional
    (AbstractArray(dtype='float32', dims=(8, 4), axes=(('x',), ())),)
    """
    if len(text) > _LONGEST:
        raise InputError(
            "arguments too long",
            where=where,
            value=text,
            expected=f"at most {_LONGEST:,} characters",
            fix="let a function of your own make the arguments, and compile that",
        )
    found = [(match[1], match.start(1) + 1) for match in _TOKEN.finditer(text)]
    return _Reader(text=text, tokens=(*found, ("", len(text) + 1)), mesh=mesh, where=where).arguments()


def described(value: object, *, mesh: Mapping[str, int], where: str) -> Value:
    """What stands for a value of a program: arrays and JAX's shapes by shape, dtype and layout, the rest as it is.

    Args:
        value: An array or anything with `shape` and `dtype`, a tuple, list or dict of values, or a constant.
        mesh: Degrees by axis.
        where: The argument, for error messages.

    Raises:
        InputError: A kind of value, or a layout, that the notation does not have.
    """
    if hasattr(value, "_fields"):  # a named tuple, which would arrive as another kind of tree
        raise _indescribable(value, where)
    match value:
        case None | str() | bool() | int() | float():
            return value
        case tuple():
            return tuple(described(each, mesh=mesh, where=where) for each in cast("tuple[object, ...]", value))
        case list():
            return [described(each, mesh=mesh, where=where) for each in cast("list[object]", value)]
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            return {str(name): described(each, mesh=mesh, where=where) for name, each in pairs}
        case _ if hasattr(value, "shape") and hasattr(value, "dtype"):
            return _described_array(value, mesh=mesh, where=where)
        case _:
            raise _indescribable(value, where)


def _indescribable(value: object, where: str) -> InputError:
    return InputError(
        "a kind of argument that no child process can be told of",
        where=where,
        value=value,
        expected="arrays, shapes, numbers and texts in tuples, lists and dicts",
        fix="let a function of your own build it from those, and compile that",
    )


def _described_array(array: Any, *, mesh: Mapping[str, int], where: str) -> AbstractArray:  # noqa: ANN401 - NumPy's, JAX's
    """Read back from its own notation, which checks it."""
    dtype, spec = str(array.dtype), getattr(getattr(array, "sharding", None), "spec", None)
    dims = tuple(int(size) for size in array.shape)
    axes: tuple[Axes, ...] | None = None
    if spec is not None:
        found: list[Axes] = [(entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in spec]
        axes = (*found, *((),) * (len(dims) - len(found)))
    if dtype not in DTYPES.values():
        raise InputError(
            "unknown dtype", where=where, value=dtype, expected=", ".join(DTYPES.values()), fix="use one of those"
        )
    text = str(AbstractArray(dtype=dtype, dims=dims, axes=axes))
    return cast("AbstractArray", read_arguments(text, mesh=mesh, where=where).positional[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads parts of the notation from a position among its tokens on; each returns the position behind it."""

    text: str
    tokens: Sequence[tuple[str, int]]
    mesh: Mapping[str, int]
    where: str

    def word(self, at: int) -> str:
        """The token at a position; "" at the end."""
        return self.tokens[min(at, len(self.tokens) - 1)][0]

    def arguments(self) -> AbstractArguments:
        """Everything."""
        positional: list[Value] = []
        keywords: dict[str, Value] = {}
        at = 0
        while self.word(at):
            if _NAME.fullmatch(self.word(at)) and self.word(at + 1) == "=":
                keywords[self.word(at)], at = self.value(at + 2)
            elif keywords:
                self.refuse(at, expected="name=value: what has no name stands first")
            else:
                value, at = self.value(at)
                positional.append(value)
            if self.word(at) == ",":
                at += 1
            elif self.word(at):
                self.refuse(at, expected="`,` and another argument, or the end")
        return AbstractArguments(positional=tuple(positional), keywords=keywords)

    def value(self, at: int) -> tuple[Value, int]:
        """An array, a tree of values, or a constant."""
        word = self.word(at)
        match word[:1]:
            case "(":
                values, at = self._values(at + 1, ")")
                return tuple(values), at
            case "[":
                return self._values(at + 1, "]")
            case "{":
                return self._mapping(at + 1)
            case '"' | "'":
                return word[1:-1], at + 1
            case _:
                pass
        if word in _WORDS:
            return _WORDS[word], at + 1
        if _NUMBER.fullmatch(word):
            return self._number(at), at + 1
        if _NAME.fullmatch(word):
            return self._array(at)
        self.refuse(at, expected="an array such as f32[1024,4096], a tree of them, a number, or a text in quotes")

    def refuse(self, at: int, *, expected: str) -> NoReturn:
        """Says what could have stood at a position."""
        found = f"`{self.word(at)}` is out of place" if self.word(at) else "it ends too early"
        self.fail(at, f"malformed arguments: {found}", expected=expected, fix=f"write e.g. {EXAMPLE}")

    def fail(self, at: int, what: str, *, expected: str, fix: str) -> NoReturn:
        """An error that points at the token of a position: by its column, and by a » before it."""
        column = self.tokens[min(at, len(self.tokens) - 1)][1]
        pointed = f"{self.text[: column - 1][-40:]}»{self.text[column - 1 :]}"
        raise InputError(what, where=f"{self.where}, column {column}", value=pointed, expected=expected, fix=fix)

    def _values(self, at: int, closing: str) -> tuple[list[Value], int]:
        values: list[Value] = []
        while self.word(at) != closing:
            value, at = self.value(at)
            values.append(value)
            if self.word(at) == ",":
                at += 1
            elif self.word(at) != closing:
                self.refuse(at, expected=f"`,` and another value, or `{closing}`")
        return values, at + 1

    def _mapping(self, at: int) -> tuple[dict[str, Value], int]:
        values: dict[str, Value] = {}
        while self.word(at) != "}":
            if not (_NAME.fullmatch(self.word(at)) or self.word(at)[:1] in {'"', "'"}):
                self.refuse(at, expected="name: value, or `}`")
            if self.word(at + 1) != ":":
                self.refuse(at + 1, expected="`:` and a value")
            name = self.word(at).strip("\"'")
            values[name], at = self.value(at + 2)
            if self.word(at) == ",":
                at += 1
            elif self.word(at) != "}":
                self.refuse(at, expected="`,` and another name, or `}`")
        return values, at + 1

    def _number(self, at: int) -> float:
        word = self.word(at)
        try:
            return int(word) if re.fullmatch(r"-?\d+", word) else float(word)
        except ValueError:
            return parse_whole(word, where=self.where, unit="elements")

    def _array(self, start: int) -> tuple[AbstractArray, int]:
        word = self.word(start).lower()
        dtype = DTYPES.get(word, word)
        if dtype not in DTYPES.values():
            known = (*DTYPES, *DTYPES.values())
            fix = nearest(word, known) or f"write e.g. {EXAMPLE}"
            self.fail(start, f"unknown dtype {self.word(start)}", expected=", ".join(DTYPES), fix=fix)
        if self.word(start + 1) != "[":
            self.refuse(start + 1, expected=f"`[` and the dimensions of {word}")
        dims: list[int] = []
        axes: list[Axes | None] = []
        at = start + 2
        while self.word(at) != "]":
            size, split, at = self._dim(at, tuple(axis for axes_of_dim in axes for axis in axes_of_dim or ()))
            dims.append(size)
            axes.append(split)
            if self.word(at) == ",":
                at += 1
            elif self.word(at) != "]":
                self.refuse(at, expected="`,` and another dimension, `_` and its mesh axes, or `]`")
        is_laid_out = any(split is not None for split in axes)
        layout = tuple(split or () for split in axes) if is_laid_out else None
        return AbstractArray(dtype=dtype, dims=tuple(dims), axes=layout), at + 1

    def _dim(self, start: int, used: Axes) -> tuple[int, Axes | None, int]:
        """Elements, and the mesh axes that split them: None where no subscript stands."""
        if not self.word(start)[:1].isdecimal():
            self.refuse(start, expected="a number of elements")
        size = parse_whole(self.word(start), where=f"{self.where}, column {self.tokens[start][1]}", unit="elements")
        at = start + 1
        if not self.word(at).startswith("_"):
            return size, None, at
        axes: Axes = ()
        if self.word(at) != "_":
            axes, at = self._known(at, self.word(at)[1:]), at + 1
        elif self.word(at + 1) == "{":
            at += 2
            while self.word(at) != "}":
                axes += self._known(at, self.word(at))
                at += 1 + (self.word(at + 1) == ",")
            at += 1
        else:
            self.refuse(at + 1, expected="a mesh axis, or several in braces")
        for axis in axes:
            if (*used, *axes).count(axis) > 1:
                expected = f"every mesh axis once in an array: a device along {axis} holds one block"
                self.fail(start, f"mesh axis {axis} is used twice", expected=expected, fix="leave one of them out")
        ways = prod(self.mesh[axis] for axis in axes)
        if size % ways:
            split = " ".join(f"{axis}={self.mesh[axis]}" for axis in axes)
            fix = f"use {size // ways * ways or ways}, or lower a degree"
            self.fail(start, f"{size} elements do not divide over {split}", expected=f"a multiple of {ways}", fix=fix)
        return size, axes, at

    def _known(self, at: int, word: str) -> Axes:
        """The axis that a word names, or those that its letters name: `XY` is X and Y."""
        if word in self.mesh:
            return (word,)
        if word and all(letter in self.mesh for letter in word):
            return tuple(word)
        self.fail(
            at,
            f"unknown mesh axis {word}" if word else "a mesh axis is missing",
            expected=f"an axis of the mesh: {', '.join(self.mesh)}",
            fix=nearest(word, self.mesh) or f"add {word or 'it'} to --mesh",
        )
