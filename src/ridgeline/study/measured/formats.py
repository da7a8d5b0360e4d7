"""Which format a record is of, and what each format is good for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.study.measured.records import Record

Format: TypeAlias = Literal[
    "tpu_training", "gpu_training", "memory", "tpu_serving", "throughput", "latency", "operation", "unknown"
]

NOT_USED: Final[Mapping[Format, str]] = {
    "operation": "a measurement of a single operation or collective, of which no step is made",
    "unknown": "unknown format: no chip and no GPU with what was measured of a job",
}
"""Why a record of that format is not used."""

_LATENCY: Final = frozenset({"silicon_ttft_ms", "silicon_tpot_ms"})
_THROUGHPUT: Final = frozenset({"isl", "osl", "scenario", "decode_tokens_per_s_per_gpu"})
_TPU_SERVING: Final = frozenset({"input_len", "output_len", "engine", "server_args", "cache_len"})
_JOB: Final = frozenset({"model", "seq_len", "global_batch", "per_device_batch", "gbs", "mbs"})


def format_of(record: object) -> Format:
    """The format of a record, by the keys it has.

    >>> format_of({"chip": "v5e", "model": "llama2-7b", "measured": {"step_time_s": 1.0}})
    'tpu_training'
    >>> format_of({"op": "matmul", "chip": "tpu7x", "achieved": 2.6}), format_of("text")
    ('operation', 'unknown')
    """
    if not isinstance(record, dict):
        return "unknown"
    keys = set(cast("Record", record))
    if "fits" in keys:
        return "memory"
    if keys & _LATENCY:
        return "latency"
    if keys & _THROUGHPUT:
        return "throughput"
    if keys & _TPU_SERVING:
        return "tpu_serving"
    if "op" in keys and "achieved" in keys:
        return "operation"
    if keys & {"gpu", "gpus", "activation_checkpointing"} and keys & _JOB:
        return "gpu_training"
    return "tpu_training" if "chip" in keys and keys & _JOB else "unknown"
