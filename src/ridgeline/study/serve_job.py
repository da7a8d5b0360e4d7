"""`serve` as a function: a model and what is said of it, or a whole job, to the answer of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.job.serving_slices import slices_of_family
from ridgeline.job.whole import whole_serving_job
from ridgeline.search.serve import serve as plan_serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from ridgeline.job.origin import Arguments
    from ridgeline.job.serving import ServingJob
    from ridgeline.search.serving.answer import ServeAnswer


def serve(
    job: str | ServingJob,
    *,
    progress: Callable[[str, float], None] = lambda _what, _fraction: None,
    **arguments: Unpack[Arguments],
) -> ServeAnswer:
    """The cheapest way to serve a model that meets the limits, and the frontier of all.

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json.
        progress: Called with what is being done and the fraction done.
        arguments: `on` (a slice, or a chip alone for all its sizes); `prompt_len` and `generate_len`, each a number or
            how they differ (`{"p50": 800, "p90": 2000}`), or a `trace`; `rate`, `ttft` and `tpot` (`"50ms"`, or
            `{"p90": "2s"}`), `prefix_hit_rate`, `prefix_shared`; and what is to be held: `batch`, `mesh`, `mode`,
            `server_ratio`, `prefill_chunk`, `draft_tokens`, `acceptance`, `draft_model`, `weights_dtype`, ….

    Raises:
        InputError: The question is malformed.
        InfeasibleError: No plan fits, or none meets the limits.

    >>> import ridgeline
    >>> answer = ridgeline.serve("llama3.1-8b", on="v5e:2x4", prompt_len=1024, generate_len=256, tpot="50ms")
    >>> answer.best.memory.verdict, answer.best.tpot.mean_s <= 0.05
    ('fits', True)
    """
    slices = slices_of_family(arguments.get("on"))
    if slices:
        arguments["on"] = slices[0].name
    return plan_serving(whole_serving_job(job, arguments), slices=slices, progress=progress)
