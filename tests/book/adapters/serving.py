"""How long prefill takes, what a step of decoding frees, and the servers of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@adapter("inference.prefill")
def prefill(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    answer = ridgeline.decode_laws(
        P=inputs["params"], T=inputs["T"], num_chips=inputs["chips"], C_flops_per_s=inputs["C"], mfu=inputs["mfu"]
    )
    return {key: answer["prefill_s"] for key in wanted if key == "t"}


@adapter("inference.steady_state")
def steady_state(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    answer = ridgeline.decode_laws(B=inputs["B"], prompt_tokens=inputs["P"], reply_tokens=inputs["G"])
    fields = {"seqs": "finished_requests", "tokens": "evicted_tokens"}
    return {key: answer[fields[key]] for key in wanted if key in fields}


@adapter("inference.disaggregation")
def disaggregation(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    batches = {"ratio": inputs["B"], "ratio_at_43": inputs["B_fit"]}
    given = {
        "prefill_s": inputs["t_prefill"],
        "decode_step_s": inputs["t_step"],
        "reply_tokens": inputs["G"],
    }
    return {key: ridgeline.decode_laws(**given, B=batches[key])["prefill_servers_ratio"] for key in wanted}


@adapter("inference.prefix_cache")
def prefix_cache(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    answer = ridgeline.decode_laws(shared_tokens=inputs["shared"], total_tokens=inputs["total"])
    return {key: answer["computed_fraction"] for key in wanted if key == "fraction"}
