"""Ridgeline: how a Transformer will train or serve, before the chips are rented.

The verbs of the command line are functions here with the same arguments; `model` is called `describe_model`, and
`compile` is called `compile_job`::

    import ridgeline

    answer = ridgeline.train("llama3.1-70b", on="tpu7x:4x4x4", global_batch=256, seq_len=8192)
    print(answer.best.plan.mesh, answer.best.step.expected_s)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, overload

from ridgeline.errors import InfeasibleError, InputError, MissingExtraError, RidgelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from ridgeline.compiler.installed import CompilerName
    from ridgeline.compiler.process import Limits
    from ridgeline.cost.laws.attention import attention_laws
    from ridgeline.cost.laws.decoding import decode_laws
    from ridgeline.cost.laws.deduce import Deduced
    from ridgeline.cost.laws.of_job import JobLaws
    from ridgeline.cost.laws.serving import serving_memory
    from ridgeline.cost.laws.speculation import draft_lengths
    from ridgeline.cost.laws.system import training_laws
    from ridgeline.cost.questions.chip_value import rank_chips
    from ridgeline.cost.questions.collective_answer import CollectiveAnswer, CollectiveKind
    from ridgeline.cost.questions.decode_layout import decode_layout
    from ridgeline.cost.questions.einsum import einsum
    from ridgeline.cost.questions.expert_routing import expert_routing
    from ridgeline.cost.questions.layer_communication import layer_communication
    from ridgeline.cost.questions.machine import bandwidth_ratios, dtype_speedups, machine_totals
    from ridgeline.cost.questions.padding import Padding
    from ridgeline.cost.questions.ridge import CriticalBatch, Ridge
    from ridgeline.cost.questions.roofline_answer import OperationRoofline
    from ridgeline.cost.questions.softmax_merge import merge_softmax
    from ridgeline.cost.questions.torus_question import num_neighbours, wiring, without_wraparound
    from ridgeline.cost.questions.transfer_question import PathAnswer, PointToPointAnswer
    from ridgeline.cost.questions.transfers import farthest_hops
    from ridgeline.cost.questions.transformer import transformer
    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.scaling_book import scaling_book_figures, smallest_slice
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.chip_reading import (
        CriticalBatchArguments,
        MatrixUnitArguments,
        PaddingArguments,
        VectorUnitArguments,
    )
    from ridgeline.job.job import Dtype, Job
    from ridgeline.job.matmul_question import MatmulArguments
    from ridgeline.job.notation import check_layout, find_notation
    from ridgeline.job.operation_reading import OperationArguments
    from ridgeline.job.origin import Arguments
    from ridgeline.job.rates_reading import RateArguments
    from ridgeline.job.transfer_reading import CollectiveArguments, PathArguments, PointToPointArguments
    from ridgeline.report.model import ModelAnswer
    from ridgeline.search.answer import TrainAnswer
    from ridgeline.search.matmul_answer import MatmulAnswer
    from ridgeline.search.scale import ScaleAnswer
    from ridgeline.study.calibrate import calibrate
    from ridgeline.study.compile_function import compile_function
    from ridgeline.study.compile_job import CompileAnswer
    from ridgeline.study.compile_serving import compile_serving
    from ridgeline.study.compiled_program import ProgramName
    from ridgeline.study.export_jetstream import export_jetstream
    from ridgeline.study.export_job import export_job
    from ridgeline.study.export_vllm import export_vllm
    from ridgeline.study.serve_job import serve
    from ridgeline.study.validate import validate
    from ridgeline.units import duration_in, rate_in

__version__ = "0.1.0"

__all__ = [
    "InfeasibleError",
    "InputError",
    "MissingExtraError",
    "RidgelineError",
    "__version__",
    "attention_laws",
    "bandwidth_ratios",
    "calibrate",
    "check_layout",
    "chips",
    "collective",
    "compile_function",
    "compile_job",
    "compile_serving",
    "critical_batch",
    "decode_laws",
    "decode_layout",
    "describe_model",
    "draft_lengths",
    "dtype_speedups",
    "duration_in",
    "einsum",
    "expert_routing",
    "export_jetstream",
    "export_job",
    "export_vllm",
    "farthest_hops",
    "find_notation",
    "layer_communication",
    "machine_totals",
    "matmul",
    "matmul_program",
    "merge_softmax",
    "mxu",
    "num_neighbours",
    "padding",
    "path",
    "point_to_point",
    "rank_chips",
    "rate_in",
    "ridge",
    "roofline",
    "scale",
    "scaling_book_figures",
    "serve",
    "serving_memory",
    "smallest_slice",
    "train",
    "train_laws",
    "training_laws",
    "transformer",
    "validate",
    "vpu",
    "wiring",
    "without_wraparound",
]

_QUESTIONS = {
    "attention_laws": "ridgeline.cost.laws.attention",
    "bandwidth_ratios": "ridgeline.cost.questions.machine",
    "calibrate": "ridgeline.study.calibrate",
    "check_layout": "ridgeline.job.notation",
    "compile_function": "ridgeline.study.compile_function",
    "compile_serving": "ridgeline.study.compile_serving",
    "decode_laws": "ridgeline.cost.laws.decoding",
    "export_jetstream": "ridgeline.study.export_jetstream",
    "export_job": "ridgeline.study.export_job",
    "export_vllm": "ridgeline.study.export_vllm",
    "find_notation": "ridgeline.job.notation",
    "dtype_speedups": "ridgeline.cost.questions.machine",
    "duration_in": "ridgeline.units",
    "rate_in": "ridgeline.units",
    "smallest_slice": "ridgeline.hardware.scaling_book",
    "draft_lengths": "ridgeline.cost.laws.speculation",
    "decode_layout": "ridgeline.cost.questions.decode_layout",
    "einsum": "ridgeline.cost.questions.einsum",
    "expert_routing": "ridgeline.cost.questions.expert_routing",
    "farthest_hops": "ridgeline.cost.questions.transfers",
    "layer_communication": "ridgeline.cost.questions.layer_communication",
    "machine_totals": "ridgeline.cost.questions.machine",
    "merge_softmax": "ridgeline.cost.questions.softmax_merge",
    "num_neighbours": "ridgeline.cost.questions.torus_question",
    "rank_chips": "ridgeline.cost.questions.chip_value",
    "scaling_book_figures": "ridgeline.hardware.scaling_book",
    "serve": "ridgeline.study.serve_job",
    "serving_memory": "ridgeline.cost.laws.serving",
    "training_laws": "ridgeline.cost.laws.system",
    "transformer": "ridgeline.cost.questions.transformer",
    "validate": "ridgeline.study.validate",
    "wiring": "ridgeline.cost.questions.torus_question",
    "without_wraparound": "ridgeline.cost.questions.torus_question",
}
"""Questions that the command line asks as part of a verb: exported as they are, each loaded when it is first named."""


def __getattr__(name: str) -> object:
    """A question, from the module that answers it."""
    if name not in _QUESTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_QUESTIONS[name]), name)


def __dir__() -> list[str]:
    """All that can be asked, whether it is loaded yet or not."""
    return sorted({*globals(), *__all__})


@overload
def chips(name: None = None) -> tuple[Chip, ...]: ...
@overload
def chips(name: str) -> Chip | Slice: ...
def chips(name: str | None = None) -> tuple[Chip, ...] | Chip | Slice:
    """What a machine is: the whole catalogue, one chip (`h100`), or one slice (`tpu7x:4x4x4`)."""
    from ridgeline.hardware.catalog import chip_names, find_chip, load_chip
    from ridgeline.hardware.topology import parse_slice

    if name is None:
        return tuple(load_chip(known) for known in chip_names())
    return find_chip(name) or parse_slice(name, where="name")


def describe_model(reference: str, *, seq_len: int = 8192, dtype: Dtype = "bf16") -> ModelAnswer:
    """What a model asks for: parameters, FLOPs, KV cache and activations, part by part (the verb `model`).

    Args:
        reference: A name, or the path of a config.json.
        seq_len: Tokens a sequence.
        dtype: Of KV cache and activations.
    """
    from ridgeline.model.zoo import resolve_model
    from ridgeline.report.model import model_answer

    return model_answer(resolve_model(reference, where="reference"), seq_len=seq_len, dtype=dtype)


def matmul(notation: str, **arguments: Unpack[MatmulArguments]) -> MatmulAnswer:
    """How sharded arrays lie on a mesh, what their product needs, and which way is fastest.

    Args:
        notation: `A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]`, one array, or `array -> array` (docs/notation.md).
        arguments: `sizes`, `mesh`, `on`, `dtype`, `memory`, and rates in place of a slice's.

    Raises:
        InputError: The question is malformed.
        InfeasibleError: No layout fits `memory`.
    """
    from ridgeline.job.matmul_question import read_matmul
    from ridgeline.search.matmul import answer_matmul

    return answer_matmul(
        read_matmul(notation, arguments, written=lambda name: name if name == "notation" else f"{name}=")
    )


def matmul_program(answer: MatmulAnswer, *, strategy: int | None = None, where: str = "strategy") -> str:
    """A strategy of `matmul` as a JAX program.

    Args:
        answer: To a product.
        strategy: Its number; the fastest if it is not said.
        where: The argument, for error messages.

    Raises:
        InputError: No product was asked, no strategy has that number, or sizes are open.
    """
    from ridgeline.export.jax_program import jax_program

    cost = answer.numbered(strategy, where=where)
    sizes, mesh, dtypes = answer.question.sizes, answer.machine.mesh, answer.question.dtypes
    return jax_program(cost.strategy, sizes=sizes, mesh=mesh, dtypes=dtypes, where=where)


def train(
    job: str | Job, *, progress: Callable[[str, float], None] | None = None, **arguments: Unpack[Arguments]
) -> TrainAnswer:
    """The best way to train a model on a slice, and why not the others.

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json.
        progress: Called with what is being done and the fraction done.
        arguments: What the job leaves open, or what is to override a job file: `on`, `global_batch` or
            `batch_tokens`, `seq_len`, `tokens`, and what to pin of the plan.

    Raises:
        InputError: The question is malformed.
        InfeasibleError: No plan fits.
    """
    from ridgeline.search.train import train as plan_training

    return plan_training(_job(job, arguments), progress=progress)


def scale(
    job: str | Job,
    *,
    chips: str | Sequence[int],
    weak: bool = False,
    progress: Callable[[str, float], None] | None = None,
    **arguments: Unpack[Arguments],
) -> ScaleAnswer:
    """A job planned anew for more and more chips: time, efficiency, what binds, where scaling ends.

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json.
        chips: `64:4096`, which doubles, or numbers.
        weak: Let the batch grow with the chips, from the job's own at the job's own slice.
        progress: Called with what is being done and the fraction done.
        arguments: As for `train`; `on` may name the chip alone. Without a batch, the largest sensible one at the
            smallest size that has a plan is taken.

    Raises:
        InputError: The question is malformed.
        InfeasibleError: There is no such slice, or there is a plan at no size.
    """
    from ridgeline.job.chip_counts import parse_chip_counts, slice_to_start_from
    from ridgeline.search.scale import scale as plan_sizes

    counts = parse_chip_counts(chips if isinstance(chips, str) else ",".join(map(str, chips)), where="chips=")
    if (on := arguments.get("on")) is not None:
        arguments["on"] = slice_to_start_from(on, counts)
    return plan_sizes(_job(job, arguments), chips=counts, weak=weak, progress=progress)


def compile_job(
    job: str | Job,
    *,
    program: ProgramName | None = None,
    compiler: CompilerName | None = None,
    maxtext_python: str | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
    **arguments: Unpack[Arguments],
) -> CompileAnswer:
    """What the XLA compiler says of a job's training step, beside the estimate (the verb `compile`).

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json. What it leaves open is chosen first.
        program: `maxtext` or `ours`; MaxText's if none is said, where it is found and can be told the job.
        compiler: `tpu`, `gpu`, or `cpu` for this machine's CPU with emulated devices; the slice's own if none is
            said, or `cpu` where that is not installed.
        maxtext_python: The Python that has MaxText; None to look for it.
        limits: The longest time and the largest memory of the compiler.
        progress: Called with what is being done.
        arguments: As for `train`.

    Raises:
        InputError: The question is malformed, or the program lacks a part of the model or the plan.
        MissingExtraError: The compiler or the program is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    from ridgeline.study.compile_job import compile_job as compile_whole

    return compile_whole(
        _job(job, arguments),
        program=program,
        compiler=compiler,
        maxtext_python=maxtext_python,
        limits=limits,
        progress=progress or (lambda _: None),
    )


