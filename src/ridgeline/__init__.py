"""Ridgeline: how a Transformer will train or serve, before the chips are rented.

The verbs of the command line are functions here with the same arguments; `model` is called `describe_model`::

    import ridgeline

    answer = ridgeline.train("llama3.1-70b", on="tpu7x:4x4x4", global_batch=256, seq_len=8192)
    print(answer.best.plan.mesh, answer.best.step.expected_s)

Importing this imports no verb; each is loaded when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ridgeline.errors import InfeasibleError, InputError, MissingExtraError, RidgelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from ridgeline.cost.deduce import Deduced
    from ridgeline.cost.padding import Padding
    from ridgeline.cost.ridge import CriticalBatch, Ridge
    from ridgeline.cost.roofline_answer import OperationRoofline
    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.chip_reading import (
        CriticalBatchArguments,
        MatrixUnitArguments,
        PaddingArguments,
        VectorUnitArguments,
    )
    from ridgeline.job.job import Dtype, Job
    from ridgeline.job.operation_reading import OperationArguments
    from ridgeline.job.origin import Arguments
    from ridgeline.job.rates_reading import RateArguments
    from ridgeline.report.model import ModelAnswer
    from ridgeline.search.answer import TrainAnswer

__version__ = "0.1.0"

__all__ = [
    "InfeasibleError",
    "InputError",
    "MissingExtraError",
    "RidgelineError",
    "__version__",
    "chips",
    "critical_batch",
    "describe_model",
    "mxu",
    "padding",
    "ridge",
    "roofline",
    "train",
    "vpu",
]


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

    It is not called `model` because `ridgeline.model` is the package that holds the models.

    Args:
        reference: A name, or the path of a config.json.
        seq_len: Tokens a sequence.
        dtype: Of KV cache and activations.
    """
    from ridgeline.model.zoo import resolve_model
    from ridgeline.report.model import model_answer

    return model_answer(resolve_model(reference, where="reference"), seq_len=seq_len, dtype=dtype)


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
    from ridgeline.job.origin import settings
    from ridgeline.job.reading import read_job
    from ridgeline.search.train import train as plan_training

    said = settings(arguments, written=lambda name: f"{name}=")
    if not isinstance(job, str):
        if said:
            raise InputError(
                "a whole job takes no further arguments",
                where=said[0].where,
                value=said[0].value,
                expected="a job alone, or a job file or model with arguments",
                fix="change the job with dataclasses.replace",
            )
        return plan_training(job, progress=progress)
    return plan_training(read_job(job, said), progress=progress)


def roofline(operation: str = "work", **arguments: Unpack[OperationArguments]) -> OperationRoofline:
    """Whether an operation is bound by compute, memory or links, and from which size on.

    Args:
        operation: `matmul`, `batched_matmul`, `expert_matmul`, `attention`, `elementwise`, `embedding`, `dot`, or
            `work` for so many FLOPs and bytes.
        arguments: Its sizes by letter (`B=64, D=4096, F=16384`), its dtypes, where its arrays lie, and the machine.
    """
    from ridgeline.cost.operation_roofline import operation_roofline
    from ridgeline.job.operation_reading import read_operation
    from ridgeline.job.said import said

    return operation_roofline(read_operation(operation, said(arguments)))


def ridge(**arguments: Unpack[RateArguments]) -> Ridge:
    """The arithmetic intensity from which a chip is bound by compute, for one unit, dtype and memory."""
    from ridgeline.cost.ridge import ridge_of
    from ridgeline.job.chip_reading import read_ridge
    from ridgeline.job.said import said

    question = read_ridge(said(arguments), question="ridge")
    return ridge_of(question.rates, question.memory, computes=question.computes)


def critical_batch(**arguments: Unpack[CriticalBatchArguments]) -> CriticalBatch:
    """The rows from which a matmul is compute-bound: by the rule for small batches and, with `D` and `F`, exactly."""
    from ridgeline.cost.ridge import critical_batch_of
    from ridgeline.job.chip_reading import read_ridge
    from ridgeline.job.said import said

    question = read_ridge(said(arguments), question="critical_batch")
    return critical_batch_of(
        question.rates, question.memory, element_bytes=question.element_bytes, sizes=question.sizes
    )


def mxu(**arguments: Unpack[MatrixUnitArguments]) -> Deduced:
    """The matrix units of a chip: what follows from array size, clock and count, by quantity."""
    from ridgeline.cost.chip_inside import MATRIX_UNIT
    from ridgeline.cost.deduce import deduce
    from ridgeline.job.chip_reading import read_matrix_unit
    from ridgeline.job.said import said

    return deduce(MATRIX_UNIT, read_matrix_unit(said(arguments)))


def vpu(**arguments: Unpack[VectorUnitArguments]) -> Deduced:
    """The vector units of a chip and their registers, by quantity."""
    from ridgeline.cost.chip_inside import VECTOR_UNIT
    from ridgeline.cost.deduce import deduce
    from ridgeline.job.chip_reading import read_vector_unit
    from ridgeline.job.said import said

    return deduce(VECTOR_UNIT, read_vector_unit(said(arguments)))


def padding(shape: str | Sequence[int], **arguments: Unpack[PaddingArguments]) -> Padding:
    """How tiles pad an array in memory, in vector registers and in the matrix unit.

    Args:
        shape: `4096x14336`; the last two dimensions are tiled.
        arguments: `dtype`, and `on` for one TPU or `array` for a matrix unit of another size.
    """
    from ridgeline.cost.padding import padding as padding_of
    from ridgeline.job.chip_reading import read_padding
    from ridgeline.job.said import said

    question = read_padding(said({"shape": shape, **arguments}))
    return padding_of(question.shape, element_bytes=question.element_bytes, units=question.units)
