"""What a dollar buys of a chip's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.cost.explain import Derivation, derive
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def peak_flops_per_s_per_usd_per_hour(*, C_flops_per_s: float, usd_per_chip_hour: float) -> float:
    """Peak FLOPs per second that a dollar an hour rents.

    Formula: C / usd_per_chip_hour

    Source: Scaling Book, ch. 8, whose table heads the column FLOPs / $.

    >>> peak_flops_per_s_per_usd_per_hour(C_flops_per_s=4.0e14, usd_per_chip_hour=4.0)
    100000000000000.0
    """
    return C_flops_per_s / usd_per_chip_hour


def peak_flops_per_usd(*, C_flops_per_s: float, usd_per_chip_hour: float) -> float:
    """FLOPs at the peak that a dollar buys.

    Formula: 3600 · C / usd_per_chip_hour

    Source: Scaling Book, ch. 8, with the seconds of an hour that its table leaves out.

    >>> peak_flops_per_usd(C_flops_per_s=4.0e14, usd_per_chip_hour=4.0)
    3.6e+17
    """
    return 3600 * peak_flops_per_s_per_usd_per_hour(C_flops_per_s=C_flops_per_s, usd_per_chip_hour=usd_per_chip_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRanking:
    """Chips by what a dollar buys, the best first.

    Attributes:
        flops_per_s_per_usd_per_hour: By chip.
        flops_per_usd: By chip.
        derivations: Where the numbers come from.
    """

    flops_per_s_per_usd_per_hour: Mapping[str, float]
    flops_per_usd: Mapping[str, float]
    derivations: tuple[Derivation, ...]

    @property
    def best(self) -> str:
        """The chip of which a dollar buys most."""
        return next(iter(self.flops_per_usd))


def rank_chips(peak_flops_per_s: Mapping[str, float], *, usd_per_chip_hour: Mapping[str, float]) -> ChipRanking:
    """Chips ranked by peak FLOPs for a dollar.

    >>> rank_chips({"v5p": 4.59e14, "v5e": 1.97e14}, usd_per_chip_hour={"v5p": 4.2, "v5e": 1.2}).best
    'v5e'

    Raises:
        InputError: A chip has no price.
    """
    unpriced = [name for name in peak_flops_per_s if name not in usd_per_chip_hour]
    if unpriced or not peak_flops_per_s:
        value = ", ".join(unpriced) or "no chips"
        raise InputError(
            "no price", where="usd_per_chip_hour", value=value, expected="a price of each chip", fix="give one"
        )
    rates, totals = (
        {
            name: derive(formula, C_flops_per_s=peak, usd_per_chip_hour=usd_per_chip_hour[name])
            for name, peak in peak_flops_per_s.items()
        }
        for formula in (peak_flops_per_s_per_usd_per_hour, peak_flops_per_usd)
    )
    order = sorted(totals, key=lambda name: -totals[name].value)
    return ChipRanking(
        flops_per_s_per_usd_per_hour={name: rates[name].value for name in order},
        flops_per_usd={name: totals[name].value for name in order},
        derivations=tuple(each for name in order for each in (rates[name], totals[name])),
    )