def train_laws(
    job: str | Job, *, given: Mapping[str, float | str] | None = None, **arguments: Unpack[Arguments]
) -> JobLaws:
    """What the laws of training say of a job, without a search (the verb `train` with `--laws`).

    Args:
        job: A job, a job file (.toml), or a model: its name or its config.json.
        given: Quantities of `training_laws` that take the place of the job's own, e.g. `{"mfu": 0.45}`.
        arguments: As for `train`.

    Raises:
        InputError: The question is malformed, or the slice is no torus.
    """
    from ridgeline.cost.laws.of_job import laws_of_job

    return laws_of_job(_job(job, arguments), given or {})


def _job(job: str | Job, arguments: Arguments) -> Job:
    """The job that is meant."""
    from ridgeline.job.whole import whole_job

    return whole_job(job, arguments)


def roofline(operation: str = "work", **arguments: Unpack[OperationArguments]) -> OperationRoofline:
    """Whether an operation is bound by compute, memory or links, and from which size on.

    Args:
        operation: `matmul`, `batched_matmul`, `expert_matmul`, `attention`, `elementwise`, `embedding`, `dot`, or
            `work` for so many FLOPs and bytes.
        arguments: Its sizes by letter (`B=64, D=4096, F=16384`), its dtypes, where its arrays lie, and the machine.
    """
    from ridgeline.cost.questions.operation_roofline import operation_roofline
    from ridgeline.job.operation_reading import read_operation
    from ridgeline.job.said import said

    return operation_roofline(read_operation(operation, said(arguments)))


