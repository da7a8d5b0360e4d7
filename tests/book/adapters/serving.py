"""How long prefill takes, what a step of decoding frees, the servers of both, and drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

REPLY = {"G": "reply_tokens", "decode": "reply_tokens", "gen": "reply_tokens", "gen_len": "reply_tokens"} | {
    "generate": "reply_tokens",
    "decode_len": "reply_tokens",
    "tokens": "reply_tokens",
}
"""What items call the tokens of a reply."""

PREFILL = {
    "params": "P",
    "P": "P",
    "T": "T",
    "S": "T",
    "prompt": "T",
    "prompt_len": "T",
    "tokens": "T",
    "chips": "num_chips",
    "n_chips": "num_chips",
    "num_chips": "num_chips",
    "C": "C_flops_per_s",
    "mfu": "mfu",
    "shared": "shared_tokens",
}

STEADY = REPLY | {"B": "B", "batch": "B", "P": "prompt_tokens", "prompt": "prompt_tokens", "prefill": "prompt_tokens"}

SERVERS = REPLY | {
    "t_prefill": "prefill_s",
    "prefill_s": "prefill_s",
    "ttft": "prefill_s",
    "t_step": "decode_step_s",
    "t_decode": "decode_step_s",
    "t": "decode_step_s",
    "step": "decode_step_s",
    "tpot": "decode_step_s",
    "B": "B",
    "batch": "B",
}

PREFIX = {
    "shared": "shared_tokens",
    "cached": "shared_tokens",
    "prefix": "shared_tokens",
    "total": "total_tokens",
    "prompt": "total_tokens",
    "t_prefill": "prefill_s",
}


@adapter("inference.prefill")
def prefill(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    peak = {} if "mfu" in inputs else {"mfu": 1}
    answer = ridgeline.decode_laws(**given(inputs, PREFILL), **peak)
    return {key: answer["prefill_s"] for key in wanted if key in {"t", "t_prefill", "ttft", "prefill_s"}}


@adapter("inference.steady_state")
def steady_state(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    answer = ridgeline.decode_laws(**given(inputs, STEADY))
    fields = {
        "seqs": "finished_requests",
        "sequences": "finished_requests",
        "finished": "finished_requests",
        "tokens": "evicted_tokens",
        "evicted": "evicted_tokens",
        "kv_tokens": "evicted_tokens",
    }
    return {key: answer[fields[key]] for key in wanted if key in fields}


@adapter("inference.disaggregation")
def disaggregation(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    said = given(inputs, SERVERS)
    answers = {}
    for key in wanted:
        batch = {"B": inputs["B_fit"]} if key.startswith("ratio_at") and "B_fit" in inputs else {}
        if key.startswith(("ratio", "servers", "prefill_servers")):
            answers[key] = ridgeline.decode_laws(**(said | batch))["prefill_servers_ratio"]
    return answers


@adapter("inference.prefix_cache")
def prefix_cache(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    answer = ridgeline.decode_laws(**given(inputs, PREFIX))
    fields = {"fraction": "computed_fraction", "left": "computed_fraction", "t": "cached_prefill_s"}
    return {key: answer[fields[key]] for key in wanted if key in fields if fields[key] in answer}


@adapter("inference.speculative")
def speculative(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    times = [name for name in ("loop_ms", "loop_s", "loop", "t_loop") if name in inputs]
    drafts = [name for name in ("k", "drafts", "draft_len", "gamma") if name in inputs]
    accepted = {name.removeprefix("accept").strip("_"): name for name in inputs if name.startswith("accept")}
    answers = {}
    for task, name in accepted.items():
        rows = zip(listed(inputs[drafts[0]]), listed(inputs[times[0]]), listed(inputs[name]), strict=True)
        each = [
            ridgeline.decode_laws(
                num_draft_tokens=count, loop_s=time, acceptance_fraction=part, reply_tokens=inputs.get("tokens", 1)
            )
            for count, time, part in rows
        ]
        fields = {
            "t": "speculative_s",
            "time": "speculative_s",
            "tokens_per_loop": "loop_tokens",
            "t_token": "speculative_token_s",
        }
        found = {task: [laws["speculative_s"] for laws in each]}
        for key, quantity in fields.items():
            values = [laws[quantity] for laws in each]
            found = found | {f"{key}_{task}".strip("_"): values if isinstance(inputs[name], list) else values[0]}
        if isinstance(inputs[name], list):
            lengths = ridgeline.draft_lengths(
                num_draft_tokens=inputs[drafts[0]], loop_s=inputs[times[0]], acceptance_fraction=inputs[name]
            )
            found = found | {f"best_k_{task}".strip("_"): lengths.worthwhile}
        answers = answers | found
    return {key: answers[key] for key in wanted if key in answers}


def given(inputs: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in inputs.items() if name in names}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]
