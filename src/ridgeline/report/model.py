"""`ridgeline model`: what a model is made of and what it asks for, as a screen and as JSON."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, assert_never

from ridgeline.cost.questions.transformer import transformer
from ridgeline.job.job import BYTES_OF, Dtype, Remat
from ridgeline.job.remat import placements
from ridgeline.model.accounting import TRAINING_PASSES, account, kept_elements_per_token
from ridgeline.model.flop_convention import CONVENTIONS, training_flops_per_token
from ridgeline.model.spec import (
    AttentionSpec,
    CompressedAttentionSpec,
    GatedDeltaSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    MoeSpec,
)
from ridgeline.model.tree import layer_names, model_tree
from ridgeline.report.blocks import Bar, Bars, Cell, Facts, Paragraphs, Report, Table
from ridgeline.report.derivations import derivations_json
from ridgeline.units import format_bytes, format_count, format_flops, format_fraction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.questions.transformer import TransformerCount
    from ridgeline.model.accounting import ModelAccount, PartAccount
    from ridgeline.model.spec import ChannelSpec, LayerSpec, MixerSpec, ModelSpec
    from ridgeline.report.jsonable import Json

_NOTHING = Cell(text="–", tone="dim")
_POLICIES = ("full", "minimal")
_SHOWN_POLICIES = ("full", "save_out_proj", "save_qkv_proj", "minimal", "minimal_with_context")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model and its account for one sequence length and dtype.

    Attributes:
        spec: The model.
        account: What it asks for.
        dtype: Of cache and activations.
        training_flops: FLOPs of one token's training step, by convention.
        kept_elements: Activation elements kept of one token, by rematerialisation policy.
        count: The same as the Scaling Book counts it: by role, attention beside the matmuls, what remat costs.
        crossover_undiscounted_tokens: Length from which scores outweigh the matmuls if the mask spares nothing.
    """

    spec: ModelSpec
    account: ModelAccount
    dtype: Dtype
    training_flops: Mapping[str, float]
    kept_elements: Mapping[str, float]
    count: TransformerCount
    crossover_undiscounted_tokens: float

    @property
    def derivations(self) -> tuple[Derivation, ...]:
        """Where its main numbers come from, in the book's letters."""
        return self.count.derivations


def model_answer(spec: ModelSpec, *, seq_len: int, dtype: Dtype) -> ModelAnswer:
    """Everything `ridgeline model` says of a model."""
    tree = model_tree(spec)
    kept = {
        policy: [name for name, place in placements(Remat(policy=policy)).items() if place == "device"]
        for policy in _POLICIES
    }
    return ModelAnswer(
        spec=spec,
        account=account(tree, embed_dim=spec.embed_dim, seq_len=seq_len),
        dtype=dtype,
        training_flops={
            name: training_flops_per_token(tree, seq_len=seq_len, convention=convention)
            for name, convention in CONVENTIONS.items()
        },
        kept_elements={
            policy: kept_elements_per_token(tree, embed_dim=spec.embed_dim, names=names)
            for policy, names in kept.items()
        },
        count=transformer(spec, seq_len=seq_len, masked=True, b_a=BYTES_OF[dtype]),
        crossover_undiscounted_tokens=transformer(spec, seq_len=seq_len).crossover_tokens,
    )


def model_report(answer: ModelAnswer) -> Report:
    """The screen: totals, layers, where the FLOPs are, every part, and by whose count."""
    spec = answer.spec
    layers = f"{spec.num_layers} layer{'s' * (spec.num_layers != 1)}"
    return Report(
        headline=f"{spec.name} · {layers}, width {spec.embed_dim:,}, vocabulary {spec.vocab_size:,}",
        pieces=(
            _totals(answer),
            _layers(spec),
            _where_flops_are(answer),
            _parts(answer),
            _remat(answer),
            _conventions(answer),
            *_notes(answer),
        ),
    )


