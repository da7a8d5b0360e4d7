"""How much longer attention takes in a program other than the fastest known on a chip.

T    queries      S    keys      N    query heads      b_a  bytes of an element
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.work import Number
    from ridgeline.job.job import AttentionProgram

_FIRST_GENERATION: Final = 1.4
"""Time of the first fused attention, as written in Triton, over FlashAttention-2's on the same chip: 1.3 to 1.5 times.
Source: Dao, FlashAttention-2, arXiv:2307.08691, section 4.1."""

_FIRST_GENERATION_BACKWARD: Final = 1.8
"""The same of backward passes: FlashAttention-2 is 1.3 to 2.5 times as fast as Triton's, forward at the lower end.
Geometric mean of the range. Source: as above."""

_HOPPER_BACKWARD: Final = 1.6
"""Time of FlashAttention-2's backward pass over one with asynchronous copies and warp groups: 1.5 to 1.75 times.
Source: Shah et al., FlashAttention-3, arXiv:2407.08608, section 4.1."""

_UNFUSED: Final = 1.3
"""Time of a backward pass in two kernels, one for dK and dV, one for dQ, over one kernel's.

It has 7 products instead of 5, and begins every tile twice. Measured over forward on v6e: 38.7/18.2 of JAX's splash,
40.1/24.5 of tokamax's.
Source: yxanul/yxTPU (183bdc5, results/RESULTS.md, 2026-07-20)."""

_HOPPER: Final = ("h100", "h100-pcie", "h100-nvl", "h20", "gh200-96gb", "gh200-144gb", "h200")

_SLOWER: Final[Mapping[tuple[str, str], tuple[float, float]]] = {
    **{(chip, "flash"): (1.66 * _FIRST_GENERATION, _HOPPER_BACKWARD * _FIRST_GENERATION_BACKWARD) for chip in _HOPPER},
    **{(chip, "flash"): (1.0, _UNFUSED) for chip in ("v3", "v4", "v5e", "v5p", "v6e", "tpu7x")},
}
"""Time over that of the calibrated kernel, forward and backward, by chip and program.

On TPUs `flash` is JAX's splash as MaxText runs it by default, its backward pass in two kernels. On GPUs it is
FlashAttention's first generation, in Triton. On Hopper no such kernel uses asynchronous copies and warp groups:
forward the geometric mean over causal shapes of head dim 128, 2,048 to 16,384 tokens; the others as h100, whose units
they have.
Source: https://github.com/openxla/tokamax (783ea957, tokamax/data/autotuning/nvidia_h100_80gb_hbm3): the best
`pallas_triton_flash_attention` over the best `pallas_mosaic_gpu_flash_attention`."""

_SPLASH_TILE_START: Final = 0.82
"""Time that splash takes to start a tile, which training runs, over what tokamax's flash attention takes, on v5p.

A head of 2 by 8,192 queries and keys in tiles of 512, a window of 1,024: 73.6 us forward, the slope between 16 and 88
heads. Computed are 1,472 keys of a query; the fraction of the peak and the start of a row are those of the calibration.
Source: apple/axlearn (c40b39a5, axlearn/common/flash_attention/tpu_attention_benchmark.py, 2025-01-07); derived."""

_TIMED_FLASH: Final = frozenset({"v3", "v4", "v5e", "v5p"})
"""v5p, whose attention was timed in tokamax's flash attention alone, and the chips that borrow its times."""


def tile_start_ratio(chip_name: str) -> float:
    """Time that the attention of a training step takes to start a tile, over the calibrated kernel's; 1 if not known.

    >>> tile_start_ratio("v5p"), tile_start_ratio("tpu7x")
    (0.82, 1.0)
    """
    return _SPLASH_TILE_START if chip_name in _TIMED_FLASH else 1.0


SCORE_PASSES: Final = (6, 9)
"""Reads and writes of all scores where no kernel fuses attention on a GPU, forward and backward.

Forward: the product writes them; scale, mask and softmax read and write; dropout too; the second product reads.
Backward: probabilities read, their gradient written; dropout and softmax backward read and write (two, and three);
two products read.
Source: derived; Megatron-LM's fused scale-mask-softmax kernel (arXiv:2104.04473, section 4.2) leaves these.
"""


COMPILED_SCORE_PASSES: Final = (4, 8)
"""The same on a TPU, where XLA fuses what is elementwise into the product or the reduction beside it.

Forward: the product writes them, masked; the maximum, the sum of exponentials and the second product read.
Backward: their gradient written, then read with them for the sum of each row, and by the products of dQ and dK; the
product of dV reads them once more. No dropout.
Source: derived; XLA fuses producers into dots and reductions, and never one dot with another.
"""


def score_passes(*, is_compiled: bool) -> tuple[int, int]:
    """Reads and writes of all scores, forward and backward, where a compiler fuses passes or kernels are apart.

    >>> score_passes(is_compiled=True), score_passes(is_compiled=False)
    ((4, 8), (6, 9))
    """
    return COMPILED_SCORE_PASSES if is_compiled else SCORE_PASSES


def slower_ratios(chip_name: str, program: AttentionProgram | None) -> tuple[float, float]:
    """Time of a program over the calibrated one's, forward and backward; 1 where nothing is known.

    >>> slower_ratios("a100-80gb", "flash"), slower_ratios("h100", None)  # A100's own times are of Triton's kernels
    ((1.0, 1.0), (1.0, 1.0))
    """
    return _SLOWER.get((chip_name, program or ""), (1.0, 1.0))


def narrow_attention_ratio(*, reached_share: float, peaks_ratio: float) -> float:
    """Time of attention whose products are in a narrower dtype, over that of the same kernel in the compute dtype.

    Arithmetic at the full rate of the peak takes as much of the kernel's time as it reaches of the peak; that part
    shrinks as the peaks are apart. The rest stays: exponentials, conversions, tiles that wait for each other.

    Formula: reached_share / peaks_ratio + (1 − reached_share)

    Assumes: exponentials are no faster, as they take place in f32.

    Source: derived.

    >>> [narrow_attention_ratio(reached_share=0.5, peaks_ratio=ratio) for ratio in (1.0, 2.0)]
    [1.0, 0.75]
    """
    return reached_share / peaks_ratio + (1.0 - reached_share)


def scores_traffic_bytes(*, T: Number, S: Number, N: Number, b_a: float, num_passes: int) -> Number:
    """Traffic of attention that writes its scores to memory, masked ones too.

    Formula: num_passes · T · S · N · b_a

    Source: derived; see SCORE_PASSES.

    >>> scores_traffic_bytes(T=4.0, S=8.0, N=2.0, b_a=2.0, num_passes=6)
    768.0
    """
    return num_passes * T * S * N * b_a
