"""Which question each word after `ridgeline roofline` asks, and its answer, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from ridgeline.errors import InputError, nearest
from ridgeline.job.operation import OperationKind
from ridgeline.job.said import Said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.questions.collective_answer import CollectiveKind
    from ridgeline.job.said import Value
    from ridgeline.report.blocks import Report
    from ridgeline.report.chart import Chart
    from ridgeline.report.jsonable import Json

NAMES: Mapping[str, str] = {
    "batch": "B",
    "queries": "T",
    "keys": "S",
    "width": "D",
    "outputs": "F",
    "heads": "N",
    "kv_heads": "K",
    "head_dim": "H",
    "experts": "E",
    "top_k": "k",
    "moved": "bytes",
}
"""What a question calls a parameter of the verb that has another name."""


def _no_chart() -> Sequence[Chart]:
    raise InputError(
        "there is no chart of this",
        where="--plot",
        value="(empty)",
        expected="an operation with FLOPs and bytes",
        fix="leave --plot out",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An answer in every form.

    Attributes:
        report: For people.
        json: For programs.
        derivations: Where the numbers come from.
        charts: Draws it.
    """

    report: Report
    json: Mapping[str, Json]
    derivations: Sequence[Derivation]
    charts: Callable[[], Sequence[Chart]] = _no_chart


def answered(word: str, flags: Mapping[str, Value]) -> Shown:
    """Asks the question that a word stands for.

    Args:
        word: An operation, a transfer, or a part of a chip.
        flags: What was said, by the names of the verb's parameters.

    Raises:
        InputError: No question has that name, or the flags do not answer it.
    """
    name = word.replace("-", "_")
    if name not in QUESTIONS:
        raise InputError(
            "unknown operation",
            where="OP",
            value=word,
            expected=", ".join(QUESTIONS),
            fix=nearest(name, QUESTIONS) or "write, for example, matmul",
        )
    said = Said(arguments={NAMES.get(flag, flag): value for flag, value in flags.items()}, written=_flag)
    try:
        return QUESTIONS[name](name, said)
    except InputError as error:
        if error.where not in _ARGUMENTS:
            raise
        named = said.written(_ARGUMENTS[error.where])
        raise InputError(error.what, where=named, value=error.value, expected=error.expected, fix=error.fix) from None


_ARGUMENTS: Mapping[str, str] = {
    "size_bytes": "bytes",
    **{name: name for name in ("start", "end", "axis", "sharded", "wraps", "topology", "compute_dtype")},
}
"""What a question calls an argument, and the flag that it is."""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _operation(name: str, said: Said) -> Shown:
    from ridgeline.cost.questions.operation_roofline import operation_roofline
    from ridgeline.job.operation_reading import read_operation
    from ridgeline.report.roofline import operation_json, operation_report

    def charts() -> Sequence[Chart]:
        from ridgeline.report.roofline_chart import roofline_charts

        return roofline_charts(answer, where="--plot")

    answer = operation_roofline(read_operation(name, said))
    return Shown(
        report=operation_report(answer), json=operation_json(answer), derivations=answer.derivations, charts=charts
    )


def _ridge(name: str, said: Said) -> Shown:
    from ridgeline.cost.questions.ridge import ridge_of, ridges_of
    from ridgeline.job.chip_reading import read_ridge
    from ridgeline.job.rates_reading import read_machine
    from ridgeline.report.roofline import ridge_json, ridge_report

    question = read_ridge(said, question=name)
    chip, _ = read_machine(said)
    if chip is not None and said.arguments.keys() <= {"on", "figures"}:
        ridges = ridges_of(chip)
    else:
        ridges = [ridge_of(question.rates, question.memory, computes=question.computes)]
    return Shown(
        report=ridge_report(question.machine, ridges, question.notes),
        json=ridge_json(question.machine, ridges),
        derivations=[step for ridge in ridges for step in ridge.derivations],
    )


