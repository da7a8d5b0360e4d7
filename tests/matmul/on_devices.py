"""Runs emitted programs on emulated devices, in a process of its own, and writes what came of them as JSON.

python on_devices.py < {"name": "program text", …}
"""

from __future__ import annotations

import json
import sys

import numpy as np


def main() -> None:
    """Each program: whether its product is numpy's, and what XLA made of both of its versions."""
    results = {name: outcome(text) for name, text in json.load(sys.stdin).items()}
    json.dump(results, sys.stdout)


def outcome(text: str) -> dict[str, object]:
    """What came of one program."""
    program: dict[str, object] = {"__name__": "program"}
    exec(compile(text, "program", "exec"), program)  # noqa: S102 - a program of our own, which is what is tested
    operands = program["operands"]()
    left, right = (np.asarray(operand, np.float64) for operand in operands)
    product = program["matmul"](*operands)
    letters = program["EINSUM"]
    whole = np.asarray(product, np.float64)
    expected = np.einsum(letters, left, right)
    compiler = program.get("by_compiler")
    return {
        "is_right": bool(np.array_equal(whole.sum(0) if whole.ndim > expected.ndim else whole, expected)),
        "blocks": [list(shard.data.shape) for shard in product.addressable_shards],
        "written": program["matmul"].lower(*operands).compile().as_text(),
        "by_compiler": compiler and compiler.lower(*operands).compile().as_text(),
    }


if __name__ == "__main__":
    main()
