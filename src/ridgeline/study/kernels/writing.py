"""Writes the calibration file of a chip: fitted facts with their residuals, the others as they stand.

What a chip's own times do not identify it borrows from its nearest relative that has them, marked `derived`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.kernel_time import LANES
from ridgeline.hardware.catalog import load_chip
from ridgeline.hardware.chip import Fact
from ridgeline.units import format_things

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date

    from ridgeline.study.kernels.fit import FittedFact, KernelFit, Residual

RELATIVES: Mapping[str, tuple[str, ...]] = {
    "tpu7x": ("v6e",),
    "v6e": ("tpu7x",),
    "v5p": ("v6e",),
    "v5e": ("v5p", "v6e"),
    "v4": ("v5p", "v6e"),
    "v3": ("v5p", "v6e"),
    "a100-40gb": ("h100", "v6e"),
    "a100-80gb": ("a100-40gb", "h100", "v6e"),
    "h100": ("v6e",),
    "h100-pcie": ("h100", "v6e"),
    "h100-nvl": ("h100", "v6e"),
    "h20": ("h100", "v6e"),
    "gh200-96gb": ("h100", "v6e"),
    "gh200-144gb": ("h100", "v6e"),
    "h200": ("h100", "v6e"),
    "l4": ("h100", "v6e"),
    "l40s": ("h100", "v6e"),
    "rtx-4090": ("h100", "v6e"),
    "b200": ("h100", "v6e"),
    "b300": ("b200", "h100", "v6e"),
    "gb200": ("b200", "h100", "v6e"),
    "gb300": ("b200", "h100", "v6e"),
    "rtx-pro-6000": ("b200", "h100", "v6e"),
    "mi300x": ("h100", "v6e"),
    "mi325x": ("h100", "v6e"),
    "mi355x": ("h100", "v6e"),
}
"""From whom a chip borrows, nearest first: same silicon, then the same width of matrix unit, then the same maker."""

_WIDE_UNIT = (256, 256)
_FRACTIONS = ("grouped_matmul", "attention_forward", "attention_backward")

BACKWARD_OVER_FORWARD: Mapping[str, tuple[float, str, str]] = {
    "v6e": (
        1.53,
        "yxanul/yxTPU (183bdc5, results/RESULTS.md, 2026-07-20)",
        "Forward times 1.53: tokamax's kernels took 24.5 ms forward, 40.1 ms backward in one step; 2.5 x 24.5 / 40.1.",
    ),
    "v5p": (
        0.69,
        (
            "https://github.com/apple/axlearn "
            "(c40b39a5, axlearn/common/flash_attention/tpu_attention_benchmark.py, 2025-01-07)"
        ),
        (
            "Forward times 0.69: splash of 16, 56, 88 and 110 heads took 1.4, 4.3, 6.7 and 7.2 ms forward, "
            "5.8, 20.4, 31.3 and 37.3 ms backward; median of 2.5 forward over backward, 0.53, times 1.3: "
            "two kernels, of which one would take 1.3 times less."
        ),
    ),
}
"""Attention's backward fraction over its forward one, where no backward kernel was timed by itself."""

KERNEL_KEYS = (
    "matmul_fill_bytes",
    *(f"grouped_matmul.{product}" for product in ("output", "input_gradient", "weight_gradient")),
    *(f"grouped_edge_rows.{product}" for product in ("output", "input_gradient", "weight_gradient")),
    "grouped_partial_factor",
    *("attention_forward", "attention_backward", "attention_block"),
    *("attention_tile_pairs", "attention_row_keys"),
    *("attention_head_dim.64", "attention_head_dim.256"),
    *("loss_forward_bytes", "loss_backward_bytes"),
)
"""The keys of a calibration file that kernel times settle, in the order of the file."""


def measured_facts(fit: KernelFit, *, fitted_on: date) -> dict[str, Fact]:
    """The fitted parameters of a chip as facts.

    Args:
        fit: Of the chip.
        fitted_on: The day, for the note.
    """
    return {
        fact.key: Fact(
            value=fact.value, kind="measured", source="; ".join(fact.sources), note=_note(fact, fit, fitted_on)
        )
        for fact in fit.facts
    }


def kernel_facts(
    chip: str, measured: Mapping[str, Mapping[str, Fact]], before: Mapping[str, Mapping[str, Fact]]
) -> dict[str, Fact]:
    """A chip's kernel parameters: measured on it, derived from its forward kernel, borrowed, or as they were.

    Args:
        chip: Name in the catalogue.
        measured: Facts of `measured_facts`, by chip.
        before: Facts as they were, by chip: what no relative was measured for stays, and another maker's fractions are
            scaled by what the best bf16 matmul reaches.
    """
    facts = _own_facts(chip, measured)
    for key in KERNEL_KEYS:
        if key not in facts:
            found = _stated(chip, key) or _borrowed(chip, key, measured, before, own=facts) or before[chip].get(key)
            facts |= {} if found is None else {key: found}
    return facts


