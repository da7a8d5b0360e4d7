"""Machines: the figures of the book, what slices add up to, how they are wired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FIGURES = {
    "pod": "pod_shape",
    "pod_shape": "pod_shape",
    "host": "host_shape",
    "host_shape": "host_shape",
    "hbm": "hbm_bytes",
    "hbm_bytes": "hbm_bytes",
    "hbm_bw": "hbm_bytes_per_s",
    "W_hbm": "hbm_bytes_per_s",
    "bf16": "peak_flops_per_s.bf16",
    "flops_bf16": "peak_flops_per_s.bf16",
    "C": "peak_flops_per_s.bf16",
    "dense": "peak_flops_per_s.bf16",
    "int8": "peak_flops_per_s.int8",
    "ops_int8": "peak_flops_per_s.int8",
    "fp8": "peak_flops_per_s.fp8",
    "sparse": "sparse_peak_flops_per_s.bf16",
    "per_core": "core_peak_flops_per_s.bf16",
    "per_mxu": "mxu_peak_flops_per_s.bf16",
    "ici_one_way": "link_bytes_per_s",
    "W_one_way": "link_bytes_per_s",
    "ici_bidi": "axis_bytes_per_s",
    "W_bidi": "axis_bytes_per_s",
    "ici_dims": "num_dimensions",
    "cores": "tensorcores_per_chip",
    "cores_per_chip": "tensorcores_per_chip",
    "mxus": "mxus_per_tensorcore",
    "mxu_per_core": "mxus_per_tensorcore",
    "mxus_per_core": "mxus_per_tensorcore",
    "mxu_shape": "mxu_shape",
    "mxu": "mxu_shape",
    "vmem": "vmem_bytes",
    "vmem_bytes": "vmem_bytes",
    "clock": "clock_cycles_per_s",
    "pcie": "pcie_bytes_per_s",
    "W_pcie": "pcie_bytes_per_s",
    "dcn": "host_network_bytes_per_s",
    "dcn_per_host": "host_network_bytes_per_s",
    "W_dcn": "host_network_bytes_per_s",
    "vpu": "vpu_flops_per_s",
    "vpu_flops": "vpu_flops_per_s",
    "price": "usd_per_chip_hour",
    "pod_chips": "num_pod_chips",
    "host_dram": "host_ram_bytes",
    "dram": "host_ram_bytes",
    "hop_latency": "hop_latency_s",
    "t_hop": "hop_latency_s",
    "t_min": "hop_latency_s",
    "vmem_over_hbm": "vmem_over_hbm_ratio",
    "int8_speedup": "int8_speedup_factor",
    "int4_speedup": "int4_speedup_factor",
    "padding": "padding_size",
    "tray": "num_tray_chips",
    "chips_per_tray": "num_tray_chips",
    "cores_per_host": "num_host_cores",
    "order": "bandwidth_order",
    "bandwidth_order": "bandwidth_order",
    "ports": "corner_ports",
    "hbm_bw_range": "hbm_bytes_per_s",
}
"""What items call a figure of the book, and its key."""

TOTALS = {
    "C_core": "core_flops_per_s",
    "C_chip": "chip_flops_per_s",
    "C": "chip_flops_per_s",
    "flops": "chip_flops_per_s",
    "cores": "cores_per_chip",
    "cores_per_chip": "cores_per_chip",
    "chips_per_host": "chips_per_host",
    "hbm": "hbm_bytes",
    "hbm_bytes": "hbm_bytes",
    "hbm_gib": "hbm_bytes",
    "W": "hbm_bytes_per_s",
    "W_hbm": "hbm_bytes_per_s",
    "hbm_bw": "hbm_bytes_per_s",
    "W_host": "host_network_bytes_per_s",
    "W_dcn": "host_network_bytes_per_s",
    "dcn": "host_network_bytes_per_s",
    "price": "usd_per_chip_hour",
    "chips": "num_chips",
    "n_chips": "num_chips",
    "num_chips": "num_chips",
    "host": "chips_per_host",
}
"""What items call a figure of one chip, and its name among machine totals; memory comes back in the unit it went in."""

SUMS = {
    "chips": "num_chips",
    "pod_chips": "num_chips",
    "n_chips": "num_chips",
    "hosts": "num_hosts",
    "cores": "num_cores",
    "per_chip": "cores_flops_per_s",
    "flops": "slice_flops_per_s",
    "pod_flops": "slice_flops_per_s",
    "C_pod": "slice_flops_per_s",
    "hbm": "slice_hbm_bytes",
    "hbm_gib": "slice_hbm_bytes",
    "hbm_total": "slice_hbm_bytes",
    "bw": "slice_hbm_bytes_per_s",
    "hbm_bw": "slice_hbm_bytes_per_s",
    "W_pod": "slice_network_bytes_per_s",
    "price": "slice_usd_per_hour",
}
"""What items call a total."""

SLICES = ("pod", "slice", "shape", "topology", "mesh")
MANY_SLICES = ("slices", "shapes", "topologies")
CHIPS = ("v2", "v3", "v4p", "v5p", "v5e", "v6e", "h100", "h800")
SLOWER = ("W_ici_axis", "W_ici", "W_pcie", "W_dcn")
FASTER = {"ratio": "W_hbm", "ratio_with_table_hbm": "W_hbm_table", "ratio_ici": "W_ici"}

WIRING = {
    "wrap": "wraps_everywhere",
    "wraps": "wraps_everywhere",
    "wraparound": "wraps_everywhere",
    "all_wrap": "wraps_everywhere",
    "wraps_all": "wraps_everywhere",
    "wrap_axes": "wraps",
    "wraps_by_axis": "wraps",
    "legal": "is_legal",
    "is_legal": "is_legal",
    "neighbors": "num_neighbours",
    "neighbours": "num_neighbours",
    "max_hops": "farthest_hops",
    "hops": "farthest_hops",
    "diameter": "farthest_hops",
    "max_hops_by_axis": "axis_hops",
    "ports": "corner_ports",
    "corner_ports": "corner_ports",
    "chips": "num_chips",
    "hosts": "num_hosts",
    "cores": "num_cores",
}
BY_AXIS = {"wrap": "wraps", "wraps": "wraps", "wraparound": "wraps"}
"""Where an axis closes by its own length, the answer is one for each."""

LINES = {
    "slowdown": "slowdown_ratio",
    "ratio": "slowdown_ratio",
    "exact_by_N": "exact_ratio",
    "by_N": "exact_ratio",
    "vs_approx_ring_by_N": "approximate_ratio",
    "approx_by_N": "approximate_ratio",
    "t_ring": "ring_s",
    "t_line": "line_s",
    "t_approx": "approximate_s",
}
DOMAINS = {"min": 0, "max": 1, "gpus": 1, "largest": 1, "smallest": 0}
AXIS_HOPS = {"wrap": True, "ring": True, "with_wrap": True, "max_hops_wrap": True, "torus": True}
AXIS_HOPS = AXIS_HOPS | {
    "no_wrap": False,
    "line": False,
    "without_wrap": False,
    "max_hops_nowrap": False,
    "mesh": False,
}
AXIS_HOPS = AXIS_HOPS | {"hops_ring": True, "hops_line": False, "max_hops_ring": True, "max_hops_line": False}
AXIS_HOPS = AXIS_HOPS | {"with_wraparound": True, "without_wraparound": False}
AXIS_HOPS = AXIS_HOPS | {"hops_wrap": True, "hops_nowrap": False, "max_hops_no_wrap": False, "nowrap": False}


@adapter("hardware.spec")
def spec(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if "chip" in inputs:
        return figures_of(inputs["chip"], wanted)
    if isinstance(inputs.get("chips"), list):
        return of_each_chip(inputs["chips"], wanted)
    peaks = {name: inputs[name] for name in ("bf16", "int8", "int4", "fp8") if isinstance(inputs.get(name), dict)}
    if peaks:
        speedups = ridgeline.dtype_speedups(peak_flops_per_s=peaks)
        named = {f"{dtype}_speedup": chips for dtype, chips in speedups.items()}
        return general(wanted) | {key: named[key] for key in wanted if key in named}
    if "ratio" in wanted:
        return ratios(inputs, wanted)
    return general(wanted) | sums_of(inputs, wanted)


@adapter("hardware.topology")
def topology(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if isinstance(inputs.get("dims"), dict):
        links = {name: ridgeline.num_neighbours(num_dimensions=axes) for name, axes in inputs["dims"].items()}
        return {key: links for key in wanted if key in {"neighbors", "neighbours", "links"}}
    if "dims" in inputs:
        links = ridgeline.num_neighbours(num_dimensions=inputs["dims"])
        return {key: links for key in wanted if key in {"neighbors", "neighbours", "links"}}
    if isinstance(inputs.get("N"), list):
        return picked(ridgeline.without_wraparound(sizes=inputs["N"]), wanted, LINES)
    if "N" in inputs:
        return {key: ridgeline.farthest_hops(N=inputs["N"], wraps=AXIS_HOPS[key]) for key in wanted if key in AXIS_HOPS}
    for shapes in shapes_in(inputs, MANY_SLICES):
        each = [wiring_of(shape, inputs, wanted) for shape in shapes]
        return {key: [answers[key] for answers in each] for key in each[0]}
    sums = sums_of(inputs, wanted) | pods_of(inputs, wanted)
    if sums:
        return sums
    for shape in shapes_in(inputs, SLICES):
        return wiring_of(shape, inputs, wanted)
    domain = ridgeline.scaling_book_figures("h100").several("switch_domain_sizes")
    return general(wanted) | {key: domain[DOMAINS[key]] for key in wanted if key in DOMAINS}


def figures_of(chip: str, wanted: Collection[str]) -> dict[str, Any]:
    """The book's figures of a chip; what it does not say of that one, as it says it of all."""
    book = ridgeline.scaling_book_figures(chip).figures
    said = {key: book[FIGURES[key]].value for key in wanted if key in FIGURES if FIGURES[key] in book}
    return general(wanted) | said


