"""A drawing as PNG, without a browser or an imaging library: every line is antialiased, words are strokes."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from math import dist
from typing import TYPE_CHECKING, TypeAlias, assert_never

import numpy as np

from ridgeline.report.drawing import PAPER, Dot, Line, Words
from ridgeline.report.stroke_font import written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ridgeline.report.drawing import Drawing

Point: TypeAlias = "tuple[float, float]"
Pixels: TypeAlias = "NDArray[np.float64]"

_DENSITY = 2
"""Pixels per unit of a drawing, so that it is sharp on dense screens."""

_DASH, _BREAK = 6.0, 5.0
_PEN = 0.085
"""Width of a pen stroke, in ems."""


def png(drawing: Drawing) -> bytes:
    """The bytes of a PNG file."""
    sheet = np.empty((drawing.height * _DENSITY, drawing.width * _DENSITY, 3))
    sheet[:] = _colour(PAPER)
    for element in drawing.elements:
        match element:
            case Line():
                runs = _dashes(element.points) if element.dashed else [element.points]
                for run in runs:
                    _stroke(sheet, run, width=element.width, colour=element.colour)
            case Dot():
                _stroke(sheet, [(element.x, element.y)] * 2, width=2 * element.radius, colour=element.colour)
            case Words():
                for run in _letters(element):
                    _stroke(sheet, run, width=_PEN * element.size, colour=element.colour)
            case _:
                assert_never(element)
    return _encoded(np.rint(sheet).astype(np.uint8))


def _letters(words: Words) -> Iterator[Sequence[Point]]:
    """The strokes of some words where they stand, turned if they are upright."""
    strokes, width = written(words.text, size=words.size)
    start = {"start": 0.0, "middle": -width / 2, "end": -width}[words.anchor]
    for stroke in strokes:
        if words.upright:
            yield [(words.x - y, words.y - (start + x)) for x, y in stroke]
        else:
            yield [(words.x + start + x, words.y - y) for x, y in stroke]


def _stroke(sheet: Pixels, points: Sequence[Point], *, width: float, colour: str) -> None:
    """Blends a line of round ends into the sheet, each pixel by how much of it the line covers."""
    half, ink = width * _DENSITY / 2, _colour(colour)
    for start, end in pairwise([(x * _DENSITY, y * _DENSITY) for x, y in points]):
        (ax, ay), (bx, by) = start, end
        left, top = (max(int(min(pair) - half - 1), 0) for pair in ((ax, bx), (ay, by)))
        right, bottom = (max(int(max(pair) + half + 2), 0) for pair in ((ax, bx), (ay, by)))
        part = sheet[top:bottom, left:right]
        across = np.arange(part.shape[1], dtype=np.float64) + (left + 0.5 - ax)
        down = np.arange(part.shape[0], dtype=np.float64)[:, np.newaxis] + (top + 0.5 - ay)
        along = _along(across, down, (bx - ax, by - ay))
        away: Pixels = np.hypot(across - along * (bx - ax), down - along * (by - ay))
        part += np.clip(half + 0.5 - away, 0, 1)[:, :, np.newaxis] * (ink - part)


def _along(across: Pixels, down: Pixels, way: Point) -> Pixels:
    """How far along a segment, from 0 to 1, it comes closest to each pixel; a segment of no length is a point."""
    length = way[0] ** 2 + way[1] ** 2
    reach: Pixels = across * way[0] + down * way[1]
    return np.clip(reach / length, 0, 1) if length else np.zeros_like(reach)


def _dashes(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    """A line in dashes, counted anew on each of its segments."""
    for start, end in pairwise(points):
        length = dist(start, end)
        at = 0.0
        while at < length:
            reach = min(at + _DASH, length)
            yield [
                (start[0] + (end[0] - start[0]) * part / length, start[1] + (end[1] - start[1]) * part / length)
                for part in (at, reach)
            ]
            at += _DASH + _BREAK


def _colour(code: str) -> Pixels:
    """Red, green and blue of `#rrggbb`."""
    return np.array([int(code[at : at + 2], 16) for at in (1, 3, 5)], dtype=np.float64)


def _encoded(pixels: NDArray[np.uint8]) -> bytes:
    """Rows of 8-bit colours as a PNG file (https://www.w3.org/TR/png-3/)."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
