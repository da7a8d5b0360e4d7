"""What only a whole server shows of a chip: few, physical numbers beside those of its kernels.

A pass of decoding is many small kernels that each read a little memory: rates that large copies and large matmuls
reach say little of it. The numbers stand in `calibration/serving/`; what they are before a server was measured stands
here, by kind of chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.chip import ChipKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEfficiency:
    """Achieved fractions of a chip's peaks in passes of a server, and what passes cost beside.

    Attributes:
        weights: Fraction of HBM bandwidth at which matrices are read.
        experts: The same of experts, each a small matrix.
        balance: Mean load over that of the fullest device, where devices hold whole experts: it is waited for.
        cache: The same of the KV cache, by decode attention.
        arithmetic: What matmuls and attention keep of the rates that they reach alone.
        grouped: What experts' matmuls keep of that, beside what their short and uneven groups cost.
        widened: What a matmul keeps of that where its weights are stored narrower than it computes.
        link: Fraction of a link's one-way rate that collectives reach.
        kernel_s: Time of a kernel beside its work: launch out of a replayed program, first bytes, last ones.
        collective_s: Time of a collective beside what its bytes and its hops take.
        launch_s: Time in which a host launches a kernel of a pass that is not replayed: one that reads prompts.
        host_s: Time of a pass that no device works: the host schedules, feeds and fetches tokens.
        sequence_s: The same of each sequence of a rank that adds a token: sampled, put into words, sent.
        first_s: Time of a request outside passes until its first token is out: taken in, put into tokens, queued, sent.
    """

    weights: float
    experts: float
    balance: float
    cache: float
    arithmetic: float
    grouped: float
    widened: float
    link: float
    kernel_s: float
    collective_s: float
    launch_s: float
    host_s: float
    sequence_s: float
    first_s: float


LARGEST: Final[Mapping[str, float]] = MappingProxyType(
    {
        **dict.fromkeys(("weights", "experts", "balance", "cache", "grouped", "widened", "link"), 1.0),
        "arithmetic": 1.3,
        **dict.fromkeys(("kernel_s", "collective_s", "launch_s", "sequence_s"), 1e-3),
        "host_s": 0.1,
        "first_s": 1.0,
    }
)
"""What no efficiency exceeds, by key; kernels that were timed alone need not have been the best."""

LEAST_FRACTION: Final = 1e-3
"""What every fraction of a peak reaches: an assumption, a hundredth of the lowest that was measured."""

MOST_FACTOR: Final = 1e3
"""By which a chip or an engine differs at most from what all have in common, up or down: an assumption alike."""

PRIORS: Final[Mapping[ChipKind, ServingEfficiency]] = {
    "GPU": ServingEfficiency(
        weights=0.85,
        experts=0.75,
        balance=0.75,
        cache=0.75,
        arithmetic=0.85,
        grouped=0.85,
        widened=0.7,
        link=0.8,
        kernel_s=2e-6,
        collective_s=4e-6,
        launch_s=20e-6,
        host_s=1e-3,
        sequence_s=8e-6,
        first_s=0.04,
    ),
    "TPU": ServingEfficiency(
        weights=0.85,
        experts=0.75,
        balance=0.75,
        cache=0.75,
        arithmetic=0.9,
        grouped=0.95,
        widened=0.8,
        link=0.85,
        kernel_s=1.5e-6,
        collective_s=2e-6,
        launch_s=1e-8,
        host_s=2e-3,
        sequence_s=5e-6,
        first_s=0.04,
    ),
}
"""Assumptions: large copies reach 0.9, the shortest kernels take 1.8 µs, engines schedule ahead, PyTorch launches a
kernel in some microseconds, and XLA's programs are launched whole."""
