"""Muon and its kin: what they keep of a weight, what their update moves, how XLA splits Newton-Schulz iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.training.collectives import step_collectives
from ridgeline.cost.training.memory import training_memory
from ridgeline.cost.training.muon import orthogonalization_bytes
from ridgeline.cost.training.optimizer import moments_bytes, optimizer_part
from ridgeline.cost.training.orthogonalization import newton_schulz_flops, newton_schulz_held_bytes
from ridgeline.job.job import Optimizer, PlanRequest, Remat
from ridgeline.model.parameters import count_parameters
from ridgeline.model.zoo import load_model
from ridgeline.search.pinned import pinned_columns
from tests.cost.settings import job_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.job.job import OptimizerKind, Orthogonalization

DENSE, EXPERTS = load_model("llama3-8b"), load_model("qwen3-30b-a3b")
D, F, KV, LAYERS = 4096, 14336, 1024, 32
QUERY, OUT, KEY, MLP = (D, D), (D, D), (KV, D), (D, F)
IN_A_LAYER = (QUERY, KEY, KEY, OUT, MLP, MLP, MLP)
"""Matrices of a layer of Llama 3 8B, the shorter side first."""

MATRICES = LAYERS * sum(m * n for m, n in IN_A_LAYER)
HEAD = 128_256 * D


def planned(
    kind: OptimizerKind,
    mesh: dict[str, int],
    *,
    orthogonalize: Orthogonalization | None = None,
    distributed: bool = False,
    experts: bool = False,
    hardware: str = "v5p:4x4x4",
    global_batch: int = 128,
) -> tuple[TrainingSetting, PlanColumns]:
    optimizer = Optimizer(kind=kind, orthogonalize=orthogonalize, distributed=distributed)
    plan = PlanRequest(mesh=mesh, remat=Remat(policy="full"), optimizer=optimizer)
    model = EXPERTS if experts else DENSE
    return pinned_columns(job_on(hardware, model=model, global_batch=global_batch, plan=plan))


def flops(m: float, n: float) -> float:
    """Five times X·Xᵀ, A·A and B·X."""
    return 5 * (2 * m * m * n + 2 * m**3 + 2 * m * m * n)


def iterations(setting: TrainingSetting, columns: PlanColumns) -> float:
    return float(optimizer_part(setting, columns).work.amounts["flops.bf16"])


def moved(setting: TrainingSetting, columns: PlanColumns) -> dict[str, float]:
    """Bytes of the optimizer's collectives, by kind."""
    found = [each for each in step_collectives(setting, columns) if each.phase == "optimizer"]
    return {each.kind: sum(other.total_bytes for other in found if other.kind == each.kind) for each in found}


def update_bytes(setting: TrainingSetting, columns: PlanColumns) -> float:
    return float(optimizer_part(setting, columns).work.amounts["hbm"])


@pytest.mark.parametrize(
    ("m", "n", "p", "q", "of_xla"),
    [
        (4096.0, 14336.0, 8.0, 1.0, 2_749_781_508_096),
        (1024.0, 4096.0, 1.0, 8.0, 86_083_895_296),
        (4096.0, 4096.0, 1.0, 8.0, 3_437_970_325_504),
    ],
)
def test_flops_of_a_device_are_those_of_the_compiled_program(
    m: float, n: float, p: float, q: float, of_xla: float
) -> None:
    """Four matrices over eight v5p: up, key and out of Llama 3 8B, `embed` split, by optax.contrib.muon.

    Source: `cost_analysis` of optax 0.2.8, compiled by libtpu 0.0.50.1; it counts element by element as well.
    """
    assert 4 * float(newton_schulz_flops(m=m, n=n, p=p, q=q)) == pytest.approx(of_xla, rel=3e-3)


def test_the_layers_matrices_have_one_moment_and_all_else_has_two() -> None:
    total = count_parameters(planned("muon", {"fsdp": 64})[0].tree).total

    def state(kind: OptimizerKind) -> float:
        return float(moments_bytes(*planned(kind, {"fsdp": 64}))) * 64

    assert state("adamw") == pytest.approx(8 * total, rel=1e-2)  # the norms are whole on every device
    assert state("adamw") - state("muon") == pytest.approx(4 * MATRICES)
    assert state("muonh") == state("muon")
    assert state("adamh") == state("adamw")


def test_adafactor_keeps_sums_along_rows_and_columns() -> None:
    setting, columns = planned("adafactor", {"dp": 64})
    tables = 2 * (128_256 + D)
    norms = (2 * LAYERS + 1) * D

    sums = LAYERS * sum(m + n for m, n in IN_A_LAYER) + tables + norms
    assert float(moments_bytes(setting, columns)) == pytest.approx(4 * sums)


def test_operands_are_gathered_along_the_short_side_and_partial_sums_added_along_the_long_one() -> None:
    """FSDP splits the short side of query, gate, up and down, the long side of key, value and out."""
    gathered = LAYERS * 5 * 2 * sum(m * n + m * m for m, n in (QUERY, MLP, MLP, MLP))
    summed = LAYERS * 5 * 4 * sum(m * m for m, _ in (KEY, KEY, OUT))

    assert moved(*planned("muon", {"fsdp": 64})) == {"all_gather": gathered, "all_reduce": summed}


