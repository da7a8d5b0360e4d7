"""Quantities as people write and read them, and nothing else.

Inside Ridgeline every number is in a base unit (bytes, FLOPs, seconds, US dollars). Only here do
`34MB`, `96 GiB` or `1.2 PFLOP/s` exist: parsed on the way in, formatted on the way out. GB is 1e9
bytes, GiB is 2^30. Formatters show an unknown value (NaN) as `unknown`, never as zero.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

MILLION: Final = 1e6
"""Tokens that a price of serving is for."""

_PERCENT: Final = 100.0
"""Parts of a whole that are counted as percent."""

_ABSURD = 1e30
_NUMBER_AND_UNIT = re.compile(r"([+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\W\d_]*)")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)\b.*", re.IGNORECASE)

_COUNT_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12} | {
    prefix: 2.0**power for prefix, power in (("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40))
}
_DECIMAL_BYTE_SCALES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_BINARY_BYTE_SCALES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "PiB": 2.0**50}
_DURATION_SCALES = {
    "ns": 1e-9,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "days": 86400.0,
}
_DURATION_STARTS_S = {"min": 120.0, "h": 7200.0, "days": 172800.0}
_NO_STARTS: Mapping[str, float] = {}
_SI_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24}
_DOLLAR_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}

_CYCLE_SCALES = {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}
_FLOP_SCALES = {
    f"{prefix}{noun}": scale for noun in ("", "FLOP", "FLOPs", "OP", "OPs") for prefix, scale in _SI_PREFIXES.items()
}

_COUNT_ALIASES = {"k": 1e3, "G": 1e9}
_BYTE_ALIASES = {"": 1.0, "KB": 1e3}
_DURATION_ALIASES = {"us": 1e-6, "μs": 1e-6, "d": 86400.0, "day": 86400.0, "": 1.0}


def parse_count(value: str | float, *, where: str, unit: str = "", example: str = "256, 4Mi or 15T") -> float:
    """A number of things: `256`, `2_048`, `4Mi`, `15T`, `1.5e12`.

    K, M, B and T are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024.

    Args:
        value: As the user wrote it.
        where: The key or flag, for the error message.
        unit: What is counted, e.g. `tokens`, for the error message.
        example: What may be written, for the error message.

    >>> parse_count("4Mi", where="workload.batch_tokens")
    4194304.0
    """
    noun = f"a number of {unit}" if unit else "a number"
    return _parse(value, _COUNT_SCALES | _COUNT_ALIASES, where=where, expected=noun, example=example)


def parse_whole(value: str | float, *, where: str, unit: str = "", least: int = 1, most: float = 1e12) -> int:
    """A whole number of things from `least` to `most`: `8192`, `8Ki`.

    >>> parse_whole("8Ki", where="--seq-len")
    8192
    """
    count = parse_count(value, where=where, unit=unit)
    if count > most:
        raise InputError(
            "absurdly large number",
            where=where,
            value=value,
            expected=f"at most {format_count(most)}{unit and f' {unit}'}",
            fix="check the unit; K, M, B, T are powers of 1000",
        )
    noun = f"a whole number of {unit}" if unit else "a whole number"
    if count < least or count != int(count):
        raise InputError(
            "not a whole number" if count != int(count) else "number too small",
            where=where,
            value=value,
            expected=f"{noun}, at least {least}",
            fix=f"write {max(least, round(count))}",
        )
    return int(count)


def parse_fraction(value: str | float, *, where: str) -> float:
    """A part of a whole, 0 to 1: `0.8`, `80%`.

    >>> parse_fraction("80%", where="--acceptance"), parse_fraction(0.25, where="--acceptance")
    (0.8, 0.25)
    """
    expected = "a part of a whole, 0 to 1, or a percentage"
    in_percent = isinstance(value, str) and value.strip().endswith("%")
    plain = value.strip().removesuffix("%") if isinstance(value, str) else value
    if isinstance(plain, str) and "%" in plain:
        raise InputError("not a number", where=where, value=value, expected=expected, fix="write e.g. 0.8 or 80%")
    number = _parse(plain, {"": 1.0}, where=where, expected=expected, example="0.8 or 80%")
    fraction = number / _PERCENT if in_percent else number
    if fraction > 1:
        meant = f"write {number / _PERCENT:g}, or {number:g}%" if number <= _PERCENT else "check the number"
        raise InputError("more than the whole", where=where, value=value, expected=expected, fix=meant)
    return fraction


def parse_bytes(value: str | float, *, where: str) -> float:
    """A size in bytes: `34MB` (decimal), `96GiB` (binary), `1024`.

    >>> parse_bytes("34MB", where="--size")
    34000000.0
    >>> parse_bytes("96 GiB", where="--size")
    103079215104.0
    """
    scales = _DECIMAL_BYTE_SCALES | _BINARY_BYTE_SCALES | _BYTE_ALIASES
    return _parse(value, scales, where=where, expected="a size in bytes", example="34MB or 96GiB")


def parse_duration(value: str | float, *, where: str) -> float:
    """A time in seconds: `250ms`, `1.5h`, `90 days`, `12` (seconds).

    >>> parse_duration("1.5h", where="--within")
    5400.0
    """
    scales = _DURATION_SCALES | _DURATION_ALIASES
    return _parse(value, scales, where=where, expected="a duration", example="250ms, 1.5h or 90days")


def parse_bytes_per_s(value: str | float, *, where: str) -> float:
    """A bandwidth in bytes a second: `820GB/s`, `820GB`, `8.2e11`.

    >>> parse_bytes_per_s("820GB/s", where="--hbm-bandwidth")
    820000000000.0
    """
    scales = _DECIMAL_BYTE_SCALES | _BINARY_BYTE_SCALES | _BYTE_ALIASES
    return _parse(_without_per_s(value), scales, where=where, expected="bytes a second", example="820GB/s or 8.2e11")


def parse_flops(value: str | float, *, where: str) -> float:
    """A number of floating-point operations: `1TFLOP`, `1e12`.

    >>> parse_flops("1TFLOP", where="--flops")
    1000000000000.0
    """
    return _parse(value, _FLOP_SCALES, where=where, expected="a number of FLOPs", example="1TFLOP or 1e12")


def parse_flops_per_s(value: str | float, *, where: str) -> float:
    """A rate of floating-point operations: `197TFLOP/s`, `1.97e14`.

    >>> parse_flops_per_s("197TFLOP/s", where="--peak")
    197000000000000.0
    """
    rate = _without_per_s(value)
    return _parse(rate, _FLOP_SCALES, where=where, expected="FLOPs a second", example="197TFLOP/s or 1.97e14")


def parse_cycles_per_s(value: str | float, *, where: str) -> float:
    """A clock: `1.5GHz`, `1.5e9`.

    >>> parse_cycles_per_s("1.5GHz", where="--clock")
    1500000000.0
    """
    scales = {"": 1.0} | _CYCLE_SCALES
    return _parse(value, scales, where=where, expected="a clock frequency", example="1.5GHz or 1.5e9")


def duration_in(duration_s: float, unit: str) -> float:
    """A time in another unit: `min`, `h`, `days`, `years` of 365 days.

    >>> duration_in(172800.0, "days")
    2.0
    """
    scales = _DURATION_SCALES | _DURATION_ALIASES | {"years": 365 * _DURATION_SCALES["days"]}
    if unit not in scales:
        known = ", ".join(name for name in scales if name)
        fix = nearest(unit, scales) or "use one of those"
        raise InputError("unknown unit of time", where="unit", value=unit, expected=known, fix=fix)
    return duration_s / scales[unit]


def rate_in(rate_per_s: float, unit: str) -> float:
    """A rate in another unit of time: things a `ms`, a `min`, a `days`.

    >>> rate_in(500.0, "ms")
    0.5
    """
    return rate_per_s / duration_in(1.0, unit)


def bytes_in(size_bytes: float, unit: str) -> float:
    """A size in a unit of its own: what a flag is told.

    >>> bytes_in(100663296.0, "KiB")
    98304.0

    Args:
        size_bytes: The size.
        unit: `B` to `PiB`, or `kB` to `PB`.
    """
    return size_bytes / (_DECIMAL_BYTE_SCALES | _BINARY_BYTE_SCALES)[unit]


def format_bytes(size_bytes: float) -> str:
    """A memory size in binary units: `94.7 GiB`."""
    return _format_scaled(size_bytes, _BINARY_BYTE_SCALES)


def format_decimal_bytes(size_bytes: float) -> str:
    """A transferred size in decimal units: `34.0 MB`."""
    return _format_scaled(size_bytes, _DECIMAL_BYTE_SCALES)


def format_rate_bytes_per_s(rate_bytes_per_s: float) -> str:
    """A bandwidth in decimal units: `7.37 TB/s`."""
    return _format_scaled(rate_bytes_per_s, {f"{unit}/s": scale for unit, scale in _DECIMAL_BYTE_SCALES.items()})


def format_flops(work_flops: float) -> str:
    """A number of floating-point operations: `423 GFLOP`."""
    return _format_scaled(work_flops, {f"{prefix}FLOP": scale for prefix, scale in _SI_PREFIXES.items()})


def format_flops_per_s(rate_flops_per_s: float) -> str:
    """A rate of floating-point operations: `2.31 PFLOP/s`."""
    return _format_scaled(rate_flops_per_s, {f"{prefix}FLOP/s": scale for prefix, scale in _SI_PREFIXES.items()})


def format_cycles_per_s(clock_cycles_per_s: float) -> str:
    """A clock: `1.50 GHz`."""
    return _format_scaled(clock_cycles_per_s, _CYCLE_SCALES)


def format_seconds(duration_s: float) -> str:
    """A time: `340 ns`, `12.2 s`, `3.50 min`, `41.3 days`. From minutes up, a unit starts at two of it."""
    return _format_scaled(duration_s, _DURATION_SCALES, starts=_DURATION_STARTS_S) if duration_s else "0 s"


def format_count(count: float) -> str:
    """A number of things: `256`, `8,192`, `70.6B`, `15T`."""
    if math.isfinite(count) and abs(count) < 1e4:
        return f"{count:,.0f}" if count == int(count) or abs(count) >= 100 else f"{count:.3g}"
    scales = {unit: scale for unit, scale in _COUNT_SCALES.items() if not unit.endswith("i")}
    number, _, unit = _format_scaled(count, scales).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{unit}"


def format_things(count: float, noun: str) -> str:
    """A number of things with their name: `1 chip`, `8,192 tokens`; the noun is given in the singular.

    >>> format_things(1, "chip-hour"), format_things(64, "chip")
    ('1 chip-hour', '64 chips')
    """
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def format_request_rate(rate_per_s: float) -> str:
    """Requests that come or are served in a second: `3.91 requests/s`, `1,000 requests/s`.

    >>> format_request_rate(1), format_request_rate(1000.0)
    ('1 request/s', '1,000 requests/s')
    """
    return f"{format_things(rate_per_s, 'request')}/s"


def format_usd(cost_usd: float) -> str:
    """An amount of US dollars: `$3.22`, `$48,210`, `$12.3M`."""
    if not math.isfinite(cost_usd):
        return _format_scaled(cost_usd, _DOLLAR_SCALES)
    if 0 < cost_usd < 0.1:
        return f"${cost_usd:.2g}"
    if cost_usd < 1e3:
        return f"${cost_usd:.2f}"
    if cost_usd < 99_950:
        return f"${cost_usd:,.0f}"
    return "$" + _format_scaled(cost_usd, _DOLLAR_SCALES).replace(" ", "")


def format_fraction(fraction: float) -> str:
    """A fraction as a percentage: `53.1%`; `<0.1%` for what would round to zero."""
    if not math.isfinite(fraction):
        return _format_scaled(fraction, {"": 1.0})
    return "<0.1%" if 0 < fraction < 0.0005 else f"{fraction:.1%}"


def _without_per_s(value: str | float) -> str | float:
    return value.strip().removesuffix("/s") if isinstance(value, str) else value


def _parse(value: str | float, scales: Mapping[str, float], *, where: str, expected: str, example: str) -> float:
    """`value` in the base unit of `scales`, or an InputError that says which part of it is wrong."""

    def refuse(what: str, fix: str = "") -> InputError:
        return InputError(what, where=where, value=value, expected=expected, fix=fix or f"write e.g. {example}")

    text = str(value).strip()
    if not text:
        raise refuse("missing number")
    if _NOT_FINITE.fullmatch(text):
        raise refuse("not a finite number")
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or isinstance(value, bool):
        raise refuse("not a number")
    number, unit = float(match[1].replace("_", "")), match[2]
    if unit not in scales:
        same_letters = next((name for name in scales if name.lower() == unit.lower()), "")
        guess = f"did you mean {same_letters}?" if same_letters else nearest(unit, scales)
        raise refuse(f"unknown unit '{unit}'", guess or f"use one of {', '.join(name for name in scales if name)}")
    scaled = number * scales[unit]
    if number < 0:
        raise refuse("negative number")
    if scaled > _ABSURD:
        raise refuse("absurdly large number")
    return scaled


def _format_scaled(value: float, scales: Mapping[str, float], *, starts: Mapping[str, float] = _NO_STARTS) -> str:
    """Three significant digits and the largest unit of `scales` (smallest first) that `value` reaches.

    A unit is reached at one of it, or at the value that `starts` names for it.
    """
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    # Rounding first lets 999.9 MB become 1.00 GB rather than 1000 MB.
    rounded = abs(float(f"{value:.3g}"))
    smallest = next(iter(scales))
    unit = [smallest, *(unit for unit, scale in scales.items() if rounded >= starts.get(unit, scale))][-1]
    number = value / scales[unit]
    whole = abs(number) >= 99.95 or (unit == smallest and number == int(number))
    decimals = 0 if whole else 1 if abs(number) >= 9.995 else 2
    return f"{number:,.{decimals}f} {unit}".rstrip()
