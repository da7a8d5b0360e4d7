"""Reads the notation of sharded arrays: `A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]`.

    question    array   or   array -> array   or   array @ array [-> array]
    array       name[dim, dim, …]   name?[…]: its layout is to be chosen   name[…]{U_axes}: partial sums
    dim         D   or   D_axes
    axes        X   or   XY, X outermost   or   {data,model}: names longer than a letter

`@` may be written `*`, `·`, `×` or `x`, and `->` as `→`. A subscript that is the name of a mesh axis is that
axis; otherwise each letter is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import nan
from typing import TYPE_CHECKING, NoReturn

from ridgeline.errors import InputError, nearest
from ridgeline.job.mesh import parse_pairs
from ridgeline.job.sharding import Axes, Product, Question, Resharding, ShardedArray, joined
from ridgeline.units import parse_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

EXAMPLE = "A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]"

_TOKEN = re.compile(r"\s*(->|[A-Za-z][A-Za-z0-9]*|\S)")
_LEFT_OUT = re.compile(r",\s*(?:\.\.\.|…)|(?<=[*·@])_\w+")
_ARRAY = r"\w*\??\[\s*[A-Za-z][\w{},\s.…]*\](?:\s*\{\s*U_[^}]*\})?"
_IN_TEXT = re.compile(rf"{_ARRAY}(?:(?:\s*(?:[*·@]_\w+|[@*·×x→]|->)\s*|\s+(?:by|times)\s+){_ARRAY})*")
_IN_WORDS = re.compile(r"(?<=[\]}])\s+(?:by|times)\s+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_LETTER = re.compile(r"[A-Za-z][0-9]*")
_PRODUCT_SIGNS = {"@", "*", "·", "×", "x"}
_ARROWS = {"->", "→"}
_LONGEST = 300
_SUM = "U"


def read_notation(text: str, *, mesh: Collection[str] | None, where: str) -> Question:
    """The question that a notation asks.

    Args:
        text: As typed.
        mesh: Names of the mesh axes; None where no mesh is given and any name is one.
        where: The argument, for error messages.

    Raises:
        InputError: Malformed, at a column that the message names; or a layout that no device could hold.

    >>> question = read_notation("A[I_X,J] @ B[J,K_Y]", mesh=None, where="EXPRESSION")
    >>> print(question, question.contracted)
    A[I_X,J] @ B[J,K_Y] -> C[I,K] ('J',)
    """
    reader = _Reader(text=text, tokens=_tokens(text, where), mesh=mesh, where=where)
    left = reader.array(0)
    match reader.word(left.end):
        case "":
            return left.array
        case sign if sign in _ARROWS:
            target = reader.array(left.end + 1)
            reader.expect_end(target.end)
            return _resharding(left, target, reader)
        case sign if sign in _PRODUCT_SIGNS:
            right = reader.array(left.end + 1)
            if not reader.word(right.end):
                return _product(left, right, None, reader)
            output = reader.array(reader.sign(right.end, _ARROWS, "`-> array`, or the end"))
            reader.expect_end(output.end)
            return _product(left, right, output, reader)
        case _:
            reader.refuse(left.end, expected="`@ array`, `-> array`, or the end")


def find_notation(text: str) -> str | None:
    """The first notation in running text: from an array on, as far as products and arrows go; None if there is none.

    An array without a name, as books write it, is called A. Dots for further dimensions are left out, and so is the
    dimension that a sign of multiplication names.

    >>> find_notation("On a ring: A[I_X, J] x B[J, K_X], both outer dims on one axis.")
    'A[I_X, J] x B[J, K_X]'
    >>> find_notation("Multiply A[N, M_X] by B[M, K].")
    'A[N, M_X] @ B[M, K]'
    >>> find_notation("Shards of [I_XY, J, ...]?")
    'A[I_XY, J]'
    """
    found = _IN_TEXT.search(text)
    if found is None:
        return None
    written = _IN_WORDS.sub(" @ ", _LEFT_OUT.sub("", found[0]))
    return written if written[0] != "[" else f"A{written}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCheck:
    """Whether arrays can lie as they are written.

    Attributes:
        is_legal: Whether some device could hold its part.
        reason: Why not; "" if they can.
    """

    is_legal: bool
    reason: str


def check_layout(notation: str, *, mesh: str | Mapping[str, int | None] | None = None) -> LayoutCheck:
    """Whether arrays can lie as a notation says, and if not, why.

    >>> check_layout("A[I_X,J_X]")
    LayoutCheck(is_legal=False, reason='mesh axis X is used twice in A')

    Args:
        notation: One array, a change of layout, or a product.
        mesh: The mesh; any axis is one if it is not said.
    """
    axes = None if mesh is None else read_mesh(mesh, where="mesh")
    try:
        read_notation(notation, mesh=axes, where="notation")
    except InputError as error:
        return LayoutCheck(is_legal=False, reason=error.what)
    return LayoutCheck(is_legal=True, reason="")


def read_sizes(sizes: str | Mapping[str, int | None], *, where: str) -> dict[str, float]:
    """Elements along each dimension: `B=4096,D=8Ki`, or a mapping, in which None leaves a size open (NaN)."""
    pairs = parse_pairs(sizes, where=where, example="B=4096,D=8192,F=32768") if isinstance(sizes, str) else sizes
    return {dim: _whole(size, where=f"{where}: {dim}", unit="elements") for dim, size in pairs.items()}


def read_mesh(mesh: str | Mapping[str, int | None], *, where: str) -> dict[str, float]:
    """Devices along each axis of a mesh of the user's own names: `X=4,Y=8`, outermost first, or a mapping.

    In a mapping, None leaves an axis open (NaN).
    """
    pairs = parse_pairs(mesh, where=where, example="X=4,Y=8") if isinstance(mesh, str) else mesh
    for axis in pairs:
        if not _NAME.fullmatch(axis):
            raise InputError(
                "not a name for a mesh axis",
                where=where,
                value=axis,
                expected="a letter, then letters and digits",
                fix="write e.g. X=4,Y=8 or data=4,model=8",
            )
    return {axis: _whole(size, where=f"{where}: {axis}", unit="devices") for axis, size in pairs.items()}


def _whole(size: str | int | None, *, where: str, unit: str) -> float:
    return nan if size is None else parse_whole(size, where=where, unit=unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    """A word or sign, and the column it starts at, counted from 1."""

    text: str
    column: int


def _tokens(text: str, where: str) -> tuple[_Token, ...]:
    if len(text) > _LONGEST:
        raise InputError(
            "notation too long",
            where=where,
            value=text,
            expected=f"at most {_LONGEST} characters",
            fix=f"write e.g. {EXAMPLE}",
        )
    found = [_Token(text=match[1], column=match.start(1) + 1) for match in _TOKEN.finditer(text)]
    return (*found, _Token(text="", column=len(text) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """An array as it was written.

    Attributes:
        array: What it says.
        at: Position of its first token.
        end: Position behind its last.
    """

    array: ShardedArray
    at: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Reads parts of the notation from a position among its tokens on."""

    text: str
    tokens: Sequence[_Token]
    mesh: Collection[str] | None
    where: str

    def word(self, at: int) -> str:
        """The token at a position; "" at the end."""
        return self.tokens[at].text

    def array(self, start: int) -> _Written:
        """`name[dim, …]`, with `?` behind the name or `{U_axes}` at the end."""
        name, at = self._array_name(start)
        is_free = self.word(at) == "?"
        at = self.sign(at + is_free, {"["}, f"`[` and the dimensions of {name}")
        layout: dict[str, Axes] = {}
        used: list[str] = []
        while self.word(at) != "]" or layout:
            dim = self._name(at, f"a dimension of {name}")
            if dim in layout:
                self._refuse_repeated_dim(at, dim, name)
            layout[dim], at = self._subscript(at + 1, used, name)
            if self.word(at) != ",":
                break
            at += 1
        at = self.sign(at, {"]"}, "`,` and another dimension, `_` and its mesh axes, or `]`")
        partial: Axes = ()
        if self.word(at) == "{":
            at = self.sign(at + 1, {_SUM}, f"`{_SUM}_` and the axes along which sums are partial")
            if self.word(at) != "_":
                self.refuse(at, expected="`_` and the axes along which sums are partial")
            partial, at = self._subscript(at, used, name)
            at = self.sign(at, {"}"}, "`}`")
        array = ShardedArray(
            name=name, dims=tuple(layout), axes=tuple(layout.values()), partial=partial, is_free=is_free and not used
        )
        return _Written(array=array, at=start, end=at)

    def sign(self, at: int, signs: Collection[str], expected: str) -> int:
        """The position behind one of some signs."""
        if self.word(at) not in signs:
            self.refuse(at, expected=expected)
        return at + 1

    def expect_end(self, at: int) -> None:
        """Refuses anything that follows."""
        if self.word(at):
            self.refuse(at, expected="the end")

    def refuse(self, at: int, *, expected: str) -> NoReturn:
        """Says what could have stood at a position."""
        found = f"`{self.word(at)}` is out of place" if self.word(at) else "it ends too early"
        self.fail(at, f"malformed notation: {found}", expected=expected, fix=f"write e.g. {EXAMPLE}")

    def fail(self, at: int, what: str, *, expected: str, fix: str) -> NoReturn:
        """An error that points at the token of a position: by its column, and by a » before it."""
        column = self.tokens[at].column
        pointed = f"{self.text[: column - 1]}»{self.text[column - 1 :]}"
        raise InputError(what, where=f"{self.where}, column {column}", value=pointed, expected=expected, fix=fix)

    def _array_name(self, at: int) -> tuple[str, int]:
        """A name, which may have underscores, such as W_in."""
        name = self._name(at, "the name of an array")
        while self.word(at + 1) == "_":
            name += f"_{self._name(at + 2, 'the rest of the name')}"
            at += 2
        return name, at + 1

    def _name(self, at: int, expected: str) -> str:
        if not _NAME.fullmatch(self.word(at)):
            self.refuse(at, expected=expected)
        return self.word(at)

    def _subscript(self, at: int, used: list[str], array: str) -> tuple[Axes, int]:
        """`_X`, `_XY` or `_{data,model}`; nothing where a dimension is not split. Adds to the axes used."""
        if self.word(at) != "_":
            return (), at
        if self.word(at + 1) != "{":
            return self._axes(at + 1, used, array), at + 2
        axes: Axes = ()
        at += 1
        while not axes or self.word(at) == ",":
            axes += self._axes(at + 1, used, array)
            at += 2
        return axes, self.sign(at, {"}"}, "`,` and another mesh axis, or `}`")

    def _axes(self, at: int, used: list[str], array: str) -> Axes:
        """The mesh axes that one word of a subscript names."""
        axes = self._known(at, self._name(at, "a mesh axis"))
        for axis in axes:
            if axis in used:
                self.fail(
                    at,
                    f"mesh axis {axis} is used twice in {array}",
                    expected=f"every mesh axis once in an array: a device along {axis} holds one block",
                    fix=f"split one dimension of {array} over {axis}, the other over another axis or none",
                )
            used.append(axis)
        return axes

    def _known(self, at: int, word: str) -> Axes:
        letters = tuple(_LETTER.findall(word))
        if self.mesh is None:
            return letters if word.isupper() else (word,)
        if word in self.mesh:
            return (word,)
        unknown = next((letter for letter in letters if letter not in self.mesh), None)
        if unknown is None:
            return letters
        same = next((axis for axis in self.mesh if axis.lower() == word.lower()), "")
        self.fail(
            at,
            f"unknown mesh axis {unknown if word.isupper() else word}",
            expected=f"an axis of the mesh: {', '.join(self.mesh) or 'it has none'}",
            fix=f"did you mean {same}?" if same else nearest(word, self.mesh) or f"add {unknown} to the mesh",
        )

    def _refuse_repeated_dim(self, at: int, dim: str, array: str) -> NoReturn:
        self.fail(
            at,
            f"{array} names dimension {dim} twice",
            expected="every dimension of an array once",
            fix="give the second another letter",
        )


