"""Records of the most that GPU servers yield: TensorRT-LLM's own tables, and MLPerf Inference's offline scenario.

All requests are queued at once, so that an engine decodes as many as it has room for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from ridgeline.errors import InputError
from ridgeline.hardware.catalog import find_chip
from ridgeline.job.job import BYTES_OF
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree
from ridgeline.search.serving.pinned import engine_settings
from ridgeline.study.measured.gpu_settings import machine_of
from ridgeline.study.measured.records import as_record, number, record_id, records_of, skipped, text, unusable, whole
from ridgeline.study.measured.serving_case import ServingCase
from ridgeline.study.measured.serving_job import Served, checkpoint_dtypes, has_experts, model_named, served_job
from ridgeline.study.measured.trtllm_bench import (
    CACHE_SHARE,
    NUM_REQUESTS,
    SAMPLER_BYTES,
    bench_limits,
    graph_sizes,
    requests_in_memory,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.chip import Chip
    from ridgeline.job.job import Dtype
    from ridgeline.model.spec import ModelSpec
    from ridgeline.search.serving.pinned import EngineName, EngineSettings
    from ridgeline.study.measured.case import Skipped
    from ridgeline.study.measured.gpu_settings import Machine
    from ridgeline.study.measured.measurement import SourceOfMeasured
    from ridgeline.study.measured.records import Record

_OTHER_BOARDS: Final = ("pcie", "nvl")
"""Boards of a chip with other memory and power than the one that its name alone means."""

_ROOM: Final = 1.9
"""Memory of a server over its weights in fp8 where a source does not say on how many GPUs one runs."""

_MOST_GPUS: Final = 8

_DEFAULT: Final = "default_config"
_SEQUENCES_OF_V0: Final = 256
"""Of vLLM as it is without flags before its engine V1 (2024): `max_num_seqs`; it reads prompts in passes of their own,
and its cache is as wide as activations. One engine has all GPUs of a server: it knew tensor parallelism alone (v0.5.1,
docs/source/serving/distributed_serving.rst)."""

_TABLED: Final = "max-throughput"
"""Of TensorRT-LLM's tables. What they call TP of mixtures is attention in ranks, beside experts that are split over
these: `enable_attention_dp` (TensorRT-LLM v1.0, performance overview, how its tables are made)."""

_CACHE_OF_MXFP4: Final = "gpt-oss"
"""Checkpoints that say nothing of their cache, which stays in bf16 where a chip has no fp4 (TensorRT-LLM v1.1,
performance overview: `dtype: fp8`, on Hopper `auto`)."""


def read_throughput_records(document: object, where: str) -> tuple[list[ServingCase], list[Skipped]]:
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
            record = as_record(row)
            cases.append(_of_mlperf(name, record) if "scenario" in record else _of_table(name, record))
        except InputError as error:
            left_out.append(skipped(name, error))
    return cases, left_out


def _of_table(name: str, record: Record) -> ServingCase:
    """A row that states lengths and how the server is split."""
    if number(record, "decode_tokens_per_s_per_gpu") is not None:
        raise unusable("a setup in words alone", text(record, "config") or None, key="config")
    gpus, prompt_len, generate_len = (_needed(record, key) for key in ("gpus", "isl", "osl"))
    measured, origin = _per_gpu(record, gpus)
    machine, chip = _machine(record, gpus)
    is_tabled = _TABLED in text(record, "backend")
    model, precision = model_named(text(record, "model")), text(record, "precision").lower() or "bf16"
    has_fp4 = "fp4" in chip.peak_flops_per_s
    is_wide = precision == "bf16" or (model.name.startswith(_CACHE_OF_MXFP4) and not has_fp4)
    kv_cache = "bf16" if is_wide else "fp8"
    ways = {"tp": whole(record, "tp") or 1, "ep": whole(record, "dep") or 1, "pp": whole(record, "pp") or 1}
    if is_tabled and has_experts(model):
        ways = {**ways, "tp": 1, "ep": ways["tp"] * ways["ep"]}
    served = Served(
        model=model.name,
        hardware=machine.table,
        prompt_len=prompt_len,
        generate_len=generate_len,
        concurrency=whole(record, "concurrency"),
        mesh=ways,
        dtypes=checkpoint_dtypes(model, precision, has_fp4=has_fp4, kv_cache=kv_cache),
    )
    job, said = served_job(name, served)
    engine = engine_settings(_engine(text(record, "backend")))
    if is_tabled:
        engine = _of_bench(engine, model, chip, served)
    return ServingCase(
        id=name,
        job=job,
        engine=engine,
        metric="output_tokens_per_s_per_chip",
        measured=measured,
        source_of_measured=origin,
        source=_source(record, "backend"),
        assumed=(
            *machine.assumed,
            *said,
            f"KV cache in {kv_cache}",
            "limits that trtllm-bench sets" if is_tabled else "engine's own tokens a pass",
            *((f"{engine.num_requests:,} requests in all",) if engine.num_requests else ()),
        ),
    )


def _of_bench(engine: EngineSettings, model: ModelSpec, chip: Chip, served: Served) -> EngineSettings:
    """An engine as TensorRT-LLM's benchmark runs it."""
    narrowest = served.dtypes.get("experts", served.dtypes["weights"])
    room = requests_in_memory(
        model,
        chip,
        mesh=served.mesh,
        tokens=served.prompt_len + served.generate_len,
        bytes_each=BYTES_OF[cast("Dtype", narrowest)],
    )
    limits = bench_limits(
        requests_in_memory=room / served.mesh.get("pp", 1),
        prompt_tokens=served.prompt_len,
        reply_tokens=served.generate_len,
    )
    return replace(
        engine,
        max_sequences=limits.max_sequences * served.mesh["ep"],
        pass_tokens=limits.pass_tokens,
        memory_share=1.0,
        cache_share=CACHE_SHARE,
        sampler_bytes=SAMPLER_BYTES,
        streams=False,
        graph_sizes=graph_sizes(limits),
        num_requests=NUM_REQUESTS.get((served.prompt_len, served.generate_len)),
    )


