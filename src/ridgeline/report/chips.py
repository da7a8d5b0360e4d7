"""`ridgeline chips`: the catalogue, one chip or one slice, as a screen and as JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ridgeline.cost.questions.explain_hardware import explain_chip, explain_slice
from ridgeline.hardware.topology import shapes_in_words, written
from ridgeline.report.blocks import Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.report.jsonable import jsonable
from ridgeline.units import (
    format_bytes,
    format_count,
    format_cycles_per_s,
    format_flops_per_s,
    format_rate_bytes_per_s,
    format_seconds,
    format_things,
    format_usd,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ridgeline.hardware.chip import Chip, Fact, Torus
    from ridgeline.hardware.slice import PhysicalAxis, Slice
    from ridgeline.report.jsonable import Json

_ABSENT = Cell(text="–", tone="dim")

_LABELS = {
    "devices_per_chip": "JAX devices",
    "tensorcores_per_chip": "TensorCores",
    "chips_per_host": "chips per host",
    "hbm_bytes": "HBM",
    "usable_hbm_bytes": "HBM, usable",
    "hbm_bytes_per_s": "HBM bandwidth",
    "vmem_bytes": "VMEM per device",
    "vmem_bytes_per_s": "VMEM bandwidth",
    "smem_bytes": "SMEM per device",
    "mxu_rows": "MXU rows",
    "mxu_columns": "MXU columns",
    "mxus_per_device": "MXUs per device",
    "clock_cycles_per_s": "clock",
    "vpu.sublanes": "VPU sublanes",
    "vpu.lanes": "VPU lanes",
    "vpu.alus_per_lane": "VPU ALUs per lane",
    "vpu.registers": "VPU registers",
    "vpu.flops_per_s": "VPU, f32",
    "host_ram_bytes": "host RAM",
    "pcie_bytes_per_s": "host to chip",
    "torus.link_bytes_per_s": "ICI link, one way",
    "torus.hop_latency_s": "ICI hop",
    "torus.core_link_bytes_per_s": "core to core, one way",
    "switch.domain_size": "GPUs per domain",
    "switch.bytes_per_s": "scale-up, one way",
    "switch.peer_bytes_per_s": "one pair, one way",
    "switch.latency_s": "scale-up step",
    "network_bytes_per_s": "network, one way",
    "network_latency_s": "network step",
}
"""What a catalogue key is called on screen; peaks are called by their dtype."""


def chips_report(chips: Sequence[Chip]) -> Report:
    """The catalogue as one table."""
    table = Table(
        columns=("chip", "bf16", "fp8", "HBM", "HBM bandwidth", "links", "$/chip-hour"),
        rows=tuple(_summary(chip) for chip in chips),
        right=frozenset(range(1, 7)),
        note=f"Per chip. {_devices_in_words(chips)}Peaks are dense; – marks a dtype with no faster path than bf16, or "
        "no public price. Links: ICI or NVLink, one way, all of a chip's together. Prices are on demand, as read on "
        "the date that `ridgeline chips NAME` shows.",
    )
    return Report(headline=format_things(len(chips), "chip"), pieces=(table,))


def chip_report(chip: Chip) -> Report:
    """One chip: every number with its kind and source, the shapes it comes in, its prices."""
    return Report(headline=f"{chip.name} · {chip.title}", pieces=tuple(_chip_pieces(chip)))


def slice_report(hardware: Slice) -> Report:
    """One slice: its size, its axes and its totals; then the chip it is made of."""
    chip = hardware.chip
    totals = [
        *((f"{dtype} peak", format_flops_per_s(peak)) for dtype, peak in hardware.peak_flops_per_s.items()),
        ("HBM", format_bytes(hardware.hbm_bytes)),
        ("HBM, usable", format_bytes(hardware.usable_hbm_bytes)),
        ("HBM bandwidth", format_rate_bytes_per_s(hardware.hbm_bytes_per_s)),
        (
            "price",
            "no public price" if hardware.usd_per_hour is None else f"{format_usd(hardware.usd_per_hour)} an hour",
        ),
    ]
    return Report(
        headline=f"{hardware.name} · {chip.title} · {format_things(hardware.num_chips, 'chip')}, "
        f"{format_things(hardware.num_devices, 'device')}, {format_things(hardware.num_hosts, 'host')}",
        pieces=(_axes(hardware), _plain_facts("The whole slice", totals), *_chip_pieces(chip)),
    )


def chips_json(chips: Sequence[Chip]) -> dict[str, Json]:
    """The catalogue in base units, without sources."""
    summaries = [{key: value for key, value in _chip(chip).items() if key != "facts"} for chip in chips]
    return {"chips": jsonable(summaries), "derivations": []}


def chip_json(chip: Chip) -> dict[str, Json]:
    """One chip in base units, every number also under `facts` with its kind and source."""
    return {"chip": _chip(chip), "derivations": derivations_json(explain_chip(chip))}


def slice_json(hardware: Slice) -> dict[str, Json]:
    """One slice in base units, and its chip."""
    axes = hardware.axes if hardware.dcn is None else (*hardware.axes, hardware.dcn)
    return {
        "slice": {
            "name": hardware.name,
            "shape": list(hardware.shape),
            "num_slices": hardware.num_slices,
            "num_chips": hardware.num_chips,
            "num_devices": hardware.num_devices,
            "num_hosts": hardware.num_hosts,
            "axes": jsonable(axes),
            "peak_flops_per_s": jsonable(hardware.peak_flops_per_s),
            "hbm_bytes": hardware.hbm_bytes,
            "usable_hbm_bytes": hardware.usable_hbm_bytes,
            "hbm_bytes_per_s": hardware.hbm_bytes_per_s,
            "usd_per_hour": hardware.usd_per_hour,
        },
        "chip": _chip(hardware.chip),
        "derivations": derivations_json(explain_slice(hardware)),
    }


def _chip(chip: Chip) -> dict[str, Json]:
    return {
        **{field.name: jsonable(getattr(chip, field.name)) for field in fields(chip)},
        "hbm_flops_per_byte": chip.hbm_flops_per_byte,
        "link_flops_per_byte": chip.link_flops_per_byte,
        "network_flops_per_byte": chip.network_flops_per_byte,
    }


def _summary(chip: Chip) -> tuple[Cell, ...]:
    links_bytes_per_s = chip.torus.bytes_per_s if chip.torus is not None else None
    if chip.switch is not None:
        links_bytes_per_s = chip.switch.bytes_per_s
    peaks = (chip.peak_flops_per_s.get(dtype) for dtype in ("bf16", "fp8"))
    return (
        Cell(text=chip.name, tone="strong"),
        *(_ABSENT if peak is None else Cell(text=format_flops_per_s(peak)) for peak in peaks),
        Cell(text=format_bytes(chip.hbm_bytes)),
        Cell(text=format_rate_bytes_per_s(chip.hbm_bytes_per_s)),
        _ABSENT if links_bytes_per_s is None else Cell(text=format_rate_bytes_per_s(links_bytes_per_s)),
        Cell(text=format_usd(chip.prices[0].usd_per_chip_hour)) if chip.prices else _ABSENT,
    )


def _devices_in_words(chips: Sequence[Chip]) -> str:
    """Which chips are more than one JAX device, as a sentence; "" when none is."""
    pairs = [chip.name for chip in chips if chip.devices_per_chip > 1]
    return f"A chip is one JAX device; {' and '.join(pairs)} are two. " if pairs else ""


def _chip_pieces(chip: Chip) -> Iterator[Facts | Table | Paragraphs]:
    """Figures, intensities, shapes and prices of a chip, and the numbered list of their sources."""
    sources = _sources(chip)
    yield _figures(chip, sources)
    yield _intensities(chip)
    if chip.torus is not None:
        yield _shapes(chip.torus, sources)
    if chip.prices:
        yield _prices(chip, sources)
    yield Paragraphs(
        title="Sources",
        lines=tuple(Cell(text=f"[{number}] {source}", tone="dim") for source, number in sources.items()),
    )


def _sources(chip: Chip) -> dict[str, int]:
    """Every source of the chip, numbered in the order in which the tables name them."""
    torus = [] if chip.torus is None else [chip.torus.source]
    named = [fact.source for fact in chip.facts.values()] + torus + [price.source for price in chip.prices]
    return {source: number for number, source in enumerate(dict.fromkeys(named), start=1)}


def _figures(chip: Chip, sources: dict[str, int]) -> Table:
    return Table(
        title="One chip",
        columns=("figure", "value", "kind", "source", "note"),
        rows=tuple(
            (
                Cell(text=_label(key)),
                Cell(text=_shown(key, fact), tone="strong"),
                Cell(text=fact.kind, tone="plain" if fact.kind == "published" else "warn"),
                Cell(text=f"[{sources[fact.source]}]", tone="dim"),
                Cell(text=fact.note, tone="dim"),
            )
            for key, fact in chip.facts.items()
        ),
        right=frozenset({1}),
    )


def _label(key: str) -> str:
    return f"{key.removeprefix('peak_flops_per_s.')} peak" if key.startswith("peak_flops_per_s.") else _LABELS[key]


def _shown(key: str, fact: Fact) -> str:
    """The value in the unit that its key names."""
    if "flops_per_s" in key:
        return format_flops_per_s(fact.value)
    if key.endswith("bytes_per_s"):
        return format_rate_bytes_per_s(fact.value)
    if key.endswith("cycles_per_s"):
        return format_cycles_per_s(fact.value)
    if key.endswith("bytes"):
        return format_bytes(fact.value)
    if key.endswith("_s"):
        return format_seconds(fact.value)
    return format_count(fact.value)


def _intensities(chip: Chip) -> Facts:
    links = "one wrapped ICI axis" if chip.torus is not None else "NVLink" if chip.vendor == "nvidia" else "scale-up"
    rows = [
        ("HBM", f"{chip.hbm_flops_per_byte:,.0f}"),
        (links, f"{chip.link_flops_per_byte:,.0f}"),
        ("network", f"{chip.network_flops_per_byte:,.0f}"),
    ]
    return _plain_facts("bf16 FLOPs in the time of one byte over", rows)


def _shapes(torus: Torus, sources: dict[str, int]) -> Facts:
    match torus.wrap_rule:
        case "cube":
            rule = "every axis, when all are multiples of 4; otherwise none"
        case "full_axis":
            rule = f"an axis that is {max(torus.pod_shape)} long"
    rows = [("shapes", shapes_in_words(torus)), ("wraps around", rule), ("source", f"[{sources[torus.source]}]")]
    return _plain_facts(f"Slices, up to {written(torus.pod_shape)}", rows)


def _prices(chip: Chip, sources: dict[str, int]) -> Table:
    return Table(
        title="List prices",
        columns=("$/chip-hour", "term", "provider", "region", "read", "source"),
        rows=tuple(
            (
                Cell(text=format_usd(price.usd_per_chip_hour), tone="strong"),
                Cell(text=price.term.replace("_", " ")),
                Cell(text=price.provider),
                Cell(text=price.region),
                Cell(text=price.date_in_words),
                Cell(text=f"[{sources[price.source]}]", tone="dim"),
            )
            for price in chip.prices
        ),
        right=frozenset({0}),
    )


def _axes(hardware: Slice) -> Table:
    axes = hardware.axes if hardware.dcn is None else (*hardware.axes, hardware.dcn)
    return Table(
        title="Axes",
        columns=("axis", "size", "wiring", "one way", "latency", "of"),
        rows=tuple(_axis(axis) for axis in axes),
        right=frozenset({1, 3, 4}),
        note=_note_on_axes(hardware),
    )


def _note_on_axes(hardware: Slice) -> str:
    switch = hardware.chip.switch
    if not hardware.axes and hardware.dcn is None:
        return "A single device: nothing to join."
    if switch is None or hardware.num_chips % switch.domain_size == 0 or hardware.num_chips < switch.domain_size:
        return ""
    return (
        f"A domain holds {switch.domain_size} GPUs; {hardware.num_chips} are split evenly, "
        f"{hardware.axes[0].size} to a domain."
    )


def _axis(axis: PhysicalAxis) -> tuple[Cell, ...]:
    match axis.wiring:
        case "ring":
            wiring, member = "ring (wraps around)", "one link, two a chip"
        case "line":
            wiring, member = "line", "one link"
        case "switch":
            wiring, member = "switch", "one chip" if axis.name == "dcn" else "one GPU"
    shared = f", shared by {axis.sharers} devices" if axis.sharers > 1 else ""
    return (
        Cell(text=axis.name, tone="strong"),
        Cell(text=format_count(axis.size)),
        Cell(text=wiring),
        Cell(text=format_rate_bytes_per_s(axis.bytes_per_s)),
        Cell(text=format_seconds(axis.latency_s)),
        Cell(text=member + shared),
    )


def _plain_facts(title: str, rows: Sequence[tuple[str, str]]) -> Facts:
    return Facts(title=title, rows=tuple((label, Cell(text=text)) for label, text in rows))
