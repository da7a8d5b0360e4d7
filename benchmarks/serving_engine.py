# ruff: noqa: INP001, T201 - a script that prints its result
"""How long an hour of a server takes to simulate: `python benchmarks/serving_engine.py`.

72,000 requests, 20 a second, of 1,024 tokens in and 512 out, on one server of about three quarters of its load. Prints
seconds of the processor, simulated events and tokens for each kind of scheduling. Nothing is asserted.
"""

from __future__ import annotations

from time import process_time

import numpy as np

from ridgeline.job.traffic import FixedLength, Traffic
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.engine.fleet import serve
from ridgeline.search.engine.latency import served_latency
from ridgeline.search.engine.setting import Disaggregated, Engine, Interleaved, Limits, Scheduling
from ridgeline.search.engine.times import StepTimes, step_table

TIMES = StepTimes(
    decode=step_table(
        lambda rows, keys: 6e-3 + 2e-5 * rows + 1e-8 * rows * keys,
        rows=tuple(2**power for power in range(10)),
        keys=(128, 512, 1024, 2048, 4096),
    ),
    prefill=step_table(
        lambda rows, keys: np.maximum(6e-3, 1.5e-5 * rows) + 1e-10 * rows * keys,
        rows=(1, 128, 512, 1024, 2048, 4096),
        keys=(0, 1024, 4096),
    ),
    shared_s=6e-3,
)
LIMITS = Limits(max_sequences=256, max_pass_tokens=2048, kv_pages=24_000)
HOUR = Traffic(
    requests_per_s=20, prompt=FixedLength(tokens=1024), output=FixedLength(tokens=512), num_requests=20 * 3600
)


def main() -> None:
    """Simulates the hour with each scheduler."""
    for prefill in ("chunked", "separate"):
        for admission in ("prompt", "whole"):
            for fleet in (Interleaved(), Disaggregated()):
                scheduling = Scheduling(prefill=prefill, admission=admission)
                engine = Engine(times=TIMES, limits=LIMITS, scheduling=scheduling, fleet=fleet)
                began_s = process_time()
                latency = served_latency(serve(draw_requests(HOUR), engine))
                took_s = process_time() - began_s
                kind = f"{type(fleet).__name__.lower()}, {prefill}, {admission}"
                print(
                    f"{took_s:5.2f} s   {kind:34}  TTFT {latency.ttft.mean_s:.3f} s  TPOT {latency.tpot.mean_s:.4f} s"
                )


if __name__ == "__main__":
    main()
