"""A small model on a small slice, as the cost functions take them; and one plan as columns."""

from __future__ import annotations

from ridgeline.cost.columns import PlanColumns, TrainingSetting
from ridgeline.cost.placement import links_of, place
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import MESH_AXES, Job, PlanRequest, Workload
from ridgeline.job.remat import CHECKPOINT_NAMES, KEPT_ON_DEVICE, LAYER_INPUT
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from ridgeline.search.setting import training_setting

ATTENTION = AttentionSpec(num_heads=16, num_kv_heads=8, head_dim=128)
DENSE = ModelSpec(
    name="dense",
    embed_dim=2048,
    vocab_size=32768,
    layers=((LayerSpec(mixer=ATTENTION, mlp=MlpSpec(mlp_dim=8192)), 8),),
)
SPARSE = ModelSpec(
    name="sparse",
    embed_dim=2048,
    vocab_size=32768,
    layers=((LayerSpec(mixer=ATTENTION, mlp=MoeSpec(num_experts=16, top_k=2, expert_mlp_dim=4096)), 8),),
)


def job_on(hardware: str, *, model: ModelSpec = DENSE, global_batch: int = 256, plan: PlanRequest | None = None) -> Job:
    """A training job of 2048-token sequences."""
    return Job(
        model_reference=model.name,
        model=model,
        hardware=parse_slice(hardware),
        workload=Workload(seq_len=2048, global_batch=global_batch),
        plan=plan or PlanRequest(),
    )


def setting_on(hardware: str, *, model: ModelSpec = DENSE, global_batch: int = 256) -> TrainingSetting:
    """What every plan of that job shares."""
    return training_setting(job_on(hardware, model=model, global_batch=global_batch), global_batch=global_batch)


def one_plan(
    setting: TrainingSetting,
    mesh: dict[str, int],
    *,
    policy: str = "full",
    accumulation: float = 1.0,
    microbatches: float = 1.0,
) -> PlanColumns:
    """One plan with scalar columns."""
    degrees = {**dict.fromkeys(MESH_AXES, 1), **mesh}
    pieces = place(degrees, setting.hardware.axes)
    if pieces is None:
        raise ValueError(mesh)
    kept = {LAYER_INPUT, *KEPT_ON_DEVICE[policy]}
    return PlanColumns(
        degrees={axis: float(degree) for axis, degree in degrees.items()},
        accumulation=accumulation,
        microbatches=microbatches,
        repeats=1.0,
        saved={**{name: float(name in kept) for name in CHECKPOINT_NAMES}, "*": float(policy == "none")},
        offloaded=dict.fromkeys(CHECKPOINT_NAMES, 0.0),
        moments_on_host=0.0,
        links=links_of(pieces, degrees, setting.hardware),
    )
