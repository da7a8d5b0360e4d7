"""One device that serves: what it holds and what it computes in a pass of prefill or of decode.

    memory = weights + KV cache + one layer's intermediates + logits of the last tokens
    FLOPs  = matmuls of every token at hand + its scores against the keys that the program visits

Weights are stationary: split over tensor and expert axes alone, whole along the batch axes. Key-value heads are split
as far as they reach; beyond that devices hold copies, of the heads' weights and of their cache. Over `tp_transpose` the
other dimension of each matrix is split too, and between the matrices of a block the sequences are. Stages of a pipeline
hold their layers alone, and work on sequences of their own at a time.

B  sequences of a device     T  tokens of each in the cache     Y  ways of tensor parallelism     K  key-value heads
b_w, b_kv, b_a  bytes of a weight, a cached element and an activation
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING

from ridgeline.cost.columns import MESH_AXES_OF, TENSOR_AXES
from ridgeline.cost.kernel_time import computed_keys
from ridgeline.cost.laws.memory import weight_bytes
from ridgeline.cost.serving.requests import like
from ridgeline.cost.training.held_weights import step_weights
from ridgeline.cost.training.memory import MemoryColumns
from ridgeline.cost.training.step import embed_dim
from ridgeline.cost.work import Number, larger, smaller
from ridgeline.job.job import BYTES_OF, RANK_AXES, TRANSPOSE_AXIS
from ridgeline.model.accounting import (
    forward_flops_per_token,
    keys_read,
    named_outputs,
    operations,
    scores_flops_per_token,
)
from ridgeline.model.flops import attention_flops
from ridgeline.model.operations import Attention, ExpertMatmul, Matmul
from ridgeline.model.spec import INT4_GROUP_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.serving.requests import RequestLengths
    from ridgeline.job.job import Dtype
    from ridgeline.job.serving import Phase, ServingDtypes
    from ridgeline.model.operations import ModelTree

LANES = 128
"""Elements of a row of a TPU's memory: the minor dimension of its tiles."""

FEED_FORWARD = ("experts", "mlp")
"""Logical axes of experts and MLPs."""

CONVERTED_DTYPES = ("fp8", "fp4", "mxfp4", "int4")
"""Dtypes of checkpoints that tools converted: these leave the embedding and the head in bf16."""

SCALED_BLOCKS = {"fp4": 16, "mxfp4": 32}
"""Elements that share a scale of one byte.

Source: NVFP4: docs.nvidia.com, Transformer Engine, NVFP4BlockScaling; MXFP4: OCP Microscaling Formats (MX), v1.0, 5.2.
"""

INT4_SCALE_BYTES = BYTES_OF["bf16"] + BYTES_OF["int4"]
"""Bytes of a group's scale, and of its zero point of 4 bits.

Source: vLLM 0.32.0, layers/quantization/awq.py, gptq.py: `scales` in the dtype of activations, `qzeros` packed as
weights are. Symmetric compressed-tensors have no zero point: 0.8% less at groups of 128.
"""

SCALE_BYTES = BYTES_OF["f32"]
"""Bytes of the scale of one head and token in an 8-bit cache."""


