# ruff: noqa: INP001, T201 - a script that prints its result
"""How long the verbs take, start-up included: `python benchmarks/answer_time.py`.

Prints the least of five runs of each command, in seconds of the processor and of the clock. Nothing is asserted.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from time import perf_counter

COMMANDS = (
    ("--help",),
    ("chips",),
    ("model", "llama3.1-70b"),
    ("train", "llama3.1-70b", "--on", "tpu7x:4x4x4", "--global-batch", "256", "--seq-len", "8192"),
    ("train", "llama3.1-405b", "--on", "2*v5p:8x16x16", "--global-batch", "8192", "--seq-len", "8192"),
    ("roofline", "matmul", "--on", "v5e", "--B", "256", "--D", "8192", "--F", "28672"),
    ("roofline", "all_gather", "--bytes", "34MB", "--axis", "x,y", "--on", "v5e:8x16"),
    ("matmul", "A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]", "--sizes", "B=1024,D=8192,F=32768", "--mesh", "X=16,Y=8")
    + ("--on", "v5p:4x4x8"),
    ("compile", "--hlo", "tests/hlo/data/tpu7x_4x4x4_mlp.hlo"),
)
RUNS = 5


def main() -> None:
    """Times every command."""
    program = "import sys; from ridgeline.cli.app import main; sys.exit(main())"
    for words in COMMANDS:
        clock_s, processor_s = zip(*(_timed([sys.executable, "-c", program, *words]) for _ in range(RUNS)), strict=True)
        print(f"{min(clock_s):6.2f} s   processor {min(processor_s):5.2f} s   ridgeline {' '.join(words)}")


def _timed(command: list[str]) -> tuple[float, float]:
    """Seconds of the clock and of the processor that a command takes."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own program
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return perf_counter() - began_s, spent_s


if __name__ == "__main__":
    main()
