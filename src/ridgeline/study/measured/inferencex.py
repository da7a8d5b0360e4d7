"""What scripts of InferenceX say of its runs, and records of these do not: lengths, caches, tokens of a pass, drafts.

A record names a run by engine, model, chip and day; the repository's scripts of that day started it.
Source of all: github.com/SemiAnalysisAI/InferenceX, its history from 2025-09 to 2026-04.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ridgeline.search.serving.pinned import EngineName

LENGTH_SHARE: Final = 0.9
"""Mean length of a prompt or a reply over the one that is stated: it is drawn evenly from 0.8 of that to all of it.
Source: its workflows, `random-range-ratio: 0.8`; `utils/bench_serving`."""

BURST_SHARE: Final = 0.1
"""Source: its scripts, `num_prompts` is ten times the concurrency; the first of them come at once."""

_DRAFTING_DAYS: Final = frozenset({"2026-01-14", "2026-02-05", "2026-02-06"})
"""Days of runs of DeepSeek by TensorRT-LLM that predict several tokens (`-trt-mtp`): pull requests 392, 632 and 642,
which change those alone."""

_DEEPSEEK: Final = "deepseek3-671b"
_WHOLE_SERVER: Final = 8
_MANY: Final = 16
"""Requests at hand from which scripts tell SGLang to look for new ones more seldom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlags:
    """How a server was started.

    Attributes:
        kv_cache: Dtype of the cache; None for that of the checkpoint's precision.
        pass_tokens: Most tokens of a pass; None for the engine's own.
        drafts: Whether tokens are drafted ahead.
        receive_passes: Passes of decoding after which the engine looks for requests that came.
    """

    kv_cache: str | None = None
    pass_tokens: int | None = None
    drafts: bool = False
    receive_passes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a record says of a run.

    Attributes:
        engine: It.
        model: Name in the zoo.
        chip: Name.
        precision: Of the checkpoint.
        day: When, as `2026-03-25`.
        prompt_len: Tokens of a prompt, as stated.
        concurrency: Requests at hand.
        gpus: Of the server.
    """

    engine: EngineName
    model: str
    chip: str
    precision: str
    day: str
    prompt_len: int
    concurrency: int
    gpus: int


def run_flags(run: Run) -> RunFlags:
    """How the scripts of its day started a run."""
    match run.engine:
        case "trtllm":
            return _of_trtllm(run)
        case "sglang":
            return _of_sglang(run)
        case _:
            return _of_vllm(run)


def _of_trtllm(run: Run) -> RunFlags:
    """`kv_cache_config.dtype` and `--max_num_tokens` of `*_trt_slurm.sh`, `*_trt.sh`."""
    if run.model == _DEEPSEEK:
        tokens = _prompt_and_batch_tokens(run.prompt_len, run.concurrency)
        least = 8192 if run.day >= "2026-01-29" else 0
        return RunFlags(kv_cache="fp8", pass_tokens=max(tokens, least), drafts=run.day in _DRAFTING_DAYS)
    if run.model.startswith("gpt-oss"):
        is_hopper = run.chip in {"h100", "h200"}
        return RunFlags(kv_cache="bf16" if is_hopper else "fp8", pass_tokens=20_000)
    return RunFlags(kv_cache="fp8", pass_tokens=16_384)


def _of_sglang(run: Run) -> RunFlags:
    """`--kv-cache-dtype`, `--chunked-prefill-size`, `--scheduler-recv-interval` of `dsr1_*.sh`, `qwen3.5_*.sh`."""
    is_wide = run.precision == "bf16" or (run.model == _DEEPSEEK and run.chip == "h200")
    if run.model != _DEEPSEEK:
        tokens = 16_384 if run.chip == "h200" else 32_768
    elif run.precision == "fp4":
        tokens = 16_384
    else:
        tokens = 8_192 if run.gpus < _WHOLE_SERVER else 32_768
    passes = 30 if run.concurrency >= _MANY else 10
    return RunFlags(
        kv_cache="bf16" if is_wide else "fp8",
        pass_tokens=tokens,
        receive_passes=passes if run.chip == "b200" else 1,
    )


def _of_vllm(run: Run) -> RunFlags:
    """`kv-cache-dtype` and `max-num-batched-tokens` of `70b_*.sh`, `gptoss_*.sh`."""
    is_wide = run.model.startswith("gpt-oss") and (run.chip != "b200" or run.day < "2026")
    return RunFlags(kv_cache="bf16" if is_wide else "fp8", pass_tokens=8_192)


def _prompt_and_batch_tokens(prompt_len: int, concurrency: int) -> int:
    """A prompt beside all sequences, in whole blocks of 64.

    >>> _prompt_and_batch_tokens(1024, 100)
    1216
    """
    return (concurrency + prompt_len + 64 + 63) // 64 * 64
