"""Mixtures of experts: the router's choice, dispatch and expert parallelism, each against what it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ridgeline.errors import InputError
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job
from ridgeline.model.operations import ExpertMatmul
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.program import dispatch
from ridgeline.program.dispatch import Choice, with_capacity
from ridgeline.program.experts import chosen_experts
from ridgeline.program.grouped_matmul import chosen_kernel, gmm_flops
from ridgeline.program.request import TrainingProgram, training_program
from tests.messages import refusal
from tests.program.processes import answered

jax = pytest.importorskip("jax")

SIZES = {"name": "tiny", "embed_dim": 32, "vocab_size": 64, "num_layers": 2}
ATTENTION = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 8}
PLAIN = {**SIZES, "attention": ATTENTION, "moe": {"num_experts": 8, "top_k": 2, "expert_mlp_dim": 16}}
RICH = {
    **SIZES,
    "attention": ATTENTION,
    "moe": {"num_experts": 8, "top_k": 4, "expert_mlp_dim": 16, "latent_dim": 16, "router_bias": True, "bias": True}
    | {"shared_mlp_dim": 16, "shared_gate": True, "dense_mlp_dim": 16},
}
WHOLE = {"weights": "f32", "compute": "f32", "gradients": "f32", "activations": "f32"}
ROOM_FOR_ALL = {"dispatch": "capacity", "capacity_factor": 4.0}
LITTLE_ROOM = {"dispatch": "capacity", "capacity_factor": 0.5}
TOLERANCE = 1e-5
"""Of gradients in f32: sums over devices are added in another order."""


def question(
    group: str, mesh: dict[str, int], moe: dict[str, Any] | None = None, model: dict[str, Any] = PLAIN, steps: int = 0
) -> dict[str, Any]:
    return {"group": group, "model": model, "mesh": mesh, "plan": {"dtypes": WHOLE, "moe": moe or {}}, "steps": steps}


ALONE = {"fsdp": 1}
QUESTIONS = {
    "one device": question("plain", ALONE, steps=20),
    "fsdp": question("plain", {"fsdp": 8}),
    "ep": question("plain", {"ep": 4}),
    "ep, an expert a device": question("plain", {"ep": 8}),
    "ep and fsdp": question("plain", {"fsdp": 4, "ep": 2}),
    "ep and tp": question("plain", {"fsdp_transpose": 2, "ep": 2, "tp": 2}),
    "ep, cp and tp": question("plain", {"cp": 2, "ep": 2, "tp_sequence": 2}),
    "experts stored whole": question("plain", {"fsdp": 4, "ep": 2}, {"shard_experts_on_fsdp": True}),
    "room for all": question("plain", {"fsdp": 2, "ep": 2, "tp": 2}, ROOM_FOR_ALL),
    "little room, one device": question("little room", ALONE, LITTLE_ROOM),
    "little room, ep": question("little room", {"fsdp": 2, "ep": 4}, LITTLE_ROOM),
    "all parts, one device": question("rich", ALONE, model=RICH),
    "all parts, ep and tp": question("rich", {"cp": 2, "ep": 2, "tp": 2}, model=RICH),
}
FIRST = {each["group"]: name for name, each in reversed(QUESTIONS.items())}


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """All questions, answered by one process with 8 emulated devices."""
    said = answered("tests.program.emulated", list(QUESTIONS.values()))
    return dict(zip(QUESTIONS, said, strict=True))


@pytest.mark.parametrize("name", QUESTIONS)
def test_loss_and_gradients_of_experts_are_those_of_one_device(answers: dict[str, dict[str, Any]], name: str) -> None:
    alone = answers[FIRST[QUESTIONS[name]["group"]]]

    assert answers[name]["loss"] == pytest.approx(alone["loss"], rel=TOLERANCE)
    assert answers[name]["error"] < TOLERANCE
    assert answers[name]["least_gradient"] > 0


def test_tokens_that_find_no_room_change_the_loss(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["little room, one device"]["loss"] != pytest.approx(answers["one device"]["loss"], rel=1e-4)


def test_experts_learn_a_repeated_batch(answers: dict[str, dict[str, Any]]) -> None:
    losses = answers["one device"]["losses"]

    assert losses[-1] < 0.5 * losses[0]


def program_of(model: str, mesh: dict[str, int], **moe: object) -> TrainingProgram:
    settings = {
        "hardware": "v5e:8x8",
        "workload.seq_len": 4096,
        "workload.global_batch": 64,
        "plan.mesh": mesh,
        "plan.remat": "full",
        "plan.moe": moe,
    }
    said = [Setting(key=key, value=value, where=key) for key, value in settings.items()]
    return training_program(read_job(model, said))


@pytest.mark.parametrize(
    ("model", "published"), [("mixtral-8x7b", 46.70e9), ("qwen3-30b-a3b", 30.53e9), ("deepseek3-671b", 671.03e9)]
)
def test_the_parameters_of_published_mixtures_are_theirs(model: str, published: float) -> None:
    weights = program_of(model, {"fsdp": 64}).weights
    total = sum(tensor.size * (count or 1) for tensor, count in weights.values())

    assert total == count_parameters(model_tree(load_model(model))).total
    assert total == pytest.approx(published, rel=1e-3)


def test_experts_stay_on_their_devices_and_the_rest_is_gathered() -> None:
    program = program_of("mixtral-8x7b", {"fsdp": 4, "fsdp_transpose": 2, "ep": 4, "tp": 2})
    up, down = (program.weights[f"layer/moe/experts/{name}"][0] for name in ("up", "down"))
    layout = program.layout

    assert layout.stored(up) == (("ep",), ("fsdp", "fsdp_transpose"), ("tp",))
    assert layout.gathered(up) == (("ep",), (), ("tp",))
    # A device's part over tp is one piece of the width, so what stays split comes first.
    assert layout.stored(down) == (("ep",), ("tp", "fsdp_transpose"), ("fsdp",))
    assert layout.gathered(down) == (("ep",), ("tp",), ())


def test_experts_are_stored_whole_where_the_plan_says_so() -> None:
    program = program_of("deepseek3-671b", {"fsdp": 32, "ep": 2}, shard_experts_on_fsdp=True)
    up, _ = program.weights["moe_layer/moe/experts/up"]

    assert program.layout.stored(up) == (("ep", "fsdp"), (), ())
    assert program.layout.gathered(up) == (("ep",), (), ())


def test_experts_that_the_mesh_does_not_divide_are_named() -> None:
    with pytest.raises(InputError) as caught:
        program_of("mixtral-8x7b", {"fsdp": 4, "ep": 16})

    assert str(caught.value) == refusal(
        "experts of layer/moe/experts/gate is not divisible by the mesh",
        where="plan.mesh",
        value="8 over ep=16",
        expected="a multiple of 16",
        fix="lower the degree of ep",
    )


@pytest.mark.parametrize(
    ("moe", "what"),
    [
        ({"dispatch": "capacity", "kernel": "gmm"}, "capacity dispatch with the kernel gmm"),
        ({"kernel": "dense"}, "dropless dispatch with the kernel dense"),
    ],
)
def test_a_dispatch_that_has_no_such_kernel_is_refused(moe: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=f"our program has no {what} yet"):
        program_of("mixtral-8x7b", {"fsdp": 64}, **moe)


def test_the_grouped_kernel_is_refused_where_it_cannot_run() -> None:
    program = program_of("mixtral-8x7b", {"fsdp": 64}, kernel="gmm")

    assert chosen_kernel(program, 1024, is_tpu=True) == "gmm"
    with pytest.raises(InputError, match="our program has no gmm kernel for dropless experts here"):
        chosen_kernel(program, 1000, is_tpu=True)
    with pytest.raises(InputError, match="it runs on TPUs alone"):
        chosen_kernel(program, 1024, is_tpu=False)


def test_a_grouped_matmul_multiplies_the_copies_of_a_devices_tokens() -> None:
    program = program_of("mixtral-8x7b", {"fsdp": 8, "ep": 4, "tp": 2})
    up = next(
        each for block in program.tree.layers[0].blocks for each in block.operations if isinstance(each, ExpertMatmul)
    )

    # 64 sequences over fsdp and ep, two experts a token, half of the experts' width.
    assert gmm_flops(program, up)["gmm"] == 2 * (64 * 4096 / 32 * 2) * 4096 * (14336 / 2)


def softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def test_a_token_visits_its_best_experts_by_shares_that_sum_to_one() -> None:
    logits = np.array([[1.0, 3.0, 2.0, 0.0], [0.0, 0.0, 5.0, 4.0]], np.float32)

    experts, gates = chosen_experts(logits, top_k=2)

    assert experts.tolist() == [[1, 2], [2, 3]]
    # e³ : e² and e⁵ : e⁴ are both e : 1.
    assert np.asarray(gates) == pytest.approx(np.tile([np.e / (np.e + 1), 1 / (np.e + 1)], (2, 1)), rel=1e-6)


def test_an_offset_changes_the_choice_and_not_the_shares() -> None:
    logits = np.array([[1.0, 3.0, 2.0, 0.0]], np.float32)

    experts, gates = chosen_experts(logits, top_k=2, correction=np.array([0.0, -1.0, 0.0, 0.5], np.float32))

    shares = softmax(logits)[0, [3, 2]]
    assert experts.tolist() == [[3, 2]]
    assert np.asarray(gates)[0] == pytest.approx(shares / shares.sum(), rel=1e-6)


def test_the_share_of_a_single_expert_is_its_score() -> None:
    logits = np.array([[1.0, 3.0, 2.0, 0.0]], np.float32)

    _, gates = chosen_experts(logits, top_k=1)

    assert float(gates[0, 0]) == pytest.approx(softmax(logits)[0, 1], rel=1e-6)


def test_an_expert_takes_the_first_tokens_of_each_sequence_and_drops_the_rest() -> None:
    # Two sequences of three tokens, all of which choose expert 0 and one of the others: room for two each.
    experts = np.array([[0, 1], [0, 2], [0, 1], [0, 1], [0, 1], [0, 1]], np.int32)
    gates = np.tile(np.array([0.75, 0.25], np.float32), (6, 1))
    choice = Choice(experts=experts, gates=gates, num_experts=3, num_ways=1)
    tokens = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3, 1)

    found = with_capacity(
        tokens, choice, capacity=2, compute=lambda rows: rows * np.array([1.0, 10.0, 100.0])[:, None, None]
    )

    first = [1 * (0.75 + 2.5), 2 * (0.75 + 25.0), 3 * 2.5]  # the third finds no room in expert 0
    second = [4 * (0.75 + 2.5), 5 * (0.75 + 2.5), 0.0]
    assert np.asarray(found)[..., 0] == pytest.approx(np.array([first, second]), rel=1e-6)


def test_a_ragged_exchange_sends_each_device_its_rows_in_the_order_of_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = np.array([[1, 2, 0], [0, 1, 1], [2, 0, 1]])
    calls: list[dict[str, Any]] = []

    def recorded(rows: object, room: object, **sizes: object) -> object:
        del rows
        calls.append(sizes)
        return room

    monkeypatch.setattr(jax.lax, "ragged_all_to_all", recorded)
    for here in range(3):
        monkeypatch.setattr(jax.lax, "axis_index", lambda _, here=here: here)
        dispatch._ragged(np.zeros((3, 1), np.float32), jax.numpy.asarray(sent), num_rows=4, most=3)

    came: list[dict[int, tuple[int, int]]] = [{}, {}, {}]
    for source, sizes in enumerate(calls):
        for target in range(3):
            for row in range(int(sizes["send_sizes"][target])):
                place = int(sizes["output_offsets"][target]) + row
                came[target][place] = (source, int(sizes["input_offsets"][target]) + row)

    # (device, row of its own) by place: receivers follow one another in a sender's rows, senders in a receiver's.
    assert came == [
        {0: (0, 0), 1: (2, 0), 2: (2, 1)},
        {0: (0, 1), 1: (0, 2), 2: (1, 0)},
        {0: (1, 1), 1: (2, 2)},
    ]
    assert [sizes["recv_sizes"].tolist() for sizes in calls] == sent.T.tolist()
