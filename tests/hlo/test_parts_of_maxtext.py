"""Scopes that MaxText's modules get when Ridgeline compiles them, and the parts of the model's tree that they are."""

from __future__ import annotations

import pytest

from ridgeline.hlo.parts import place_of

FORWARD = "jit(train_step)/jvp(decoder)/while/body/eval_jaxpr/"
AGAIN = "jit(train_step)/transpose(jvp(decoder))/while/body/eval_jaxpr/checkpoint/rematted_computation/"


@pytest.mark.parametrize(
    ("scopes", "part"),
    [
        ("LlamaDecoderLayer/self_attention/query/dot_general", "layer/attention/query"),
        ("LlamaDecoderLayer/self_attention/rotary_embedding/mul", "layer/attention/rotary"),
        ("LlamaDecoderLayer/pre_self_attention_layer_norm/mul", "layer/attention/norm"),
        ("LlamaDecoderLayer/mlp/wi_0/dot_general", "layer/mlp/gate"),
        ("LlamaDecoderLayer/mlp/wi_1/dot_general", "layer/mlp/up"),
        ("LlamaDecoderLayer/mlp/wo/dot_general", "layer/mlp/down"),
        ("MixtralDecoderLayer/MoeBlock_0/gate/dot_general", "layer/moe/router"),
        ("MixtralDecoderLayer/MoeBlock_0/ffn_act/mul", "layer/moe/experts/activation"),
        ("Gemma2DecoderLayer/self_attention_local/key/dot_general", "layer/attention/key"),
        ("Gemma2DecoderLayer/mlp_global/wo/dot_general", "layer/mlp/down"),
        ("Gemma3ScannableBlock/layers_5/self_attention/query_norm/mul", "layer/attention/qk_norm"),
        ("Gemma3ScannableBlock/layers_5/post_ffw_norm/mul", "layer/mlp/post_norm"),
        ("DeepSeekMoELayer/self_attention/wq_a/dot_general", "layer/attention/query_down"),
        ("DeepSeekMoELayer/self_attention/wkv_b/dot_general", "layer/attention/key_up"),
        ("DeepSeekMoELayer/DeepSeekMoeBlock_0/MoeBlock_0/gate/dot_general", "layer/moe/router"),
        ("DeepSeekMoELayer/DeepSeekMoeBlock_0/shared_experts/wo/dot_general", "layer/moe/shared/down"),
    ],
)
def test_a_module_of_a_layer_is_a_part_of_the_model(scopes: str, part: str) -> None:
    assert place_of(FORWARD + scopes, trains=True).part == part
    again = place_of(AGAIN + scopes, trains=True)
    assert (again.part, again.phase) == (part, "recompute")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("jit(train_step)/jvp(decoder)/Embed/gather", "embedding/tokens"),
        ("jit(train_step)/jvp(decoder)/decoder_norm/mul", "head/norm"),
        ("jit(train_step)/transpose(jvp(decoder))/logits_dense/dot_general", "head/logits"),
        ("jit(train_step)/jvp(decoder)/while/body/jit(dynamic_index_in_dim)/dynamic_slice", "layer"),
    ],
)
def test_what_lies_around_the_layers_is_named_too(path: str, part: str) -> None:
    assert place_of(path, trains=True).part == part
