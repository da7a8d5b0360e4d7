"""What users send to a server: requests as they came, or the law by which they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp, log
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNCUT_SIGMAS: Final = NormalDist().inv_cdf(0.999)
"""Deviations above the median from which one in a thousand is cut, where no longest one is said."""

_HALVINGS: Final = 100
"""Of the interval in which a median lies: to the last digit."""

_FARTHEST_SIGMAS: Final = 8.0
"""Deviations above the longest length, beyond which no median is looked for: all lengths would be cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLength:
    """Every prompt, or every reply, is equally long."""

    tokens: int

    @property
    def longest_tokens(self) -> int:
        """The length itself."""
        return self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformLength:
    """Every whole number of tokens from the least to the most is equally likely."""

    least_tokens: int
    most_tokens: int

    @property
    def longest_tokens(self) -> int:
        """The most."""
        return self.most_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalLength:
    """Most are short and a few are long: the logarithm of a length is normal; at least one token.

    Attributes:
        mean_tokens: Mean length, not the median, of lengths as they are cut.
        sigma: Standard deviation of the natural logarithm of the length before it is cut.
        most_tokens: Longer ones are cut here; None for where one in a thousand would be.
    """

    mean_tokens: float
    sigma: float
    most_tokens: int | None = None

    @property
    def median_tokens(self) -> float:
        """What half of all lengths stay below: so much that their mean, once they are cut, is as it is said.

        >>> round(LognormalLength(mean_tokens=1000.0, sigma=1.0, most_tokens=10**9).median_tokens, 3)
        606.531
        """
        if self.most_tokens is None:
            return self.mean_tokens / cut_mean_ratio(self.sigma, UNCUT_SIGMAS)
        low, high = 0.0, self.most_tokens * exp(_FARTHEST_SIGMAS * self.sigma)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_short = cut_mean(middle, self.sigma, self.most_tokens) < self.mean_tokens
            low, high = (middle, high) if is_short else (low, middle)
        return high

    @property
    def longest_tokens(self) -> int:
        """Where longer ones are cut.

        >>> LognormalLength(mean_tokens=1000.0, sigma=0.0).longest_tokens
        1000
        """
        if self.most_tokens is not None:
            return self.most_tokens
        return max(ceil(self.median_tokens * exp(self.sigma * UNCUT_SIGMAS)), 1)


def cut_mean_ratio(sigma: float, cut_sigmas: float) -> float:
    """Mean of a lognormal that is cut so many deviations of its logarithm above its median, over that median.

    Formula: e^(σ²/2) · Φ(z − σ) + e^(zσ) · (1 − Φ(z))

    Source: the partial expectation of a lognormal.

    >>> cut_mean_ratio(0.0, 3.0), round(cut_mean_ratio(1.0, 40.0), 6) == round(exp(0.5), 6)
    (1.0, True)
    """
    normal = NormalDist()
    return exp(sigma**2 / 2) * normal.cdf(cut_sigmas - sigma) + exp(cut_sigmas * sigma) * normal.cdf(-cut_sigmas)


def cut_mean(median_tokens: float, sigma: float, most_tokens: float) -> float:
    """Mean of lengths of this median that are cut at a longest.

    >>> cut_mean(100.0, 0.0, 400.0), cut_mean(100.0, 0.0, 60.0)
    (100.0, 60.0)
    """
    if sigma == 0 or median_tokens == 0:
        return min(median_tokens, most_tokens)
    return median_tokens * cut_mean_ratio(sigma, log(most_tokens / median_tokens) / sigma)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalLength:
    """Each length that was seen is equally likely; a length seen twice, twice as much.

    Attributes:
        tokens: All that were seen.
        file: Where they stand, as seen from the current folder; "" for nowhere.
    """

    tokens: tuple[int, ...]
    file: str = ""

    @property
    def longest_tokens(self) -> int:
        """The longest that was seen."""
        return max(self.tokens)


Length: TypeAlias = FixedLength | UniformLength | LognormalLength | EmpiricalLength
"""How long prompts, or replies, are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests that come independently of each other (Poisson), each of independent lengths.

    Attributes:
        requests_per_s: Mean rate.
        prompt: Length of prompts.
        output: Length of replies.
        num_requests: How many are drawn.
        seed: Of the draw: equal seeds give equal requests.
    """

    requests_per_s: float
    prompt: Length
    output: Length
    num_requests: int = 20_000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests in order of arrival, one row each.

    Attributes:
        arrival_s: Seconds after the first moment of the trace; not descending.
        prompt_tokens: Tokens of the prompt, at least 1.
        output_tokens: Tokens of the reply, at least 1.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.arrival_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests as they came, and the file that they stand in.

    Attributes:
        file: As seen from the current folder.
        requests: What it says; two traces are equal where their files are.
    """

    file: str
    requests: Requests = field(compare=False, repr=False)

    @property
    def requests_per_s(self) -> float:
        """Mean rate: gaps between arrivals over the time they take."""
        arrival_s = self.requests.arrival_s
        return (self.requests.count - 1) / float(arrival_s[-1] - arrival_s[0])
