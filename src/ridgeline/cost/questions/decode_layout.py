"""Which parallelism helps to generate, and to read prompts, and what each way to split moves.

    Tmp[B, F] = In[B, D] · W_in[D, F];  Out[B, D] = Tmp[B, F] · W_out[F, D];  attention over cached keys and values

| layout | arrays | when |
|---|---|---|
| `tensor` | In[B, D_Y], W_in[D, F_Y], W_out[F_Y, D] | up to the ways at which links bind |
| `stationary` | In[B, D_XYZ], W_in[D_X, F_YZ], W_out[F_YZ, D_X] | on more chips: both dimensions of a matrix |
| `heads` | K, V[B, S, K_Y, H] | first: as many ways as there are key-value heads |
| `sequences` | K, V[B_Z, S, K_Y, H] | beyond them: attention's sequences change devices |
| `tokens` | K, V[B, S_Z, K_Y, H] | few sequences and long contexts: partial softmaxes are merged |

Source: Scaling Book, ch. 7, distributing inference over many accelerators, and question 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.job.serving import Phase

Scheme: TypeAlias = Literal["model", "sequence", "pipeline", "expert", "fsdp", "data"]
Layout: TypeAlias = Literal["tensor", "stationary", "heads", "sequences", "tokens"]

ALIASES: Final[Mapping[str, Scheme]] = {
    "tp": "model",
    "tensor": "model",
    "megatron": "model",
    "sp": "sequence",
    "cp": "sequence",
    "context": "sequence",
    "pp": "pipeline",
    "pipelining": "pipeline",
    "ep": "expert",
    "experts": "expert",
    "zero": "fsdp",
    "zero-3": "fsdp",
    "dp": "data",
}

HELPS: Final[Mapping[Phase, Mapping[Scheme, str]]] = {
    "prefill": {
        "model": "matmuls compute as in training: up to n_axes · F / α ways",
        "sequence": "beyond those ways, the tokens of a prompt",
        "pipeline": "stages hand over activations alone, prompts fill them",
        "expert": "experts share out the tokens that visit them",
    },
    "decode": {
        "model": "activations move, and a token has few of them",
        "expert": "experts share out the tokens that visit them",
    },
}
"""What shortens a phase, and why."""

HINDERS: Final[Mapping[Phase, Mapping[Scheme, str]]] = {
    "prefill": {
        "fsdp": "weights travel for each prompt; servers of their own read as many prompts",
        "data": "weights are kept twice; servers of their own read as many prompts",
    },
    "decode": {
        "fsdp": "weights travel over links in every step, which are slower than memory",
        "data": "weights are kept and read twice; servers of their own do the same",
        "sequence": "a step has one token of each sequence; only the cache has a dimension of tokens",
        "pipeline": "a token passes the stages one after another, and waits as long as on one",
    },
}
"""What does not, and why not."""

SCHEDULES: Final[Mapping[Layout, tuple[str, ...]]] = {
    "tensor": ("all_gather_Y:In", "reduce_scatter_Y:Out"),
    "stationary": ("all_gather_YZ:In", "all_reduce_X:Tmp", "reduce_scatter_YZ:Out"),
    "heads": ("all_reduce_Y:X",),
    "sequences": ("all_to_all_Z:Q", "all_to_all_Z:O", "all_reduce_YZ:X"),
    "tokens": ("all_gather_Z:Q", "all_reduce_Z:O", "all_reduce_YZ:X"),
}
"""The collectives of a layer, in order: kind, axes, array (Q, O: queries and attention's output, X: a block's)."""

CACHES: Final[Mapping[Layout, str]] = {
    "heads": "[2, B, S, K_Y, H]",
    "sequences": "[2, B_Z, S, K_Y, H]",
    "tokens": "[2, B, S_Z, K_Y, H]",
}
"""How keys and values of B sequences of S tokens lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLayout:
    """What is to be said of parallelism in serving.

    Attributes:
        phase: Prefill or decode.
        helpful: Of the schemes that were named, as they were written, those that shorten the phase.
        reasons: Of each named scheme, why it does or does not.
        schedules: By layout, the collectives of a layer.
        caches: By layout of the cache, its axes.
    """

    phase: Phase
    helpful: tuple[str, ...]
    reasons: Mapping[str, str]
    schedules: Mapping[Layout, tuple[str, ...]]
    caches: Mapping[Layout, str]


def decode_layout(schemes: Sequence[str] = tuple(HELPS["decode"]), *, phase: Phase = "decode") -> DecodeLayout:
    """Which of some schemes shorten a phase of serving.

    >>> decode_layout(["fsdp", "tp"]).helpful, decode_layout().schedules["stationary"]
    (('tp',), ('all_gather_YZ:In', 'all_reduce_X:Tmp', 'reduce_scatter_YZ:Out'))

    Args:
        schemes: `model` (tensor parallelism), `sequence`, `pipeline`, `expert`, `fsdp`, `data`, or what they are
            called elsewhere: `tp`, `cp`, `pp`, `ep`, `dp`.
        phase: `decode`, or `prefill`.

    Raises:
        InputError: There is no such scheme.
    """
    reasons = {scheme: _reason(scheme, phase) for scheme in schemes}
    helpful = tuple(scheme for scheme in schemes if _scheme(scheme) in HELPS[phase])
    return DecodeLayout(phase=phase, helpful=helpful, reasons=reasons, schedules=SCHEDULES, caches=CACHES)


def _reason(scheme: str, phase: Phase) -> str:
    return (HELPS[phase] | HINDERS[phase])[_scheme(scheme)]


def _scheme(written: str) -> Scheme:
    known: dict[str, Scheme] = {scheme: scheme for scheme in (*HELPS["prefill"], *HINDERS["prefill"])}
    known |= ALIASES
    name = written.strip().lower().removesuffix(" parallelism").removesuffix(" parallel")
    if name not in known:
        raise InputError(
            "unknown scheme",
            where="schemes",
            value=written,
            expected=", ".join(known),
            fix=nearest(name, known) or "use one of those",
        )
    return known[name]
