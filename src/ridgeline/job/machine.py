"""The machine of a job file: the name of a slice, or a table that puts figures of its own over the catalogue's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import InputError, nearest
from ridgeline.hardware.figures import PEAK, PRICE, with_figures
from ridgeline.hardware.topology import parse_slice
from ridgeline.units import format_bytes, parse_bytes, parse_bytes_per_s, parse_count, parse_flops_per_s

if TYPE_CHECKING:
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.document import HardwareTable
    from ridgeline.job.origin import Origin


def machine(hardware: str | HardwareTable, origin: Origin) -> Slice:
    """The slice that a job file's `hardware` means.

    Args:
        hardware: Its name, or the `[hardware]` table.
        origin: Where it was written, for error messages.
    """
    if isinstance(hardware, str):
        return parse_slice(hardware, where=origin.of("hardware"))
    named = parse_slice(hardware.name, where=origin.of("hardware.name"))
    own = _figures(hardware, origin)
    for key in own:
        if key.startswith(PEAK) and key not in named.chip.facts:
            dtype, known = key.removeprefix(PEAK), list(named.chip.peak_flops_per_s)
            raise InputError(
                f"{named.chip.name} has no {dtype} peak to replace",
                where=origin.of("hardware.peak_flops_per_s"),
                value=dtype,
                expected=", ".join(known),
                fix=nearest(dtype, known) or f"leave {dtype} out",
            )
    changed = with_figures(named, own)
    usable_bytes, whole_bytes = changed.chip.usable_hbm_bytes, changed.chip.hbm_bytes
    if usable_bytes > whole_bytes and not own.keys().isdisjoint({"hbm_bytes", "usable_hbm_bytes"}):
        raise InputError(
            "more usable HBM than there is",
            where=origin.of("hardware.usable_hbm_bytes"),
            value=format_bytes(usable_bytes),
            expected=f"at most the HBM of the chip, {format_bytes(whole_bytes)}",
            fix="give hbm_bytes and usable_hbm_bytes that agree",
        )
    return changed


def _figures(table: HardwareTable, origin: Origin) -> dict[str, float]:
    """The figures of a `[hardware]` table in base units, by the keys that `with_figures` takes."""
    said = table.model_dump(exclude={"name", "peak_flops_per_s"}, exclude_none=True)
    said |= {f"{PEAK}{dtype}": value for dtype, value in table.peak_flops_per_s.items()}
    return {key: _figure(key, value, where=origin.of(f"hardware.{key}")) for key, value in said.items()}


def _figure(key: str, value: str | float, *, where: str) -> float:
    """One figure in the unit that its key names; none, or next to none, would stop everything and is refused."""
    if key.startswith(PEAK):
        figure, example = parse_flops_per_s(value, where=where), "2e15, or 2PFLOP/s in quotes"
    elif key == PRICE:
        figure, example = parse_count(value, where=where, unit="US dollars"), "4.2"
    elif key.endswith("_per_s"):
        figure, example = parse_bytes_per_s(value, where=where), "8e12, or 8TB/s in quotes"
    else:
        figure, example = parse_bytes(value, where=where), "1e11, or 96GiB in quotes"
    if figure < 1 and key != PRICE:
        nothing = "a figure of zero" if figure == 0 else "absurdly small number"
        raise InputError(nothing, where=where, value=value, expected="1 or more", fix=f"write e.g. {example}")
    return figure
