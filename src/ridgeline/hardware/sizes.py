"""Slices of other sizes: the same chips, fewer or more of them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.hardware.topology import legal_shapes, parse_slice, torus_slice

if TYPE_CHECKING:
    from ridgeline.hardware.slice import Slice


def resized(hardware: Slice, num_chips: int) -> Slice | None:
    """The slice of so many of the same chips; None where there is none.

    Several slices stay of their shape, and their number changes. One slice becomes the most cube-like of that size;
    beyond the largest there is, several of the largest.

    >>> for count in (64, 4096, 16384):
    ...     print(resized(parse_slice("tpu7x:4x4x4"), count).name)
    tpu7x:4x4x4
    tpu7x:16x16x16
    2*tpu7x:16x16x32
    >>> resized(parse_slice("2*v5e:16x16"), 1024).name, resized(parse_slice("v5e:16x16"), 48)
    ('4*v5e:16x16', None)

    Args:
        hardware: What is there.
        num_chips: Chips in all slices.
    """
    chip, torus = hardware.chip, hardware.chip.torus
    if torus is None:
        try:
            return parse_slice(f"{chip.name}:{num_chips}")
        except InputError:
            return None
    if hardware.num_slices > 1:
        return _several(hardware, hardware.shape, num_chips)
    of_size = [shape for shape in legal_shapes(torus) if prod(shape) == num_chips]
    if of_size:
        return torus_slice(chip, torus, of_size[0], 1)
    whole = [shape for shape in legal_shapes(torus) if num_chips % prod(shape) == 0]
    largest = max(legal_shapes(torus), key=prod)
    if not whole or num_chips < prod(largest):
        return None
    return _several(hardware, max(whole, key=lambda shape: (prod(shape), -sum(shape))), num_chips)


def _several(hardware: Slice, shape: tuple[int, ...], num_chips: int) -> Slice | None:
    torus = hardware.chip.torus
    if torus is None or num_chips % prod(shape):
        return None
    return torus_slice(hardware.chip, torus, shape, num_chips // prod(shape))
