"""Records of servers under a closed loop of requests: time to the first token, and per token after it.

A row states backend, system, model, precision, lengths, requests at hand, and how attention and experts are split, by
the keys of the measured samples that NVIDIA's aiconfigurator ships.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import find_chip
from ridgeline.search.serving.pinned import ENGINES, engine_settings
from ridgeline.study.measured.inferencex import BURST_SHARE, LENGTH_SHARE, Run, RunFlags, run_flags
from ridgeline.study.measured.records import (
    as_record,
    number,
    record_id,
    records_of,
    skipped,
    text,
    unusable,
    whole,
)
from ridgeline.study.measured.serving_case import ServingCase
from ridgeline.study.measured.serving_job import Served, checkpoint_dtypes, model_named, served_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.hardware.chip import Chip
    from ridgeline.search.serving.pinned import EngineName
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.measurement import ServingMetric
    from ridgeline.study.measured.records import Record

_MILLI: Final = 1e-3
_DRAFTS: Final = "whether tokens are drafted ahead: rows of one job differ by up to 1.9 times"
_METRICS: Final[tuple[tuple[ServingMetric, str], ...]] = (("ttft_s", "silicon_ttft_ms"), ("tpot_s", "silicon_tpot_ms"))
_SOURCE: Final = "ai-dynamo/aiconfigurator silicon_sample.csv"
_STUDIED_BY_HAND: Final = "gap"
_OWN_RUNS: Final = "gap-analysis"
"""Of a file of runs that are not InferenceX's; any other row with a day is."""

_BF16_CACHE: Final = "sglang"
"""The engine whose cache stays in bf16 unless it is told otherwise."""


def read_latency_records(document: object, where: str) -> tuple[list[ServingCase], list[Skipped]]:
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
    mode = text(record, "mode")
    if mode not in {"agg", "disagg"}:
        raise unusable("neither one kind of server nor two", mode or None, key="mode")
    is_apart = mode == "disagg"
    served, flags, said = _served(record, "decode_" if is_apart else "")
    if not is_apart:
        _refuse_waiting(record)
    if flags.drafts:
        raise unusable("tokens are drafted ahead, and how many are accepted is not stated", True, key="measured")
    job, said_of_batch = served_job(name, served)
    backend, version = _engine(text(record, "backend")), text(record, "backend_version")
    settings = replace(engine_settings(backend), burst_share=BURST_SHARE)
    settings = replace(
        settings, pass_tokens=flags.pass_tokens or settings.pass_tokens, receive_passes=flags.receive_passes
    )
    is_drafting_open = job.model.mtp_layers > 0 and is_apart
    for metric, key in _METRICS:
        if (value := number(record, key)) is None or (is_apart and metric == "ttft_s"):
            continue
        yield ServingCase(
            id=name,
            job=job,
            engine=replace(settings, reading="elsewhere") if is_apart else settings,
            metric=metric,
            measured=value * _MILLI,
            source=" ".join(filter(None, (_SOURCE, text(record, "ds").rpartition("/")[2], backend, version))),
            not_stated=_DRAFTS if is_drafting_open else "",
            assumed=(*said, *said_of_batch, f"KV cache in {served.dtypes['kv_cache']}", "ten times as many requests"),
        )


def _refuse_waiting(record: Record) -> None:
    """Refuses a row whose requests wait longer than they are answered: fewer run than clients keep at hand."""
    first_ms, token_ms, tokens = (number(record, key) for key in (_METRICS[0][1], _METRICS[1][1], "osl"))
    if first_ms and token_ms and tokens and first_ms > token_ms * tokens:
        raise unusable(
            "requests wait longer than they are answered; how many are held is not stated", first_ms, key=_METRICS[0][1]
        )


