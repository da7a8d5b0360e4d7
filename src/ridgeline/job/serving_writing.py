"""What a serving job asks for in the form of a job file: short where a short form says it all."""

from __future__ import annotations

from dataclasses import asdict
from os.path import relpath
from typing import TYPE_CHECKING, Any

from ridgeline.job.model_path import path_to
from ridgeline.job.serving import PrefixCache
from ridgeline.job.serving_assembly import ANY
from ridgeline.job.traffic import EmpiricalLength, FixedLength, LognormalLength, UniformLength

if TYPE_CHECKING:
    from ridgeline.job.serving import ServingPlan, ServingWorkload, Speculation, Statistic
    from ridgeline.job.traffic import Length

    Entries = dict[str, Any]


def serving_workload_table(workload: ServingWorkload, folder: str) -> Entries:
    """`[workload]`; a trace says lengths and rate itself."""
    trace, cache = workload.trace, workload.prefix_cache
    asked: Entries = (
        {
            "prompt_len": _length(workload.prompts, folder),
            "generate_len": _length(workload.replies, folder),
            "rate": workload.rate,
        }
        if trace is None
        else {"trace": relpath(trace.file, folder)}
    )
    return {
        **asked,
        "batch": workload.batch,
        "ttft_s": _limit(workload.ttft_s, workload.ttft_of),
        "tpot_s": _limit(workload.tpot_s, workload.tpot_of),
        "prefix_cache": None if cache == PrefixCache() else {"hit_rate": cache.hit_fraction, "shared": cache.shared},
        "kind": workload.kind,
    }


def serving_plan_table(plan: ServingPlan, folder: str) -> Entries:
    """`[plan]`."""
    ratio, speculation, entries = plan.server_ratio, plan.speculation, asdict(plan)
    entries["dtypes"] |= dict.fromkeys(entries.pop("open_dtypes"), ANY)
    return entries | {
        "server_ratio": None if ratio is None else f"{ratio[0]}:{ratio[1]}",
        "speculation": None if speculation is None else _speculation(speculation, folder),
    }


def _length(length: Length, folder: str) -> int | Entries:
    match length:
        case FixedLength(tokens=tokens):
            return tokens
        case UniformLength(least_tokens=least, most_tokens=most):
            return {"min": least, "max": most}
        case LognormalLength(mean_tokens=mean, sigma=sigma, most_tokens=most):
            return {"mean": mean, "sigma": sigma, "max": most}
        case EmpiricalLength(file=file):
            return {"file": relpath(file, folder) if file else ""}


def _limit(limit_s: float | None, of: Statistic) -> float | Entries | None:
    return limit_s if limit_s is None or of == "mean" else {of: limit_s}


def _speculation(speculation: Speculation, folder: str) -> Entries:
    model = speculation.draft_model
    return {
        "draft_tokens": speculation.draft_tokens,
        "acceptance": speculation.acceptance_fraction,
        "draft_model": None if model is None else path_to(model, folder),
    }
