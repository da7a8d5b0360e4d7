"""What each parallelism scheme moves for one MLP layer: its collectives in order, their bytes, what binds.

    In[B, D] · W_in[D, F] · W_out[F, D] = Out[B, D], and backward dOut to dW_out, dW_in and dIn

| scheme | arrays |
|---|---|
| `dp` | In[B_X, D], weights whole |
| `fsdp` | In[B_X, D], W_in[D_X, F], W_out[F, D_X]: gathered before use |
| `tp` | In[B, D_Y], W_in[D, F_Y], W_out[F_Y, D] |
| `mixed` | In[B_X, D_Y], W_in[D_X, F_Y], W_out[F_Y, D_X] |

Source: Scaling Book, ch. 5, the algorithms of each section and the table that closes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict

from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.laws.layer import (
    activation_moves_bytes,
    backward_flops,
    forward_flops,
    math_s,
    moves_s,
    weight_moves_bytes,
)
from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

Scheme: TypeAlias = Literal["dp", "fsdp", "tp", "mixed"]
Kind: TypeAlias = Literal["all_gather", "reduce_scatter", "all_reduce"]
Bound: TypeAlias = Literal["compute", "comms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of a layer.

    Attributes:
        kind: What it does.
        array: On what: `W_in`, `dW_out`, `In`, `dOut`, …
        axis: Over which ways: `X` (data) or `Y` (tensor).
        reusable: The forward pass gathered the same array, and it could have been kept.
    """

    kind: Kind
    array: str
    axis: Literal["X", "Y"]
    reusable: bool = False

    @property
    def critical(self) -> bool:
        """Whether the next matmul waits for it: activations do; weights and their gradients can be moved beside."""
        return self.axis == "Y"

    @property
    def num_moves(self) -> int:
        """Times its array moves: an all-reduce is a reduce-scatter and an all-gather."""
        return 2 if self.kind == "all_reduce" else 1


def _over(axis: Literal["X", "Y"], *steps: tuple[Kind, str]) -> tuple[Collective, ...]:
    return tuple(Collective(kind=kind, array=array, axis=axis) for kind, array in steps)


_IN_AGAIN = Collective(kind="all_gather", array="In", axis="Y", reusable=True)
_GATHER_IN, _SCATTER_OUT = _over("Y", ("all_gather", "In"), ("reduce_scatter", "Out"))
_GATHER_D_OUT, _SCATTER_D_IN = _over("Y", ("all_gather", "dOut"), ("reduce_scatter", "dIn"))
_WEIGHTS = _over("X", ("all_gather", "W_in"), ("all_gather", "W_out"))
_OUT_BACK = _over("X", ("reduce_scatter", "dW_out"), ("all_gather", "W_out"))
_IN_BACK = _over("X", ("reduce_scatter", "dW_in"), ("all_gather", "W_in"))

FORWARD: Final[Mapping[Scheme, tuple[Collective, ...]]] = {
    "dp": (),
    "fsdp": _WEIGHTS,
    "tp": (_GATHER_IN, _SCATTER_OUT),
    "mixed": (_GATHER_IN, *_WEIGHTS, _SCATTER_OUT),
}
"""Collectives of the forward pass, in order."""

BACKWARD: Final[Mapping[Scheme, tuple[Collective, ...]]] = {
    "dp": _over("X", ("all_reduce", "dW_out"), ("all_reduce", "dW_in")),
    "fsdp": (*_OUT_BACK, *_IN_BACK),
    "tp": (_GATHER_D_OUT, _IN_AGAIN, _SCATTER_D_IN),
    "mixed": (_GATHER_D_OUT, *_OUT_BACK, _IN_AGAIN, *_IN_BACK, _SCATTER_D_IN),
}
"""Collectives of the backward pass, in order."""

_MORE_IN_THE_TABLE: Final[Mapping[Scheme, int]] = {"mixed": 2}
"""Moves of activations that the book's table counts beyond the algorithm it lists: 8·B·D/X backward for 6."""


