"""From a spec to the named tree of operations: every weight and every operation of a decoder, once.

Equal layers are one `Layer` with a count, wherever they stand; groups are named after what differs
between them (`dense_layer` and `moe_layer`, `local_layer` and `global_layer`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.model.attention import attention_operations, mla_operations
from ridgeline.model.compressed import compressed_attention_operations
from ridgeline.model.feed_forward import mlp_operations, moe_operations
from ridgeline.model.operations import PREDICTOR, Block, Elementwise, Layer, Lookup, ModelTree, Operation
from ridgeline.model.recurrent import gated_delta_operations, mamba_operations
from ridgeline.model.scope import Scope
from ridgeline.model.spec import (
    AttentionSpec,
    CompressedAttentionSpec,
    GatedDeltaSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    MoeSpec,
)
from ridgeline.model.streams import (
    altup_block,
    altup_projection,
    hyper_connection,
    hyper_head,
    laurel_operations,
    per_layer_embedding,
    per_layer_input_block,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ridgeline.model.spec import ChannelSpec, MixerSpec, ModelSpec

_UNTOLD = {"", "own"}
"""Words that go without saying in a layer's name."""

_LOSS_FLOPS = 4
"""Subtract the maximum, exponential, sum, compare; per vocabulary entry."""


def model_tree(spec: ModelSpec) -> ModelTree:
    """Everything the model computes for one token, as named operations.

    >>> from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
    >>> layer = LayerSpec(
    ...     mixer=AttentionSpec(num_heads=2, num_kv_heads=1, head_dim=4), mlp=MlpSpec(mlp_dim=16)
    ... )
    >>> tree = model_tree(ModelSpec(name="tiny", embed_dim=8, vocab_size=32, layers=((layer, 3),)))
    >>> [(layer.name, layer.count, [block.name for block in layer.blocks]) for layer in tree.layers]
    [('layer', 3, ['attention', 'mlp'])]
    >>> [operation.path for operation in tree.layers[0].blocks[0].operations]
    ['norm', 'query', 'key', 'value', 'rotary', 'scores', 'out', 'residual']
    """
    counts: Counter[LayerSpec] = Counter()
    for layer, count in spec.layers:
        counts[layer] += count
    names = layer_names(tuple(counts))
    return ModelTree(
        embedding=_embedding(spec),
        layers=(
            *(
                Layer(name=name, count=count, blocks=layer_blocks(name, layer, embed_dim=spec.embed_dim))
                for name, (layer, count) in zip(names, counts.items(), strict=True)
            ),
            *((_predictor(spec),) if spec.mtp_depth else ()),
        ),
        head=_head(spec),
        tied=spec.tied_embeddings,
        repeats=_repeats([layer for layer, count in spec.layers for _ in range(count)]),
    )


def _predictor(spec: ModelSpec) -> Layer:
    """Multi-token prediction: the next token's embedding is joined in, a layer of the model, the head once more.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2: embedding and head are the model's own.
    """
    name, width = PREDICTOR, spec.embed_dim
    scope = Scope(block=f"{name}/join")
    joined = (
        scope.norm("norm", spec.layers[-1][0].norm, width),
        scope.norm("embedding_norm", spec.layers[-1][0].norm, width),
        scope.matmul("project", "mtp_project", unit=2 * width, embed=width),
    )
    blocks = (block for layer in predicting_layers(spec) for block in layer_blocks(name, layer, embed_dim=width))
    return Layer(
        name=name,
        count=spec.mtp_depth,
        blocks=(Block(name="join", operations=joined), *blocks, _head(replace(spec, tied_embeddings=False), name)),
    )


def predicting_layers(spec: ModelSpec) -> tuple[LayerSpec, ...]:
    """The layer of a prediction module: the model's last; of a hybrid, whose layers are halves, the last of each."""
    stack = [layer for layer, _ in reversed(spec.layers)]
    if stack[0].mixer is not None and stack[0].mlp is not None:
        return (stack[0],)
    attention = next((layer for layer in stack if isinstance(layer.mixer, AttentionSpec)), None)
    channel = next((layer for layer in stack if layer.mlp is not None), None)
    return tuple(layer for layer in (attention, channel) if layer is not None)


