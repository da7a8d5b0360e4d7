"""What JAX recorded becomes a part of the model and a phase of the step."""

from __future__ import annotations

import pytest

from ridgeline.hlo.parts import place_of

SCAN = "while/body/closed_call/checkpoint"


@pytest.mark.parametrize(
    ("op_name", "part", "phase"),
    [
        ("jit(step)/jvp(layer)/attention/query/dot_general", "layer/attention/query", "forward"),
        ("jit(step)/jit(main)/jvp(layer)/attention/query/dot_general", "layer/attention/query", "forward"),
        ("jit(step)/jvp()/while/body/eval_jaxpr/layer/mlp/up/dot_general", "layer/mlp/up", "forward"),
        ("jit(step)/jvp(layer/mlp)/up/jit(relu)/max", "layer/mlp/up", "forward"),
        (f"jit(step)/transpose(jvp())/{SCAN}/layer/mlp/up/dot_general", "layer/mlp/up", "backward"),
        (
            f"jit(step)/transpose(jvp())/{SCAN}/rematted_computation/layer/mlp/up/dot_general",
            "layer/mlp/up",
            "recompute",
        ),
        ("jit(step)/transpose(jvp(head))/logits/bsd,dv->bsv/dot_general", "head/logits", "backward"),
        ("jit(step)/jvp(vmap(layer))/scores/shard_map/pallas_call", "layer/scores", "forward"),
        ("jit(step)/jvp(layer)/moe/cond/branch_1_fun/experts/dot_general", "layer/moe/experts", "forward"),
        (
            "jit(f)/jvp(layer/attention/scores)/vmap(static_sparsity_splash)/splash_mha_fwd/splash_mha_fwd/pallas_call",
            "layer/attention/scores",
            "forward",
        ),
        ("jit(step)/optimizer/mul", "optimizer", "optimizer"),
        ("jit(step)/add", "", "optimizer"),
        ("jit(step)/jvp()/add", "", "forward"),
        ("params['layer']['up']", "layer/up", ""),
        ("state['weights']['layer/mlp/up']", "layer/mlp/up", ""),
        (r"state[\'model\'][\'decoder\'][\'logits_dense\'][\'kernel\'].value", "head/logits", ""),
        (r"state[\'opt_state\'][0].mu[\'decoder\'][\'layers\'][\'mlp\'][\'wi_0\'][\'kernel\']", "layer/mlp/gate", ""),
        ("data['targets']", "", ""),
        ("broadcast.6", "", ""),
        ("", "", ""),
        # of several, the first that names a part
        ("jit(f)/transpose(jvp())/mul;jit(f)/jvp(head)/loss/sub", "head/loss", "forward"),
    ],
)
def test_scopes_are_the_part_and_transformations_the_phase(op_name: str, part: str, phase: str) -> None:
    place = place_of(op_name, trains=True)

    assert (place.part, place.phase) == (part, phase)


def test_all_of_a_program_that_does_not_differentiate_is_forward() -> None:
    assert place_of("jit(decode)/layer/mlp/up/dot_general", trains=False).phase == "forward"


MAXTEXT = "jit(train_step)/jvp(TransformerLinenPure.apply)/TransformerLinenPure/decoder"


@pytest.mark.parametrize(
    ("scopes", "part"),
    [
        ("while/body/closed_call/checkpoint/layers/self_attention/query/dot_general", "layer/attention/query"),
        ("layers/self_attention/attention_op/shard_map/pallas_call", "layer/attention/scores"),
        ("decoder.run/layers/mlp/wi_0/dot_general", "layer/mlp/gate"),
        ("layers/mlp/wi_1/dot_general", "layer/mlp/up"),
        ("layers/mlp/wo/dot_general", "layer/mlp/down"),
        ("layers/pre_self_attention_layer_norm/mul", "layer/attention/norm"),
        ("layers/post_self_attention_layer_norm/mul", "layer/mlp/norm"),
        ("moe_layers/self_attention/out/dot_general", "layer/attention/out"),
        ("decoder_norm/mul", "head/norm"),
        ("logits_dense/dot_general", "head/logits"),
        ("dot_general", "head/logits"),  # of a tied head
        ("while/body/dot_general", "layer"),
        ("convert_element_type", "layer"),
    ],
)
def test_scopes_of_maxtext_become_paths_of_the_models_tree(scopes: str, part: str) -> None:
    assert place_of(f"{MAXTEXT}/{scopes}", trains=True).part == part
