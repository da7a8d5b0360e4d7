"""A free search is never dearer than what a user could have pinned, and a family of chips than one of its slices."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

import ridgeline
from ridgeline.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.search.serving.answer import ServingPoint

Said = dict[str, Any]


def best_of(model: str, on: str, said: Said) -> ServingPoint:
    return ridgeline.serve(model, on=on, **said).best


def cost(point: ServingPoint) -> float:
    """Chips of the fleet at a rate, or for a token a second."""
    return 1 / point.tokens_per_s_per_chip if point.fleet is None else point.fleet.chips


def pinned(model: str, on: str, said: Said, pins: list[Said]) -> Iterator[ServingPoint]:
    """Those that fit and meet the limits."""
    for pin in pins:
        try:
            yield best_of(model, on, {**said, **pin})
        except (InfeasibleError, InputError):
            continue


@pytest.mark.parametrize(
    ("model", "on", "said", "meshes", "batches"),
    [
        ("llama3.2-1b", "v5e:1x1", {"prompt_len": 100, "generate_len": 400, "tpot": "8ms"}, [{}], (40, 45, 50, 53)),
        (
            "llama3.1-8b",
            "v6e:2x2",
            {"prompt_len": 1000, "generate_len": 256, "tpot": "12ms", "ttft": "200ms"},
            [{"mesh": "tp=4"}, {"mesh": "tp=2,dp=2"}],
            (60, 100, 130, 146),
        ),
        ("llama3.1-70b", "v6e:2x4", {"prompt_len": 1000, "generate_len": 1000}, [{"mesh": "tp=8"}], (150, 155, 157)),
        ("gpt-oss-120b", "h200:1", {"prompt_len": 1000, "generate_len": 1000}, [{}], (430, 450, 463)),
        (
            "llama3.1-8b",
            "h200:1",
            {"prompt_len": 2000, "generate_len": 200, "rate": 40, "tpot": "30ms", "ttft": "500ms"},
            [{}],
            (128, 192),
        ),
    ],
)
def test_no_pin_that_meets_the_limits_is_more_than_two_percent_cheaper(
    model: str, on: str, said: Said, meshes: list[Said], batches: tuple[int, ...]
) -> None:
    readers: list[Said] = [{"mode": "interleaved"}, *({"prefill_batch": count} for count in (2, 4))]
    pins = [{**mesh, "batch": batch, **reader} for mesh, batch, reader in product(meshes, batches, readers)]
    pins = [{"mode": "disaggregated", **pin} for pin in pins]
    found = list(pinned(model, on, said, pins))

    assert found
    assert cost(best_of(model, on, said)) <= 1.02 * min(map(cost, found))


def test_one_sequence_more_than_the_largest_batch_of_interleaved_servers_does_not_fit() -> None:
    said = {"prompt_len": 1000, "generate_len": 1000, "mode": "interleaved", "prefill_chunk": 256, "mesh": "tp=8"}
    batch = best_of("llama3.1-70b", "v6e:2x4", said).plan.batch

    with pytest.raises(InfeasibleError):
        best_of("llama3.1-70b", "v6e:2x4", {**said, "batch": batch + 1})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama3.1-70b", {"prompt_len": 2000, "generate_len": 500, "tpot": "30ms", "rate": 12}),
        ("llama3.1-8b", {"prompt_len": 2000, "generate_len": 200, "tpot": "15ms", "rate": 60, "ttft": "p90=1s"}),
    ],
)
def test_a_family_of_chips_needs_no_more_of_them_than_its_best_slice(model: str, said: Said) -> None:
    slices = ["h200:1", "h200:2", "h200:4", "h200:8"]
    members = [point for each in slices for point in pinned(model, each, said, [{}])]

    assert cost(best_of(model, "h200", said)) <= min(map(cost, members))


def test_at_a_rate_the_frontier_is_of_fleets_and_has_the_chosen_one_or_says_why_not() -> None:
    answer = ridgeline.serve("llama3.1-8b", on="v6e:2x2", prompt_len=1000, generate_len=200, rate=30, tpot="15ms")

    assert answer.frontier_note or answer.best in answer.frontier
    for point in answer.frontier:
        assert point.fleet is not None
        assert point.fleet_tokens_per_s_per_chip == pytest.approx(30 * 200 / point.fleet.chips)
        assert point.user_tokens_per_s == pytest.approx(1 / point.tpot.mean_s)
