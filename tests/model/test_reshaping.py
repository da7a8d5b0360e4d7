"""Other shapes of a model's size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.model.parameters import count_parameters
from ridgeline.model.reshaping import DIMENSIONS, reshaped
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model

BAND, TILE = 0.03, 128
MODELS = ("llama3.1-8b", "mixtral-8x7b", "deepseek3-671b", "gemma3-27b")


def sizes(model: ModelSpec) -> tuple[int, int]:
    count = count_parameters(model_tree(model))
    return count.total, count.active


def commonest(model: ModelSpec) -> LayerSpec:
    return max(model.layers, key=lambda run: run[1])[0]


def attention(model: ModelSpec) -> AttentionSpec:
    mixer = commonest(model).mixer
    assert isinstance(mixer, AttentionSpec)
    return mixer


@given(
    st.sampled_from(MODELS),
    st.dictionaries(st.sampled_from(DIMENSIONS), st.sampled_from([0.5, 0.75, 1.5, 2.0]), min_size=1, max_size=2),
)
def test_every_shape_has_the_size_of_the_model_and_whole_tiles(name: str, factors: dict[str, float]) -> None:
    model = load_model(name)
    shape = reshaped(model, factors, tile=TILE, band=BAND)
    if shape is None:
        return
    mlp = commonest(shape).mlp

    assert [after / before for after, before in zip(sizes(shape), sizes(model), strict=True)] == pytest.approx(
        [1.0, 1.0], abs=BAND
    )
    assert shape.embed_dim % TILE == 0
    assert (mlp.mlp_dim if isinstance(mlp, MlpSpec) else getattr(mlp, "expert_mlp_dim", 0)) % TILE == 0


def test_half_the_layers_are_wider_by_the_root_of_two() -> None:
    """Llama 3.1 8B: 4096·√2 is 5793; 6144 is near, and halves eleven times."""
    shape = reshaped(load_model("llama3.1-8b"), {"num_layers": 0.5}, tile=256, band=BAND)

    assert shape is not None
    assert (shape.num_layers, shape.embed_dim) == (16, 6144)


def test_wider_heads_are_fewer_and_cost_the_same_parameters() -> None:
    model = load_model("llama3.1-8b")
    shape = reshaped(model, {"head_dim": 2}, tile=TILE, band=BAND)

    assert shape is not None
    assert sizes(shape) == sizes(model)
    assert (attention(shape).num_heads, attention(shape).num_kv_heads, attention(shape).head_dim) == (16, 4, 256)


def test_finer_experts_are_more_and_a_token_visits_more_of_them() -> None:
    shape = reshaped(load_model("deepseek3-671b"), {"num_experts": 2}, tile=TILE, band=BAND)

    assert shape is not None
    experts = commonest(shape).mlp
    assert isinstance(experts, MoeSpec)
    assert (experts.num_experts, experts.top_k, experts.expert_mlp_dim) == (512, 16, 1024)


def test_a_pattern_of_layers_is_repeated_less_often_and_not_thinned() -> None:
    """Gemma 3: five local layers in front of each global one."""
    shape = reshaped(load_model("gemma3-27b"), {"num_layers": 0.5}, tile=TILE, band=BAND)

    assert shape is not None
    assert [count for _, count in shape.layers][:4] == [5, 1, 5, 1]


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("llama3.1-8b", {"num_experts": 2.0}),  # it has none
        ("deepseek3-671b", {"num_kv_heads": 2.0}),  # latents are not heads
        ("llama3.1-8b", {"num_layers": 1.0}),  # the same model
        ("mixtral-8x7b", {"num_heads": 4.0}),  # a token would visit more
    ],
)
def test_what_makes_no_shape_of_the_size_is_none(name: str, factors: dict[str, float]) -> None:
    assert reshaped(load_model(name), factors, tile=TILE, band=BAND) is None
