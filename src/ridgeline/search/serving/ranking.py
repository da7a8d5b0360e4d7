"""Plans of all slices behind each other: which is cheapest, which are worth simulating, which no other beats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.search.serving.candidates import ROOM_TO_QUEUE, unbeaten
from ridgeline.search.serving.dtypes import width_bytes
from ridgeline.search.serving.queues import least_fleet, queued_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import ServingJob, ServingWorkload
    from ridgeline.search.serving.candidates import Candidates

TIE_FRACTION: Final = 0.02
"""Plans whose cost differs by less are equally cheap; of those the quickest is taken."""

SHORT_LISTS: Final = ((1.0, 4), (ROOM_TO_QUEUE, 2))
"""Of each slice and mode, parts of the limits within which plans are simulated, and how many."""

FEW_HOPEFUL: Final = 2
"""The same of plans that would be the cheapest, did no request wait."""

MOST_POINTS: Final = 24
"""Points of the frontier that are worked out in full, evenly over it."""

FEW_POINTS: Final = 8
"""The same where each is simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The plans of one slice."""

    hardware: Slice
    found: Candidates
    refused: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Candidates of all slices behind each other.

    Attributes:
        of: Which slice, by row.
        index: Row of its candidates.
        usd: Cost that is compared: of the whole fleet for a rate, about what queues make of it, or of a token.
        least_usd: The same, did no request wait.
        family: Slice, meshes, and prompts that are read at once, as a number.
        ttft_s: Mean time to the first token.
        tpot_s: Mean time per output token.
        least_ttft_s: At a rate, the time to the first token with servers to spare; else `ttft_s`.
        least_tpot_s: At a rate with a limit, the time per token with servers to spare; else `tpot_s`.
        tokens_per_s_per_chip: Output tokens per second and chip.
        width_bytes: How wide precisions are.
        is_elaborate: Whether both sides of matrices are split, which few engines can, or layers into stages.
        is_apart: Whether servers of their own read prompts.
        is_tight: Whether at the job's rate requests often find all places taken.
    """

    of: NDArray[np.int64]
    index: NDArray[np.int64]
    usd: NDArray[np.float64]
    least_usd: NDArray[np.float64]
    family: NDArray[np.int64]
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    least_ttft_s: NDArray[np.float64]
    least_tpot_s: NDArray[np.float64]
    tokens_per_s_per_chip: NDArray[np.float64]
    width_bytes: NDArray[np.float64]
    is_elaborate: NDArray[np.bool_]
    is_apart: NDArray[np.bool_]
    is_tight: NDArray[np.bool_]


def short_list(workload: ServingWorkload, ranked: Ranked) -> list[int]:
    """Plans to simulate, the most promising first.

    Of each slice and mode, and of each of its meshes and batches of prompts, the cheapest: within the limits, with room
    to queue, and did no request wait.
    """
    found: list[int] = []
    for share, count in SHORT_LISTS:
        found.extend(_cheapest_of_each(ranked, meets(workload, ranked, share=share), ranked.usd, count))
    found.extend(_cheapest_of_each(ranked, meets(workload, ranked), ranked.least_usd, FEW_HOPEFUL))
    rows = np.array(list(dict.fromkeys(found)), dtype=np.int64)
    return rows[_order(ranked, rows, ranked.usd)].tolist()


def _order(ranked: Ranked, rows: NDArray[np.int64], usd: NDArray[np.float64]) -> NDArray[np.int64]:
    """The cheapest first; of these the widest in precision, plain layouts, with places to spare, the quickest."""
    last_to_first = (ranked.ttft_s, ranked.tpot_s, ranked.is_tight, ranked.is_elaborate, -ranked.width_bytes, usd)
    return np.lexsort([key[rows] for key in last_to_first])


def _cheapest_of_each(
    ranked: Ranked, allowed: NDArray[np.bool_], usd: NDArray[np.float64], count: int
) -> Iterator[int]:
    """Of each slice so many plans of either mode: the cheapest of each of its families."""
    rows = np.flatnonzero(allowed)
    rows = rows[_order(ranked, rows, usd)]
    rows = rows[np.sort(np.unique(ranked.family[rows], return_index=True)[1])]
    taken: Counter[tuple[int, bool]] = Counter()
    for row in rows.tolist():
        kind = int(ranked.of[row]), bool(ranked.is_apart[row])
        taken[kind] += 1
        if taken[kind] <= count:
            yield row


