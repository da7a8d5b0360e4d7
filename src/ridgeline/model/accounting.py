"""What a model asks for by itself, before any machine: parameters, FLOPs, caches and activations, part by part.

FLOPs are those of matmuls, attention and recurrences; norms, activation functions and lookups run on other
units and no published convention counts them. Symbols: N heads, H head_dim, S seq_len, W window, k top-k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.model.flops import attention_flops, matmul_flops
from ridgeline.model.operations import (
    Activation,
    Attention,
    Dispatch,
    Elementwise,
    ExpertMatmul,
    Lookup,
    Matmul,
    Recurrence,
    Span,
    weights_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ridgeline.model.operations import Layer, ModelTree, Operation

TRAINING_PASSES = 3
"""Forward once, backward twice: the gradients of the inputs and of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartAccount:
    """One operation, in all the layers that repeat it.

    Attributes:
        path: E.g. `layer/attention/query`.
        num_layers: How many layers repeat it.
        parameters: Its weights; a tied table counts where it is looked up.
        active_parameters: Those one token visits.
        flops_per_token: Forward, mean over a sequence.
        cache_elements_per_token: What decoding keeps of each token, as long as no window is full.
        cache_elements_per_sequence: What it keeps of a whole sequence: windows cap it, states do not grow.
        activation_elements_per_token: The intermediates that may be saved under a name.
    """

    path: str
    num_layers: int
    parameters: int
    active_parameters: int
    flops_per_token: float
    cache_elements_per_token: float
    cache_elements_per_sequence: float
    activation_elements_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccount:
    """A model's parts for one sequence length; its figures are sums over them."""

    seq_len: int
    parts: tuple[PartAccount, ...]

    @property
    def parameters(self) -> int:
        """Of the language model; towers and multi-token-prediction heads are outside the tree."""
        return sum(part.parameters for part in self.parts)

    @property
    def active_parameters(self) -> int:
        """Those one token visits."""
        return sum(part.active_parameters for part in self.parts)

    @property
    def flops_per_token_forward(self) -> float:
        """Of one token's forward pass, mean over the sequence."""
        return sum(part.flops_per_token for part in self.parts)

    @property
    def flops_per_token_training(self) -> float:
        """Of one token's training step, without recomputation."""
        return TRAINING_PASSES * self.flops_per_token_forward

    @property
    def cache_elements_per_token(self) -> float:
        """Growth of the KV cache with a token, as long as no window is full."""
        return sum(part.cache_elements_per_token for part in self.parts)

    @property
    def cache_elements_per_sequence(self) -> float:
        """KV cache and recurrent states of one whole sequence."""
        return sum(part.cache_elements_per_sequence for part in self.parts)

    @property
    def activation_elements_per_token(self) -> float:
        """Every intermediate that may be saved under a name, and every layer's input (`LAYER/input`)."""
        return sum(part.activation_elements_per_token for part in self.parts)


def account(tree: ModelTree, *, embed_dim: int, seq_len: int) -> ModelAccount:
    """Everything counted, for sequences of `seq_len` tokens through a stream of `embed_dim` elements.

    >>> from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
    >>> from ridgeline.model.tree import model_tree
    >>> layer = LayerSpec(mixer=AttentionSpec(num_heads=2, num_kv_heads=1, head_dim=4), mlp=MlpSpec(mlp_dim=16))
    >>> tiny = ModelSpec(name="tiny", embed_dim=8, vocab_size=32, layers=((layer, 1),))
    >>> result = account(model_tree(tiny), embed_dim=8, seq_len=10)
    >>> result.flops_per_token_forward  # 2·(8·4·6 + 3·8·16 + 8·32) of weights, 2·2·(4 + 4)·10/2 of attention
    1824.0
    >>> result.cache_elements_per_token  # 2·K·H
    8.0
    """
    parts: list[PartAccount] = []
    tables: set[str] = set()
    for path, operation, num_layers in operations(tree):
        weights = [weight for weight in weights_of(operation) if weight.name not in tables]
        if isinstance(operation, Lookup):
            tables |= {weight.name for weight in weights}
        size = num_layers * sum(weight.size for weight in weights)
        per_token, capped = _cache_elements(operation, seq_len=seq_len)
        parts.append(
            PartAccount(
                path=path,
                num_layers=num_layers,
                parameters=size,
                active_parameters=_active(operation, size),
                flops_per_token=num_layers * forward_flops_per_token(operation, seq_len=seq_len),
                cache_elements_per_token=num_layers * per_token,
                cache_elements_per_sequence=num_layers * capped,
                activation_elements_per_token=num_layers * sum(item.size for item in named_outputs(operation)),
            )
        )
    parts += [_layer_input(layer, embed_dim) for layer in tree.layers]
    return ModelAccount(seq_len=seq_len, parts=tuple(parts))


def operations(tree: ModelTree) -> Iterator[tuple[str, Operation, int]]:
    """Every operation with its full path and how many layers repeat it, from embedding to head."""
    for block in (tree.embedding, tree.head):
        if block is tree.head:
            for layer in tree.layers:
                for branch in layer.blocks:
                    for operation in branch.operations:
                        yield f"{layer.name}/{branch.name}/{operation.path}", operation, layer.count
        for operation in block.operations:
            yield f"{block.name}/{operation.path}", operation, 1


