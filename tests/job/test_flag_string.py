"""Compiler flags as users have them."""

from __future__ import annotations

import pytest

from ridgeline.errors import InputError
from ridgeline.job.flag_string import Flag, read_flags


def read(text: str) -> list[tuple[str, str]]:
    return [(flag.name, flag.value) for flag in read_flags(text, where="--lint-flags")]


@pytest.mark.parametrize(
    "text",
    [
        "--xla_a=1 --xla_b=true",
        "--xla_a=1 --xla_b",
        "-xla_a=1 xla_b=true",
        "'--xla_a=1 --xla_b=true'",
        "--xla_a=1, --xla_b=true,",
        "--xla_a=1,--xla_b=true",
        "--xla_a='1' \\\n  --xla_b=true",
        "LIBTPU_INIT_ARGS='--xla_a=1 --xla_b=true'",
        'export LIBTPU_INIT_ARGS="$LIBTPU_INIT_ARGS --xla_a=1 --xla_b=true"; JAX_PLATFORMS=tpu',
        "LIBTPU_INIT_ARGS=--xla_a=1 XLA_FLAGS='--xla_b=true'",
    ],
)
def test_however_flags_are_written_they_are_the_same(text: str) -> None:
    assert read(text) == [("xla_a", "1"), ("xla_b", "true")]


def test_a_flag_knows_the_variable_that_it_was_written_for() -> None:
    flags = read_flags("LIBTPU_INIT_ARGS=--xla_a XLA_FLAGS=--xla_b --xla_c", where="-")

    assert [flag.variable for flag in flags] == ["LIBTPU_INIT_ARGS", "XLA_FLAGS", ""]


def test_of_a_flag_that_is_written_twice_the_last_counts() -> None:
    assert read_flags("--xla_a=1 --xla_b=2 --xla_a=3", where="-")[0] == Flag(name="xla_a", value="3", times=2)


def test_values_keep_what_belongs_to_them() -> None:
    assert read("--noxla_a --xla_b=x,y --xla_c= --bogus=3") == [
        ("xla_a", "false"),
        ("xla_b", "x,y"),
        ("xla_c", ""),
        ("bogus", "3"),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no flags"),
        ("LIBTPU_INIT_ARGS=''", "no flags"),
        ("--xla_a='1", "a quote is not closed"),
        ("--xla_a 98304", "not a flag"),
        ("--xla_a=1 ; rm", "not a flag"),
        ("-" * 200_000, "too many flags"),
    ],
)
def test_what_is_no_string_of_flags_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)

    assert caught.value.what == what
