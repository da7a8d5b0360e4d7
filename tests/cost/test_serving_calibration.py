"""What measured servers settled, as it ships."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.serving.calibration import KEYS, load_serving_calibration, parse_serving_calibration
from ridgeline.cost.serving.efficiency import LARGEST, PRIORS
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.hardware.chip import ChipKind


@pytest.mark.parametrize("kind", ["TPU", "GPU"])
def test_no_number_exceeds_what_is_possible_and_none_is_far_from_its_prior(kind: ChipKind) -> None:
    calibration = load_serving_calibration(kind)
    chips = {"TPU": ("v6e", "tpu7x", "v5e", "none"), "GPU": ("h100", "h200", "b200", "none")}[kind]
    for chip in chips:
        for engine in ("vllm", "trtllm", "none"):
            found = asdict(calibration.efficiency(chip, engine))
            prior = asdict(PRIORS[kind])
            assert all(0 < found[key] <= LARGEST[key] for key in found)
            assert all(1 / 12 < found[key] / prior[key] < 12 for key in found)


def test_a_chip_that_was_never_measured_has_what_its_kind_has() -> None:
    calibration = load_serving_calibration("TPU")

    assert calibration.efficiency("v5p", "none").weights == pytest.approx(calibration.facts["weights"].value)


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("[weights]", "[weigths]", "weights"),
        ("value = ", "value = -", "weights"),
        ("[weights]", "[widths]\nvalue = 1\nkind = 'measured'\nsource = 'x'\n[weights]", "widths"),
    ],
)
def test_a_malformed_file_is_refused_where_it_is_wrong(old: str, new: str, where: str) -> None:
    file = resources.files("ridgeline.cost") / "calibration" / "serving" / "TPU.toml"
    text = file.read_text(encoding="utf-8").replace(old, new, 1)

    with pytest.raises(InputError) as refused:
        parse_serving_calibration(text, where="mine.toml")
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("weights", "1e-300"),
        ("weights", "7.0"),
        ("weights", "inf"),
        ("weights", "nan"),
        ("weights", "true"),
        ("kernel_s", "1e9"),
        ("chip.v6e.weights", "1e300"),
    ],
)
def test_a_number_that_no_chip_reaches_is_refused_by_its_key(key: str, value: str) -> None:
    file = resources.files("ridgeline.cost") / "calibration" / "serving" / "TPU.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    first = "".join(_table(name, value if name == key else str(tables[name]["value"])) for name in KEYS)
    own = "" if key in KEYS else _table(key, value)

    with pytest.raises(InputError) as refused:
        parse_serving_calibration(first + own, where="mine.toml")
    assert refused.value.where == f"mine.toml: {key}"


def _table(key: str, value: str) -> str:
    return f"[{key}]\nvalue = {value}\nkind = 'measured'\nsource = 'x'\n"
