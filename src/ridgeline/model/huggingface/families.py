"""How each family of decoders is built, as data: one record per `model_type`.

A record says what the modelling code fixes and a config.json cannot; what the config decides is named by
its key. Absent keys take the family's defaults (`defaults.toml`). Everything else is read alike for all.

Read from the published modelling code of each family (transformers 5.24.0, or the code beside the weights
for those it does not know), checked by the parameter counts in the tests.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, TypeAlias

from ridgeline.model.spec import NormSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

Flag: TypeAlias = bool | str
"""Fixed by the family, or the key of the config that decides it."""

_RMS = NormSpec()
_LAYER_NORM = NormSpec(bias=True)
_LAYER_NORM_WITHOUT_BIAS = NormSpec()
_NO_SCALE = NormSpec(scale=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the modelling code of a family fixes.

    Attributes:
        norm: Kind of the norms.
        pre_norms: Norms before the branches when they follow one another.
        parallel_norms: Norms before the branches when they run side by side.
        post_norm: A norm after each branch.
        parallel: Attention and MLP side by side.
        qkv_bias: Biases of query, key and value.
        out_bias: Bias of the attention output.
        mlp_bias: Biases of the MLP.
        logits_bias: Bias of the logits.
        gated: Three matrices in the MLP and in each expert, or two.
        qk_norm: Norms of query and key: none, on each head, or on all of them together.
        qk_norm_when: Whether it has them.
        qk_norm_spec: Their kind.
        rotary: Positions by rotation: in every layer, in none, or only where a window binds.
        learned_positions: Rows of the position table beyond the longest sequence; None for no table.
        embedding_norm: A norm after the lookup.
        final_norm: A norm before the logits.
        window: Which layers a sliding window binds when the config has one: none, all, all but every
            n-th (`sliding_window_pattern`), those from `max_window_layers` on, or those of a list.
        output_gate: A sigmoid gate on the attention output: on each element, on each head.
        sinks: Which layers have a learned logit per head.
        linear: The mixer of layers that are not attention.
        single_blocks: A layer is one mixer or one MLP, not both.
        router_bias: Bias of the router.
        expert_bias: Biases in the experts.
        score_correction: The offset used for choosing experts is a trained parameter.
        shared_gate: A learned gate on the shared expert.
        extra_scales: Trained scalars of a layer beside all these.
    """

    norm: NormSpec = _RMS
    pre_norms: int = 2
    parallel_norms: int = 1
    post_norm: Flag = False
    parallel: Flag = False
    qkv_bias: Flag = False
    out_bias: Flag = False
    mlp_bias: Flag = False
    logits_bias: Flag = False
    gated: bool = True
    qk_norm: Literal["head", "full"] | None = None
    qk_norm_when: Flag = True
    qk_norm_spec: NormSpec = _RMS
    rotary: bool | Literal["local"] = True
    learned_positions: int | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    window: Literal["none", "all", "periodic", "upper"] = "none"
    output_gate: Literal["element", "head"] | None = None
    sinks: Literal["all", "local"] | None = None
    linear: Literal["gated_delta", "mamba1", "mamba2"] | None = None
    single_blocks: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    score_correction: bool = False
    shared_gate: bool = False
    extra_scales: int = 0