class LayerNumbers(TypedDict, total=False):
    """What may be said of the layer and the machine.

    B_tokens, D and F make FLOPs and bytes known; C_flops_per_s and W_ici_bytes_per_s times. X, Y, M_X and M_Y are 1
    unless given, elements 2 bytes wide, the MLP ungated.
    """

    B_tokens: float
    D: float
    F: float
    X: float
    Y: float
    M_X: float
    M_Y: float
    C_flops_per_s: float
    W_ici_bytes_per_s: float
    gated: bool
    b_a: float
    b_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPass:
    """One pass through the layer, on one chip.

    Attributes:
        flops: Arithmetic.
        weights_bytes: Moved over the data ways.
        activations_bytes: Moved over the tensor ways; what can be reused is not gathered again.
        math_s: Time of the arithmetic; None without the chip's peak.
        weights_s: Time of the weights' moves; None without the links' rate.
        activations_s: Time of the activations' moves; None without it.
    """

    flops: float
    weights_bytes: float
    activations_bytes: float
    math_s: float | None
    weights_s: float | None
    activations_s: float | None

    @property
    def moved_bytes(self) -> float:
        """Weights and activations."""
        return self.weights_bytes + self.activations_bytes

    @property
    def moves_s(self) -> float | None:
        """Weights and activations one after the other; None without the links' rate."""
        return None if self.weights_s is None or self.activations_s is None else self.weights_s + self.activations_s

    @property
    def summed_bound(self) -> Bound | None:
        """What binds if weights and activations move one after the other; None without rates."""
        return self._bound(lambda weights_s, activations_s: weights_s + activations_s)

    @property
    def overlapped_bound(self) -> Bound | None:
        """What binds if they move at once; None without rates."""
        return self._bound(max)

    def _bound(self, together: Callable[[float, float], float]) -> Bound | None:
        if self.math_s is None or self.weights_s is None or self.activations_s is None:
            return None
        return "compute" if together(self.weights_s, self.activations_s) < self.math_s else "comms"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """A scheme's collectives for one layer and what they cost.

    Attributes:
        scheme: Which.
        forward_collectives: In order.
        backward_collectives: In order.
        forward: The forward pass; None where the layer's sizes are not given.
        backward: The backward pass; None likewise.
        repeated_bytes: What is gathered again if the forward pass does not keep it.
        table_bytes: Of both passes as the book's table has it; more than the algorithm moves for `mixed`.
        derivations: Where the numbers come from.
    """

    scheme: Scheme
    forward_collectives: tuple[Collective, ...]
    backward_collectives: tuple[Collective, ...]
    forward: LayerPass | None = None
    backward: LayerPass | None = None
    repeated_bytes: float | None = None
    table_bytes: float | None = None
    derivations: tuple[Derivation, ...] = ()

    @property
    def num_collectives(self) -> int:
        """Of both passes."""
        return len(self.forward_collectives) + len(self.backward_collectives)

    @property
    def critical_path(self) -> str:
        """What the matmuls wait for: `activations`, or `none` where all can be hidden."""
        critical = any(each.critical for each in (*self.forward_collectives, *self.backward_collectives))
        return "activations" if critical else "none"

    @property
    def schedule(self) -> Mapping[str, tuple[str, ...]]:
        """The collectives of each pass in words: `all_gather:W_in`, `all_gather_Y:In (reusable)`."""
        axes = {each.axis for each in (*self.forward_collectives, *self.backward_collectives)}

        def words(each: Collective) -> str:
            over = f"_{each.axis}" if len(axes) > 1 else ""
            return f"{each.kind}{over}:{each.array}{' (reusable)' if each.reusable else ''}"

        return {
            "forward": tuple(words(each) for each in self.forward_collectives),
            "backward": tuple(words(each) for each in self.backward_collectives),
        }

    @property
    def flops(self) -> float | None:
        """Of both passes, on one chip."""
        return self.forward.flops + self.backward.flops if self.forward and self.backward else None

    @property
    def moved_bytes(self) -> float | None:
        """Of both passes, on one chip; what can be reused is not gathered again."""
        return self.forward.moved_bytes + self.backward.moved_bytes if self.forward and self.backward else None

    @property
    def listed_bytes(self) -> float | None:
        """The same with every collective of the algorithm, reusable or not."""
        return None if self.moved_bytes is None else self.moved_bytes + (self.repeated_bytes or 0.0)


