"""Every strategy computes the product: its steps are run on emulated devices, block by block."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.cost.sharding.resharding import reshard
from ridgeline.cost.sharding.sharded_matmul import case_of, cases, inherited_output, strategies
from ridgeline.job.notation import read_notation
from ridgeline.job.sharding import Product, Resharding, ShardedArray
from tests.matmul.emulated import assert_same, blocks, einsum_of, multiplied, stepped

MESH = {"X": 2, "Y": 3}
SIZE = 36
"""Of every dimension: both axes divide it, twice over."""


def product_of(notation: str) -> Product:
    product = read_notation(notation, mesh=None, where="notation")
    assert isinstance(product, Product)
    return product


@st.composite
def layouts(draw: st.DrawFn, dims: str) -> tuple[tuple[str, ...], ...]:
    """Any legal layout: each mesh axis on one dimension or none, in either order."""
    places = {axis: draw(st.sampled_from([*dims, None])) for axis in draw(st.permutations(list(MESH)))}
    return tuple(tuple(axis for axis, place in places.items() if place == dim) for dim in dims)


@st.composite
def products(draw: st.DrawFn) -> Product:
    """Any product, with a batch dimension or without, with an output that is asked or free."""
    left, right, output = draw(st.sampled_from([("ij", "jk", "ik"), ("bij", "bjk", "bik"), ("ij", "ij", "ij")]))
    arrays = [
        ShardedArray(name=name, dims=tuple(dims), axes=draw(layouts(dims)))
        for name, dims in (("A", left), ("B", right), ("C", output))
    ]
    if draw(st.booleans()):
        arrays[2] = ShardedArray(name="C", dims=tuple(output), axes=((),) * len(output), is_free=True)
    return Product(left=arrays[0], right=arrays[1], output=arrays[2])


@given(products())
def test_every_strategy_leaves_each_device_with_its_block_of_the_product(product: Product) -> None:
    size = 6 if "b" in product.left.dims else SIZE
    left, right = (
        np.arange(size ** len(array.dims), dtype=np.float64).reshape((size,) * len(array.dims)) % 7 - 3
        for array in product.arrays[:2]
    )
    whole = np.einsum(einsum_of(product.arrays), left, right)

    found = strategies(product)

    assert found
    for strategy in found:
        assert_same(multiplied(strategy, left, right, MESH), blocks(whole, strategy.output, MESH))


@given(st.data())
def test_every_change_of_layout_ends_where_it_should(data: st.DataObject) -> None:
    dims = ("i", "j")
    source, target = (ShardedArray(name="A", dims=dims, axes=data.draw(layouts("ij"))) for _ in range(2))
    whole = np.arange(SIZE**2, dtype=np.float64).reshape(SIZE, SIZE)
    held = blocks(whole, source, MESH)

    for step in reshard(source, target):
        held = stepped(held, step, MESH)
        assert_same(held, blocks(whole, step.after, MESH))

    assert_same(held, blocks(whole, target, MESH))


@given(layouts("ij"))
def test_an_array_that_lies_as_it_shall_needs_nothing(axes: tuple[tuple[str, ...], ...]) -> None:
    array = ShardedArray(name="A", dims=("i", "j"), axes=axes)

    assert reshard(array, array) == ()


def test_sums_that_stay_partial_add_up_to_the_product() -> None:
    strategy, *_ = strategies(product_of("A[i,j_XY] @ B[j_XY,k] -> C[i,k]{U_X}"))
    left, right = (np.arange(SIZE**2, dtype=np.float64).reshape(SIZE, SIZE) % 5 for _ in range(2))

    held = multiplied(strategy, left, right, MESH)

    for y in range(MESH["Y"]):
        np.testing.assert_array_equal(sum(held[x, y] for x in range(MESH["X"])), left @ right)


@pytest.mark.parametrize(
    ("notation", "case", "told", "output"),
    [
        ("A[I,J] @ B[J,K]", 1, "none", "C[I,K]"),
        ("A[I_X,J] @ B[J,K]", 1, "none", "C[I_X,K]"),
        ("A[I_X,J] @ B[J,K_Y]", 1, "none", "C[I_X,K_Y]"),
        ("A[I,J_X] @ B[J,K]", 2, "all_gather X of A", "C[I,K]"),
        ("A[I,J] @ B[J_X,K_Y]", 2, "all_gather X of B", "C[I,K_Y]"),
        ("A[I,J_X] @ B[J_Y,K]", 2, "all_gather X of A, all_gather Y of B", "C[I,K]"),
        ("A[I,J_X] @ B[J_X,K]", 3, "all_reduce X of C", "C[I,K]"),
        ("A[I,J_X] @ B[J_X,K] -> C[I,K_X]", 3, "reduce_scatter X of C", "C[I,K_X]"),
        ("A[I,J_X] @ B[J_X,K] -> C[I,K]{U_X}", 3, "none", "C[I,K]{U_X}"),
        ("A[I_X,J] @ B[J,K_X]", 4, "all_gather X of B", "C[I_X,K]"),
        ("A[I_X,J] @ B[J,K_X] -> C[I,K_X]", 4, "all_gather X of A", "C[I,K_X]"),
        ("In[B_X,D_Y] @ W[D_X,F_Y] -> Out[B_X,F_Y]", 2, "all_gather Y of In, all_gather X of W", "Out[B_X,F_Y]"),
    ],
)
def test_the_first_strategy_is_what_the_book_does_in_each_case(
    notation: str, case: int, told: str, output: str
) -> None:
    product = product_of(notation)

    textbook = strategies(product)[0]

    assert max(cases(product).values(), default=1) == case
    assert (textbook.communication, str(textbook.output)) == (told, output)


def test_case_four_may_gather_either_operand() -> None:
    found = strategies(product_of("A[I_X,J] @ B[J,K_X]"))

    assert [way.communication for way in found] == ["all_gather X of B", "all_gather X of A"]


def test_an_output_that_would_be_split_twice_over_one_axis_is_told() -> None:
    output, twice = inherited_output(product_of("A[I_X,J] @ B[J,K_X]"))

    assert (str(output), twice) == ("C[I_X,K_X]", ("X",))


def test_a_sum_that_may_stay_scattered_is_reduce_scattered() -> None:
    *_, scattered = strategies(product_of("A[I,J_X] @ B[J_X,K] -> C[I,K]"))

    assert (scattered.is_as_asked, str(scattered), str(scattered.output)) == (
        False,
        "multiply, reduce-scatter C over X",
        "C[I,K_X]",
    )


def test_a_strategy_that_only_adds_communication_is_left_out() -> None:
    (only,) = strategies(product_of("A[I_X,J] @ B[J,K_Y] -> C[I_X,K_Y]"))

    assert only.collectives == ()


@pytest.mark.parametrize("order", list(permutations(("A[I_X,J_Y]", "B[J_Y,K]"))))
def test_the_case_of_an_axis_does_not_depend_on_the_side(order: tuple[str, str]) -> None:
    product = product_of(" @ ".join(order))

    assert (case_of(product, "X"), case_of(product, "Y")) == (1, 3)


def test_another_layout_keeps_the_outermost_axis_by_gathering_the_innermost_one() -> None:
    change = read_notation("A[I_XY,J] -> A[I_X,J]", mesh=None, where="notation")
    assert isinstance(change, Resharding)

    assert [str(step) for step in reshard(change.source, change.target)] == ["all_gather Y of A"]


def test_gathering_the_outermost_axis_reorders_the_blocks_first() -> None:
    change = read_notation("A[I_XY,J] -> A[I_Y,J]", mesh=None, where="notation")
    assert isinstance(change, Resharding)

    assert [str(step) for step in reshard(change.source, change.target)] == [
        "collective_permute XY of A",
        "all_gather X of A",
    ]
