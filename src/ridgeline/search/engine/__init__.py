"""The serving engine as users run it: requests in, latencies out, by a discrete-event simulation.

    requests = draw_requests(Traffic(requests_per_s=20, prompt=FixedLength(tokens=1024), output=…))
    served = serve(requests, engine)
    served_latency(served)      # TTFT, TPOT and end to end: mean, p50, p90, p99; throughput; is it stable at all

`setting` says what an engine is, `times` how long its passes take; both are given by the caller, so that nothing here
knows of models or chips. `arrivals` draws requests, `server` runs one server, `fleet` several, `latency` sums up.
"""
