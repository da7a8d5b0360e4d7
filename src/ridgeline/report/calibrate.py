"""`ridgeline calibrate` of kernel times, and the files that every calibration writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ridgeline.report.blocks import Cell, Paragraphs, Report, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.scores import signed
from ridgeline.units import format_fraction, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.report.blocks import Piece
    from ridgeline.study.kernels.calibrate import KernelCalibration
    from ridgeline.study.kernels.fit import Residual


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a calibration writes.

    Attributes:
        texts: By name; nothing where what ships is shown.
        folder: Where to; None where nothing was written.
    """

    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str | None = None


def files_json(files: Files) -> dict[str, Json]:
    """What was written, or would be."""
    return {"files": dict(files.texts), "written": files.folder}


def kernels_report(answer: KernelCalibration, files: Files) -> Report:
    """The screen of a calibration by kernel times."""
    rows = [(fit.chip, residual) for fit in answer.fits for residual in fit.residuals if residual.num_held_out]
    table = Table(
        title="Held-out kernel times",
        columns=("chip", "kernel", "fitted to", "held out", "median error", "90% below", "median, signed"),
        right=frozenset(range(2, 7)),
        rows=tuple(
            (
                Cell(text=chip),
                Cell(text=f"{residual.kernel.replace('_', ' ')}, {residual.variant.replace('_', ' ')}"),
                Cell(text=f"{residual.num_fitted:,}"),
                Cell(text=f"{residual.num_held_out:,}"),
                Cell(text=format_fraction(residual.median_error)),
                Cell(text=format_fraction(residual.p90_error)),
                Cell(text=signed(residual.bias)),
            )
            for chip, residual in rows
        ),
    )
    chips = format_things(len(answer.fits), "chip")
    return Report(
        headline=f"kernel times of {chips}; a third of the questions is held out",
        pieces=(table, *written_files(files)),
    )


def kernels_json(answer: KernelCalibration, files: Files) -> dict[str, Json]:
    """The same in base units."""
    return {
        "fits": {
            fit.chip: {
                "parameters": {fact.key: fact.value for fact in fit.facts},
                "residuals": [_residual_json(residual) for residual in fit.residuals],
            }
            for fit in answer.fits
        },
        **files_json(files),
    }


def _residual_json(residual: Residual) -> Json:
    return {
        "kernel": residual.kernel,
        "variant": residual.variant,
        "fitted": residual.num_fitted,
        "held_out": residual.num_held_out,
        "median_error": jsonable(residual.median_error),
        "p90_error": jsonable(residual.p90_error),
        "bias": jsonable(residual.bias),
    }


def written_files(files: Files) -> Iterator[Piece]:
    """Says what was written, or would be."""
    count = format_things(len(files.texts), "file")
    if files.folder is not None:
        line = f"{count} written to {files.folder}; --calibration {files.folder} uses them"
        yield Paragraphs(title="Files", lines=(Cell(text=line),))
    elif files.texts:
        line = f"nothing is written: --output FOLDER writes {count}"
        yield Paragraphs(title="Files", lines=(Cell(text=line),))