def _served(record: Record, prefix: str) -> tuple[Served, RunFlags, tuple[str, ...]]:
    """The server of a row, how it was started, and what was assumed."""
    chip, model, backend = _chip(record), model_named(text(record, "model_path")), _engine(text(record, "backend"))
    chips, mesh, said = _mesh(record, prefix)
    precision = text(record, "precision") or text(record, "gemm_quant_mode") or "bf16"
    concurrency = _decoded_apart(record) if prefix else _requests(record, mesh)
    prompt_len, generate_len = _needed(record, "isl"), _needed(record, "osl")
    flags = RunFlags()
    if text(record, "measured") and _OWN_RUNS not in text(record, "ds"):
        run = Run(
            engine=backend,
            model=model.name,
            chip=chip.name,
            precision=precision,
            day=text(record, "measured"),
            prompt_len=prompt_len,
            concurrency=concurrency,
            gpus=chips,
        )
        flags = RunFlags() if prefix else run_flags(run)
        prompt_len, generate_len = round(prompt_len * LENGTH_SHARE), round(generate_len * LENGTH_SHARE)
        said = (*said, f"lengths drawn, {prompt_len} and {generate_len} on average", "flags of InferenceX's scripts")
    is_wide = precision == "bf16" or backend == _BF16_CACHE
    served = Served(
        model=model.name,
        hardware=f"{chip.name}:{chips}",
        prompt_len=prompt_len,
        generate_len=generate_len,
        concurrency=concurrency,
        mesh=mesh,
        expert_split="whole" if (whole(record, f"{prefix}moe_ep_size") or 1) > 1 else "width",
        dtypes=checkpoint_dtypes(
            model,
            precision,
            has_fp4="fp4" in chip.peak_flops_per_s,
            kv_cache=flags.kv_cache or ("bf16" if is_wide else "fp8"),
        ),
    )
    return served, flags, said


def _engine(said: str) -> EngineName:
    if said not in ENGINES:
        raise unusable("unknown engine", said or None, key="backend")
    return said


def _chip(record: Record) -> Chip:
    said = text(record, "system")
    found = find_chip(said.replace("_", "-")) or find_chip(said.partition("_")[0])
    if found is None:
        raise unusable("unknown chip", said or None, key="system")
    return found


def _needed(record: Record, key: str) -> int:
    found = whole(record, key)
    if found is None:
        raise unusable(f"{key} not stated", None, key=key)
    return found


def _mesh(record: Record, prefix: str) -> tuple[int, dict[str, int], tuple[str, ...]]:
    """GPUs of a server, its mesh, and what was assumed.

    Attention data parallelism comes with experts split over its ranks. Some rows were converted by multiplying the
    degrees of attention and of experts, which lie on the same GPUs: they state 64 for 8.
    """
    tp, pp = _needed(record, f"{prefix}tp_size"), whole(record, f"{prefix}pp_size") or 1
    dp = whole(record, f"{prefix}attention_dp_size") or 1
    moe_tp, moe_ep = whole(record, f"{prefix}moe_tp_size") or 1, whole(record, f"{prefix}moe_ep_size") or 1
    said: tuple[str, ...] = ()
    if moe_tp == moe_ep > 1 and tp * dp == moe_tp * moe_ep and _STUDIED_BY_HAND not in text(record, "ds"):
        tp, dp, moe_tp = tp if tp == 1 else moe_ep, dp if dp == 1 else moe_ep, 1
        said = (f"{moe_ep} GPUs: the degrees of attention and of experts multiplied",)
    if moe_tp * moe_ep not in {1, tp * dp}:
        raise unusable("experts on other GPUs than attention", f"{moe_tp}·{moe_ep} and {tp}·{dp}", key="moe_ep_size")
    if dp > 1 and tp > 1:
        raise unusable("attention in ranks of several GPUs", f"{dp} ranks of {tp}", key="attention_dp_size")
    return tp * dp * pp, {"tp": tp, "ep": dp, "pp": pp}, said


def _requests(record: Record, mesh: dict[str, int]) -> int:
    """Requests at hand: as stated, or those of each rank."""
    stated, of_rank = whole(record, "concurrency"), whole(record, "batch_size")
    if stated is None and of_rank is None:
        raise unusable("neither concurrency nor a batch", None, key="concurrency")
    if stated is None or (of_rank is not None and mesh["ep"] == 1):
        return (of_rank or 1) * mesh["ep"]  # of one server: with more requests, several share them
    return stated


def _decoded_apart(record: Record) -> int:
    """Requests of one of the servers that decode."""
    workers, concurrency = whole(record, "decode_num_workers"), whole(record, "concurrency")
    if workers is None:
        raise unusable("how many servers decode is not stated", None, key="decode_num_workers")
    if concurrency is None:
        return _needed(record, "decode_batch_size") * (whole(record, "decode_attention_dp_size") or 1)
    return -(-concurrency // workers)
