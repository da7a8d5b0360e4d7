"""Where each value of a job was written, so that an error can name the flag, or the file and the key."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping


class Arguments(TypedDict, total=False):
    """What can be said beside a job file, as an argument or a flag."""

    on: str | None
    global_batch: int | str | None
    batch_tokens: float | str | None
    seq_len: int | str | None
    tokens: float | str | None
    mesh: Mapping[str, int] | str | None
    gradient_accumulation: int | str | None
    remat: Mapping[str, str] | str | None
    quantization: Mapping[str, str] | str | None
    vocab_tiling: int | str | None
    weights_dtype: str | None
    compute_dtype: str | None
    gradients_dtype: str | None
    activations_dtype: str | None
    optimizer: str | None
    lora_rank: int | str | None
    mu_dtype: str | None
    nu_dtype: str | None
    optimizer_state: str | None
    calibration: str | None
    prompt_len: Mapping[str, float | str] | int | str | None
    generate_len: Mapping[str, float | str] | int | str | None
    trace: str | None
    batch: int | str | None
    rate: float | str | None
    ttft: Mapping[str, float | str] | float | str | None
    tpot: Mapping[str, float | str] | float | str | None
    prefix_hit_rate: float | str | None
    prefix_shared: bool | None
    mode: str | None
    server_ratio: str | None
    prefill_mesh: Mapping[str, int] | str | None
    decode_mesh: Mapping[str, int] | str | None
    prefill_batch: int | str | None
    prefill_chunk: int | str | None
    memory_utilization: float | str | None
    page_tokens: int | str | None
    draft_tokens: int | str | None
    acceptance: float | str | None
    draft_model: str | None
    kv_cache_dtype: str | None
    experts_dtype: str | None


_KEY: Final = re.compile(r"(plan|workload|hardware|model|calibration)(\.\w+)*")
_NO_FILE: Final = "job"

KEYS: Final[Mapping[str, str]] = {
    "on": "hardware",
    "global_batch": "workload.global_batch",
    "batch_tokens": "workload.batch_tokens",
    "seq_len": "workload.seq_len",
    "tokens": "workload.tokens",
    "mesh": "plan.mesh",
    "gradient_accumulation": "plan.gradient_accumulation",
    "remat": "plan.remat",
    "quantization": "plan.quantization",
    "vocab_tiling": "plan.vocab_tiling",
    "weights_dtype": "plan.dtypes.weights",
    "compute_dtype": "plan.dtypes.compute",
    "gradients_dtype": "plan.dtypes.gradients",
    "activations_dtype": "plan.dtypes.activations",
    "optimizer": "plan.optimizer.kind",
    "lora_rank": "plan.lora.rank",
    "mu_dtype": "plan.optimizer.mu_dtype",
    "nu_dtype": "plan.optimizer.nu_dtype",
    "optimizer_state": "plan.optimizer.state",
    "calibration": "calibration",
    "prompt_len": "workload.prompt_len",
    "generate_len": "workload.generate_len",
    "trace": "workload.trace",
    "batch": "workload.batch",
    "rate": "workload.rate",
    "ttft": "workload.ttft_s",
    "tpot": "workload.tpot_s",
    "prefix_hit_rate": "workload.prefix_cache.hit_rate",
    "prefix_shared": "workload.prefix_cache.shared",
    "mode": "plan.mode",
    "server_ratio": "plan.server_ratio",
    "prefill_mesh": "plan.prefill",
    "decode_mesh": "plan.decode",
    "prefill_batch": "plan.prefill_batch",
    "prefill_chunk": "plan.prefill_chunk",
    "memory_utilization": "plan.memory_utilization",
    "page_tokens": "plan.page_tokens",
    "draft_tokens": "plan.speculation.draft_tokens",
    "acceptance": "plan.speculation.acceptance",
    "draft_model": "plan.speculation.draft_model",
    "kv_cache_dtype": "plan.dtypes.kv_cache",
    "experts_dtype": "plan.dtypes.experts",
}
"""Where each of them stands in a job file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value given beside the job file; it takes the place of the file's.

    Attributes:
        key: Its path in a job file, e.g. `plan.mesh`.
        value: As a job file would have it.
        where: The flag or argument it came from, e.g. `--mesh`.
    """

    key: str
    value: object
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the values of one job were written.

    Attributes:
        file: The job file, or "job" when there is none.
        settings: What was given beside it.
    """

    file: str
    settings: tuple[Setting, ...] = ()

    def of(self, key: str) -> str:
        """Where the value at a key path was written.

        >>> mesh = Setting(key="plan.mesh", value="tp=3", where="--mesh")
        >>> Origin(file="job.toml", settings=(mesh,)).of("plan.mesh.tp")
        '--mesh: tp'
        >>> Origin(file="job.toml").of("workload.seq_len")
        'job.toml: workload.seq_len'
        """
        for setting in self.settings:
            if key == setting.key:
                return setting.where
            if key.startswith(f"{setting.key}."):
                return f"{setting.where}: {key.removeprefix(f'{setting.key}.')}"
        return f"{self.file}: {key}"

    def written(self, where: str) -> str:
        """Where a key of the job was written, or what it is a part of, or the parts of it; else as it is.

        >>> mesh = Setting(key="plan.mesh", value="tp=3", where="--mesh")
        >>> Origin(file="job", settings=(mesh,)).written("plan.decode.tp"), Origin(file="job").written("plan.decode")
        ('--mesh', 'plan.decode')
        """
        if not _KEY.fullmatch(where):
            return where
        of_phase = where.startswith(("plan.prefill", "plan.decode"))
        for key in (where, *(("plan.mesh",) if of_phase else ())):
            if any(key == each.key or key.startswith(f"{each.key}.") for each in self.settings):
                return self.of(key)
        parts = [each.where for each in self.settings if each.key.startswith(f"{where}.")]
        if parts or self.file == _NO_FILE:
            return ", ".join(parts) or where
        return self.of(where)

    def gives(self, key: str) -> bool:
        """Whether a setting has exactly that key."""
        return any(setting.key == key for setting in self.settings)


@contextmanager
def told_where_written(origin: Origin) -> Generator[None]:
    """Within, an error about a key of the job says where the user wrote it: a flag, or the file.

    Args:
        origin: Of the job.

    Raises:
        InputError: That was raised within.
    """
    try:
        yield
    except InputError as error:
        where = origin.written(error.where)
        if where == error.where:
            raise
        raise InputError(error.what, where=where, value=error.value, expected=error.expected, fix=error.fix) from error


def settings(arguments: Arguments, *, written: Callable[[str], str]) -> tuple[Setting, ...]:
    """The settings that some arguments make; None makes none.

    Args:
        arguments: By name.
        written: From an argument's name to how the user wrote it, e.g. `--seq-len`.
    """
    for name, value in arguments.items():
        if name not in KEYS:
            raise InputError(
                "unknown argument",
                where=written(name),
                value=value,
                expected=", ".join(KEYS),
                fix=nearest(name, KEYS) or "leave it out",
            )
    return tuple(
        Setting(key=KEYS[name], value=value, where=written(name))
        for name, value in arguments.items()
        if value is not None
    )