def model_json(answer: ModelAnswer) -> dict[str, Json]:
    """The same in base units; figures of parts are for all the layers that repeat them."""
    spec, total, element_bytes = answer.spec, answer.account, BYTES_OF[answer.dtype]
    return {
        "name": spec.name,
        "num_layers": spec.num_layers,
        "embed_dim": spec.embed_dim,
        "vocab_size": spec.vocab_size,
        "context_length": spec.context_length or None,
        "tied_embeddings": spec.tied_embeddings,
        "mtp_layers": spec.mtp_layers,
        "seq_len": total.seq_len,
        "dtype": answer.dtype,
        "params_total": total.parameters,
        "params_text": total.parameters,
        "params_active": total.active_parameters,
        "flops_per_token_forward": total.flops_per_token_forward,
        "flops_per_token_training": total.flops_per_token_training,
        "flops_per_token_training_by_convention": dict(answer.training_flops),
        "kv_cache_bytes_per_token": total.cache_elements_per_token * element_bytes,
        "kv_cache_bytes_per_sequence": total.cache_elements_per_sequence * element_bytes,
        "activation_bytes_per_token": total.activation_elements_per_token * element_bytes,
        "activation_bytes_per_token_by_remat": {
            policy: elements * element_bytes for policy, elements in answer.kept_elements.items()
        },
        "attention": {
            "scores_to_matmuls_ratio": answer.count.scores_ratio,
            "crossover_tokens": _known(answer.count.crossover_tokens),
            "crossover_undiscounted_tokens": _known(answer.crossover_undiscounted_tokens),
            "projections_crossover_tokens": _known(answer.count.projections_crossover_tokens),
        },
        "roles": {
            role: {"params": each.parameters, "params_active": each.active_parameters}
            for role, each in answer.count.roles.items()
        },
        "remat": {
            policy: {
                "saved_bytes_per_token": each.saved_bytes / answer.count.num_tokens,
                "recomputed_flops_per_token": each.recomputed_flops / answer.count.num_tokens,
            }
            for policy, each in answer.count.remat.items()
        },
        "parts": [_part_json(part, element_bytes) for part in total.parts],
        "notes": [*_remarks(answer)],
        "derivations": derivations_json(answer.derivations),
    }


def names_report(names: Sequence[str]) -> Report:
    """The zoo's names, one line a family."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        families[name.split("-")[0]].append(name)
    rows = tuple((Cell(text=family, tone="strong"), Cell(text="  ".join(group))) for family, group in families.items())
    note = "Or the path of any Hugging Face config.json. Case and punctuation do not matter, nor does the organisation."
    return Report(headline=f"{len(names)} models", pieces=(Table(columns=("family", "models"), rows=rows, note=note),))


def names_json(names: Sequence[str]) -> dict[str, Json]:
    """The zoo's names."""
    return {"models": [*names], "derivations": []}


def _part_json(part: PartAccount, element_bytes: float) -> dict[str, Json]:
    return {
        "path": part.path,
        "num_layers": part.num_layers,
        "params": part.parameters,
        "params_active": part.active_parameters,
        "flops_per_token_forward": part.flops_per_token,
        "flops_per_token_training": TRAINING_PASSES * part.flops_per_token,
        "kv_cache_bytes_per_token": part.cache_elements_per_token * element_bytes,
        "kv_cache_bytes_per_sequence": part.cache_elements_per_sequence * element_bytes,
        "activation_bytes_per_token": part.activation_elements_per_token * element_bytes,
    }


def _totals(answer: ModelAnswer) -> Facts:
    total, element_bytes = answer.account, BYTES_OF[answer.dtype]
    experts = total.active_parameters != total.parameters

    def size(elements: float) -> str:
        return format_bytes(elements * element_bytes)

    kept = ", ".join(f"{size(elements)} under `{policy}`" for policy, elements in answer.kept_elements.items())
    sequence = size(total.cache_elements_per_sequence)
    rows = [
        ("parameters", f"{format_count(total.parameters)}  ({total.parameters:,})"),
        *([("a token visits", format_count(total.active_parameters))] if experts else []),
        ("FLOPs, forward", f"{format_flops(total.flops_per_token_forward)} a token of {total.seq_len:,}"),
        ("FLOPs, training", f"{format_flops(total.flops_per_token_training)} a token"),
        ("KV cache", f"{size(total.cache_elements_per_token)} a token, {sequence} a sequence ({answer.dtype})"),
        ("activations", f"{size(total.activation_elements_per_token)} a token ({answer.dtype}); kept: {kept}"),
    ]
    return Facts(rows=tuple((label, Cell(text=text)) for label, text in rows))


