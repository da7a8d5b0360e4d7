# ruff: noqa: INP001, T201 - a script that prints its result
"""How long `serve` takes over whole families of chips: `python benchmarks/serving_answer.py`.

Prints, for each question, seconds of the processor for the answer and for costing its plans alone, with their number.
The answer also works out the frontier in full, what narrower precision would bring, and at a rate simulates all of
these. Nothing is asserted.
"""

from __future__ import annotations

from time import process_time

import ridgeline

LENGTHS = {"prompt_len": 2048, "generate_len": 1024}
LIMITS = {"rate": 20, "ttft": "2s", "tpot": "50ms"}
QUESTIONS = (
    ("llama3.1-8b", "v6e", {}),
    ("llama3.1-70b", "v5e", {}),
    ("llama3.1-70b", "v5e", LIMITS),
    ("llama3.1-405b", "h200", LIMITS),
    ("deepseek3-671b", "tpu7x", {}),
    ("deepseek3-671b", "tpu7x", LIMITS),
    ("deepseek3-671b", "tpu7x", {"weights_dtype": "any", "kv_cache_dtype": "any", "compute_dtype": "any"}),
    ("gpt-oss-120b", "b200", LIMITS),
)


def main() -> None:
    """Asks each question once to warm up, then once for time."""
    for model, chip, asked in QUESTIONS:
        ridgeline.serve(model, on=chip, **LENGTHS, **asked)
        began_s = process_time()
        search = ridgeline.serve(model, on=chip, **LENGTHS, **asked).search
        took_s, words = process_time() - began_s, " ".join(f"{key}={value}" for key, value in asked.items())
        print(f"{took_s:5.2f} s, costing {search.seconds:5.2f} s   {search.plans:7,} plans   {model} on {chip} {words}")


if __name__ == "__main__":
    main()
