"""How much longer attention takes in a program other than the fastest known on a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import AttentionProgram

_SLOWER: Final[Mapping[tuple[str, str], tuple[float, float]]] = {
    ("h100", "flash"): (1.66, 1.30),
    ("h200", "flash"): (1.66, 1.30),
}
"""Time over that of the calibrated kernel, forward and backward, by chip and program: kernels that do not use Hopper's
asynchronous copies and warp groups. Geometric means over causal shapes of head dim 128, 2,048 to 16,384 tokens; h200 as
h100, the same units.
Source: https://github.com/openxla/tokamax (783ea957, tokamax/data/autotuning/nvidia_h100_80gb_hbm3): the best
`pallas_triton_flash_attention` over the best `pallas_mosaic_gpu_flash_attention`."""


def slower_ratios(chip_name: str, program: AttentionProgram | None) -> tuple[float, float]:
    """Time of a program over the calibrated one's, forward and backward; 1 where nothing is known.

    >>> slower_ratios("h100", "flash"), slower_ratios("h100", None)
    ((1.66, 1.3), (1.0, 1.0))
    """
    return _SLOWER.get((chip_name, program or ""), (1.0, 1.0))
