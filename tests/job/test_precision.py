"""Dtypes and low-precision recipes, by the names users know."""

import pytest

from ridgeline.errors import InputError
from ridgeline.job.job import Quantization
from ridgeline.job.precision import parse_dtype, parse_quantization


@pytest.mark.parametrize(
    ("name", "dtype"), [("f32", "f32"), ("float32", "f32"), ("bf16", "bf16"), ("bfloat16", "bf16"), ("fp8", "fp8")]
)
def test_a_dtype_may_be_written_as_jax_writes_it(name: str, dtype: str) -> None:
    assert parse_dtype(name, where="--weights-dtype") == dtype


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError) as refused:
        parse_dtype("half", where="--weights-dtype")

    assert str(refused.value) == (
        "unknown dtype\n  where:    --weights-dtype\n  value:    half\n"
        "  expected: f32, bf16, fp8, int8\n  fix:      use one of f32, bf16, fp8, int8"
    )


def test_fp8_means_maxtexts_full_recipe() -> None:
    # MaxText with qwix: float8_e4m3fn for weights and activations, float8_e5m2 for cotangents.
    recipe = Quantization(kind="fp8", weights="e4m3", activations="e4m3", gradients="e5m2")

    assert parse_quantization({"kind": "fp8"}, where="--quantization") == recipe
    assert parse_quantization({"kind": "fp8_full"}, where="--quantization") == recipe


def test_a_recipe_keeps_what_it_does_not_change() -> None:
    recipe = parse_quantization({"kind": "int8", "rounding": "stochastic"}, where="plan.quantization")

    assert (recipe.weights, recipe.gradients, recipe.rounding) == ("int8", "int8", "stochastic")


@pytest.mark.parametrize(
    ("recipe", "what", "expected", "fix"),
    [
        ({"kind": "fp9"}, "unknown quantization", "fp8, int8, fp4, mxfp8, none", "did you mean fp8, fp4?"),
        ({"kind": "int8", "weights": "e4m3"}, "unknown weights of int8 quantization", "int8", "use one of int8"),
        (
            {"kind": "fp8", "scaling": "dynamics"},
            "unknown scaling of fp8 quantization",
            "dynamic, static, fixed",
            "did you mean dynamic?",
        ),
    ],
)
def test_a_malformed_recipe_is_refused(recipe: dict[str, str], what: str, expected: str, fix: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_quantization(recipe, where="plan.quantization")

    value = list(recipe.values())[-1]
    assert str(refused.value) == (
        f"{what}\n  where:    plan.quantization\n  value:    {value}\n  expected: {expected}\n  fix:      {fix}"
    )
