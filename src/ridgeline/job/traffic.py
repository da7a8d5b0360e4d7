"""What users send to a server: requests as they came, or the law by which they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLength:
    """Every prompt, or every reply, is equally long."""

    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformLength:
    """Every whole number of tokens from the least to the most is equally likely."""

    least_tokens: int
    most_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalLength:
    """Most are short and a few are long: the logarithm of a length is normal; at least one token.

    Attributes:
        mean_tokens: Mean length, not the median.
        sigma: Standard deviation of the natural logarithm of the length.
        most_tokens: Longer ones are cut here; None for no limit.
    """

    mean_tokens: float
    sigma: float
    most_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmpiricalLength:
    """Each length that was seen is equally likely; a length seen twice, twice as much."""

    tokens: tuple[int, ...]


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
