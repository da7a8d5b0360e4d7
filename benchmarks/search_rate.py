# ruff: noqa: INP001 - a script, not a package
"""How many plans a second one core costs: `python benchmarks/search_rate.py`.

Prints the rate for a dense model on 4,096 chips and a sparse one on 512 devices. Nothing is asserted.
"""

from __future__ import annotations

from time import perf_counter

from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, Workload
from ridgeline.model.zoo import load_model
from ridgeline.search.train import train

JOBS = (("llama3.1-405b", "2*v5p:8x16x16", 8192, 8192), ("deepseek3-671b", "tpu7x:4x8x8", 4096, 4096))


def main() -> None:
    """Runs each job once to warm up, then once for time."""
    for model, hardware, global_batch, seq_len in JOBS:
        job = Job(
            model_reference=model,
            model=load_model(model),
            hardware=parse_slice(hardware),
            workload=Workload(seq_len=seq_len, global_batch=global_batch),
        )
        train(job)
        began_s = perf_counter()
        plans = train(job).search.plans
        rate = plans / (perf_counter() - began_s)
        print(f"{model} on {hardware}: {plans:,} plans, {rate:,.0f} plans/s")  # noqa: T201 - the result


if __name__ == "__main__":
    main()
