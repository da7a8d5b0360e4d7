"""A measured kernel: what it computed, on which chip, and how long it took."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Kernel: TypeAlias = Literal["matmul", "grouped_matmul", "attention", "loss", "gated_unit", "normalization"]
"""`loss` is a projection on the vocabulary with the softmax cross entropy behind it; `gated_unit` is
activation(x·W₁) · (x·W₂); `grouped_matmul` multiplies ragged groups of rows with a matrix each."""

_HELD_OUT_OF = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """The time of one kernel, by the fastest program and tiles that were tried.

    Attributes:
        chip: Name in the catalogue; times are those of one JAX device.
        kernel: What it is.
        variant: Of a grouped matmul the product (`cost.kernel_time.Product`), of a matmul the dtype, else
            `forward` or `backward`.
        sizes: By letter. B rows, D contracted, F output width (of a loss: vocabulary), E groups that have rows;
            of attention B sequences, T queries, S keys, N and K heads, H and V widths of a key and a value,
            `causal` 1 or 0, and where they are told the queries and keys of a tile, `tile_q` and `tile_kv`; of a
            normalization `elements` and `passes` (arrays read and written).
        measured_s: Median.
        program: That was fastest.
        source: Where the time was published.
    """

    chip: str
    kernel: Kernel
    variant: str
    sizes: Mapping[str, float]
    measured_s: float
    program: str
    source: str

    @property
    def question(self) -> str:
        """What was asked, without the chip and the answer."""
        asked = (item for item in sorted(self.sizes.items()) if not item[0].startswith("tile"))
        sizes = " ".join(f"{letter}={size:g}" for letter, size in asked)
        return f"{self.kernel} {self.variant} {sizes}"

    @property
    def is_held_out(self) -> bool:
        """Whether no fit sees it: a third of the questions, by their hash; a question is held out on every chip."""
        return hashlib.sha256(self.question.encode()).digest()[0] % _HELD_OUT_OF == 0


def fastest(times: Iterable[KernelTime]) -> tuple[KernelTime, ...]:
    """The shortest time of each question on each chip: an untuned kernel may take ten times as long."""
    best: dict[tuple[str, str], KernelTime] = {}
    for time in times:
        key = (time.chip, time.question)
        if key not in best or time.measured_s < best[key].measured_s:
            best[key] = time
    return tuple(best[key] for key in sorted(best))
