"""A Transformer's parameters, FLOPs and attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LETTERS = {"L", "D", "F", "N", "K", "H", "NH", "V", "E", "k"}


@adapter("transformer.params")
def params(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    found = _counts(inputs)
    if "params_gqa" in wanted:  # beside it, the plain answers are those of a key-value head for each query head
        plain = _counts({name: value for name, value in inputs.items() if name != "K"})
        found = plain | {"params_gqa": found["params"], "flops_gqa": found["flops"]}
    if "tokens" in inputs:
        laws = ridgeline.training_laws(P_active=found["active"], run_tokens=inputs["tokens"])
        found["flops_total"] = laws["run_flops"]
    return {key: found[key] for key in wanted if key in found}


@adapter("transformer.flops")
def flops(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if "dims" in inputs:
        count = ridgeline.einsum(**inputs["dims"])
        found = {"flops": count.forward_flops, "total": count.training_flops}
    elif "P" in inputs:
        found = _products(N=inputs["N"], P=inputs["P"], M=inputs["M"])
    elif "params" in inputs:
        laws = ridgeline.training_laws(P_active=inputs["params"], C_flops_per_s=inputs.get("C", 1))
        fields = {"flops": "training_flops_per_token", "fwd": "forward_flops_per_token", "t": "token_on_one_chip_s"}
        found = {key: laws[quantity] for key, quantity in fields.items()}
    else:
        found = _counts(inputs)
    return {key: found[key] for key in wanted if key in found}


@adapter("transformer.attention")
def attention(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if "x1" in inputs:
        return {"match": ridgeline.merge_softmax(inputs["x1"], inputs["x2"]).matches}
    for name in ("T", "S", "G"):
        if isinstance(inputs.get(name), list):
            each = [attention({**inputs, name: value}, wanted) for value in inputs[name]]
            return {key: [answers[key] for answers in each] for key in each[0]}
    found = _scores(inputs) if "D" in inputs or "N" in inputs else {}
    names = {"T": "T", "S": "S", "G": "G", "N": "N", "K": "K", "ridge": "ridge_flops_per_byte"} | {
        "C": "C_flops_per_s",
        "W_hbm": "W_hbm_bytes_per_s",
    }
    laws = ridgeline.attention_laws(**{names[name]: value for name, value in inputs.items() if name in names})
    fields = {
        "general": "attention_intensity_flops_per_byte",
        "intensity": "attention_intensity_flops_per_byte",
        "prefill": "prefill_intensity_flops_per_byte",
        "decode": "decode_intensity_flops_per_byte",
        "generation": "decode_intensity_flops_per_byte",
        "generation_limit": "decode_intensity_flops_per_byte",
        "T_crit": "prefill_critical_tokens",
    }
    bounds = {"generation_bound": "decode", "decode_bound": "decode", "prefill_bound": "prefill"}
    return (
        {key: found[key] for key in wanted if key in found}
        | {key: laws[fields[key]] for key in wanted if key in fields and fields[key] in laws}
        | {key: getattr(laws, f"{bounds[key]}_bound") for key in wanted if key in bounds}
    )


def _counts(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Every count of a model, or of the one block whose letters are given."""
    letters = {name: value for name, value in inputs.items() if name in LETTERS}
    flags = {"tied": inputs.get("tied", 1)} if "tied" in inputs or "tied" in inputs["setup"] else {}
    flags = flags | ({"gated": inputs["gated"]} if "gated" in inputs else {})
    sequences = {"num_sequences": inputs.get("B", 1), "seq_len": inputs.get("T", 1)}
    count = ridgeline.transformer(letters | flags, **sequences)
    in_eight_bits = ridgeline.transformer(letters | flags, b_a=1, **sequences)
    ungated = ridgeline.transformer(letters | flags | {"gated": 0}, **sequences).roles["mlp"]
    block = count.whole
    if "V" in inputs and "F" not in inputs:
        block = count.roles["unembedding"]
    elif "V" not in inputs and "F" not in inputs:
        block = count.roles["attention"]
    elif "V" not in inputs and "N" not in inputs and "NH" not in inputs:
        block = count.roles["mlp"]
    elif "V" not in inputs:
        block = count.matmuls
    return {
        "params": block.parameters,
        "total": block.parameters,
        "active": count.active_parameters,
        "flops": block.training_flops,
        "fwd": block.forward_flops,
        "ffw": count.roles["mlp"].parameters,
        "mlp": count.roles["mlp"].parameters,
        "params_gated": count.roles["mlp"].parameters,
        "flops_gated": count.roles["mlp"].training_flops,
        "params_ungated": ungated.parameters,
        "flops_ungated": ungated.training_flops,
        "attn": count.roles["attention"].parameters,
        "vocab": count.vocabulary.parameters,
        "flops_table": count.vocabulary_parameter_flops,
        "flops_per_token": count.training_flops_per_token,
        "equal": count.matmuls_follow_parameters,
        "attn_fraction": count.attention_share,
        "attention_fraction": count.attention_share,
        "kv_bf16": count.cache_bytes_per_token,
        "kv_int8": in_eight_bits.cache_bytes_per_token,
    }


def _products(*, N: int, P: int, M: int) -> dict[str, Any]:
    dot = ridgeline.einsum("P,P->", P=P)
    matvec = ridgeline.einsum("NP,P->N", N=N, P=P)
    matmul = ridgeline.einsum("NP,PM->NM", N=N, P=P, M=M)
    return {
        "dot": dot.forward_flops,
        "matvec": matvec.forward_flops,
        "matmul": matmul.forward_flops,
        "data_dot": dot.operand_elements,
        "data_matvec": matvec.operand_elements,
        "data_matmul": matmul.operand_elements,
        "fwd": matmul.forward_flops,
        "bwd": matmul.backward_flops,
        "total": matmul.training_flops,
    }


def _scores(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """FLOPs of scores, and the lengths at which they meet those of the matmuls."""
    letters = {name: value for name, value in inputs.items() if name in LETTERS}
    keys, queries = inputs.get("S", inputs.get("T", 1)), inputs.get("T", 1)
    count = ridgeline.transformer(letters, seq_len=keys, num_queries=queries, num_sequences=inputs.get("B", 1))
    to_all, to_projections = count.crossover_tokens, count.projections_crossover_tokens
    own = to_projections if "QKVO" in inputs["setup"] or "projection" in inputs["setup"] else to_all
    return {
        "flops": count.roles["scores"].training_flops,
        "fwd": count.roles["scores"].forward_flops,
        "ratio": count.scores_ratio,
        "T": own,
        "T_qkvo": to_projections,
    }
