"""From tables of kernel times to calibration files: what `ridgeline calibrate` asks of kernels.

>>> from datetime import date
>>> from ridgeline.study.kernels.reading import read_published
>>> answer = calibrate_kernels(read_published(), fitted_on=date(2026, 11, 30))
>>> [fit.chip for fit in answer.fits]
['a100-40gb', 'b200', 'h100', 'tpu7x', 'v5e', 'v5p', 'v6e']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.cost.calibration import calibrated_chips, load_prior
from ridgeline.hardware.catalog import load_chip
from ridgeline.study.kernels.fit import fit_kernels
from ridgeline.study.kernels.times import fastest
from ridgeline.study.kernels.writing import KERNEL_KEYS, calibration_toml, kernel_facts, measured_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from ridgeline.hardware.chip import Fact
    from ridgeline.study.kernels.fit import KernelFit
    from ridgeline.study.kernels.reading import KernelTable


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCalibration:
    """What tables of kernel times say of the chips of the catalogue.

    Attributes:
        fits: Of the chips that were measured, with residuals.
        facts: Every chip's whole calibration by key: kernel parameters as fitted or borrowed, the others as they were.
        files: Every chip's calibration file, as text.
    """

    fits: tuple[KernelFit, ...]
    facts: Mapping[str, Mapping[str, Fact]]
    files: Mapping[str, str]


def calibrate_kernels(tables: Sequence[KernelTable], *, fitted_on: date) -> KernelCalibration:
    """Fits the kernel parameters of every chip that was measured, and lends them to its relatives.

    Args:
        tables: Of kernel times: `reading.read_published`, `reading.read_kernel_times`.
        fitted_on: The day, for the files.
    """
    times = fastest(time for table in tables for time in table.times)
    before = {chip: load_prior(chip).facts for chip in calibrated_chips()}
    fits = tuple(
        fit_kernels(times, load_chip(chip), prior={key: fact.value for key, fact in before[chip].items()})
        for chip in sorted({time.chip for time in times})
    )
    measured = {fit.chip: measured_facts(fit, fitted_on=fitted_on) for fit in fits}
    facts = {chip: _together(before[chip], kernel_facts(chip, measured, before)) for chip in calibrated_chips()}
    return KernelCalibration(
        fits=fits,
        facts=facts,
        files={chip: calibration_toml(chip, facts[chip]) for chip in facts},
    )


def _together(before: Mapping[str, Fact], kernels: Mapping[str, Fact]) -> dict[str, Fact]:
    """A file's facts in their order; those of kernels before the first that follows them."""
    together: dict[str, Fact] = {}
    for key, fact in before.items():
        if key in KERNEL_KEYS:
            together |= {each: kernels[each] for each in KERNEL_KEYS if each in kernels and each not in together}
        else:
            together[key] = fact
    return together
