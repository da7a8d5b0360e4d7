"""How long from one chip to another, and how long along a path of several stages, of which one is the bottleneck.

    V  bytes of the array      N  chips it is spread over      W  bytes/s      C  FLOP/s

A path is host memory → PCIe → each chip, ICI → one chip, HBM → matrix unit; stages that stream take as long as the
slowest of them, stages that wait for each other take the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan, prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.cost.collectives import all_gather_limit_s, all_gather_s, array_bytes
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.questions.fabric import Position, fabric_of
from ridgeline.cost.questions.transfers import (
    first_byte_s,
    point_to_point_s,
    streamed_s,
)
from ridgeline.cost.roofline import compute_s, matmul_flops, overlapped_s, summed_s, transfer_s
from ridgeline.errors import InputError
from ridgeline.job.job import BYTES_OF

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.transfer import Path, Route

PathStageName: TypeAlias = Literal["pcie", "ici", "nvlink", "hbm", "mxu"]
"""Where an array passes: into each chip, between chips, out of memory, through the matrix unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointToPointAnswer:
    """How long from one chip to another.

    Attributes:
        size_bytes: That travel.
        start: Position of the sender; empty where only the distance is given.
        end: Of the receiver.
        hops: Between them, the shortest way.
        ports: Links over which they can exchange at once.
        link_bytes_per_s: One link, one way.
        first_byte_s: Until the first byte arrives.
        transfer_s: Of all bytes over all those links, the way itself left out.
        total_s: Until the last byte arrives.
        derivations: Where the numbers come from.
    """

    size_bytes: float
    start: Position
    end: Position
    hops: float
    ports: float
    link_bytes_per_s: float
    first_byte_s: float
    transfer_s: float
    total_s: float
    derivations: tuple[Derivation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStage:
    """One stage of a path.

    Attributes:
        name: Which.
        time_s: Alone.
    """

    name: PathStageName
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PathAnswer:
    """How long along a path.

    Attributes:
        array_bytes: Of the whole array.
        compute_flops: Of the product at its end; NaN without one.
        stages: In order.
        pipelined_s: Of stages that stream: the slowest.
        summed_s: Of stages that wait for each other.
        bottleneck: The slowest stage.
        gather_limit_s: Of the gather, the receiver's own share counted as if it travelled too; NaN without one.
        derivations: Where the numbers come from.
    """

    array_bytes: float
    compute_flops: float
    stages: tuple[PathStage, ...]
    pipelined_s: float
    summed_s: float
    bottleneck: PathStageName
    gather_limit_s: float
    derivations: tuple[Derivation, ...]

    def stage_s(self, name: PathStageName) -> float:
        """Time of a stage; NaN where the path has none of that name."""
        return next((stage.time_s for stage in self.stages if stage.name == name), nan)


def point_to_point(
    *,
    size_bytes: float = nan,
    start: Sequence[int] = (),
    end: Sequence[int] = (),
    hardware: Slice | None = None,
    **given: Unpack[Route],
) -> PointToPointAnswer:
    """The time to send an array from one chip to another.

    >>> answer = point_to_point(size_bytes=18e6, topology=(4, 4), end=(3, 3), link_bytes_per_s=4.5e10, hop_s=1e-6)
    >>> answer.hops, answer.ports, round(answer.first_byte_s * 1e6), round(answer.total_s * 1e6)
    (6, 2, 6, 206)

    Args:
        size_bytes: What travels.
        start: Position of the sender, a number an axis (one number for GPUs); the first chip if it is not said.
        end: Of the receiver; the chip farthest from the sender if it is not said.
        hardware: The slice; None where the question states its topology, or hops and ports.
        given: What the question states instead.

    Raises:
        InputError: A position is not on the slice, or both are the same.
    """
    fabric = fabric_of(hardware, given)
    first_place = fabric.at(start, where="start")
    last_place = fabric.at(end, where="end") if end else fabric.farthest(first_place)
    if fabric.shape and first_place == last_place:
        raise InputError(
            "sender and receiver are the same chip",
            where="end",
            value=",".join(map(str, last_place)),
            expected="two chips of the slice",
            fix="name another chip",
        )
    known = fabric.way(first_place, last_place)
    way = replace(known, hops=given.get("hops", known.hops), ports=given.get("ports", known.ports))
    V_bytes = _array_size_bytes(size_bytes, given)
    streamed = derive(streamed_s, V_bytes=V_bytes, ports=way.ports, W_bytes_per_s=way.link_bytes_per_s)
    first = derive(first_byte_s, hops=way.hops, t_min_s=way.hop_s)
    total = derive(
        point_to_point_s,
        V_bytes=V_bytes,
        ports=way.ports,
        W_bytes_per_s=way.link_bytes_per_s,
        hops=way.hops,
        t_min_s=way.hop_s,
    )
    return PointToPointAnswer(
        size_bytes=V_bytes,
        start=first_place,
        end=last_place,
        hops=way.hops,
        ports=way.ports,
        link_bytes_per_s=way.link_bytes_per_s,
        first_byte_s=first.value,
        transfer_s=streamed.value,
        total_s=streamed.value if isnan(first.value) else total.value,
        derivations=_known(*_size(given), first, streamed, total),
    )


def path(
    *,
    size_bytes: float = nan,
    end: Sequence[int] = (),
    hardware: Slice | None = None,
    compute_dtype: str = "bf16",
    **given: Unpack[Path],
) -> PathAnswer:
    """The time to bring an array from the memory of all hosts to one chip and multiply a matrix with it.

    >>> answer = path(
    ...     size_bytes=16e9, num_chips=16, ports=2, pcie_bytes_per_s=1e10, link_bytes_per_s=5e10, hbm_bytes_per_s=8e11
    ... )
    >>> [(stage.name, round(stage.time_s, 3)) for stage in answer.stages], answer.bottleneck
    ([('pcie', 0.1), ('ici', 0.15), ('hbm', 0.02)], 'ici')

    Args:
        size_bytes: Of the whole array, spread evenly over the hosts of all chips.
        end: Position of the chip it comes to; the first if it is not said.
        hardware: A slice, whose figures stand where the question states none; of GPUs, one NVLink domain.
        compute_dtype: Whose peak the product runs at.
        given: What the question states.

    Raises:
        InputError: The question says nothing of any stage, or names a dtype the chip has no peak of.
    """
    fabric = fabric_of(hardware, given)
    V_bytes = _array_size_bytes(size_bytes, given)
    chips = given.get("num_chips", fabric.domain or prod(fabric.shape))
    ports = given.get("ports", fabric.ports(fabric.at(end, where="end")))
    elements = prod(given["shape"]) if "shape" in given else V_bytes / given.get("element_bytes", BYTES_OF["bf16"])
    product = derive(matmul_flops, B=given.get("rows", nan), D=elements, F=1)
    rates = _rates(hardware, compute_dtype, given)
    gather = {"V_bytes": V_bytes, "n": ports or nan, "W_bytes_per_s": fabric.link_bytes_per_s}
    times: dict[PathStageName, Derivation] = {
        "pcie": derive(transfer_s, traffic_bytes=V_bytes / chips, W_bytes_per_s=rates.pcie_bytes_per_s),
        "nvlink" if fabric.domain else "ici": derive(all_gather_s, N=chips if chips > 1 else nan, **gather),
        "hbm": derive(transfer_s, traffic_bytes=V_bytes, W_bytes_per_s=rates.hbm_bytes_per_s),
        "mxu": derive(compute_s, flops=product.value, C_flops_per_s=rates.peak_flops_per_s),
    }
    stages: dict[PathStageName, Derivation] = {
        name: replace(time, quantity=_STAGES[name]) for name, time in times.items() if not isnan(time.value)
    }
    if not stages:
        raise InputError(
            "no stage of the path is known",
            where="path",
            value=", ".join(given),
            expected="a size, and a slice or the rate of at least one stage",
            fix="name a slice with --on",
        )
    stage_s: dict[str, float] = {name: stage.value for name, stage in stages.items()}
    return PathAnswer(
        array_bytes=V_bytes,
        compute_flops=product.value,
        stages=tuple(PathStage(name=name, time_s=stage.value) for name, stage in stages.items()),
        pipelined_s=overlapped_s(**stage_s),
        summed_s=summed_s(**stage_s),
        bottleneck=max(stages, key=lambda name: stages[name].value),
        gather_limit_s=float(all_gather_limit_s(**gather)),
        derivations=_known(*_size(given), product, *stages.values()),
    )


_STAGES: dict[PathStageName, str] = {
    "pcie": "host to chips over PCIe, all at once",
    "ici": "gather to one chip over ICI",
    "nvlink": "gather to one chip over NVLink",
    "hbm": "read from memory",
    "mxu": "arithmetic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Of one chip; NaN where a rate is not known."""

    pcie_bytes_per_s: float = nan
    hbm_bytes_per_s: float = nan
    peak_flops_per_s: float = nan


def _rates(hardware: Slice | None, compute_dtype: str, given: Path) -> _Rates:
    known = _Rates() if hardware is None else _rates_of(hardware.chip, compute_dtype)
    return _Rates(
        pcie_bytes_per_s=given.get("pcie_bytes_per_s", known.pcie_bytes_per_s),
        hbm_bytes_per_s=given.get("hbm_bytes_per_s", known.hbm_bytes_per_s),
        peak_flops_per_s=given.get("peak_flops_per_s", known.peak_flops_per_s),
    )


def _rates_of(chip: Chip, compute_dtype: str) -> _Rates:
    if compute_dtype not in chip.peak_flops_per_s:
        raise InputError(
            f"{chip.name} has no peak of this dtype",
            where="compute_dtype",
            value=compute_dtype,
            expected=f"one of {', '.join(chip.peak_flops_per_s)}",
            fix="choose one of these, or state the peak",
        )
    return _Rates(
        pcie_bytes_per_s=nan if chip.pcie_bytes_per_s is None else chip.pcie_bytes_per_s,
        hbm_bytes_per_s=chip.hbm_bytes_per_s,
        peak_flops_per_s=chip.peak_flops_per_s[compute_dtype],
    )


def _size(given: Route) -> tuple[Derivation, ...]:
    """The array's size, where its shape is given."""
    if "shape" not in given:
        return ()
    elements, b = float(prod(given["shape"])), given.get("element_bytes", BYTES_OF["bf16"])
    return (replace(derive(array_bytes, elements=elements, b=b), quantity="array"),)


def _array_size_bytes(size_bytes: float, given: Route) -> float:
    return next((each.value for each in _size(given)), size_bytes)


def _known(*derivations: Derivation) -> tuple[Derivation, ...]:
    return tuple(each for each in derivations if not isnan(each.value))
