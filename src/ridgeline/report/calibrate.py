"""`ridgeline calibrate`: what measured steps, or kernels, settled, and how far estimates are from what no fit saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.validate import group_order, score_json, score_row, signed, steps_chart
from ridgeline.study.steps.cross_validation import BY_CLUSTER, SCHEMES
from ridgeline.study.steps.parameters import KINDS
from ridgeline.units import format_fraction, format_things

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.report.blocks import Piece
    from ridgeline.report.chart import Chart
    from ridgeline.study.kernels.calibrate import KernelCalibration
    from ridgeline.study.kernels.fit import Residual
    from ridgeline.study.steps.calibrate import StepCalibration

_SCHEME_TITLES: Final = {
    BY_CLUSTER: "clusters left out, a tenth at a time",
    "families": "one family of models left out",
    "scales": "one scale left out",
    "chips": "one chip left out",
    "parallelism": "one way to split left out",
    "in_sample": "nothing left out",
}
_GROUPS: Final = {
    "accelerator": "by kind of accelerator",
    "chip": "by chip",
    "model_kind": "by kind of model",
    "precision": "by precision",
    "chips": "by number of chips",
    "slices": "by number of slices",
    "graded": "by quality of the source",
    "assumed": "by what the source states",
}
_COLUMNS: Final = ("", "jobs", "rows", "error", "bias", "within 15%", "inside", "width")
_WORST: Final = 12
_TELLING: Final = 3


def steps_report(answer: StepCalibration, *, written: str | None) -> Report:
    """The screen.

    Args:
        answer: What steps say.
        written: The folder that the files were written to; None where none was.
    """
    clusters = len({row.case.cluster for row in answer.rows})
    rows = format_things(len(answer.rows), "measured step")
    return Report(
        headline=f"fitted to {rows} of {format_things(clusters, 'job')}; errors are of jobs that the fit did not see",
        pieces=(*_steps_pieces(answer), _written(tuple(answer.files), written)),
    )


def steps_json(answer: StepCalibration, *, written: str | None) -> dict[str, Json]:
    """The same in base units; scores have the keys of `validate`."""
    fits = answer.fits
    parameters: dict[str, Json] = {}
    for index, chip in enumerate(fits.chips):
        kind, prior = next((row.kind, row.prior) for row in answer.rows if row.case.chip == chip)
        parameters[chip] = {
            parameter.key: {
                "prior": float(getattr(prior, parameter.key)),
                "value": min(float(getattr(prior, parameter.key) * fits.factors[0, index, column]), parameter.largest),
                "deviation": float(fits.deviations[0, index, column]),
                "prior_deviation": parameter.deviation,
                "settled": (kind, parameter.key) not in answer.held,
            }
            for column, parameter in enumerate(fits.parameters)
        }
    return {
        "used": len(answer.rows),
        "skipped": [{"id": each.id, "reason": each.reason} for each in answer.skipped],
        "held_out": {
            scheme: {kind: score_json(score, counts=True) for kind, score in scores.items()}
            for scheme, scores in answer.scores.items()
        },
        "groups": {
            name: {value: score_json(score, counts=True) for value, score in scores.items()}
            for name, scores in answer.groups.items()
        },
        "parameters": parameters,
        "uncertainties": jsonable(answer.uncertainties),
        "files": dict(answer.files),
        "written": written,
    }


def steps_chart_of(answer: StepCalibration) -> Chart:
    """Estimates of steps that the fit did not see against their measurements."""
    return steps_chart([(row.case, each.expected) for row, each in zip(answer.rows, answer.held_out, strict=True)])


def kernels_report(answer: KernelCalibration, *, written: str | None) -> Report:
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
        pieces=(table, _written(tuple(answer.files), written)),
    )


def kernels_json(answer: KernelCalibration, *, written: str | None) -> dict[str, Json]:
    """The same in base units."""
    return {
        "fits": {
            fit.chip: {
                "parameters": {fact.key: fact.value for fact in fit.facts},
                "residuals": [_residual_json(residual) for residual in fit.residuals],
            }
            for fit in answer.fits
        },
        "files": dict(answer.files),
        "written": written,
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


def _steps_pieces(answer: StepCalibration) -> Iterator[Piece]:
    yield scheme_table(answer)
    yield group_table(answer)
    yield parameter_table(answer)
    yield _held_facts(answer)
    yield uncertainty_table(answer)
    yield worst_table(answer)


def scheme_table(answer: StepCalibration) -> Table:
    """Errors by what the fit did not see."""
    rows: list[tuple[Cell, ...]] = []
    for name in (*(scheme.name for scheme in SCHEMES), "in_sample"):
        rows.append((Cell(text=_SCHEME_TITLES[name], tone="dim"), *(Cell(text="") for _ in _COLUMNS[1:])))
        rows.extend(score_row(kind, score) for kind, score in answer.scores[name].items())
    return Table(title="By what the fit did not see", columns=_COLUMNS, right=frozenset(range(1, 8)), rows=tuple(rows))


def group_table(answer: StepCalibration) -> Table:
    """Errors of held-out clusters by group."""
    rows: list[tuple[Cell, ...]] = []
    for name, title in _GROUPS.items():
        scores = answer.groups[name]
        rows.append((Cell(text=title, tone="dim"), *(Cell(text="") for _ in _COLUMNS[1:])))
        rows.extend(
            score_row(value, each) for value, each in sorted(scores.items(), key=lambda item: group_order(item[0]))
        )
    return Table(title="Held-out clusters", columns=_COLUMNS, right=frozenset(range(1, 8)), rows=tuple(rows))


def parameter_table(answer: StepCalibration) -> Table:
    """What was settled, by chip: the prior and what it became."""
    fits = answer.fits
    settled = [
        (index, each)
        for index, each in enumerate(fits.parameters)
        if any((kind, each.key) not in answer.held for kind in KINDS)
    ]
    rows: list[tuple[Cell, ...]] = []
    for number, chip in enumerate(fits.chips):
        kind, prior = next((row.kind, row.prior) for row in answer.rows if row.case.chip == chip)
        cells = [Cell(text=chip)]
        for index, each in settled:
            before = float(getattr(prior, each.key))
            after = min(before * float(fits.factors[0, number, index]), each.largest)
            is_held = (kind, each.key) in answer.held
            cells.append(Cell(text="–" if is_held else f"{before:.3g} → {after:.3g}"))
        rows.append(tuple(cells))
    return Table(
        title="Settled",
        columns=("chip", *(each.key for _, each in settled)),
        right=frozenset(range(1, len(settled) + 1)),
        rows=tuple(rows),
        note="prior → fitted; –: no chip of that kind has rows that tell",
    )


def uncertainty_table(answer: StepCalibration) -> Table:
    """Half-widths of the interval by part, by kind of chip."""
    names = [key.partition(".")[2] for key in answer.uncertainties if key.startswith(f"{KINDS[0]}.")]
    return Table(
        title="Half-widths of the interval",
        columns=("times its share of the step, or of the whole", *KINDS),
        right=frozenset({1, 2}),
        rows=tuple(
            (
                Cell(text=name.replace("_", " ")),
                *(Cell(text=format_fraction(answer.uncertainties[f"{kind}.{name}"])) for kind in KINDS),
            )
            for name in names
        ),
        note="in quadrature; `unseen` where no measured step had it",
    )


def worst_table(answer: StepCalibration) -> Table:
    """The worst row of each of the worst clusters, held out."""
    worst: dict[str, int] = {}
    errors = [each.error for each in answer.held_out]
    for index in sorted(range(len(errors)), key=lambda each: -abs(errors[each])):
        worst.setdefault(answer.rows[index].case.cluster, index)
    return Table(
        title="Worst cases",
        columns=("case", "error", "what it is"),
        right=frozenset({1}),
        rows=tuple(
            (
                Cell(text=answer.rows[index].case.id),
                Cell(text=signed(errors[index])),
                Cell(text=_in_words(answer, index)),
            )
            for index in list(worst.values())[:_WORST]
        ),
        note="the worst row of a job stands for it; errors of step times",
    )


def _in_words(answer: StepCalibration, index: int) -> str:
    case = answer.rows[index].case
    left = f"; {case.not_stated}" if case.not_stated else ""
    return f"{case.model} on {case.job.hardware.name}, {case.source.split(' ')[0]}{left}"


def _held_facts(answer: StepCalibration) -> Facts:
    rows = [(kind, ", ".join(sorted(key for each, key in answer.held if each == kind)) or "none") for kind in KINDS]
    return Facts(rows=tuple((f"stay at priors ({kind})", Cell(text=keys)) for kind, keys in rows))


def _written(files: tuple[str, ...], written: str | None) -> Paragraphs:
    if written is None:
        line = f"Nothing is written: --output FOLDER writes {format_things(len(files), 'file')}"
    else:
        line = f"{format_things(len(files), 'file')} written to {written}; --calibration {written} uses them"
    return Paragraphs(title="Files", lines=(Cell(text=line),))
