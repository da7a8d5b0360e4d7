"""What a model computes: weights, named intermediates and operations, each declared once.

A weight is declared with the *logical* axis of each dimension (MaxText's names); which mesh axes split
it follows from that alone. An operation says how much work one token asks for; nothing here knows
machines, precisions or parallelism.

Logical axes of weights: `embed mlp heads kv_heads vocab experts embed_moe mlp_moe q_lora kv_lora norm
conv state`; `head_dim` and `None`-like axes such as `unit` are never split.

Symbols (Scaling Book): D embed, F mlp, N query heads, K kv heads, H head_dim, V vocab, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A weight.

    Attributes:
        name: Path of the part that owns it, e.g. `layer/attention/query`.
        axes: Logical axis of each dimension.
        shape: Elements along each dimension.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A named intermediate, per token.

    Attributes:
        name: MaxText's checkpoint name where it has one (`query_proj`, `mlpwi_0`, `context`, …).
        axes: Logical axes of its feature dimensions (`heads`, `mlp`, `embed`, …).
        shape: Elements per token along each.
        copies: Rows per token (top-k for expert activations), else 1.
    """

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    copies: float = 1.0

    @property
    def size(self) -> float:
        """Elements per token."""
        return self.copies * prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which keys a query sees.

    Attributes:
        kind: `causal` (all earlier), `sliding` (the last `window`), `chunked` (earlier ones of its own
            chunk of `window`), `full` (all, both ways).
        window: Tokens, for `sliding` and `chunked`.
    """

    kind: Literal["causal", "sliding", "chunked", "full"] = "causal"
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """x[tokens, K…] @ W[K…, N…]: 2·K·N FLOPs a token.

    Attributes:
        path: Below its block, e.g. `query`.
        weight: W.
        num_contracted: Leading dimensions of W that are summed over.
        output: The intermediate it produces.
        bias: Added to the output, if any.
        quantizable: False for what recipes keep in bf16 (logits, router).
    """

    path: str
    weight: Tensor
    output: Activation
    num_contracted: int = 1
    bias: Tensor | None = None
    quantizable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertMatmul:
    """x[tokens·top_k, K] @ W[E, K, N], rows grouped by expert: 2·top_k·K·N FLOPs a token.

    Attributes:
        path: Below its block, e.g. `experts/up`.
        weight: W, the `experts` axis first.
        top_k: Experts a token visits.
        output: The intermediate it produces.
        bias: Per expert, if any.
    """

    path: str
    weight: Tensor
    top_k: int
    output: Activation
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(q·kᵀ)·v: 2·N·(H_qk + H_v) FLOPs for each query-key pair that is seen.

    Attributes:
        path: Below its block, e.g. `scores`.
        num_heads: N.
        num_kv_heads: K.
        qk_head_dim: Width of q and k.
        v_head_dim: Width of v.
        span: Which keys a query sees.
        output: The intermediate it produces (`context`; the log-sum-exp is kept with it).
        sinks: Learned per-head logits, if any.
        cached: False where the layer reads keys and values that another layer stored.
        cache_elements: Elements of KV cache per token; K·(H_qk + H_v), or the latent width for MLA.
        selected_keys: At most so many of the keys in its span are read, picked by a scorer before (DeepSeek
            sparse attention); 0 reads them all. The cache keeps every key of the span.
        tokens_per_key: Tokens merged into one cached key (DeepSeek-V4's compressed attention): a query sees, and
            the cache keeps, that much less.
    """

    path: str
    num_heads: int
    num_kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    span: Span
    output: Activation
    cache_elements: int
    sinks: Tensor | None = None
    cached: bool = True
    selected_keys: int = 0
    tokens_per_key: int = 1

    @property
    def caches_latents(self) -> bool:
        """Whether the cache keeps one latent of a token, from which the keys and values of all heads are made."""
        return self.cache_elements < self.num_kv_heads * (self.qk_head_dim + self.v_head_dim)

    @property
    def num_cached_heads(self) -> int:
        """Heads whose keys and values, or whose one latent, the cache keeps."""
        return 1 if self.caches_latents else self.num_kv_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Norms, activation functions, rotary embedding, residual adds, router top-k, token sorting.

    Attributes:
        path: Below its block.
        read_elements: Read from memory, per token.
        write_elements: Written, per token.
        flops_per_token: On the vector unit.
        axes: Logical axes of the array it runs over (decides how it is split).
        weights: Scales and biases it uses.
        name: Checkpoint name of its output if it can be saved under one (`mla_q`, `mla_kv`), else "".
    """

    path: str
    read_elements: float
    write_elements: float
    flops_per_token: float
    axes: tuple[str, ...] = ("embed",)
    weights: tuple[Tensor, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Rows of a table, one per token: no FLOPs, D elements moved.

    Attributes:
        path: E.g. `tokens`, `positions`.
        weight: The table.
        width: Elements read per token.
    """

    path: str
    weight: Tensor
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Tokens travel to the devices that hold their experts and back (two all-to-alls under EP).

    Attributes:
        path: `dispatch` or `combine`.
        top_k: Copies of each token.
        width: Elements of one copy.
    """

    path: str
    top_k: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A linear-time sequence mixer (Mamba's scan, gated delta rule, short convolution).

    Attributes:
        path: Below its block.
        flops_per_token: Of the chunked form.
        read_elements: Per token, by all kernels of the chunked form.
        write_elements: Per token, likewise.
        between_elements: Per token, in f32, that one of these kernels writes and another reads: states of chunks.
        gradient_passes: Time of the gradient over the forward's; 3 where it computes the states again first.
        state_elements: Carried per sequence, whatever its length.
        axes: Logical axes of its heads.
        weights: Decay, skip, convolution kernels.
        output: The intermediate it produces.
        whole_heads: How many heads of each kind tensor parallelism shares out whole; none where channels are split
            anywhere.
    """

    path: str
    flops_per_token: float
    read_elements: float
    write_elements: float
    state_elements: float
    axes: tuple[str, ...]
    weights: tuple[Tensor, ...]
    output: Activation
    between_elements: float = 0.0
    gradient_passes: float = 2.0
    whole_heads: tuple[int, ...] = ()


