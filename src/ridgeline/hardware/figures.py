"""Figures of one's own: a machine of the catalogue with some of its numbers replaced.

What was replaced stands among the chip's facts with the source `job file`, so that every answer can say so and
the machine can be written down again.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from ridgeline.hardware.chip import Chip, Fact, Price

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import PhysicalAxis, Slice

OWN_SOURCE: Final = "job file"
"""The source of a figure that the user gave."""

IN_PROPORTION: Final = "job file, in proportion"
"""The source of a figure that follows from one that the user gave."""

PEAK: Final = "peak_flops_per_s."
LINK: Final = "link_bytes_per_s"
PRICE: Final = "usd_per_chip_hour"

HBM, USABLE_HBM = "hbm_bytes", "usable_hbm_bytes"

OWN_FIGURES: Final = (HBM, USABLE_HBM, "hbm_bytes_per_s", LINK, "network_bytes_per_s", PRICE)
"""What can be replaced beside the peaks, each per chip; `link_bytes_per_s` is one ICI link or a GPU's scale-up rate."""


def with_figures(hardware: Slice, figures: Mapping[str, float]) -> Slice:
    """The same slice of chips with other figures; of other HBM, where not said, as large a part is usable.

    Args:
        hardware: Of the catalogue.
        figures: By key: those of `OWN_FIGURES`, and `peak_flops_per_s.DTYPE` for a dtype that the chip has.

    >>> from ridgeline.hardware.topology import parse_slice
    >>> faster = with_figures(parse_slice("v5e:4x4"), {"link_bytes_per_s": 9e10})
    >>> faster.axes[0].bytes_per_s, faster.chip.facts["torus.link_bytes_per_s"].source
    (90000000000.0, 'job file')
    """
    chip = hardware.chip
    for key, value in figures.items():
        chip = _with_figure(chip, key, value)
    if HBM in figures and USABLE_HBM not in figures:
        usable_bytes = hardware.chip.usable_hbm_bytes * chip.hbm_bytes / hardware.chip.hbm_bytes
        chip = _with_figure(chip, USABLE_HBM, usable_bytes, source=IN_PROPORTION)
    axes = tuple(_rewired(axis, hardware.chip, chip) for axis in hardware.axes)
    dcn = None if hardware.dcn is None else _rewired(hardware.dcn, hardware.chip, chip)
    return replace(hardware, chip=chip, axes=axes, dcn=dcn)


def own_figures(chip: Chip) -> dict[str, float]:
    """The figures of a chip that are the user's, by the keys that `with_figures` takes."""
    own = {key: fact.value for key, fact in chip.facts.items() if fact.source == OWN_SOURCE}
    found = {LINK if key == _link_key(chip) else key: value for key, value in own.items()}
    if chip.prices and chip.prices[0].source == OWN_SOURCE:
        found[PRICE] = chip.prices[0].usd_per_chip_hour
    return found


def _rewired(axis: PhysicalAxis, before: Chip, after: Chip) -> PhysicalAxis:
    """A physical axis at the rate of other wires; what it reaches of that rate stays."""
    match axis.name:
        case "core":
            return axis
        case "network" | "dcn":
            return replace(axis, bytes_per_s=after.network_bytes_per_s)
        case _:
            reached = axis.bytes_per_s / before.facts[_link_key(before)].value
            return replace(axis, bytes_per_s=reached * after.facts[_link_key(after)].value)


def _with_figure(chip: Chip, key: str, value: float, *, source: str = OWN_SOURCE) -> Chip:
    if key == PRICE:
        own = Price(usd_per_chip_hour=value, term="given", provider=OWN_SOURCE, region="", date="", source=OWN_SOURCE)
        return replace(chip, prices=(own, *chip.prices))
    fact_key = _link_key(chip) if key == LINK else key
    before = chip.facts[fact_key]
    note = f"in place of {before.value:g} ({before.kind})"
    facts = {**chip.facts, fact_key: Fact(value=value, kind="derived", source=source, note=note)}
    if key.startswith(PEAK):
        peaks = {**chip.peak_flops_per_s, key.removeprefix(PEAK): value}
        return replace(chip, peak_flops_per_s=peaks, facts=facts)
    if key == LINK:
        return replace(_with_link(chip, value), facts=facts)
    return replace(chip, facts=facts, **{field.name: value for field in fields(Chip) if field.name == key})


def _with_link(chip: Chip, link_bytes_per_s: float) -> Chip:
    """Of a full mesh of GPUs, the wires between pairs scale with the whole."""
    if chip.torus is not None:
        return replace(chip, torus=replace(chip.torus, link_bytes_per_s=link_bytes_per_s))
    if chip.switch is None:
        return chip
    switch, pair = chip.switch, chip.switch.peer_bytes_per_s
    peer_bytes_per_s = None if pair is None else pair * link_bytes_per_s / switch.bytes_per_s
    return replace(chip, switch=replace(switch, bytes_per_s=link_bytes_per_s, peer_bytes_per_s=peer_bytes_per_s))


def _link_key(chip: Chip) -> str:
    return "switch.bytes_per_s" if chip.torus is None else "torus.link_bytes_per_s"
