"""How `trtllm-bench throughput` runs a server of which its user says no more than mesh, lengths and number of requests.

It sets the most sequences and the most tokens of a pass from the memory that the weights leave, and replays passes that
decode as programs of a few sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from ridgeline.model.operations import Attention
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.chip import Chip
    from ridgeline.model.spec import ModelSpec

CACHE_SHARE: Final = 0.95
"""Of the memory that weights leave. Source: TensorRT-LLM v1.0, performance overview, how its tables are made."""

SAMPLER_BYTES: Final = 30.0
"""Of each logit of the most sequences of a rank: as the head yields it, 2; in f32, 4, and once more where it is worked
on, 4; to sort, tokens in order, 4, probabilities and tokens sorted, 8, and as much for the sort itself, 8.
Source: TensorRT-LLM v1.0 and v1.1, whose C++ sampler is the default (pull request 6216): `LogitsProcessor`,
`DecodingLayerWorkspace`, `getTopPWorkspaceSizes`; CUB, `DeviceSegmentedRadixSort::SortPairsDescending`."""

_GRAPH_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192)
"""Source: the same, `cuda_graph_config`."""

NUM_REQUESTS: Final[Mapping[tuple[int, int], int]] = {
    (128, 128): 30_000,
    (128, 2048): 3_000,
    (128, 4096): 1_500,
    (500, 2000): 3_000,
    (1000, 1000): 3_000,
    (1000, 2000): 1_500,
    (2048, 128): 3_000,
    (2048, 2048): 1_500,
    (5000, 500): 1_500,
    (20000, 2000): 1_000,
    (1024, 1024): 3_000,
    (1024, 8192): 1_500,
    (1024, 32768): 1_000,
    (8192, 1024): 1_500,
    (32768, 1024): 1_000,
}
"""Requests of a run, by tokens in and out. Source: TensorRT-LLM v1.0 and v1.1, performance overview."""

_MOST_SEQUENCES: Final = 4096
_MOST_TOKENS: Final = 32768
_FEWEST_TOKENS: Final = 2048
_SEQUENCE_STEPS: Final = ((256, 32), (1024, 128), (_MOST_SEQUENCES + 1, 256))
_TOKEN_STEPS: Final = ((4096, 256), (8192, 512), (_MOST_TOKENS + 1, 1024))
"""Below so many, rounded up to multiples. Source: TensorRT-LLM v1.0, `bench/build/tuning.py`."""

_FEWEST_SEQUENCES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLimits:
    """What the benchmark gives its engine.

    Attributes:
        max_sequences: That a rank holds at once.
        pass_tokens: Most tokens of a pass of a rank.
    """

    max_sequences: int
    pass_tokens: int


def bench_limits(*, requests_in_memory: float, prompt_tokens: int, reply_tokens: int) -> BenchLimits:
    """Sequences as many as memory is thought to have room for, and tokens as many as come with a pass of those.

    Prompts are read whole: a pass has room for one beside the sequences.

    Source: TensorRT-LLM v1.0, `finetune_setting` and `get_settings` of `trtllm-bench`.

    >>> bench_limits(requests_in_memory=320.0, prompt_tokens=1000, reply_tokens=2000)
    BenchLimits(max_sequences=384, pass_tokens=2048)
    """
    sequences = min(requests_in_memory, _MOST_SEQUENCES)
    tokens = min(sequences * (1 + prompt_tokens / reply_tokens), _MOST_TOKENS)
    most = max(_rounded_up(sequences, _SEQUENCE_STEPS), _FEWEST_SEQUENCES)
    pass_tokens = max(_rounded_up(tokens, _TOKEN_STEPS), _FEWEST_TOKENS, prompt_tokens + most)
    return BenchLimits(max_sequences=most, pass_tokens=pass_tokens)


def graph_sizes(limits: BenchLimits) -> tuple[int, ...]:
    """Sequences for which passes are replayed: those listed, and the most there can be.

    Source: TensorRT-LLM v1.0, `_filter_cuda_graph_batch_sizes`.

    >>> graph_sizes(BenchLimits(max_sequences=640, pass_tokens=2048))[-3:]
    (384, 512, 640)
    """
    most = min(limits.max_sequences, limits.pass_tokens)
    return (*(size for size in _GRAPH_SIZES if size < most), most)


def requests_in_memory(
    model: ModelSpec, chip: Chip, *, mesh: Mapping[str, int], tokens: int, bytes_each: float
) -> float:
    """Requests that the benchmark thinks to have room for: every layer caches all tokens of all heads.

    Args:
        model: It.
        chip: Of which there are as many as the mesh's degrees together.
        mesh: Degrees by axis.
        tokens: Of a prompt and its reply.
        bytes_each: Of an element of the weights; the cache has one byte, or the weights' two.
    """
    gpus = 1
    for degree in mesh.values():
        gpus *= degree
    ways = gpus // mesh.get("pp", 1)
    tree = model_tree(model)
    attentions = [
        (operation, layer.count)
        for layer in tree.layers
        for block in layer.blocks
        for operation in block.operations
        if isinstance(operation, Attention)
    ]
    cached = sum(
        count * max(ways, operation.num_kv_heads) * (operation.qk_head_dim + operation.v_head_dim)
        for operation, count in attentions
    )
    weights_bytes = float(count_parameters(tree).text) * bytes_each
    free_bytes = (gpus * chip.hbm_bytes - weights_bytes) * CACHE_SHARE
    return free_bytes / (tokens * cached * max(bytes_each, 1.0))


def _rounded_up(value: float, steps: tuple[tuple[int, int], ...]) -> int:
    multiple = next(size for below, size in steps if value < below)
    return multiple * ceil(value / multiple)
