"""Architectures of one size beside each other, on a screen, as JSON and drawn."""

from __future__ import annotations

from math import ceil, floor, isnan
from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import mesh_in_words
from ridgeline.model.spec import AttentionSpec, MlaSpec, MlpSpec, MoeSpec
from ridgeline.report.blocks import Cell, Paragraphs, Table
from ridgeline.report.chart import Axis, Chart, Curve, Mark
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.report.train import BOUNDS
from ridgeline.search.architectures import BAND
from ridgeline.units import format_bytes, format_count, format_fraction, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.model.spec import LayerSpec, ModelSpec
    from ridgeline.report.blocks import Piece, Tone
    from ridgeline.search.architectures import Architecture, ArchitecturesAnswer

_SAME: Final = 0.005
_ROOM: Final = 0.5
_NAMES: Final = {
    "num_layers": "layers",
    "mlp_ratio": "MLP over width",
    "num_heads": "query heads",
    "num_kv_heads": "key-value heads",
    "head_dim": "head width",
    "num_experts": "experts",
}


def architectures_pieces(answer: ArchitecturesAnswer) -> Iterator[Piece]:
    """The table, and why the fastest is it."""
    yield Table(
        title="Which architecture of this size runs fastest here",
        columns=("trade", "layers", "width", "heads", "MLP", "params", "step", "beside", "MFU", "memory"),
        right=frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9}),
        rows=tuple(_row(each) for each in answer.found),
        note=(
            f"parameters within {BAND:.0%}, those a token visits as well; widths are multiples of {answer.tile}; each "
            "is planned anew; how well each would learn is not known here"
        ),
    )
    yield Paragraphs(title="Why", lines=tuple(Cell(text=line) for line in _why(answer)))


def architectures_json(answer: ArchitecturesAnswer) -> dict[str, Json]:
    """The same in base units."""
    return {
        "band": BAND,
        "tile": answer.tile,
        "because": answer.because,
        "fastest": dict(answer.found[0].factor_of_dimension),
        "found": [_architecture_json(each) for each in answer.found],
        "left_out": [dict(factors) for factors in answer.left_out],
        "quality": None,
    }


def architectures_chart(answer: ArchitecturesAnswer, *, title: str) -> Chart:
    """A curve a dimension: how much larger it is, and what becomes of the step; all of one size."""
    planned = [each for each in answer.found if each.best is not None]
    curves: list[Curve] = []
    for dimension, name in _NAMES.items():
        alone = [each for each in planned if list(each.factor_of_dimension) == [dimension]]
        points = [(each.factor_of_dimension[dimension], each.time_ratio) for each in alone]
        if points:
            curves.append(Curve(name=name, points=tuple(sorted([*points, (1.0, 1.0)]))))
    ratios = [each.time_ratio for each in planned]
    together = [each for each in planned if len(each.factor_of_dimension) > 1]
    return Chart(
        title=f"{title}: one size, other shapes",
        x=Axis(title="times as large as the job's", low=0.4, high=2.5, shown=_times, step=2),
        y=Axis(
            title="step, times as long as the job's",
            low=floor(min(ratios) * 10 - _ROOM) / 10,
            high=ceil(max(ratios) * 10 + _ROOM) / 10,
            shown=_times,
            step=0.1,
            linear=True,
        ),
        curves=tuple(curves),
        marks=(
            Mark(name="the job's", x=1.0, y=1.0),
            *(Mark(name="together", x=1.0, y=each.time_ratio) for each in together),
        ),
    )


def _times(value: float) -> str:
    return f"{value:.3g}×"


def _row(each: Architecture) -> tuple[Cell, ...]:
    heads, mlp = _widths(_commonest(each.model))
    begins = (
        Cell(text="together" if len(each.factor_of_dimension) > 1 else _changed(each)),
        Cell(text=f"{each.model.num_layers:,}"),
        Cell(text=f"{each.model.embed_dim:,}"),
        Cell(text=heads),
        Cell(text=mlp),
        Cell(text=format_count(each.parameters.total)),
    )
    best = each.best
    if best is None:
        return (*begins, *(Cell(text="–", tone="dim"),) * 4)
    return (
        *begins,
        Cell(text=format_seconds(best.step.expected_s), tone="plain" if each.factor_of_dimension else "strong"),
        Cell(text=_beside(each), tone=_tone(each.time_ratio)),
        Cell(text=format_fraction(best.mfu)),
        Cell(text=format_bytes(best.memory.total_bytes)),
    )


