"""Sharded arrays: how they lie, and what their products need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

STRATEGIES = "A[B,D] @ W[D_X,F] -> C[B,F]"
"""The product of the two strategies, asked where an item names no layout."""

ELEMENTWISE = "A[I_X,J_Y] @ B[I_X,J_Y] -> C[I_X,J_Y]"
"""A product of elements, which sums over nothing."""

DIMS = ("I", "J", "K", "L", "M", "N")

LETTERS = ("X", "Y", "Z")
"""Mesh axes, which may be longer than one device without splitting anything."""

RATES = {
    "C": "peak",
    "alpha": "peak",
    "W": "axis_bandwidth",
    "W_ici": "axis_bandwidth",
    "W_bidi": "axis_bandwidth",
    "t_min": "hop",
}

ALPHA = {"axis_bandwidth": 1}
"""Where only the ratio alpha is given, rates count in those of an axis."""


@adapter("sharding.layout")
def layout(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if "specs" in inputs:
        checks = [ridgeline.check_layout(array("A", DIMS, spec)).is_legal for spec in inputs["specs"]]
        return {key: checks for key in wanted if key in {"valid", "legal"}}
    notation = (
        array("A", DIMS, inputs["spec"]) if "spec" in inputs else ridgeline.find_notation(inputs.get("setup", ""))
    )
    check = ridgeline.check_layout(notation)
    answers = {"valid": check.is_legal, "legal": check.is_legal, "reason": check.reason}
    if check.is_legal:
        (lying,) = ridgeline.matmul(notation, **said(notation, inputs)).arrays
        answers = answers | {
            "local": lying.local_shape,
            "local_shape": lying.local_shape,
            "fraction": lying.device_fraction,
            "bytes": lying.array_bytes,
            "array_bytes": lying.array_bytes,
            "per_device": lying.device_bytes,
            "per_chip": lying.device_bytes,
            "local_bytes": lying.device_bytes,
            "bytes_per_device": lying.device_bytes,
            "total": lying.total_bytes,
            "total_bytes": lying.total_bytes,
            "n": lying.num_shards,
            "shards": lying.num_shards,
            "ratio": lying.replication_factor,
            "copies": lying.replication_factor,
            "replicas": lying.replication_factor,
            "replication": lying.replication_factor,
            "replication_factor": lying.replication_factor,
        }
    return known(answers, wanted)


@adapter("sharded_matmul")
def sharded_matmul(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    notation = asked(inputs)
    answer = ridgeline.matmul(notation, **said(notation, inputs))
    if answer.product is None:
        answers = {
            "comm": answer.collective,
            "collective": answer.collective,
            "axis": answer.collective_axes,
            "axes": answer.collective_axes,
        }
    else:
        lines = ridgeline.matmul(notation, **said(notation, inputs), wiring="line").product
        answers = of_case(answer.product) | of_textbook(answer.product, lines) | of_strategies(answer.product)
        if "C" in inputs:
            answers = answers | {"comm": answer.product.textbook.strategy.communication}
    return known(answers, wanted)


def known(answers: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """The answers that are wanted; one that the item leaves open is left out."""
    return {key: value for key, value in answers.items() if key in wanted if str(value) != "nan"}


def of_case(product: object) -> dict[str, Any]:
    """What follows from the layouts alone."""
    strategy = product.textbook.strategy
    answers = {
        "case": product.case,
        "comm": strategy.collective,
        "axis": strategy.collective_axes,
        "axes": strategy.collective_axes,
        "operand": product.gathered,
        "out_spec": strategy.output.subscripts,
        "partial": product.partial,
        "naive_out_valid": product.inherited_output_is_legal,
        "comm_replicated": strategy.collective,
    }
    if product.scattered:
        kind = product.scattered.strategy.collective
        answers = answers | {"comm_sharded": kind, "collective": kind}
    return answers


def of_textbook(product: object, lines: object) -> dict[str, Any]:
    """What the textbook's strategy costs, on rings and on lines."""
    cost, on_lines = product.approximate[0], lines.approximate[0]
    return {
        "flops": product.flops,
        "useful_flops": product.flops,
        "total_flops": cost.total_flops,
        "total": cost.total_flops,
        "flops_per_chip": cost.flops,
        "flops_per_device": cost.flops,
        "per_chip": cost.flops,
        "per_device": cost.flops,
        "redundancy": cost.redundancy_factor,
        "redundancy_factor": cost.redundancy_factor,
        "t_math": cost.compute_s,
        "t_comms": cost.communication_s,
        "t_comms_if_ring": cost.communication_s,
        "t_comms_nowrap": on_lines.communication_s,
        "t": cost.time_s,
        "bound": cost.bound,
    }


