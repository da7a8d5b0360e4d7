"""What servers can do at best: how long a full server takes for a request, by which overload is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, assert_never

import numpy as np

from ridgeline.search.engine.arrivals import decode_passes, new_tokens
from ridgeline.search.engine.clock import clock_of
from ridgeline.search.engine.setting import Disaggregated, Interleaved

if TYPE_CHECKING:
    from ridgeline.job.traffic import Requests
    from ridgeline.search.engine.clock import Clock
    from ridgeline.search.engine.setting import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRequest:
    """A request, on average.

    Attributes:
        read_tokens: Tokens of the prompt that are computed.
        read_keys: Keys that each of them reads.
        num_passes: Decode passes.
        decode_keys: Keys that a row of decode reads, mean over passes.
        held_tokens: Tokens for which a running sequence has pages, mean over its passes.
    """

    read_tokens: float
    read_keys: float
    num_passes: float
    decode_keys: float
    held_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests that come over requests that full servers can serve, in the same time.

    Attributes:
        decode_ratio: Of servers that decode, or do both.
        prefill_ratio: Of servers that only read prompts; 0 where there are none.
    """

    decode_ratio: float
    prefill_ratio: float = 0.0

    @property
    def ratio(self) -> float:
        """Of those that have more to do; from 1 on they fall behind."""
        return max(self.decode_ratio, self.prefill_ratio)


def load_of(requests: Requests, engine: Engine) -> Load:
    """How much of what servers can do requests ask for.

    Assumes: a full server runs as many sequences as its limits and its pages allow on average, each half way through
        its reply; prompts fill passes as far as they come. Preemption is left out. An estimate, within a few percent
        of what full servers do in the simulation.
    """
    if requests.count < 2:
        return Load(decode_ratio=0.0)
    span_s = float(requests.arrival_s[-1] - requests.arrival_s[0])
    requests_per_s = (requests.count - 1) / span_s if span_s > 0 else inf
    mean, clock = mean_request(requests, engine), clock_of(engine.times, engine.speculation)
    sequences = full_sequences(mean, engine)
    decode_s = mean.num_passes * clock.decode_s(sequences, mean.decode_keys) / sequences
    read_s = mean.read_tokens * _read_token_s(mean, engine, clock)
    match engine.fleet:
        case Interleaved(num_servers=count) if engine.scheduling.prefill == "separate":
            return Load(decode_ratio=requests_per_s * (read_s + decode_s) / count)
        case Interleaved(num_servers=count):
            request_s = _chunked_request_s(mean, engine, clock, sequences)
            return Load(decode_ratio=requests_per_s * request_s / count)
        case Disaggregated(num_prefill_servers=readers, num_decode_servers=writers):
            return Load(
                decode_ratio=requests_per_s * decode_s / writers, prefill_ratio=requests_per_s * read_s / readers
            )
        case _:
            assert_never(engine.fleet)


def mean_request(requests: Requests, engine: Engine) -> MeanRequest:
    """The mean of requests, each weighted by how long it stays where the mean is asked for."""
    prompts, outputs = requests.prompt_tokens.astype(np.float64), requests.output_tokens.astype(np.float64)
    computed = new_tokens(requests.prompt_tokens, engine.scheduling.prefix_hit_fraction).astype(np.float64)
    passes = decode_passes(requests.output_tokens, engine.speculation).astype(np.float64)
    stay = passes if passes.any() else np.ones_like(passes)
    held = prompts + (outputs if engine.scheduling.admission == "whole" else outputs / 2)
    return MeanRequest(
        read_tokens=float(computed.mean()),
        read_keys=float(np.average(prompts - computed / 2, weights=computed)),
        num_passes=float(passes.mean()),
        decode_keys=float(np.average(prompts + outputs / 2, weights=stay)),
        held_tokens=float(np.average(held, weights=stay)) + (engine.limits.page_tokens - 1) / 2,
    )


def full_sequences(mean: MeanRequest, engine: Engine) -> int:
    """Sequences that a full server runs."""
    limits = engine.limits
    if limits.kv_pages is None:
        return limits.max_sequences
    return max(1, min(limits.max_sequences, int(limits.kv_pages * limits.page_tokens / mean.held_tokens)))


def _read_token_s(mean: MeanRequest, engine: Engine, clock: Clock) -> float:
    """Seconds for a token of prefill in passes that are full of whole prompts; a longer prompt is a pass alone."""
    prompts = max(1, int(engine.limits.max_pass_tokens / mean.read_tokens))
    tokens = max(1, round(prompts * mean.read_tokens))
    return clock.prefill_s(tokens, mean.read_keys) / tokens


def _chunked_request_s(mean: MeanRequest, engine: Engine, clock: Clock, sequences: int) -> float:
    """Seconds for a request where passes do both.

    A prompt is read in as few passes as it fits into, beside all running sequences; the others only decode. Where
    prompts would need more passes than decode does, they set the pace, and fewer sequences run.
    """
    rows = max(1, engine.limits.max_pass_tokens - sequences * (engine.speculation.draft_tokens + 1))
    tokens = min(float(rows), mean.read_tokens)
    reading = mean.read_tokens / tokens
    read_s = clock.prefill_s(max(1, round(tokens)), mean.read_keys)
    running = min(sequences, int(mean.num_passes / reading))
    if not running:
        return reading * read_s
    decode_s = clock.decode_s(running, mean.decode_keys)
    return reading * clock.mixed_s(decode_s, read_s) + max(mean.num_passes / running - reading, 0.0) * decode_s
