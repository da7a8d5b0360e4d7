"""The zoo: every name finds its model, and every model has the parameters it is published with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ridgeline.errors import InputError
from ridgeline.model.parameters import count_parameters
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, MoeSpec
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import _families, _key, _read, load_model, model_names, resolve_model

# Parameters of the language model, as Hugging Face's transformers 5.24.0 instantiates the published config.json
# (meta device, tied tables once, no multi-token-prediction heads).
INSTANTIATED = {
    "bloom-176b": 176247271424,
    "codellama-34b": 33743970304,
    "command-r-35b": 34980831232,
    "command-r-plus-104b": 103810674688,
    "dbrx-132b": 131596523520,
    "deepseek3-671b": 671026404352,
    "deepseek3.2-671b": 671877929216,
    "deepseek4-1.6t": 1572997179491,
    "falcon-40b": 41303293952,
    "falcon-7b": 6921720704,
    "gemma3-12b": 11765788416,
    "gemma3-1b": 999885952,
    "gemma3-270m": 268098176,
    "gemma3-27b": 27009002240,
    "gemma3-4b": 3880099328,
    "gemma4-26b": 25233141760,
    "glm-4-9b": 9399951360,
    "glm-4.5-106b-a12b": 106852245504,
    "glm-4.5-355b-a32b": 352797814784,
    "glm-5-744b-a40b": 743911199232,
    "glm-5.2-744b-a40b": 743377000704,
    "gpt-neox-20b": 20554567680,
    "gpt-oss-120b": 116829156672,
    "gpt-oss-20b": 20914757184,
    "gpt2-1.5b": 1557611200,
    "gpt2-124m": 124439808,
    "gptj-6b": 6050882784,
    "granite-3.0-2b": 2533531648,
    "jamba-v0.1-52b": 51570323328,
    "kimi-k2-1t": 1026408209408,
    "kimi-k2.5-1t": 1026408209408,
    "llama-13b": 13015864320,
    "llama-33b": 32528943616,
    "llama2-13b": 13015864320,
    "llama2-70b": 68976648192,
    "llama2-7b": 6738415616,
    "llama3.1-405b": 405853388800,
    "llama3.1-70b": 70553706496,
    "llama3.1-8b": 8030261248,
    "llama3.2-1b": 1235814400,
    "llama3.2-3b": 3212749824,
    "llama4-17b-128e": 400711848960,
    "llama4-17b-16e": 107769861120,
    "mimo-v2-flash-309b-a15b": 308778768832,
    "minimax-m2.5": 228689748992,
    "mistral-7b": 7241732096,
    "mistral-large-123b": 122610069504,
    "mistral-nemo-12b": 12247782400,
    "mistral-small-24b": 23572403200,
    "mixtral-8x7b": 46702792704,
    "nemotron-h-47b": 46791554816,
    "nemotron-h-4b": 4489223040,
    "nemotron-h-56b": 56324350464,
    "nemotron-h-8b": 8100852736,
    "nemotron-nano-12b-v2": 12310001152,
    "nemotron-nano-9b-v2": 8888227328,
    "nemotron3-nano-30b-a3b": 31577937344,
    "nemotron3-super-120b-a12b": 120668687360,
    "nemotron3-ultra-550b-a55b": 549308968960,
    "nemotron3.5-lightning-30b-a3b": 31577937344,
    "olmoe-1b-7b": 6919161856,
    "opt-1.3b": 1315758080,
    "opt-175b": 174604468224,
    "opt-66b": 65719701504,
    "phi-2": 2779683840,
    "phi-3-medium": 13960238080,
    "phi-3-mini": 3821079552,
    "phi-3.5-moe": 41872793600,
    "phi-4": 14659507200,
    "phi-4-mini": 3836021760,
    "qwen1.5-moe-a2.7b": 14315784192,
    "qwen2-57b-a14b": 57408658944,
    "qwen2.5-0.5b": 494032768,
    "qwen2.5-32b": 32763876352,
    "qwen2.5-3b": 3085938688,
    "qwen2.5-72b": 72706203648,
    "qwen2.5-7b": 7615616512,
    "qwen3-0.6b": 596049920,
    "qwen3-1.7b": 1720574976,
    "qwen3-235b-a22b": 235093634560,
    "qwen3-30b-a3b": 30532122624,
    "qwen3-32b": 32762123264,
    "qwen3-480b-a35b": 480154875392,
    "qwen3-8b": 8190735360,
    "qwen3-next-80b-a3b": 79674391296,
    "qwen3-vl-8b": 8190735360,
    "qwen3.5-122b-a10b": 122111526912,
    "qwen3.5-27b": 26895998464,
    "qwen3.5-35b-a3b": 34660610688,
    "qwen3.5-397b-a17b": 396346350336,
    "starcoder2-15b": 15655899136,
    "starcoder2-7b": 7173923840,
    "tinyllama-1.1b": 1100048384,
    "yi-34b": 34388917248,
    "yi-6b": 6061035520,
}

# mosaicml/llm-foundry, scripts/train/benchmarking/README.md at 8c8dd48f7, column NumParams at sequence length 2048.
PRINTED_BY_LLM_FOUNDRY = {
    "mpt-125m": 125311488,
    "mpt-760m": 760470528,
    "mpt-7b": 6658859008,
    "mpt-13b": 12853954560,
    "mpt-30b": 29975214080,
    "mpt-70b": 64862437376,
}

# In units of 1e9, as printed. Megatron: arXiv:2104.04473 table 1, arXiv:2205.05198 table 3. PaLM: arXiv:2204.02311
# table 1. Nemotron: arXiv:2406.11704. DeepSeek-V4: its name in MaxText. MaxText's custom models: its guide. Moonlight,
# Step, Llama-Nemotron Super: their model cards (49.9B). Marin: its issue 6044.
PRINTED_IN_BILLIONS = {
    "megatron-1.7b": "1.7",
    "megatron-3.6b": "3.6",
    "megatron-7.5b": "7.5",
    "megatron-18b": "18.4",
    "megatron-22b": "22",
    "megatron-39b": "39.1",
    "megatron-76b": "76.1",
    "megatron-145b": "145.6",
    "megatron-175b": "174.6",
    "megatron-310b": "310.1",
    "megatron-530b": "529.6",
    "megatron-1t": "1008.0",
    "megatron-core-1.7b": "1.8",
    "megatron-core-119b": "119",
    "megatron-core-462b": "462",
    "palm-8b": "8.63",
    "palm-62b": "62.50",
    "palm-540b": "540.36",
    "nemotron4-340b": "341",
    "custom-900b-dense": "915",
    "deepseek4-284b": "284",
    "delphi-3e18": "0.447",
    "nanotron-1.34b": "1.34",
    "nanotron-8.86b": "8.86",
    "nanotron-80b": "80.0",
    "moonlight-16b-a3b": "16",
    "step3.7-flash-196b-a11b": "196",
    "nemotron-super-49b": "50",
    "grug-moe-67b": "67",
}

# AI-Hypercomputer/maxtext, src/maxtext/configs/models at e591f30cb.
OF_MAXTEXT = (Path(__file__).parent / "data" / "maxtext_names.txt").read_text(encoding="utf-8").split()

# Each family's file says why.
LEFT_OUT = {"deepseek-custom", "qwen3-custom-30b-a3b"}

SAME_LAYERS_AS_CONFIG = {
    "DeepSeek-V3.2": "deepseek3.2-671b",
    "GLM-5": "glm-5-744b-a40b",
    "Jamba-v0.1": "jamba-v0.1-52b",
    "Kimi-K2": "kimi-k2-1t",
    "Kimi-K2.5": "kimi-k2.5-1t",
    "Llama-2-70b": "llama2-70b",
    "Llama-3.2-1B": "llama3.2-1b",
    "Llama-4-Scout-17B-16E": "llama4-17b-16e",
    "MiMo-V2-Flash": "mimo-v2-flash-309b-a15b",
    "MiniMax-M2.5": "minimax-m2.5",
    "Nemotron-H-56B": "nemotron-h-56b",
    "Phi-3.5-MoE": "phi-3.5-moe",
    "Qwen1.5-MoE-A2.7B": "qwen1.5-moe-a2.7b",
    "Qwen2.5-7B": "qwen2.5-7b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Qwen3-Next-80B-A3B": "qwen3-next-80b-a3b",
    "Qwen3.5-27B": "qwen3.5-27b",
    "Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "gemma-2-27b": "gemma2-27b",
    "gemma-3-1b": "gemma3-1b",
    "gemma-3-27b": "gemma3-27b",
    "gemma-4-26B-A4B": "gemma4-26b",
    "gpt-oss-120b": "gpt-oss-120b",
}

ALSO_CALLED = {
    "meta-llama/Llama-3.1-70B": "llama3.1-70b",
    "meta-llama/Llama-3.1-70B-Instruct": "llama3.1-70b",
    "meta-llama/Meta-Llama-3-70B": "llama3-70b",
    "Llama-3.1-70B": "llama3.1-70b",
    "llama3.1_70b": "llama3.1-70b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA3.1_405B": "llama3.1-405b",
    "LLAMA2-7B": "llama2-7b",
    "Llama-like 8.86B": "nanotron-8.86b",
    "Llama-4-Maverick": "llama4-17b-128e",
    "Qwen3_30B_a3B (tokendrop)": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Qwen/Qwen3-8B-Base": "qwen3-8b",
    "qwen3-8b-base": "qwen3-8b",
    "qwen3-coder-480b-a35b": "qwen3-480b-a35b",
    "GPT OSS 120B": "gpt-oss-120b",
    "GPT-175B": "gpt3-175b",
    "gpt3-175B": "gpt3-175b",
    "GPT3-5B": "gpt3-5b",
    "GPT3-20B": "gpt3-20b",
    "Nemotron-8B": "nemotron3-8b",
    "Nemotron-22B": "nemotron3-22b",
    "GPT-1.7B": "megatron-1.7b",
    "GPT-1T": "megatron-1t",
    "GPT-529.6B": "megatron-530b",
    "turing-530B": "megatron-530b",
    "GPT-70B": "megatron-core-70b",
    "Nemotron-340B": "nemotron4-340b",
    "DeepSeekV3": "deepseek3-671b",
    "deepseekv2": "deepseek2-236b",
    "deepseek3-671b-2dfsdp": "deepseek3-671b",
    "deepseek-ai/DeepSeek-R1": "deepseek3-671b",
    "DeepSeekV4 Flash": "deepseek4-284b",
    "google/gemma-3-27b-it": "gemma3-27b",
    "google/gemma-2-9b": "gemma2-9b",
    "MPT-760m": "mpt-760m",
    "olmo3-7b-pt": "olmo3-7b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "qwen3-235b-a22b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": "qwen3-480b-a35b",
    "amd/Llama-3.3-70B-Instruct-FP8-KV": "llama3.3-70b",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek3-671b",
    "deepseek-ai/DeepSeek-V4-Pro": "deepseek4-1.6t",
    "dsr1": "deepseek3-671b",
    "gptoss": "gpt-oss-120b",
    "glm5": "glm-5-744b-a40b",
    "minimaxm2.5": "minimax-m2.5",
    "kimik2.5": "kimi-k2.5-1t",
    "moonshotai/Kimi-K2-Instruct-0905": "kimi-k2-1t",
    "zai-org/GLM-4.6-FP8": "glm-4.5-355b-a32b",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral-small-24b",
    "Nemotron_3_Nano": "nemotron3-nano-30b-a3b",
    "Nemotron_3_5_Lightning": "nemotron3.5-lightning-30b-a3b",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": "nemotron3-ultra-550b-a55b",
    "GPT-J": "gptj-6b",
    "DeepSeek_V3_2": "deepseek3.2-671b",
    "Qwen3_5_397B_a17B": "qwen3.5-397b-a17b",
    "GLM_4_5_Air": "glm-4.5-106b-a12b",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "nemotron-super-49b",
}


def parameters(name: str) -> int:
    return count_parameters(model_tree(load_model(name))).total


@pytest.mark.parametrize(("name", "published"), INSTANTIATED.items())
def test_a_model_has_the_parameters_that_transformers_instantiates(name: str, published: int) -> None:
    assert parameters(name) == published


@pytest.mark.parametrize(("name", "published"), PRINTED_BY_LLM_FOUNDRY.items())
def test_an_mpt_model_has_the_parameters_that_llm_foundry_prints(name: str, published: int) -> None:
    assert parameters(name) == published


@pytest.mark.parametrize(("name", "printed"), PRINTED_IN_BILLIONS.items())
def test_a_model_rounds_to_the_parameters_its_paper_prints(name: str, printed: str) -> None:
    decimals = len(printed.partition(".")[2])
    assert f"{parameters(name) / 1e9:.{decimals}f}" == printed


def test_gemma_2_pads_the_vocabulary_by_128_rows_in_maxtext() -> None:
    instantiated = {"gemma2-9b": (9241705984, 3584), "gemma2-27b": (27227128320, 4608)}
    for name, (with_256000, embed_dim) in instantiated.items():
        assert parameters(name) - with_256000 == 128 * embed_dim


@pytest.mark.parametrize(("alias", "name"), ALSO_CALLED.items())
def test_a_common_name_means_the_same_model(alias: str, name: str) -> None:
    assert load_model(alias).name == name


@pytest.mark.parametrize("name", OF_MAXTEXT)
def test_every_model_of_maxtext_is_known_by_its_name_or_left_out_with_the_reason(name: str) -> None:
    if name in LEFT_OUT:
        reasons = " ".join(family.read_text(encoding="utf-8") for family in _families())
        assert f"Left out: {name} (" in reasons.replace("\n# ", " ")
    else:
        assert load_model(name)


def test_no_two_models_answer_to_one_name() -> None:
    owners: dict[str, str] = {}
    for family in _families():
        for name, table in _read(family).items():
            for key in {_key(name), *(_key(alias) for alias in table.get("aliases", []))}:
                assert owners.setdefault(key, name) == name


@pytest.mark.parametrize("family", _families(), ids=lambda family: family.stem)
def test_a_family_file_holds_the_names_it_begins(family: Path) -> None:
    assert all(name.startswith(family.stem) for name in _read(family))


@pytest.mark.parametrize("name", model_names())
def test_every_model_loads_and_says_where_its_dimensions_are_from(name: str) -> None:
    spec = load_model(name)

    assert spec.name == name
    assert spec.notes[-1].startswith("Dimensions: https://")
    assert all(layer.mixer is not None or layer.mlp is not None for layer, _ in spec.layers)


@pytest.mark.parametrize("name", model_names())
def test_heads_and_experts_of_every_model_divide(name: str) -> None:
    for layer, _ in load_model(name).layers:
        if isinstance(layer.mixer, AttentionSpec):
            assert layer.mixer.num_heads % layer.mixer.num_kv_heads == 0
        if isinstance(layer.mlp, MoeSpec):
            assert layer.mlp.top_k <= layer.mlp.num_experts


@pytest.mark.parametrize(("config", "name"), SAME_LAYERS_AS_CONFIG.items())
def test_a_zoo_model_has_the_layers_of_its_published_config(config: str, name: str) -> None:
    published = resolve_model(str(Path(__file__).parent / "data" / "hf_configs" / f"{config}.json"))

    assert load_model(name).layers == published.layers


def test_layers_alternate_as_the_pattern_says() -> None:
    gemma = load_model("gemma3-4b")
    kinds = [layer.mixer.span.kind for layer, count in gemma.layers for _ in range(count)]

    assert len(kinds) == 34
    assert kinds[:12] == ["sliding"] * 5 + ["causal"] + ["sliding"] * 5 + ["causal"]
    assert kinds[-4:] == ["sliding"] * 4


def test_leading_layers_are_dense_and_the_rest_have_experts() -> None:
    (dense, num_dense), (experts, num_experts) = load_model("deepseek3-671b").layers

    assert (num_dense, num_experts) == (3, 58)
    assert isinstance(dense.mlp, MlpSpec)
    assert isinstance(experts.mlp, MoeSpec)


def test_every_other_layer_of_maverick_has_experts() -> None:
    layers: list[LayerSpec] = [layer for layer, count in load_model("llama4-17b-128e").layers for _ in range(count)]

    assert [isinstance(layer.mlp, MoeSpec) for layer in layers] == [False, True] * 24
    assert [layer.mixer.span.kind for layer in layers] == ["chunked", "chunked", "chunked", "causal"] * 12


def test_the_last_layers_of_gemma_4_e4b_reuse_earlier_keys() -> None:
    layers = [layer for layer, count in load_model("gemma4-e4b").layers for _ in range(count)]

    assert [layer.mixer.own_kv for layer in layers] == [True] * 24 + [False] * 18
    assert [layer.mixer.span.kind for layer in layers] == (["sliding"] * 5 + ["causal"]) * 7


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(InputError) as caught:
        resolve_model("llama3.1-71b", where="MODEL")

    assert caught.value.what == "unknown model"
    assert caught.value.where == "MODEL"
    assert "llama3.1-70b" in caught.value.fix


@pytest.mark.parametrize("nonsense", ["", "/", " ", "\0", "-it", "~", "x" * 5000, "~no-such-user/x", "./none.json"])
def test_a_nonsensical_reference_is_an_input_error(
    nonsense: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(InputError):
        resolve_model(nonsense)


def test_a_folder_without_a_config_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        resolve_model(str(tmp_path))

    assert "config.json" in caught.value.expected


def test_a_zoo_name_wins_over_a_folder_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama3-8b").mkdir()
    monkeypatch.chdir(tmp_path)

    assert resolve_model("llama3-8b").name == "llama3-8b"
    with pytest.raises(InputError):
        resolve_model("./llama3-8b")


def test_loading_a_model_opens_the_file_of_its_family_only() -> None:
    program = "from ridgeline.model import zoo; zoo.load_model('llama3.1-70b'); print(zoo._read.cache_info().currsize)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "1"


def in_place_of_a_model(path: Path) -> InputError:
    with pytest.raises(InputError) as refused:
        resolve_model(str(path), where="MODEL")
    return refused.value


def test_a_folder_without_a_config_is_told_from_no_folder_at_all(tmp_path: Path) -> None:
    empty = in_place_of_a_model(tmp_path)
    absent = in_place_of_a_model(tmp_path / "absent")

    assert (empty.what, absent.what) == ("this folder has no config.json", "no such model file")
    assert empty.where == "MODEL"
    assert empty.expected == "a Hugging Face config.json, or a folder that holds one"
    assert empty.fix == "check the path, or give a zoo name such as llama3.1-70b"


@pytest.mark.parametrize("name", ["config.json", "model"])
def test_links_in_a_circle_are_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).symlink_to("again")
    Path("again").symlink_to(name)

    assert in_place_of_a_model(Path(name)).what == "cannot read the model file: Too many levels of symbolic links"


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    assert in_place_of_a_model(tmp_path / ("x" * 5000)).what == "cannot read the model file: File name too long"
    assert in_place_of_a_model(tmp_path / "\0.json").what.startswith("cannot read the model file: ")