def of_strategies(product: object) -> dict[str, Any]:
    """How the strategies compare, and the book's rules for when to choose which."""
    fastest = product.approximate_best
    answers = {"winner": f"strategy{fastest.number}"} if str(fastest.time_s) != "nan" else {}
    for cost in product.approximate:
        answers = answers | {
            f"t{cost.number}": cost.time_s,
            f"t{cost.number}_math": cost.compute_s,
            f"t{cost.number}_comms": cost.communication_s,
            f"bound{cost.number}": cost.bound,
        }
    for rules in product.rules:
        answers = answers | {
            "alpha": rules.gather_from.value,
            "B_crit": rules.gather_from.value,
            "B_threshold": rules.gather_from.value,
            "threshold": rules.gather_from.value,
            "variable": rules.rows,
            "depends_on": rules.rows,
            "D_crit": rules.reduce_from.value,
            "D_threshold": rules.reduce_from.value,
            "B_small": rules.reduce_up_to.value,
            "ratio": rules.gather_over_scatter.value,
            "ratio_formula": rules.gather_over_scatter.formula,
        }
    return answers


def asked(inputs: Mapping[str, Any]) -> str:
    """The notation of a question: from its layouts, from its sentence, or that of the two strategies."""
    if "A_spec" in inputs:
        rows, summed, columns = ("B", "D", "F") if "D" in inputs else ("I", "J", "K")
        left = array("A", (rows, summed), inputs["A_spec"])
        right = array("B", (summed, columns), inputs["B_spec"] if "B_spec" in inputs else inputs["W_spec"])
        return f"{left} @ {right}"
    if "before" in inputs:
        return f"{array('A', DIMS, [inputs['before']])} -> {array('A', DIMS, [inputs['after']])}"
    if "op" in inputs:
        return ELEMENTWISE
    if ridgeline.find_notation(inputs.get("setup", "")):
        return ridgeline.find_notation(inputs.get("setup", ""))
    return STRATEGIES


def array(name: str, dims: Sequence[str], spec: Sequence[Sequence[str]]) -> str:
    """An array in our notation; the axes of a dimension are a word of letters, or a list."""
    subscripted = [f"{dim}_{''.join(axes)}" if axes else dim for dim, axes in zip(dims, spec, strict=False)]
    return f"{name}[{','.join(subscripted)}]"


def said(notation: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What an item says beside its notation, by our names. `N` is the length of every mesh axis, if none is named."""
    open_question = ridgeline.matmul(notation)
    dims, axes = list(open_question.question.sizes), list(open_question.machine.mesh)
    axes = [*axes, *(letter for letter in LETTERS if letter in inputs if letter not in axes)]
    if "shape" in inputs:
        sizes = dict(zip(dims, inputs["shape"], strict=True))
    else:
        sizes = {dim: inputs.get(dim) for dim in dims}
    every = None if "N" in dims else inputs.get("N")
    mesh = inputs.get("mesh", {axis: inputs.get(axis, every) for axis in axes})
    arguments = {name: inputs[key] for key, name in RATES.items() if key in inputs} | {"sizes": sizes, "mesh": mesh}
    if "alpha" in inputs:
        arguments = arguments | ALPHA
    if "bpe" in inputs:
        arguments = arguments | {"dtype": inputs["bpe"]}
    return {name: value for name, value in arguments.items() if value}
