"""The forward pass of a decoder in plain numpy, one token after another: what our program is compared with.

Written from the papers and from the meaning of the zoo's keys; it reads nothing of our program but its weights, which
it is given layer by layer under the names of the model's tree.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Weights: TypeAlias = Mapping[str, Array]
    Table: TypeAlias = Mapping[str, Any]

EPSILON = 1e-5
ROPE_THETA = 500_000.0


def logits(model: Table, layers: list[tuple[str, Table, Weights]], outside: Weights, tokens: list[int]) -> Array:
    """Logits [S, V] of one sequence.

    Args:
        model: As in the zoo.
        layers: Of each layer, in order: its name, its own table (the model's, with what its kind changes), its weights.
        outside: Weights of embedding and head.
        tokens: [S].
    """
    stream = [outside["embedding/tokens"][token] for token in tokens]
    if "embedding_dim" in model:
        stream = [row @ outside["embedding/project_in"] for row in stream]
    if "max_position_embeddings" in model:
        stream = [row + outside["embedding/positions"][place] for place, row in enumerate(stream)]
    if "embedding_norm" in model:
        stream = [normed(row, outside, "embedding/norm") for row in stream]
    for name, table, weights in layers:
        stream = layer(table, weights, stream, name)
    stream = [normed(row, outside, "head/norm") for row in stream]
    if "embedding_dim" in model:
        stream = [row @ outside["head/project_out"] for row in stream]
    matrix = outside["embedding/tokens"].T if model.get("tied_embeddings") else outside["head/logits"]
    return np.stack([row @ matrix + outside.get("head/logits/bias", 0.0) for row in stream])


def loss(found: Array, targets: list[int]) -> float:
    """Mean over the sequence of −log of the probability of the token that follows.

    Args:
        found: Logits [S, V].
        targets: The token behind each, [S].
    """
    return -float(np.mean([np.log(softmax(row)[target]) for row, target in zip(found, targets, strict=True)]))


def layer(table: Table, weights: Weights, stream: list[Array], name: str) -> list[Array]:
    """One layer: attention, then the MLP, or both side by side."""
    if table.get("parallel"):
        block = f"{name}/parallel"
        one_norm = table.get("pre_norms", 2) == 1
        ins = [normed(row, weights, f"{block}/norm") for row in stream] if one_norm else stream
        attended, fed = ins, ins
        if not one_norm:
            attended = [normed(row, weights, f"{block}/attention/norm") for row in ins]
            fed = [normed(row, weights, f"{block}/mlp/norm") for row in ins]
        mixed = mixer(table, weights, attended, f"{block}/attention")
        return [
            row + one + mlp(table["mlp"], weights, other, f"{block}/mlp")
            for row, one, other in zip(stream, mixed, fed, strict=True)
        ]
    for block in (f"{name}/attention", f"{name}/moe" if "moe" in table else f"{name}/mlp"):
        before = [normed(row, weights, f"{block}/norm") if table.get("pre_norms", 2) else row for row in stream]
        if block.endswith("attention"):
            after = mixer(table, weights, before, block)
        elif block.endswith("moe"):
            after = [experts(table["moe"], weights, row, block) for row in before]
        else:
            after = [mlp(table["mlp"], weights, row, block) for row in before]
        if table.get("post_norm"):
            after = [normed(row, weights, f"{block}/post_norm") for row in after]
        stream = [row + change for row, change in zip(stream, after, strict=True)]
    return stream


def mixer(table: Table, weights: Weights, rows: list[Array], block: str) -> list[Array]:
    """Attention of either sort."""
    return (
        latent(table["mla"], weights, rows, block)
        if "mla" in table
        else heads(table["attention"], weights, rows, block)
    )


def heads(spec: Table, weights: Weights, rows: list[Array], block: str) -> list[Array]:
    """Grouped-query attention, head by head."""
    queries, keys, values = [], [], []
    for place, row in enumerate(rows):
        query, key, value = projected(spec, weights, row, block)
        query = head_normed(spec, weights, query, f"{block}/qk_norm/query")
        key = head_normed(spec, weights, key, f"{block}/qk_norm/key")
        if spec.get("rotary", True):
            query, key = [turned(head, place) for head in query], [turned(head, place) for head in key]
        queries.append(query)
        keys.append(key)
        values.append(value)
    group = spec["num_heads"] // spec["num_kv_heads"]
    found = []
    for place, row in enumerate(rows):
        contexts = []
        for head in range(spec["num_heads"]):
            seen = [other for other in range(len(rows)) if is_seen(spec.get("span", {}), place, other)]
            scores = [queries[place][head] @ keys[other][head // group] / sqrt(spec["head_dim"]) for other in seen]
            sink = weights.get(f"{block}/scores/sinks")
            shares = softmax(scores if sink is None else [*scores, sink[head]])
            contexts.append(
                sum(share * values[other][head // group] for share, other in zip(shares, seen, strict=False))
            )
        context = np.stack(contexts)
        if spec.get("output_gate"):
            context = context * sigmoid(np.tensordot(row, weights[f"{block}/gate"], 1))
        if spec.get("head_gate"):
            context = context * sigmoid(row @ weights[f"{block}/head_gate"])[:, None]
        found.append(np.tensordot(context, weights[f"{block}/out"], 2) + weights.get(f"{block}/out/bias", 0.0))
    return found


def projected(spec: Table, weights: Weights, row: Array, block: str) -> tuple[Any, Any, Any]:
    """Queries, keys and values of one token, by head."""
    if spec.get("fused_qkv"):  # each key-value head behind its own queries
        fused = np.tensordot(row, weights[f"{block}/qkv"], 1)
        size = spec["num_heads"] // spec["num_kv_heads"] + 2
        groups = [fused[start : start + size] for start in range(0, len(fused), size)]
        queries = [head for group in groups for head in group[:-2]]
        return queries, [group[-2] for group in groups], [group[-1] for group in groups]
    ins = row
    if "query_rank" in spec:
        ins = normed(row @ weights[f"{block}/query_down"], weights, f"{block}/query_norm")
    query, key = (
        np.tensordot(operand, weights[f"{block}/{name}"], 1) + weights.get(f"{block}/{name}/bias", 0.0)
        for operand, name in ((ins, "query"), (row, "key"))
    )
    if spec.get("shared_kv_projection"):
        return query, key, key
    return query, key, np.tensordot(row, weights[f"{block}/value"], 1) + weights.get(f"{block}/value/bias", 0.0)


def latent(spec: Table, weights: Weights, rows: list[Array], block: str) -> list[Array]:
    """Multi-head latent attention: https://arxiv.org/abs/2405.04434, equations 37 to 47."""
    nope, rank, found = spec["qk_nope_head_dim"], spec["kv_lora_rank"], []
    compressed = [row @ weights[f"{block}/kv_down"] for row in rows]
    latents = [normed(row[:rank], weights, f"{block}/kv_norm") for row in compressed]
    for place, row in enumerate(rows):
        of_query = normed(row @ weights[f"{block}/query_down"], weights, f"{block}/query_norm")
        contexts = []
        for head in range(spec["num_heads"]):
            query = of_query @ weights[f"{block}/query_up"][:, head]
            scores = []
            for other in range(place + 1):
                content = query[:nope] @ (latents[other] @ weights[f"{block}/key_up"][:, head])
                position = turned(query[nope:], place) @ turned(compressed[other][rank:], other)
                scores.append((content + position) / sqrt(nope + spec["qk_rope_head_dim"]))
            values = [latents[other] @ weights[f"{block}/value_up"][:, head] for other in range(place + 1)]
            contexts.append(sum(share * value for share, value in zip(softmax(scores), values, strict=True)))
        found.append(np.tensordot(np.stack(contexts), weights[f"{block}/out"], 2))
    return found


def is_seen(span: Table, query: int, key: int) -> bool:
    """Whether a query sees a key: `window` tokens back, its own among them, or back to where its chunk begins."""
    if key > query:
        return False
    if span.get("kind") == "sliding":
        return key in range(query - span["window"] + 1, query + 1)
    if span.get("kind") == "chunked":
        return key >= query - query % span["window"]
    return True


def mlp(spec: Table, weights: Weights, row: Array, block: str) -> Array:
    """SwiGLU, or two matrices with GELU between them."""
    up = row @ weights[f"{block}/up"] + weights.get(f"{block}/up/bias", 0.0)
    if not spec.get("gated", True):
        hidden = np.array([0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))) for x in up])
    else:
        gate, up = (up[0::2], up[1::2]) if spec.get("fused") else (row @ weights[f"{block}/gate"], up)
        hidden = gate * sigmoid(gate) * up
    return hidden @ weights[f"{block}/down"] + weights.get(f"{block}/down/bias", 0.0)


