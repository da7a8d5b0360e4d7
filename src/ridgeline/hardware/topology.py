"""What a slice name stands for: chips, their shape, and which axes wrap around.

    tpu7x:4x4x4      chips along each torus axis         2*v5e:16x16     two such slices, joined by DCN
    tpu7x-4x4x4      the same, as XPK writes it          h100:64         a number of GPUs
    v5p-512          as the cloud writes it: TensorCores, two a chip on v3, v4, v5p and TPU7x, one on v5e and v6e

Axes may be written in any order, and keep it: x is the first one written.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cache
from math import ceil, log, prod
from typing import TYPE_CHECKING, TypeAlias, assert_never

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import chip_names, load_chip, parse_shape
from ridgeline.hardware.slice import PhysicalAxis, Slice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ridgeline.hardware.chip import Chip, Switch, Torus

Shape: TypeAlias = tuple[int, ...]

_NAME = re.compile(
    r"(?:(?P<slices>[0-9]+)\*)?(?P<chip>[a-z0-9][a-z0-9._-]*?)(?P<mark>[:-])(?P<size>[0-9]+(?:x[0-9]+)*)"
)
MOST_CHIPS = 1_000_000
"""Several times the largest cluster reported; a larger number is a slip."""

_LONGEST_NAME = 80
_CUBE = 4
_SHOWN = 3


def parse_slice(text: str, *, where: str = "--on") -> Slice:
    """The slice that a name stands for.

    Args:
        text: `tpu7x:4x4x4`, `2*v5e:16x16`, `h100:64`, `v5p-512`, …
        where: The key or flag it came from, for the error message.

    Raises:
        InputError: Not a name, an unknown chip, or a shape or count that does not exist; the message
            gives the nearest that do.

    >>> pod = parse_slice("v5e-256")
    >>> pod.name, pod.num_chips, [axis.wiring for axis in pod.axes]
    ('v5e:16x16', 256, ['ring', 'ring'])
    """
    name = _read_name(text, where)
    if name.chip.torus is not None:
        return torus_slice(name.chip, name.chip.torus, _torus_shape(name, name.chip.torus), name.num_slices)
    if name.chip.switch is None or len(name.size) > 1 or name.num_slices > 1 or name.counts_cores:
        raise InputError(
            "GPUs are named by their number",
            where=where,
            value=text,
            expected="CHIP:COUNT",
            fix=f"write {name.chip.name}:{name.num_slices * prod(name.size)}",
        )
    return gpu_cluster(name.chip, name.chip.switch, prod(name.size), where=where)


def written(shape: Shape) -> str:
    """A shape as text: (4, 4, 8) is `4x4x8`."""
    return "x".join(map(str, shape))


@cache
def legal_shapes(torus: Torus) -> tuple[Shape, ...]:
    """Every shape a slice can have, fewest chips first; of the same number, the most cube-like first."""
    shapes = {*torus.listed_shapes, *(_blocks_of_cubes(torus) if torus.wrap_rule == "cube" else ())}
    return tuple(sorted(shapes, key=lambda shape: (prod(shape), sum(shape), shape)))


def shapes_in_words(torus: Torus) -> str:
    """The legal shapes as a phrase: a list, and the rule beyond it."""
    listed = ", ".join(map(written, torus.listed_shapes))
    if torus.wrap_rule == "cube":
        return f"{listed}, or multiples of {_CUBE} on every axis with at most {prod(torus.pod_shape):,} chips"
    return f"one of {listed}"


def wraparound(torus: Torus, shape: Shape) -> tuple[bool, ...]:
    """Which axes of a slice close into a ring.

    >>> v5e = load_chip("v5e").torus
    >>> wraparound(v5e, (8, 16))
    (False, True)
    """
    match torus.wrap_rule:
        case "cube":
            return (all(axis % _CUBE == 0 for axis in shape),) * len(shape)
        case "full_axis":
            return tuple(axis == full for axis, full in zip(shape, torus.pod_shape, strict=True))
        case _:
            assert_never(torus.wrap_rule)


def torus_slice(chip: Chip, torus: Torus, shape: Shape, num_slices: int) -> Slice:
    """A slice of a chip whose shape is known to be legal, its axes wired as the wrap rule has it."""
    axes = [
        PhysicalAxis(
            name=name,
            size=size,
            wiring="ring" if wraps else "line",
            bytes_per_s=torus.link_bytes_per_s,
            latency_s=torus.hop_latency_s,
            sharers=chip.devices_per_chip,
        )
        for name, size, wraps in zip("xyz", shape, wraparound(torus, shape), strict=False)
        if size > 1
    ]
    if torus.core_link_bytes_per_s is not None:
        axes.append(
            PhysicalAxis(
                name="core",
                size=chip.devices_per_chip,
                wiring="line",
                bytes_per_s=torus.core_link_bytes_per_s,
                latency_s=torus.hop_latency_s,
            )
        )
    dcn = PhysicalAxis(
        name="dcn",
        size=num_slices,
        wiring="switch",
        bytes_per_s=chip.network_bytes_per_s,
        latency_s=chip.network_latency_s,
    )
    return Slice(chip=chip, shape=shape, num_slices=num_slices, axes=tuple(axes), dcn=dcn if num_slices > 1 else None)


def gpu_cluster(chip: Chip, switch: Switch, count: int, *, where: str = "--on") -> Slice:
    """So many GPUs, in equal scale-up domains that a network joins.

    Args:
        chip: The GPU.
        switch: What joins the GPUs of a domain.
        count: GPUs in all.
        where: The key or flag it came from, for the error message.

    Raises:
        InputError: They do not split evenly; the message gives the nearest numbers that do.
    """
    group = nvlink_group(chip, switch, count)
    if group is None:
        raise _no_such_gpu_count(chip, switch, count, where)
    reached = switch.bytes_per_s
    if switch.peer_bytes_per_s is not None:
        reached = min(reached, (group - 1) * switch.peer_bytes_per_s)
    nvlink = PhysicalAxis(name="nvlink", size=group, wiring="switch", bytes_per_s=reached, latency_s=switch.latency_s)
    network = PhysicalAxis(
        name="network",
        size=count // group,
        wiring="switch",
        bytes_per_s=chip.network_bytes_per_s,
        latency_s=chip.network_latency_s,
    )
    axes = tuple(axis for axis in (nvlink, network) if axis.size > 1)
    return Slice(chip=chip, shape=(count,), num_slices=1, axes=axes)


def nvlink_group(chip: Chip, switch: Switch, count: int) -> int | None:
    """GPUs that share one scale-up domain when `count` of them are split evenly over domains.

    Domains are filled with whole hosts and as full as an even split allows: 128 GPUs of an NVL72 are 2
    groups of 64. None when there is no such split, or when it would leave more than half of every domain idle.

    >>> gb200 = load_chip("gb200")
    >>> nvlink_group(gb200, gb200.switch, 128)
    64
    """
    host, domain = chip.chips_per_host, switch.domain_size
    if count <= host:
        return count if host % count == 0 else None
    if count <= domain:
        return count if count % host == 0 else None
    groups = (group for group in range(domain, domain // 2 - 1, -1) if group % host == 0 and count % group == 0)
    return next(groups, None)


def _blocks_of_cubes(torus: Torus) -> Iterable[Shape]:
    most = prod(torus.pod_shape) // _CUBE**3
    for a in range(1, most + 1):
        for b in range(a, most // a + 1):
            for c in range(b, most // (a * b) + 1):
                yield (a * _CUBE, b * _CUBE, c * _CUBE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """A slice name taken apart: `2*v5litepod-256` is 2 slices of chip v5e with size (256,), counted in cores."""

    text: str
    where: str
    chip: Chip
    num_slices: int
    size: tuple[int, ...]
    counts_cores: bool


def _read_name(text: str, where: str) -> _Name:
    match = _NAME.fullmatch(text.strip().lower()) if len(text) <= _LONGEST_NAME else None
    if match is None:
        raise _not_a_name(text, where)
    chip = load_chip(match["chip"], where=where)
    num_slices, size = int(match["slices"] or 1), parse_shape(match["size"])
    if not 1 <= num_slices * prod(size) <= MOST_CHIPS:
        raise _no_such_number(text, chip, size, where)
    counts_cores = match["mark"] == "-" and len(size) == 1
    return _Name(text=text, where=where, chip=chip, num_slices=num_slices, size=size, counts_cores=counts_cores)


def _no_such_number(text: str, chip: Chip, size: tuple[int, ...], where: str) -> InputError:
    """None at all, or more than anyone has: of slices where one of them would do, else of chips."""
    of_slices = "*" in text and 1 <= prod(size) <= MOST_CHIPS
    most_slices = MOST_CHIPS // prod(size) if of_slices else 0
    return InputError(
        f"no such number of {'slices' if of_slices else 'chips'}",
        where=where,
        value=text,
        expected=f"1 to {most_slices:,} slices of {prod(size):,} chips" if of_slices else f"1 to {MOST_CHIPS:,} chips",
        fix=f"write, for example, {_example(chip)}",
    )


def _torus_shape(name: _Name, torus: Torus) -> Shape:
    """The shape that was written, its axes in the order written; or the shape of a number of TensorCores."""
    if name.counts_cores:
        return _shape_of_cores(name, torus)
    for shape in legal_shapes(torus):
        if sorted(shape) == sorted(name.size):
            return name.size
    is_count = len(name.size) == 1
    raise InputError(
        "a TPU slice is named by its shape" if is_count else f"{name.chip.name} has no slice of that shape",
        where=name.where,
        value=name.text,
        expected=shapes_in_words(torus),
        fix=f"the nearest are {', '.join(f'{name.chip.name}:{written(s)}' for s in _nearest_shapes(torus, name.size))}",
    )


def _shape_of_cores(name: _Name, torus: Torus) -> Shape:
    """The most cube-like shape with so many TensorCores, as the cloud gives by default."""
    chip, cores_per_chip = name.chip, name.chip.tensorcores_per_chip or 1
    for shape in legal_shapes(torus):
        if (prod(shape) * cores_per_chip,) == name.size:
            return shape
    near = sorted(_nearest_shapes(torus, (ceil(prod(name.size) / cores_per_chip),)), key=prod)
    raise InputError(
        f"{chip.name} has no slice of that size",
        where=name.where,
        value=name.text,
        expected="a number of chips" if cores_per_chip == 1 else f"a number of TensorCores, {cores_per_chip} a chip",
        fix="the nearest are "
        + ", ".join(f"{chip.name}-{prod(shape) * cores_per_chip} ({written(shape)})" for shape in near),
    )


def _no_such_gpu_count(chip: Chip, switch: Switch, count: int, where: str) -> InputError:
    fewer = next(n for n in range(count, 0, -1) if nvlink_group(chip, switch, n))
    more = next(n for n in itertools.count(count) if nvlink_group(chip, switch, n))
    return InputError(
        f"{count:,} GPUs do not split evenly over hosts and NVLink domains",
        where=where,
        value=f"{chip.name}:{count}",
        expected=f"a divisor of {chip.chips_per_host} (part of a host), or hosts of {chip.chips_per_host} in equal, "
        f"mostly full domains of up to {switch.domain_size}",
        fix=f"the nearest are {chip.name}:{fewer}, {chip.name}:{more}",
    )


def _not_a_name(text: str, where: str) -> InputError:
    parts = re.split(r"[:*]", text.strip().lower())
    chip = next((load_chip(part) for part in parts if part in chip_names()), None)
    return InputError(
        "not the name of a slice",
        where=where,
        value=text,
        expected="CHIP:SHAPE or SLICES*CHIP:SHAPE (tpu7x:4x4x4, 2*v5e:16x16), GPU:COUNT (h100:64), or a cloud "
        "name (v5p-512)",
        fix="`ridgeline chips` lists the chips" if chip is None else f"write, for example, {_example(chip)}",
    )


def _nearest_shapes(torus: Torus, wanted: Shape) -> list[Shape]:
    """The legal shapes closest to the one wanted: axis by axis when it has as many, else by number of chips."""

    def distance(shape: Shape) -> float:
        if len(shape) != len(wanted):
            return abs(log(prod(shape) / prod(wanted)))
        return sum(abs(log(have / want)) for have, want in zip(sorted(shape), sorted(wanted), strict=True))

    most_cube_like = {prod(shape): shape for shape in reversed(legal_shapes(torus))}
    same_rank = len(wanted) == torus.dimensions
    return sorted(legal_shapes(torus) if same_rank else most_cube_like.values(), key=distance)[:_SHOWN]


def _example(chip: Chip) -> str:
    if chip.torus is None:
        return f"{chip.name}:{chip.chips_per_host}"
    blocks = (shape for shape in legal_shapes(chip.torus) if min(shape) >= _CUBE)
    return f"{chip.name}:{written(next(blocks))}"
