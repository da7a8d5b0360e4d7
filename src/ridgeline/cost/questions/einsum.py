"""FLOPs of any product of arrays: `NP,PM->NM`.

Every dimension counts once, be it kept, summed over, or shared by both arrays; a multiply and an add for each point,
or a multiply alone where nothing is summed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.laws.transformer import passes_flops
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPRESSION = re.compile(r"([A-Za-z]*),([A-Za-z]*)->([A-Za-z]*)")


def contraction_flops(*, num_points: float, contracted: bool = True) -> float:
    """FLOPs of a product of two arrays, from the product of all its dimensions.

    Formula: (2, or 1 where nothing is summed over) · num_points

    Source: Scaling Book, ch. 4.

    >>> contraction_flops(num_points=2 * 3 * 5)
    60
    """
    return (2 if contracted else 1) * num_points


@dataclass(frozen=True, slots=True, kw_only=True)
class EinsumCount:
    """A product counted.

    Attributes:
        forward_flops: Of the product.
        backward_flops: Of the gradients of both arrays.
        training_flops: Of all three.
        operand_elements: Of both arrays; None without an expression.
        output_elements: Of the result; None without an expression.
        derivations: Where the numbers come from.
    """

    forward_flops: float
    backward_flops: float
    training_flops: float
    operand_elements: int | None
    output_elements: int | None
    derivations: tuple[Derivation, ...]


def einsum(expression: str = "", *, contracted: bool = True, **sizes: int) -> EinsumCount:
    """FLOPs and elements of a product.

    >>> einsum("NP,PM->NM", N=2, P=3, M=5).forward_flops, einsum("P,P->", P=4).operand_elements
    (60.0, 8)
    >>> einsum(N=2, P=3, M=5).training_flops
    180.0

    Args:
        expression: As `numpy.einsum` writes it, one letter a dimension; without one, `sizes` are all dimensions.
        contracted: Without an expression, whether anything is summed over.
        **sizes: Of each letter.

    Raises:
        InputError: The expression is malformed, or a letter has no size.
    """
    dims, arrays = sizes, None
    if expression:
        arrays = _arrays(expression)
        dims = {letter: _size(letter, sizes, expression) for letter in dict.fromkeys("".join(arrays))}
        contracted = any(letter not in arrays[2] for letter in dims)
    once = derive(contraction_flops, num_points=prod(dims.values()), contracted=contracted)
    backward = derive(passes_flops, flops_per_token=once.value, num_tokens=1, num_passes=2)
    return EinsumCount(
        forward_flops=once.value,
        backward_flops=backward.value,
        training_flops=once.value + backward.value,
        operand_elements=None if arrays is None else _elements(arrays[0], dims) + _elements(arrays[1], dims),
        output_elements=None if arrays is None else _elements(arrays[2], dims),
        derivations=(once, backward),
    )


def _arrays(expression: str) -> tuple[str, str, str]:
    match = _EXPRESSION.fullmatch(expression.replace(" ", ""))
    if match is None:
        example = "NP,PM->NM"
        raise InputError(
            "not a product of two arrays",
            where="expression",
            value=expression,
            expected=example,
            fix=f"write {example}",
        )
    return match[1], match[2], match[3]


def _size(letter: str, sizes: Mapping[str, int], expression: str) -> int:
    if letter not in sizes:
        raise InputError(
            "a dimension has no size", where=expression, value=letter, expected=f"{letter}=…", fix=f"give {letter}"
        )
    return sizes[letter]


def _elements(array: str, sizes: Mapping[str, int]) -> int:
    return prod(sizes[letter] for letter in array)
