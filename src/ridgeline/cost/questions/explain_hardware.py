"""What follows from a machine's figures: what its units add up to, and how much arithmetic a byte must be worth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.questions.chip_inside import chip_flops_per_s, unit_flops_per_s
from ridgeline.cost.questions.machine import machine_totals
from ridgeline.cost.roofline import ridge_flops_per_byte

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice

_DTYPE = "bf16"


def explain_chip(chip: Chip) -> tuple[Derivation, ...]:
    """The peak as its matrix units give it, and the ridge point of each memory and wire."""
    return (*_matrix_units(chip), *_ridges(chip))


def explain_slice(hardware: Slice) -> tuple[Derivation, ...]:
    """The totals of a slice, then what follows from its chip."""
    return (*machine_totals(hardware=hardware, dtype=_DTYPE).derivations.values(), *explain_chip(hardware.chip))


def _matrix_units(chip: Chip) -> Iterator[Derivation]:
    """Nothing where the clock or the units are not published."""
    if chip.mxu_shape is not None and chip.mxus_per_device is not None and chip.clock_cycles_per_s is not None:
        rows, columns = chip.mxu_shape
        unit = derive(
            unit_flops_per_s,
            num_rows=rows,
            num_columns=columns,
            clock_cycles_per_s=chip.clock_cycles_per_s,
            block_rows=8,
            block_cycles=8,
        )
        units = chip.mxus_per_device * chip.devices_per_chip
        total = derive(chip_flops_per_s, unit_flops_per_s=unit.value, num_units=units)
        yield replace(unit, quantity="one matrix unit, by its size and clock")
        yield replace(total, quantity="all matrix units of a chip")


def _ridges(chip: Chip) -> Iterator[Derivation]:
    rates_bytes_per_s = {
        "HBM": chip.hbm_bytes_per_s,
        "VMEM": chip.vmem_bytes_per_s,
        "the host": chip.pcie_bytes_per_s,
        "the links of a torus axis": None if chip.torus is None else 2 * chip.torus.link_bytes_per_s,
        "the scale-up network": None if chip.switch is None else chip.switch.bytes_per_s,
        "the network": chip.network_bytes_per_s,
    }
    for what, rate in rates_bytes_per_s.items():
        if rate is not None:
            peak = chip.peak_flops_per_s[_DTYPE]
            ridge = derive(ridge_flops_per_byte, C_flops_per_s=peak, W_bytes_per_s=rate)
            yield replace(ridge, quantity=f"ridge point of {_DTYPE} arithmetic fed from {what}")
