"""`ridgeline chips`: which of catalogue, chip or slice a name asks for, on screen and as JSON."""

import json

import pytest

from ridgeline.cli.chips import chips
from ridgeline.errors import InputError


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        (None, "26 chips"),
        ("ironwood", "tpu7x · Google TPU7x (Ironwood)"),
        ("a100-80gb", "a100-80gb · NVIDIA A100 SXM4 80GB"),
        ("v5p-512", "v5p:4x8x8 · Google TPU v5p · 256 chips, 256 devices, 64 hosts"),
        ("v5e:1x1", "v5e:1x1 · Google TPU v5e · 1 chip, 1 device, 1 host"),
        ("h100:64", "h100:64 · NVIDIA H100 SXM5 80GB · 64 chips, 64 devices, 8 hosts"),
    ],
)
def test_a_name_may_be_a_chip_or_a_slice(name: str | None, headline: str, capsys: pytest.CaptureFixture[str]) -> None:
    chips(name)

    assert capsys.readouterr().out.splitlines()[0] == headline


@pytest.mark.parametrize(("name", "keys"), [(None, {"chips"}), ("h100", {"chip"}), ("h100:8", {"slice", "chip"})])
def test_json_prints_one_object_and_nothing_else(
    name: str | None, keys: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chips(name, json=True)

    assert set(json.loads(capsys.readouterr().out)) == keys | {"derivations"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "v5e",
            ["All matrix units of a chip: 197 TFLOP/s", "Ridge point of bf16 arithmetic fed from HBM: 240.5 FLOP/B"],
        ),
        ("v5e:4x8", ["Slice: 6.30 PFLOP/s", "Number of hosts: 4"]),
        ("h100", ["Ridge point of bf16 arithmetic fed from HBM: 295.4 FLOP/B"]),
    ],
)
def test_explain_shows_what_follows_from_the_figures(
    name: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chips(name, explain=True)

    printed = capsys.readouterr().out
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize(
    ("name", "what"), [("v5q", "unknown chip"), ("v5e:3x3", "v5e has no slice of that shape"), ("", "unknown chip")]
)
def test_a_wrong_name_is_refused_as_a_wrong_argument(name: str, what: str) -> None:
    with pytest.raises(InputError) as refused:
        chips(name)

    assert (refused.value.what, refused.value.where) == (what, "NAME")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (None, ["The figures of the Scaling Book", "197 TFLOP/s"]),
        ("tpu_v5e", ["810 GB/s", "820 GB/s (ch. 1,", "ch. 2, tpus.md:182"]),
        ("v5e:16x16", ["45.0 GB/s", "How To Scale Your Model, revision 0819a7d (2025-02-18), ch. 2, tpus.md:192"]),
    ],
)
def test_the_figures_of_the_book_are_shown_with_their_places(
    name: str | None, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chips(name, figures="scaling-book")

    printed = capsys.readouterr().out
    assert [line for line in shown if line not in printed] == []


def test_the_figures_of_the_book_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    chips("h100", figures="scaling-book", json=True)

    answer = json.loads(capsys.readouterr().out)
    assert answer["chip"]["figures"]["usd_per_chip_hour"]["value"] == 10.8
    assert answer["derivations"] == []


@pytest.mark.parametrize(("name", "where"), [("tpu7x", "NAME"), ("tpu7x:4x4x4", "NAME"), ("v5e:3x3", "NAME")])
def test_what_the_book_does_not_know_is_refused(name: str, where: str) -> None:
    with pytest.raises(InputError) as refused:
        chips(name, figures="scaling-book")

    assert refused.value.where == where


def test_figures_of_unknown_origin_are_refused() -> None:
    with pytest.raises(InputError) as refused:
        chips("v5e", figures="folklore")

    assert (refused.value.what, refused.value.expected) == ("unknown figures", "catalog or scaling-book")