def _layers(spec: ModelSpec) -> Table:
    counts: defaultdict[LayerSpec, int] = defaultdict(int)
    for layer, count in spec.layers:
        counts[layer] += count
    return Table(
        title="Layers",
        columns=("layer", "×", "mixer", "channel"),
        rows=tuple(
            (
                Cell(text=name, tone="strong"),
                Cell(text=str(count)),
                Cell(text=" + ".join(_mixer_in_words(mixer) for mixer in (layer.mixer, layer.beside) if mixer) or "–"),
                _NOTHING if layer.mlp is None else Cell(text=_channel_in_words(layer.mlp)),
            )
            for name, (layer, count) in zip(layer_names(tuple(counts)), counts.items(), strict=True)
        ),
        right=frozenset({1}),
    )


def _mixer_in_words(mixer: MixerSpec) -> str:
    match mixer:
        case AttentionSpec(num_heads=heads, num_kv_heads=kv_heads, head_dim=width, span=span):
            keys = {"sliding": f", last {span.window:,}", "chunked": f", chunks of {span.window:,}"}.get(span.kind, "")
            return f"attention, {heads} heads ({kv_heads} KV) of {width}{keys}"
        case MlaSpec(num_heads=heads, kv_lora_rank=rank, qk_rope_head_dim=rope):
            best = f", best {mixer.indexer.top_k:,} keys" if mixer.indexer else ""
            return f"MLA, {heads} heads, cache of {rank} + {rope}{best}"
        case CompressedAttentionSpec(num_heads=heads, head_dim=width, window=window, tokens_per_key=tokens):
            beyond = f", then a key for {tokens} tokens" if tokens else ""
            best = f", best {mixer.indexer.top_k:,}" if mixer.indexer else ""
            return f"attention, {heads} heads (1 KV) of {width}, last {window:,}{beyond}{best}"
        case MambaSpec(version=version, inner_dim=inner, state_dim=state):
            return f"Mamba-{version}, width {inner:,}, state {state}"
        case GatedDeltaSpec(num_value_heads=heads, value_head_dim=width):
            return f"gated delta rule, {heads} heads of {width}"
        case _:
            assert_never(mixer)


def _channel_in_words(channel: ChannelSpec) -> str:
    match channel:
        case MlpSpec(mlp_dim=width, gated=gated):
            return f"{'gated' if gated else 'plain'} MLP {width:,}"
        case MoeSpec(num_experts=experts, top_k=top_k, expert_mlp_dim=width):
            shared = f", shared {channel.shared_mlp_dim:,}" if channel.shared_mlp_dim else ""
            dense = f", dense {channel.dense_mlp_dim:,}" if channel.dense_mlp_dim else ""
            return f"{top_k} of {experts} experts {width:,}{shared}{dense}"
        case _:
            assert_never(channel)


def _known(tokens: float) -> float | None:
    """None where scores never outweigh the matmuls."""
    return tokens if isfinite(tokens) else None


def _where_flops_are(answer: ModelAnswer) -> Bars:
    """Forward FLOPs by block, the scores of attention (which grow with the sequence) apart from its weights."""
    total = answer.account
    blocks: defaultdict[str, float] = defaultdict(float)
    for part in total.parts:
        block = part.path if part.path.endswith("scores") else "/".join(part.path.split("/")[:-1][:2])
        blocks[block] += part.flops_per_token
    return Bars(
        title="FLOPs",
        bars=tuple(
            Bar(label=block, value=flops, text=format_fraction(flops / total.flops_per_token_forward))
            for block, flops in blocks.items()
            if flops
        ),
        note=_crossovers(answer),
    )


def _crossovers(answer: ModelAnswer) -> str:
    """From which length on attention's scores lead; "" without attention."""
    count = answer.count
    if not count.roles["scores"].forward_flops:
        return ""
    if not isfinite(count.crossover_tokens):
        return "Scores stay below the layers' matmuls at any length."
    lengths = (count.crossover_tokens, answer.crossover_undiscounted_tokens, count.projections_crossover_tokens)
    matmuls, undiscounted, projections = (format_count(tokens) for tokens in lengths)
    return (
        f"Scores outweigh the layers' matmuls from {matmuls} tokens on ({undiscounted} if a causal mask spared "
        f"nothing), attention's own from {projections}."
    )


