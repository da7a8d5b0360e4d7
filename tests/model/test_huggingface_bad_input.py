"""A config.json that is broken, hostile or absurd: one clear error each, never a traceback."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import InputError
from ridgeline.model.huggingface import read_config
from ridgeline.model.huggingface.json_file import LARGEST_FILE_BYTES
from ridgeline.model.huggingface.reader import spec_from_object
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree

CONFIGS = sorted((Path(__file__).parent / "data" / "hf_configs").glob("*.json"))
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "config.json is not valid JSON"),
        (b'{"model_type": "llama", "hidden_size": 40', "config.json is not valid JSON"),
        (b"model_type: llama", "config.json is not valid JSON"),
        (b"[" * 100_000, "config.json is nested too deeply"),
        (b'{"a":' * 100_000, "config.json is nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "config.json is not valid JSON"),
        (b"[1, 2]", "config.json is not an object"),
        (b"3", "config.json is not an object"),
        (b"null", "config.json is not an object"),
        (b"\x80\x02\x63torch._utils\n", "the file is not text"),
        (b"\x00\xff" * 100, "the file is not text"),
        (b"\xff\xfe{\x00}\x00", "the file is not text"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_a_file_that_is_not_a_json_object_gets_one_error(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)

    with pytest.raises(InputError) as caught:
        read_config(path)

    assert caught.value.what == what
    assert caught.value.where == str(path)


def test_a_missing_file_gets_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "config.json")


def test_a_directory_gets_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a directory"):
        read_config(tmp_path)


def test_a_device_is_not_read() -> None:
    with pytest.raises(InputError, match="this is not a regular file"):
        read_config(Path("/dev/zero"))


def test_a_path_with_a_null_byte_gets_one_error() -> None:
    with pytest.raises(InputError, match=r"no such file|the file cannot be read"):
        read_config(Path("config\0.json"))


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE_BYTES + 1)

    with pytest.raises(InputError) as caught:
        read_config(path)

    assert caught.value.what == "the file is too large"
    assert caught.value.expected == f"at most {LARGEST_FILE_BYTES} bytes"


def test_many_nested_sections_get_one_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"text_config": ' * 900 + "{}" + "}" * 900)

    with pytest.raises(InputError):
        read_config(path)


def test_a_pattern_of_a_million_letters_gets_one_error() -> None:
    with pytest.raises(InputError, match="one for each layer"):
        spec_from_object(
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M" * 1_000_000}, name="model", where="config.json"
        )


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8-sig")

    assert read_config(path).vocab_size == 1000


@pytest.mark.parametrize(
    "value", [0, -4096, 10**12, 1.5, float("inf"), float("nan"), "4096", True, [4096], {"value": 4096}], ids=str
)
@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]
)
def test_a_dimension_that_no_model_has_gets_one_error(key: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        spec_from_object({**LLAMA, key: value}, name="model", where="config.json")

    assert caught.value.where == f"config.json: {key}"


@pytest.mark.parametrize(
    ("keys", "where", "expected"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads", "a divisor of the 8 attention heads"),
        ({"hidden_size": 4}, "num_attention_heads", "at most hidden_size = 4"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok", "at most the 4 experts there are"),
        ({"num_experts": 4}, "num_experts_per_tok", "a whole number"),
        ({"layer_types": ["full_attention"]}, "layer_types", "one for each of the 4 layers"),
        ({"layer_types": ["astral_attention"] * 4}, "layer_types", "one of "),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types", "one of "),
        ({"layer_types": [1, 2, 3, 4]}, "layer_types", "a list of words"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings", "true or false"),
        ({"attention_bias": 1}, "attention_bias", "true or false"),
        ({"num_experts": 4, "num_experts_per_tok": 2, "moe_layer_freq": [0, 1]}, "moe_layer_freq", "one for each"),
        ({"num_experts": 4, "num_experts_per_tok": 2, "moe_layers_enum": "1;2"}, "moe_layers_enum", "a list of layer"),
        ({"block_configs": [1, 2, 3, 4]}, "block_configs", "a list of objects"),
    ],
    ids=str,
)
def test_values_that_contradict_each_other_get_an_error_that_names_the_key(
    keys: dict[str, Any], where: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        spec_from_object({**LLAMA, **keys}, name="model", where="config.json")

    assert caught.value.where == f"config.json: {where}"
    assert caught.value.expected.startswith(expected)


def test_an_error_in_a_nested_part_says_where_it_is_nested() -> None:
    nested = {"model_type": "llava", "text_config": {**LLAMA, "vocab_size": -1}}

    with pytest.raises(InputError) as caught:
        spec_from_object(nested, name="model", where="config.json")

    assert str(caught.value) == (
        "config.json: a value is not usable\n"
        "  where:    config.json: text_config: vocab_size\n"
        "  value:    -1\n"
        "  expected: a whole number from 1 to 67108864\n"
        "  fix:      mend the file, or take the one the model was published with"
    )


# --- any change of a real file ----------------------------------------------------------------------------------------

JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["auto", "full_attention", "LLLG", "M-*E"]),
    st.lists(st.integers(0, 2), max_size=120),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "linear_attention"]), max_size=120),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(data=st.data(), path=st.sampled_from(CONFIGS))
def test_any_change_of_a_real_file_gives_a_model_or_one_error(data: st.DataObject, path: Path) -> None:
    content = copy.deepcopy(json.loads(path.read_text()))
    part = content["text_config"] if isinstance(content.get("text_config"), dict) else content
    for key in data.draw(st.lists(st.sampled_from(sorted(part)), min_size=1, max_size=3)):
        part[key] = data.draw(JSON_VALUES, label=key)

    try:
        count = count_parameters(model_tree(spec_from_object(content, name="model", where="config.json")))
    except InputError:
        return

    assert 0 < count.active <= count.total


@given(path=st.sampled_from(CONFIGS), key=st.sampled_from(["hidden_size", "num_hidden_layers", "vocab_size"]))
def test_a_real_file_without_one_of_its_keys_gives_a_model_or_one_error(path: Path, key: str) -> None:
    content = json.loads(path.read_text())
    content.pop(key, None)

    try:
        model = spec_from_object(content, name="model", where="config.json")
    except InputError:
        return

    assert model.num_layers > 0


@given(layers=st.integers(1, 100))
def test_a_layer_more_is_the_same_number_of_parameters_more(layers: int) -> None:
    def total(count: int) -> int:
        config = {**LLAMA, "num_hidden_layers": count}
        return count_parameters(model_tree(spec_from_object(config, name="model", where="config.json"))).total

    assert total(layers + 1) - total(layers) == total(2) - total(1)
