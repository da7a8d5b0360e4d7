"""Layouts of a server's weights beyond tensor parallelism: both sides of matrices split, and layers in stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.calibration import load_prior
from ridgeline.cost.placement import links_of, place
from ridgeline.cost.serving.collectives import SERVING_GROUPS
from ridgeline.cost.serving.device import PhaseColumns, ServingSetting, held_weight_bytes, split_shards
from ridgeline.cost.serving.efficiency import PRIORS
from ridgeline.cost.serving.machine import Pass, ServingMachine
from ridgeline.cost.serving.memory import paged_cache_bytes
from ridgeline.cost.serving.step import roofline_s, serving_pass
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.serving import ServingDtypes
from ridgeline.model.operations import weights_of
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.search.serving.meshes import PLACEMENT_ORDER, serving_meshes

if TYPE_CHECKING:
    from ridgeline.cost.work import Part


def machine(model: str, on: str) -> ServingMachine:
    hardware = parse_slice(on)
    return ServingMachine(
        setting=ServingSetting(
            tree=model_tree(load_model(model)), dtypes=ServingDtypes(), context_len=3072, prompt_len=2048
        ),
        hardware=hardware,
        efficiency=load_prior(hardware.chip.name),
        serving=PRIORS["TPU"],
    )


def columns(server: ServingMachine, batch: float, **degrees: int) -> PhaseColumns:
    placed = place(degrees, server.hardware.axes, order=PLACEMENT_ORDER)
    assert placed is not None
    links = links_of(placed, degrees, server.hardware, groups=SERVING_GROUPS)
    return PhaseColumns(degrees=degrees, batch_size=batch, links=links)


def decode(server: ServingMachine, batch: float, **degrees: int) -> Part:
    step = Pass(columns=columns(server, batch, **degrees), num_decoding=batch, context_keys=2560.0, prompt_tokens=0.0)
    return serving_pass(server, step)


def amount(tree: Part, path: str, resource: str) -> float:
    return next(float(part.work.amounts[resource]) for name, part in tree.walk() if name.endswith(path))


def test_weights_split_on_both_sides_exchange_what_is_counted_by_hand() -> None:
    # Llama 3.1 405B, D=16,384, F=53,248, on v5e:8x16: X=8 along the line of 8, Y=16 along the ring; 32 sequences.
    tree = decode(machine("llama3.1-405b", "v5e:8x16"), 32.0, tp=16, tp_transpose=8)

    of_layer = 126
    # Gate and up, 2 · 32 · F/16 elements of 2 bytes, are summed over a line of 8: 7/8 of them cross its links.
    assert amount(tree, "mlp/embed/reduce_scatter", "link.transpose") == of_layer * 2 * 32 * 53_248 / 16 * 2 * 7 / 8
    assert amount(tree, "mlp/output/all_gather", "link.transpose") == of_layer * 32 * 53_248 / 16 * 2 * 7 / 8
    # An eighth of the residual stream is gathered and scattered around a ring of 16, both ways.
    assert amount(tree, "mlp/output/all_reduce", "link.tensor") == of_layer * 2 * 32 * 16_384 / 8 * 2 * 15 / 16 / 2


def test_beyond_the_books_crossover_splitting_both_sides_takes_fewer_bytes_and_less_time() -> None:
    # Scaling Book, ch. 7: 1D tensor parallelism sends as much however many chips there are, 2D less with more.
    server = machine("llama3.1-405b", "v5e:8x16")
    both = decode(server, 384.0, tp=16, tp_transpose=8)
    one = decode(server, 384.0, tp=128)

    sent = sum(float(both.work.amounts[name]) for name in ("link.tensor", "link.transpose"))
    assert sent < 2 * float(one.work.amounts["link.tensor"])  # a link of one axis carries less than three at once
    assert both.expected_s < one.expected_s


def test_with_few_chips_splitting_one_side_is_quicker() -> None:
    server = machine("llama3.1-70b", "v5e:2x4")

    assert decode(server, 64.0, tp=8).expected_s < decode(server, 64.0, tp=4, tp_transpose=2).expected_s


@given(tensor=st.sampled_from([1, 2, 4, 8]), other=st.sampled_from([1, 2, 4]))
def test_devices_together_hold_every_matrix_once(tensor: int, other: int) -> None:
    setting, devices, norms = machine("llama3.1-8b", "v5e:2x4").setting, tensor * other, 2 * 65 * 4096
    held, whole = (
        float(held_weight_bytes(setting, PhaseColumns(degrees=mesh, batch_size=1)))
        for mesh in ({"tp": tensor, "tp_transpose": other}, {})
    )

    assert (held - norms) * devices == pytest.approx(whole - norms)


@given(tensor=st.sampled_from([1, 2, 4, 8]), other=st.sampled_from([1, 2, 4]), stages=st.sampled_from([1, 2, 4]))
def test_devices_together_keep_every_key_once(tensor: int, other: int, stages: int) -> None:
    setting = machine("llama3.1-8b", "v5e:2x4").setting
    split = PhaseColumns(degrees={"tp": tensor, "tp_transpose": other, "pp": stages}, batch_size=32)
    kept, whole = (
        float(paged_cache_bytes(setting, each, tokens_of_page=256))
        for each in (split, PhaseColumns(degrees={}, batch_size=32))
    )

    assert kept * tensor * other * stages == whole


def test_a_pipeline_reads_all_layers_one_stage_after_another_and_holds_its_own() -> None:
    server = machine("llama3.1-405b", "h200:16")
    staged, apart = decode(server, 512.0, tp=8, pp=2), decode(server, 512.0, tp=8, dp=2)

    # Both have 256 sequences at a time on 8 devices; the pipeline sends the stream on, and has a second host.
    sent_s = next(float(part.expected_s) for name, part in staged.walk() if name.endswith("stream/permute"))
    assert staged.expected_s == pytest.approx(float(apart.expected_s) + sent_s + server.serving.host_s)
    split = {"tp": 8, "pp": 2}
    halves, copies = (
        float(held_weight_bytes(server.setting, PhaseColumns(degrees=mesh, batch_size=1)))
        for mesh in (split, {"tp": 8})
    )
    assert halves == pytest.approx(copies / 2, rel=0.01)


@given(
    batch=st.sampled_from([32, 512]),
    tensor=st.sampled_from([4, 8, 16]),
    other=st.sampled_from([2, 4]),
)
def test_no_pass_is_expected_sooner_than_its_bound_whatever_is_split(batch: int, tensor: int, other: int) -> None:
    server = machine("llama3.1-70b", "v5e:8x8")
    tree = decode(server, float(batch), tp=tensor, tp_transpose=other, dp=64 // (tensor * other))

    assert roofline_s(tree.work, server) <= tree.expected_s


def test_both_sides_are_split_on_tpus_and_stages_span_boxes_of_gpus() -> None:
    llama = model_tree(load_model("llama3.1-405b"))
    on_tpu = serving_meshes(parse_slice("v5e:8x8"), llama, {}, "decode").legal
    on_gpu = serving_meshes(parse_slice("h200:16"), llama, {}, "decode").legal

    assert any("tp_transpose" in mesh.degrees for mesh in on_tpu)
    assert not any("pp" in mesh.degrees for mesh in on_tpu)
    assert not any("tp_transpose" in mesh.degrees for mesh in on_gpu)
    assert {mesh.degrees.get("pp", 1) for mesh in on_gpu} == {1, 2}


def test_a_short_convolution_is_split_by_its_channels() -> None:
    # Qwen3.5 397B: 16 key heads and 64 value heads of 128, D=4,096, kernels of 4 tokens; of a linear layer's attention:
    key, value = 16 * 128, 64 * 128
    channels = 2 * key + value
    matrices = 4096 * (channels + value + 2 * 64) + value * 4096  # q, k, v; the gate; beta and decay; out
    split = matrices + channels * 4 + 2 * 64  # kernels of each channel; decay and bias of each value head
    whole = 128 + 4096  # norms, of a head and of the stream
    server = machine("qwen3.5-397b-a17b", "h200:8")
    block = server.setting.tree.layers[0].blocks[0]
    of_eight = columns(server, 8.0, tp=8)

    held = sum(
        tensor.size / split_shards(tensor.axes, tensor.shape, of_eight)
        for operation in block.operations
        for tensor in weights_of(operation)
    )

    assert held == split / 8 + whole


def test_linear_attention_has_as_many_ways_as_key_heads() -> None:
    tree = model_tree(load_model("qwen3.5-397b-a17b"))
    of_8, of_16, of_32 = (
        serving_meshes(parse_slice(f"h200:{ways}"), tree, {"tp": ways}, "decode") for ways in (8, 16, 32)
    )

    assert [mesh.degrees["tp"] for mesh in (*of_8.legal, *of_16.legal)] == [8, 16]
    assert not of_32.legal
    assert list(of_32.refused) == [("tp=32", "16 heads of linear attention do not go into 32 ways")]
