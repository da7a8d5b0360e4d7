"""Emitted programs run on eight emulated devices: their products are numpy's, their collectives the planned ones.

What XLA makes of the same layouts by itself is laid beside it. Where the compiler for CPUs spells a collective in
another way, the test says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ridgeline
from tests.matmul.compiled import Compiled, collectives

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ridgeline.cost.sharding.strategy_cost import StepCost
    from ridgeline.search.matmul_answer import MatmulAnswer

IN_CI = bool(os.environ.get("CI"))

pytestmark = pytest.mark.skipif(
    find_spec("jax") is None and not IN_CI, reason="jax is not installed; the extra `test` brings it"
)

SIZES = {"B": 64, "D": 128, "F": 256}
LINE, GRID = {"X": 8}, {"X": 2, "Y": 4}

CASES: Mapping[str, tuple[Mapping[str, int], int]] = {
    # Without communication.
    "A[B,D] @ W?[D,F]": (LINE, 1),
    "A[B_X,D] @ W[D,F_Y]": (GRID, 1),
    # One operand is split over what is summed.
    "A[B,D] @ W[D_X,F] -> C[B,F]": (LINE, 2),
    "A[B,D_X] @ W[D,F]": (LINE, 1),
    "A[B_X,D] @ W[D_X,F_Y] -> C[B_X,F_Y]": (GRID, 1),
    "A[B_X,D_Y] @ W[D_X,F_Y] -> C[B_X,F_Y]": (GRID, 1),
    "A[B_XY,D] @ W[D_XY,F] -> C[B_XY,F]": (GRID, 1),
    "A[B,D_X] @ W[D_Y,F]": (GRID, 1),
    # Both are.
    "A[B,D_X] @ W[D_X,F]": (LINE, 1),
    "A[B,D_XY] @ W[D_XY,F]": (GRID, 1),
    "A[B_X,D_Y] @ W[D_Y,F] -> C[B_X,F]": (GRID, 1),
    "A[B,D_X] @ W[D_X,F_Y] -> C[B,F_Y]": (GRID, 1),
    "A[B,D_X] @ W[D_X,F] -> C[B,F_X]": (LINE, 1),
    "A[B,D_X] @ W[D_X,F] -> C[B_X,F]": (LINE, 1),
    "A[B_X,D_Y] @ W[D_Y,F] -> C[B_X,F_Y]": (GRID, 1),
    # The result would be split twice over X.
    "A[B_X,D] @ W[D,F_X] -> C[B_X,F]": (LINE, 1),
    "A[B_X,D] @ W[D,F_X] -> C[B,F_X]": (LINE, 1),
    # The result is split along another dimension: XLA gathers A, though exchanging C moves a quarter of that.
    "A[B_X,D] @ W[D,F] -> C[B,F_X]": (LINE, 2),
}
"""Each with its mesh, and the number of the strategy that XLA chooses for the same layouts (jax 0.10 and 0.12).

In all but two it is the textbook's; in one of those either moves as many bytes.
"""

REARRANGED: Mapping[str, Mapping[str, int]] = {
    "A[B_X,D] @ W[D,F_X]": GRID,
}
"""With an axis that nothing uses: where the plan gathers over X, XLA permutes blocks and gathers over Y."""

NAMED: Mapping[str, Mapping[str, int]] = {
    # Operands called what Python or the program calls something.
    "jax[B,D_X] @ jnp[D_X,F] -> np[B,F]": LINE,
    "MESH[B_XY,D] @ lambda[D_YX,F] -> EINSUM[B_YX,F]": GRID,
    "operands[B,D] @ print[D_X,F] -> matmul[B,F_X]": LINE,
}

WRITTEN_ONLY: Mapping[str, Mapping[str, int]] = {
    "A[B,D_X] @ W[D_X,F] -> C[B,F]{U_X}": LINE,  # no array of JAX's holds partial sums
    **NAMED,
    "A[B,D_XY] @ W[D_YX,F] -> C[B_YX,F]": GRID,  # XLA gives up on W and replicates it, as it warns
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program as it ran.

    Attributes:
        is_right: Whether its product is numpy's, to the last bit.
        written: The collectives of the program with its collectives written out.
        by_compiler: Those of the same layouts left to XLA.
        slices: Whether the latter cuts a result that every device holds.
    """

    is_right: bool
    written: list[Compiled]
    by_compiler: list[Compiled]
    slices: bool


def answer_to(notation: str) -> MatmulAnswer:
    mesh = {**{case: mesh for case, (mesh, _) in CASES.items()}, **REARRANGED, **WRITTEN_ONLY}[notation]
    rates = {"peak": 1e14, "axis_bandwidth": 1e11} if "?" in notation else {}  # which a search needs
    return ridgeline.matmul(notation, sizes=SIZES, mesh=mesh, dtype="f32", **rates)