def _critical_batch(name: str, said: Said) -> Shown:
    from ridgeline.cost.questions.ridge import critical_batch_of
    from ridgeline.job.chip_reading import read_ridge
    from ridgeline.report.roofline import critical_batch_json, critical_batch_report

    asked = read_ridge(said, question=name)
    answer = critical_batch_of(
        asked.rates,
        asked.memory,
        activations_from=asked.activations_from,
        element_bytes=asked.element_bytes,
        sizes=asked.sizes,
    )
    return Shown(
        report=critical_batch_report(asked.machine, answer, asked.notes),
        json=critical_batch_json(asked.machine, answer),
        derivations=answer.derivations,
    )


def _unit(name: str, said: Said) -> Shown:
    from ridgeline.cost.laws.deduce import deduce
    from ridgeline.cost.questions.chip_inside import MATRIX_UNIT, VECTOR_UNIT
    from ridgeline.job.chip_reading import read_matrix_unit, read_vector_unit
    from ridgeline.report.chip_inside import unit_json, unit_report

    of = f"of {said.arguments['on']}" if said.has("on") else "as given"
    if name == "mxu":
        title, known = f"Matrix units {of}", deduce(MATRIX_UNIT, read_matrix_unit(said))
    else:
        title, known = f"Vector units {of}", deduce(VECTOR_UNIT, read_vector_unit(said))
    if not known.derivations:
        needed = {"mxu": ("array", "clock", "count"), "vpu": ("sublanes", "lanes", "alus", "clock")}[name]
        raise said.refuse(
            "nothing follows from this",
            "on",
            expected=f"a TPU, or figures of its units: {', '.join(map(said.written, needed))}",
            fix="name a TPU, for example --on v5e",
        )
    return Shown(report=unit_report(title, known), json=unit_json(known), derivations=list(known.derivations.values()))


def _padding(_: str, said: Said) -> Shown:
    from ridgeline.cost.questions.padding import padding
    from ridgeline.job.chip_reading import read_padding
    from ridgeline.report.chip_inside import padding_json, padding_report

    question = read_padding(said)
    answer = padding(question.shape, element_bytes=question.element_bytes, units=question.units)
    return Shown(report=padding_report(answer), json=padding_json(answer), derivations=answer.derivations)


def _collective(name: str, said: Said) -> Shown:
    from ridgeline.cost.questions.collective_answer import KINDS
    from ridgeline.cost.questions.collective_question import collective
    from ridgeline.job.transfer_reading import read_collective
    from ridgeline.report.collective import collective_json, collective_report

    asked = read_collective(said)
    kind: CollectiveKind = next(kind for kind in KINDS if kind == name)
    answer = collective(kind, size_bytes=asked.size_bytes, axes=asked.axes, hardware=asked.hardware, **asked.given)
    return Shown(report=collective_report(answer), json=collective_json(answer), derivations=answer.derivations)


def _point_to_point(_: str, said: Said) -> Shown:
    from ridgeline.cost.questions.transfer_question import point_to_point
    from ridgeline.job.transfer_reading import read_point_to_point
    from ridgeline.report.collective import point_to_point_json, point_to_point_report

    asked = read_point_to_point(said)
    answer = point_to_point(
        size_bytes=asked.size_bytes, start=asked.start, end=asked.end, hardware=asked.hardware, **asked.given
    )
    return Shown(report=point_to_point_report(answer), json=point_to_point_json(answer), derivations=answer.derivations)


def _path(_: str, said: Said) -> Shown:
    from ridgeline.cost.questions.transfer_question import path
    from ridgeline.job.transfer_reading import read_path
    from ridgeline.report.collective import path_json, path_report

    asked = read_path(said)
    answer = path(
        size_bytes=asked.size_bytes,
        end=asked.end,
        hardware=asked.hardware,
        compute_dtype=asked.compute_dtype,
        **asked.given,
    )
    return Shown(report=path_report(answer), json=path_json(answer), derivations=answer.derivations)


QUESTIONS: Mapping[str, Callable[[str, Said], Shown]] = {
    **dict.fromkeys(get_args(OperationKind), _operation),
    **dict.fromkeys(("all_gather", "reduce_scatter", "all_reduce", "all_to_all"), _collective),
    "point_to_point": _point_to_point,
    "path": _path,
    "ridge": _ridge,
    "critical_batch": _critical_batch,
    **dict.fromkeys(("mxu", "vpu"), _unit),
    "padding": _padding,
}
"""By the word that asks it."""
