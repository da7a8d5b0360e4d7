"""A pass of a server, beside figures by hand, and laws that hold for every split."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.calibration import load_prior
from ridgeline.cost.placement import links_of, place
from ridgeline.cost.serving.device import PhaseColumns, ServingSetting
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.cost.serving.machine import Pass, ServingMachine
from ridgeline.cost.serving.products import most_experts_count
from ridgeline.cost.serving.step import roofline_s, serving_pass
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.serving import ServingDtypes
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.work import Part

PARAMETERS = 70_553_706_496
"""https://huggingface.co/meta-llama/Llama-3.1-70B, in its safetensors index."""
NORMS = (2 * 80 + 1) * 8192
LOOKUPS = 128_256 * 8192


def machine(
    model: str = "llama3.1-70b", on: str = "v5e:4x4", *, dtypes: ServingDtypes | None = None, prompt_len: int = 1024
) -> ServingMachine:
    hardware = parse_slice(on)
    return ServingMachine(
        setting=ServingSetting(
            tree=model_tree(load_model(model)),
            dtypes=dtypes or ServingDtypes(),
            context_len=2 * prompt_len,
            prompt_len=prompt_len,
        ),
        hardware=hardware,
        efficiency=load_prior(hardware.chip.name),
        serving=PRIORS["GPU" if hardware.chip.torus is None else "TPU"],
    )


def columns(server: ServingMachine, degrees: dict[str, int], *, spread: float = 0.0) -> PhaseColumns:
    placed = place(degrees, server.hardware.axes)
    assert placed is not None
    links = links_of(placed, degrees, server.hardware)
    return PhaseColumns(degrees=degrees, batch_size=1.0, links=links, cache_spread_share=spread)


def decode(split: PhaseColumns, batch: float, context: float = 1024.0, prompt_tokens: float = 0.0) -> Pass:
    return Pass(columns=split, num_decoding=batch, context_keys=context, prompt_tokens=prompt_tokens)


def amounts(server: ServingMachine, step: Pass) -> dict[str, float]:
    return {resource: float(amount) for resource, amount in serving_pass(server, step).work.amounts.items()}


def named(part: Part, above: str = "") -> Iterator[tuple[str, Part]]:
    """Every part below one, by its path; times are those of all repetitions."""
    for child in part.children:
        path = f"{above}/{child.name}"
        yield path, child
        yield from named(child, path)


def test_a_step_of_decoding_reads_every_weight_but_the_table_and_the_cache_of_every_sequence() -> None:
    server = machine(dtypes=ServingDtypes(weights="int8"))
    found = amounts(server, decode(columns(server, {"tp": 16}), 32.0, 2048.0))

    # Keys and values of 80 layers, 2 · 8,192 · 8 · 128 elements, are copied once: 16 devices, 8 heads.
    copied = 80 * 2 * 8192 * 8 * 128
    assert found["hbm.weights"] == pytest.approx((PARAMETERS - NORMS - LOOKUPS + copied) / 16)
    # 2 · 2 bytes · 80 layers · 8 heads · 128 a token, on 8 devices; the other 8 hold copies.
    assert found["hbm.kv_cache"] == 32 * 2048 * 2 * 2 * 80 * 8 * 128 / 8


def test_with_its_memory_full_of_weights_and_cache_a_chip_steps_no_faster_than_it_reads_them() -> None:
    # Scaling Book, ch. 8: of a v5e, 16 GB at 820 GB/s take 19 ms; here, weights in int8 and 43 sequences of 8,192.
    server = machine(dtypes=ServingDtypes(weights="int8", kv_cache="int8"))
    step = decode(columns(server, {"tp": 16}, spread=1.0), 43.0, 8192.0)
    bound_s = float(roofline_s(serving_pass(server, step).work, server))

    assert bound_s == pytest.approx((70e9 + 43 * 8192 * 163_840) / 16 / 820e9, rel=0.03)


def test_of_experts_only_those_that_a_token_visits_are_read() -> None:
    server = machine("mixtral-8x7b", "v5e:4x4")
    split = columns(server, {"ep": 8, "dp": 2})
    one, many = (amounts(server, decode(split, batch))["hbm.weights"] for batch in (2.0, 4096.0))
    expert = 3 * 4096 * 14336 * 2 * 32

    # Each of two groups of 8 devices has one token, which visits 2 of 8 experts; of many tokens all are visited.
    assert many - one == pytest.approx(expert * (8 - 2) / 8)


