"""Writes what measured servers settled: one file for each kind of chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.study.servers.parameters import SERVING_PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date

    from ridgeline.hardware.chip import ChipKind
    from ridgeline.study.servers.observations import ServingObservation
    from ridgeline.study.steps.fit import Fits

_SOURCE: Final = "Ridgeline docs/serving_accuracy.md"
_SAME: Final = 0.005
"""A factor that is nearer to 1 is left out."""


def serving_toml(
    rows: Sequence[ServingObservation],
    fits: Fits,
    interval: Mapping[ChipKind, Mapping[str, float]],
    *,
    fitted_on: date,
) -> dict[str, str]:
    """The file of every kind of chip, by name.

    Args:
        rows: What was measured.
        fits: The first one saw all rows.
        interval: Half-widths, by kind and key.
        fitted_on: The day.
    """
    files: dict[str, str] = {}
    for kind, prior in PRIORS.items():
        lines = [f"# What passes of servers reach on {kind}s. Method: docs/serving_accuracy.md."]
        those = [index for index, row in enumerate(rows) if row.kind == kind]
        note = _fitted_to(rows, fits, those, fitted_on)
        for parameter in SERVING_PARAMETERS:
            before = float(getattr(prior, parameter.key))
            factor = _factor(fits, kind, parameter.key)
            said = f"Prior {before:.3g} ({parameter.why}). {note}"
            value = min(before * factor, parameter.largest)
            lines += _fact(parameter.key, value, "measured" if those else "derived", said)
        for part in fits.parts:
            what, _, name = part.partition(".")
            engine_kind = name.rpartition(".")[2] if what == "engine" else kind
            members = [index for index in those if part in rows[index].parts]
            if what in PRIORS or not members or engine_kind != kind:
                continue
            plain = name.rpartition(".")[0] if what == "engine" else name
            said = "A factor. " + _fitted_to(rows, fits, members, fitted_on)
            for index, parameter in enumerate(SERVING_PARAMETERS):
                factor = _factor(fits, part, parameter.key)
                if index == 0 or abs(np.log(factor)) > _SAME:  # the first says that the part was measured
                    lines += _fact(f"{what}.{plain}.{parameter.key}", factor, "measured", said)
        for key, width in interval[kind].items():
            lines += _fact(f"interval.{key}", width, "measured" if those else "derived", f"Half-width. {note}")
        files[f"{kind}.toml"] = "\n".join(lines) + "\n"
    return files


def _factor(fits: Fits, part: str, key: str) -> float:
    """What a fit to all rows says of a part; 1 where no row has it."""
    if part not in fits.parts:
        return 1.0
    keys = [parameter.key for parameter in fits.parameters]
    return float(fits.part_factors[0, fits.parts.index(part), keys.index(key)])


def _fact(key: str, value: float, kind: str, note: str) -> Iterator[str]:
    quoted = ".".join(f'"{name}"' if not name.replace("_", "").isalnum() else name for name in key.split("."))
    yield from (
        "",
        f"[{quoted}]",
        f"value = {value:.3g}",
        f'kind = "{kind}"',
        f'source = "{_SOURCE}"',
        f'note = "{note}"',
    )


def _fitted_to(rows: Sequence[ServingObservation], fits: Fits, those: Sequence[int], fitted_on: date) -> str:
    """What a number rests on, and what the fit leaves of the errors of times per token."""
    tokens = [index for index in those if not rows[index].is_first]
    if not tokens:
        return "A prior: no server of the kind was measured."
    errors = np.array([fits.expected_s[0, index] / rows[index].measured_s - 1 for index in tokens])
    clusters = len({rows[index].cluster for index in tokens})
    return (
        f"Fitted on {fitted_on.isoformat()} to {len(those)} measurements of {clusters} servers. "
        f"Median error left {np.median(np.abs(errors)):.1%}, signed {np.median(errors):+.1%}."
    )