def _resharding(source: _Written, target: _Written, reader: _Reader) -> Resharding:
    before, after = source.array, target.array
    if before.dims != after.dims:
        reader.fail(
            target.at,
            "another layout keeps the dimensions",
            expected=f"{after.name}[{','.join(before.dims)}] with subscripts",
            fix=f"write the dimensions of {before.name} in their order",
        )
    _check_partial(target, before.partial, reader)
    return Resharding(source=before, target=after)


def _product(left: _Written, right: _Written, output: _Written | None, reader: _Reader) -> Product:
    a, b = left.array, right.array
    if a.name == b.name:
        reader.fail(
            right.at, f"both operands are called {a.name}", expected="two names", fix="give the second another name"
        )
    for operand in (left, right):
        _check_whole_sum(operand, reader)
    if not set(a.dims) & set(b.dims):
        reader.fail(
            right.at,
            f"{a.name} and {b.name} share no dimension",
            expected="a dimension of both, by the same letter",
            fix=f"write e.g. {EXAMPLE}",
        )
    if output is None:
        return Product(left=a, right=b, output=_implied_output(a, b))
    product = Product(left=a, right=b, output=output.array)
    _check_dims(product, (left, right, output), reader)
    splits_sum = tuple(axis for dim in product.contracted for operand in (a, b) for axis in operand.layout[dim])
    if not (a.is_free or b.is_free):
        _check_partial(output, splits_sum, reader)
    return product


