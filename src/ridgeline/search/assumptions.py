"""What an estimate rests on, in words; shown with every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.training.context import causal_imbalance
from ridgeline.cost.training.muon import placement_of
from ridgeline.job.precision import takes_experts
from ridgeline.model.accounting import operations
from ridgeline.model.operations import ExpertMatmul
from ridgeline.units import format_bytes, format_fraction, format_rate_bytes_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.columns import TrainingSetting
    from ridgeline.job.job import Job
    from ridgeline.search.answer import PlanEstimate


def assumptions(job: Job, setting: TrainingSetting, best: PlanEstimate) -> tuple[str, ...]:
    """Assumptions of one answer, most consequential first."""
    return tuple(_assumptions(job, setting, best))


def _assumptions(job: Job, setting: TrainingSetting, best: PlanEstimate) -> Iterator[str]:
    chip, efficiency = job.hardware.chip, setting.efficiency
    yield (
        f"efficiencies of {chip.name}: matmul {format_fraction(efficiency.matmul[setting.dtypes.compute])} of peak, "
        f"links {format_fraction(efficiency.link)}, HBM {format_fraction(efficiency.hbm)}; "
        f"weight gathers hide behind {format_fraction(efficiency.overlap)} of compute"
    )
    yield from _interval(best)
    if job.calibration is not None:
        yield f"efficiencies that {job.calibration.folder} states take the place of those that ship"
    if "derived" in {fact.kind for fact in (efficiency.facts[key] for key in ("matmul.bf16", "link"))}:
        yield f"some efficiencies of {chip.name} are borrowed from its nearest measured relative"
    dtypes = setting.dtypes
    yield f"weights {dtypes.weights}, gathered and reduced in {dtypes.compute}, gradients kept in {dtypes.gradients}"
    yield from _host(job, best)
    yield from _training(setting)
    if best.plan.gradient_accumulation > 1 and "data" in best.plan.mesh:
        yield "gradients of replicas are summed once a step, after the last micro-step"
    if setting.moe_imbalance == 1.0 and any(
        "moe" in block.name for layer in setting.tree.layers for block in layer.blocks
    ):
        yield "experts receive equal shares of the tokens"
    elif setting.moe_imbalance != 1.0:
        yield f"the busiest expert receives {setting.moe_imbalance:g} times the mean and sets the pace"
    yield from _context(setting, best)
    if 0 < job.model.context_length < setting.seq_len:
        yield f"sequences of {setting.seq_len:,} tokens exceed the {job.model.context_length:,} the model was made for"
    if job.plan.quantization is not None:
        yield from _quantization(job, setting)
    yield from job.model.notes
    if job.model.mtp_layers:
        yield f"{job.model.mtp_layers} multi-token-prediction layer(s) are left out"


def _interval(best: PlanEstimate) -> Iterator[str]:
    """How sure the estimate is, and what makes it less so."""
    ratio = best.step.high_s / best.step.expected_s
    yield f"interval: the estimate divided and multiplied by {ratio:.3g}, which holds eight of ten measured steps"
    if best.step.widened_by:
        yield f"the interval is wider, as there is {'; '.join(best.step.widened_by)}"


def _host(job: Job, best: PlanEstimate) -> Iterator[str]:
    """What is known of the way to the host, and of its memory where the plan uses it."""
    chip = job.hardware.chip
    if chip.pcie_bytes_per_s is None:
        yield f"nothing was placed on the host: the PCIe rate of {chip.name} is not public"
    elif chip.facts["pcie_bytes_per_s"].kind == "derived":
        yield f"the PCIe rate of {chip.name} is not public: {format_rate_bytes_per_s(chip.pcie_bytes_per_s)} is assumed"
    if best.memory.host_bytes > 0 and chip.host_ram_bytes is None:
        needed = format_bytes(best.memory.host_bytes)
        yield f"the RAM of a host of {chip.name} is not public: it is taken to hold {needed}"
    if best.plan.optimizer.state == "host":
        yield "moments on the host are fetched, updated and sent back layer by layer; nothing hides their transfer"


def _training(setting: TrainingSetting) -> Iterator[str]:
    """What is taken for granted of Muon's iterations and of frozen weights."""
    if setting.optimizer.is_muon:
        where = placement_of(setting)
        yield f"Muon: five Newton-Schulz iterations in bf16, matrices {where}; nothing hides their collectives"
    if setting.has_adapters:
        yield "frozen weights are stored in the compute dtype; as many activations are kept as where all are trained"


def _context(setting: TrainingSetting, best: PlanEstimate) -> Iterator[str]:
    """How attention is shared by the devices that share a sequence."""
    ways = best.plan.mesh.get("cp", 1)
    if ways > 1 and setting.context.strategy == "ring":
        yield "keys and values go round a ring beside the arithmetic; partial results are merged"
    elif ways > 1:
        yield "each device gathers keys and values of its sequences before it attends to them"
    if ways > 1 and setting.context.load_balance is False:
        busiest = causal_imbalance(N=float(ways))
        yield f"sequences are split in order: the last device has {busiest:.2f} times the mean of causal attention"
    elif ways > 1:
        yield "sequences are reordered before they are split, so that devices have equal shares of causal attention"


def _quantization(job: Job, setting: TrainingSetting) -> Iterator[str]:
    recipe, chip = job.plan.quantization, job.hardware.chip
    if recipe is None:
        return
    if recipe.kind not in chip.peak_flops_per_s:
        yield f"{chip.name} has no faster {recipe.kind} matmul: {recipe.kind} runs at the {setting.dtypes.compute} rate"
    has_experts = any(isinstance(operation, ExpertMatmul) for _, operation, _ in operations(setting.tree))
    if has_experts and not takes_experts(recipe):
        yield f"a recipe of {recipe.weights} alone leaves the experts' matmuls in {setting.dtypes.compute}"
    yield f"{recipe.kind} is for the layers' matmuls only; gathers and saved activations stay in bf16"
