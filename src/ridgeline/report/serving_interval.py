"""What eight of ten measured servers lie between, of the plan that `ridgeline serve` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.serving.calibration import load_serving_calibration
from ridgeline.model.kind import model_kind
from ridgeline.report.jsonable import Json, jsonable
from ridgeline.search.serving.setting import PLANNED_ENGINE

if TYPE_CHECKING:
    from ridgeline.search.serving.answer import ServeAnswer


def interval_json(answer: ServeAnswer) -> dict[str, Json]:
    """Lower and upper end of 80% intervals: of the mean times, and of tokens/s per chip."""
    best, chip = answer.best, answer.job.hardware.chip
    calibration = load_serving_calibration(chip.kind)
    has_experts = "moe" in model_kind(answer.job.model)
    token, first = (
        1.0 + calibration.half_width_fraction(chip.name, PLANNED_ENGINE, has_experts=has_experts, is_first=is_first)
        for is_first in (False, True)
    )
    rate = best.tokens_per_s_per_chip
    ends = {
        "ttft_s": (best.ttft.mean_s / first, best.ttft.mean_s * first),
        "tpot_s": (best.tpot.mean_s / token, best.tpot.mean_s * token),
        "tokens_per_s_per_chip": (rate / token, rate * token),
    }
    return {key: {"low": jsonable(low), "high": jsonable(high)} for key, (low, high) in ends.items()}
