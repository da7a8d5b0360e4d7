"""The catalogue: one TOML file per chip becomes a `Chip`, every number with its source.

A file's tables are named by quantity and unit (`[hbm_bytes]`, `[peak_flops_per_s.bf16]`,
`[torus.link_bytes_per_s]`) and hold `value`, `kind`, `source` and perhaps a `note`. Only this module
reads them.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

from ridgeline.errors import InputError, nearest
from ridgeline.hardware.chip import Chip, Fact, Price, Switch, Torus, VectorUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VENDORS = ("google", "nvidia", "amd")
_PEAK = "peak_flops_per_s."
_BETWEEN_WORDS = re.compile(r"[\s_-]+")
_MAKER = re.compile(r"^(nvidia-|amd-)?(instinct-|geforce-)?(tpu-)?")


@cache
def chip_names() -> tuple[str, ...]:
    """Every chip of the catalogue: TPUs, then GPUs by vendor, each from the oldest to the newest."""
    return tuple(_catalogue())


def load_chip(name: str, *, where: str = "chip") -> Chip:
    """The chip of that name or alias, e.g. `tpu7x`, `ironwood`, `v5litepod`, `h100`.

    Args:
        name: Upper and lower case are the same.
        where: The key or flag it came from, for the error message.

    Raises:
        InputError: No chip has that name; the message gives the nearest.
    """
    chip = find_chip(name)
    if chip is None:
        names = chip_names()
        raise InputError(
            "unknown chip",
            where=where,
            value=name,
            expected=f"one of {', '.join(names)}",
            fix=nearest(name, names) or nearest(name, _by_any_name()) or "`ridgeline chips` lists them",
        )
    return chip


def find_chip(name: str) -> Chip | None:
    """The chip of that name or alias, or None: `NVIDIA H200-SXM-141GB` and `h200_sxm` are `h200`.

    Capitals, underscores, spaces and the maker in front make no difference.
    """
    key = "-".join(_BETWEEN_WORDS.split(name.strip().lower()))
    return _by_any_name().get(_MAKER.sub("", key))


def parse_shape(text: str) -> tuple[int, ...]:
    """Chips along each axis: `4x4x8` is (4, 4, 8). The text must be whole numbers joined by `x`."""
    return tuple(int(axis) for axis in text.split("x"))


@cache
def _catalogue() -> Mapping[str, Chip]:
    files = (resources.files("ridgeline.hardware") / "catalog").iterdir()
    chips = [_read_chip(file.read_text(encoding="utf-8")) for file in files if file.name.endswith(".toml")]
    chips.sort(key=lambda chip: (_VENDORS.index(chip.vendor), chip.announced, chip.name))
    return {chip.name: chip for chip in chips}


@cache
def _by_any_name() -> Mapping[str, Chip]:
    return {name: chip for chip in _catalogue().values() for name in (chip.name, *chip.aliases)}


def _read_chip(text: str) -> Chip:
    """A catalogue file as a `Chip`. The catalogue is ours, so a fault in it is a bug and may raise anything."""
    table = tomllib.loads(text)
    facts = dict(_facts(table))
    peaks = {key.removeprefix(_PEAK): fact.value for key, fact in facts.items() if key.startswith(_PEAK)}
    has_mxu = "mxu_rows" in facts
    return Chip(
        name=table["name"],
        title=table["title"],
        aliases=tuple(table["aliases"]),
        vendor=table["vendor"],
        announced=table["announced"],
        devices_per_chip=int(facts["devices_per_chip"].value),
        tensorcores_per_chip=_whole(facts, "tensorcores_per_chip"),
        chips_per_host=int(facts["chips_per_host"].value),
        peak_flops_per_s=peaks,
        hbm_bytes=facts["hbm_bytes"].value,
        usable_hbm_bytes=facts["usable_hbm_bytes"].value,
        hbm_bytes_per_s=facts["hbm_bytes_per_s"].value,
        vmem_bytes=_value(facts, "vmem_bytes"),
        vmem_bytes_per_s=_value(facts, "vmem_bytes_per_s"),
        smem_bytes=_value(facts, "smem_bytes"),
        mxu_shape=(int(facts["mxu_rows"].value), int(facts["mxu_columns"].value)) if has_mxu else None,
        mxus_per_device=_whole(facts, "mxus_per_device"),
        clock_cycles_per_s=_value(facts, "clock_cycles_per_s"),
        vpu=_read_vpu(facts) if "vpu" in table else None,
        host_ram_bytes=_value(facts, "host_ram_bytes"),
        pcie_bytes_per_s=_value(facts, "pcie_bytes_per_s"),
        torus=_read_torus(table["torus"], facts) if "torus" in table else None,
        switch=_read_switch(facts) if "switch" in table else None,
        network_bytes_per_s=facts["network_bytes_per_s"].value,
        network_latency_s=facts["network_latency_s"].value,
        prices=tuple(Price(**price) for price in table.get("prices", [])),
        facts=facts,
    )


def _facts(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Fact]]:
    """Every table that holds a `value`, under its dotted key."""
    for key, entry in table.items():
        if not isinstance(entry, dict):
            continue
        inner = cast("dict[str, Any]", entry)
        if "value" in inner:
            yield prefix + key, _read_fact(inner)
        else:
            yield from _facts(inner, f"{prefix}{key}.")


def _read_fact(table: Mapping[str, Any]) -> Fact:
    return Fact(value=float(table["value"]), kind=table["kind"], source=table["source"], note=table.get("note", ""))


def _read_torus(table: Mapping[str, Any], facts: Mapping[str, Fact]) -> Torus:
    return Torus(
        pod_shape=parse_shape(table["pod_shape"]),
        listed_shapes=tuple(parse_shape(shape) for shape in table["listed_shapes"]),
        wrap_rule=table["wrap_rule"],
        link_bytes_per_s=facts["torus.link_bytes_per_s"].value,
        hop_latency_s=facts["torus.hop_latency_s"].value,
        source=table["source"],
        core_link_bytes_per_s=_value(facts, "torus.core_link_bytes_per_s"),
    )


def _read_switch(facts: Mapping[str, Fact]) -> Switch:
    return Switch(
        domain_size=int(facts["switch.domain_size"].value),
        bytes_per_s=facts["switch.bytes_per_s"].value,
        latency_s=facts["switch.latency_s"].value,
        peer_bytes_per_s=_value(facts, "switch.peer_bytes_per_s"),
    )


def _read_vpu(facts: Mapping[str, Fact]) -> VectorUnit:
    return VectorUnit(
        num_sublanes=int(facts["vpu.sublanes"].value),
        num_lanes=int(facts["vpu.lanes"].value),
        num_alus_per_lane=_whole(facts, "vpu.alus_per_lane"),
        num_registers=_whole(facts, "vpu.registers"),
        flops_per_s=_value(facts, "vpu.flops_per_s"),
    )


def _value(facts: Mapping[str, Fact], key: str) -> float | None:
    return facts[key].value if key in facts else None


def _whole(facts: Mapping[str, Fact], key: str) -> int | None:
    return int(facts[key].value) if key in facts else None
