"""KV caches, mixtures of experts, and what a dollar buys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LETTERS = {"L", "D", "F", "N", "K", "H", "NH", "V", "E", "k"}

NAMES = {
    "bpe": "b_a",
    "S": "T",
    "T": "T",
    "B": "B",
    "params": "weight_bytes",
    "params_bytes": "weight_bytes",
    "hbm": "hbm_bytes",
    "chips": "num_chips",
    "W_hbm": "W_hbm_bytes_per_s",
}
"""What an item calls a quantity."""


@adapter("kv_cache")
def kv_cache(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    sizes = {name: inputs[name] for name in ("D", "F", "K", "H") if name in inputs} if "ratio" in wanted else {}
    answer = ridgeline.serving_memory(_letters(inputs), **(_given(inputs, NAMES) | sizes))
    fields = {
        "per_token": "token_cache_bytes",
        "bytes_per_token": "token_cache_bytes",
        "per_seq": "sequence_cache_bytes",
        "bytes": "sequence_cache_bytes",
        "total": "batch_cache_bytes",
        "chips": "num_whole_memory_chips",
        "count": "num_sequences_beside_weights",
        "ratio": "mlp_cache_ratio",
    }
    found = {key: answer[fields[key]] for key in wanted if key in fields and fields[key] in answer}
    return found | {key: answer.mlp_cache_scaling for key in wanted if key == "simplified"}


@adapter("moe")
def moe(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    found = _routing(inputs)
    if "L" in inputs and "k" in inputs:
        count = ridgeline.transformer(_letters(inputs))
        in_eight_bits = ridgeline.transformer(_letters(inputs), b_a=1)
        found = found | {
            "params": count.parameters,
            "active": count.active_parameters,
            "flops_per_token": count.forward_flops_per_token,
            "kv_bf16": count.cache_bytes_per_token,
            "kv_int8": in_eight_bits.cache_bytes_per_token,
        }
    if "params" in inputs and "hbm" in inputs:
        found = found | _placed(inputs, "int8", b_w=1) | _placed(inputs, "bf16", b_w=2)
    return {key: found[key] for key in wanted if key in found}


@adapter("cost")
def cost(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    ranking = ridgeline.rank_chips(inputs["C"], usd_per_chip_hour=inputs["price"])
    found = {"best": ranking.best, "flops_per_dollar": ranking.flops_per_usd} | ranking.flops_per_s_per_usd_per_hour
    return {key: found[key] for key in wanted if key in found}


def _routing(inputs: Mapping[str, Any]) -> dict[str, Any]:
    names = {"E": "E", "k": "k", "C": "C_flops_per_s", "W_hbm": "W_hbm_bytes_per_s"}
    ridge = [
        {"C_flops_per_s": inputs[name], "W_hbm_bytes_per_s": 1}
        for name in ("ridge", "B_dense", "B_crit_dense", "B_crit")
        if name in inputs
    ]
    routing = ridgeline.expert_routing(**_given(inputs, names), **dict(*ridge[:1]))
    return {
        "comm": routing.collective,
        "n_all_to_all": routing.num_collectives,
        "all_to_alls": routing.num_collectives,
        "n_collectives": routing.num_collectives,
        "relative": routing.exchange_ratio,
        "shape": routing.routing_shape,
        "factor": routing.flops_ratio,
        "flops_factor": routing.flops_ratio,
        "active_factor": routing.flops_ratio,
        "B_crit": routing.critical_tokens,
        "B_crit_moe": routing.critical_tokens,
    }


def _placed(inputs: Mapping[str, Any], dtype: str, *, b_w: int) -> dict[str, Any]:
    """Weights of one width over some chips."""
    given = _given(inputs, NAMES | {"params": "P"}) | {"b_w": b_w}
    answer = ridgeline.serving_memory(_letters(inputs) if "L" in inputs else None, **given)
    fields = {
        f"t_{dtype}_full_shard": "weight_load_s",
        f"free_{dtype}": "chip_free_bytes",
        f"min_chips_{dtype}": "num_whole_memory_chips",
        f"slice_{dtype}": "num_rounded_memory_chips",
        f"per_chip_{dtype}_attn_8way": "chip_weight_bytes",
    }
    return {key: answer[quantity] for key, quantity in fields.items() if quantity in answer}


def _letters(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A model by its letters; the book's mixtures of experts are those of chapter 7, whose tables are tied."""
    tied = {"tied": 1} if "E" in inputs and "separate" not in inputs["setup"] else {}
    if "KH" in inputs:  # only the product is said: one key-value head so wide
        tied = tied | {"N": 1, "K": 1, "H": inputs["KH"]}
    return {name: value for name, value in inputs.items() if name in LETTERS} | tied


def _given(inputs: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: value for name, value in inputs.items() if name in names}