def experts(spec: Table, weights: Weights, row: Array, block: str) -> Array:
    """The best few experts, weighted by their scores, and what every token visits: https://arxiv.org/abs/2401.04088."""
    scores = softmax(list(row @ weights[f"{block}/router"]))
    best = sorted(range(spec["num_experts"]), key=lambda expert: -scores[expert])[: spec["top_k"]]
    output = np.zeros_like(row)
    for expert in best:
        own = {name: weights[f"{block}/experts/{name}"][expert] for name in ("gate", "up", "down")}
        share = scores[expert] / sum(scores[chosen] for chosen in best)
        output = output + share * mlp({}, {f"expert/{name}": each for name, each in own.items()}, row, "expert")
    if "shared_mlp_dim" in spec:
        gate = sigmoid(row @ weights[f"{block}/shared/score"]) if spec.get("shared_gate") else 1.0
        output = output + gate * mlp({}, weights, row, f"{block}/shared")
    return output


def normed(row: Array, weights: Weights, name: str) -> Array:
    """LayerNorm with a bias, else RMSNorm."""
    bias = weights.get(f"{name}/bias")
    centred = row if bias is None else row - row.mean()
    return centred / np.sqrt((centred**2).mean() + EPSILON) * weights[f"{name}/scale"] + (0.0 if bias is None else bias)


def head_normed(spec: Table, weights: Weights, found: Any, name: str) -> Any:  # noqa: ANN401 - heads, stacked or not
    """Norm of each head, of all heads as one row, or none."""
    match spec.get("qk_norm"):
        case "head":
            return [normed(head, weights, name) for head in found]
        case "full":
            return normed(np.concatenate(list(found)), weights, name).reshape(len(found), -1)
        case _:
            return found


def turned(head: Array, place: int) -> Array:
    """Pairs (i, i + H/2) turned by an angle of their own, as complex numbers."""
    half = len(head) // 2
    angles = place * ROPE_THETA ** (-np.arange(half) / half)
    numbers = (head[:half] + 1j * head[half:]) * np.exp(1j * angles)
    return np.concatenate([numbers.real, numbers.imag])


def softmax(scores: list[Any]) -> Array:
    """Shares that add up to one."""
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def sigmoid(x: Array) -> Array:
    """Between 0 and 1."""
    return 1 / (1 + np.exp(-x))