def test_a_cache_that_is_spread_is_read_once_and_its_queries_travel() -> None:
    server = machine("deepseek3-671b", "tpu7x:4x4x4")
    whole, spread = (decode(columns(server, {"tp": 128}, spread=share), 1024.0, 4096.0) for share in (0.0, 1.0))

    assert amounts(server, spread)["hbm.kv_cache"] == pytest.approx(amounts(server, whole)["hbm.kv_cache"] / 128)
    assert amounts(server, spread)["link.tensor"] > amounts(server, whole)["link.tensor"]


def test_llama_70b_on_eight_v6e_decodes_as_was_measured_before_any_calibration_to_serving() -> None:
    # tpu-recipes b005d56, vLLM: 1,000 tokens in and out, 512 a pass, 64 and 128 at once: 25.4 ms and 35.1 ms a token.
    server = machine(on="v6e:2x4", prompt_len=1000)
    split = columns(server, {"tp": 8})
    for batch, measured_s in ((64.0, 25.35e-3), (128.0, 35.12e-3)):
        plain = float(serving_pass(server, decode(split, batch, 1500.0)).expected_s)
        mixed = float(serving_pass(server, decode(split, batch, 1500.0, 512.0 - batch)).expected_s)
        token_s = plain + batch / (512 - batch) * (mixed - plain)

        assert token_s == pytest.approx(measured_s, rel=0.2)


