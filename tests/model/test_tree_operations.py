"""What single operations of the tree declare: traffic of fused passes, widths, and where odd parts hang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.model.operations import (
    Activation,
    Attention,
    Dispatch,
    Elementwise,
    ExpertMatmul,
    Lookup,
    Matmul,
    Operation,
    Recurrence,
)
from ridgeline.model.parameters import counted_operations
from ridgeline.model.spec import (
    AttentionSpec,
    CompressedAttentionSpec,
    GatedDeltaSpec,
    IndexerSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
)
from ridgeline.model.tree import layer_blocks, layer_names, model_tree

D, F, N, K, H = 512, 2048, 8, 2, 64
ATTENTION = AttentionSpec(num_heads=N, num_kv_heads=K, head_dim=H)
MLA = MlaSpec(num_heads=N, q_lora_rank=96, kv_lora_rank=48, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32)
DENSE = LayerSpec(mixer=ATTENTION, mlp=MlpSpec(mlp_dim=F))
INDEXER = IndexerSpec(num_heads=4, head_dim=16, top_k=128)


def operations(layer: LayerSpec) -> dict[str, Operation]:
    """Every operation of a layer by its path below the layer."""
    return {
        f"{block.name}/{operation.path}": operation
        for block in layer_blocks("layer", layer, embed_dim=D)
        for operation in block.operations
    }


def traffic(operation: Operation) -> tuple[float, float]:
    assert isinstance(operation, Elementwise)
    return operation.read_elements, operation.write_elements


def model(layer: LayerSpec, **keys: object) -> ModelSpec:
    return replace(ModelSpec(name="model", embed_dim=D, vocab_size=1000, layers=((layer, 2),)), **keys)


# --- elementwise passes -----------------------------------------------------------------------------------------------


def test_a_norm_reads_and_writes_the_stream_once() -> None:
    assert traffic(operations(DENSE)["attention/norm"]) == (D, D)


def test_the_residual_add_joins_the_next_norm_and_moves_only_the_stream() -> None:
    assert traffic(operations(DENSE)["mlp/residual"]) == (D, D)


def test_a_norm_after_the_branch_joins_that_pass_and_moves_nothing() -> None:
    assert traffic(operations(replace(DENSE, post_norm=True))["mlp/post_norm"]) == (0, 0)


def test_a_gated_activation_reads_both_halves_and_writes_one() -> None:
    assert traffic(operations(DENSE)["mlp/activation"]) == (2 * F, F)


def test_a_plain_activation_reads_and_writes_one() -> None:
    plain = replace(DENSE, mlp=MlpSpec(mlp_dim=F, gated=False))

    assert traffic(operations(plain)["mlp/activation"]) == (F, F)


def test_norms_and_rotation_of_query_and_key_are_one_pass() -> None:
    normed = operations(replace(DENSE, mixer=replace(ATTENTION, qk_norm="head")))

    assert traffic(operations(DENSE)["attention/rotary"]) == ((N + K) * H, (N + K) * H)
    assert traffic(normed["attention/qk_norm"]) == ((N + K) * H, (N + K) * H)
    assert traffic(normed["attention/rotary"]) == (0, 0)


def test_a_layer_norm_has_a_bias_and_an_unscaled_norm_has_nothing() -> None:
    def sizes(norm: NormSpec) -> list[int]:
        operation = operations(replace(DENSE, norm=norm))["mlp/norm"]
        assert isinstance(operation, Elementwise)
        return [weight.size for weight in operation.weights]

    assert sizes(NormSpec()) == [D]
    assert sizes(NormSpec(bias=True)) == [D, D]
    assert sizes(NormSpec(scale=False)) == []


# --- attention --------------------------------------------------------------------------------------------------------


def test_the_output_projection_sums_over_heads_and_their_width() -> None:
    out = operations(DENSE)["attention/out"]

    assert isinstance(out, Matmul)
    assert (out.num_contracted, out.weight.shape, out.output.shape) == (2, (N, H, D), (D,))


def test_a_fused_projection_is_one_matmul_over_all_heads() -> None:
    fused = operations(replace(DENSE, mixer=replace(ATTENTION, fused_qkv=True)))["attention/qkv"]

    assert isinstance(fused, Matmul)
    assert (fused.weight.shape, fused.output.name) == ((D, N + 2 * K, H), "qkv_proj")


def test_a_layer_that_reuses_keys_has_no_projection_for_them_and_caches_nothing() -> None:
    shared = operations(replace(DENSE, mixer=replace(ATTENTION, own_kv=False)))
    scores = shared["attention/scores"]

    assert "attention/key" not in shared
    assert "attention/value" not in shared
    assert isinstance(scores, Attention)
    assert not scores.cached


def test_keys_that_are_values_too_have_one_projection() -> None:
    shared = operations(replace(DENSE, mixer=replace(ATTENTION, shared_kv_projection=True)))

    assert "attention/key" in shared
    assert "attention/value" not in shared


def test_latent_attention_saves_its_latents_under_maxtexts_names() -> None:
    names = [
        operation.output.name if isinstance(operation, Matmul) else operation.name
        for operation in operations(replace(DENSE, mixer=MLA)).values()
        if isinstance(operation, Matmul) or (isinstance(operation, Elementwise) and operation.name)
    ]

    assert names[:7] == ["query_wa_proj", "mla_q", "query_proj", "kv_wa_proj", "mla_kv", "key_proj", "value_proj"]


def test_the_key_of_latent_attention_carries_the_shared_position_part() -> None:
    key = operations(replace(DENSE, mixer=MLA))["attention/key_up"]

    assert isinstance(key, Matmul)
    assert key.weight.shape == (48, N, 32)
    assert key.output == Activation(name="key_proj", axes=("heads", "head_dim"), shape=(N, 48))


def test_a_scorer_reads_all_keys_and_attention_only_those_it_picked() -> None:
    sparse = operations(replace(DENSE, mixer=replace(MLA, indexer=INDEXER)))
    scorer, attention = sparse["attention/indexer/scores"], sparse["attention/scores"]

    assert isinstance(scorer, Attention)
    assert isinstance(attention, Attention)
    assert (scorer.selected_keys, scorer.cache_elements) == (0, 16)
    assert attention.selected_keys == 128


def test_compressed_attention_sees_a_window_and_keys_that_stand_for_several_tokens() -> None:
    mixer = CompressedAttentionSpec(
        num_heads=N,
        head_dim=H,
        q_lora_rank=96,
        output_groups=4,
        output_rank=32,
        window=128,
        tokens_per_key=4,
        indexer=INDEXER,
    )

    found = [op for op in operations(replace(DENSE, mixer=mixer)).values() if isinstance(op, Attention)]

    assert [(op.path, op.span.window, op.tokens_per_key, op.selected_keys) for op in found] == [
        ("compressor/indexer/scores", 0, 4, 0),
        ("scores", 128, 1, 0),
        ("compressed_scores", 0, 4, 128),
    ]


# --- experts ----------------------------------------------------------------------------------------------------------


def test_tokens_travel_to_their_experts_and_back_at_the_width_experts_read() -> None:
    moe = MoeSpec(num_experts=16, top_k=4, expert_mlp_dim=256)

    def widths(spec: MoeSpec) -> list[int]:
        found = operations(replace(DENSE, mlp=spec)).values()
        return [operation.width for operation in found if isinstance(operation, Dispatch)]

    assert widths(moe) == [D, D]
    assert widths(replace(moe, latent_dim=128)) == [128, 128]


def test_an_expert_activation_has_a_row_for_each_expert_visited() -> None:
    moe = MoeSpec(num_experts=16, top_k=4, expert_mlp_dim=256)
    up = operations(replace(DENSE, mlp=moe))["moe/experts/up"]

    assert isinstance(up, ExpertMatmul)
    assert (up.output.name, up.output.size) == ("moe_mlpwi_1", 4 * 256)


def test_the_router_and_the_logits_are_not_quantized() -> None:
    tree = model_tree(model(replace(DENSE, mlp=MoeSpec(num_experts=16, top_k=4, expert_mlp_dim=256))))

    kept = {op.path for op, _ in counted_operations(tree) if isinstance(op, Matmul) and not op.quantizable}

    assert kept == {"router", "logits"}


def test_what_every_token_visits_stands_beside_the_experts() -> None:
    moe = MoeSpec(num_experts=16, top_k=4, expert_mlp_dim=256, shared_mlp_dim=512, shared_gate=True, dense_mlp_dim=1024)
    found = operations(replace(DENSE, mlp=moe))

    assert {"moe/shared/up", "moe/shared/score", "moe/dense/up"} <= set(found)


# --- recurrent mixers -------------------------------------------------------------------------------------------------


def test_a_recurrent_mixer_carries_a_state_whose_size_knows_no_sequence() -> None:
    mamba = MambaSpec(version=2, inner_dim=1024, state_dim=128, conv_kernel=4, num_heads=16)
    delta = GatedDeltaSpec(num_key_heads=4, num_value_heads=8, key_head_dim=32, value_head_dim=64, conv_kernel=4)

    def states(layer: LayerSpec) -> list[float]:
        return [op.state_elements for op in operations(layer).values() if isinstance(op, Recurrence)]

    assert states(replace(DENSE, mixer=mamba)) == [3 * (1024 + 2 * 128), 1024 * 128]
    assert states(replace(DENSE, mixer=delta)) == [3 * (2 * 4 * 32 + 8 * 64), 8 * 64 * 32]


# --- around the layers ------------------------------------------------------------------------------------------------


def test_a_tied_logits_matmul_reads_the_embedding_table_under_its_own_name() -> None:
    tree = model_tree(model(DENSE, tied_embeddings=True))
    lookup = tree.embedding.operations[0]
    logits = next(operation for operation in tree.head.operations if operation.path == "logits")

    assert isinstance(lookup, Lookup)
    assert isinstance(logits, Matmul)
    assert logits.weight.name == lookup.weight.name
    assert logits.weight.shape == lookup.weight.shape[::-1]


def test_a_narrow_table_is_projected_on_both_ends() -> None:
    tree = model_tree(model(DENSE, embedding_dim=128))

    assert [operation.path for operation in tree.embedding.operations] == ["tokens", "project_in"]
    assert [operation.path for operation in tree.head.operations] == ["norm", "project_out", "logits", "loss"]


def test_learned_positions_are_a_second_table() -> None:
    tree = model_tree(model(DENSE, max_position_embeddings=1024))

    assert [operation.path for operation in tree.embedding.operations] == ["tokens", "positions"]


@pytest.mark.parametrize(
    ("layer", "blocks"),
    [
        (replace(DENSE, per_layer_dim=64), ["attention", "mlp", "per_layer_input"]),
        (replace(DENSE, altup_streams=4), ["attention", "mlp", "altup"]),
        (replace(DENSE, beside=MambaSpec(version=1, inner_dim=64, state_dim=8, conv_kernel=4)), ["hybrid", "mlp"]),
        (replace(DENSE, mixer=None), ["mlp"]),
        (replace(DENSE, mlp=None), ["attention"]),
    ],
)
def test_what_stands_around_a_layer_is_a_block_of_its_own(layer: LayerSpec, blocks: list[str]) -> None:
    assert [block.name for block in layer_blocks("layer", layer, embed_dim=D)] == blocks


def test_hyper_connections_mix_the_streams_before_each_branch() -> None:
    found = operations(replace(DENSE, hyper_streams=4))

    assert {"attention/hyper/coefficients", "mlp/hyper/coefficients"} <= set(found)


def test_layers_with_their_own_keys_are_not_named_for_it() -> None:
    shared = replace(DENSE, mixer=replace(ATTENTION, own_kv=False))

    assert layer_names([DENSE, shared]) == ("layer", "shared_layer")
