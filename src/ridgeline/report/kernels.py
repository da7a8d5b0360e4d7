"""How far kernel time models are from times that no fit saw, as a table of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.units import format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ridgeline.study.kernels.fit import KernelFit, Residual

_WORDS = {
    "matmul": "matmul",
    "grouped_matmul": "grouped matmul",
    "attention": "attention",
    "loss": "loss",
    "gated_unit": "gated unit",
    "normalization": "normalization",
}
_HEAD = ("chip", "kernel", "fitted to", "held out", "median error", "90% below", "median, signed")


def residual_table(fits: Iterable[KernelFit]) -> str:
    """A row for each kernel of each chip."""
    return "\n".join(_lines(fits))


def _lines(fits: Iterable[KernelFit]) -> Iterator[str]:
    yield f"| {' | '.join(_HEAD)} |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for fit in fits:
        for residual in sorted(fit.residuals, key=lambda each: (list(_WORDS).index(each.kernel), each.variant)):
            yield f"| {fit.chip} | {' | '.join(_cells(residual))} |"


def _cells(residual: Residual) -> Iterator[str]:
    yield f"{_WORDS[residual.kernel]}, {residual.variant.replace('_', ' ')}"
    yield str(residual.num_fitted) if residual.num_fitted else "nothing"
    yield str(residual.num_held_out)
    if not residual.num_held_out:
        yield from ("none", "none", "none")
        return
    yield format_fraction(residual.median_error)
    yield format_fraction(residual.p90_error)
    yield f"{residual.bias:+.1%}"
