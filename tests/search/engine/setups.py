"""Requests and engines small enough to compute on paper, and one that is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ridgeline.job.traffic import FixedLength, Requests, Traffic, UniformLength
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.engine.setting import Engine, Limits, Scheduling
from ridgeline.search.engine.times import StepTable, StepTimes, step_table

ONE_SECOND = StepTable(rows=(1.0,), keys=(0.0,), seconds=((1.0,),))
"""A pass that takes a second, whatever is in it."""

HUNDREDTH_A_TOKEN = StepTable(rows=(1.0, 100.0), keys=(0.0,), seconds=((0.01,), (1.0,)))
"""Prefill of a hundred tokens a second."""

PAPER = Engine(
    times=StepTimes(decode=ONE_SECOND, prefill=HUNDREDTH_A_TOKEN),
    limits=Limits(max_sequences=8, max_pass_tokens=100),
    scheduling=Scheduling(prefill="separate"),
)

POWERS = tuple(2**power for power in range(10))
LARGE = Engine(
    times=StepTimes(
        decode=step_table(
            lambda rows, keys: 6e-3 + 2e-5 * rows + 1e-8 * rows * keys, rows=POWERS, keys=(128, 512, 2048, 8192)
        ),
        prefill=step_table(
            lambda rows, keys: np.maximum(6e-3, 1.5e-5 * rows) + 1e-10 * rows * keys,
            rows=(1, 128, 512, 1024, 2048, 4096),
            keys=(0, 1024, 4096),
        ),
        shared_s=6e-3,
    ),
    limits=Limits(max_sequences=256, max_pass_tokens=2048, kv_pages=40_000),
)
"""A server like one of a 70B model on eight large chips: 6 ms to read the weights; full at 26.2 requests a second."""


def requests_of(*rows: tuple[float, int, int]) -> Requests:
    """Requests by arrival, prompt tokens and output tokens."""
    arrival_s, prompts, outputs = zip(*rows, strict=True)
    return Requests(
        arrival_s=np.array(arrival_s, dtype=np.float64),
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
    )


def chats(requests_per_s: float, num_requests: int = 4000, seed: int = 0) -> Requests:
    """Requests of 1,024 tokens in, 512 out on average."""
    return draw_requests(
        Traffic(
            requests_per_s=requests_per_s,
            prompt=FixedLength(tokens=1024),
            output=UniformLength(least_tokens=256, most_tokens=768),
            num_requests=num_requests,
            seed=seed,
        )
    )


def scheduled(engine: Engine, **changes: object) -> Engine:
    """An engine that schedules otherwise."""
    return replace(engine, scheduling=replace(engine.scheduling, **changes))


def limited(engine: Engine, **changes: object) -> Engine:
    """An engine with other limits."""
    return replace(engine, limits=replace(engine.limits, **changes))
