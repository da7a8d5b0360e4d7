"""How a slice is wired: which axes close, how far its chips are apart, and what a missing wraparound costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan, prod
from typing import TYPE_CHECKING

from ridgeline.cost.collectives import all_gather_limit_s, all_gather_s, gather_load
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.questions.transfers import farthest_hops, torus_ports
from ridgeline.errors import InputError
from ridgeline.hardware.catalog import load_chip
from ridgeline.hardware.topology import legal_shapes, shapes_in_words, wraparound, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ridgeline.hardware.chip import Chip


def num_neighbours(*, num_dimensions: int) -> int:
    """Chips to which a chip inside a torus is linked.

    Formula: num_neighbours = 2 · num_dimensions

    Source: Scaling Book, ch. 2.

    >>> num_neighbours(num_dimensions=3)  # v4 and v5p
    6
    """
    return 2 * num_dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class WiringAnswer:
    """How a slice is wired.

    Attributes:
        chip: Of what.
        shape: Chips along each axis, as written.
        is_legal: Whether such a slice can be had.
        wraps: Whether each axis closes.
        wraps_everywhere: Whether all do.
        wraps_nowhere: Whether none does.
        is_by_axis: Whether an axis closes by its own length, rather than all together.
        num_neighbours: Of a chip inside the torus.
        corner_ports: Links of the chip at the first corner that lead somewhere.
        axis_hops: Along each axis, between the two chips farthest apart.
        farthest_hops: Over all axes.
        num_chips: In the slice.
        num_hosts: Machines that drive them.
        num_cores: TensorCores.
        derivations: Where the numbers come from.
    """

    chip: str
    shape: tuple[int, ...]
    is_legal: bool
    wraps: tuple[bool, ...]
    wraps_everywhere: bool
    wraps_nowhere: bool
    is_by_axis: bool
    num_neighbours: int
    corner_ports: int
    axis_hops: tuple[int, ...]
    farthest_hops: int
    num_chips: int
    num_hosts: int
    num_cores: int
    derivations: tuple[Derivation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WraparoundAnswer:
    """What a gather loses on lines that do not close, for lines of several sizes.

    Attributes:
        sizes: Chips of each.
        slowdown_ratio: Line over ring, exact; the same whatever the size.
        exact_ratio: Line over ring, exact, by size.
        approximate_ratio: Line over the book's long ring, by size.
        ring_s: Exact time around each ring; NaN without size and rate.
        approximate_s: The book's, which is the same for all.
        line_s: Along each line.
        is_independent: Whether the book's time is the same for all sizes.
        derivations: Where the numbers come from, for the first size.
    """

    sizes: tuple[int, ...]
    slowdown_ratio: float
    exact_ratio: tuple[float, ...]
    approximate_ratio: tuple[float, ...]
    ring_s: tuple[float, ...]
    approximate_s: tuple[float, ...]
    line_s: tuple[float, ...]
    is_independent: bool
    derivations: tuple[Derivation, ...]


def wiring(chip: Chip | str, shape: Sequence[int]) -> WiringAnswer:
    """How a slice of a shape would be wired, whether or not it can be had.

    >>> answer = wiring("v5e", (8, 16))
    >>> answer.wraps, answer.axis_hops, answer.corner_ports
    ((False, True), (7, 8), 3)

    Raises:
        InputError: The chip has no torus, or one of another number of axes.
    """
    chip = load_chip(chip) if isinstance(chip, str) else chip
    torus = chip.torus
    if torus is None or len(shape) != torus.dimensions or min(shape) < 1:
        raise InputError(
            "no slice of this chip has such a shape",
            where="shape",
            value=written(tuple(shape)),
            expected="a TPU" if torus is None else shapes_in_words(torus),
            fix="name a TPU" if torus is None else f"write {torus.dimensions} sizes",
        )
    wraps = wraparound(torus, tuple(shape))
    hops = [derive(farthest_hops, N=size, wraps=closes) for size, closes in zip(shape, wraps, strict=True) if size > 1]
    axis_hops = tuple(farthest_hops(N=size, wraps=closes) for size, closes in zip(shape, wraps, strict=True))
    num_chips = prod(shape)
    return WiringAnswer(
        chip=chip.name,
        shape=tuple(shape),
        is_legal=sorted(shape) in [sorted(legal) for legal in legal_shapes(torus)],
        wraps=wraps,
        wraps_everywhere=all(wraps),
        wraps_nowhere=not any(wraps),
        is_by_axis=torus.wrap_rule == "full_axis",
        num_neighbours=num_neighbours(num_dimensions=torus.dimensions),
        corner_ports=torus_ports(shape=shape, wraps=wraps, at=(0,) * len(shape)),
        axis_hops=axis_hops,
        farthest_hops=sum(axis_hops),
        num_chips=num_chips,
        num_hosts=-(-num_chips // chip.chips_per_host),
        num_cores=num_chips * (chip.tensorcores_per_chip or 1),
        derivations=(derive(num_neighbours, num_dimensions=torus.dimensions), *hops),
    )


def without_wraparound(
    *,
    sizes: Sequence[int],
    size_bytes: float = nan,
    link_bytes_per_s: float = nan,
    axis_bytes_per_s: float = nan,
) -> WraparoundAnswer:
    """A gather along lines beside the same around rings.

    >>> answer = without_wraparound(sizes=(4, 8))
    >>> answer.slowdown_ratio, answer.approximate_ratio
    (2.0, (1.5, 1.75))

    Args:
        sizes: Chips along the axis, each at least 2.
        size_bytes: Of the gathered array; ratios need none.
        link_bytes_per_s: One link, one way; ratios need none.
        axis_bytes_per_s: Both links of a ring axis together, in place of that.

    Raises:
        InputError: There is no size, or one below 2.
    """
    if not sizes or min(sizes) < 2:
        raise InputError(
            "an axis of at least two chips closes or does not",
            where="sizes",
            value=list(sizes),
            expected="sizes of at least 2",
            fix="write, for example, 4,8,16",
        )
    rate_bytes_per_s = axis_bytes_per_s / 2 if isnan(link_bytes_per_s) else link_bytes_per_s
    wires = {"V_bytes": size_bytes, "W_bytes_per_s": rate_bytes_per_s}
    line_load = [float(gather_load(N=N, n=1)) for N in sizes]
    ring_load = [float(gather_load(N=N, n=2)) for N in sizes]
    limit_load = [float(all_gather_limit_s(V_bytes=1.0, n=2, W_bytes_per_s=1.0)) for _ in sizes]
    exact_ratio = tuple(line / ring for line, ring in zip(line_load, ring_load, strict=True))
    return WraparoundAnswer(
        sizes=tuple(sizes),
        slowdown_ratio=exact_ratio[0],
        exact_ratio=exact_ratio,
        approximate_ratio=tuple(line / limit for line, limit in zip(line_load, limit_load, strict=True)),
        ring_s=tuple(float(all_gather_s(**wires, N=N, n=2)) for N in sizes),
        approximate_s=tuple(float(all_gather_limit_s(**wires, n=2)) for _ in sizes),
        line_s=tuple(float(all_gather_s(**wires, N=N, n=1)) for N in sizes),
        is_independent=len(set(limit_load)) == 1,
        derivations=(derive(gather_load, N=sizes[0], n=1), derive(gather_load, N=sizes[0], n=2)),
    )