def ridge(**arguments: Unpack[RateArguments]) -> Ridge:
    """The arithmetic intensity from which a chip is bound by compute, for one unit, dtype and memory."""
    from ridgeline.cost.questions.ridge import ridge_of
    from ridgeline.job.chip_reading import read_ridge
    from ridgeline.job.said import said

    question = read_ridge(said(arguments), question="ridge")
    return ridge_of(question.rates, question.memory, computes=question.computes)


def critical_batch(**arguments: Unpack[CriticalBatchArguments]) -> CriticalBatch:
    """The rows from which a matmul is compute-bound: by the rule for small batches and, with `D` and `F`, exactly."""
    from ridgeline.cost.questions.ridge import critical_batch_of
    from ridgeline.job.chip_reading import read_ridge
    from ridgeline.job.said import said

    question = read_ridge(said(arguments), question="critical_batch")
    return critical_batch_of(
        question.rates,
        question.memory,
        activations_from=question.activations_from,
        element_bytes=question.element_bytes,
        sizes=question.sizes,
    )


def mxu(**arguments: Unpack[MatrixUnitArguments]) -> Deduced:
    """The matrix units of a chip: what follows from array size, clock and count, by quantity."""
    from ridgeline.cost.laws.deduce import deduce
    from ridgeline.cost.questions.chip_inside import MATRIX_UNIT
    from ridgeline.job.chip_reading import read_matrix_unit
    from ridgeline.job.said import said

    return deduce(MATRIX_UNIT, read_matrix_unit(said(arguments)))