def mean_visible_keys(span: Span, *, seq_len: int) -> float:
    """Keys a query sees, mean over a sequence; the diagonal counts half, as published FLOP counts have it.

    causal: S/2. sliding: W − W²/(2S). chunked: W/2, a shorter last chunk accordingly. full: S.

    >>> from ridgeline.model.operations import Span
    >>> [mean_visible_keys(Span(kind="sliding", window=window), seq_len=100) for window in (20, 100, 400)]
    [18.0, 50.0, 50.0]
    >>> mean_visible_keys(Span(kind="chunked", window=40), seq_len=100)  # (40² + 40² + 20²) / 200
    18.0
    """
    window = min(span.window, seq_len) if span.window else seq_len
    match span.kind:
        case "full":
            return float(seq_len)
        case "causal":
            return seq_len / 2
        case "sliding":
            return window - window**2 / (2 * seq_len)
        case "chunked":
            whole, rest = divmod(seq_len, window)
            return (whole * window**2 + rest**2) / (2 * seq_len)


def keys_read(operation: Attention, *, seq_len: int) -> float:
    """Keys an attention reads for a query, mean over a sequence: those in its span that a scorer lets through.

    A key may stand for m tokens (`tokens_per_key`), of which a scorer picks k: the mean of min(tokens, k·m) / m.
    """
    tokens = mean_visible_keys(operation.span, seq_len=seq_len)
    if operation.selected_keys:
        best = Span(kind="sliding", window=operation.selected_keys * operation.tokens_per_key)
        tokens = min(tokens, mean_visible_keys(best, seq_len=seq_len))
    return tokens / operation.tokens_per_key


def keys_in_reach(operation: Attention, *, seq_len: int) -> float:
    """Keys an attention would read for a query without a causal mask: the sequence, or as many as its window holds."""
    reach = [seq_len, operation.span.window, operation.selected_keys * operation.tokens_per_key]
    return min(tokens for tokens in reach if tokens) / operation.tokens_per_key


def forward_flops_per_token(operation: Operation, *, seq_len: int, masked: bool = True) -> float:
    """FLOPs of an operation's forward pass for one token, mean over a sequence.

    Matmul: 2·(elements of W). Experts: 2·k·(elements of one). Attention: 2·N·(H_qk + H_v)·(keys read), or
    (keys in reach) where the mask's discount is not wanted.
    """
    match operation:
        case Matmul():
            return float(matmul_flops(B=1.0, D=operation.weight.size, F=1.0))
        case ExpertMatmul():
            each = operation.weight.size // operation.weight.shape[0]
            return float(matmul_flops(B=operation.top_k, D=each, F=1.0))
        case Attention():
            keys = keys_read if masked else keys_in_reach
            return scores_flops_per_token(operation, num_keys=keys(operation, seq_len=seq_len))
        case Recurrence():
            return operation.flops_per_token
        case Elementwise() | Lookup() | Dispatch():
            return 0.0


def scores_flops_per_token(operation: Attention, *, num_keys: float) -> float:
    """FLOPs of scores and values for a query that reads so many keys."""
    width = (operation.qk_head_dim + operation.v_head_dim) / 2
    return float(attention_flops(T=1.0, S=num_keys, N=operation.num_heads, H=width))


def named_outputs(operation: Operation) -> tuple[Activation, ...]:
    """The intermediates of an operation that a rematerialisation policy may keep."""
    match operation:
        case Matmul() | ExpertMatmul() | Attention() | Recurrence():
            return (operation.output,)
        case Elementwise(name=name, axes=axes, write_elements=size) if name:
            return (Activation(name=name, axes=axes[:1], shape=(1,), copies=size),)
        case Elementwise() | Lookup() | Dispatch():
            return ()


def kept_elements_per_token(tree: ModelTree, *, embed_dim: int, names: Collection[str]) -> float:
    """Elements that a policy keeps of one token for the backward pass: each layer's input, and `names`."""
    layers = sum(layer.count for layer in tree.layers)
    kept = sum(
        num_layers * item.size
        for path, operation, num_layers in operations(tree)
        for item in named_outputs(operation)
        if item.name in names and not path.startswith("head/")
    )
    return layers * embed_dim + kept


def _layer_input(layer: Layer, embed_dim: int) -> PartAccount:
    return PartAccount(
        path=f"{layer.name}/input",
        num_layers=layer.count,
        parameters=0,
        active_parameters=0,
        flops_per_token=0.0,
        cache_elements_per_token=0.0,
        cache_elements_per_sequence=0.0,
        activation_elements_per_token=layer.count * embed_dim,
    )


def _active(operation: Operation, size: int) -> int:
    if isinstance(operation, ExpertMatmul):
        return size // operation.weight.shape[0] * operation.top_k
    return size


def _cache_elements(operation: Operation, *, seq_len: int) -> tuple[float, float]:
    """What decoding keeps: of each token, and of a whole sequence."""
    match operation:
        case Attention(cached=True, span=span):
            elements = operation.cache_elements / operation.tokens_per_key
            return elements, elements * (min(span.window, seq_len) if span.window else seq_len)
        case Recurrence():
            return 0, operation.state_elements
        case _:
            return 0, 0
