"""Conditionals: one branch runs, and the text does not tell which.

Where all branches do the same work, it does not matter which one runs: each then counts as its share of a run. So are
exchanges between slices written, a branch for each slice.
"""

from __future__ import annotations

from collections import Counter
from math import nan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.hlo.calls import Call
    from ridgeline.hlo.module import Computation, HloModule, Instruction

_WORK = {"dot", "convolution", "custom-call", "ragged-dot", "send", "recv", "while", "conditional"}
_COLLECTIVE = ("all-", "reduce-scatter", "collective-", "ragged-all-")
_SAYING = ("replica_groups", "custom_call_target", "dim_labels", "lhs_contracting_dims")
_TAKEN = ("calls", "to_apply", "called_computations", "body", "condition", "branch_computations")


def branch_share(module: HloModule, call: Call) -> float:
    """Runs of one branch of a conditional each time it is reached, on average over its branches; NaN where they differ.

    Branches are alike if they hold the same matmuls, kernels, loops and collectives, of the same shapes and groups;
    permutes between other pairs of devices are alike too.

    Args:
        module: The program.
        call: Of one of the branches.
    """
    branches = call.instruction.called("branch_computations", "true_computation", "false_computation")
    works = [Counter(_work(module, module.computations[name])) for name in branches]
    return 1 / len(branches) if all(work == works[0] for work in works) else nan


def _work(module: HloModule, computation: Computation) -> Iterator[tuple[str, ...]]:
    """What a computation and those that it calls do, each operation as what is the same wherever it stands."""
    for instruction in computation:
        if _is_work(instruction):
            yield _likeness(computation, instruction)
        for name in instruction.called(*_TAKEN):
            yield from _work(module, module.computations[name])


def _is_work(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    return opcode in _WORK or (opcode.startswith(_COLLECTIVE) and not opcode.endswith(("-done", "-update")))


def _likeness(computation: Computation, instruction: Instruction) -> tuple[str, ...]:
    operands = (computation.instructions.get(name) for name in instruction.operands)
    shapes = (str(each.shape) for each in operands if each is not None)
    said = (instruction.attributes.get(name, "") for name in _SAYING)
    return instruction.opcode, str(instruction.shape), *shapes, *said