def vpu(**arguments: Unpack[VectorUnitArguments]) -> Deduced:
    """The vector units of a chip and their registers, by quantity."""
    from ridgeline.cost.laws.deduce import deduce
    from ridgeline.cost.questions.chip_inside import VECTOR_UNIT
    from ridgeline.job.chip_reading import read_vector_unit
    from ridgeline.job.said import said

    return deduce(VECTOR_UNIT, read_vector_unit(said(arguments)))


def padding(shape: str | Sequence[int], **arguments: Unpack[PaddingArguments]) -> Padding:
    """How tiles pad an array in memory, in vector registers and in the matrix unit.

    Args:
        shape: `4096x14336`; the last two dimensions are tiled.
        arguments: `dtype`, and `on` for one TPU or `array` for a matrix unit of another size.
    """
    from ridgeline.cost.questions.padding import padding as padding_of
    from ridgeline.job.chip_reading import read_padding
    from ridgeline.job.said import said

    question = read_padding(said({"shape": shape, **arguments}))
    return padding_of(question.shape, element_bytes=question.element_bytes, units=question.units)


def collective(kind: CollectiveKind, **arguments: Unpack[CollectiveArguments]) -> CollectiveAnswer:
    """How long a collective takes: by the exact formula, by the book's, and at the least.

    Args:
        kind: `all_gather`, `reduce_scatter`, `all_reduce` or `all_to_all`.
        arguments: The array (`bytes="34MB"`, or `shape` and `dtype`), `axis="x,y"` and `on="v5e:8x16"`, or sizes and
            rates without a slice.
    """
    from ridgeline.cost.questions.collective_question import collective as cost_of
    from ridgeline.job.said import said
    from ridgeline.job.transfer_reading import joined, read_collective

    asked = read_collective(said(joined(arguments)))
    return cost_of(kind, size_bytes=asked.size_bytes, axes=asked.axes, hardware=asked.hardware, **asked.given)


def point_to_point(**arguments: Unpack[PointToPointArguments]) -> PointToPointAnswer:
    """How long from one chip to another: hops, links used at once, first byte and last."""
    from ridgeline.cost.questions.transfer_question import point_to_point as cost_of
    from ridgeline.job.said import said
    from ridgeline.job.transfer_reading import joined, read_point_to_point

    asked = read_point_to_point(said(joined(arguments)))
    return cost_of(
        size_bytes=asked.size_bytes, start=asked.start, end=asked.end, hardware=asked.hardware, **asked.given
    )


def path(**arguments: Unpack[PathArguments]) -> PathAnswer:
    """How long from all hosts over PCIe and ICI into one chip and through its matrix unit, and what is slowest."""
    from ridgeline.cost.questions.transfer_question import path as cost_of
    from ridgeline.job.said import said
    from ridgeline.job.transfer_reading import joined, read_path

    asked = read_path(said(joined(arguments)))
    return cost_of(
        size_bytes=asked.size_bytes,
        end=asked.end,
        hardware=asked.hardware,
        compute_dtype=asked.compute_dtype,
        **asked.given,
    )
