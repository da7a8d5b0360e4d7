"""Which family a `model_type` belongs to, and which kinds of model are refused, with the reason.

Tables only. A multimodal model's own type leads to the family of its language model, for files whose nested
`text_config` does not say.
"""

from __future__ import annotations

SAME_AS: dict[str, str] = {
    "aquila": "llama",
    "code_llama": "llama",
    "yi": "llama",
    "mixformer-sequential": "phi-msft",
    "stablelm_epoch": "stablelm",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "kimi_k2": "deepseek_v3",
    "hunyuan": "hunyuan_v1_moe",
    "gpt-sw3": "gpt2",
    "phi3_v": "phi3",
    "nemotron_nas": "nemotron-nas",
    "deci": "nemotron-nas",
    # Multimodal wrappers: their language model.
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "glm4v": "glm4",
    "glm4v_text": "glm4",
    "glm4v_moe": "glm4_moe",
    "glm4v_moe_text": "glm4_moe",
    "idefics3": "llama",
    "smolvlm": "llama",
    "internvl": "qwen2",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_onevision": "qwen2",
    "minimax_m3_vl": "minimax_m3",
    "minimax_m3_vl_text": "minimax_m3",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "paligemma": "gemma",
    "pixtral": "mistral",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "step3": "step3_text",
    "step3_vl": "step3_text",
    "step3p5": "step3p7_text",
    "step3p7": "step3p7_text",
    "vipllava": "llama",
}

SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where a multimodal config keeps its language model."""

OTHER_PARTS = ("vision_config", "audio_config", "img_processor", "vision_tower", "speech_config")
"""Keys that tell of parts outside the language model."""

LINES_OF_REFUSAL: dict[str, tuple[str, ...]] = {
    "it is an encoder-decoder; Ridgeline plans decoders": (
        *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "florence2", "fsmt"),
        *("led", "longt5", "m2m_100", "marian", "mbart", "mt5", "mvp", "nllb-moe", "nougat", "pegasus"),
        *("pegasus_x", "pix2struct", "plbart", "prophetnet", "seamless_m4t", "seamless_m4t_v2"),
        *("speech_to_text", "speecht5", "switch_transformers", "t5", "t5gemma", "t5gemma2", "trocr", "udop"),
        *("umt5", "vision-encoder-decoder", "whisper", "xlm-prophetnet", "moonshine"),
    ),
    "it is an encoder: it generates no tokens": (
        *("albert", "bert", "bert-generation", "big_bird", "camembert", "canine", "convbert", "data2vec-text"),
        *("deberta", "deberta-v2", "distilbert", "electra", "ernie", "ernie_m", "esm", "eurobert", "flaubert"),
        *("fnet", "funnel", "gte", "ibert", "jina_bert_v2", "layoutlm", "layoutlmv2", "layoutlmv3", "longformer"),
        *("luke", "megatron-bert", "mobilebert", "modernbert", "mpnet", "mra", "new", "nezha", "nomic_bert"),
        *("nystromformer", "qdqbert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer"),
        *("splinter", "squeezebert", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod", "yoso"),
    ),
    "it is a vision model without a language model": (
        *("align", "altclip", "beit", "chinese_clip", "clip", "clip_text_model", "clip_vision_model", "clipseg"),
        *("convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "depth_anything", "detr", "dinat", "dinov2"),
        *("dinov3_vit", "dpt", "efficientnet", "grounding-dino", "hiera", "ijepa", "mobilenet_v2", "mobilevit"),
        *("owlv2", "owlvit", "resnet", "rt_detr", "sam", "sam2", "segformer", "siglip", "siglip2"),
        *("siglip_vision_model", "swin", "swinv2", "timesformer", "timm_wrapper", "videomae", "vit", "vit_mae"),
        *("vitdet", "vjepa2", "xclip", "yolos"),
    ),
    "it is an audio model without a language model": (
        *("audio-spectrogram-transformer", "clap", "encodec", "hubert", "mimi", "parakeet_ctc", "sew", "unispeech"),
        *("vits", "wav2vec2", "wav2vec2-bert", "wav2vec2-conformer", "wavlm"),
    ),
    "it has no attention: its layers are recurrent": (
        *("falcon_mamba", "hyena", "mamba", "mamba2", "retnet", "rwkv", "rwkv4", "rwkv5", "rwkv6", "rwkv7", "xlstm"),
    ),
    "its layers are of a kind that Ridgeline does not read yet": (
        *("bailing_hybrid", "blt", "diffllama", "doge", "kimi_linear", "lfm2", "lfm2_moe", "longcat_flash"),
        *("minimax", "modernbert-decoder", "moshi", "olmo_hybrid", "phi3small", "phi4mm"),
        *("phi4_multimodal", "recurrent_gemma", "zamba", "zamba2", "zaya"),
    ),
}
"""Reason, and the model types it holds for."""

REFUSED: dict[str, str] = {name: reason for reason, names in LINES_OF_REFUSAL.items() for name in names}
"""Model type to reason."""

GENERATES = ("ForCausalLM", "LMHead", "ForConditionalGeneration", "ForMultimodalLM", "LMModel")
"""Parts of class names that tell of a language-model head."""

UNREAD_KEYS = (
    *("altup_", "conv_L_", "d_kv", "decoder_layers", "encoder_", "hc_mult", "kda_", "linear_", "lru_width"),
    *("mamba_", "rwkv", "ssm_", "time_mix", "use_cla"),
)
"""Beginnings of keys that an unknown family may not have if it is to be read like Llama."""