def ranked_plans(job: ServingJob, searched: Sequence[Searched]) -> Ranked:
    """The candidates of all slices."""

    def joined(columns: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.concatenate([np.asarray(column, dtype=np.float64) for column in columns])

    counts = [len(each.found) for each in searched]
    return Ranked(
        of=np.repeat(np.arange(len(searched)), counts),
        index=np.concatenate([np.arange(count) for count in counts]),
        usd=joined([_usd(job, each.found, queued=True) for each in searched]),
        least_usd=joined([_usd(job, each.found, queued=False) for each in searched]),
        family=_families(searched),
        ttft_s=joined([each.found.ttft_s for each in searched]),
        tpot_s=joined([each.found.tpot_s for each in searched]),
        least_ttft_s=joined([each.found.least_ttft_s for each in searched]),
        least_tpot_s=joined([each.found.least_tpot_s for each in searched]),
        tokens_per_s_per_chip=joined([each.found.tokens_per_s_per_chip for each in searched]),
        width_bytes=np.repeat([width_bytes(each.found.table.machine.setting.dtypes) for each in searched], counts),
        is_elaborate=np.concatenate([each.found.is_elaborate for each in searched]),
        is_apart=np.concatenate([each.found.prefill >= 0 for each in searched]),
        is_tight=np.concatenate([each.found.is_tight(job.workload.rate) for each in searched]),
    )


def _usd(job: ServingJob, found: Candidates, *, queued: bool) -> NDArray[np.float64]:
    """Chips of the fleet for the job's rate, or chips over what they yield: all of one kind, at one price."""
    if job.workload.rate is None:
        return 1.0 / found.tokens_per_s_per_chip
    servers, readers = (queued_fleet if queued else least_fleet)(found, job.workload)
    return (servers + readers) * found.table.machine.hardware.num_chips


def _families(searched: Sequence[Searched]) -> NDArray[np.int64]:
    """Plans that differ in the batch that they decode, or in pieces of prompts, have one number."""
    most_meshes = max(len(each.found.table.meshes) for each in searched)
    most_readers = max(len(each.found.readers) for each in searched) + 1
    numbers: list[NDArray[np.int64]] = []
    for place, each in enumerate(searched):
        table, rows = each.found.table, each.found.decode
        decode = (place * most_meshes + table.mesh[rows]) * 2 + table.spread[rows].astype(np.int64)
        numbers.append(decode * most_readers + each.found.prefill + 1)
    return np.concatenate(numbers)


def meets(workload: ServingWorkload, ranked: Ranked, *, share: float = 1.0) -> NDArray[np.bool_]:
    """Plans whose means are within a share of the limits, at a rate with servers to spare: a simulation judges them."""
    first = np.inf if workload.ttft_s is None else workload.ttft_s * share
    token = np.inf if workload.tpot_s is None else workload.tpot_s * share
    return (ranked.least_ttft_s <= first) & (ranked.least_tpot_s <= token)


def in_time(workload: ServingWorkload, ranked: Ranked) -> NDArray[np.bool_]:
    """Rows whose first token is out in time, whatever the rest takes: what the frontier is drawn from."""
    return ranked.least_ttft_s <= (np.inf if workload.ttft_s is None else workload.ttft_s)


def quickest_of_the_cheapest(ranked: Ranked, allowed: NDArray[np.bool_]) -> int:
    """Of the plans within a tie of the cheapest one.

    The widest in precision; of these plain layouts; of these such as have places to spare; of these the
    quickest per token, then to the first.
    """
    rows = np.flatnonzero(allowed)
    cheap = rows[ranked.usd[rows] <= ranked.usd[rows].min() * (1.0 + TIE_FRACTION)]
    last_to_first = (ranked.ttft_s, ranked.tpot_s, ranked.is_tight, ranked.is_elaborate, -ranked.width_bytes)
    return int(cheap[np.lexsort([key[cheap] for key in last_to_first])[0]])


def frontier_rows(ranked: Ranked, allowed: NDArray[np.bool_], *, most: int) -> list[int]:
    """Rows that no other beats in tokens/s per chip and per user, the cheapest first; of many some.

    Among plans that yield as much to within a tie, and are no slower, the one that is first with its first token.
    """
    those = np.flatnonzero(allowed)
    rows = those[unbeaten((-ranked.tokens_per_s_per_chip[those], ranked.tpot_s[those]))]
    if len(rows) > most:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, most).round().astype(np.int64))]
    found: dict[int, None] = {}
    for row in rows:
        alike = (ranked.tokens_per_s_per_chip >= ranked.tokens_per_s_per_chip[row] * (1.0 - TIE_FRACTION)) & (
            ranked.tpot_s <= ranked.tpot_s[row]
        )
        found[int(those[np.where(alike[those], ranked.ttft_s[those], np.inf).argmin()])] = None
    chosen = np.array(list(found))
    return [int(row) for row in chosen[unbeaten((-ranked.tokens_per_s_per_chip[chosen], ranked.tpot_s[chosen]))]]
