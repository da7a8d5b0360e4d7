"""How long it takes to simulate."""

from __future__ import annotations

from time import process_time

from ridgeline.job.traffic import FixedLength, Traffic
from ridgeline.search.engine.arrivals import draw_requests
from ridgeline.search.engine.fleet import serve
from ridgeline.search.engine.latency import served_latency
from tests.search.engine.setups import LARGE


def test_an_hour_of_twenty_requests_a_second_is_simulated_in_moments() -> None:
    # 2 s on the machine that it is asked of; twice that, for slower ones.
    traffic = Traffic(
        requests_per_s=20.0,
        prompt=FixedLength(tokens=1024),
        output=FixedLength(tokens=512),
        num_requests=20 * 3600,
    )
    began_s = process_time()
    latency = served_latency(serve(draw_requests(traffic), LARGE))

    assert process_time() - began_s < 4
    assert latency.is_stable
    assert latency.num_requests == 72_000