def _repeats(layers: Sequence[LayerSpec]) -> int:
    """Times that a pattern of unlike layers repeats: the shortest whose repetition is the whole stack, but for its end.

    A stack may end within a pattern: 62 layers of Gemma 3 are ten times six, and two.
    """
    for period in range(2, len(layers) // 2 + 1):
        if len(set(layers[:period])) > 1 and all(layers[i] == layers[i - period] for i in range(period, len(layers))):
            return len(layers) // period
    return 0


def layer_blocks(name: str, layer: LayerSpec, *, embed_dim: int) -> tuple[Block, ...]:
    """The residual branches of one decoder layer whose path starts with `name`."""
    blocks: list[Block] = []
    if layer.parallel and layer.mixer is not None and layer.mlp is not None:
        blocks.append(_parallel_block(name, layer, layer.mixer, layer.mlp, embed_dim))
    else:
        if layer.mixer is not None:
            blocks.append(_mixer_block(name, layer, layer.mixer, embed_dim))
        if layer.mlp is not None:
            scope = Scope(block=f"{name}/{_channel_name(layer.mlp)}")
            blocks.append(_branch(scope, layer, _channel_operations(scope, layer.mlp, embed_dim), embed_dim))
    if layer.altup_streams:
        blocks.append(altup_block(name, embed_dim=embed_dim, streams=layer.altup_streams))
    if layer.per_layer_dim:
        blocks.append(per_layer_input_block(name, embed_dim=embed_dim, width=layer.per_layer_dim))
    return _with_extra_scales(blocks, name, layer.extra_scales)


def _mixer_block(name: str, layer: LayerSpec, mixer: MixerSpec, embed_dim: int) -> Block:
    """The branch of the sequence mixer, with the second mixer or the low-rank residual that run beside it."""
    if layer.beside is not None:
        scope = Scope(block=f"{name}/hybrid")
        operations = (
            *_mixer_operations(scope.under(_mixer_name(mixer)), mixer, embed_dim),
            *_mixer_operations(scope.under(_mixer_name(layer.beside)), layer.beside, embed_dim),
        )
        return _branch(scope, layer, operations, embed_dim)
    scope = Scope(block=f"{name}/{_mixer_name(mixer)}")
    laurel = laurel_operations(scope.under("laurel"), embed_dim=embed_dim, rank=layer.laurel_rank)
    operations = (*_mixer_operations(scope, mixer, embed_dim), *(laurel if layer.laurel_rank else ()))
    return _branch(scope, layer, operations, embed_dim)


def _branch(scope: Scope, layer: LayerSpec, operations: Iterable[Operation], embed_dim: int) -> Block:
    """Norm, operations, post-norm, residual add."""
    hyper = hyper_connection(scope.under("hyper"), embed_dim=embed_dim, streams=layer.hyper_streams)
    return Block(
        name=scope.block.rsplit("/", 1)[-1],
        operations=(
            *(hyper if layer.hyper_streams else ()),
            *((scope.norm("norm", layer.norm, embed_dim),) if layer.pre_norms else ()),
            *operations,
            *((scope.norm("post_norm", layer.norm, embed_dim, fused=True),) if layer.post_norm else ()),
            scope.residual(embed_dim),
        ),
    )


def _parallel_block(name: str, layer: LayerSpec, mixer: MixerSpec, mlp: ChannelSpec, embed_dim: int) -> Block:
    """Both branches read one input, through one norm or two, and are added together."""
    scope = Scope(block=f"{name}/parallel")
    first, second = scope.under(_mixer_name(mixer)), scope.under(_channel_name(mlp))
    norms = (
        (scope.norm("norm", layer.norm, embed_dim),)
        if layer.pre_norms == 1
        else (first.norm("norm", layer.norm, embed_dim), second.norm("norm", layer.norm, embed_dim))
    )
    return Block(
        name="parallel",
        operations=(
            *norms,
            *_mixer_operations(first, mixer, embed_dim),
            *_channel_operations(second, mlp, embed_dim),
            scope.residual(embed_dim),
        ),
    )


def _with_extra_scales(blocks: Sequence[Block], name: str, elements: int) -> tuple[Block, ...]:
    """The last block also carries a layer's odd trained scalars, which cost no traffic worth counting."""
    if not elements:
        return tuple(blocks)
    last = blocks[-1]
    scales = Elementwise(
        path="scales",
        read_elements=0,
        write_elements=0,
        flops_per_token=elements,
        weights=(Scope(block=f"{name}/{last.name}").weight("scales", unit=elements),),
    )
    return (*blocks[:-1], Block(name=last.name, operations=(*last.operations, scales)))


def _mixer_name(mixer: MixerSpec) -> str:
    match mixer:
        case AttentionSpec() | MlaSpec() | CompressedAttentionSpec():
            return "attention"
        case MambaSpec():
            return "mamba"
        case GatedDeltaSpec():
            return "delta"


def _channel_name(mlp: ChannelSpec) -> str:
    return "mlp" if isinstance(mlp, MlpSpec) else "moe"


def _mixer_operations(scope: Scope, mixer: MixerSpec, embed_dim: int) -> tuple[Operation, ...]:
    match mixer:
        case AttentionSpec():
            return attention_operations(scope, mixer, embed_dim=embed_dim)
        case MlaSpec():
            return mla_operations(scope, mixer, embed_dim=embed_dim)
        case CompressedAttentionSpec():
            return compressed_attention_operations(scope, mixer, embed_dim=embed_dim)
        case MambaSpec():
            return mamba_operations(scope, mixer, embed_dim=embed_dim)
        case GatedDeltaSpec():
            return gated_delta_operations(scope, mixer, embed_dim=embed_dim)


def _channel_operations(scope: Scope, mlp: ChannelSpec, embed_dim: int) -> tuple[Operation, ...]:
    match mlp:
        case MlpSpec():
            return mlp_operations(scope, mlp, embed_dim=embed_dim)
        case MoeSpec():
            return moe_operations(scope, mlp, embed_dim=embed_dim)


def _embedding(spec: ModelSpec) -> Block:
    """Lookups, and what turns them into the first layer's input."""
    scope, width, layer = Scope(block="embedding"), _table_width(spec), spec.layers[0][0]
    table = scope.weight("tokens", vocab=spec.embedding_rows or spec.vocab_size, embed=width)
    operations: list[Operation] = [Lookup(path="tokens", weight=table, width=width)]
    if spec.embedding_dim:
        operations.append(scope.matmul("project_in", "project_in", unit=width, embed=spec.embed_dim))
    if spec.max_position_embeddings:
        positions = scope.weight("positions", unit=spec.max_position_embeddings, embed=spec.embed_dim)
        operations.append(Lookup(path="positions", weight=positions, width=spec.embed_dim))
    if spec.embedding_norm:
        operations.append(scope.norm("norm", spec.embedding_norm, spec.embed_dim))
    if spec.per_layer_vocab_size:
        operations += per_layer_embedding(scope, spec, width=layer.per_layer_dim)
    if layer.altup_streams:
        operations.append(altup_projection(scope, embed_dim=spec.embed_dim, streams=layer.altup_streams))
    return Block(name="embedding", operations=tuple(operations))


def _head(spec: ModelSpec, under: str = "") -> Block:
    """Final norm, logits and loss; a tied logits matmul reads the embedding table transposed, under its name."""
    scope, width, layer = Scope(block=f"{under}/head" if under else "head"), _table_width(spec), spec.layers[0][0]
    operations: list[Operation] = []
    if layer.altup_streams:
        operations.append(altup_projection(scope, embed_dim=spec.embed_dim, streams=layer.altup_streams))
    if layer.hyper_streams:
        operations += hyper_head(scope.under("hyper"), embed_dim=spec.embed_dim, streams=layer.hyper_streams)
    if spec.final_norm:
        operations.append(scope.norm("norm", spec.final_norm, spec.embed_dim))
    if spec.embedding_dim:
        operations.append(scope.matmul("project_out", "project_out", embed=spec.embed_dim, unit=width))
    logits = scope.matmul(
        "logits", "logits", bias=spec.logits_bias, quantizable=False, embed=width, vocab=spec.vocab_size
    )
    if spec.tied_embeddings:
        table = Scope(block="embedding").weight("tokens", embed=width, vocab=spec.vocab_size)
        logits = replace(logits, weight=table)
    loss = Elementwise(
        path="loss",
        read_elements=spec.vocab_size,
        write_elements=1,
        flops_per_token=_LOSS_FLOPS * spec.vocab_size,
        axes=("vocab",),
    )
    return Block(name="head", operations=(*operations, logits, loss))


def _table_width(spec: ModelSpec) -> int:
    return spec.embedding_dim or spec.embed_dim


def layer_names(layers: Sequence[LayerSpec]) -> tuple[str, ...]:
    """A name for each of several distinct layers, made of the words in which they differ."""
    described = [_words(layer) for layer in layers]
    telling = [len({word for word in column if word}) > 1 for column in zip(*described, strict=True)]
    names: list[str] = []
    for layer, words in zip(layers, described, strict=True):
        told = [word for word, tells in zip(words, telling, strict=True) if tells and word not in _UNTOLD]
        if not told and len(layers) > 1 and layer.mixer is None and layer.mlp is not None:
            told = [_channel_name(layer.mlp)]
        name = "_".join([*told, "layer"])
        repeats = sum(other == name or other.startswith(f"{name}_") for other in names)
        names.append(f"{name}_{repeats + 1}" if repeats else name)
    return tuple(names)


def _words(layer: LayerSpec) -> tuple[str, str, str, str]:
    """What a layer is: mixer, span, whose keys, channel mixer; "" where the question does not arise."""
    mixer, span, keys = "", "", ""
    if layer.mixer is not None:
        mixer = _mixer_name(layer.mixer)
    if isinstance(layer.mixer, AttentionSpec):
        span = {"sliding": "local", "chunked": "chunked"}.get(layer.mixer.span.kind, "global")
        keys = "cross" if layer.mixer.cross else "own" if layer.mixer.own_kv else "shared"
    channel = "" if layer.mlp is None else "dense" if isinstance(layer.mlp, MlpSpec) else "moe"
    return mixer, span, keys, channel
