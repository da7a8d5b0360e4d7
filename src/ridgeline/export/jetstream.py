"""A serving job as JetStream is told it, with MaxText's engine: its configuration, and the command that starts it.

MaxText keeps two caches whose lengths add up to `max_target_length`, with room for every slot and in every layer, also
where a window would do. It splits them by key-value heads alone, so that tensor parallelism is the only axis here. A
prompt is read whole, between two passes of decoding.

Source: MaxText 0.2.5, inference/maxengine and inference/kvcache.py; the check of key-value heads in
layers/attentions.py.
"""

from __future__ import annotations

from math import nextafter
from shlex import quote
from typing import TYPE_CHECKING, Final

from ridgeline.cost.serving.device import cached_attentions
from ridgeline.errors import InputError
from ridgeline.export.maxtext import MaxTextConfig, config_arguments
from ridgeline.export.maxtext_model import model_settings
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.model.operations import Recurrence
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.export.maxtext_version import Value
    from ridgeline.job.serving import ServingJob

SERVER_MODULE: Final = "maxtext.inference.maxengine.maxengine_server"

_INTERLEAVED: Final = "MaxtextInterleavedServer"
"""The one server whose parts are public. Source: MaxText 0.2.5, inference/maxengine/maxengine_config.py."""

_QUANTIZATIONS: Final[Mapping[tuple[str, str], str]] = {("bf16", "bf16"): "", ("int8", "int8"): "int8"}
"""By storage of the weights and dtype of the matmuls."""

_CACHES: Final = ("bf16", "int8", "int4")


def check_job(job: ServingJob) -> None:
    """Refuses what no mesh and no batch change.

    Raises:
        InputError: MaxText's engine has no word for a part of the job; the message names it.
    """
    if job.hardware.chip.torus is None:
        raise refused("GPUs", "hardware", job.hardware.chip.name, fix="export to vLLM: --to vllm")
    tree, dtypes, plan = model_tree(job.model), job.plan.dtypes, job.plan
    operations = [each for layer in tree.layers for block in layer.blocks for each in block.operations]
    has_latents = any(each.caches_latents for each, _ in cached_attentions(tree))
    if has_latents or any(isinstance(each, Recurrence) for each in operations):
        fix = "export to vLLM: --to vllm"
        raise refused("caches of latents or states (not tried)", "model", job.model.name, fix=fix)
    if (dtypes.weights, dtypes.compute) not in _QUANTIZATIONS or dtypes.experts is not None:
        experts = "" if dtypes.experts is None else f" (experts {dtypes.experts})"
        value = f"{dtypes.weights} weights{experts}, {dtypes.compute} matmuls"
        fix = "use bf16 for both (--weights-dtype bf16), or int8 for both"
        if job.is_as_published:
            fix += ": MaxText converts checkpoints, and does not read them as they are published"
        raise refused(value, "plan.dtypes", value, fix=fix)
    if dtypes.kv_cache not in _CACHES:
        fix = f"use {', '.join(_CACHES)}"
        raise refused(f"a cache in {dtypes.kv_cache}", "plan.dtypes.kv_cache", dtypes.kv_cache, fix=fix)
    if plan.mode == "disaggregated":
        fix = "use interleaved, or export to vLLM"
        raise refused("disaggregated servers, whose parts are not public", "plan.mode", plan.mode, fix=fix)
    if plan.speculation is not None:
        raise refused("drafts", "plan.speculation", plan.speculation.draft_tokens, fix="leave them out")


def jetstream_config(job: ServingJob, *, tensor: int, batch: int) -> MaxTextConfig:
    """The configuration of a server.

    Args:
        job: The question.
        tensor: Ways of tensor parallelism: all devices of the slice.
        batch: Sequences at once: slots.

    Raises:
        InputError: The heads cannot be split so, or MaxText has no such model.
    """
    for attention, _ in cached_attentions(model_tree(job.model)):
        if attention.num_cached_heads % tensor:
            fix = f"use a slice of {attention.num_cached_heads} devices, or fewer, and more servers"
            what = f"{attention.num_cached_heads} key-value heads over {tensor} devices: it makes no copies of them"
            raise refused(what, "plan.decode.tp", tensor, fix=fix)
    version, devices, dtypes = maxtext_version(), job.hardware.num_devices, job.plan.dtypes
    per_device = batch / devices
    if int(per_device * devices) < batch:  # MaxText multiplies and rounds down
        per_device = nextafter(per_device, 1.0 + per_device)
    settings: dict[str, Value] = {
        **model_settings(job),
        "per_device_batch_size": int(per_device) if per_device.is_integer() else per_device,
        "max_prefill_predict_length": job.workload.prompt_len,
        "max_target_length": job.workload.context_len,
        "ici_tensor_parallelism": tensor,
        "ici_fsdp_parallelism": 1,
        "weight_dtype": "bfloat16",
        "dtype": "bfloat16",
        "scan_layers": False,
        "inference_server": _INTERLEAVED,
    }
    if quantization := _QUANTIZATIONS[dtypes.weights, dtypes.compute]:
        settings |= {"quantization": quantization, "checkpoint_is_quantized": True}
    if dtypes.kv_cache != "bf16":
        settings |= {"quantize_kvcache": True, "kv_quant_dtype": dtypes.kv_cache}
    config = MaxTextConfig(version=version.version, settings=settings, flags=())
    settings = {"model_name": settings["model_name"], **config.overriding, **settings}
    version.check(settings)
    return MaxTextConfig(version=version.version, settings=settings, flags=())


def server_words(config: MaxTextConfig, *, checkpoint: str, tokenizer: str) -> tuple[str, ...]:
    """The words of the command that starts the server on every host of its slice, quoted for a shell.

    Args:
        config: What it is told.
        checkpoint: Weights as MaxText stores them, layer by layer.
        tokenizer: A Hugging Face repository, or a folder.
    """
    places = f"load_parameters_path={checkpoint}", f"tokenizer_path={tokenizer}", "tokenizer_type=huggingface"
    maxtext_version().check(
        {"load_parameters_path": checkpoint, "tokenizer_path": tokenizer, "tokenizer_type": "huggingface"}
    )
    words = ("python3", "-m", SERVER_MODULE, "maxtext/configs/base.yml", *config_arguments(config), *places)
    return tuple(map(quote, words))


def refused(what: str, where: str, value: object, *, fix: str) -> InputError:
    """The error for what JetStream with MaxText cannot be told."""
    return InputError(
        f"JetStream with MaxText cannot be told {what}",
        where=where,
        value=value,
        expected=f"what MaxText {maxtext_version().version} has a key for",
        fix=fix,
    )
