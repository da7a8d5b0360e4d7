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
_BRANCH = re.compile(r"branch_\d+_fun")
_KERNEL = re.compile(r"splash_m[hq]a\w*|\w+_sparsity_splash")
"""Scopes that the splash attention kernel opens inside its caller's."""

_MODEL_CLASS = re.compile(r"(Transformer|TransformerLinen|TransformerLinenPure|Decoder|NNXDecoder)\w*(\.\w+)?")

_MAXTEXT = (
    (r"decoder/(\w+/)*?(layers|layers_\d+|\w+_layers(_\d+)?|scanned_blocks)(?=/|$)", "layer"),
    (r"^layer/layers_\d+", "layer"),
    (r"(^|/)(pre_self_attention_layer_norm|pre_self_attention_norm|input_layernorm)(?=/|$)", r"\1attention/norm"),
    (r"(^|/)(post_self_attention_layer_norm|pre_ffw_norm|post_attention_layernorm)(?=/|$)", r"\1mlp/norm"),
    (r"(^|/)self_attention/qkv_proj", r"\1attention/qkv"),
    (r"(^|/)(self_attention|GptOssAttention|attention_layer)(?=/|$)", r"\1attention"),
    (r"(^|/)attention/attention_op(?=/|$)", r"\1attention/scores"),
    (r"(^|/)(MoeBlock_0|moe_block|MixtureOfExperts)(?=/|$)", r"\1moe"),
    (r"(^|/)moe/gate(?=/|$)", r"\1moe/router"),
    (r"(^|/)(mlp|shared_experts|moe)/wi_0(?=/|$)", r"\1\2/gate"),
    (r"(^|/)(mlp|shared_experts|moe)/wi_1(?=/|$)", r"\1\2/up"),
    (r"(^|/)(mlp|shared_experts|moe)/wi(?=/|$)", r"\1\2/up"),
    (r"(^|/)(mlp|shared_experts|moe)/wo(?=/|$)", r"\1\2/down"),
    (r"^(decoder/)?(shared_embedding|token_embedder)(?=/|$)", "embedding/tokens"),
    (r"^(decoder/)?position_embedder(?=/|$)", "embedding/positions"),
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
    """
    places = [Place(part=_part(path), phase=_phase(path, trains=trains)) for path in op_name.split(";")]
    return next((place for place in places if place.part), places[0])


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
    for pattern, replacement in _RENAMES:
        scopes = pattern.sub(replacement, scopes)
    return scopes.strip("/")


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
