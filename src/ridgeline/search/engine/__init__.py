"""The serving engine as users run it: requests in, latencies out, by a discrete-event simulation.

    requests = draw_requests(Traffic(requests_per_s=20, prompt=FixedLength(tokens=1024), output=…))
    served = serve(requests, engine)
    served_latency(served)      # TTFT, TPOT and end to end: mean, p50, p90, p99; throughput; is it stable at all

`setting` says what an engine is, `times` how long its passes take; the caller gives both, so that nothing here knows of
models or chips. `arrivals` draws requests, `fleet.serve` runs all servers and `server` one of them, on a `clock` and on
`pages`; `load` knows overload beforehand; `latency` sums up.
"""
