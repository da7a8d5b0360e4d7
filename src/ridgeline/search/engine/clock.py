"""How long passes of one server take: one pass, a run of passes in closed form, and passes until a moment."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from typing import TYPE_CHECKING

from ridgeline.cost.laws.speculation import kept_tokens
from ridgeline.search.engine.times import line_at

if TYPE_CHECKING:
    from ridgeline.search.engine.setting import Speculation
    from ridgeline.search.engine.times import StepTimes

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRun:
    """Passes of an unchanged batch: each takes as much longer as the contexts have grown.

    Attributes:
        first_s: Seconds of the first pass.
        growth_s: Seconds that each pass takes more than the one before.
        num_passes: How many this holds for; infinite where times are linear from here on.
    """

    first_s: float
    growth_s: float
    num_passes: float

    def run_s(self, passes: int) -> float:
        """Seconds of so many passes.

        >>> DecodeRun(first_s=1.0, growth_s=0.5, num_passes=9).run_s(3)
        4.5
        """
        return passes * (self.first_s + self.growth_s * (passes - 1) / 2)

    def passes_to(self, after_s: float) -> int:
        """The least number of passes, 1 or more, that takes at least so long.

        >>> run = DecodeRun(first_s=1.0, growth_s=0.5, num_passes=9)
        >>> run.passes_to(4.5), run.passes_to(4.6), run.passes_to(0.0)
        (3, 4, 1)
        """
        slant = self.first_s - self.growth_s / 2
        root = slant + sqrt(max(slant * slant + 2 * self.growth_s * after_s, 0.0))
        return max(1, ceil(2 * after_s / root - _ROUNDING)) if root > 0 else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Times of a server's passes.

    Attributes:
        times: The tables.
        speculation: Rows a sequence, and tokens a pass.
        pass_tokens: Tokens that a pass adds to a sequence.
        seconds_of: By sequences, once asked: seconds of a decode pass by keys.
    """

    times: StepTimes
    speculation: Speculation
    pass_tokens: float
    seconds_of: dict[int, tuple[float, ...]] = field(default_factory=dict[int, tuple[float, ...]])

    def decode_run(self, sequences: int, num_keys: float) -> DecodeRun:
        """Passes of so many sequences, which at first read so many keys each."""
        keys, seconds = self.times.decode.keys, self._seconds(sequences)
        first_s, slope = line_at(keys, seconds, num_keys)
        bend = bisect_right(keys, num_keys)
        num_passes = inf if bend >= len(keys) - 1 and bend else ceil((keys[bend] - num_keys) / self.pass_tokens)
        return DecodeRun(first_s=first_s, growth_s=slope * self.pass_tokens, num_passes=num_passes)

    def decode_s(self, sequences: int, num_keys: float) -> float:
        """One pass of decode."""
        return line_at(self.times.decode.keys, self._seconds(sequences), num_keys)[0]

    def prefill_s(self, tokens: int, num_keys: float) -> float:
        """One pass over prompts alone."""
        return self.times.prefill.pass_s(tokens, num_keys)

    def mixed_s(self, decode_s: float, prefill_s: float) -> float:
        """A pass that does both: what both would spend is spent once."""
        return max(decode_s, prefill_s, decode_s + prefill_s - self.times.shared_s)

    def _seconds(self, sequences: int) -> tuple[float, ...]:
        seconds = self.seconds_of.get(sequences)
        if seconds is None:
            seconds = self.times.decode.at_rows(sequences * (self.speculation.draft_tokens + 1))
            draft = self.times.draft
            if draft is not None:
                drafts = self.speculation.draft_tokens
                pairs = zip(self.times.decode.keys, seconds, strict=True)
                seconds = tuple(each + drafts * draft.pass_s(sequences, keys) for keys, each in pairs)
            self.seconds_of[sequences] = seconds
        return seconds


def clock_of(times: StepTimes, speculation: Speculation) -> Clock:
    """The clock of a server."""
    pass_tokens = kept_tokens(
        token_acceptance_fraction=speculation.acceptance_fraction, num_draft_tokens=speculation.draft_tokens
    )
    return Clock(times=times, speculation=speculation, pass_tokens=pass_tokens)