def _changed(each: Architecture) -> str:
    return _in_words(each.factor_of_dimension) or "the job's own"


def _beside(each: Architecture) -> str:
    change = each.time_ratio - 1
    if not each.factor_of_dimension:
        return ""
    return f"{'+' if change > 0 else '−'}{format_fraction(abs(change))}" if abs(change) >= _SAME / 10 else "the same"


def _tone(ratio: float) -> Tone:
    if isnan(ratio) or abs(ratio - 1) < _SAME:
        return "dim"
    return "bad" if ratio > 1 else "good"


def _why(answer: ArchitecturesAnswer) -> Iterator[str]:
    first = answer.found[0]
    begins = f"{_changed(first)}: " if first.factor_of_dimension else ""
    line = f"{begins}{answer.because}."
    yield f"{line[:1].upper()}{line[1:]}"
    for each in answer.found[1:]:
        if each.best is None:
            yield f"{_changed(each)}: {each.reason}."
        elif each.because:
            where = f"{mesh_in_words(each.best.plan.mesh)}, waits for {BOUNDS[each.best.bound]}"
            yield f"{_changed(each)}: {each.because} ({where})."
    if answer.left_out:
        yield f"No shape of this size: {'; '.join(map(_in_words, answer.left_out))}."


def _in_words(factors: Mapping[str, float]) -> str:
    return ", ".join(f"{_NAMES[name]} ×{factor:.3g}" for name, factor in factors.items())


def _commonest(model: ModelSpec) -> LayerSpec:
    return max(model.layers, key=lambda run: run[1])[0]


def _widths(layer: LayerSpec) -> tuple[str, str]:
    """Heads and MLP of a layer: `64/8 × 128`, `28,672`; experts as `8/256 × 2,048`."""
    match layer.mixer:
        case AttentionSpec() as mixer:
            heads = f"{mixer.num_heads}/{mixer.num_kv_heads} × {mixer.head_dim}"
        case MlaSpec() as mixer:
            heads = f"{mixer.num_heads} × {mixer.qk_nope_head_dim + mixer.qk_rope_head_dim}"
        case _:
            heads = "–"
    match layer.mlp:
        case MlpSpec() as mlp:
            return heads, f"{mlp.mlp_dim:,}"
        case MoeSpec() as moe:
            return heads, f"{moe.top_k}/{moe.num_experts} × {moe.expert_mlp_dim:,}"
        case None:
            return heads, "–"


def _architecture_json(each: Architecture) -> dict[str, Json]:
    layer = _commonest(each.model)
    found: dict[str, Json] = {
        "factors": dict(each.factor_of_dimension),
        "num_layers": each.model.num_layers,
        "embed_dim": each.model.embed_dim,
        "mixer": jsonable(layer.mixer),
        "mlp": jsonable(layer.mlp),
        "params_total": each.parameters.total,
        "params_active": each.parameters.active,
        "flops_per_token_training": each.flops_per_token,
        "time_ratio": jsonable(each.time_ratio),
        "because": each.because or None,
        "reason": each.reason or None,
        "plan": None,
    }
    if each.best is not None and each.use is not None:
        found |= {
            "plan": jsonable(each.best.plan),
            "expected_s": each.best.step.expected_s,
            "roofline_s": each.best.step.roofline_s,
            "mfu": each.best.mfu,
            "memory_bytes": each.best.memory.total_bytes,
            "bound": each.best.bound,
            "bound_reason": each.best.bound_reason,
            "matrix_units_filled": each.use.filled_fraction,
            "matmul_flops_per_byte": each.use.intensity_flops_per_byte,
            "exposed_communication": each.use.exposed_fraction,
        }
    return found
