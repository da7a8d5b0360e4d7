"""A model written as a table: what its keys mean, and what a wrong one is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.model.operations import Span
from ridgeline.model.spec import AttentionSpec, GatedDeltaSpec, LayerSpec, MambaSpec, MlpSpec, MoeSpec, NormSpec
from ridgeline.model.table import model_from_table

if TYPE_CHECKING:
    from ridgeline.model.table import Table

ATTENTION = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
MOE = {"num_experts": 4, "top_k": 2, "expert_mlp_dim": 16}
PLAIN: Table = {
    "embed_dim": 32,
    "vocab_size": 100,
    "num_layers": 4,
    "attention": ATTENTION,
    "mlp": {"mlp_dim": 64},
}


def read(**changes: object) -> list[LayerSpec]:
    """Each layer of the plain model with some keys changed."""
    spec = model_from_table({**PLAIN, **changes}, name="tiny", where="job.toml: model")
    return [layer for layer, count in spec.layers for _ in range(count)]


def refusal(**changes: object) -> InputError:
    with pytest.raises(InputError) as caught:
        read(**changes)
    return caught.value


def test_layers_are_alike_unless_the_table_says_otherwise() -> None:
    layer = LayerSpec(mixer=AttentionSpec(**ATTENTION), mlp=MlpSpec(mlp_dim=64))

    assert read() == [layer] * 4


def test_a_kind_changes_only_what_it_names() -> None:
    span = {"kind": "sliding", "window": 10}
    local, other = read(pattern=["local", "global"], layer={"local": {"attention": {"span": span}}})[:2]

    assert local.mixer == AttentionSpec(**ATTENTION, span=Span(kind="sliding", window=10))
    assert other.mixer == AttentionSpec(**ATTENTION)
    assert local.mlp == other.mlp


def test_a_kind_may_have_another_sort_of_mixer_and_channel() -> None:
    delta = {"num_key_heads": 1, "num_value_heads": 2, "key_head_dim": 4, "value_head_dim": 4, "conv_kernel": 4}
    layers = read(leading=["odd"], pattern=["usual"], layer={"odd": {"gated_delta": delta, "moe": MOE}})

    assert layers[0] == LayerSpec(mixer=GatedDeltaSpec(**delta), mlp=MoeSpec(**MOE))
    assert layers[1:] == read()[1:]


def test_a_second_mixer_may_run_beside_the_first() -> None:
    mamba = {"version": 2, "inner_dim": 16, "state_dim": 4, "conv_kernel": 4, "num_heads": 2}
    layer = read(beside={"mamba": mamba})[0]

    assert layer.mixer == AttentionSpec(**ATTENTION)
    assert layer.beside == MambaSpec(**mamba)


def test_the_final_norm_is_of_the_layers_kind_unless_given() -> None:
    def final_norm(**changes: object) -> NormSpec | None:
        return model_from_table({**PLAIN, **changes}, name="tiny", where="test").final_norm

    assert final_norm() == NormSpec()
    assert final_norm(norm={"bias": True}) == NormSpec(bias=True)
    assert final_norm(norm={"bias": True}, final_norm={}) == NormSpec()


def test_an_unknown_key_is_answered_with_a_near_one() -> None:
    error = refusal(attention={**ATTENTION, "num_kv_head": 2})

    assert error.what == "unknown key"
    assert error.where == "job.toml: model.layer.layer.attention"
    assert "num_kv_heads" in error.fix


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("embed_dim", 0),
        ("embed_dim", -32),
        ("embed_dim", 32.0),
        ("embed_dim", True),
        ("embed_dim", 2**50),
        ("embed_dim", "32"),
        ("num_layers", 0),
        ("num_layers", 10**9),
        ("num_layers", None),
        ("pattern", []),
        ("pattern", "local"),
        ("pattern", [1]),
        ("layer", {"nowhere": {}}),
        ("layer", 3),
        ("attention", 3),
        ("attention", {"num_heads": 4, "head_dim": 8}),
        ("attention", {**ATTENTION, "qk_norm": "half"}),
        ("attention", {**ATTENTION, "span": {"kind": "sideways"}}),
        ("mlp", {"mlp_dim": 64, "gated": 1}),
        ("norm", "rms"),
        ("notes", "one"),
        ("name", "other"),
        ("layers", []),
        ("moe", MOE),
        ("beside", {"mamba": {}}),
        ("beside", {"nothing": 1}),
        ("beside", {"mamba": {}, "mla": {}}),
    ],
)
def test_a_wrong_value_is_an_input_error(key: str, value: object) -> None:
    assert refusal(**{key: value}).where.startswith("job.toml: model")


def test_heads_that_groups_do_not_divide_are_refused() -> None:
    error = refusal(attention={**ATTENTION, "num_heads": 5})
    assert (error.what, error.expected) == ("unusable `num_heads`", "a multiple of the 2 key-value heads")


def test_more_experts_a_token_than_there_are_are_refused() -> None:
    experts = {"embed_dim": 32, "vocab_size": 100, "num_layers": 4, "attention": ATTENTION, "moe": {**MOE, "top_k": 5}}
    with pytest.raises(InputError) as caught:
        model_from_table(experts, name="tiny", where="job.toml: model")
    assert caught.value.expected == "no more than the 4 experts"


def test_kinds_of_one_letter_may_be_written_as_hybrids_are_published() -> None:
    mamba = {"version": 2, "inner_dim": 16, "state_dim": 4, "conv_kernel": 4, "num_heads": 2}
    kinds = {"M": {"mamba": mamba}, "*": {"attention": ATTENTION}}
    as_text, as_list = ({"pattern": pattern, "layer": kinds} for pattern in ("MM*M", ["M", "M", "*", "M"]))

    assert read(**as_text) == read(**as_list)
    assert isinstance(read(**as_text)[2].mixer, AttentionSpec)
