"""What measured servers say of chips and engines: `calibration/serving/KIND.toml` becomes a `ServingEfficiency`.

A file holds, for TPUs or for GPUs, what chips and engines of the kind have in common (`[weights]`), a factor on it of
each chip that was measured (`[chip.h100.weights]`) and of each engine (`[engine.vllm.weights]`), and how far estimates
are off (`[interval.token]`). A chip or an engine that is not there has what all have in common. How the numbers were
obtained stands in `docs/serving_accuracy.md`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from math import hypot
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from ridgeline.cost.serving.efficiency import LARGEST, ServingEfficiency
from ridgeline.errors import InputError
from ridgeline.hardware.chip import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.hardware.chip import ChipKind

FOLDER: Final = "serving"
"""Of these files, beside those of kernels and of steps."""

KEYS: Final = tuple(field.name for field in fields(ServingEfficiency))
"""Of an efficiency."""

INTERVAL_KEYS: Final = ("token", "experts", "first", "unseen_chip", "unseen_engine")
"""Half-widths of 80% intervals: of times per token; of those where tokens are routed; of the time to the first token;
and what a chip, or an engine, that was never measured adds to each."""


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

    def interval_fraction(self, key: str) -> float:
        """A half-width of `INTERVAL_KEYS`."""
        return self.facts[f"interval.{key}"].value

    def half_width_fraction(self, chip: str, engine: str, *, has_experts: bool, is_first: bool) -> float:
        """Half of the width of an 80% interval over its estimate: low = expected/(1 + h), high = expected·(1 + h).

        Formula: h = √(u_token² + u_experts² + u_unseen²), of the time to the first token √(u_first² + u_unseen²)

        Assumes: what is not known of tokens' routing, of a chip and of an engine does not depend on each other.

        Source: Ridgeline docs/serving_accuracy.md.

        Args:
            chip: Name.
            engine: Name.
            has_experts: Whether tokens are routed.
            is_first: Of the time to the first token.
        """
        unseen = [what for what, name in (("chip", chip), ("engine", engine)) if not self.has_measured(what, name)]
        own = ("first",) if is_first else ("token", *(("experts",) if has_experts else ()))
        return hypot(*(self.interval_fraction(key) for key in (*own, *(f"unseen_{what}" for what in unseen))))

    def has_measured(self, what: str, name: str) -> bool:
        """Whether a `chip` or an `engine` of that name was measured."""
        return any(key.startswith(f"{what}.{name}.") for key in self.facts)

    def _value(self, key: str, chip: str, engine: str) -> float:
        factors = [self.facts.get(f"chip.{chip}.{key}"), self.facts.get(f"engine.{engine}.{key}")]
        value = self.facts[key].value
        for fact in factors:
            value *= 1.0 if fact is None else fact.value
        return min(value, LARGEST[key])


@cache
def load_serving_calibration(kind: ChipKind) -> ServingCalibration:
    """What ships of a kind of chip.

    >>> 0.0 < load_serving_calibration("TPU").efficiency("v6e", "vllm").weights <= 1.0
    True
    """
    file = resources.files("ridgeline.cost") / "calibration" / FOLDER / f"{kind}.toml"
    return parse_serving_calibration(file.read_text(encoding="utf-8"), where=file.name)


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
    wanted = {*KEYS, *(f"interval.{key}" for key in INTERVAL_KEYS)}
    unknown = {key for key in facts if key.rpartition(".")[2] not in {*KEYS, *INTERVAL_KEYS}}
    if wrong := sorted((wanted - facts.keys()) | unknown):
        raise _malformed(where, wrong[0], "missing" if wrong[0] in wanted else "unknown")
    return ServingCalibration(facts=MappingProxyType(facts))


def _facts(table: Mapping[str, Any], where: str, path: str = "") -> Iterator[tuple[str, Fact]]:
    """Every fact by its dotted key; a table with a `value` is one, any other holds them."""
    for name, content in table.items():
        key = f"{path}{name}"
        match content:
            case {"value": int() | float() as value, "kind": str() as kind, "source": str() as source} if value > 0:
                entry = cast("dict[str, Any]", content)
                yield key, Fact(value=float(value), kind=cast("Any", kind), source=source, note=entry.get("note", ""))
            case dict() if "value" not in content:
                yield from _facts(cast("dict[str, Any]", content), where, f"{key}.")
            case _:
                raise _malformed(where, key, cast("object", content))


def _malformed(where: str, key: str, value: object) -> InputError:
    return InputError(
        "malformed calibration of servers",
        where=f"{where}: {key}",
        value=value,
        expected="value (above 0), kind, source",
        fix="give all three",
    )
