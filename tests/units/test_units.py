"""Quantities: what is accepted, how it is shown, and what a mistake is told."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline import units
from ridgeline.errors import InputError


@pytest.mark.parametrize(
    ("text", "count"),
    [("256", 256), ("2_048", 2048), ("4Mi", 4 * 1024**2), ("15T", 15e12), ("1.5e12", 1.5e12), ("8 Ki", 8192)]
    + [("300B", 300e9), ("10k", 1e4), (64, 64), (".5K", 500), ("0", 0)],
)
def test_a_count_may_carry_a_decimal_or_binary_suffix(text: str | float, count: float) -> None:
    assert units.parse_count(text, where="--tokens") == count


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("34MB", 34e6), ("96GiB", 96 * 1024**3), ("192 GB", 192e9), ("1024", 1024), ("64KiB", 65536), ("1.5TB", 1.5e12)],
)
def test_a_size_in_gb_is_decimal_and_in_gib_binary(text: str, size_bytes: float) -> None:
    assert units.parse_bytes(text, where="--size") == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("250ms", 0.25), ("12", 12), ("1.5h", 5400), ("90 days", 7776000), ("1d", 86400), ("3us", 3e-6), ("2min", 120)],
)
def test_a_duration_without_a_unit_is_in_seconds(text: str, duration_s: float) -> None:
    assert units.parse_duration(text, where="--within") == pytest.approx(duration_s)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bytes_per_s, "820GB/s", 820e9),
        (units.parse_bytes_per_s, "1TiB", 1024**4),
        (units.parse_bytes_per_s, 8.2e11, 8.2e11),
        (units.parse_flops, "40TFLOP", 40e12),
        (units.parse_flops, "1e12", 1e12),
        (units.parse_flops_per_s, "197TFLOP/s", 197e12),
        (units.parse_flops_per_s, "394TOPs/s", 394e12),
        (units.parse_flops_per_s, "197T", 197e12),
        (units.parse_cycles_per_s, "1.5GHz", 1.5e9),
        (units.parse_cycles_per_s, 940e6, 940e6),
    ],
)
def test_a_rate_may_be_written_with_its_unit_or_without(
    parse: Callable[..., float], text: str | float, value: float
) -> None:
    assert parse(text, where="--rate") == value


def test_a_clock_is_shown_in_hertz() -> None:
    assert units.format_cycles_per_s(1.05e9) == "1.05 GHz"


@pytest.mark.parametrize(
    ("value", "what", "fix"),
    [
        ("", "missing number", "write e.g. 34MB or 96GiB"),
        ("lots", "not a number", "write e.g. 34MB or 96GiB"),
        ("1.5.2GB", "not a number", "write e.g. 34MB or 96GiB"),
        (True, "not a number", "write e.g. 34MB or 96GiB"),
        ("nan", "not a finite number", "write e.g. 34MB or 96GiB"),
        (math.nan, "not a finite number", "write e.g. 34MB or 96GiB"),
        ("-inf GB", "not a finite number", "write e.g. 34MB or 96GiB"),
        ("-3GB", "negative number", "write e.g. 34MB or 96GiB"),
        ("1e40", "absurdly large number", "write e.g. 34MB or 96GiB"),
        ("34gb", "unknown unit 'gb'", "did you mean GB?"),
        ("34furlong", "unknown unit 'furlong'", "use one of B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB, KB"),
    ],
)
def test_a_malformed_quantity_is_refused_with_place_value_and_way_out(value: str | float, what: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        units.parse_bytes(value, where="--size")

    shown = str(value) or "(empty)"
    assert str(refused.value) == (
        f"{what}\n  where:    --size\n  value:    {shown}\n  expected: a size in bytes\n  fix:      {fix}"
    )


@pytest.mark.parametrize(
    ("value", "what", "fix"),
    [
        ("0", "number too small", "write 1"),
        ("2.5", "not a whole number", "write 2"),
        (0.25, "not a whole number", "write 1"),
    ],
)
def test_a_whole_number_says_what_it_must_be_at_least(value: str | float, what: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        units.parse_whole(value, where="--seq-len", unit="tokens")

    assert str(refused.value) == (
        f"{what}\n  where:    --seq-len\n  value:    {value}\n"
        f"  expected: a whole number of tokens, at least 1\n  fix:      {fix}"
    )


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 B"), (1, "1 B"), (96 * 2**30, "96.0 GiB"), (1.5 * 2**40, "1.50 TiB"), (2**20 - 1, "1.00 MiB")],
)
def test_memory_is_shown_in_binary_units(size_bytes: float, shown: str) -> None:
    assert units.format_bytes(size_bytes) == shown


@pytest.mark.parametrize(("size_bytes", "shown"), [(34e6, "34.0 MB"), (999.9e6, "1.00 GB"), (2**30, "1.07 GB")])
def test_traffic_is_shown_in_decimal_units(size_bytes: float, shown: str) -> None:
    assert units.format_decimal_bytes(size_bytes) == shown


def test_rates_are_shown_per_second() -> None:
    assert units.format_rate_bytes_per_s(7.37e12) == "7.37 TB/s"
    assert units.format_flops_per_s(2307e12) == "2.31 PFLOP/s"
    assert units.format_flops(4.23e11) == "423 GFLOP"


@pytest.mark.parametrize(
    ("duration_s", "shown"),
    [(0, "0 s"), (3.4e-7, "340 ns"), (1.2e-5, "12.0 µs"), (0.0123, "12.3 ms"), (0.9999, "1.00 s"), (12.2, "12.2 s")]
    + [(119, "119 s"), (150, "2.50 min"), (7000, "117 min"), (9000, "2.50 h"), (86400 * 41.3, "41.3 days")],
)
def test_times_are_shown_in_the_unit_a_person_would_use(duration_s: float, shown: str) -> None:
    assert units.format_seconds(duration_s) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (256, "256"), (8192, "8,192"), (70.6e9, "70.6B"), (15e12, "15T"), (0.5, "0.5"), (100e3, "100K")],
)
def test_counts_are_exact_while_short_and_rounded_when_long(count: float, shown: str) -> None:
    assert units.format_count(count) == shown


@pytest.mark.parametrize(
    ("cost_usd", "shown"),
    [
        (3.22, "$3.22"),
        (48_210, "$48,210"),
        (778_010, "$778K"),
        (999_700, "$1.00M"),
        (12.3e6, "$12.3M"),
        (0.0034, "$0.0034"),
        (0, "$0.00"),
    ],
)
def test_dollars_keep_cents_only_while_they_matter(cost_usd: float, shown: str) -> None:
    assert units.format_usd(cost_usd) == shown


@pytest.mark.parametrize(("fraction", "shown"), [(0.531, "53.1%"), (0, "0.0%"), (1e-5, "<0.1%"), (1, "100.0%")])
def test_a_small_fraction_is_not_shown_as_zero(fraction: float, shown: str) -> None:
    assert units.format_fraction(fraction) == shown


@pytest.mark.parametrize(
    "formatter",
    [units.format_bytes, units.format_decimal_bytes, units.format_rate_bytes_per_s, units.format_flops]
    + [units.format_flops_per_s, units.format_seconds, units.format_count, units.format_usd, units.format_fraction],
)
def test_an_unknown_quantity_is_shown_as_unknown(formatter: Callable[[float], str]) -> None:
    assert formatter(math.nan) == "unknown"


@given(st.floats(min_value=1, max_value=2.0**59))
def test_a_formatted_size_parses_back_to_itself_within_its_three_digits(size_bytes: float) -> None:
    shown = units.format_bytes(size_bytes).replace(",", "")

    assert units.parse_bytes(shown, where="round trip") == pytest.approx(size_bytes, rel=0.006)
