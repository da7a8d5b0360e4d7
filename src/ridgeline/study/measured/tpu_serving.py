"""Records of servers on TPUs: vLLM's recipes, JetStream, PyTorch/XLA; a row states its engine and lengths."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.search.serving.pinned import engine_settings
from ridgeline.study.measured.records import (
    as_record,
    number,
    record_id,
    records_of,
    sequence,
    skipped,
    source_of,
    table,
    text,
    unusable,
    whole,
)
from ridgeline.study.measured.serving_case import SERVING_METRICS, ServingCase
from ridgeline.study.measured.serving_job import Served, model_named, served_job
from ridgeline.study.measured.tpu_hardware import record_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.search.serving.pinned import EngineName, EngineSettings
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.measurement import ServingMetric
    from ridgeline.study.measured.records import Record

_MILLI: Final = 1e-3
_NOT_RUN: Final = ("do not score", "unoptimised", "unoptimized")
"""What a record's own notes say of a value that is no estimate's to meet."""

_SHARE_GPT: Final = (215, 200)
"""Mean tokens of prompts and replies of ShareGPT as benchmarks cut it, for a prompt or a reply of over 1,024.
Source: vLLM, benchmarks, `sample_sharegpt_requests`; counts of its 1,000 first requests as often published."""

_DTYPES: Final = ("bf16", "int8", "fp8", "int4", "fp4")
_ENGINES: Final[Mapping[str, EngineName]] = {
    "vllm": "vllm",
    "jetstream": "jetstream",
    "sglang": "sglang",
    "pytorch/xla": "torch_xla",
}
"""By a word of what a source calls them."""


def read_tpu_serving_records(document: object, where: str) -> tuple[list[ServingCase], list[Skipped]]:
    """The cases of a document of such rows, and the rows that are not used, with the reason.

    Args:
        document: A list of rows, or an object that holds it.
        where: The file.
    """
    cases: list[ServingCase] = []
    left_out: list[Skipped] = []
    for index, row in enumerate(records_of(document)):
        name = record_id(row, where, index)
        try:
            cases.extend(_cases(name, as_record(row)))
        except InputError as error:
            left_out.append(skipped(name, error))
    return cases, left_out


def _cases(name: str, record: Record) -> Iterator[ServingCase]:
    notes = " ".join(map(str, sequence(record, "notes"))) or text(record, "notes")
    if any(word in notes.lower() for word in _NOT_RUN):
        raise unusable("its own notes say not to use it", notes, key="notes")
    hardware, said = record_slice(record)
    engine, model = _engine(record), model_named(text(record, "model"))
    lengths, said_of_lengths = _lengths(record)
    mesh = _mesh(record, hardware)
    dtypes, said_of_dtypes = _dtypes(record, engine)
    concurrency, most = _concurrency(record)
    served = Served(
        model=model.name,
        hardware=hardware.name,
        prompt_len=lengths[0],
        generate_len=lengths[1],
        concurrency=concurrency,
        mesh=mesh,
        dtypes=dtypes,
        expert_split="whole" if table(record, "sharding").get("expert_parallel") is True else "width",
    )
    job, said_of_batch = served_job(name, served)
    case = ServingCase(
        id=name,
        job=job,
        engine=_settings(record, engine, most),
        metric="tpot_s",
        measured=0.0,
        source=source_of(record),
        quality=text(record, "quality") or "unstated",
        assumed=(*said, *said_of_lengths, *said_of_dtypes, *said_of_batch),
        not_stated="a regression that its source owns up to" if "regression" in notes else "",
    )
    found = dict(_measured(record, hardware.num_chips))
    if not found:
        raise unusable("nothing that an estimate has", ", ".join(table(record, "measured")) or None, key="measured")
    for metric in SERVING_METRICS:
        if metric in found:
            yield replace(case, metric=metric, measured=found[metric])


def _engine(record: Record) -> EngineName:
    said = text(record, "engine").lower()
    for word, engine in _ENGINES.items():
        if word in said:
            return engine
    raise unusable("unknown engine", said or None, key="engine")


def _settings(record: Record, engine: EngineName, most: int | None) -> EngineSettings:
    """How the engine ran; JetStream's caches have fixed room, which it reads whole (MaxText's `max_target_length`)."""
    said, usual = table(record, "server_args"), engine_settings(engine)
    client = table(record, "client")
    at_hand, prompts = whole(client, "max_concurrency"), whole(client, "num_prompts")
    return replace(
        usual,
        max_sequences=most,
        memory_share=number(said, "gpu_memory_utilization"),
        pass_tokens=whole(said, "max_num_batched_tokens") or usual.pass_tokens,
        cache_room=whole(record, "cache_len") or whole(said, "max_target_length"),
        burst_share=min(at_hand / prompts, 1.0) if at_hand and prompts else 0.0,
        num_requests=_queued(record) if engine == "jetstream" else None,
        replies_differ=_is_of_chats(record),
    )


def _queued(record: Record) -> int | None:
    """Requests of a run that are all queued when it begins."""
    found = re.search(r"offline (\d+) prompts", " ".join(map(str, sequence(record, "notes"))))
    return int(found[1]) if found else None


def _is_of_chats(record: Record) -> bool:
    """Whether lengths are those of ShareGPT."""
    return "sharegpt" in (text(record, "input_len") + text(record, "output_len")).lower()


def _lengths(record: Record) -> tuple[tuple[int, int], tuple[str, ...]]:
    """Tokens of prompts and replies, means."""
    if _is_of_chats(record):
        return _SHARE_GPT, (f"ShareGPT: {_SHARE_GPT[0]} tokens in and {_SHARE_GPT[1]} out, exponentially spread",)
    prompt, reply = whole(record, "input_len"), whole(record, "output_len")
    share = number(table(record, "client"), "range_ratio")
    if prompt is not None and reply is not None:
        if share is None:
            return (prompt, reply), ()
        mean = (1.0 + share) / 2
        return (round(prompt * mean), round(reply * mean)), (f"lengths: {share:g} to 1 times those stated",)
    longest = whole(record, "max_seq") or whole(record, "cache_len")
    if longest is None:
        raise unusable("lengths of neither prompts nor replies", None, key="input_len")
    return (longest // 2, longest // 2), (f"prompts and replies of {longest // 2}: half of the longest sequence",)


def _mesh(record: Record, hardware: Slice) -> dict[str, int]:
    """Degrees, which count devices; attention data parallelism shares out experts over the same ones."""
    sharding = table(record, "sharding")
    tensor, data = whole(sharding, "tp") or 1, whole(sharding, "dp") or 1
    if tensor * data == hardware.num_chips < hardware.num_devices:
        tensor *= hardware.num_devices // hardware.num_chips
    if sharding.get("dp_attention") is True:
        return {"ep": tensor * data}
    return {"tp": tensor, "dp": data}


def _dtypes(record: Record, engine: EngineName) -> tuple[dict[str, str], tuple[str, ...]]:
    """Dtypes; a cache whose dtype is not said is as the weights of a narrow checkpoint, else bf16."""
    said = table(record, "dtype")
    words = text(said, "weights").lower().replace("-", " ").split()
    weights = next((dtype for dtype in _DTYPES if dtype in words), None)
    assumed: tuple[str, ...] = ()
    if weights is None:
        weights, assumed = "bf16", ("weights in bf16",)
    cache = text(said, "kv_cache").lower()
    if cache not in _DTYPES:
        cache = weights if weights == "fp8" and cache != "auto" else "bf16"
        assumed = (*assumed, f"KV cache in {cache}")
    is_stored_only = "only" in words or engine == "torch_xla"
    return {"weights": weights, "compute": "bf16" if is_stored_only else weights, "kv_cache": cache}, assumed


def _concurrency(record: Record) -> tuple[int | None, int | None]:
    """Requests at hand, None for all at once; and the most that the engine decodes together."""
    batch = whole(record, "batch")
    if batch is not None:
        return batch, None
    client, most = table(record, "client"), whole(table(record, "server_args"), "max_num_seqs")
    at_hand = whole(client, "max_concurrency") or whole(client, "concurrency")
    if at_hand is None and most is None:
        raise unusable("neither a batch nor a concurrency", None, key="batch")
    return at_hand, most


def _measured(record: Record, chips: int) -> Iterator[tuple[ServingMetric, float]]:
    """What clients saw."""
    measured = table(record, "measured")
    per_chip, total = number(measured, "output_tok_s_per_chip"), number(measured, "output_tok_s")
    if per_chip is None and total is not None:
        per_chip = total / chips
    if per_chip is not None:
        yield "output_tokens_per_s_per_chip", per_chip
    names: tuple[tuple[ServingMetric, str], ...] = (("ttft_s", "ttft"), ("tpot_s", "tpot"))
    for metric, name in names:
        for key, unit in ((f"{name}_mean_ms", _MILLI), (f"{name}_ms", _MILLI), (f"{name}_median_ms", _MILLI)):
            if (value := number(measured, key)) is not None:
                yield metric, value * unit
                break