PREDICTOR: Final = "mtp_layer"
"""Name of the layers that predict further tokens."""
PREDICTOR_LOGITS: Final = f"{PREDICTOR}/head/logits"
"""Their logits matmul reads the model's own table."""

Operation: TypeAlias = Matmul | ExpertMatmul | Attention | Elementwise | Lookup | Dispatch | Recurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A residual branch: reads the stream at its start, adds to it at its end.

    Under tensor parallelism its input is gathered and its output reduce-scattered, once each.

    Attributes:
        name: `attention`, `mlp`, `moe`, `mamba`, `parallel` (attention and MLP side by side), …
        operations: In order.
    """

    name: str
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """`count` equal decoder layers.

    Attributes:
        name: `layer` when all are alike, else e.g. `dense_layer`, `moe_layer`, `local_layer`.
        count: How many.
        blocks: In order.
    """

    name: str
    count: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTree:
    """The named tree of everything a model computes for one token.

    Attributes:
        embedding: Token (and position) lookups.
        layers: Groups of equal decoder layers, in order of first appearance.
        head: Final norm, logits matmul and loss.
        tied: The logits matmul uses the embedding table (its weight is declared once, in `embedding`).
        repeats: Times that a pattern of unlike layers repeats (Gemma 3: five local ones and a global one); 0 where
            none does.
    """

    embedding: Block
    layers: tuple[Layer, ...]
    head: Block
    tied: bool
    repeats: int = 0


def weights_of(operation: Operation) -> tuple[Tensor, ...]:
    """Every weight an operation uses, the main one first."""
    match operation:
        case Matmul() | ExpertMatmul():
            return (operation.weight,) if operation.bias is None else (operation.weight, operation.bias)
        case Attention():
            return () if operation.sinks is None else (operation.sinks,)
        case Elementwise() | Recurrence():
            return operation.weights
        case Lookup():
            return (operation.weight,)
        case Dispatch():
            return ()


Dimensions: TypeAlias = tuple[tuple[str, int], ...]
"""Logical axes with their sizes."""


def sides_of(operation: Matmul | ExpertMatmul) -> tuple[Dimensions, Dimensions]:
    """The dimensions that a product sums over and those that it makes, of one expert's matrix where there are experts.

    >>> key = Tensor(name="key", axes=("embed", "kv_heads", "head_dim"), shape=(64, 2, 16))
    >>> sides_of(Matmul(path="key", weight=key, output=Activation(name="key_proj", axes=(), shape=())))
    ((('embed', 64),), (('kv_heads', 2), ('head_dim', 16)))
    """
    dimensions = tuple(zip(operation.weight.axes, operation.weight.shape, strict=True))
    if isinstance(operation, ExpertMatmul):
        return dimensions[1:2], dimensions[2:]
    return dimensions[: operation.num_contracted], dimensions[operation.num_contracted :]
