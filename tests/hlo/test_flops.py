"""FLOPs of matmuls, against arithmetic by hand and against counting one by one."""

from __future__ import annotations

from math import isnan, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.hlo.flops import matmul_dtype, matmul_flops
from ridgeline.hlo.shape import parse_shape
from ridgeline.hlo.summary import summarise
from tests.hlo.programs import TPU7X, V5P, compiled, entry, loop

# Of the compiled programs: a token meets 2·D·F FLOPs in each matmul, of which a layer has two forward, one
# recomputed (the second's output is not needed again) and four backward (two for weights, two for inputs).
L, D, F, TOKENS = 4, 2048, 8192, 2048
MATMUL = 2 * TOKENS * D * F


def _flops(instruction: str, *operands: str) -> float:
    read = "\n".join(f"  %x{number} = {shape} parameter({number})" for number, shape in enumerate(operands))
    computation = entry(f"{read}\n  ROOT %y = {instruction}").entry_computation
    return matmul_flops(computation, computation.instructions["y"])


@pytest.mark.parametrize("path", [TPU7X, V5P])
def test_a_compiled_step_has_seven_matmuls_a_layer(path: object) -> None:
    summary = summarise(compiled(path))

    by_phase = {part.place.phase: part.flops for part in summary.parts if part.flops}
    assert by_phase == {"forward": 2 * L * MATMUL, "recompute": 1 * L * MATMUL, "backward": 4 * L * MATMUL}
    assert summary.flops == 7 * L * MATMUL
    assert summary.flops_by_dtype == {"bf16": 7 * L * MATMUL}


def test_a_dot_counts_its_output_times_what_it_sums_over() -> None:
    contracted = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}"

    assert _flops(f"f32[4,2,5] dot(%x0, %x1), {contracted}", "f32[4,2,3]", "f32[4,3,5]") == 2 * (4 * 2 * 5) * 3


def test_an_outer_product_counts_one_multiply_and_add_an_element() -> None:
    assert _flops("f32[4,5] dot(%x0, %x1)", "f32[4]", "f32[5]") == 2 * 4 * 5


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"])
def test_a_call_of_cublas_is_a_matmul(target: str) -> None:
    config = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    config += '"rhs_contracting_dimensions":["0"]}}}'
    found = entry(
        "  %a = bf16[8,3] parameter(0)\n  %b = bf16[3,5] parameter(1)\n  ROOT %c = (bf16[8,5], s8[4096]) "
        f'custom-call(%a, %b), custom_call_target="{target}", backend_config={config}'
    )

    summary = summarise(found)

    assert (summary.flops, summary.flops_by_dtype, summary.uncounted) == (240, {"bf16": 2 * 8 * 5 * 3}, ())


def test_a_matmul_as_convolution_counts_its_input_features() -> None:
    assert _flops("bf16[8,5] convolution(%x0, %x1), dim_labels=fb_oi->bf", "bf16[3,8]", "bf16[5,3]") == 2 * 8 * 5 * 3


def test_a_batched_matmul_as_convolution_counts_no_padding() -> None:
    # Batch 6: the kernel slides over a batch dimension spread out by its own size, so that one position meets.
    window = "window={size=6 stride=5 lhs_dilate=6}"
    shapes = ("bf16[6,2,3]", "bf16[6,3,5]")

    found = _flops(f"bf16[6,2,5] convolution(%x0, %x1), {window}, dim_labels=0bf_0io->0bf", *shapes)

    assert found == 6 * (2 * 2 * 5 * 3)


def test_a_real_convolution_counts_only_what_lies_inside() -> None:
    # 3×1 kernel over 4 rows padded by one on both sides: 2 + 3 + 3 + 2 rows meet input.
    shapes = ("f32[1,4,7,2]", "f32[3,1,2,5]")

    found = _flops(
        "f32[1,4,7,5] convolution(%x0, %x1), window={size=3x1 pad=1_1x0_0}, dim_labels=b01f_01io->b01f", *shapes
    )

    assert found == 2 * 10 * 7 * 2 * 5


@given(
    output=st.integers(1, 9),
    kernel=st.integers(1, 9),
    inputs=st.integers(1, 9),
    stride=st.integers(1, 7),
    pad=st.integers(-9, 9),
    spread=st.tuples(st.integers(1, 7), st.integers(1, 4)),
)
def test_positions_that_meet_are_as_many_as_counted_one_by_one(
    output: int, kernel: int, inputs: int, stride: int, pad: int, spread: tuple[int, int]
) -> None:
    dilate, kernel_dilate = spread
    places = {place * dilate for place in range(inputs)}
    one_by_one = sum(o * stride - pad + k * kernel_dilate in places for o in range(output) for k in range(kernel))
    window = f"window={{size={kernel} stride={stride} pad={pad}_0 lhs_dilate={dilate} rhs_dilate={kernel_dilate}}}"

    found = _flops(
        f"f32[1,{output},1] convolution(%x0, %x1), {window}, dim_labels=b0f_0io->b0f",
        f"f32[1,{inputs},1]",
        f"f32[{kernel},1,1]",
    )

    assert found == 2 * one_by_one


