"""Fits the kernel parameters of a chip to the times measured on it, and says how far the fit is from the rest.

Each parameter belongs to one kernel and is fitted to that kernel's times alone, never to a whole step. A third of the
questions is held out (`KernelTime.is_held_out`); residuals are those of the held-out ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.kernel_time import LANES, PRODUCTS
from ridgeline.study.kernels.fitting import fit_positive
from ridgeline.study.kernels.models import columns_of, device_of, predicted_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.hardware.chip import Chip
    from ridgeline.study.kernels.models import Device
    from ridgeline.study.kernels.times import Kernel, KernelTime

LEAST_TIMES = 8
"""Fewer fitted times identify nothing: the parameter stays at its prior."""

_LEAST_KEYS = 1024
"""Attention over fewer keys is all edges; no training run has it."""

_STARTS = {
    "matmul_fill_bytes": 5_000_000.0,
    "grouped_matmul": 0.6,
    "grouped_edge_rows": 128.0,
    "grouped_partial_factor": 1.2,
    "attention_forward": 0.6,
    "attention_backward": 0.5,
    "attention_block": 1024.0,
    "attention_tile_pairs": 200_000.0,
    "attention_row_keys": 256.0,
    "attention_head_dim": 1.0,
    "loss_forward_bytes": 8.0,
    "loss_backward_bytes": 8.0,
}
"""Where every fit begins, by table of the calibration file."""

_FRACTIONS = ("grouped_matmul", "attention_forward", "attention_backward")
_LEAST_BYTES = 0.5
"""Of the softmax's traffic a logit; a fit that wants less says that the matmul's fraction is too low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFact:
    """A parameter that times identify.

    Attributes:
        key: Of the calibration file.
        value: Fitted, to three digits.
        num_times: That it was fitted to.
        sources: Where they were published.
    """

    key: str
    value: float
    num_times: int
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """How far predictions are from times that no fit saw.

    Attributes:
        kernel: Which.
        variant: Which.
        num_fitted: Times that a fit saw; 0 where every parameter comes from elsewhere.
        num_held_out: Times that no fit saw.
        num_other_programs: Times left out: another program than the one that is fastest most often, which was not
            tried there.
        median_error: Median of the absolute relative errors of the held-out ones; nan without any.
        p90_error: Nine of ten are below it.
        bias: Median of the signed ones.
    """

    kernel: Kernel
    variant: str
    num_fitted: int
    num_held_out: int
    num_other_programs: int
    median_error: float
    p90_error: float
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFit:
    """What the kernel times of a chip say.

    Attributes:
        chip: Name in the catalogue.
        facts: Identified parameters.
        residuals: Of every kernel measured, fitted or not.
    """

    chip: str
    facts: tuple[FittedFact, ...]
    residuals: tuple[Residual, ...]

    def residual(self, kernel: Kernel, variant: str) -> Residual:
        """That of a kernel."""
        return next(each for each in self.residuals if (each.kernel, each.variant) == (kernel, variant))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Parameters that are fitted together, to no fewer than `least` times; `is_partial`: `_is_partial` ones alone."""

    kernel: Kernel
    variants: tuple[str, ...]
    keys: tuple[str, ...]
    least: int = LEAST_TIMES
    is_partial: bool = False


_MATMUL = _Question(kernel="matmul", variants=("bf16",), keys=("matmul_fill_bytes",), least=1)
_GROUPED = tuple(
    _Question(
        kernel="grouped_matmul",
        variants=(product,),
        keys=(f"grouped_matmul.{product}", f"grouped_edge_rows.{product}"),
    )
    for product in ("output", "input_gradient", "weight_gradient")
)
_PARTIAL = _Question(
    kernel="grouped_matmul", variants=PRODUCTS, keys=("grouped_partial_factor",), least=len(PRODUCTS), is_partial=True
)
_LOSS = tuple(
    _Question(kernel="loss", variants=(direction,), keys=(f"loss_{direction}_bytes",))
    for direction in ("forward", "backward")
)
_ATTENTION_KEYS = ("attention_forward", "attention_backward", "attention_block", "attention_tile_pairs")
_ATTENTION_SHAPE_KEYS = ("attention_row_keys", "attention_head_dim.64", "attention_head_dim.256")
_ATTENTION = _Question(
    kernel="attention", variants=("forward", "backward"), keys=(*_ATTENTION_KEYS, *_ATTENTION_SHAPE_KEYS)
)
_QUESTIONS = (_MATMUL, *_GROUPED, _PARTIAL, *_LOSS, _ATTENTION)
"""In this order: a loss is a matmul and more."""

_SPLASH = _Question(
    kernel="attention",
    variants=("forward", "backward"),
    keys=(*_ATTENTION_KEYS, "attention_row_keys", "attention_head_dim.256"),
)


def fit_kernels(times: Iterable[KernelTime], chip: Chip, *, prior: Mapping[str, float]) -> KernelFit:
    """The kernel parameters of one chip.

    Args:
        times: Of any chips; those of this one are used.
        chip: Of the catalogue.
        prior: Every parameter by its calibration key, as it is without these times. What they do not identify
            stays there.
    """
    own = [time for time in times if time.chip == chip.name and _is_trained(time)]
    device = device_of(chip)
    kept = [time for group in _groups(own) for time in _by_leading_program(group)]
    parameters = {**_STARTS_BY_KEY, **prior}
    fitted: dict[str, FittedFact] = {}
    splash = [time for time in kept if "splash" in time.program]
    for question, among in (
        *((question, kept) for question in _QUESTIONS),
        (_SPLASH, splash),
    ):
        found = _fit(question, [time for time in among if not time.is_held_out], parameters, device)
        parameters |= {fact.key: fact.value for fact in found}
        fitted |= {fact.key: fact for fact in found}
    shown = [time for time in kept if time.kernel != "attention"] + (
        splash or [t for t in kept if t.kernel == "attention"]
    )
    return KernelFit(
        chip=chip.name,
        facts=tuple(fitted[key] for key in sorted(fitted)),
        residuals=tuple(
            _residual(
                group,
                parameters,
                device,
                was_fitted=any(_is_of(key, group[0]) for key in fitted),
                num_other_programs=_count_like(own, group) - len(group),
            )
            for group in _groups(shown)
        ),
    )


_STARTS_BY_KEY = {key: _STARTS[key.partition(".")[0]] for question in _QUESTIONS for key in question.keys}


def _is_trained(time: KernelTime) -> bool:
    """Whether its size is one of training."""
    return time.kernel != "attention" or time.sizes["S"] >= _LEAST_KEYS


def _groups(times: Sequence[KernelTime]) -> Iterator[list[KernelTime]]:
    """Times of one kernel and variant."""
    for key in dict.fromkeys((time.kernel, time.variant) for time in times):
        yield [time for time in times if (time.kernel, time.variant) == key]


def _by_leading_program(group: list[KernelTime]) -> list[KernelTime]:
    """Of grouped matmuls those by the program that is fastest most often: where another is, it was not tried."""
    if group[0].kernel != "grouped_matmul":
        return group
    leading = Counter(time.program for time in group).most_common(1)[0][0]
    return [time for time in group if time.program == leading]


def _count_like(times: Sequence[KernelTime], group: Sequence[KernelTime]) -> int:
    return sum((time.kernel, time.variant) == (group[0].kernel, group[0].variant) for time in times)


def _fit(
    question: _Question, times: Sequence[KernelTime], parameters: Mapping[str, float], device: Device
) -> list[FittedFact]:
    """The parameters of a question that its times identify; those of a variant without times stay."""
    asked = [
        time
        for time in times
        if time.kernel == question.kernel
        and time.variant in question.variants
        and _is_partial(time, device) == question.is_partial
    ]
    if len(asked) < question.least:
        return []
    groups = [(group, columns_of(group)) for group in _groups(asked)]
    seen = {group[0].variant for group, _ in groups}
    head_dims = {f"attention_head_dim.{time.sizes['H']:g}" for time in asked if "H" in time.sizes}
    has_tiles = "tile_q" in asked[0].sizes
    keys = [key for key in question.keys if _is_identified(key, seen=seen, head_dims=head_dims, has_tiles=has_tiles)]

    def predicted(trial: Mapping[str, float]) -> NDArray[np.float64]:
        together = {**parameters, **trial}
        return np.concatenate(
            [predicted_s((group[0].kernel, group[0].variant), sizes, together, device) for group, sizes in groups]
        )

    measured = np.array([time.measured_s for group, _ in groups for time in group])
    found = fit_positive(
        predicted,
        measured,
        start={key: _STARTS_BY_KEY[key] for key in keys},
        largest={key: 1.0 for key in keys if key.partition(".")[0] in _FRACTIONS},
    )
    sources = tuple(dict.fromkeys(time.source for time in asked))
    return [
        FittedFact(key=key, value=float(f"{_bounded(key, value):.3g}"), num_times=len(asked), sources=sources)
        for key, value in found.items()
    ]


def _is_partial(time: KernelTime, device: Device) -> bool:
    """Whether it is a grouped matmul of a width that ends within a register of a TPU."""
    on_tpu = device.mxu_side > 1 and time.kernel == "grouped_matmul"
    return on_tpu and any(time.sizes[width] % LANES for width in "DF")


def _is_identified(key: str, *, seen: set[str], head_dims: set[str], has_tiles: bool) -> bool:
    """A direction's fraction needs times of that direction, a head dim's ratio times of that head dim.

    Where tiles are told, what starting one costs shows; where not, their size does.
    """
    if key in ("attention_block", "attention_tile_pairs"):
        return has_tiles == (key == "attention_tile_pairs")
    if key.startswith("attention_head_dim"):
        return key in head_dims
    return key not in ("attention_forward", "attention_backward") or key.removeprefix("attention_") in seen


def _bounded(key: str, value: float) -> float:
    """A fit may drive what does not matter to nothing; a file holds no zeros."""
    return max(value, _LEAST_BYTES if key.endswith("_bytes") else value, 1.0 if "rows" in key or "keys" in key else 0.0)


def _is_of(key: str, time: KernelTime) -> bool:
    """Whether a parameter was fitted to the times of a kernel and variant."""
    return any(
        key in question.keys and time.kernel == question.kernel and time.variant in question.variants
        for question in _QUESTIONS
    )


def _residual(
    group: Sequence[KernelTime],
    parameters: Mapping[str, float],
    device: Device,
    *,
    was_fitted: bool,
    num_other_programs: int,
) -> Residual:
    held_out = [time for time in group if time.is_held_out or not was_fitted]
    errors = np.array([np.nan])
    if held_out:
        times_s = predicted_s((group[0].kernel, group[0].variant), columns_of(held_out), parameters, device)
        errors = times_s / np.array([time.measured_s for time in held_out]) - 1
    return Residual(
        kernel=group[0].kernel,
        variant=group[0].variant,
        num_fitted=len(group) - len(held_out),
        num_held_out=len(held_out),
        num_other_programs=num_other_programs,
        median_error=float(np.median(np.abs(errors))),
        p90_error=float(np.quantile(np.abs(errors), 0.9)),
        bias=float(np.median(errors)),
    )