def test_a_replica_makes_every_matrix_orthogonal_by_itself() -> None:
    every = LAYERS * sum(flops(m, n) for m, n in IN_A_LAYER)

    assert iterations(*planned("muon", {"dp": 64})) == pytest.approx(every)
    assert moved(*planned("muon", {"dp": 64})) == {}
    assert iterations(*planned("muon", {"fsdp": 64}, orthogonalize="replicated")) == pytest.approx(every)
    assert moved(*planned("muon", {"fsdp": 64}, orthogonalize="replicated")) == {"all_gather": 2 * MATRICES}


def test_devices_that_take_whole_matrices_send_their_shards_there_and_back() -> None:
    every = LAYERS * sum(flops(m, n) for m, n in IN_A_LAYER)
    whole = planned("muon", {"fsdp": 64}, orthogonalize="whole")

    assert iterations(*whole) == pytest.approx(every / 64)
    assert moved(*whole) == {"all_to_all": pytest.approx(2 * 2 * MATRICES / 64)}


def test_a_device_takes_at_least_one_whole_matrix() -> None:
    """Of 224 matrices over 512 devices the largest sets the time, which no further device shortens."""

    def time_s(hardware: str, ways: int) -> float:
        part = optimizer_part(
            *planned("muon", {"fsdp": ways}, orthogonalize="whole", hardware=hardware, global_batch=1024)
        )
        return next(float(child.expected_s) for child in part.children if child.name == "newton_schulz")

    assert time_s("v5p:8x8x8", 512) == pytest.approx(time_s("v5p:8x8x16", 1024))
    assert time_s("v5p:8x8x8", 512) < time_s("v5p:4x4x4", 64)


def test_each_expert_is_a_matrix_of_its_own() -> None:
    """128 experts of 2,048 by 768 in each of 48 layers, three matrices each, on the 8 devices that hold them."""
    setting, columns = planned("muon", {"fsdp": 8, "ep": 8}, experts=True, orthogonalize="replicated")
    attention = 48 * sum(flops(m, n) for m, n in ((2048, 4096), (512, 2048), (512, 2048), (2048, 4096), (128, 2048)))

    assert iterations(setting, columns) == pytest.approx(48 * 128 / 8 * 3 * flops(768, 2048) + attention)


def test_a_distributed_optimizer_gives_whole_matrices_to_replicas_and_splits_them_by_tensor_parallelism() -> None:
    setting, columns = planned("muon", {"dp": 4, "tp": 2}, distributed=True, hardware="h100:8")
    halves = ((D / 2, D), (KV / 2, D), (KV / 2, D), (D / 2, D), (D, F / 2), (D, F / 2), (D, F / 2))

    assert iterations(setting, columns) == pytest.approx(LAYERS * sum(flops(m, n) for m, n in halves) / 4)
    assert moved(setting, columns) == {}


def test_a_matrix_held_at_its_norm_is_read_twice_more_with_its_update() -> None:
    """AdamH, of layers and head, writes its update first: 5 times 4 bytes of f32; MuonH has it written already."""
    of = {kind: update_bytes(*planned(kind, {"fsdp": 64})) for kind in ("adamw", "adamh", "muon", "muonh")}

    assert (of["adamh"] - of["adamw"]) * 64 == pytest.approx((MATRICES + HEAD) * 20)
    assert (of["muonh"] - of["muon"]) * 64 == pytest.approx(MATRICES * 16 + HEAD * 20)


def test_the_gradient_is_read_three_times_for_adafactor() -> None:
    """Weight read and written, gradient three times: 20 bytes of f32; AdamW moves 28."""
    adafactor, adamw = (update_bytes(*planned(kind, {"dp": 64})) for kind in ("adafactor", "adamw"))

    assert adafactor / adamw == pytest.approx(20 / 28, rel=1e-3)


def test_matrices_that_are_gathered_together_need_room_when_all_activations_are_gone() -> None:
    setting, columns = planned("muon", {"fsdp": 64}, global_batch=64)
    parts = training_memory(setting, columns).parts
    gone = {"saved_activations", "layer_working_set", "head_waiting", "logits_waiting", "head_working_set"}
    held = LAYERS * 2 * (2 * (D * F + D * D) + 4 * D * F / 64)

    assert float(newton_schulz_held_bytes(m=D, n=F, p=64)) * LAYERS == held
    more = held - sum(float(parts[name]) for name in gone)
    assert float(parts["optimizer_working_set"]) == pytest.approx(max(more, 0))
    assert "optimizer_working_set" not in training_memory(*planned("adamw", {"fsdp": 64})).parts


def test_matrices_gathered_to_every_device_are_those_of_one_layer_at_a_time() -> None:
    setting, columns = planned("muon", {"fsdp": 8, "ep": 8}, experts=True, orthogonalize="replicated")
    experts = 128 / 8 * 2 * (2 * (2048 * 768 + 768 * 768) + 4 * 2048 * 768)

    assert float(orthogonalization_bytes(setting, columns)) == pytest.approx(experts)
