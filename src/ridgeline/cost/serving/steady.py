"""A server in steady state: as many requests end as begin, and every number is a mean.

B  sequences that decode at once     P  tokens of a prompt     G  passes of decoding that a reply takes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.work import larger, smaller
from ridgeline.units import MILLION

if TYPE_CHECKING:
    from ridgeline.cost.work import Number

HOUR_S: Final = 3600.0

BATCHING_WAIT: Final = 0.5
"""Passes that a prompt waits on average until a prefill server is free for it: it comes halfway through one."""


def pass_s(*, T_weights_s: float, T_cache_s: float, T_collectives_s: float, T_host_s: float, T_rest_s: float) -> float:
    """Time of a pass of decoding: what runs one after another adds up.

    Formula: T = T_weights + T_cache + T_collectives + T_host + T_rest

    Assumes: arithmetic runs beside the reading; what it takes longer than that is in the rest, with norms and gaps.

    Source: Scaling Book, ch. 7: weights and caches are read one after the other; derived.

    >>> pass_s(T_weights_s=3.0, T_cache_s=2.0, T_collectives_s=0.5, T_host_s=0.25, T_rest_s=0.25)
    6.0
    """
    return T_weights_s + T_cache_s + T_collectives_s + T_host_s + T_rest_s


def prefill_share(*, B: Number, P: Number, G: Number, chunk_tokens: Number) -> Number:
    """Share of a server's passes that read prompts beside their decoding.

    In G passes each of B sequences is replaced by a new one, whose prompt takes P/chunk_tokens of them.

    Formula: B · P / (G · chunk_tokens)

    Assumes: 1 or less; above, prompts arrive faster than they are read. P counts what is not cached already, G the
        passes that a reply takes after its first token, which prefill gives.

    Source: derived; Scaling Book, ch. 8, question 11: B/G sequences end with a pass.

    >>> prefill_share(B=64.0, P=1000.0, G=1000.0, chunk_tokens=500.0)
    0.128
    """
    return B * P / (G * chunk_tokens)


def read_pass_tokens(*, B: Number, P: Number, G: Number, chunk_tokens: Number) -> Number:
    """Tokens of prompts in a pass that reads some: a prompt, or as many as come with a pass, while there is room.

    Formula: min(chunk_tokens, max(P, B · P / G))

    Assumes: passes come more often than prompts do, or read all that came.

    Source: derived.

    >>> [float(read_pass_tokens(B=b, P=1000.0, G=500.0, chunk_tokens=4096.0)) for b in (64.0, 1000.0, 4000.0)]
    [1000.0, 2000.0, 4096.0]
    """
    return smaller(chunk_tokens, larger(P, B * P / G))


def mixed_pass_s(*, T_decode_s: Number, T_mixed_s: Number, prefill_share: Number) -> Number:
    """Time of a pass, mean, where prompts are read in pieces beside decoding.

    Formula: T = T_decode + prefill_share · (T_mixed − T_decode)

    Source: derived.

    >>> mixed_pass_s(T_decode_s=0.02, T_mixed_s=0.04, prefill_share=0.25)
    0.025
    """
    return T_decode_s + prefill_share * (T_mixed_s - T_decode_s)


def token_s(*, T_pass_s: Number, pass_tokens: float) -> Number:
    """Time per output token; with speculation a pass adds several.

    Formula: T = T_pass / pass_tokens

    Source: Scaling Book, ch. 7, appendix D: time of a loop over the tokens that it adds.

    >>> token_s(T_pass_s=0.03, pass_tokens=1.5)
    0.02
    """
    return T_pass_s / pass_tokens


def first_token_s(
    *, T_mixed_s: Number, num_passes: Number, num_passes_of_others: Number, load_fraction: Number
) -> Number:
    """Time to the first token: half a pass until the next one begins, the prompts before, and the own prompt.

    Formula: T = T_mixed · (1/2 + num_passes + num_passes_of_others · load_fraction / (2 · (1 − load_fraction)))

    Assumes: requests come independently of each other, in a queue M/G/1, whose load is the share of passes that would
        read, were these full; a prompt that one waits for is likelier a long one: E[n²]/E[n] passes.

    Source: derived; Pollaczek and Khinchine.

    >>> float(first_token_s(T_mixed_s=0.04, num_passes=2.0, num_passes_of_others=2.0, load_fraction=0.0))
    0.1
    """
    waiting = load_fraction / (2 * (1 - load_fraction))
    return T_mixed_s * (0.5 + num_passes + num_passes_of_others * waiting)


def batched_first_token_s(*, T_prefill_s: Number) -> Number:
    """Time to the first token of a prompt that is read by a server of its own: it comes halfway through another pass.

    Formula: T = T_prefill · (1 + 1/2)

    Assumes: as many prefill servers as keep up; what queues before them, a simulation tells.

    Source: derived.

    >>> batched_first_token_s(T_prefill_s=2.0)
    3.0
    """
    return T_prefill_s * (1.0 + BATCHING_WAIT)


def user_tokens_per_s(*, T_token_s: Number) -> Number:
    """Output tokens that one request is given in a second.

    Formula: 1 / T_token

    Source: definition.

    >>> user_tokens_per_s(T_token_s=0.02)
    50.0
    """
    return 1.0 / T_token_s


def chip_tokens_per_s(*, requests_per_s: Number, G: Number, num_chips: float, server_ratio: Number) -> Number:
    """Output tokens of a chip in a second, those of prefill servers counted among the chips.

    Formula: requests_per_s · G / (num_chips · (1 + server_ratio))

    Assumes: G counts all tokens of a reply.

    Source: Scaling Book, ch. 8, question 7.

    >>> chip_tokens_per_s(requests_per_s=4.0, G=500.0, num_chips=8, server_ratio=0.25)
    200.0
    """
    return requests_per_s * G / (num_chips * (1.0 + server_ratio))


def server_count(*, requests_per_s: float, served_requests_per_s: Number) -> Number:
    """Whole servers that keep up with a rate of requests.

    Formula: ⌈requests_per_s / served_requests_per_s⌉

    Source: definition.

    >>> float(server_count(requests_per_s=20.0, served_requests_per_s=6.0))
    4.0
    """
    return np.ceil(requests_per_s / served_requests_per_s)


def request_s(*, T_first_s: Number, T_token_s: Number, G: float) -> Number:
    """Time of a whole request.

    Formula: T = T_first + (G − 1) · T_token

    Source: definition.

    >>> request_s(T_first_s=0.5, T_token_s=0.01, G=101.0)
    1.5
    """
    return T_first_s + (G - 1) * T_token_s


def output_tokens_per_s(*, B: Number, T_token_s: Number) -> Number:
    """Tokens that a server adds in a second.

    Formula: B / T_token

    Source: Scaling Book, ch. 7.

    >>> output_tokens_per_s(B=32.0, T_token_s=0.016)
    2000.0
    """
    return B / T_token_s


def requests_per_s(*, B: Number, T_token_s: Number, G: float) -> Number:
    """Requests that a server completes in a second.

    Formula: B / (T_token · G)

    Assumes: a sequence leaves when decoding has given all tokens of its reply but the first, which prefill gives. The
        book counts the first, too: a part of one in G.

    Source: Scaling Book, ch. 8, question 7.

    >>> requests_per_s(B=32.0, T_token_s=0.016, G=500.0)
    4.0
    """
    return output_tokens_per_s(B=B, T_token_s=T_token_s) / G


def prefill_server_ratio(*, T_prefill_s: Number, num_prompts: Number, B: Number, T_token_s: Number, G: float) -> Number:
    """Servers that read prompts for each one that decodes, so that neither waits for the other.

    Formula: T_prefill / prompts · B / (T_token · G)

    Source: Scaling Book, ch. 8, question 12.

    >>> round(prefill_server_ratio(T_prefill_s=0.91, num_prompts=1.0, B=32.0, T_token_s=0.019, G=512.0), 2)
    2.99
    """
    return T_prefill_s / num_prompts * requests_per_s(B=B, T_token_s=T_token_s, G=G)


def million_tokens_usd(*, usd_per_hour: Number, tokens_per_s: Number) -> Number:
    """Price of a million tokens.

    Formula: usd_per_hour / (3600 · tokens_per_s) · 10⁶

    Source: definition.

    >>> million_tokens_usd(usd_per_hour=36.0, tokens_per_s=1000.0)
    10.0
    """
    return usd_per_hour / (HOUR_S * tokens_per_s) * MILLION