@given(
    batch=st.sampled_from([1, 8, 64, 512]),
    tensor=st.sampled_from([1, 2, 4, 8, 16]),
    prompt_tokens=st.sampled_from([0, 16, 4096]),
    model=st.sampled_from(["llama3.1-8b", "gemma3-4b", "gpt-oss-20b"]),
)
def test_no_pass_is_expected_sooner_than_its_bound(batch: int, tensor: int, prompt_tokens: int, model: str) -> None:
    server = machine(model, "v5e:4x4")
    split = columns(server, {"tp": tensor, "dp": 16 // tensor})
    whole = serving_pass(server, decode(split, float(batch), prompt_tokens=float(prompt_tokens)))

    assert roofline_s(whole.work, server) <= whole.expected_s


@given(batch=st.sampled_from([1, 8, 64, 512]), factor=st.floats(1.0, 8.0))
def test_more_bandwidth_never_slows_a_pass(batch: int, factor: float) -> None:
    server = machine("llama3.1-8b", "v5e:2x4")
    chip = replace(server.hardware.chip, hbm_bytes_per_s=server.hardware.chip.hbm_bytes_per_s * factor)
    quicker = replace(server, hardware=replace(server.hardware, chip=chip))
    step = decode(columns(server, {"tp": 8}), float(batch))

    assert serving_pass(quicker, step).expected_s <= serving_pass(server, step).expected_s


def test_sequences_that_are_not_there_are_multiplied_by_weights_but_read_no_cache() -> None:
    server = machine(on="h100:1", dtypes=ServingDtypes(weights="fp8", compute="fp8", kv_cache="fp8"))
    split = columns(server, {"tp": 1})
    alone, filled = decode(split, 600.0), replace(decode(split, 600.0), idle_rows=424.0)
    full = decode(split, 1024.0)

    assert amounts(server, filled)["hbm.kv_cache"] == amounts(server, alone)["hbm.kv_cache"]
    # Of layers, whose weights are 8-bit; the head multiplies what is there.
    assert amounts(server, filled)["flops.fp8"] == pytest.approx(amounts(server, full)["flops.fp8"])


def test_deepseek_on_h200_decodes_no_faster_than_a_roofline_by_hand() -> None:
    """16 devices share out the experts; 64 sequences on each, 1,536 tokens in each cache."""
    server = machine("deepseek3-671b", "h200:32", dtypes=ServingDtypes(weights="fp8", compute="fp8"))
    step = decode(columns(server, {"ep": 16, "dp": 2}), 2048.0, 1536.0)
    tree = serving_pass(server, step)
    found = {resource: float(amount) for resource, amount in tree.work.amounts.items()}

    # 1,024 tokens that choose 8 of 256 experts leave none unread; their router is in fp8 here, the head in bf16.
    experts = 58 * 256 * 3 * 7168 * 2048
    attention = 61 * (7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168)
    others = 58 * (3 * 7168 * 2048 + 7168 * 256) + 3 * 3 * 7168 * 18432 + 2 * 129_280 * 7168
    weights = experts / 16 + attention + others
    assert found["hbm.weights"] == pytest.approx(weights, rel=1e-3)
    assert weights == pytest.approx(58.0e9, rel=1e-2)
    # A token's cache is 576 numbers of 2 bytes in each of 61 layers, whole on the device of its sequence.
    cache = 64 * 1536 * 61 * 576 * 2
    assert found["hbm.kv_cache"] == cache
    # Scores of 128 heads over 512 + 64 numbers, and values over 512, of each of 64 · 1,536 keys; the head over bf16.
    scores = 61 * 64 * 1536 * 2 * 128 * (576 + 512)
    assert found["flops.bf16"] == pytest.approx(scores + 2 * 64 * 129_280 * 7168, rel=1e-3)
    # Half of the experts are in the other NVLink domain: but one token in 256 crosses, in fp8 with a scale for 128,
    # and one sum of what its experts make of it comes back in bf16.
    crossing = 58 * 64 * (1 - 0.5**8) * 7168
    assert found["network"] == pytest.approx(crossing * (1 + 4 / 128 + 2), rel=1e-6)

    reading_s = (weights + cache) / 4.8e12
    assert float(roofline_s(tree.work, server)) == pytest.approx(reading_s, rel=1e-3)
    assert reading_s == pytest.approx(13.5e-3, rel=1e-2)
    # Beside it, one after the other: 1.8 ms of scores, 2.3 ms of matmuls, 1.6 ms over InfiniBand, and 1,500 kernels.
    assert 1.5 * reading_s < float(tree.expected_s) < 3.5 * reading_s


def test_a_pass_that_reads_waits_for_the_host_that_launches_its_kernels_and_one_that_decodes_does_not() -> None:
    server = machine(on="h100:8", dtypes=ServingDtypes(weights="fp8", compute="fp8", kv_cache="fp8"))
    slow = replace(server, serving=replace(server.serving, launch_s=1e-3))
    split = columns(server, {"tp": 8})
    decoding, reading = decode(split, 4.0), decode(split, 4.0, prompt_tokens=16.0)

    assert float(serving_pass(slow, decoding).expected_s) == float(serving_pass(server, decoding).expected_s)
    # Of 80 layers 14 kernels, 4 that narrow and 2 all-reduces each, scores of prompts and of decode apart; then 5
    # beside the layers: table, norm, head, the gather of logits, the draw.
    launched = (80 * (14 + 1 + 2 + 4) + 5) * 1e-3
    host_s = server.serving.host_s + 4 * server.serving.sequence_s
    assert float(serving_pass(slow, reading).expected_s) - host_s == pytest.approx(launched, rel=1e-2)


def test_a_gpu_narrows_each_array_once_before_the_matmuls_that_read_it() -> None:
    server = machine(on="h100:8", dtypes=ServingDtypes(weights="fp8", compute="fp8", kv_cache="fp8"))
    tree = serving_pass(server, decode(columns(server, {"tp": 8}), 64.0))
    found = {path: part for path, part in named(tree) if path.endswith("/narrow")}

    assert {path.rsplit("/", maxsplit=2)[1] for path in found} == {"query", "out", "gate", "down"}
    # In each of 80 layers 64 tokens of 8,192 numbers, read in bf16 and written in fp8; 28,672/8 before the last matmul.
    (gate, down) = (part for path, part in found.items() if "gate" in path or "down" in path)
    kernels_s = 80 * server.serving.kernel_s
    assert float(gate.expected_s) - kernels_s == pytest.approx(80 * 64 * 8192 * 3 / server.vector_bytes_per_s)
    assert float(down.expected_s) - kernels_s == pytest.approx(80 * 64 * 28_672 / 8 * 3 / server.vector_bytes_per_s)


def test_no_array_is_narrowed_apart_on_a_tpu_nor_before_matmuls_in_bf16() -> None:
    for on, dtypes in (("v6e:2x4", ServingDtypes(weights="int8", compute="int8")), ("h100:8", ServingDtypes())):
        server = machine(on=on, dtypes=dtypes)
        tree = serving_pass(server, decode(columns(server, {"tp": 8}), 64.0))
        assert not [path for path, _ in named(tree) if path.endswith("/narrow")]


def test_inside_a_server_every_device_gathers_the_tokens_of_all_and_in_a_rack_each_goes_where_its_experts_are() -> None:
    dtypes = ServingDtypes(weights="fp8", compute="fp8")
    server, rack = (
        machine("deepseek3-671b", "h200:8", dtypes=dtypes),
        machine("deepseek3-671b", "gb200:8", dtypes=dtypes),
    )
    bytes_each = 7168 * (1 + 4 / 128 + 2)  # there in fp8 with a scale for 128, back in bf16

    # 64 tokens of each of 8 devices, in 58 layers: to 7 others; or to those of 7 that have one of a token's 8 experts.
    found = amounts(server, decode(columns(server, {"ep": 8}), 512.0))
    assert found["link.expert"] == pytest.approx(58 * 64 * 7 * bytes_each)
    found = amounts(rack, decode(columns(rack, {"ep": 8}), 512.0))
    assert found["link.expert"] == pytest.approx(58 * 64 * 7 * (1 - (7 / 8) ** 8) * bytes_each)


def test_a_rank_waits_for_its_own_sequences_not_for_those_of_others() -> None:
    server = machine("deepseek3-671b", "h200:8", dtypes=ServingDtypes(weights="fp8", compute="fp8"))
    slow = replace(server, serving=replace(server.serving, sequence_s=1e-2 + server.serving.sequence_s))
    step = decode(columns(server, {"ep": 8}), 64.0)

    further_s = float(serving_pass(slow, step).expected_s) - float(serving_pass(server, step).expected_s)
    assert further_s == pytest.approx(64 / 8 * 1e-2)


def test_the_fullest_of_devices_reads_as_many_experts_as_the_largest_of_binomial_numbers() -> None:
    # Of 32 experts of each of 8 devices a quarter is visited: the exact mean of the largest of 8 draws, summed up.
    below, largest = 0.0, 0.0
    for count in range(33):
        cumulative = below + comb(32, count) * 0.25**count * 0.75 ** (32 - count)
        largest += count * (cumulative**8 - below**8)
        below = cumulative

    assert float(most_experts_count(E=32.0, read_count=8.0, N=8.0)) == pytest.approx(largest, rel=0.02)


def test_a_pass_with_prompts_takes_less_than_both_apart() -> None:
    server = machine("llama3.1-8b", "v5e:2x4")
    split = columns(server, {"tp": 8})
    both, one, other = (
        float(serving_pass(server, decode(split, batch, prompt_tokens=tokens)).expected_s)
        for batch, tokens in ((32.0, 256.0), (32.0, 0.0), (0.0, 256.0))
    )

    assert max(one, other) < both < one + other - server.serving.host_s


def test_a_narrow_checkpoint_leaves_its_head_in_bf16_and_a_scale_beside_every_sixteen_elements_of_fp4() -> None:
    bf16, fp8, fp4 = (
        amounts(server, decode(columns(server, {"tp": 8}), 1.0))["hbm.weights"]
        for dtype in ("bf16", "fp8", "fp4")
        for server in [machine("llama3.1-70b", "b200:8", dtypes=ServingDtypes(weights=dtype))]
    )

    head, layers = 2 * LOOKUPS / 8, (bf16 - 2 * LOOKUPS / 8) / 2
    assert fp8 == pytest.approx(head + layers)
    assert fp4 == pytest.approx(head + layers * (1 / 2 + 1 / 16))


def test_experts_of_gpt_oss_are_as_many_bytes_as_its_checkpoint_has() -> None:
    # 36 layers of 128 experts, 3 · 2880² each: 4 bits and a scale of 8 for 32 elements. The rest in bf16: attention of
    # 64 and 8 heads of 64, the router, the head; the table is looked up. Few biases and norms are left out here.
    experts = 36 * 128 * 3 * 2880**2
    rest = 36 * (2 * 2880 * 4096 + 2 * 2880 * 512 + 2880 * 128) + 201_088 * 2880
    server = machine("gpt-oss-120b", "h200:1", dtypes=ServingDtypes(experts="mxfp4"))
    read = amounts(server, decode(columns(server, {}), 4096.0))["hbm.weights"]

    assert read == pytest.approx(experts * 17 / 32 + 2 * rest, rel=0.002)


def test_experts_may_be_narrower_than_the_rest_and_no_product_is_narrower_than_its_weights() -> None:
    server = machine("gpt-oss-120b", "b200:1", dtypes=ServingDtypes(experts="fp4", compute="fp8"))
    found = amounts(server, decode(columns(server, {}), 1.0))

    assert found["flops.fp8"] == pytest.approx(2 * 36 * 4 * 3 * 2880 * 2880)
    assert found["flops.bf16"] > 0