_PLAIN = Family()
_LLAMA = Family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
_BIASED = Family(qkv_bias="attention_bias", out_bias="attention_bias")
_MISTRAL = Family(window="all")
_QWEN2 = Family(qkv_bias=True, window="upper")
_QWEN3 = replace(_BIASED, qk_norm="head", window="upper")
_QWEN3_MOE = replace(_BIASED, qk_norm="head", window="all")
_QWEN3_NEXT = replace(_BIASED, qk_norm="head", output_gate="element", linear="gated_delta", shared_gate=True)
_GEMMA2 = replace(_BIASED, post_norm=True, window="periodic")
_GEMMA3 = replace(_GEMMA2, qk_norm="head")
_GPT2 = Family(
    norm=_LAYER_NORM,
    gated=False,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    rotary=False,
    learned_positions=0,
)
_GPT_J = Family(norm=_LAYER_NORM, gated=False, parallel=True, mlp_bias=True, logits_bias=True)
_PHI = replace(
    _GPT_J, qkv_bias=True, out_bias=True, qk_norm="head", qk_norm_when="qk_layernorm", qk_norm_spec=_LAYER_NORM
)
_PHI_OLD = replace(_PHI, qk_norm=None)
_GPT_NEOX = Family(
    norm=_LAYER_NORM,
    gated=False,
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    mlp_bias=True,
    parallel="use_parallel_residual",
    parallel_norms=2,
)
_COHERE = replace(_BIASED, norm=_LAYER_NORM_WITHOUT_BIAS, parallel=True)
_OLMO2 = replace(_BIASED, pre_norms=0, post_norm=True, qk_norm="full")
_GLM = Family(qkv_bias="attention_bias")
_GLM_MOE = replace(_GLM, qk_norm="head", qk_norm_when="use_qk_norm")
_DEEPSEEK = Family(mlp_bias="mlp_bias")
_EXAONE4 = Family(pre_norms=0, post_norm=True, qk_norm="head", window="periodic", rotary="local")
_HUNYUAN = replace(_BIASED, qk_norm="head")
_STEP3P7 = replace(_BIASED, mlp_bias="mlp_bias", qk_norm="head", output_gate="head")
_ERNIE = Family(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias")
_INTERNLM = Family(qkv_bias="bias", out_bias="bias")

FAMILIES: dict[str, Family] = {
    "apertus": replace(_BIASED, gated=False, qk_norm="head", extra_scales=2),
    "arcee": replace(_LLAMA, gated=False),
    "arctic": _PLAIN,
    "baichuan": _PLAIN,
    "bamba": replace(_LLAMA, linear="mamba2"),
    "bloom": replace(_GPT2, learned_positions=None, embedding_norm=True),
    "chatglm": Family(qkv_bias="add_qkv_bias", out_bias="add_bias_linear", mlp_bias="add_bias_linear"),
    "codegen": _GPT_J,
    "cohere": replace(_COHERE, qk_norm="full", qk_norm_when="use_qk_norm"),
    "cohere2": replace(_COHERE, window="periodic", rotary="local"),
    "cwm": replace(_LLAMA, window="periodic"),
    "dbrx": Family(norm=_LAYER_NORM_WITHOUT_BIAS),
    "deepseek": _BIASED,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "deepseek_v4": replace(_DEEPSEEK, window="all"),
    "dots1": replace(_BIASED, qk_norm="head", window="upper"),
    "ernie4_5": _ERNIE,
    "ernie4_5_moe": replace(_ERNIE, logits_bias="use_bias", score_correction=True),
    "exaone": _LLAMA,
    "exaone4": _EXAONE4,
    "exaone_moe": replace(_EXAONE4, pre_norms=2, post_norm=False),
    "falcon": Family(
        norm=_LAYER_NORM, gated=False, parallel="parallel_attn", qkv_bias="bias", out_bias="bias", mlp_bias="bias"
    ),
    "falcon_h1": replace(_LLAMA, linear="mamba2"),
    "flex_olmo": _OLMO2,
    "gemma": _BIASED,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "gemma3n_text": _GEMMA3,
    "gemma4_text": _GEMMA3,
    "glm": _GLM,
    "glm4": replace(_GLM, post_norm=True),
    "glm4_moe": _GLM_MOE,
    "glm4_moe_lite": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neo": replace(_GPT2, qkv_bias=False),
    "gpt_neox": _GPT_NEOX,
    "gpt_oss": replace(_BIASED, sinks="all", router_bias=True, expert_bias=True, window="periodic"),
    "gptj": _GPT_J,
    "granite": _LLAMA,
    "granitemoe": _BIASED,
    "granitemoehybrid": replace(_BIASED, linear="mamba2"),
    "granitemoeshared": _BIASED,
    "helium": _LLAMA,
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": _HUNYUAN,
    "hyperclovax": replace(_LLAMA, post_norm="use_post_norm"),
    "internlm": _INTERNLM,
    "internlm2": _INTERNLM,
    "internlm3": Family(qkv_bias="qkv_bias", out_bias="bias", mlp_bias="bias"),
    "jamba": Family(linear="mamba1", rotary=False),
    "llama": _LLAMA,
    "llama4_text": replace(_BIASED, qk_norm="head", qk_norm_when="use_qk_norm", qk_norm_spec=_NO_SCALE),
    "mimo": _QWEN2,
    "mimo_v2_flash": replace(_GLM, sinks="local"),
    "minicpm": _PLAIN,
    "minicpm3": _DEEPSEEK,
    "minimax_m2": Family(qk_norm="full"),
    "minimax_m3": Family(qk_norm="head"),
    "ministral": _MISTRAL,
    "ministral3": _MISTRAL,
    "mistral": _MISTRAL,
    "mixtral": _MISTRAL,
    "mllama_text_model": _PLAIN,
    "mpt": Family(norm=_LAYER_NORM_WITHOUT_BIAS, gated=False, rotary=False),
    "nemotron": replace(_LLAMA, norm=_LAYER_NORM, gated=False),
    "nemotron-nas": _LLAMA,
    "nemotron_h": Family(gated=False, mlp_bias="mlp_bias", linear="mamba2", rotary=False, single_blocks=True),
    "olmo": replace(_BIASED, norm=_NO_SCALE),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, window="periodic"),
    "olmoe": replace(_BIASED, qk_norm="full"),
    "opt": replace(_GPT2, qkv_bias="enable_bias", out_bias="enable_bias", mlp_bias="enable_bias", learned_positions=2),
    "orion": Family(norm=_LAYER_NORM),
    "persimmon": replace(
        _GPT_NEOX,
        parallel=False,
        qkv_bias=True,
        out_bias=True,
        qk_norm="head",
        qk_norm_when="qk_layernorm",
        qk_norm_spec=_LAYER_NORM,
    ),
    "phi": _PHI,
    "phi-msft": _PHI_OLD,
    "phi3": _MISTRAL,
    "phimoe": replace(_BIASED, norm=_LAYER_NORM, logits_bias="lm_head_bias", window="all"),
    "qwen": Family(qkv_bias=True),
    "qwen2": _QWEN2,
    "qwen2_moe": replace(_QWEN2, qkv_bias="qkv_bias", shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_5_moe_text": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_NEXT,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": replace(_LLAMA, out_bias="attention_out_bias"),
    "smollm3": _LLAMA,
    "solar_open": _GLM,
    "stablelm": Family(
        norm=_LAYER_NORM,
        qkv_bias="use_qkv_bias",
        parallel="use_parallel_residual",
        qk_norm="full",
        qk_norm_when="qk_layernorm",
        qk_norm_spec=_LAYER_NORM_WITHOUT_BIAS,
    ),
    "starcoder2": Family(
        norm=_LAYER_NORM, gated=False, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", window="all"
    ),
    "step3_text": _PLAIN,
    "step3p7_text": _STEP3P7,
    "xglm": replace(_GPT2, learned_positions=None),
    "xverse": _PLAIN,
}
"""By `model_type` of the decoder itself."""


@cache
def family_defaults(model_type: str) -> Mapping[str, object]:
    """What an absent key means in a family; empty for families without published defaults."""
    return _all_defaults().get(model_type, {})


@cache
def _all_defaults() -> dict[str, dict[str, object]]:
    return tomllib.loads(files("ridgeline.model.huggingface").joinpath("defaults.toml").read_text("utf-8"))
