"""A drawing as SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, assert_never

from ridgeline.report.drawing import PAPER, Dot, Line, Words

if TYPE_CHECKING:
    from ridgeline.report.drawing import Drawing, Element

_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def svg(drawing: Drawing) -> str:
    """The text of an SVG file."""
    size = f'width="{drawing.width}" height="{drawing.height}" viewBox="0 0 {drawing.width} {drawing.height}"'
    body = "\n".join(map(_element, drawing.elements))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{escape(_FONT)}">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _element(element: Element) -> str:
    match element:
        case Line():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in element.points)
            dash = ' stroke-dasharray="6 5"' if element.dashed else ""
            return (
                f'<polyline points="{points}" fill="none" stroke="{element.colour}" '
                f'stroke-width="{element.width:g}" stroke-linejoin="round"{dash}/>'
            )
        case Dot():
            return f'<circle cx="{element.x:.1f}" cy="{element.y:.1f}" r="{element.radius:g}" fill="{element.colour}"/>'
        case Words():
            turn = f' transform="rotate(-90 {element.x:.1f} {element.y:.1f})"' if element.upright else ""
            return (
                f'<text x="{element.x:.1f}" y="{element.y:.1f}" font-size="{element.size}" fill="{element.colour}" '
                f'text-anchor="{element.anchor}"{turn}>{escape(element.text)}</text>'
            )
        case _:
            assert_never(element)