TRANSPOSED = ("embed", "embed_moe", "q_lora", "kv_lora")
"""Logical axes of weights that `tp_transpose` splits: the sides of matrices that tensor parallelism leaves whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSetting:
    """What every plan of a server shares.

    Attributes:
        tree: The model's operations.
        dtypes: Of weights, of the KV cache, and of what is computed.
        context_len: Tokens of a sequence that the cache has room for.
        prompt_len: Tokens of a prompt.
        row_elements: Elements of a row of memory, which a head fills or leaves empty: `LANES` on a TPU.
        requests: Lengths of requests where they differ; None for prompts and contexts as long as these.
        scaled_caches: Dtypes of a KV cache that has a scale for each head and token. Engines have one for a whole
            tensor of fp8 (vLLM 0.32.0, docs/features/quantization/quantized_kvcache.md).
        int4_group_size: Weights of int4 that share a scale.
        keeps_wide_vocabulary: Whether the embedding and the head are in bf16 beside weights of int8 too, as published
            checkpoints have them; engines that narrow weights themselves (JetStream) narrow these as well.
    """

    tree: ModelTree
    dtypes: ServingDtypes
    context_len: int
    prompt_len: int
    row_elements: int = 1
    requests: RequestLengths | None = None
    scaled_caches: tuple[Dtype, ...] = ("int8",)
    int4_group_size: int = INT4_GROUP_SIZE
    keeps_wide_vocabulary: bool = False

    @property
    def lengths(self) -> RequestLengths:
        """Lengths of requests, on average."""
        return self.requests or like(prompt_tokens=self.prompt_len, reply_tokens=self.context_len - self.prompt_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseColumns:
    """The choices of one plan for a phase, or of many.

    Attributes:
        degrees: Mesh axis to its degree; an axis that is absent is 1.
        batch_size: Sequences of a pass, on all devices.
        links: Group of `placement.GROUPS` to its wiring; empty where nothing is timed.
        cache_spread_share: 1 where devices beyond the key-value heads share out sequences, or the tokens of one,
            instead of holding copies of their cache.
    """

    degrees: Mapping[str, Number]
    batch_size: Number
    links: Mapping[str, Link] = field(default_factory=dict[str, "Link"])
    cache_spread_share: Number = 0.0

    def degree(self, axes: Iterable[str]) -> Number:
        """Product of the degrees of several axes."""
        total: Number = 1.0
        for axis in axes:
            total = total * self.degrees.get(axis, 1.0)
        return total

    @property
    def tensor(self) -> Number:
        """Ways in which heads, MLP width and vocabulary are split."""
        return self.degree(TENSOR_AXES)

    @property
    def transpose_degree(self) -> Number:
        """Ways in which the other dimension of matrices is split, and between them the sequences of a rank."""
        return self.degree((TRANSPOSE_AXIS,))

    @property
    def stages(self) -> Number:
        """Stages of a pipeline."""
        return self.degree(("pp",))

    @property
    def rank_degree(self) -> Number:
        """Sets of devices, or of turns, that have sequences of their own."""
        return self.degree(RANK_AXES)

    def cache_shards(self, num_heads: float) -> Number:
        """Ways in which the cache of so many heads is split: by heads, over `cp`, and spread if it is."""
        heads = kv_head_shards(K=num_heads, Y=self.tensor)
        spread = 1.0 + self.cache_spread_share * (self.tensor / heads - 1.0)
        return heads * spread * self.degree(("cp",))

    @property
    def sequences_size(self) -> Number:
        """Sequences of a rank."""
        return self.batch_size / self.rank_degree

    @property
    def cached_sequences_size(self) -> Number:
        """Sequences whose caches a device holds a part of, in all layers; in a pipeline, more of them in fewer."""
        return self.sequences_size / self.transpose_degree


def kv_head_shards(*, K: Number, Y: Number) -> Number:
    """Ways in which key-value heads are split; the other Y / min(K, Y) devices hold copies.

    Formula: min(K, Y)

    Assumes: one of the two divides the other.

    Source: Pope et al., Efficiently Scaling Transformer Inference (arXiv:2211.05102), section 3.3: a single
        key-value head is replicated on every chip.

    >>> kv_head_shards(K=8, Y=4), kv_head_shards(K=8, Y=32)
    (4, 8)
    """
    return smaller(K, Y)


def padded_elements(*, H: float, row_elements: int) -> float:
    """Elements that a head of one token takes in memory, whose rows are of one length.

    Formula: row_elements · ⌈H / row_elements⌉

    Source: the TPU compiler: a cache with heads of 64 is as large as one with heads of 128 (libtpu 0.0.50.1).

    >>> padded_elements(H=576, row_elements=128), padded_elements(H=576, row_elements=1)
    (640, 576)
    """
    return row_elements * ceil(H / row_elements)


def layer_cache_bytes(*, B: Number, T: Number, token_elements: float, shards: Number, b_kv: float = 2.0) -> Number:
    """KV cache of one layer on a device; a token's elements are 2·K·H where keys and values are equally wide.

    Formula: b_kv · B · T · token_elements / shards

    Source: Scaling Book, ch. 7: 2 · bytes · B · T · K · H of a layer.

    >>> layer_cache_bytes(B=32, T=2048, token_elements=2 * 8 * 128, shards=4)
    67108864.0
    """
    return B * T * token_elements * b_kv / shards


def layer_scale_bytes(*, B: Number, T: Number, num_scales: float, shards: Number) -> Number:
    """Scales of an 8-bit cache of one layer on a device, in f32: of a token, 2·K, or 1 of a latent.

    Formula: 4 · B · T · num_scales / shards

    Source: our program: a scale for the key and the value of every head of every token.

    >>> layer_scale_bytes(B=32, T=2048, num_scales=2 * 8, shards=4)
    1048576.0
    """
    return SCALE_BYTES * B * T * num_scales / shards


def last_logits_bytes(*, B: Number, V: float, Y: Number, b_a: float = 2.0) -> Number:
    """Logits of the token that follows each sequence, on a device.

    Formula: b_a · B · V / Y

    Source: our program: a pass returns the logits of one token of each sequence.

    >>> last_logits_bytes(B=32, V=128256, Y=4)
    2052096.0
    """
    return B * V * b_a / Y


def serving_memory(setting: ServingSetting, columns: PhaseColumns, phase: Phase) -> MemoryColumns:
    """Memory of a device in a phase, by part; the cache is that of the phase's own sequences."""
    tokens = setting.prompt_len / columns.degree(("cp",)) if phase == "prefill" else 1.0
    logits: Number = 0.0
    for path, operation, _ in operations(setting.tree):
        if path.startswith("head/") and isinstance(operation, Matmul) and "vocab" in operation.output.axes:
            logits = last_logits_bytes(
                B=columns.sequences_size,
                V=operation.output.size,
                Y=columns.tensor,
                b_a=BYTES_OF[setting.dtypes.compute],
            )
    parts = {
        "weights": held_weight_bytes(setting, columns),
        "kv_cache": held_cache_bytes(setting, columns),
        "layer_working_set": working_bytes(setting, columns, rows=columns.sequences_size * tokens),
        "logits": logits,
    }
    return MemoryColumns(parts=parts, host_bytes=0.0)


