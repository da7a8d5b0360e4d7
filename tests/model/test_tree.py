"""The tree of operations: names, grouping, and sums that are the published parameter counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.model.flop_convention import CONVENTIONS, training_flops_per_token
from ridgeline.model.operations import Attention, ExpertMatmul, Matmul, Span
from ridgeline.model.parameters import count_parameters, counted_operations
from ridgeline.model.spec import (
    AttentionSpec,
    GatedDeltaSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
)
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model

ATTENTION = AttentionSpec(num_heads=32, num_kv_heads=8, head_dim=128)
DENSE = LayerSpec(mixer=ATTENTION, mlp=MlpSpec(mlp_dim=14336))
LLAMA_3_1_8B = ModelSpec(name="llama3.1-8b", embed_dim=4096, vocab_size=128256, layers=((DENSE, 32),))
DEEPSEEK_V3_MLA = MlaSpec(
    num_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)
DEEPSEEK_V3 = ModelSpec(
    name="deepseek3-671b",
    embed_dim=7168,
    vocab_size=129280,
    layers=(
        (LayerSpec(mixer=DEEPSEEK_V3_MLA, mlp=MlpSpec(mlp_dim=18432)), 3),
        (
            LayerSpec(
                mixer=DEEPSEEK_V3_MLA,
                mlp=MoeSpec(num_experts=256, top_k=8, expert_mlp_dim=2048, shared_mlp_dim=2048),
            ),
            58,
        ),
    ),
)


def layer_names(*layers: LayerSpec) -> list[str]:
    spec = replace(LLAMA_3_1_8B, layers=tuple((layer, 1) for layer in layers))
    return [layer.name for layer in model_tree(spec).layers]


def test_llama_3_1_8b_has_the_8030261248_parameters_its_checkpoint_has() -> None:
    assert count_parameters(model_tree(LLAMA_3_1_8B)).total == 8_030_261_248


def test_deepseek_v3_has_671_billion_parameters_of_which_37_are_active() -> None:
    # DeepSeek-V3 report (arXiv:2412.19437), abstract: 671B in total, 37B activated (37.55B with both tables).
    count = count_parameters(model_tree(DEEPSEEK_V3))

    assert round(count.total / 1e9) == 671
    assert round(count.active / 1e9, 1) == 37.6


def test_a_module_that_predicts_a_further_token_has_the_published_parameters_beside_the_shared_tables() -> None:
    """11.5B of its own: deepseek-ai/DeepSeek-V3, README_WEIGHTS.md."""
    alone, predicting = DEEPSEEK_V3, replace(DEEPSEEK_V3, mtp_depth=1)
    own = count_parameters(model_tree(predicting)).total - count_parameters(model_tree(alone)).total

    assert own == pytest.approx(11.5e9, rel=0.01)
    assert [block.name for block in model_tree(predicting).layers[-1].blocks] == ["join", "attention", "moe", "head"]
    assert model_tree(alone).layers == model_tree(predicting).layers[:-1]


@pytest.mark.parametrize(("tflops_per_s", "tokens_per_s"), [(1281, 3552), (923, 2528)])
def test_two_further_tokens_make_the_flops_that_nvidia_counts_for_nemotron_3_ultra(
    tflops_per_s: float, tokens_per_s: float
) -> None:
    """NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md at 067f987df: rates of model FLOPs and of tokens."""
    tree = model_tree(replace(load_model("nemotron3-ultra-550b-a55b"), mtp_depth=2))
    counted = training_flops_per_token(tree, seq_len=8192, convention=CONVENTIONS["megatron"])

    assert counted == pytest.approx(tflops_per_s * 1e12 / tokens_per_s, rel=0.02)


def test_a_hybrid_predicts_with_an_attention_layer_and_one_of_experts() -> None:
    tree = model_tree(replace(load_model("nemotron3.5-lightning-30b-a3b"), mtp_depth=2))

    assert (tree.layers[-1].name, tree.layers[-1].count) == ("mtp_layer", 2)
    assert [block.name for block in tree.layers[-1].blocks] == ["join", "attention", "moe", "head"]


def test_an_operation_of_a_layer_carries_the_path_of_its_block_in_the_name_of_its_weight() -> None:
    (layer,) = model_tree(LLAMA_3_1_8B).layers

    query = layer.blocks[0].operations[1]

    assert isinstance(query, Matmul)
    assert (query.path, query.weight.name) == ("query", "layer/attention/query")
    assert query.weight.axes == ("embed", "heads", "head_dim")


def test_projections_are_saved_under_the_names_maxtext_gives_them() -> None:
    outputs = [op.output.name for op, _ in counted_operations(model_tree(LLAMA_3_1_8B)) if isinstance(op, Matmul)]

    assert outputs == [
        *("query_proj", "key_proj", "value_proj", "out_proj"),
        *("mlpwi_0", "mlpwi_1", "mlpwo", "logits"),
    ]


def test_equal_layers_are_one_group_even_when_others_stand_between_them() -> None:
    local = replace(DENSE, mixer=replace(ATTENTION, span=Span(kind="sliding", window=1024)))
    gemma_like = replace(LLAMA_3_1_8B, layers=((local, 5), (DENSE, 1), (local, 5), (DENSE, 1)))

    assert [(layer.name, layer.count) for layer in model_tree(gemma_like).layers] == [
        ("local_layer", 10),
        ("global_layer", 2),
    ]


def test_groups_are_named_after_what_differs_between_them() -> None:
    moe = replace(DENSE, mlp=MoeSpec(num_experts=8, top_k=2, expert_mlp_dim=1024))
    mamba = replace(DENSE, mixer=MambaSpec(version=2, inner_dim=64, state_dim=16, conv_kernel=4, num_heads=4))
    delta = replace(
        DENSE,
        mixer=GatedDeltaSpec(num_key_heads=2, num_value_heads=4, key_head_dim=8, value_head_dim=8, conv_kernel=4),
    )

    assert layer_names(DENSE) == ["layer"]
    assert layer_names(DENSE, moe) == ["dense_layer", "moe_layer"]
    assert layer_names(mamba, DENSE) == ["mamba_layer", "attention_layer"]
    assert layer_names(delta, DENSE) == ["delta_layer", "attention_layer"]
    assert layer_names(mamba, replace(mamba, mlp=moe.mlp), moe) == [
        *("mamba_dense_layer", "mamba_moe_layer", "attention_moe_layer"),
    ]


def test_groups_that_differ_only_in_width_are_numbered() -> None:
    wider = replace(DENSE, mlp=MlpSpec(mlp_dim=20480))

    assert layer_names(DENSE, wider) == ["layer", "layer_2"]


def test_the_layers_of_a_hybrid_that_have_no_attention_are_named_by_their_mlp() -> None:
    only_mlp = LayerSpec(mixer=None, mlp=MlpSpec(mlp_dim=1024), pre_norms=1)

    assert layer_names(replace(DENSE, mlp=None), only_mlp) == ["layer", "mlp_layer"]


def test_latent_attention_caches_the_latent_and_the_shared_position_key() -> None:
    attention = next(op for op, _ in counted_operations(model_tree(DEEPSEEK_V3)) if isinstance(op, Attention))

    assert attention.cache_elements == 512 + 64
    assert (attention.qk_head_dim, attention.v_head_dim) == (192, 128)


def test_a_tied_table_is_counted_once() -> None:
    untied, tied = (replace(LLAMA_3_1_8B, tied_embeddings=flag) for flag in (False, True))

    assert (
        count_parameters(model_tree(untied)).total - count_parameters(model_tree(tied)).total
        == LLAMA_3_1_8B.vocab_size * LLAMA_3_1_8B.embed_dim
    )


def test_expert_weights_put_the_experts_first() -> None:
    experts = [op for op, _ in counted_operations(model_tree(DEEPSEEK_V3)) if isinstance(op, ExpertMatmul)]

    assert [op.path for op in experts] == ["experts/gate", "experts/up", "experts/down"]
    assert {op.weight.axes[0] for op in experts} == {"experts"}


@given(layers=st.integers(1, 200), more=st.integers(1, 200))
def test_parameters_grow_by_the_same_amount_with_each_layer(layers: int, more: int) -> None:
    def total(count: int) -> int:
        return count_parameters(model_tree(replace(LLAMA_3_1_8B, layers=((DENSE, count),)))).total

    per_layer = total(2) - total(1)

    assert total(layers + more) - total(layers) == more * per_layer


@given(experts=st.integers(1, 256), top_k=st.integers(1, 256))
def test_active_parameters_never_exceed_all_parameters(experts: int, top_k: int) -> None:
    moe = MoeSpec(num_experts=experts, top_k=min(top_k, experts), expert_mlp_dim=64)
    count = count_parameters(model_tree(replace(LLAMA_3_1_8B, layers=((replace(DENSE, mlp=moe), 2),))))

    assert count.active <= count.total
    assert (count.active == count.total) == (min(top_k, experts) == experts)


@pytest.mark.parametrize("norms", [1, 2])
def test_branches_in_parallel_are_one_block_with_one_norm_or_two(norms: int) -> None:
    (layer,) = model_tree(replace(LLAMA_3_1_8B, layers=((replace(DENSE, parallel=True, pre_norms=norms), 1),))).layers

    (block,) = layer.blocks

    assert block.name == "parallel"
    assert sum(op.path.rsplit("/", 1)[-1] == "norm" for op in block.operations) == norms
