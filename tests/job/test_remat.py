"""Remat policies: what each keeps, and how a user's own is read."""

import pytest

from ridgeline.errors import InputError
from ridgeline.job.job import Remat
from ridgeline.job.remat import (
    ALIASES,
    CHECKPOINT_NAMES,
    CUSTOM_NAMES,
    POLICIES,
    keeps_unnamed,
    parse_remat,
    placements,
)
from tests.messages import refusal

QKV = {"query_proj", "key_proj", "value_proj", "kv_proj"}
MLP = {"mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "moe_mlpwi_0", "moe_mlpwo"}
DOTS = QKV | {"qkv_proj", "out_proj"} | MLP

# MaxText, layers/nnx_decoders.py lines 1140-1268 at commit e591f30cb. The expert values that share a name
# with the dense ones (moe.py lines 1958-2243) are kept with them.
KEPT_ON_DEVICE = {
    "full": set[str](),
    "minimal": DOTS,
    "minimal_with_context": DOTS | {"context"},
    "minimal_with_quantization": DOTS | {"quantization"},
    "minimal_with_context_and_quantization": DOTS | {"context", "quantization"},
    "save_dot_with_context_except_mlp": QKV | {"qkv_proj", "context", "out_proj"},
    "save_dot_except_mlpwi": QKV | {"qkv_proj", "out_proj", "mlpwo", "moe_mlpwo"},
    "save_dot_except_mlp": QKV | {"qkv_proj", "out_proj"},
    "save_qkv_proj": QKV | {"qkv_proj"},
    "save_out_proj": {"out_proj"},
    "none": set(CHECKPOINT_NAMES) - {"decoder_layer_input"},
}
OFFLOADED = {"qkv_proj_offloaded": QKV, "minimal_offloaded": DOTS}


def names_at(place: str, remat: Remat) -> set[str]:
    return {name for name, placed in placements(remat).items() if placed == place}


@pytest.mark.parametrize(("policy", "names"), KEPT_ON_DEVICE.items())
def test_a_preset_keeps_on_the_device_what_maxtext_keeps(policy: str, names: set[str]) -> None:
    assert names_at("device", Remat(policy=policy)) == names | {"decoder_layer_input"}
    assert names_at("offload", Remat(policy=policy)) == set()


@pytest.mark.parametrize(("policy", "names"), OFFLOADED.items())
def test_an_offloading_preset_moves_the_same_names_to_the_host(policy: str, names: set[str]) -> None:
    assert names_at("offload", Remat(policy=policy)) == names
    assert names_at("device", Remat(policy=policy)) == {"decoder_layer_input"}


def test_every_preset_is_covered_by_these_tables() -> None:
    assert {*KEPT_ON_DEVICE, *OFFLOADED, "custom"} == set(POLICIES)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "custom"])
def test_a_policy_places_every_checkpoint_name(policy: str) -> None:
    assert placements(Remat(policy=policy)).keys() == set(CHECKPOINT_NAMES)


def test_only_no_checkpointing_at_all_keeps_values_without_a_name() -> None:
    assert [policy for policy in POLICIES if keeps_unnamed(Remat(policy=policy))] == ["none"]


@pytest.mark.parametrize(("alias", "policy"), ALIASES.items())
def test_a_retired_name_means_its_successor(alias: str, policy: str) -> None:
    assert parse_remat(alias, {}, where="--remat") == Remat(policy=policy)


def test_a_custom_policy_recomputes_what_it_does_not_place_and_keeps_the_layer_input() -> None:
    remat = parse_remat("custom", {"context": "device", "query_proj": "offload"}, where="plan.remat")

    assert names_at("device", remat) == {"decoder_layer_input", "context"}
    assert names_at("offload", remat) == {"query_proj"}


def test_the_layer_input_can_be_offloaded_in_a_custom_policy() -> None:
    remat = parse_remat("custom", {"decoder_layer_input": "offload"}, where="plan.remat")

    assert placements(remat)["decoder_layer_input"] == "offload"


def test_an_expert_value_with_two_names_is_kept_if_either_is() -> None:
    remat = Remat(policy="custom", tensors={"mlpwi_0": "offload", "moe_mlpwi_0": "remat", "mlpwi_1": "device"})

    assert placements(remat)["moe_mlpwi_0"] == "offload"
    assert placements(remat)["moe_mlpwi_1"] == "remat"


@pytest.mark.parametrize(
    ("policy", "tensors", "what", "value", "expected", "fix"),
    [
        (
            "minimum",
            {},
            "unknown remat policy",
            "minimum",
            ", ".join(POLICIES),
            "did you mean minimal?",
        ),
        (
            "full",
            {"context": "device"},
            "a preset policy does not take tensors",
            "full",
            'policy = "custom" beside tensors',
            'use policy = "custom", or leave out context',
        ),
        (
            "custom",
            {},
            "the custom policy places no tensor",
            "custom",
            "at least one tensor with device, offload or remat",
            'add e.g. context = "device", or use policy = "full"',
        ),
        (
            "custom",
            {"querry_proj": "device"},
            "unknown tensor in a remat policy",
            "querry_proj",
            ", ".join(CUSTOM_NAMES),
            "did you mean query_proj, query_wa_proj, key_proj?",
        ),
        (
            "custom",
            {"context": "host"},
            "unknown placement of context",
            "host",
            "device, offload, remat",
            "use one of device, offload, remat",
        ),
        (
            "custom",
            {"decoder_layer_input": "remat"},
            "unknown placement of decoder_layer_input",
            "remat",
            "device, offload",
            "use one of device, offload",
        ),
    ],
)
def test_a_malformed_policy_is_refused_with_the_way_out(
    policy: str, tensors: dict[str, str], what: str, value: str, expected: str, fix: str
) -> None:
    with pytest.raises(InputError) as refused:
        parse_remat(policy, tensors, where="plan.remat")

    assert str(refused.value) == refusal(what, where="plan.remat", value=value, expected=expected, fix=fix)
