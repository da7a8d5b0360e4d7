"""What part of the model an operation belongs to, and in which phase of the step: read from JAX's scopes.

JAX records for every operation the scopes and transformations around it:

    jit(step)/transpose(jvp(layer))/while/body/checkpoint/rematted_computation/attention/query/dot_general

Of that, `layer/attention/query` is the part: what `jax.named_scope` said. The rest is machinery, and tells the phase:
`jvp` is the forward pass of something that is differentiated, `transpose` its backward pass, and
`rematted_computation` what the backward pass computes again. What a training step does outside of all three is the
optimizer's. Scopes of MaxText are given the names of the model's tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Phase: TypeAlias = Literal["forward", "recompute", "backward", "optimizer", ""]
"""A phase of a training step; "" where the text does not tell. A program that differentiates nothing is all forward."""

_WRAPPED = re.compile(r"(\w+)\((.*)\)")
_FUNCTIONS = {"jit", "pjit", "pmap", "xla_call", "named"}
"""`jit(relu)` names a function, not a scope; so does `bsd,df->bsf`, which einsum writes."""

_TRANSFORMATIONS = {"jvp", "transpose", "vmap", "remat", "checkpoint", "linearize", "custom_jvp", "custom_vjp"}
"""`jvp(layer)` wraps a scope."""

_MACHINERY = {
    "while",
    "body",
    "cond",
    "scan",
    "body_jaxpr",
    "eval_jaxpr",
    "checkpoint",
    "remat",
    "remat2",
    "rematted_computation",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "pjit",
    "shard_map",
    "pallas_call",
    "main",
}
_ARGUMENT = re.compile(r"[\w.\[\]]*(\[\\?'[^\[\]]+'\])[\w.]*([\[][^\[\]]+\][\w.]*)*")
"""An argument of a jitted function: `state['weights']['layer/mlp/up']`."""

_KEY = re.compile(r"\[\\?'([^\[\]'\\]+)\\?'\]")
_CONTAINERS = {"weights", "mu", "nu", "params", "model", "optimizer", "opt_state"}
_LEAVES = {"kernel", "scale", "bias", "embedding"}
"""What a module calls its own weight."""

_BRANCH = re.compile(r"branch_\d+_fun")
_KERNEL = re.compile(r"splash_m[hq]a\w*|\w+_sparsity_splash")
"""Scopes that the splash attention kernel opens inside its caller's."""

_MODEL_CLASS = re.compile(r"(Transformer|TransformerLinen|TransformerLinenPure|Decoder|NNXDecoder)\w*(\.\w+)?")

_MAXTEXT = (
    (r"^(model|optimizer)/(?=.)", ""),  # arguments: the state of a step
    (r"decoder/(\w+/)*?(layers|layers_\d+|\w+_layers(_\d+)?|scanned_blocks)(?=/|$)", "layer"),
    (r"^(decoder/)?(\w+/)*?\w*(DecoderLayer|DenseLayer|MoELayer|ScannableBlock)\w*(?=/|$)", "layer"),
    (r"^decoder$", "layer"),
    (r"^layer/layers_\d+", "layer"),
    (r"(^|/)(pre_self_attention_(layer_)?norm(_local|_global)?|input_layernorm)(?=/|$)", r"\1attention/norm"),
    (r"(^|/)post_self_attention_norm(_local|_global)?(?=/|$)", r"\1attention/post_norm"),
    (
        r"(^|/)(post_self_attention_layer_norm|pre_ffw_norm(_local|_global)?|post_attention_layernorm)(?=/|$)",
        r"\1mlp/norm",
    ),
    (r"(^|/)post_ffw_norm(_local|_global)?(?=/|$)", r"\1mlp/post_norm"),
    (r"(^|/)self_attention/qkv_proj", r"\1attention/qkv"),
    (r"(^|/)(self_attention(_local|_global)?|GptOssAttention|attention_layer)(?=/|$)", r"\1attention"),
    (r"(^|/)attention/attention_op(?=/|$)", r"\1attention/scores"),
    (r"(^|/)attention/rotary_embedding(?=/|$)", r"\1attention/rotary"),
    (r"(^|/)attention/(query|key)_norm(?=/|$)", r"\1attention/qk_norm"),
    (r"(^|/)attention/wq_a(?=/|$)", r"\1attention/query_down"),
    (r"(^|/)attention/q_norm(?=/|$)", r"\1attention/query_norm"),
    (r"(^|/)attention/wq_b(?=/|$)", r"\1attention/query_up"),
    (r"(^|/)attention/wkv_a(?=/|$)", r"\1attention/kv_down"),
    (r"(^|/)attention/wkv_b(?=/|$)", r"\1attention/key_up"),  # and value_up: one matmul there
    (r"(^|/)mlp_(local|global)(?=/|$)", r"\1mlp"),
    (r"(^|/)(DeepSeekMoeBlock_0|Llama4MoEBlock_0)(?=/|$)", r"\1moe"),
    (r"(^|/)(moe/MoeBlock_0|MoeBlock_0|moe_block|GptOssMlp|MixtureOfExperts)(?=/|$)", r"\1moe"),
    (r"(^|/)moe/gate(?=/|$)", r"\1moe/router"),
    (r"(^|/)moe/wi_0(?=/|$)", r"\1moe/experts/gate"),
    (r"(^|/)moe/wi_1(?=/|$)", r"\1moe/experts/up"),
    (r"(^|/)moe/wi(?=/|$)", r"\1moe/experts/up"),
    (r"(^|/)moe/wo(?=/|$)", r"\1moe/experts/down"),
    (r"(^|/)moe/sort_activations(?=/|$)", r"\1moe/dispatch"),
    (r"(^|/)moe/ffn_act(?=/|$)", r"\1moe/experts/activation"),
    (r"(^|/)moe/weight_sum(?=/|$)", r"\1moe/weighted_sum"),
    (r"(^|/)moe/shared_experts(?=/|$)", r"\1moe/shared"),
    (r"(^|/)(mlp|shared)/wi_0(?=/|$)", r"\1\2/gate"),
    (r"(^|/)(mlp|shared)/wi_1(?=/|$)", r"\1\2/up"),
    (r"(^|/)(mlp|shared)/wi(?=/|$)", r"\1\2/up"),
    (r"(^|/)(mlp|shared)/wo(?=/|$)", r"\1\2/down"),
    (r"^(decoder/)?(shared_embedding|token_embedder|Embed)(?=/|$)", "embedding/tokens"),
    (r"^(decoder/)?(position_embedder|PositionalEmbedding)(?=/|$)", "embedding/positions"),
    (r"^(decoder/)?decoder_norm(?=/|$)", "head/norm"),
    (r"^(decoder/)?logits_dense(?=/|$)", "head/logits"),
)
"""Scopes of MaxText 0.2 (its modules' names) and the paths of the model's tree that they are."""

