"""From the `[workload]` of a serving job to what is to be served: lengths, arrivals and limits in numbers."""

from __future__ import annotations

from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from ridgeline.errors import InputError
from ridgeline.job.document import missing
from ridgeline.job.length_reading import read_length
from ridgeline.job.serving import PrefixCache, ServingWorkload
from ridgeline.job.trace_reading import read_trace
from ridgeline.job.traffic import FixedLength, Trace
from ridgeline.units import format_seconds, parse_count, parse_duration, parse_fraction, parse_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.document import LimitTable, PrefixCacheTable, ServingWorkloadTable
    from ridgeline.job.origin import Origin
    from ridgeline.job.serving import Statistic
    from ridgeline.job.traffic import Length

_Side: TypeAlias = Literal["prompt_len", "generate_len"]
_Limit: TypeAlias = "tuple[Statistic, float | None]"

_MOST_SEQUENCES = 1e9

LEAST_RATE: Final = 1e-6
"""Requests a second: one in 12 days. Far below, moments of arrival have no digits left for the time of a pass."""

MOST_RATE: Final = 1e7
"""Requests a second, more than all servers of the world are sent."""

_LONGEST_S: Final[Mapping[str, float]] = {"ttft_s": 600.0, "tpot_s": 10.0}
"""Limits beyond which a unit was forgotten."""

_WITHOUT_UNIT_S: Final[Mapping[str, float]] = {"ttft_s": 30.0, "tpot_s": 1.0}
"""Limits beyond which a flag must say its unit: a key of a job file has it in its name."""

_OF_A_TRACE: Final = {"prompt_len": "prompts", "generate_len": "replies", "rate": "rate"}


def serving_workload(table: ServingWorkloadTable, origin: Origin, *, folder: str) -> ServingWorkload:
    """What is to be served.

    Args:
        table: Of the right shape.
        origin: Where its values were written, for error messages.
        folder: What a relative path of a file counts from.
    """
    trace = _trace(table, origin, folder=folder)
    prompts, replies = (_lengths(table, side, trace, origin, folder=folder) for side in ("prompt_len", "generate_len"))
    (ttft_of, ttft_s), (tpot_of, tpot_s) = (
        _limit(table.ttft_s, "ttft_s", origin),
        _limit(table.tpot_s, "tpot_s", origin),
    )
    found = ServingWorkload(
        prompt_len=prompts.longest_tokens,
        generate_len=replies.longest_tokens,
        prompt_lengths=None if isinstance(prompts, FixedLength) else prompts,
        generate_lengths=None if isinstance(replies, FixedLength) else replies,
        trace=trace,
        batch=_batch(table, origin),
        rate=_rate(table, origin) if trace is None else trace.requests_per_s,
        ttft_s=ttft_s,
        ttft_of=ttft_of,
        tpot_s=tpot_s,
        tpot_of=tpot_of,
        prefix_cache=PrefixCache() if table.prefix_cache is None else _prefix_cache(table.prefix_cache, origin),
    )
    _check_tails(found, origin)
    return found


def _trace(table: ServingWorkloadTable, origin: Origin, *, folder: str) -> Trace | None:
    """The requests of a file; what they say themselves must not be said again."""
    if table.trace is None:
        return None
    for key, what in _OF_A_TRACE.items():
        if getattr(table, key) is not None:
            raise InputError(
                f"a trace has its own {what}",
                where=origin.of(f"workload.{key}"),
                value=getattr(table, key),
                expected="a trace, or what it says in numbers",
                fix=f"leave {key} or the trace out",
            )
    if not table.trace.strip():
        raise InputError(
            "the trace has no name",
            where=origin.of("workload.trace"),
            value=table.trace,
            expected="the path of a .csv or .jsonl file",
            fix="name the file, or leave the trace out",
        )
    path = normpath(Path("." if origin.gives("workload.trace") else folder) / table.trace)
    requests = read_trace(path)
    if requests.arrival_s[-1] <= 0:
        raise InputError(
            "a trace of one moment has no rate",
            where=path,
            value=f"{requests.count} requests",
            expected="arrivals at different times",
            fix="give a longer trace",
        )
    return Trace(file=path, requests=requests)


