"""What experts take on GPUs beside their products: order, one fused kernel, pages, attention in fp8."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.quantization_pass import num_copies
from ridgeline.cost.training.step import training_step
from ridgeline.hardware.catalog import find_chip
from ridgeline.job.job import Quantization
from ridgeline.model.spec import LayerSpec, MoeSpec
from tests.cost.settings import SPARSE, one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import TrainingSetting
    from ridgeline.cost.kernel_time import Product
    from ridgeline.job.job import TokenExchange

TOKENS, WIDTH, COPIES, MLP_DIM = 2048, 2048, 2, 4096
"""Of `SPARSE` with a sequence a device."""


def one_layer(*, exchange: TokenExchange = "send_once", recipe: Quantization | None = None) -> TrainingSetting:
    """One layer of experts, one sequence a device."""
    (layer, _), *_ = SPARSE.layers
    model = replace(SPARSE, layers=((LayerSpec(mixer=layer.mixer, mlp=layer.mlp), 1),))
    setting = setting_on("b200:8", model=model, global_batch=8)
    return replace(setting, expert_exchange=exchange, quantization=recipe)


def times_s(setting: TrainingSetting, ending: str, mesh: dict[str, int] | None = None) -> float:
    """Time of the leaves of a step whose path ends so."""
    step = training_step(setting, one_plan(setting, mesh or {"ep": 8}, policy="none"))
    return sum(float(part.expected_s) for path, part in step.walk() if path.endswith(ending))


def test_a_token_sent_once_is_put_in_order_from_the_devices_it_visits_and_summed_on_its_way_back() -> None:
    """Of 2 experts a token visits 8 · (1 - (7/8)^2) = 15/8 devices on average: as many reads, and 2 writes."""
    once, each = one_layer(exchange="send_once"), one_layer(exchange="all_to_all")
    rate_bytes_per_s = once.hbm_bytes_per_s * once.efficiency.vector

    assert times_s(once, "dispatch/sort") == pytest.approx(TOKENS * WIDTH * 2 * (2 + 15 / 8) / rate_bytes_per_s)
    assert times_s(each, "dispatch/sort") == pytest.approx(TOKENS * WIDTH * 2 * (2 + 2) / rate_bytes_per_s)
    assert times_s(once, "moe/weighted_sum") == 0
    assert times_s(each, "moe/weighted_sum") > 0


def test_a_fused_kernel_makes_the_gated_unit_and_narrows_it_and_its_gradients() -> None:
    apart = one_layer(recipe=Quantization(kind="fp8"))
    fused = replace(apart, fuses_experts=True)
    spared = ("experts/activation", "activation/gradient", "experts/down/scale")

    assert all(times_s(apart, ending) > 0 for ending in spared)
    assert [times_s(fused, ending) for ending in spared[:2]] == [0, 0]
    # what is left of `down` is the gradient of its output, and of gate and up what they read
    assert times_s(fused, "forward/layer/compute/moe/experts/down/scale") == 0
    assert times_s(fused, "gradient/experts/down/scale") == pytest.approx(times_s(apart, "gradient/experts/down/scale"))
    assert times_s(fused, "gradient/experts/up/scale") == 0
    assert times_s(fused, "experts/gate/scale") == pytest.approx(
        times_s(apart, "forward/layer/compute/moe/experts/gate/scale")
    )


def test_pages_take_what_experts_keep_and_give_it_back() -> None:
    """Of a copy of a token 2,048 and 4,096 operands in fp8, two times 4,096 outputs in bf16: moved twice, both ways."""
    setting = replace(one_layer(recipe=Quantization(kind="fp8")), stashes_experts=True)
    rate_bytes_per_s = setting.hbm_bytes_per_s * setting.efficiency.vector
    kept_bytes = TOKENS * COPIES * (WIDTH + MLP_DIM + 2 * MLP_DIM * 2)

    assert times_s(setting, "/stash") == pytest.approx(2 * 2 * kept_bytes / rate_bytes_per_s)
    assert times_s(replace(setting, stashes_experts=False), "/stash") == 0


def test_attention_in_fp8_keeps_what_of_its_time_is_not_arithmetic() -> None:
    wide = one_layer()
    narrow, reached = replace(wide, attention_in_fp8=True), wide.efficiency.attention_forward
    expected = reached / 2 + 1 - reached

    narrow_s, wide_s = (
        times_s(setting, "attention/scores") - wide.efficiency.matmul_overhead_s for setting in (narrow, wide)
    )
    assert narrow_s / wide_s == pytest.approx(expected)


def test_one_narrowed_copy_is_enough_where_products_read_operands_either_way_and_scales_are_tensors() -> None:
    """Blackwell's fp8 products do; its scales of blocks run along one dimension all the same."""
    blackwell, hopper = find_chip("b200"), find_chip("h100")
    assert blackwell is not None
    assert hopper is not None
    recipes = (Quantization(kind="fp8"), Quantization(kind="fp8", granularity="sub_channel"))

    assert [num_copies(recipe, chip=blackwell, trains=True) for recipe in recipes] == [1, 2]
    assert [num_copies(recipe, chip=hopper, trains=True) for recipe in recipes] == [2, 2]


