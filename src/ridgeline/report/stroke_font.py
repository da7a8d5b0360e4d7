"""Letters as strokes of a pen, so that whatever draws lines can write.

A glyph is its strokes; a stroke is a row of points, two digits each: x from 0 to 4, y from 0 (the lowest descender)
to 9. The baseline is at 2, small letters end at 6, capitals at 8.
"""

from __future__ import annotations

from typing import TypeAlias

Stroke: TypeAlias = "tuple[tuple[float, float], ...]"

_BASELINE, _CAPITAL = 2, 8
_ADVANCE, _NARROW_ADVANCE = 5.8, 3.4
_NARROW = " .,:;'|()[]ilIj·1t"
_CAPITAL_HEIGHT = 0.72
"""Of a capital, in ems."""

_TABLE = """
A 022842 1434|B 02083847463505 3544433202|C 4738180703123243|D 02082846442202|E 48080242 0535|F 480802 0535
G 473818070312324345 4525|H 0208 4248 0545|I 2228|J 4843321203|K 0802 4804 1542|L 080242|M 0208254842|N 02084248
O 183847433212030718|P 02083847463505|Q 183847433212030718 2441|R 02083847463505 2542|S 473818070615354443321203
T 0848 2822|U 080312324348|V 082248|W 0812253248|X 0842 0248|Y 082548 2522|Z 08480242
a 4642 4536160503123243|b 0802 0516364543321203|c 4536160503123243|d 4842 4536160503123243|e 04444536160503123243
f 48382722 0636|g 46413010 4536160503123243|h 0802 0516364542|i 2622 2828|j 262110 2828|k 0802 4603 1442|l 2822
m 0602 05162522 25364542|n 0602 0516364542|o 163645433212030516|p 0600 0516364543321203|q 4640 4536160503123243
r 0602 05163645|s 45361605143443321203|t 28233242 1636|u 0603123243 4642|v 062246|w 0612253246|x 0642 0246
y 0622 4610|z 06460242
0 183847433212030718|1 172822 1232|2 07183847460242|3 07183847463515 354443321203|4 380444 3832|5 480805354443321203
6 473818070312324344351504|7 084812|8 183847463515060718 1504031232434435|9 031232434738180706153546
. 2222|, 2321|: 2222 2525|; 2321 2525|- 1535|+ 0545 2327|/ 0149|( 39272331|) 19272311|[ 39191131|] 19393111|= 0444 0646
% 0248 0718271607 2334433223|× 0347 0743|· 2525|@ 321203071838474434242636 3634|→ 0545 274523|_ 0141
µ 0600 0603123243 4642|' 2827|< 470543|> 074503|∞ 053413041526 2637464423 2305
"""

_UNKNOWN = "0208484202"


def _strokes(code: str) -> tuple[Stroke, ...]:
    return tuple(
        tuple((float(x), float(y)) for x, y in zip(stroke[::2], stroke[1::2], strict=True))
        for stroke in code.split(" ")
    )


_GLYPHS = {
    entry[0]: _strokes(entry[2:]) for line in _TABLE.strip().splitlines() for entry in line.split("|")
}  # a bar or a blank between entries cannot be a glyph itself


def glyphs() -> frozenset[str]:
    """The letters that have a glyph."""
    return frozenset(_GLYPHS)


def written(text: str, *, size: float) -> tuple[tuple[Stroke, ...], float]:
    """The strokes of a text on a baseline at y = 0, upwards positive, and its width.

    Args:
        text: Letters without a glyph become boxes.
        size: Of the font, in the unit of the strokes.
    """
    scale = _CAPITAL_HEIGHT * size / (_CAPITAL - _BASELINE)
    pen, strokes = 0.0, list[Stroke]()
    for letter in text:
        glyph = () if letter == " " else _GLYPHS.get(letter, _strokes(_UNKNOWN))
        left = pen - (1.2 if letter in _NARROW else 0.0)
        strokes += [tuple(((left + x) * scale, (y - _BASELINE) * scale) for x, y in stroke) for stroke in glyph]
        pen += _NARROW_ADVANCE if letter in _NARROW else _ADVANCE
    return tuple(strokes), pen * scale