def held_weight_bytes(setting: ServingSetting, columns: PhaseColumns) -> Number:
    """Weights of a device, copies of key-value heads included; of a stage, its layers and the larger table."""
    layers: Number = 0.0
    tables: Number = 0.0
    largest: Number = 0.0
    for tensor, count, is_outside in step_weights(setting.tree):
        elements = tensor.size * count / split_shards(tensor.axes, tensor.shape, columns)
        held_bytes = weight_bytes(P=elements, b_w=stored_element_bytes(setting, tensor.axes))
        if is_outside:
            tables, largest = tables + held_bytes, larger(largest, held_bytes)
        else:
            layers = layers + held_bytes
    is_staged = smaller(columns.stages - 1.0, 1.0)
    return layers / columns.stages + tables + is_staged * (largest - tables)


def stored_dtype(setting: ServingSetting, axes: tuple[str, ...]) -> Dtype:
    """What a weight of these logical axes is stored in: beside narrow weights, embedding and head are left in bf16.

    Source: checkpoints in fp8, NVFP4 and MXFP4 list `lm_head` and `embed_tokens` among the modules not converted;
        AutoAWQ and GPTQModel convert the linear layers of decoder blocks alone; compressed-tensors ignores `lm_head`.
    """
    dtypes = setting.dtypes
    is_published_int8 = setting.keeps_wide_vocabulary and dtypes.weights == "int8"
    if "vocab" in axes and (dtypes.weights in CONVERTED_DTYPES or is_published_int8):
        return "bf16"
    is_feed_forward = any(axis in FEED_FORWARD for axis in axes)
    return dtypes.experts or dtypes.weights if is_feed_forward else dtypes.weights