@pytest.mark.parametrize(
    "instruction",
    [
        "f32[2] convolution(%x0, %x1)",
        "f32[2] convolution(%x0, %x1), dim_labels=bf_io->bf",
        "f32[2] convolution(%x0), dim_labels=b_i->b",
        "f32[2] convolution(%x0, %x1), dim_labels=0_0->0",
        "f32[2] dot(%x0, %x1), lhs_contracting_dims={7}",
        "f32[2] dot(%gone, %x1), lhs_contracting_dims={0}",
    ],
)
def test_a_matmul_that_cannot_be_counted_is_unknown(instruction: str) -> None:
    assert isnan(_flops(instruction, "f32[2]", "f32[2]"))


def test_a_window_that_cannot_be_is_unknown() -> None:
    shapes = ("f32[1,2,1]", "f32[2,1,1]")
    labels = "window={size=2 stride=0}, dim_labels=b0f_0io->b0f"

    assert isnan(_flops(f"f32[1,2,1] convolution(%x0, %x1), {labels}", *shapes))


def test_the_dtype_of_a_matmul_is_the_wider_of_its_operands() -> None:
    computation = entry(
        "  %a = f8e4m3fn[2,2] parameter(0)\n  %b = bf16[2,2] parameter(1)\n  ROOT %c = f32[2,2] dot(%a, %b)"
    ).entry_computation

    assert matmul_dtype(computation, computation.instructions["c"]) == "bf16"


def test_a_matmul_in_a_loop_of_unknown_length_makes_the_total_unknown() -> None:
    condition = "  ROOT %test = pred[] custom-call(%i.1)"

    assert isnan(summarise(loop(condition=condition)).counted_flops)


def test_a_matmul_in_a_loop_counts_once_a_round() -> None:
    condition = "  %n = s32[] constant(10)\n  ROOT %test = pred[] compare(%i.1, %n), direction=LT"

    assert summarise(loop(condition=condition)).flops == 10 * 2 * 8 * 8 * 8


def test_a_kernel_without_a_rule_is_listed_and_leaves_the_total_unknown() -> None:
    found = entry(
        "  %a = bf16[4,4] parameter(0)\n"
        '  %k.1 = bf16[4,4] custom-call(%a), custom_call_target="tpu_custom_call", '
        'metadata={op_name="jit(f)/layer/attention/scores/pallas_call"}\n'
        '  %k.2 = bf16[4,4] custom-call(%k.1), custom_call_target="tpu_custom_call", '
        'metadata={op_name="jit(f)/layer/attention/scores/pallas_call"}\n'
        '  %room = bf16[4,4] custom-call(), custom_call_target="AllocateBuffer"\n'
        "  ROOT %c = bf16[4,4] dot(%k.2, %room), lhs_contracting_dims={1}"
    )

    summary = summarise(found)

    assert [(each.target, each.count, each.reason, each.place.part) for each in summary.uncounted] == [
        ("tpu_custom_call", 2, "no rule", "layer/attention/scores")
    ]
    assert isnan(summary.flops)
    assert summary.counted_flops == 2 * 4 * 4 * 4
    assert {part.place.part: part.flops for part in summary.parts if part.flops > 0} == {"": 2 * 4 * 4 * 4}
    assert [part.place.part for part in summary.parts if isnan(part.flops)] == ["layer/attention/scores"]


@pytest.mark.parametrize("known_by", ["tpu_custom_call", "splash"])
def test_a_rule_counts_a_kernel_by_its_name_or_target(known_by: str) -> None:
    call = '  ROOT %splash.7 = bf16[4] custom-call(%a), custom_call_target="tpu_custom_call"'
    found = entry(f"  %a = bf16[4] parameter(0)\n{call}")

    summary = summarise(found, rules={known_by: lambda _, kernel: prod(parse_shape(str(kernel.shape)).dims) * 3.0})

    assert (summary.flops, summary.uncounted) == (12, ())


def test_a_ragged_product_depends_on_data_and_is_not_counted() -> None:
    found = entry("  %a = bf16[4,4] parameter(0)\n  ROOT %r = bf16[4,4] ragged-dot(%a, %a, %a)")

    assert [each.target for each in summarise(found).uncounted] == ["ragged-dot"]
