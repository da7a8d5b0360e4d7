"""Which numbers meet in a quantized matmul, and how far off it is."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ridgeline.job.precision import parse_quantization
from ridgeline.program.quantization import quantized_product

jax = pytest.importorskip("jax")
pytest.importorskip("qwix")

FP8 = [("f8E4M3FN", "f8E4M3FN"), ("f8E5M2", "f8E4M3FN"), ("f8E5M2", "f8E4M3FN")]


@pytest.mark.parametrize(("kind", "operands"), [("fp8", FP8), ("int8", [("i8", "i8")] * 3)])
def test_each_product_of_forward_and_backward_meets_in_low_precision(
    kind: str, operands: list[tuple[str, str]]
) -> None:
    recipe = parse_quantization({"kind": kind}, where="")

    def step(operand: jax.Array, weight: jax.Array) -> jax.Array:
        return (quantized_product(operand, weight, 2, recipe) ** 2).sum()

    shapes = jax.ShapeDtypeStruct((2, 16, 4, 8), "bfloat16"), jax.ShapeDtypeStruct((4, 8, 32), "bfloat16")
    text = jax.jit(jax.grad(step, argnums=(0, 1))).lower(*shapes).as_text()

    assert re.findall(r"dot_general.*\(tensor<[\dx]+x(\w+)>, tensor<[\dx]+x(\w+)>\)", text) == operands


@pytest.mark.parametrize("granularity", ["per_tensor", "per_axis"])
def test_a_tensor_with_one_large_number_is_better_off_with_a_scale_for_each_row(granularity: str) -> None:
    recipe = parse_quantization({"kind": "int8", "granularity": granularity}, where="")
    random = np.random.default_rng(0)
    operand, weight = random.standard_normal((16, 64)), random.standard_normal((64, 8)) / 8
    operand[0, 0] = 1000.0

    product = np.asarray(quantized_product(operand.astype("float32"), weight.astype("float32"), 1, recipe))

    # One scale for all: steps of 1000/127, in which numbers around 1 vanish. One for each row: they keep 7 bits.
    off = np.linalg.norm(product[1:] - (operand @ weight)[1:]) / np.linalg.norm((operand @ weight)[1:])
    assert off == pytest.approx(1.0) if granularity == "per_tensor" else off < 0.02
