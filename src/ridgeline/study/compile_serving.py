"""A serving job asked of two witnesses: what the compiler says of prefill and of decode, beside the equation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, Final

from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.installed import check_installed, own_compiler, usable_compiler
from ridgeline.compiler.our_program import OurProgram
from ridgeline.cost.columns import MESH_AXES_OF, TENSOR_AXES
from ridgeline.cost.serving.device import LANES, PhaseColumns, ServingSetting, serving_flops, serving_memory
from ridgeline.cost.training.held_weights import step_weights
from ridgeline.errors import InfeasibleError, InputError
from ridgeline.job.job import BATCH_AXES
from ridgeline.job.mesh import FREE
from ridgeline.job.whole import whole_serving_job
from ridgeline.model.tree import model_tree
from ridgeline.program.attention import chosen_kernel
from ridgeline.program.serving import SERVING_AXES, attentions, serving_program
from ridgeline.program.splash import splash_tiles
from ridgeline.search.answer import MemoryEstimate
from ridgeline.search.estimate import verdict
from ridgeline.search.serve import serve
from ridgeline.study.compile_job import compiled_summary
from ridgeline.study.compiled_program import ReadableProgram, kernel_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from ridgeline.compiler.compilation import Compilation
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits
    from ridgeline.hlo.summary import HloSummary
    from ridgeline.job.origin import Arguments
    from ridgeline.job.serving import Phase, ServingJob
    from ridgeline.model.operations import ModelTree
    from ridgeline.program.serving import ServingProgram
    from ridgeline.search.answer import Verdict

PHASES: Final[tuple[Phase, ...]] = ("prefill", "decode")
_RANKS: Final[Mapping[Verdict, int]] = {"fits": 0, "tight": 1, "does_not_fit": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseAnswer:
    """What both witnesses say of one phase; all of one device and one pass.

    Attributes:
        phase: Which.
        program: What was compiled.
        mesh: Its degrees, as the job has them.
        estimate: Memory by the equation.
        predicted_flops: Matmul FLOPs by the equation, masked-out ones too.
        compilation: What the compiler says of its memory, or why there is no place for it.
        summary: What the compiled text says; None where nothing was compiled.
    """

    phase: Phase
    program: ServingProgram
    mesh: Mapping[str, int]
    estimate: MemoryEstimate
    predicted_flops: float
    compilation: Compilation
    summary: HloSummary | None

    @property
    def peak_bytes(self) -> float:
        """Memory of a device by the compiler; where it refused, what it says it needs (NaN if the host lacks it)."""
        memory, refusal = self.compilation.outcome.memory, self.compilation.outcome.refusal
        if memory is not None:
            return memory.peak_bytes
        return refusal.needed_bytes if refusal is not None and refusal.where == "hbm" else float("nan")

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits on the chip, by the compiler."""
        if self.compilation.outcome.memory is None:
            return "does_not_fit"
        return verdict(self.peak_bytes, self.estimate.usable_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileServingAnswer:
    """What `ridgeline compile` answers of a serving job.

    Attributes:
        job: The question, with nothing left to choose.
        compiler: Which was asked.
        is_stand_in: The slice's own compiler is not installed, and the CPU's stands in for it.
        prefill: The program that reads prompts.
        decode: The program that adds a token to every sequence, in its last step: its cache is full.
    """

    job: ServingJob
    compiler: CompilerName
    is_stand_in: bool
    prefill: PhaseAnswer
    decode: PhaseAnswer

    @property
    def verdict(self) -> Verdict:
        """The worse of both programs'."""
        verdicts: tuple[Verdict, Verdict] = self.prefill.verdict, self.decode.verdict
        return max(verdicts, key=lambda verdict: _RANKS[verdict])


def compile_serving(
    job: str | ServingJob,
    *,
    compiler: CompilerName | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **arguments: Unpack[Arguments],
) -> CompileServingAnswer:
    """What a compiler says of both programs of a serving job (the verb `compile`, asked of one).

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json. Meshes that it leaves open are chosen.
        compiler: `tpu`, `gpu`, or `cpu` for emulated devices; the slice's own if none is said, or `cpu` where that is
            not installed.
        limits: What the compiler may use, for each program.
        progress: Told what is being done.
        arguments: What is to override a job file, or all of a job beside its model: `on`, `prompt_len`,
            `generate_len`, `batch`, `prefill_mesh`, `decode_mesh`, ….

    Raises:
        InputError: The question contradicts itself, or our program lacks a part of it.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    whole = whole_serving_job(job, arguments)
    asked = compiler or usable_compiler(whole.hardware)
    check_installed(asked)
    chosen = _chosen(whole)
    programs = {phase: serving_program(chosen, phase) for phase in PHASES}  # both are refused before one is compiled

    def answered(phase: Phase) -> PhaseAnswer:
        return _answered(chosen, programs[phase], asked, limits, lambda doing: progress(f"{phase}: {doing}"))

    return CompileServingAnswer(
        job=chosen,
        compiler=asked,
        is_stand_in=compiler is None and asked != own_compiler(whole.hardware),
        prefill=answered("prefill"),
        decode=answered("decode"),
    )


def _answered(
    job: ServingJob,
    program: ServingProgram,
    compiler: CompilerName,
    limits: Limits | None,
    progress: Callable[[str], None],
) -> PhaseAnswer:
    readable = ReadableProgram(
        compilable=OurProgram(job=job, compiler=compiler, serving=program.phase),
        mesh=program.layout.axes_of_a_slice,
        rules=kernel_rules(program, is_tpu=compiler == "tpu"),
    )
    compilation = compile_program(readable.compilable, limits=limits, progress=progress)
    progress("reading the compiled program")
    mesh = job.plan.mesh(program.phase)
    setting = ServingSetting(
        tree=program.tree,
        dtypes=job.plan.dtypes,
        context_len=job.workload.context_len,
        prompt_len=job.workload.prompt_len,
        row_elements=LANES if own_compiler(job.hardware) == "tpu" else 1,
        scaled_caches=("int8", "fp8"),
    )
    spread = float(program.layout.spreads_cache)
    columns = PhaseColumns(degrees=mesh, batch_size=program.global_batch, cache_spread_share=spread)
    flops = serving_flops(setting, columns, program.phase, block_keys=_block_keys(program, is_tpu=compiler == "tpu"))
    return PhaseAnswer(
        phase=program.phase,
        program=program,
        mesh=mesh,
        estimate=_memory_estimate(job, setting, columns, program.phase),
        predicted_flops=float(flops),
        compilation=compilation,
        summary=compiled_summary(readable, compilation),
    )


def _memory_estimate(job: ServingJob, setting: ServingSetting, columns: PhaseColumns, phase: Phase) -> MemoryEstimate:
    memory, chip = serving_memory(setting, columns, phase), job.hardware.chip
    total_bytes, usable_bytes = float(memory.total_bytes), chip.usable_hbm_bytes / chip.devices_per_chip
    return MemoryEstimate(
        verdict=verdict(total_bytes, usable_bytes),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        parts={name: float(part) for name, part in memory.parts.items()},
    )


def _block_keys(program: ServingProgram, *, is_tpu: bool) -> float | None:
    """Keys of one tile of prefill's attention; None where it computes every score."""
    kernels = {chosen_kernel(program, operation, is_tpu=is_tpu) for operation in attentions(program.tree)}
    return float(max(splash_tiles(program))) if kernels == {"splash"} else None


def _chosen(job: ServingJob) -> ServingJob:
    """The job with a batch, a mesh for each phase, and prompts for each part of the batch axes.

    Where no mesh is named, or no batch, they are those of the plan that `serve` takes, on axes that our program has.
    """
    if job.workload.batch is None or not (job.plan.decode or job.plan.prefill):
        job = _as_served(job)
    plan = job.plan
    prefill, decode = (_whole_mesh(plan.mesh(phase), job) for phase in PHASES)
    prompts = plan.prefill_batch or prod(prefill.get(axis, 1) for axis in BATCH_AXES)
    return replace(job, plan=replace(plan, prefill=prefill, decode=decode, prefill_batch=prompts))


def _as_served(job: ServingJob) -> ServingJob:
    """The job with the best plan's meshes and batches; as it is where none fits, or the chip is not calibrated."""
    has_experts = any("experts" in tensor.axes for tensor, _, _ in step_weights(model_tree(job.model)))
    plan, axes = job.plan, ["tp", "dp", *(["ep"] if has_experts else [])]
    for free in ({}, dict.fromkeys(axes, FREE)):
        held = replace(plan, decode=plan.decode or free, prefill=plan.prefill or free)
        try:
            best = serve(replace(job, plan=held)).best.plan
        except (InfeasibleError, InputError):
            return job
        if {*best.decode, *best.prefill} <= {*SERVING_AXES}:
            break
    pinned = replace(
        plan,
        decode=dict(best.decode) or {"tp": 1},
        prefill=dict(best.prefill) or {"tp": 1},
        prefill_batch=plan.prefill_batch or best.prefill_batch or None,
        cache=best.cache if job.plan.cache is None else job.plan.cache,
        dtypes=best.dtypes,
    )
    devices = prod(best.decode.values()) if best.cache == "spread" else 1  # of which each has its share of sequences
    workload = replace(job.workload, batch=job.workload.batch or max(best.batch // devices, 1) * devices)
    return replace(job, plan=pinned, workload=workload)


def _whole_mesh(mesh: Mapping[str, int], job: ServingJob) -> Mapping[str, int]:
    """A mesh without open degrees; where none is named, tensor parallelism as far as it reaches, then copies."""
    devices = job.hardware.num_devices
    if not mesh:
        tensor = _largest_tensor_degree(model_tree(job.model), devices)
        return {"dp": devices // tensor, "tp": tensor}
    pinned = {axis: degree for axis, degree in mesh.items() if degree != FREE}
    left = devices // prod(pinned.values())
    free = [axis for axis in mesh if axis not in pinned]
    return {**pinned, **{axis: left if axis == free[0] else 1 for axis in free}}


def _largest_tensor_degree(tree: ModelTree, devices: int) -> int:
    """The most devices that share out every dimension of tensor parallelism; key-value heads may have copies."""
    sizes = [
        size
        for tensor, _, _ in step_weights(tree)
        for axis, size in zip(tensor.axes, tensor.shape, strict=True)
        if size > 1 and axis != "kv_heads" and TENSOR_AXES[0] in MESH_AXES_OF.get(axis, ())
    ]
    return gcd(devices, *sizes)