def _of_mlperf(name: str, record: Record) -> ServingCase:
    """A submission: lengths are those of its data set, and how many servers share the GPUs is not said."""
    scenario = text(record, "scenario").lower()
    if scenario != "offline":
        raise unusable("a rate under limits on tails", scenario or None, key="scenario")
    if text(record, "division").lower() == "open":
        raise unusable("an open submission, of a model and a precision of its own", "open", key="division")
    if "mixtral" in text(record, "benchmark"):
        raise unusable("lengths of prompts of three data sets, not stated", text(record, "benchmark"), key="benchmark")
    gpus, samples_per_s = _needed(record, "gpus"), number(record, "samples_per_s")
    total = number(record, "tokens_per_s_total")
    if total is None or samples_per_s is None:
        raise unusable("neither tokens nor samples a second", None, key="tokens_per_s_total")
    model, length = model_named(text(record, "model")), round(total / samples_per_s)
    _, chip = _machine(record, gpus)
    is_default = _DEFAULT in text(record, "system")
    of_server = min(gpus, _MOST_GPUS) if is_default else _gpus_of_server(model, chip, gpus)
    machine, _ = _machine(record, of_server)
    narrowest = "fp4" if "fp4" in chip.peak_flops_per_s else "fp8"
    kv_cache = "bf16" if is_default else "fp8"
    served = Served(
        model=model.name,
        hardware=machine.table,
        prompt_len=length,
        generate_len=length,
        concurrency=None,
        mesh={"tp": of_server},
        dtypes={"weights": narrowest, "compute": narrowest, "kv_cache": kv_cache},
    )
    engine = replace(engine_settings(_engine(text(record, "framework"))), streams=False)
    if is_default:
        engine = replace(engine, reading="apart", max_sequences=_SEQUENCES_OF_V0)
    job, _ = served_job(name, served)
    return ServingCase(
        id=name,
        job=job,
        engine=engine,
        metric="output_tokens_per_s_per_chip",
        measured=total / gpus,
        source=_source(record, "submitter"),
        assumed=(
            *machine.assumed,
            f"prompts as long as replies, {length} tokens, all alike",
            f"servers of {of_server} GPUs",
            f"weights in {narrowest}, the narrowest that the chip multiplies; KV cache in {kv_cache}",
        ),
    )


def _machine(record: Record, gpus: int) -> tuple[Machine, Chip]:
    """The GPUs of one server, and the chip.

    Raises:
        InputError: The chip is unknown, or another board of one that is known.
    """
    machine = machine_of(record, gpus=gpus)
    name = str(machine.table if isinstance(machine.table, str) else machine.table["name"]).partition(":")[0]
    said, chip = text(record, "gpu"), find_chip(name)
    others = [board for board in _OTHER_BOARDS if board in said.lower() and board not in name]
    if chip is None or others:
        raise unusable("not a GPU of the catalogue", said, key="gpu")
    return machine, chip


def _gpus_of_server(model: ModelSpec, chip: Chip, gpus: int) -> int:
    """The fewest GPUs whose memory holds weights in fp8 and room for caches."""
    weights_bytes = float(count_parameters(model_tree(model)).text)
    fewest = 1
    while fewest * chip.hbm_bytes < _ROOM * weights_bytes and fewest < min(gpus, _MOST_GPUS):
        fewest *= 2
    return fewest


def _per_gpu(record: Record, gpus: int) -> tuple[float, SourceOfMeasured]:
    """Output tokens a second and GPU."""
    total = number(record, "output_tokens_per_s_total")
    if total is not None:
        return total / gpus, "direct"
    stated = number(record, "output_tokens_per_s_per_gpu")
    if stated is None:
        raise unusable("no output tokens a second", None, key="output_tokens_per_s_per_gpu")
    return stated, "derived" if record.get("per_gpu_derived") is True else "direct"


def _needed(record: Mapping[str, object], key: str) -> int:
    found = whole(record, key)
    if found is None:
        raise unusable(f"{key} not stated", None, key=key)
    return found


def _engine(said: str) -> EngineName:
    """The engine that a source means; GPU vendors' own where it says none."""
    known: dict[str, EngineName] = {"vllm": "vllm", "sglang": "sglang"}
    named: list[EngineName] = [name for word, name in known.items() if word in said.lower()]
    return named[0] if named else "trtllm"


def _source(record: Record, what: str) -> str:
    return " ".join(filter(None, (text(record, key) for key in ("source", "source_commit", "source_path", what))))