def _remat(answer: ModelAnswer) -> Table:
    """What each policy keeps of a token, and what the backward pass then computes again."""
    count = answer.count
    forward = answer.account.flops_per_token_forward
    return Table(
        title="Rematerialisation",
        columns=("policy", "kept/token", "recomputed/token", "of a forward pass"),
        rows=tuple(
            (
                Cell(text=policy),
                Cell(text=format_bytes(each.saved_bytes / count.num_tokens)),
                Cell(text=format_flops(each.recomputed_flops / count.num_tokens)),
                Cell(text=format_fraction(each.recomputed_flops / count.num_tokens / forward)),
            )
            for policy, each in count.remat.items()
            if policy in _SHOWN_POLICIES
        ),
        right=frozenset({1, 2, 3}),
    )


def _parts(answer: ModelAnswer) -> Table:
    total, element_bytes = answer.account, BYTES_OF[answer.dtype]
    main = [part for part in total.parts if part.flops_per_token or "embedding/" in part.path]
    rest = [part for part in total.parts if part not in main]

    def row(label: str, layers: str, parts: Sequence[PartAccount]) -> tuple[Cell, ...]:
        flops, parameters = sum(part.flops_per_token for part in parts), sum(part.parameters for part in parts)
        cache = sum(part.cache_elements_per_token for part in parts) * element_bytes
        saved = sum(part.activation_elements_per_token for part in parts) * element_bytes
        texts = (
            format_count(parameters) if parameters else "",
            format_flops(flops) if flops else "",
            format_bytes(cache) if cache else "",
            format_bytes(saved) if saved else "",
        )
        return (Cell(text=label), Cell(text=layers), *(Cell(text=text) if text else _NOTHING for text in texts))

    return Table(
        title="Parts",
        columns=("part", "layers", "parameters", "FLOPs/token", "KV cache/token", "activation/token"),
        rows=(
            *(row(part.path, str(part.num_layers), [part]) for part in main),
            row("norms, layer inputs, the rest", "", rest),
        ),
        right=frozenset(range(1, 6)),
        note="All layers together. FLOPs: forward, of matmuls, attention and recurrences.",
    )


def _conventions(answer: ModelAnswer) -> Table:
    usual = answer.account.flops_per_token_training
    return Table(
        title="Training FLOPs a token, by whose count",
        columns=("convention", "FLOPs/token", "ratio", "used by"),
        rows=tuple(
            (
                Cell(text=name, tone="strong" if name == "maxtext" else "plain"),
                Cell(text=format_flops(flops)),
                Cell(text=f"{flops / usual:.3f}"),
                Cell(text=CONVENTIONS[name].used_by),
            )
            for name, flops in answer.training_flops.items()
        ),
        right=frozenset({1, 2}),
    )


def _notes(answer: ModelAnswer) -> tuple[Paragraphs, ...]:
    lines = tuple(Cell(text=remark, tone="dim") for remark in _remarks(answer))
    return (Paragraphs(title="Notes", lines=lines),) if lines else ()


def _remarks(answer: ModelAnswer) -> Iterator[str]:
    spec, seq_len = answer.spec, answer.account.seq_len
    if spec.context_length and seq_len > spec.context_length:
        yield f"The model was made for sequences of up to {spec.context_length:,} tokens."
    if any(part.cache_elements_per_sequence and not part.cache_elements_per_token for part in answer.account.parts):
        yield "The cache of a sequence includes recurrent states, which do not grow with it."
    if any(
        0 < part.cache_elements_per_sequence < part.cache_elements_per_token * seq_len for part in answer.account.parts
    ):
        yield "Windows cap the cache of a sequence; its growth with a token holds while none is full."
    if spec.mtp_layers and not spec.mtp_depth:
        heads = "head predicts" if spec.mtp_layers == 1 else "heads predict"
        yield f"{spec.mtp_layers} multi-token-prediction {heads} beside the model; not counted."
    yield from spec.notes
