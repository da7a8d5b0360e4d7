"""The equation's collectives one by one, and what a device executes."""

from __future__ import annotations

from collections import defaultdict

import pytest

from ridgeline.cost.training.collectives import step_collectives
from ridgeline.cost.training.executed import executed_flops
from ridgeline.cost.training.step import training_step
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job
from ridgeline.search.pinned import pinned_columns

LAYERS, EMBED, HEADS, HEAD, MLP, VOCAB = 3, 256, 4, 128, 512, 1024
MODEL = {
    "name": "tiny",
    "embed_dim": EMBED,
    "vocab_size": VOCAB,
    "num_layers": LAYERS,
    "attention": {"num_heads": HEADS, "num_kv_heads": 2, "head_dim": HEAD},
    "mlp": {"mlp_dim": MLP},
}


def columns(mesh: dict[str, int], **more: object):  # noqa: ANN201 - as `pinned_columns` returns
    said = {
        "model": MODEL,
        "hardware": "v5e:2x4",
        "workload.seq_len": 512,
        "workload.global_batch": 16,
        "plan.mesh": mesh,
        "plan.remat": "full",
        "plan.gradient_accumulation": 1,
        **more,
    }
    return pinned_columns(read_job("tiny", [Setting(key=key, value=value, where=key) for key, value in said.items()]))


def test_every_weight_that_is_stored_split_is_gathered_twice_and_its_gradient_scattered() -> None:
    found = step_collectives(*columns({"fsdp": 8}))

    up = [(each.kind, each.phase, each.count, each.array_bytes) for each in found if each.part == "layer/mlp/up"]
    assert sorted(up) == [
        ("all_gather", "backward", LAYERS, EMBED * MLP * 2),
        ("all_gather", "forward", LAYERS, EMBED * MLP * 2),
        ("reduce_scatter", "backward", LAYERS, EMBED * MLP * 2),
    ]
    assert {each.axes for each in found} == {("fsdp",)}


def test_replicas_sum_what_a_device_holds_of_every_gradient_once_a_step() -> None:
    found = step_collectives(*columns({"dp": 2, "fsdp": 4}, **{"plan.gradient_accumulation": 2}))

    summed = [each for each in found if each.kind == "all_reduce"]
    assert {each.axes for each in summed} == {("dp",)}
    # AdamW's weights: two tables, per layer q, k, v, o and three MLP matrices in four parts, and whole scales of norms.
    attention = EMBED * HEAD * (2 * HEADS + 2 * 2)
    elements = (2 * VOCAB * EMBED + LAYERS * (attention + 3 * EMBED * MLP)) / 4 + (2 * LAYERS + 1) * EMBED
    assert sum(each.total_bytes for each in summed) == pytest.approx(elements * 2)


@pytest.mark.parametrize("mesh", [{"fsdp": 8}, {"fsdp": 4, "tp": 2}, {"dp": 4, "tp": 2}, {"fsdp": 2, "cp": 4}])
def test_the_bytes_of_all_are_those_of_the_tree(mesh: dict[str, int]) -> None:
    setting, plan = columns(mesh)
    of_tree: defaultdict[str, float] = defaultdict(float)
    for _, part in training_step(setting, plan).walk():
        links = [name.removeprefix("link.") for name in part.work.amounts if name.startswith("link.")]
        if part.composition == "leaf" and links and float(plan.links[links[0]].size) > 1:
            of_tree[links[0]] += float(part.times * part.array_bytes)

    found: defaultdict[str, float] = defaultdict(float)
    for each in step_collectives(setting, plan):
        found[each.group] += each.total_bytes
    # The tree counts the scales of norms among what is gathered; they are stored whole.
    assert {group: total for group, total in of_tree.items() if total} == pytest.approx(dict(found), rel=5e-3)


@pytest.mark.parametrize("backward_products", [5, 7], ids=["in one kernel", "in two kernels"])
def test_a_blocked_kernel_computes_whole_tiles_and_its_backward_pass_the_scores_again(backward_products: int) -> None:
    setting, plan = columns({"fsdp": 8})
    scores = {
        each.phase: each.flops
        for each in executed_flops(setting, plan, block_keys=128, backward_factor=backward_products / 2)
        if each.part == "layer/attention/scores"
    }

    # 4 x 4 tiles of 128, of which 10 hold a key that is seen; two products forward, again, and those backward.
    product = 2 * LAYERS * 2 * HEADS * HEAD * 10 * 128 * 128  # on one device: 2 of 16 sequences
    assert scores["forward"] == pytest.approx(2 * product)
    assert scores["recompute"] == pytest.approx(2 * product)
    assert scores["backward"] == pytest.approx(backward_products * product)


def test_plain_attention_computes_every_score() -> None:
    setting, plan = columns({"fsdp": 8})
    scores = {
        each.phase: each.flops
        for each in executed_flops(setting, plan, block_keys=None)
        if each.part == "layer/attention/scores"
    }

    product = 2 * LAYERS * 2 * HEADS * HEAD * 512 * 512
    assert scores == pytest.approx({"forward": 2 * product, "recompute": 2 * product, "backward": 4 * product})