_RENAMES = tuple((re.compile(pattern), path) for pattern, path in _MAXTEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an operation belongs.

    Attributes:
        part: The path of the model's part, e.g. `layer/attention/query`; "" where the text names none.
        phase: Of the step.
    """

    part: str
    phase: Phase


@lru_cache(maxsize=65536)
def place_of(op_name: str, *, trains: bool) -> Place:
    """The part and phase of an operation from the path that JAX recorded.

    Args:
        op_name: As in HLO metadata or a profile; several joined by `;` were merged into one operation.
        trains: Whether the program differentiates: then what is neither forward nor backward is the optimizer's.

    >>> place_of("jit(step)/transpose(jvp(layer))/while/body/mlp/up/dot_general", trains=True)
    Place(part='layer/mlp/up', phase='backward')
    >>> place_of("state['weights']['layer/mlp/up']", trains=True)
    Place(part='layer/mlp/up', phase='')
    """
    if _ARGUMENT.fullmatch(op_name):
        return Place(part=_part_of_argument(op_name), phase="")
    places = [Place(part=_part(path), phase=_phase(path, trains=trains)) for path in op_name.split(";")]
    return next((place for place in places if place.part), places[0])


def _part_of_argument(name: str) -> str:
    """The part whose weight, gradient or moment an argument of the program is."""
    keys = [key for key in _KEY.findall(name) if key not in _CONTAINERS]
    part = _renamed("/".join(keys))
    owner, _, leaf = part.rpartition("/")
    return owner if leaf in _LEAVES or not owner else part


def differentiates(op_name: str) -> bool:
    """Whether a path shows that the program differentiates."""
    return "transpose(" in op_name


def _phase(path: str, *, trains: bool) -> Phase:
    if "/" not in path:  # no path: a parameter's name, or nothing
        return ""
    if "rematted_computation" in path:
        return "recompute"
    if "transpose(" in path:
        return "backward"
    return "forward" if "jvp(" in path or not trains else "optimizer"


def _part(path: str) -> str:
    """The scopes of a path, in the words of the model's tree; its last segment is the operation itself."""
    segments = list(_segments(path))
    if len(segments) < 2:
        return ""
    found = [scope for segment in segments[:-1] for scope in _scopes(segment)]
    scopes = "/".join(scope for scope, before in zip(found, ["", *found], strict=False) if scope != before)
    if scopes == "decoder" and segments[-1] == "dot_general" and "decoder" in _scopes(segments[-2]):
        return "head/logits"  # MaxText multiplies with the embedding's table outside layers, in no module of its own
    return _renamed(scopes).strip("/")


def _renamed(scopes: str) -> str:
    """Scopes in the words of the model's tree."""
    for pattern, replacement in _RENAMES:
        scopes = pattern.sub(replacement, scopes)
    return scopes


def _segments(path: str) -> Iterator[str]:
    """Parts between slashes that stand in no parentheses: a scope inside `jvp(…)` may hold slashes."""
    depth, start = 0, 0
    for position, letter in enumerate(path):
        if letter == "/" and depth == 0:
            yield path[start:position]
            start = position + 1
        depth += (letter == "(") - (letter == ")")
    yield path[start:]


def _scopes(segment: str) -> Iterator[str]:
    """The scopes that a segment names: none for machinery and functions, the inner ones for a transformation."""
    wrapped = _WRAPPED.fullmatch(segment)
    if wrapped is not None and wrapped[1] in _TRANSFORMATIONS:
        for inner in _segments(wrapped[2]):
            yield from _scopes(inner)
    elif wrapped is not None and wrapped[1] in _FUNCTIONS:
        return
    elif not _is_machinery(segment):
        yield segment.partition(".")[0]  # flax writes `module.method` where the method is not the usual one


def _is_machinery(segment: str) -> bool:
    if not segment or segment in _MACHINERY or "->" in segment:
        return True
    return any(pattern.fullmatch(segment) for pattern in (_BRANCH, _KERNEL, _MODEL_CLASS))