def expert_product_s(setting: TrainingSetting, ending: str, product: Product) -> float:
    """Time of one product of an expert layer over that of its FLOPs at the rate of large grouped ones."""
    efficiency, overhead_s = setting.efficiency, setting.efficiency.matmul_overhead_s
    dtype = setting.quantization.kind if setting.quantization else "bf16"
    reached = efficiency.matmul[dtype] / efficiency.matmul["bf16"] * efficiency.grouped_matmul[product]
    flops = 2 * TOKENS * COPIES * WIDTH * MLP_DIM * setting.moe_imbalance
    arithmetic_s = flops / (setting.peak_flops_per_s(dtype) * reached)
    return (times_s(setting, f"experts/{ending}") - overhead_s) / arithmetic_s


def test_each_expert_has_a_product_whose_tiles_fill_along_its_depth_and_whose_last_rows_are_half_a_tile() -> None:
    """Two experts a GPU have 2,048 rows each; tiles of 256 rows; 256 bytes of depth: 128 elements in bf16."""
    wide, narrow = one_layer(), one_layer(recipe=Quantization(kind="fp8"))
    half_empty = 1 + 128 / 2048

    assert expert_product_s(wide, "gate", "output") == pytest.approx((1 + 128 / 2048) * half_empty)
    assert expert_product_s(wide, "down", "output") == pytest.approx((1 + 128 / 4096) * half_empty)
    assert expert_product_s(wide, "gate/input_gradient", "input_gradient") == pytest.approx(
        (1 + 128 / 4096) * half_empty
    )
    assert expert_product_s(wide, "gate/weight_gradient", "weight_gradient") == pytest.approx(1 + 128 / 2048)
    assert expert_product_s(narrow, "gate", "output") == pytest.approx((1 + 256 / 2048) * half_empty)


def test_tensor_parallelism_makes_an_experts_products_shallow() -> None:
    """Split twice, 4,096 hidden elements are 2,048; with as many rows, of 4 experts a GPU."""
    setting = one_layer()
    whole, halves = (times_s(setting, "experts/down", mesh) for mesh in ({"ep": 8}, {"ep": 4, "tp": 2}))
    overhead_s = setting.efficiency.matmul_overhead_s

    assert halves > overhead_s
    assert (halves - overhead_s) / (whole - overhead_s) == pytest.approx((1 + 128 / 2048) / (1 + 128 / 4096))


def test_an_expert_as_wide_as_gpt_oss_takes_twelve_tiles_of_256_features() -> None:
    """2,880 features are 11.25 tiles; as a depth they are no more than their length."""
    ((layer, count),) = SPARSE.layers
    assert isinstance(layer.mlp, MoeSpec)
    narrow, wide = (
        replace(SPARSE, layers=((replace(layer, mlp=replace(layer.mlp, expert_mlp_dim=width)), count),))
        for width in (2880, 3072)
    )
    taken_s = [times_s(setting_on("b200:8", model=model, global_batch=8), "experts/gate") for model in (narrow, wide)]

    assert taken_s[0] == pytest.approx(taken_s[1])
