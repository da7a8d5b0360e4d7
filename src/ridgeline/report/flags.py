"""`ridgeline compile --lint-flags`: flags and what the compiler says of them, as a screen and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.report.blocks import Cell, Paragraphs, Report, Table
from ridgeline.report.jsonable import jsonable
from ridgeline.units import format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.compiler.flags import FlagsAnswer, FlagVerdict, JudgedFlag
    from ridgeline.report.blocks import Piece, Tone
    from ridgeline.report.jsonable import Json

_VERDICTS: Final[Mapping[FlagVerdict, tuple[str, Tone]]] = {
    "accepted": ("accepted", "good"),
    "unknown": ("unknown", "bad"),
    "bad_value": ("bad value", "bad"),
    "not_for_chip": ("not for this chip", "bad"),
    "not_checked": ("not checked", "warn"),
}


def flags_report(answer: FlagsAnswer) -> Report:
    """The screen: a row a flag, then why some are not accepted."""
    versions = ", ".join(f"{name} {number}" for name, number in answer.versions.items())
    refused = f"{answer.num_refused} refused" if answer.num_refused else "none refused"
    return Report(
        headline=f"{format_things(len(answer.flags), 'flag')} for {answer.hardware.name}: {refused}, by {versions}",
        pieces=tuple(_pieces(answer)),
    )


def flags_json(answer: FlagsAnswer) -> dict[str, Json]:
    """The same; `default` is null where libtpu does not say it."""
    return {
        "hardware": answer.hardware.name,
        "versions": jsonable(answer.versions),
        "num_refused": answer.num_refused,
        "flags": [
            {
                "name": judged.flag.name,
                "value": judged.flag.value,
                "variable": judged.flag.variable or None,
                "times": judged.flag.times,
                "verdict": judged.verdict,
                "reason": judged.reason,
                "suggestion": judged.suggestion,
                "default": judged.default,
            }
            for judged in answer.flags
        ],
    }


def _pieces(answer: FlagsAnswer) -> Iterator[Piece]:
    yield Table(title="flags", columns=("flag", "value", "default", ""), rows=tuple(map(_row, answer.flags)))
    if reasons := tuple(_reasons(answer)):
        yield Paragraphs(title="why", lines=reasons)


def _row(judged: JudgedFlag) -> tuple[Cell, ...]:
    word, tone = _VERDICTS[judged.verdict]
    default = Cell(text="–", tone="dim") if judged.default is None else Cell(text=judged.default or '""')
    return Cell(text=judged.flag.name), Cell(text=judged.flag.value), default, Cell(text=word, tone=tone)


def _reasons(answer: FlagsAnswer) -> Iterator[Cell]:
    for judged in answer.flags:
        name, (word, tone) = judged.flag.name, _VERDICTS[judged.verdict]
        if judged.verdict == "unknown" and not judged.reason:
            yield Cell(
                text=f"{name}: libtpu knows no such flag; {judged.suggestion or 'none is spelt alike.'}", tone=tone
            )
        elif judged.verdict != "accepted":
            yield Cell(text=f"{name}: {judged.reason or f'{word}: {judged.flag.value}'}", tone=tone)
        if judged.flag.times > 1:
            yield Cell(text=f"{name}: written {judged.flag.times} times; the last counts.", tone="warn")
