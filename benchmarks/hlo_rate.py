# ruff: noqa: INP001, T201 - a script that prints its result
"""How fast HLO text is read: `python benchmarks/hlo_rate.py [FILE]`.

Without a file, the instructions of a sample module are repeated under new names to 5 MB. Nothing is asserted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

from ridgeline.hlo.text import parse_hlo

SAMPLE = Path(__file__).parents[1] / "tests" / "hlo" / "data" / "tpu7x_4x4x4_mlp.hlo"
WANTED_BYTES = 5_000_000


def main() -> None:
    """Reads once and prints the rate."""
    lines = _repeated() if len(sys.argv) == 1 else Path(sys.argv[1]).read_text().splitlines(keepends=True)
    size_bytes = sum(map(len, lines))
    began_s = perf_counter()
    parse_hlo(lines, where="benchmark")
    took_s = perf_counter() - began_s
    print(f"{size_bytes:,} bytes in {took_s:.2f} s, {size_bytes / took_s:,.0f} bytes/s")


def _repeated() -> list[str]:
    """A module of parameters and elementwise instructions, as long as is wanted."""
    calls = ("calls=", "to_apply=", "while(", "called_computations")
    body = [line for line in SAMPLE.read_text().splitlines(keepends=True) if line.startswith("  %")]
    plain = [line for line in body if not any(word in line for word in calls)]
    lines, copy = ["HloModule big\n", "ENTRY %main (x: f32[]) -> f32[] {\n"], 0
    while sum(map(len, lines)) < WANTED_BYTES:
        lines += [line.replace("  %", f"  %copy{copy}_", 1) for line in plain]
        copy += 1
    return [*lines, "}\n"]


if __name__ == "__main__":
    main()