def layer_communication(scheme: str, **numbers: Unpack[LayerNumbers]) -> LayerCommunication:
    """What a scheme moves for one layer.

    >>> fsdp = layer_communication("fsdp", B_tokens=4096, D=8, F=32, X=4)
    >>> fsdp.flops == 12 * 4096 * 8 * 32 / 4, fsdp.moved_bytes == 12 * 8 * 32, fsdp.critical_path
    (True, True, 'none')

    Args:
        scheme: `dp`, `fsdp`, `tp` or `mixed` (FSDP with tensor parallelism).
        **numbers: Of the layer and the machine; see `LayerNumbers`. A scheme ignores the ways it does not use.

    Raises:
        InputError: The scheme, or a number's name, is unknown.
    """
    if scheme not in FORWARD:
        fix = nearest(scheme, FORWARD) or "use one of those"
        raise InputError("unknown scheme", where="scheme", value=scheme, expected=", ".join(FORWARD), fix=fix)
    for name, value in numbers.items():
        if name not in LayerNumbers.__annotations__:
            known = ", ".join(LayerNumbers.__annotations__)
            fix = nearest(name, LayerNumbers.__annotations__) or "leave it out"
            raise InputError("unknown number", where=name, value=value, expected=f"one of {known}", fix=fix)
    gated = numbers.get("gated", False)
    forward, backward = (_gated(steps[scheme], gated=gated) for steps in (FORWARD, BACKWARD))
    answer = LayerCommunication(scheme=scheme, forward_collectives=forward, backward_collectives=backward)
    if not {"B_tokens", "D", "F"} <= numbers.keys():
        return answer
    found = {
        "forward": _derivations(scheme, numbers, forward, backward=False),
        "backward": _derivations(scheme, numbers, backward, backward=True),
    }
    passes = {name: _layer_pass(each) for name, each in found.items()}
    move_bytes = _activations(scheme, numbers, num_moves=1).value
    moved_bytes = sum(each.moved_bytes for each in passes.values())
    return replace(
        answer,
        forward=passes["forward"],
        backward=passes["backward"],
        repeated_bytes=move_bytes * sum(each.reusable for each in backward),
        table_bytes=moved_bytes + move_bytes * _MORE_IN_THE_TABLE.get(scheme, 0),
        derivations=tuple(
            replace(each, quantity=f"{name} {what.removesuffix('_s').removesuffix('_bytes')}")
            for name, those in found.items()
            for what, each in those.items()
        ),
    )


def _derivations(
    scheme: Scheme, numbers: LayerNumbers, steps: Iterable[Collective], *, backward: bool
) -> Mapping[str, Derivation]:
    """Of one pass, under the names of `LayerPass`."""
    moves = {axis: sum(each.num_moves for each in steps if each.axis == axis and not each.reusable) for axis in "XY"}
    B_tokens, D, F, X, Y = _sizes(scheme, numbers)
    matrices = 3.0 if numbers.get("gated", False) else 2.0
    flops = derive(forward_flops, B_tokens=B_tokens, D=D, F=F, X=X, Y=Y, num_matrices=matrices)
    found = {
        "flops": derive(backward_flops, forward_flops=flops.value) if backward else flops,
        "weights_bytes": derive(weight_moves_bytes, D=D, F=F, Y=Y, num_moves=moves["X"], b_w=numbers.get("b_w", 2.0)),
        "activations_bytes": _activations(scheme, numbers, num_moves=moves["Y"]),
    }
    if "C_flops_per_s" in numbers:
        found["math_s"] = derive(math_s, flops=found["flops"].value, C_flops_per_s=numbers["C_flops_per_s"])
    if "W_ici_bytes_per_s" in numbers:
        for what, n_axes in (("weights", numbers.get("M_X", 1.0)), ("activations", numbers.get("M_Y", 1.0))):
            V_bytes, rate_bytes_per_s = found[f"{what}_bytes"].value, numbers["W_ici_bytes_per_s"]
            found[f"{what}_s"] = derive(moves_s, V_bytes=V_bytes, n_axes=n_axes, W_ici_bytes_per_s=rate_bytes_per_s)
    return found


def _activations(scheme: Scheme, numbers: LayerNumbers, *, num_moves: float) -> Derivation:
    B_tokens, D, _, X, _ = _sizes(scheme, numbers)
    b_a = numbers.get("b_a", 2.0)
    return derive(activation_moves_bytes, B_tokens=B_tokens, D=D, X=X, num_moves=num_moves, b_a=b_a)


def _sizes(scheme: Scheme, numbers: LayerNumbers) -> tuple[float, float, float, float, float]:
    """B, D, F, X and Y; ways that a scheme does not use are 1."""
    X = numbers.get("X", 1.0) if scheme != "tp" else 1.0
    Y = numbers.get("Y", 1.0) if scheme in {"tp", "mixed"} else 1.0
    return numbers.get("B_tokens", 0.0), numbers.get("D", 0.0), numbers.get("F", 0.0), X, Y


def _layer_pass(derivations: Mapping[str, Derivation]) -> LayerPass:
    def value(name: str) -> float | None:
        return derivations[name].value if name in derivations else None

    return LayerPass(
        flops=derivations["flops"].value,
        weights_bytes=derivations["weights_bytes"].value,
        activations_bytes=derivations["activations_bytes"].value,
        math_s=value("math_s"),
        weights_s=value("weights_s"),
        activations_s=value("activations_s"),
    )


def _gated(steps: Iterable[Collective], *, gated: bool) -> tuple[Collective, ...]:
    """A gate's weights move as W_in's do."""
    return tuple(
        move
        for each in steps
        for move in (
            (each, replace(each, array=each.array.replace("W_in", "W_gate")))
            if gated and each.array.endswith("W_in")
            else (each,)
        )
    )