def stored_element_bytes(setting: ServingSetting, axes: tuple[str, ...]) -> float:
    """Bytes of a stored weight of these logical axes, its share of a scale included."""
    return stored_bytes(stored_dtype(setting, axes), int4_group_size=setting.int4_group_size)


def stored_bytes(dtype: Dtype, *, int4_group_size: int = INT4_GROUP_SIZE) -> float:
    """Bytes of a stored weight, its share of a block's scale included; of int4, of a group's scale and zero point.

    Assumes: one scale for a whole channel of int8, and for a block or channel of fp8: not counted.

    >>> stored_bytes("fp4"), stored_bytes("mxfp4"), stored_bytes("int4")
    (0.5625, 0.53125, 0.51953125)
    """
    if dtype == "int4":
        return BYTES_OF[dtype] + INT4_SCALE_BYTES / int4_group_size
    return BYTES_OF[dtype] + (1 / SCALED_BLOCKS[dtype] if dtype in SCALED_BLOCKS else 0.0)


def held_cache_bytes(setting: ServingSetting, columns: PhaseColumns) -> Number:
    """KV cache of a device, room for the whole context of each sequence; layers that share one keep it once."""
    total: Number = 0.0
    for operation, count in cached_attentions(setting.tree):
        tokens = cached_tokens(operation, setting)
        held = cache_bytes(operation, setting, columns, tokens=tokens, num_sequences=columns.cached_sequences_size)
        total = total + count * held
    return total


def working_bytes(setting: ServingSetting, columns: PhaseColumns, *, rows: Number) -> Number:
    """The largest block's intermediates for so many tokens of a device: what its matmuls read and make."""
    stream = embed_dim(setting.tree)
    widest: Number = 0.0
    for layer in setting.tree.layers:
        for block in layer.blocks:
            made: Number = 0.0
            for operation in block.operations:
                for item in named_outputs(operation):
                    made = made + item.size / split_shards(item.axes, item.shape, columns)
            widest = larger(widest, made)
    return rows * (widest + 2 * stream) * BYTES_OF[setting.dtypes.compute]


def serving_flops(setting: ServingSetting, columns: PhaseColumns, phase: Phase, *, block_keys: float | None) -> Number:
    """Matmul FLOPs of a device in a pass; of decode, in its last step, when the cache is full.

    Args:
        setting: The setting.
        columns: The plan.
        phase: Which pass.
        block_keys: Keys of one tile of prefill's attention kernel; None for plain attention: every score.
    """
    sequences = columns.sequences_size
    tokens = setting.prompt_len / columns.degree(("cp",)) if phase == "prefill" else 1.0
    total: Number = 0.0
    for path, operation, count in operations(setting.tree):
        rows = sequences if path.startswith("head/") else sequences * tokens
        match operation:
            case Matmul() | ExpertMatmul():
                weight = operation.weight
                ways = split_shards(weight.axes, weight.shape, columns)
                per_token = forward_flops_per_token(operation, seq_len=1) / ways
                if isinstance(operation, ExpertMatmul):
                    per_token = per_token * columns.degree(MESH_AXES_OF["experts"])  # of a device's own tokens, all
                total = total + count * rows * per_token
            case Attention():
                keys = _visited(operation, setting, columns, phase, block_keys)
                per_key = key_flops(operation, setting.tree, phase)
                total = total + count * rows * per_key * keys / columns.tensor
            case _:
                pass
    return total


def key_flops(operation: Attention, tree: ModelTree, phase: Phase) -> float:
    """FLOPs of all heads' scores and values for one query and one key; over latents, as wide as these.

    One vector that all heads share as it is (DeepSeek-V4) is no latent: nothing is made of it.
    """
    if phase == "prefill" or not operation.caches_latents or operation.num_kv_heads == 1:
        return scores_flops_per_token(operation, num_keys=1.0)
    rank = max(
        size
        for tensor, _, _ in step_weights(tree)
        for axis, size in zip(tensor.axes, tensor.shape, strict=True)
        if axis == "kv_lora" and tensor.axes[0] == axis
    )
    width = (operation.cache_elements + rank) / 2
    return float(attention_flops(T=1.0, S=1.0, N=operation.num_heads, H=width))