def _lengths(table: ServingWorkloadTable, side: _Side, trace: Trace | None, origin: Origin, *, folder: str) -> Length:
    """How long prompts or replies are: as said; of a trace, the longest."""
    if trace is not None:
        seen = trace.requests.prompt_tokens if side == "prompt_len" else trace.requests.output_tokens
        return FixedLength(tokens=int(seen.max()))
    value = table.prompt_len if side == "prompt_len" else table.generate_len
    if value is None:
        raise missing(f"workload.{side}", origin.of)
    return read_length(value, f"workload.{side}", origin, folder=folder)


def _rate(table: ServingWorkloadTable, origin: Origin) -> float | None:
    if table.rate is None:
        return None
    rate = parse_count(
        table.rate, where=origin.of("workload.rate"), unit="requests a second", example="20, 2.5 or 1.5K"
    )
    if 0 < rate < LEAST_RATE or rate > MOST_RATE:
        raise InputError(
            "the rate is absurd",
            where=origin.of("workload.rate"),
            value=table.rate,
            expected=f"{LEAST_RATE:g} to {MOST_RATE:,.0f} requests a second",
            fix="give requests a second, e.g. 20, or leave the rate out",
        )
    return _more_than_nothing(rate, "rate", origin)


def _batch(table: ServingWorkloadTable, origin: Origin) -> int | None:
    if table.batch is None:
        return None
    return parse_whole(table.batch, where=origin.of("workload.batch"), unit="sequences", most=_MOST_SEQUENCES)


def _prefix_cache(table: PrefixCacheTable, origin: Origin) -> PrefixCache:
    hits = parse_fraction(table.hit_rate, where=origin.of("workload.prefix_cache.hit_rate"))
    return PrefixCache(hit_fraction=hits, shared=table.shared)


def _limit(value: str | float | LimitTable | None, key: str, origin: Origin) -> _Limit:
    """A limit on a time, and of which requests: the mean, where nothing else is said."""
    if value is None:
        return "mean", None
    if isinstance(value, str | int | float):
        return "mean", _limit_s(value, key, origin)
    said = cast("dict[Statistic, str | float]", value.model_dump(exclude_none=True))
    if len(said) != 1:
        raise InputError(
            "a limit is of the mean, or of one percentile",
            where=origin.of(f"workload.{key}"),
            value=", ".join(said) or "(nothing)",
            expected="one of mean, p50, p90, p99",
            fix="keep the one that binds, e.g. p90",
        )
    [(statistic, limit)] = said.items()
    return statistic, _limit_s(limit, key, origin)


def _limit_s(value: str | float, key: str, origin: Origin) -> float:
    limit_s = _more_than_nothing(parse_duration(value, where=origin.of(f"workload.{key}")), key, origin)
    if limit_s > _WITHOUT_UNIT_S[key] and origin.gives(f"workload.{key}") and _is_bare(value):
        raise InputError(
            f"{key} without a unit: {value} seconds, or milliseconds?",
            where=origin.of(f"workload.{key}"),
            value=value,
            expected="a time with its unit",
            fix=f"write {value}ms or {value}s",
        )
    if limit_s > _LONGEST_S[key]:
        raise InputError(
            f"{key} limits nothing: it is {format_seconds(limit_s)}",
            where=origin.of(f"workload.{key}"),
            value=value,
            expected=f"at most {format_seconds(_LONGEST_S[key])}",
            fix=f"write {value}ms if that is meant" if _is_bare(value) else f"check the unit, or leave {key} out",
        )
    return limit_s


def _is_bare(value: str | float) -> bool:
    """Whether it is a number alone."""
    try:
        float(value)
    except ValueError:
        return False
    return True


def _check_tails(workload: ServingWorkload, origin: Origin) -> None:
    """Refuses limits on what chance decides where nothing says how requests come."""
    for key, of in (("ttft_s", workload.ttft_of), ("tpot_s", workload.tpot_of)):
        if of != "mean" and workload.rate is None:
            raise InputError(
                f"a limit on {of} needs a rate: how long requests queue decides it",
                where=origin.of(f"workload.{key}"),
                value=of,
                expected="requests a second, or a trace",
                fix=f"add --rate 20, or rate = 20; or limit the mean: {key} without {of}",
            )


def _more_than_nothing(value: float, key: str, origin: Origin) -> float:
    if value <= 0:
        raise InputError(
            f"{key} must be more than zero",
            where=origin.of(f"workload.{key}"),
            value=value,
            expected="more than 0",
            fix=f"give a larger number, or leave {key} out",
        )
    return value