def _own_facts(chip: str, measured: Mapping[str, Mapping[str, Fact]]) -> dict[str, Fact]:
    """What was measured on a chip, and its backward kernel of attention where that follows from the forward one."""
    facts = dict(measured.get(chip, {}))
    if "attention_backward" not in facts and "attention_forward" in facts and chip in BACKWARD_OVER_FORWARD:
        ratio, source, note = BACKWARD_OVER_FORWARD[chip]
        value = float(f"{facts['attention_forward'].value * ratio:.3g}")
        facts["attention_backward"] = Fact(value=value, kind="derived", source=source, note=note)
    return facts


def _stated(chip: str, key: str) -> Fact | None:
    """What no time identifies: the tile that a TPU's kernel is given, and a start that a GPU's does not show."""
    described = load_chip(chip)
    has_tiles = described.torus is not None
    match key:
        case "attention_block" if described.mxu_shape == _WIDE_UNIT:
            value, note = 16.0 * LANES, "The tile of the fastest kernels from 8,192 tokens on."
        case "attention_block" if has_tiles:
            value = 8.0 * LANES
            note = "The tile of the fastest kernels up to 8,192 tokens; larger ones need more VMEM than XLA allots."
        case "grouped_partial_factor" if not has_tiles:
            value, note = 1.0, "Nothing: these kernels' tiles are narrow. An assumption."
        case "attention_tile_pairs" if not has_tiles:
            value, note = 1.0, "Nothing: fitted fractions hold what starting a block costs."
        case _:
            return None
    return Fact(value=value, kind="derived", source="Ridgeline docs/calibration.md", note=note)


def calibration_toml(chip: str, facts: Mapping[str, Fact], *, heading: Sequence[str] = ()) -> str:
    """The text of a calibration file.

    Args:
        chip: Name in the catalogue.
        facts: Every fact by its dotted key, in the order to write.
        heading: Lines of comment below the first.
    """
    return "\n".join((*_heading(chip, heading), *(line for key, fact in facts.items() for line in _table(key, fact))))


def _heading(chip: str, lines: Sequence[str]) -> Iterator[str]:
    yield (
        f"# What programs reach of the peaks of {chip}. "
        "Method: docs/calibration.md. Fractions unless the key ends in a unit."
    )
    for line in lines:
        yield f"# {line}"


def _table(key: str, fact: Fact) -> Iterator[str]:
    yield ""
    yield f"[{key}]"
    yield f"value = {fact.value:.6g}"
    for name in ("kind", "source", "note"):
        text = str(getattr(fact, name)).replace("\\", "\\\\").replace('"', '\\"')
        yield f'{name} = "{text}"'
    if key == "spread":
        yield ""


def _note(fact: FittedFact, fit: KernelFit, fitted_on: date) -> str:
    residuals = "; ".join(_in_words(residual) for residual in fit.residuals if _is_of(residual, fact.key))
    times = format_things(fact.num_times, "time")
    return f"Fitted to {times} on {fitted_on.isoformat()}. Held out: {residuals}."


def _is_of(residual: Residual, key: str) -> bool:
    kernel, variant = residual.kernel, residual.variant
    match key.partition("."):
        case ("matmul_fill_bytes", _, _):
            return kernel == "matmul"
        case ("grouped_partial_factor", _, _):
            return kernel == "grouped_matmul"
        case ("grouped_matmul" | "grouped_edge_rows", _, product):
            return (kernel, variant) == ("grouped_matmul", product)
        case (name, _, _) if name.startswith("loss_"):
            return kernel == "loss" and variant in name
        case (name, _, _) if name in ("attention_forward", "attention_backward"):
            return kernel == "attention" and variant in name
        case _:
            return kernel == "attention"


def _in_words(residual: Residual) -> str:
    if not residual.num_held_out:
        return f"{residual.variant}, none"
    return (
        f"{residual.variant}, {format_things(residual.num_held_out, 'time')}, "
        f"median error {residual.median_error:.1%}, nine of ten below {residual.p90_error:.1%}"
    )


def _borrowed(
    chip: str,
    key: str,
    measured: Mapping[str, Mapping[str, Fact]],
    before: Mapping[str, Mapping[str, Fact]],
    *,
    own: Mapping[str, Fact],
) -> Fact | None:
    """The same number of the nearest relative; a lone forward kernel's backward keeps what the relative's does.

    None where no relative was measured.
    """
    lender = next((name for name in RELATIVES[chip] if key in _own_facts(name, measured)), None)
    if lender is None:
        return None
    lent = _own_facts(lender, measured)[key]
    if key == "attention_backward" and "attention_forward" in own and "attention_forward" in measured.get(lender, {}):
        forward = measured[lender]["attention_forward"].value
        value = own["attention_forward"].value * lent.value / forward
        note = f"Forward times what the backward keeps of it on {lender} ({lent.value:g} / {forward:g})."
    elif load_chip(chip).vendor != load_chip(lender).vendor and key.partition(".")[0] in _FRACTIONS:
        kept = before[chip]["matmul.bf16"].value / before[lender]["matmul.bf16"].value
        value = lent.value * kept
        note = f"The fraction of {lender}, times what its best matmul keeps of that of {lender} ({kept:.3g}). Assumed."
    else:
        value, note = lent.value, f"As {lender}: its nearest measured relative; assumed."
    return Fact(value=float(f"{value:.3g}"), kind="derived", source="Ridgeline docs/calibration.md", note=note)