def _visited(
    operation: Attention, setting: ServingSetting, columns: PhaseColumns, phase: Phase, block_keys: float | None
) -> Number:
    """Keys that the program computes for a query, mean over the queries at hand."""
    if phase == "decode":
        return cached_tokens(operation, setting) / columns.degree(("cp",))
    if block_keys is None:
        return float(setting.prompt_len)
    return computed_keys(
        operation.span,
        visible_keys=keys_read(operation, seq_len=setting.prompt_len),
        sequence_keys=float(setting.prompt_len),
        tile=(block_keys, block_keys),
    )


def cached_tokens(operation: Attention, setting: ServingSetting) -> float:
    """Tokens of its own that a layer's cache keeps of a sequence: the context, or as many as its window holds."""
    window = operation.span.window or inf
    ends = setting.lengths.end_tokens
    return sum(min(window, tokens) for tokens in ends) / len(ends)


def cache_bytes(
    operation: Attention, setting: ServingSetting, columns: PhaseColumns, *, tokens: Number, num_sequences: Number
) -> Number:
    """The KV cache of one layer on a device, scales included, for so many tokens of each sequence."""
    shards = columns.cache_shards(operation.num_cached_heads)
    stored = BYTES_OF[setting.dtypes.kv_cache]
    token_elements = _token_elements(operation, setting.row_elements)
    cached = layer_cache_bytes(B=num_sequences, T=tokens, token_elements=token_elements, shards=shards, b_kv=stored)
    if setting.dtypes.kv_cache not in setting.scaled_caches:
        return cached
    num_scales = 1 if operation.caches_latents else 2 * operation.num_kv_heads
    return cached + layer_scale_bytes(B=num_sequences, T=tokens, num_scales=num_scales, shards=shards)


def _token_elements(operation: Attention, row_elements: int) -> float:
    """Elements of one token in a layer's cache, as they lie in memory."""
    if operation.caches_latents:
        return padded_elements(H=operation.cache_elements, row_elements=row_elements)
    widths = operation.qk_head_dim, operation.v_head_dim
    return operation.num_kv_heads * sum(padded_elements(H=width, row_elements=row_elements) for width in widths)


def split_shards(axes: tuple[str, ...], shape: tuple[int, ...], columns: PhaseColumns) -> Number:
    """Ways in which a weight, or what is kept of an activation, is split over tensor, transpose and expert axes."""
    shards = tensor_shards(axes, shape, columns)
    if any(axis in TRANSPOSED for axis in axes):
        shards = shards * columns.transpose_degree
    return shards * columns.degree(MESH_AXES_OF["experts"]) if "experts" in axes else shards


def tensor_shards(axes: tuple[str, ...], shape: tuple[int, ...], columns: PhaseColumns) -> Number:
    """Ways in which tensor parallelism splits an array of these logical axes."""
    split = [(axis, size) for axis, size in zip(axes, shape, strict=True) if size > 1]
    shards: Number = 1.0
    if any(TENSOR_AXES[0] in MESH_AXES_OF.get(axis, ()) and axis != "kv_heads" for axis, _ in split):
        shards = columns.tensor
    elif heads := [size for axis, size in split if axis == "kv_heads"]:
        shards = kv_head_shards(K=heads[0], Y=columns.tensor)
    return shards


def cached_attentions(tree: ModelTree) -> Iterator[tuple[Attention, int]]:
    """The attentions that keep a cache of their own, with how many layers have each."""
    for layer in tree.layers:
        for block in layer.blocks:
            for operation in block.operations:
                if isinstance(operation, Attention) and operation.cached:
                    yield operation, layer.count