@pytest.fixture(scope="module")
def ran() -> Mapping[tuple[str, int], Ran]:
    """Every strategy of every case, by notation and number, run in one process with eight devices."""
    answers = {notation: answer_to(notation) for notation in (*CASES, *REARRANGED, *WRITTEN_ONLY)}
    programs = {
        f"{notation}|{cost.number}": ridgeline.matmul_program(answer, strategy=cost.number)
        for notation, answer in answers.items()
        if answer.product is not None
        for cost in answer.product.strategies
    }
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("on_devices.py"))],
        input=json.dumps(programs),
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    found: dict[tuple[str, int], Ran] = {}
    for name, outcome in json.loads(finished.stdout).items():
        notation, number = name.split("|")
        mesh = {axis: int(size) for axis, size in answers[notation].machine.mesh.items()}
        by_compiler = outcome["by_compiler"] or ""
        found[notation, int(number)] = Ran(
            is_right=outcome["is_right"],
            written=sorted(collectives(outcome["written"], mesh)),
            by_compiler=sorted(collectives(by_compiler, mesh)),
            slices="dynamic-slice" in by_compiler,
        )
    return found


def planned(steps: Iterable[StepCost], mesh: Mapping[str, float]) -> list[Compiled]:
    """The collectives of a strategy as XLA would list them."""
    return sorted(
        Compiled(
            kind=cost.step.kind,
            axes=tuple(axis for axis in mesh if axis in cost.step.axes),
            size_bytes=int(cost.array_bytes),
        )
        for cost in steps
    )


@pytest.mark.parametrize("notation", [*CASES, *REARRANGED, *WRITTEN_ONLY])
def test_a_program_computes_the_product_with_the_planned_collectives(
    notation: str, ran: Mapping[tuple[str, int], Ran]
) -> None:
    answer = answer_to(notation)
    assert answer.product is not None

    for cost in answer.product.strategies:
        outcome = ran[notation, cost.number]
        assert outcome.is_right, cost.strategy
        assert outcome.written == planned(cost.steps, answer.machine.mesh), cost.strategy


@pytest.mark.parametrize("notation", CASES)
def test_xla_inserts_the_collectives_of_one_strategy_for_the_same_layouts(
    notation: str, ran: Mapping[tuple[str, int], Ran]
) -> None:
    answer, (_, number) = answer_to(notation), CASES[notation]
    cost, outcome = answer.numbered(number, where="number"), ran[notation, number]

    expected = planned(cost.steps, answer.machine.mesh)
    scattered = [each for each in expected if each.kind == "reduce_scatter"]
    # On a CPU XLA has no reduce-scatter of its own: it reduces whole blocks, and each device keeps its part.
    spelled = [Compiled(kind="all_reduce", axes=each.axes, size_bytes=each.size_bytes) for each in scattered]

    assert outcome.by_compiler == sorted([each for each in expected if each not in scattered] + spelled)
    assert outcome.slices or not scattered


@pytest.mark.parametrize("notation", REARRANGED)
def test_xla_may_gather_as_much_over_an_axis_that_nothing_uses(
    notation: str, ran: Mapping[tuple[str, int], Ran]
) -> None:
    answer = answer_to(notation)
    assert answer.product is not None

    for cost in answer.product.strategies:
        (gather,) = planned(cost.steps, answer.machine.mesh)
        permute, other = sorted(ran[notation, cost.number].by_compiler, key=lambda each: each.kind == "all_gather")
        assert (permute.kind, permute.axes) == ("collective_permute", ("X", "Y"))
        assert (gather.axes, other) == (("X",), replace(gather, axes=("Y",)))
    assert any("XLA may choose to gather over mesh axes that nothing uses" in note for note in answer.notes)


def test_a_program_says_what_it_does_and_names_its_blocks() -> None:
    answer = ridgeline.matmul("A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]", sizes=SIZES, mesh=GRID)

    text = ridgeline.matmul_program(answer, strategy=1)

    assert "gather W over X, multiply" in text
    assert 'W = jax.lax.all_gather(W, "X", axis=0, tiled=True)  # W[D,F_Y] 128 × 64' in text
    assert 'C_SPEC = PartitionSpec(None, "Y")' in text


@pytest.mark.parametrize(
    ("notation", "arguments", "strategy", "what"),
    [
        ("A[B,D] @ W[D_X,F]", {}, None, "a program needs sizes and a mesh"),
        ("A[B,D] @ W[D_X,F]", {"mesh": LINE}, None, "a program needs sizes and a mesh"),
        ("A[B,D] @ W[D_X,F]", {"mesh": LINE, "sizes": SIZES, "dtype": 0.75}, None, "no JAX dtype"),
        ("A[B,D] @ W[D_X,F]", {"mesh": LINE, "sizes": SIZES}, 9, "no such strategy"),
        ("A[B_X,D] -> A[B,D]", {"mesh": LINE}, None, "only a product has strategies"),
    ],
)
def test_a_program_that_cannot_be_written_is_refused(
    notation: str, arguments: dict[str, object], strategy: int | None, what: str
) -> None:
    answer = ridgeline.matmul(notation, **arguments)

    with pytest.raises(ridgeline.InputError) as refused:
        ridgeline.matmul_program(answer, strategy=strategy, where="--emit")

    assert (refused.value.what, refused.value.where) == (what, "--emit")
