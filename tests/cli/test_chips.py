"""`ridgeline chips`: which of catalogue, chip or slice a name asks for, on screen and as JSON."""

import json

import pytest

from ridgeline.cli.chips import chips
from ridgeline.errors import InputError


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        (None, "15 chips"),
        ("ironwood", "tpu7x · Google TPU7x (Ironwood)"),
        ("a100-80gb", "a100-80gb · NVIDIA A100 SXM4 80GB"),
        ("v5p-512", "v5p:4x8x8 · Google TPU v5p · 256 chips, 256 devices, 64 hosts"),
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
