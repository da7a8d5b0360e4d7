"""Writes what measured servers settled: one file for each kind of chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.calibration import SERVING_TERMS, SERVING_UNCERTAINTY_FILE, prior_serving_calibration
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.hardware.chip import Fact
from ridgeline.study.servers.parameters import SERVING_PARAMETERS
from ridgeline.study.steps.writing import FileOfUncertainties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import date

    from ridgeline.cost.serving.calibration import ServingCalibration
    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.servers.observations import ServingObservation
    from ridgeline.study.steps.fit import Fits

OF_SERVERS: Final = FileOfUncertainties(
    name=SERVING_UNCERTAINTY_FILE, terms=SERVING_TERMS, of="measurement", page="docs/serving_accuracy.md"
)
_SAME: Final = 0.005
"""A factor that is nearer to 1 is left out."""


def serving_toml(
    rows: Sequence[ServingObservation],
    fits: Fits,
    *,
    before: Callable[[ChipKind], ServingCalibration] = prior_serving_calibration,
    fitted_on: date,
) -> dict[str, str]:
    """The file of every kind of chip, by name.

    Args:
        rows: What was measured.
        fits: The first one saw all rows.
        before: What was known of a kind of chip, on which the fit's numbers are factors.
        fitted_on: The day.
    """
    files: dict[str, str] = {}
    for kind in PRIORS:
        known = before(kind).facts
        those = [index for index, row in enumerate(rows) if row.kind == kind]
        facts: dict[str, Fact] = {}
        for parameter in SERVING_PARAMETERS:
            prior = known[parameter.key].value
            value = min(prior * _factor(fits, kind, parameter.key), parameter.largest)
            note = f"Prior {prior:.3g} ({parameter.why}). {_fitted_to(rows, fits, those, fitted_on)}"
            facts[parameter.key] = _settled(value, note) if those else known[parameter.key]
        facts |= {key: fact for key, fact in known.items() if key not in facts}
        facts |= _parts(rows, fits, kind, known, fitted_on)
        heading = f"# What passes of servers reach on {kind}s. Method: {OF_SERVERS.page}."
        lines = [heading, *(line for key, fact in facts.items() for line in _lines(key, fact))]
        files[f"{kind}.toml"] = "\n".join(lines) + "\n"
    return files


def _parts(
    rows: Sequence[ServingObservation], fits: Fits, kind: ChipKind, known: Mapping[str, Fact], fitted_on: date
) -> dict[str, Fact]:
    """Factors of the chips and engines that were measured on a kind of chip."""
    facts: dict[str, Fact] = {}
    for part in fits.parts:
        members = [index for index, row in enumerate(rows) if row.kind == kind and part in row.parts]
        if part in PRIORS or not members:
            continue
        name = part.removesuffix(f".{kind}") if part.startswith("engine.") else part
        note = "A factor. " + _fitted_to(rows, fits, members, fitted_on)
        for parameter in SERVING_PARAMETERS:
            key = f"{name}.{parameter.key}"
            factor = _factor(fits, part, parameter.key) * (known[key].value if key in known else 1.0)
            if abs(np.log(factor)) > _SAME or key in known:
                facts[key] = _settled(factor, note)
    return facts


def _settled(value: float, note: str) -> Fact:
    return Fact(value=value, kind="measured", source=f"Ridgeline {OF_SERVERS.page}", note=note)


def _factor(fits: Fits, part: str, key: str) -> float:
    """What a fit to all rows says of a part; 1 where no row has it."""
    if part not in fits.parts:
        return 1.0
    keys = [parameter.key for parameter in fits.parameters]
    return float(fits.part_factors[0, fits.parts.index(part), keys.index(key)])


def _lines(key: str, fact: Fact) -> Iterator[str]:
    quoted = ".".join(f'"{name}"' if not name.replace("_", "").isalnum() else name for name in key.split("."))
    yield from (
        "",
        f"[{quoted}]",
        f"value = {fact.value:.3g}",
        f'kind = "{fact.kind}"',
        f'source = "{fact.source}"',
        f'note = "{fact.note}"',
    )


def _fitted_to(rows: Sequence[ServingObservation], fits: Fits, those: Sequence[int], fitted_on: date) -> str:
    """What a number rests on, and what the fit leaves of the errors of times per token."""
    tokens = [index for index in those if not rows[index].is_first]
    if not tokens:
        return f"Fitted on {fitted_on.isoformat()} to {len(those)} times to the first token."
    errors = np.array([fits.expected_s[0, index] / rows[index].case.measured_s - 1 for index in tokens])
    clusters = len({rows[index].cluster for index in tokens})
    return (
        f"Fitted on {fitted_on.isoformat()} to {len(those)} measurements of {clusters} servers. "
        f"Median error left {np.median(np.abs(errors)):.1%}, signed {np.median(errors):+.1%}."
    )