def _implied_output(left: ShardedArray, right: ShardedArray) -> ShardedArray:
    """Every dimension of one operand alone: what both have is summed over."""
    dims = (*(d for d in left.dims if d not in right.dims), *(d for d in right.dims if d not in left.dims))
    name = next(name for name in ("C", "Out", "Product") if name not in {left.name, right.name})
    return ShardedArray(name=name, dims=dims, axes=((),) * len(dims), is_free=True)


def _check_whole_sum(operand: _Written, reader: _Reader) -> None:
    array = operand.array
    if array.partial:
        reader.fail(
            operand.at,
            f"operand {array.name} is a partial sum over {joined(array.partial)}",
            expected="operands that are whole sums",
            fix=f"reduce it first: ask for {array} -> {replace(array, partial=())}",
        )


def _check_dims(product: Product, written: tuple[_Written, _Written, _Written], reader: _Reader) -> None:
    """The output has dimensions of the operands only, and all that one operand has alone."""
    left, right, output = written
    for dim in product.output.dims:
        if dim not in product.dims:
            reader.fail(
                output.at,
                f"{product.output.name} has a dimension {dim} that no operand has",
                expected=f"dimensions among {', '.join(product.dims)}",
                fix=nearest(dim, product.dims) or f"leave {dim} out",
            )
    for owner, alone in zip((left, right), product.outer, strict=True):
        if missing := [dim for dim in alone if dim not in product.output.dims]:
            reader.fail(
                output.at,
                f"dimension {missing[0]} is in {owner.array.name} alone and not in {product.output.name}",
                expected="what is summed over is in both operands",
                fix=f"add {missing[0]} to {product.output.name}",
            )


def _check_partial(target: _Written, possible: Axes, reader: _Reader) -> None:
    """Sums are partial only along axes that split what is summed over."""
    array = target.array
    if foreign := tuple(axis for axis in array.partial if axis not in possible):
        reader.fail(
            target.at,
            f"{array.name} cannot be a partial sum over {joined(foreign)}",
            expected=f"axes that split what is summed over: {joined(possible) if possible else 'there are none'}",
            fix=f"leave {{{_SUM}_{joined(foreign)}}} out",
        )
