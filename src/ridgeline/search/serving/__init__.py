"""What answers a serving job: every plan of servers on a slice, the one that wins, and why.

`setting` is what all plans of a job share; `plans` a plan and its `meshes`; `candidates` what is worth a look;
`estimate` one plan's latencies, throughput and cost, of `lengths` of requests and, for a short list, of the engine
`simulated`; `tails` their percentiles; `answer` what a reader is given, with `words`, `laws` and `explain`.
"""
