"""The published TPU measurements of quality A and B that ship with the package."""

from __future__ import annotations

from functools import cache

from ridgeline.study.measured.case import MeasuredCase
from ridgeline.study.measured.files import published_cases

__all__ = ["MeasuredCase", "measured_cases"]


@cache
def measured_cases() -> tuple[MeasuredCase, ...]:
    """Every row that can be used."""
    return tuple(
        case
        for case in published_cases().training
        if case.job.hardware.chip.torus is not None and case.quality in {"A", "B"}
    )
