"""How much of a fleet is simulated, and for how long: enough for a steady state, and no more than takes a moment.

Servers of a fleet take turns, so that a part of them with its part of the requests meets what all of them do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

LIFETIMES: Final = 6
"""Times that a request takes, for which requests come: three until servers have filled up, and as many to watch."""

FEWEST_READERS: Final = 4
"""Prefill servers that are simulated, where there are as many: prompts wait for the first of them that is free."""

MOST_TIMES: Final = 8
"""Times as many requests, at most, that this may take; else one is simulated."""

_TOLERANCE: Final = 0.02
"""Part by which the load of prefill servers may differ from the fleet's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSample:
    """A part of a fleet.

    Attributes:
        num_ranks: That decode.
        num_readers: Prefill servers; 0 where there are none.
        requests_per_s: That come to them.
        num_requests: That are simulated.
    """

    num_ranks: int
    num_readers: int
    requests_per_s: float
    num_requests: int


def fleet_sample(
    *, num_ranks: int, num_readers: int, requests_per_s: float, request_s: float, least_requests: int
) -> FleetSample:
    """As few ranks and prefill servers, in the fleet's ratio, as so many requests bring to a steady state.

    >>> fleet_sample(num_ranks=264, num_readers=9, requests_per_s=2000.0, request_s=22.0, least_requests=4000)
    FleetSample(num_ranks=29, num_readers=1, requests_per_s=219.6969696969697, num_requests=29000)

    Args:
        num_ranks: Of the fleet, each of which schedules for itself.
        num_readers: Prefill servers of the fleet; 0 where there are none.
        requests_per_s: That come to the fleet.
        request_s: That one of them takes, about.
        least_requests: That are simulated.
    """
    wanted = LIFETIMES * requests_per_s * request_s  # of the whole fleet
    fewest = min(num_readers, FEWEST_READERS)
    if fewest * wanted > num_readers * MOST_TIMES * least_requests:
        fewest = min(num_readers, 1)
    ranks = readers = 0
    for ranks in range(ceil(num_ranks * min(1.0, least_requests / wanted)), num_ranks + 1):
        exact = num_readers * ranks / num_ranks
        readers = round(exact)
        if abs(readers - exact) <= _TOLERANCE * exact and readers >= fewest:
            break
    share = ranks / num_ranks
    return FleetSample(
        num_ranks=ranks,
        num_readers=readers,
        requests_per_s=requests_per_s * share,
        num_requests=max(least_requests, round(wanted * share)),
    )
