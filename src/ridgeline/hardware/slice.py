"""A slice: chips wired together, as the cost model sees them.

The wiring is a tuple of physical axes. A TPU slice has its torus axes and, on TPU7x, the
core-on-chip axis; a GPU cluster has a switched `nvlink` axis and a switched `network` axis; several
TPU slices are joined by a switched `dcn` axis. Parsing of names lives in `topology.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.chip import Chip

Wiring: TypeAlias = Literal["ring", "line", "switch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalAxis:
    """One physical direction in which devices are joined.

    Attributes:
        name: `x`, `y`, `z`, `core`, `nvlink`, `network` or `dcn`.
        size: Devices (or slices, for `dcn`) along it.
        wiring: `ring` (wraparound), `line` (none), or `switch` (all to all at full rate).
        bytes_per_s: One way. Ring and line: of one link, of which a chip has two (one at the ends of a
            line). Switch: of one member (a device; for `dcn`, one chip's share of its host's network).
        latency_s: Of one hop, or of one step through the switch.
        sharers: Devices that share those links: JAX devices per chip on TPU torus axes, else 1.
    """

    name: str
    size: int
    wiring: Wiring
    bytes_per_s: float
    latency_s: float
    sharers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Chips wired together: `tpu7x:4x4x4`, `2*v5e:16x16`, `h100:64`.

    Attributes:
        chip: What each is.
        shape: Chips along each torus axis; one number for GPUs.
        num_slices: TPU slices joined by DCN; 1 for GPUs.
        axes: Physical axes inside one slice, TPU torus axes in order, then `core`.
        dcn: The axis that joins slices; None when there is one slice.
    """

    chip: Chip
    shape: tuple[int, ...]
    num_slices: int
    axes: tuple[PhysicalAxis, ...]
    dcn: PhysicalAxis | None = None

    @property
    def name(self) -> str:
        """The canonical name, which parses back to this slice."""
        body = f"{self.chip.name}:{'x'.join(map(str, self.shape))}"
        return body if self.num_slices == 1 else f"{self.num_slices}*{body}"

    @property
    def num_chips(self) -> int:
        """Chips in all slices."""
        return self.num_slices * prod(self.shape)

    @property
    def devices_per_slice(self) -> int:
        """JAX devices in one slice."""
        return prod(self.shape) * self.chip.devices_per_chip

    @property
    def num_devices(self) -> int:
        """JAX devices in all slices."""
        return self.num_slices * self.devices_per_slice

    @property
    def num_hosts(self) -> int:
        """Host machines in all slices (a slice smaller than a host still takes one)."""
        return self.num_slices * -(-prod(self.shape) // self.chip.chips_per_host)

    @property
    def peak_flops_per_s(self) -> Mapping[str, float]:
        """Dense peak of all chips by dtype."""
        return {dtype: self.num_chips * peak for dtype, peak in self.chip.peak_flops_per_s.items()}

    @property
    def hbm_bytes(self) -> float:
        """Memory of all chips."""
        return self.num_chips * self.chip.hbm_bytes

    @property
    def usable_hbm_bytes(self) -> float:
        """What programs may allocate on all chips."""
        return self.num_chips * self.chip.usable_hbm_bytes

    @property
    def hbm_bytes_per_s(self) -> float:
        """Memory bandwidth of all chips."""
        return self.num_chips * self.chip.hbm_bytes_per_s

    @property
    def usd_per_hour(self) -> float | None:
        """All chips at the price to plan with; None without a public one."""
        return self.num_chips * self.chip.prices[0].usd_per_chip_hour if self.chip.prices else None