def general(wanted: Collection[str]) -> dict[str, Any]:
    """What the book says of all chips; of one where the key names it: `pcie_v6e`, `v6e_pcie`."""
    places = {name: ("general", place) for name, place in FIGURES.items()}
    for chip in CHIPS:
        places = places | {f"{name}_{chip}": (chip, place) for name, place in FIGURES.items()}
        places = places | {f"{chip}_{name}": (chip, place) for name, place in FIGURES.items()}
    asked = {key: places[key] for key in wanted if key in places}
    found = {key: (ridgeline.scaling_book_figures(chip).figures, place) for key, (chip, place) in asked.items()}
    return {key: figures[place].value for key, (figures, place) in found.items() if place in figures}


def of_each_chip(chips: list[str], wanted: Collection[str]) -> dict[str, Any]:
    """Memory bandwidth by chip, the key being its name with or without `tpu_`."""
    rates = {chip: ridgeline.scaling_book_figures(chip).number("hbm_bytes_per_s") for chip in chips}
    short = {chip.removeprefix("tpu_"): rate for chip, rate in rates.items()}
    return {key: rate for key, rate in (rates | short).items() if key in wanted}


def ratios(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """How much faster memory is than a slower wire, by each figure of it."""
    rates = {name: inputs[name] for name in (*SLOWER, *FASTER.values()) if name in inputs}
    slow = [name for name in SLOWER if name in inputs]
    found = ridgeline.bandwidth_ratios(bytes_per_s=rates, over=slow[0])
    return {key: found[FASTER[key]] for key in wanted if key in FASTER if FASTER[key] in found}


def sums_of(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Machine totals, where an item states figures of a chip and how many there are."""
    said = {name: inputs[key] for key, name in TOTALS.items() if key in inputs}
    if said.keys().isdisjoint({*TOTALS.values()}.difference({"num_chips"})):
        return {}
    for shape in shapes_in(inputs, SLICES):
        said = said | {"shape": shape}
    if isinstance(said.get("chips_per_host"), list):
        said = {name: figure for name, figure in said.items() if name != "chips_per_host"}
        said = said | {"host_shape": inputs["host"]}
    totals = ridgeline.machine_totals(**said)
    return {key: totals[SUMS[key]] for key in wanted if key in SUMS if SUMS[key] in totals}


def pods_of(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Chips of a slice of each generation, where an item gives their shapes by its name."""
    shapes = {chip: inputs[chip] for chip in CHIPS if isinstance(inputs.get(chip), list)}
    chips = {chip: ridgeline.machine_totals(shape=shape)["num_chips"] for chip, shape in shapes.items()}
    named = chips | {f"{chip}_chips": number for chip, number in chips.items()}
    return {key: named[key] for key in wanted if key in named}


def shapes_in(inputs: Mapping[str, Any], names: tuple[str, ...]) -> list[Any]:
    return [inputs[name] for name in names if name in inputs]


def wiring_of(shape: list[int], inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """How one slice is wired: of the chip that the item names, else of one with so many axes."""
    chips = [inputs[name].removeprefix("tpu_") for name in ("chip", "tpu") if name in inputs]
    for chip in chips:
        return wired(ridgeline.wiring(chip, shape), wanted)
    match shape:
        case [_, _, _]:
            return wired(ridgeline.wiring("v5p", shape), wanted)
        case _:
            return wired(ridgeline.wiring("v5e", shape), wanted)


def wired(answer: Any, wanted: Collection[str]) -> dict[str, Any]:  # noqa: ANN401 - a result of the API
    """Where every axis closes by its own length, there is an answer for each."""
    return picked(answer, wanted, WIRING | BY_AXIS if answer.is_by_axis else WIRING)


def picked(answer: object, wanted: Collection[str], fields: Mapping[str, str]) -> dict[str, Any]:
    return {key: getattr(answer, fields[key]) for key in wanted if key in fields}
