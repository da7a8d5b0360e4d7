"""A chip: what one accelerator can do, every number with its source.

Numbers are per *chip* (TPU) or per GPU unless the name says otherwise; `devices_per_chip` divides
them among JAX devices (TPU7x and v3 have two a chip). Peaks are dense, never sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Vendor: TypeAlias = Literal["google", "nvidia", "amd"]
ChipKind: TypeAlias = Literal["TPU", "GPU"]
FactKind: TypeAlias = Literal["published", "measured", "derived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One sourced number of the catalogue.

    Attributes:
        value: In the base unit that ends its key.
        kind: `published` by the vendor, `measured` by someone, or `derived` (the note shows how).
        source: Address or document, with the date it was read where known.
        note: Derivation, condition, or what else is claimed elsewhere.
    """

    value: float
    kind: FactKind
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    """The inter-chip interconnect of a TPU.

    Attributes:
        pod_shape: Chips along each axis of the largest slice: two numbers for a 2D torus, three for a 3D one.
        listed_shapes: The legal slice shapes, except that a `cube` torus may also be any block of whole
            4x4x4 cubes up to the pod's count.
        wrap_rule: `cube` — every axis wraps iff all are multiples of 4 (v4, v5p, TPU7x);
            `full_axis` — an axis wraps iff it is as long as the pod's (16 on v5e and v6e, 32 on v3).
        link_bytes_per_s: One link, one way. An axis has two links a chip (one when the axis is 2 long).
        hop_latency_s: Time for the first byte to cross one link.
        source: Where shapes and wrap rule come from.
        core_link_bytes_per_s: Between the devices of one chip, one way (TPU7x's chiplets, v3's cores);
            None where a chip is one device.
    """

    pod_shape: tuple[int, ...]
    listed_shapes: tuple[tuple[int, ...], ...]
    wrap_rule: Literal["cube", "full_axis"]
    link_bytes_per_s: float
    hop_latency_s: float
    source: str
    core_link_bytes_per_s: float | None = None

    @property
    def dimensions(self) -> int:
        """Torus axes: 2 or 3."""
        return len(self.pod_shape)

    @property
    def bytes_per_s(self) -> float:
        """Per chip, one way, over all its links: two for each axis."""
        return 2 * self.dimensions * self.link_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The scale-up network of GPUs: every GPU of a domain reaches every other at full rate.

    Attributes:
        domain_size: GPUs joined by it (8 in an HGX box, 72 in an NVL72 rack).
        bytes_per_s: Per GPU, one way, when the whole domain takes part.
        latency_s: Per collective step.
        peer_bytes_per_s: One pair, one way, where GPUs are wired in a full mesh instead of through a
            switch (MI300X): `n` GPUs then reach `(n - 1)` times this. None with a real switch.
    """

    domain_size: int
    bytes_per_s: float
    latency_s: float
    peer_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorUnit:
    """The vector unit (VPU) of a TensorCore.

    Attributes:
        num_sublanes: Rows of a vector register.
        num_lanes: Columns of a vector register.
        num_alus_per_lane: Arithmetic units of each pair of a lane and a sublane; None when not known.
        num_registers: Vector registers; None when not known.
        flops_per_s: f32 rate of all vector units of a chip; None when not known.
    """

    num_sublanes: int
    num_lanes: int
    num_alus_per_lane: int | None
    num_registers: int | None
    flops_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A list price of one chip for one hour.

    Attributes:
        usd_per_chip_hour: In US dollars.
        term: `on_demand`, `spot`, `flex_start`, `commit_1y`, `commit_3y`.
        provider: The cloud.
        region: As the provider names it.
        date: When it was read (ISO), or "unknown".
        source: Where it was read.
    """

    usd_per_chip_hour: float
    term: str
    provider: str
    region: str
    date: str
    source: str

    @property
    def date_in_words(self) -> str:
        """The date; "undated" where the source has none."""
        return "undated" if self.date == "unknown" else self.date

    @property
    def in_words(self) -> str:
        """The price with its term, place and date."""
        place = f"{self.provider} {self.region}".strip()
        words = (f"${self.usd_per_chip_hour:g} a chip-hour", self.term.replace("_", " "), place, self.date_in_words)
        return ", ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """What one accelerator can do.

    Attributes:
        name: The catalogue name, e.g. `tpu7x`, `v5e`, `h100`.
        title: The vendor's name.
        aliases: Other names it answers to.
        vendor: Who makes it.
        announced: Year and month, e.g. `2025-04`.
        devices_per_chip: JAX devices.
        tensorcores_per_chip: What the number in a cloud name such as `v5p-512` counts; None for GPUs.
        chips_per_host: Chips one host machine drives.
        peak_flops_per_s: Dense matmul peak by dtype (`bf16`, `fp8`, `int8`, …); a dtype the chip has no
            faster path for is absent, never zero.
        hbm_bytes: Memory, as the vendor documents it.
        usable_hbm_bytes: What a program may allocate (the runtime keeps the rest).
        hbm_bytes_per_s: Peak memory bandwidth.
        vmem_bytes: On-chip vector memory of one device; None for GPUs.
        vmem_bytes_per_s: Between vector memory and arithmetic units, all devices together; None when not known.
        smem_bytes: Scalar memory of one device; None for GPUs.
        mxu_shape: Rows and columns of one matrix unit; None for GPUs.
        mxus_per_device: Matrix units in one device; None for GPUs.
        clock_cycles_per_s: Of the TensorCore; None for GPUs, and where what is published contradicts itself.
        vpu: The vector unit; None for GPUs.
        host_ram_bytes: RAM of one host; None when not known.
        pcie_bytes_per_s: Host to chip, one way; None when not known.
        torus: ICI, for TPUs.
        switch: NVLink or Infinity Fabric, for GPUs.
        network_bytes_per_s: Per chip, one way: DCN (TPU) or InfiniBand/RoCE (GPU).
        network_latency_s: Per collective step over that network.
        prices: List prices, the one to plan with first; empty when none is public.
        facts: Every number above by its catalogue key, with its source.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    vendor: Vendor
    announced: str
    devices_per_chip: int
    tensorcores_per_chip: int | None
    chips_per_host: int
    peak_flops_per_s: Mapping[str, float]
    hbm_bytes: float
    usable_hbm_bytes: float
    hbm_bytes_per_s: float
    vmem_bytes: float | None
    vmem_bytes_per_s: float | None
    smem_bytes: float | None
    mxu_shape: tuple[int, int] | None
    mxus_per_device: int | None
    clock_cycles_per_s: float | None
    vpu: VectorUnit | None
    host_ram_bytes: float | None
    pcie_bytes_per_s: float | None
    torus: Torus | None
    switch: Switch | None
    network_bytes_per_s: float
    network_latency_s: float
    prices: tuple[Price, ...]
    facts: Mapping[str, Fact]

    @property
    def kind(self) -> ChipKind:
        """Chips that a torus joins are TPUs."""
        return "GPU" if self.torus is None else "TPU"

    @property
    def vector_flops_per_s(self) -> float | None:
        """f32 rate outside the matrix units: a TPU's vector units, a GPU's scalar cores; None when not known."""
        return self.peak_flops_per_s.get("f32") if self.vpu is None else self.vpu.flops_per_s

    @property
    def hbm_flops_per_byte(self) -> float:
        """bf16 FLOPs in the time one byte comes from HBM; a matmul with fewer is bound by memory."""
        return self.peak_flops_per_s["bf16"] / self.hbm_bytes_per_s

    @property
    def link_flops_per_byte(self) -> float:
        """bf16 FLOPs in the time one byte arrives over one wrapped torus axis (two links), or over NVLink."""
        if self.torus is not None:
            return self.peak_flops_per_s["bf16"] / (2 * self.torus.link_bytes_per_s)
        return self.peak_flops_per_s["bf16"] / self.switch.bytes_per_s if self.switch is not None else float("nan")

    @property
    def network_flops_per_byte(self) -> float:
        """bf16 FLOPs in the time one byte arrives over the data-centre network."""
        return self.peak_flops_per_s["bf16"] / self.network_bytes_per_s
