"""The calibration: one TOML file per chip becomes an `Efficiency`, every number with its source.

`calibration/CHIP.toml` holds what peaks, kernels and microbenchmarks say, and priors of what only whole steps can
tell; `calibration/steps/CHIP.toml` what whole steps settled of these. A file's tables are named like the fields of
`Efficiency` (`[hbm]`, `[matmul.bf16]`, `[attention_head_dim.64]`) and hold `value`, `kind`, `source` and `note`. This
is the only place that reads them, once, as package data. How each number was obtained stands in `docs/calibration.md`.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from functools import cache
from importlib import resources
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ridgeline.cost.efficiency import Efficiency
from ridgeline.cost.kernel_time import PRODUCTS
from ridgeline.cost.uncertainty import STEP_TERMS, Uncertainty
from ridgeline.errors import InputError, nearest
from ridgeline.hardware.chip import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.cost.uncertainty import MeasuredJobs, Terms, Trait

_SUFFIX = ".toml"
_STEPS = "steps"
"""The folder of what whole steps settled, beside the files of what was there before."""
UNCERTAINTY_FILE = "uncertainty.toml"
"""How far estimates are off, in the same folder."""

_KINDS = ("published", "measured", "derived")
_TABLES = ("matmul", "grouped_matmul", "grouped_edge_rows", "attention_head_dim")
_SCALARS = frozenset(field.name for field in fields(Efficiency)) - {*_TABLES, "facts"}
_NOT_FRACTIONS = (
    *("grouped_edge_rows", "grouped_partial_factor", "attention_block", "attention_tile_pairs"),
    *("attention_row_keys", "attention_head_dim"),
    *("sum_passes", "sustained", "sustained_narrow", "sustained_grouped"),
    *("TPU", "GPU"),  # half-widths: where an estimate may be off by more than twice, above 1
)
_REFERENCE_HEAD_DIM = 128


@cache
def calibrated_chips() -> tuple[str, ...]:
    """The chips that have a calibration, alphabetically."""
    files = (resources.files("ridgeline.cost") / "calibration").iterdir()
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX)))


@cache
def load_efficiency(chip_name: str) -> Efficiency:
    """What programs reach of the peaks of a chip of the catalogue: of what whole steps settle, what they settled.

    >>> load_efficiency("tpu7x").matmul["bf16"]
    0.829

    Args:
        chip_name: The catalogue's name, e.g. `tpu7x`, `h100`.

    Raises:
        InputError: The chip has no calibration.
    """
    file = resources.files("ridgeline.cost") / "calibration" / _STEPS / f"{chip_name}{_SUFFIX}"
    prior = load_prior(chip_name)
    return with_own_facts(prior, file.read_text(encoding="utf-8"), where=file.name) if file.is_file() else prior


@cache
def load_prior(chip_name: str) -> Efficiency:
    """The same before any whole step was looked at.

    Args:
        chip_name: The catalogue's name.

    Raises:
        InputError: The chip has no calibration.
    """
    if chip_name not in calibrated_chips():
        raise InputError(
            "this chip has no calibration",
            where="chip",
            value=chip_name,
            expected=f"one of {', '.join(calibrated_chips())}",
            fix=nearest(chip_name, calibrated_chips()) or "name the chip whose efficiencies come closest",
        )
    file = resources.files("ridgeline.cost") / "calibration" / f"{chip_name}{_SUFFIX}"
    return parse_efficiency(file.read_text(encoding="utf-8"), where=file.name)


def parse_efficiency(text: str, *, where: str) -> Efficiency:
    """The efficiencies a calibration file states.

    Args:
        text: TOML.
        where: The file, for the error message.

    Raises:
        InputError: The text is no TOML, or a quantity is missing, unknown, without source, or out of range.
    """
    return _efficiency(dict(_facts(_toml(text, where), where)), where)


def with_own_facts(efficiency: Efficiency, text: str, *, where: str) -> Efficiency:
    """Efficiencies of which a second file states some anew.

    Args:
        efficiency: Of the chip.
        text: TOML in the form of a calibration file; what it leaves out stays.
        where: The file, for the error message.

    Raises:
        InputError: The text is no TOML, or a quantity is unknown, without source, or out of range.
    """
    return _efficiency({**efficiency.facts, **dict(_facts(_toml(text, where), where))}, where)


def _efficiency(facts: Mapping[str, Fact], where: str) -> Efficiency:
    """What facts by dotted key say, if all are there and no other."""
    _check_complete(facts, where)
    head_dims = {_REFERENCE_HEAD_DIM: 1.0} | {int(name): value for name, value in _below("attention_head_dim", facts)}
    return Efficiency(
        matmul=MappingProxyType(dict(_below("matmul", facts))),
        grouped_matmul=MappingProxyType(dict(_below("grouped_matmul", facts))),
        grouped_edge_rows=MappingProxyType(dict(_below("grouped_edge_rows", facts))),
        attention_head_dim=MappingProxyType(dict(sorted(head_dims.items()))),
        facts=MappingProxyType(dict(facts)),
        **{name: facts[name].value for name in _SCALARS},
    )


@cache
def load_uncertainty() -> Uncertainty:
    """How far estimates are off, and what measured steps had: `calibration/steps/uncertainty.toml`.

    >>> load_uncertainty().values["TPU.arithmetic"] < 0.2
    True
    """
    file = resources.files("ridgeline.cost") / "calibration" / _STEPS / UNCERTAINTY_FILE
    return parse_uncertainty(file.read_text(encoding="utf-8"), where=file.name)


def parse_uncertainty(text: str, *, where: str, terms: Terms = STEP_TERMS) -> Uncertainty:
    """What a file of uncertainties states.

    Args:
        text: TOML.
        where: The file, for the error message.
        terms: What it must state.

    Raises:
        InputError: The text is no TOML, or a number or a list is missing, unknown or malformed.
    """
    table = _toml(text, where)
    counts = table.pop("measured_jobs", {})
    facts = dict(_facts(table, where))
    wanted = set(terms.keys)
    if wrong := sorted(wanted ^ facts.keys()):
        raise _malformed(where, wrong[0], "missing" if wrong[0] in wanted else "unknown")
    return Uncertainty(
        values=MappingProxyType({key: fact.value for key, fact in facts.items()}),
        measured_jobs=_measured_jobs(counts, where, terms),
        facts=MappingProxyType(facts),
    )


def _measured_jobs(table: Mapping[str, Any], where: str, terms: Terms) -> Mapping[str, MeasuredJobs]:
    """The counts by series, trait and value; what is not there had none."""
    try:
        return MappingProxyType({series: _counts(table.get(series, {}), terms) for series in terms.series})
    except (AttributeError, TypeError, ValueError):
        raise InputError(
            "malformed counts of measured jobs",
            where=f"{where}: measured_jobs",
            value=table,
            expected='tables like [measured_jobs.TPU.chip] with lines like "v5e" = 3',
            fix="fit again: ridgeline calibrate --from CASES",
        ) from None


def _counts(table: Mapping[str, Any], terms: Terms) -> MeasuredJobs:
    counts: dict[Trait, dict[str, Any]] = {trait: dict(table.get(trait, {})) for trait in terms.traits}
    are_whole = all(isinstance(jobs, int) and jobs >= 0 for of_value in counts.values() for jobs in of_value.values())
    if table.keys() - counts or not are_whole:
        raise ValueError(table)
    return MappingProxyType({trait: MappingProxyType(of_value) for trait, of_value in counts.items()})


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            "not a TOML file", where=where, value=str(error), expected="TOML", fix="mend the line it names"
        ) from error


def _facts(table: Mapping[str, Any], where: str, path: str = "") -> Iterator[tuple[str, Fact]]:
    """Every fact of the file by its dotted key; a table with a `value` is a fact, any other holds facts."""
    for name, content in table.items():
        key = f"{path}{name}"
        if not isinstance(content, dict):
            raise _malformed(where, key, content)
        entry = cast("dict[str, Any]", content)
        if "value" in entry:
            yield key, _fact(entry, where, key)
        else:
            yield from _facts(entry, where, f"{key}.")


def _fact(entry: Mapping[str, Any], where: str, key: str) -> Fact:
    match entry:
        case {"value": int() | float() as value, "kind": kind, "source": str() as source} if (
            not isinstance(value, bool)
            and kind in _KINDS
            and source
            and _in_range(key, float(value))
            and _is_named(key)
        ):
            return Fact(value=float(value), kind=kind, source=source, note=str(entry.get("note", "")))
        case _:
            raise _malformed(where, key, entry)


def _in_range(key: str, value: float) -> bool:
    """Fractions are above 0 and at most 1; times, blocks and ratios are above 0."""
    is_fraction = not key.endswith(("_s", "_bytes")) and not key.startswith(_NOT_FRACTIONS)
    return 0.0 < value <= 1.0 if is_fraction else 0.0 < value < inf


def _is_named(key: str) -> bool:
    """A head dim is a number, a grouped matmul one of three products; any word names a dtype."""
    table, _, name = key.partition(".")
    match table:
        case "attention_head_dim":
            return name.isdecimal()
        case "grouped_matmul" | "grouped_edge_rows":
            return name in PRODUCTS
        case _:
            return True


def _check_complete(facts: Mapping[str, Fact], where: str) -> None:
    present = {key.partition(".")[0] for key in facts}
    grouped = {f"{table}.{product}" for table in ("grouped_matmul", "grouped_edge_rows") for product in PRODUCTS}
    missing = ((_SCALARS | {"matmul.bf16", *_TABLES}) - present - facts.keys()) | (grouped - facts.keys())
    if missing:
        raise InputError(
            "an efficiency is missing",
            where=where,
            value=", ".join(sorted(missing)),
            expected="every field of Efficiency",
            fix="add the table, with value, kind and source; without a measurement, that of the nearest chip",
        )
    unknown = present - _SCALARS - set(_TABLES)
    if unknown:
        raise InputError(
            "unknown efficiency",
            where=where,
            value=", ".join(sorted(unknown)),
            expected=f"one of {', '.join(sorted(_SCALARS | set(_TABLES)))}",
            fix=nearest(min(unknown), sorted(_SCALARS)) or "remove the table",
        )


def _below(table: str, facts: Mapping[str, Fact]) -> Iterator[tuple[str, float]]:
    """The entries of one table, without its name: `matmul.bf16` as `bf16`."""
    prefix = f"{table}."
    return ((key.removeprefix(prefix), fact.value) for key, fact in facts.items() if key.startswith(prefix))


def _malformed(where: str, key: str, value: object) -> InputError:
    return InputError(
        "malformed efficiency",
        where=f"{where}: {key}",
        value=value,
        expected=f"value (a fraction above 0 and at most 1, or a positive number), kind ({' | '.join(_KINDS)}), source",
        fix="give all three, the value in its range",
    )
