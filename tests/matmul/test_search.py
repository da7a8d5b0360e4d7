"""The search of layouts finds what trying everything finds, keeps to the memory, and says what it cannot do."""

from __future__ import annotations

from itertools import product as combinations
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.cost.sharding.layout import uneven_dim
from ridgeline.cost.sharding.sharded_matmul import strategies
from ridgeline.cost.sharding.strategy_cost import Setting, strategy_cost
from ridgeline.job.sharding import Product, ShardedArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.sharding.strategy_cost import StrategyCost
    from ridgeline.search.layouts import LayoutSearch
    from ridgeline.search.matmul_answer import MatmulAnswer

MIB = 1024 * 1024
SETTING = {"sizes": "B=4096,D=8192,F=32768", "mesh": "X=4,Y=4", "on": "v5e:4x4"}


def asked(notation: str, **arguments: object) -> tuple[MatmulAnswer, LayoutSearch]:
    answer = ridgeline.matmul(notation, **(SETTING | arguments))
    assert answer.product is not None
    assert answer.product.search is not None
    return answer, answer.product.search


def every_layout(array: ShardedArray, axes: list[str]) -> Iterator[ShardedArray]:
    for places in combinations([*array.dims, None], repeat=len(axes)):
        yield array.laid_out(
            {dim: tuple(axis for axis, place in zip(axes, places, strict=True) if place == dim) for dim in array.dims}
        )


def everything(answer: MatmulAnswer) -> Iterator[StrategyCost]:
    """Every layout of both operands with an output that stays as it was, and every strategy for it."""
    machine, question = answer.machine, answer.question
    setting = Setting(machine=machine, element_bytes=question.element_bytes, links=machine.links())
    assert isinstance(question.arrays, Product)
    left, right, output = question.arrays.arrays
    axes = list(machine.mesh)

    def fits(array: ShardedArray) -> bool:
        return uneven_dim(array, sizes=question.sizes, mesh=machine.mesh) is None

    for a, b in combinations(every_layout(left, axes), every_layout(right, axes)):
        product = Product(left=a, right=b, output=output)
        for strategy in strategies(product, fits=fits):
            if strategy.is_as_asked:
                yield strategy_cost(1, strategy, setting, question.sizes)


@pytest.mark.parametrize("quantile", [0, 0.02, 0.2, 0.5, 1])
@pytest.mark.parametrize("output", ["C[B,F_Y]", "C[B_X,F_Y]"])
def test_no_layout_that_fits_is_faster_than_the_one_found(output: str, quantile: float) -> None:
    notation = f"A?[B,D] @ W?[D,F] -> {output}"
    costs = list(everything(asked(notation)[0]))
    peaks = sorted(cost.peak_bytes for cost in costs)
    limit = peaks[round(quantile * (len(peaks) - 1))]

    _, search = asked(notation, memory=limit)

    best = search.best[0].cost
    assert best.time_s == pytest.approx(min(cost.time_s for cost in costs if cost.peak_bytes <= limit))
    assert best.peak_bytes <= limit


def test_layouts_come_fastest_first_and_each_is_what_it_costs_when_it_is_given() -> None:
    _, search = asked("A[B,D] @ W[D,F] -> C[B,F]", memory=200 * MIB)

    times = [choice.cost.time_s for choice in search.best]
    assert times == sorted(times)
    for choice in search.best:
        given = ridgeline.matmul(str(choice.product), **SETTING).product
        assert given is not None
        assert given.best.time_s == pytest.approx(choice.cost.time_s)


def test_more_memory_is_never_slower() -> None:
    times = [
        asked("A[B_X,D] @ W?[D,F] -> C[B_X,F]", memory=mib * MIB)[1].best[0].cost.time_s for mib in (150, 300, 900)
    ]

    assert times == sorted(times, reverse=True)


def test_without_a_limit_the_memory_of_a_device_is_the_limit() -> None:
    _, search = asked("A[B,D] @ W[D,F] -> C[B,F]")

    assert search.memory_bytes == ridgeline.chips("v5e").usable_hbm_bytes


def test_arrays_with_a_layout_keep_it() -> None:
    answer, search = asked("A[B_X,D] @ W?[D,F] -> C[B_X,F]")

    assert all(str(choice.product.left) == "A[B_X,D]" for choice in search.best)
    assert answer.product is not None
    assert str(answer.product.product.output) == "C[B_X,F]"


def test_what_the_limit_costs_is_told() -> None:
    _, search = asked("A[B_X,D] @ W?[D,F] -> C[B_X,F]", memory=150 * MIB)

    assert search.unlimited.cost.time_s < search.best[0].cost.time_s
    assert search.unlimited.cost.peak_bytes > search.memory_bytes


def test_layouts_that_do_not_divide_are_not_tried() -> None:
    _, search = asked("A[B,D] @ W[D,F] -> C[B,F]", sizes="B=4098,D=8192,F=32768")

    assert all(not array.layout.get("B") for choice in search.best for array in choice.product.arrays)


def test_when_nothing_fits_the_smallest_is_named() -> None:
    with pytest.raises(ridgeline.InfeasibleError) as refused:
        asked("A[B,D] @ W[D,F] -> C[B,F]", memory=MIB)

    assert str(refused.value).startswith("no layout fits\n  - A[")
    assert "allow more than 1.00 MiB, or use more devices" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"mesh": "X=2,Y=2,Z=2,V=2"}, "too many mesh axes to search"),
        ({"sizes": None, "on": None, "peak": 1e14}, "a search needs a mesh and sizes"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(arguments: dict[str, object], what: str) -> None:
    with pytest.raises(ridgeline.InputError) as refused:
        asked("A[B,D] @ W[D,F] -> C[B,F]", **arguments)

    assert refused.value.what == what


@pytest.mark.parametrize("rates", [{}, {"peak": 1e14}, {"axis_bandwidth": 1e11}])
def test_layouts_are_not_ranked_by_times_that_are_not_known(rates: dict[str, float]) -> None:
    with pytest.raises(ridgeline.InputError, match="a search needs the rates"):
        ridgeline.matmul("A[B,D] @ W[D,F]", sizes="B=8,D=8,F=8", mesh="X=4", **rates)
