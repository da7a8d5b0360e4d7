"""What measured servers say of chips and engines: `calibration/serving/KIND.toml` becomes a `ServingEfficiency`.

A file holds, for TPUs or for GPUs, what chips and engines of the kind have in common (`[weights]`), a factor on it of
each chip that was measured (`[chip.h100.weights]`) and of each engine (`[engine.vllm.weights]`). A chip or an engine
that is not there has what all have in common. How far estimates are off stands beside, in `serving_uncertainty.toml`.
How the numbers were obtained stands in `docs/serving_accuracy.md`.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import resources
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from ridgeline.cost.calibration import parse_uncertainty
from ridgeline.cost.serving.efficiency import (
    LARGEST,
    LEAST_FRACTION,
    MOST_FACTOR,
    PRIORS,
    ServingEfficiency,
)
from ridgeline.cost.uncertainty import ANYTHING, EXPERTS, Terms
from ridgeline.errors import InputError
from ridgeline.hardware.chip import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.uncertainty import Uncertainty
    from ridgeline.hardware.chip import ChipKind

FOLDER: Final = "serving"
"""Of these files, beside those of kernels and of steps."""

KEYS: Final = tuple(field.name for field in fields(ServingEfficiency))
"""Of an efficiency."""

SERVING_UNCERTAINTY_FILE: Final = "serving_uncertainty.toml"
"""How far estimates are off, in the same folder."""

SERVING_TERMS: Final = Terms(
    series=("TPU_token", "TPU_first", "GPU_token", "GPU_first"),
    parts=(ANYTHING, EXPERTS),
    traits=("chip", "engine", "model", "precision"),
)
"""What the intervals of a server are made of: of times per token and tokens/s, and of the time to the first token."""


def serving_series(kind: ChipKind, *, is_first: bool) -> str:
    """Which uncertainties are meant.

    >>> serving_series("TPU", is_first=True)
    'TPU_first'
    """
    return f"{kind}_{'first' if is_first else 'token'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCalibration:
    """What is known of servers on one kind of chip.

    Attributes:
        facts: Every number by its dotted key, with source.
    """

    facts: Mapping[str, Fact]

    def efficiency(self, chip: str, engine: str) -> ServingEfficiency:
        """Of a chip under an engine."""
        found = {key: self._value(key, chip, engine) for key in KEYS}
        return ServingEfficiency(**found)

    def _value(self, key: str, chip: str, engine: str) -> float:
        factors = [self.facts.get(f"chip.{chip}.{key}"), self.facts.get(f"engine.{engine}.{key}")]
        value = self.facts[key].value
        for fact in factors:
            value *= 1.0 if fact is None else fact.value
        return min(value, LARGEST[key])


def prior_serving_calibration(kind: ChipKind) -> ServingCalibration:
    """What is known of a kind of chip before any server was measured: no chip and no engine differs."""
    source = "Ridgeline cost/serving/efficiency.py"
    return ServingCalibration(
        facts={key: Fact(value=value, kind="derived", source=source) for key, value in asdict(PRIORS[kind]).items()}
    )


@cache
def load_serving_calibration(kind: ChipKind) -> ServingCalibration:
    """What ships of a kind of chip.

    >>> 0.0 < load_serving_calibration("TPU").efficiency("v6e", "vllm").weights <= 1.0
    True
    """
    file = resources.files("ridgeline.cost") / "calibration" / FOLDER / f"{kind}.toml"
    return parse_serving_calibration(file.read_text(encoding="utf-8"), where=file.name)


@cache
def load_serving_uncertainty() -> Uncertainty:
    """How far estimates of servers are off, as it ships.

    >>> 0 < load_serving_uncertainty().values["GPU_token.anything"] < 0.5
    True
    """
    file = resources.files("ridgeline.cost") / "calibration" / FOLDER / SERVING_UNCERTAINTY_FILE
    return parse_uncertainty(file.read_text(encoding="utf-8"), where=file.name, terms=SERVING_TERMS)


def parse_serving_calibration(text: str, *, where: str) -> ServingCalibration:
    """What a file states.

    Args:
        text: TOML.
        where: The file, for the error message.

    Raises:
        InputError: The text is no TOML, or a number is missing, malformed or unknown.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            "not a TOML file", where=where, value=str(error), expected="TOML", fix="mend the line it names"
        ) from error
    facts = dict(_facts(table, where))
    unknown = {key for key in facts if key.rpartition(".")[2] not in KEYS}
    if wrong := sorted((set(KEYS) - facts.keys()) | unknown):
        raise _malformed(where, wrong[0], "missing" if wrong[0] in KEYS else "unknown")
    return ServingCalibration(facts=MappingProxyType(facts))


def _facts(table: Mapping[str, Any], where: str, path: str = "") -> Iterator[tuple[str, Fact]]:
    """Every fact by its dotted key; a table with a `value` is one, any other holds them."""
    for name, content in table.items():
        key = f"{path}{name}"
        match content:
            case {"value": bool()}:
                raise _malformed(where, key, cast("object", content))
            case {"value": int() | float() as value, "kind": str() as kind, "source": str() as source}:
                _check_range(where, key, value)
                entry = cast("dict[str, Any]", content)
                yield key, Fact(value=float(value), kind=cast("Any", kind), source=source, note=entry.get("note", ""))
            case dict() if "value" not in content:
                yield from _facts(cast("dict[str, Any]", content), where, f"{key}.")
            case _:
                raise _malformed(where, key, cast("object", content))


def _check_range(where: str, key: str, value: float) -> None:
    """Refuses what no chip reaches, and a factor that makes nothing or all of it."""
    path, _, name = key.rpartition(".")
    if path:
        least, most, what = 1 / MOST_FACTOR, MOST_FACTOR, "a factor"
    elif name.endswith("_s"):
        least, most, what = 0.0, LARGEST.get(name, inf), "seconds"
    else:
        least, most, what = LEAST_FRACTION, LARGEST.get(name, inf), "a fraction"
    if not (value > 0 and least <= value <= most):
        raise InputError(
            "calibration of servers out of range",
            where=f"{where}: {key}",
            value=value,
            expected=f"{what} above 0 and at most {most:g}" if not least else f"{what} from {least:g} to {most:g}",
            fix="mend the value, or fit again: ridgeline calibrate --serving --from CASES",
        )


def _malformed(where: str, key: str, value: object) -> InputError:
    return InputError(
        "malformed calibration of servers",
        where=f"{where}: {key}",
        value=value,
        expected="value (a number), kind (a word), source (a text)",
        fix="give all three, each of its kind",
    )
