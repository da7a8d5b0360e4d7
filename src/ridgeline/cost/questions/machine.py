"""What a machine adds up to, from its chips or from figures that the question states; and figures side by side."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from ridgeline.cost.laws.deduce import Deduced, deduce, system
from ridgeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.hardware.slice import Slice


def num_hosts(*, num_chips: float, chips_per_host: float) -> float:
    """Host machines of a slice; one that is smaller than a host still takes one.

    Formula: num_hosts = ⌈num_chips / chips_per_host⌉

    Source: Scaling Book, ch. 2, question 2.

    >>> num_hosts(num_chips=256, chips_per_host=8)  # a pod of v5e
    32
    """
    return ceil(num_chips / chips_per_host)


def num_cores(*, num_chips: float, cores_per_chip: float) -> float:
    """TensorCores of a slice.

    Formula: num_cores = num_chips · cores_per_chip

    Source: Scaling Book, ch. 2, question 2.

    >>> num_cores(num_chips=8960, cores_per_chip=2)  # a pod of v5p
    17920
    """
    return num_chips * cores_per_chip


def cores_flops_per_s(*, core_flops_per_s: float, cores_per_chip: float) -> float:
    """FLOPs a second of the cores of one chip.

    Formula: C_chip = C_core · cores_per_chip

    Source: Scaling Book, ch. 2.

    >>> cores_flops_per_s(core_flops_per_s=2.0, cores_per_chip=2)
    4.0
    """
    return core_flops_per_s * cores_per_chip


def chip_flops_per_s(*, cores_flops_per_s: float) -> float:
    """FLOPs a second of one chip: those of its cores, where nothing better is known.

    Formula: C = C_chip

    Source: Scaling Book, ch. 2.

    >>> chip_flops_per_s(cores_flops_per_s=4.0)
    4.0
    """
    return cores_flops_per_s


def slice_flops_per_s(*, num_chips: float, chip_flops_per_s: float) -> float:
    """FLOPs a second of a slice.

    Formula: num_chips · C

    Source: Scaling Book, ch. 2, question 2.

    >>> slice_flops_per_s(num_chips=256, chip_flops_per_s=2.0)
    512.0
    """
    return num_chips * chip_flops_per_s


def slice_hbm_bytes(*, num_chips: float, hbm_bytes: float) -> float:
    """Memory of a slice.

    Formula: num_chips · hbm

    Source: Scaling Book, ch. 2, question 2.

    >>> slice_hbm_bytes(num_chips=256, hbm_bytes=2.0)
    512.0
    """
    return num_chips * hbm_bytes


def slice_hbm_bytes_per_s(*, num_chips: float, hbm_bytes_per_s: float) -> float:
    """Memory bandwidth of a slice.

    Formula: num_chips · W_hbm

    Source: Scaling Book, ch. 7.

    >>> slice_hbm_bytes_per_s(num_chips=8, hbm_bytes_per_s=2.0)
    16.0
    """
    return num_chips * hbm_bytes_per_s


def slice_network_bytes_per_s(*, num_hosts: float, host_network_bytes_per_s: float) -> float:
    """What all hosts of a slice can send over the data-center network.

    Formula: num_hosts · W_host

    Source: Scaling Book, ch. 5, across pods.

    >>> slice_network_bytes_per_s(num_hosts=4, host_network_bytes_per_s=2.0)
    8.0
    """
    return num_hosts * host_network_bytes_per_s


def slice_usd_per_hour(*, num_chips: float, usd_per_chip_hour: float) -> float:
    """Price of a slice.

    Formula: num_chips · price

    Source: Scaling Book, ch. 8.

    >>> slice_usd_per_hour(num_chips=8, usd_per_chip_hour=2.0)
    16.0
    """
    return num_chips * usd_per_chip_hour


MACHINE = system(
    num_hosts,
    num_cores,
    cores_flops_per_s,
    chip_flops_per_s,
    slice_flops_per_s,
    slice_hbm_bytes,
    slice_hbm_bytes_per_s,
    slice_network_bytes_per_s,
    slice_usd_per_hour,
)
"""What follows from chips and their figures."""


def machine_totals(
    *,
    shape: Sequence[int] = (),
    host_shape: Sequence[int] = (),
    hardware: Slice | None = None,
    dtype: str = "bf16",
    **values: float,
) -> Deduced:
    """Everything that a machine adds up to.

    >>> pod = machine_totals(shape=(16, 16), chips_per_host=8, cores_per_chip=1, hbm_bytes=16e9)
    >>> pod["num_chips"], pod["num_hosts"], pod["slice_hbm_bytes"] / 1e12
    (256, 32.0, 4.096)

    Args:
        shape: Chips along each axis.
        host_shape: Chips of one host along each axis.
        hardware: A slice, whose figures stand where the question states none.
        dtype: Whose peak counts.
        **values: Figures, under the names of the parameters of `MACHINE`.

    Raises:
        InputError: A figure has an unknown name, or the chip no peak of the dtype.
    """
    known = {} if hardware is None else _figures(hardware, dtype)
    sizes = {"num_chips": shape, "chips_per_host": host_shape}
    stated = {name: prod(sides) for name, sides in sizes.items() if sides}
    return deduce(MACHINE, {**known, **stated, **values})


def _figures(hardware: Slice, dtype: str) -> dict[str, float]:
    chip = hardware.chip
    if dtype not in chip.peak_flops_per_s:
        raise InputError(
            f"{chip.name} has no peak of this dtype",
            where="dtype",
            value=dtype,
            expected=f"one of {', '.join(chip.peak_flops_per_s)}",
            fix="choose one of these, or state chip_flops_per_s",
        )
    figures: dict[str, float | None] = {
        "num_chips": hardware.num_chips,
        "chips_per_host": chip.chips_per_host,
        "cores_per_chip": chip.tensorcores_per_chip,
        "chip_flops_per_s": chip.peak_flops_per_s[dtype],
        "hbm_bytes": chip.hbm_bytes,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "host_network_bytes_per_s": chip.network_bytes_per_s * chip.chips_per_host,
        "usd_per_chip_hour": chip.prices[0].usd_per_chip_hour if chip.prices else None,
    }
    return {name: value for name, value in figures.items() if value is not None}


def dtype_speedups(
    *, peak_flops_per_s: Mapping[str, Mapping[str, float]], over: str = "bf16"
) -> dict[str, dict[str, float]]:
    """How much faster each chip computes in each dtype than in another.

    >>> dtype_speedups(peak_flops_per_s={"bf16": {"v5e": 197e12}, "int8": {"v5e": 394e12}})
    {'int8': {'v5e': 2.0}}

    Args:
        peak_flops_per_s: By dtype, then by chip.
        over: The dtype to compare with.
    """
    slow = peak_flops_per_s[over]
    return {
        dtype: {chip: rate / slow[chip] for chip, rate in peaks.items() if chip in slow}
        for dtype, peaks in peak_flops_per_s.items()
        if dtype != over
    }


def bandwidth_ratios(*, bytes_per_s: Mapping[str, float], over: str) -> dict[str, float]:
    """How much faster each bandwidth is than one of them.

    >>> bandwidth_ratios(bytes_per_s={"hbm": 2.8e12, "ici": 9e10}, over="ici")["hbm"]
    31.1...

    Args:
        bytes_per_s: By name.
        over: The one to compare with.
    """
    return {name: rate / bytes_per_s[over] for name, rate in bytes_per_s.items() if name != over}
