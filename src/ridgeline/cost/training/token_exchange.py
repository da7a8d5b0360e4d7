"""How many copies of the tokens that experts exchange travel where a token is sent once to a place, whatever it visits.

k  experts a token visits     n  domains that the experts are spread over     N  devices that they are spread over
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


EXCHANGE_UNITS_SHARE = 0.2
"""Of a GPU's multiprocessors, what kernels that exchange tokens occupy: while they run beside another microbatch, its
arithmetic has the rest.
Source: Megatron-Bridge sets 32 for HybridEP (`moe_hybridep_num_sms`; B200 has 148); Megatron-LM 20 for DeepEP
(`moe_deepep_num_sms`; H100 has 132)."""


def sent_once_ratio(*, network_load: Number, k: int) -> Number:
    """Network bytes of an exchange that sends a token once to each domain, over those of one that sends every copy.

    A copy leaves its domain with probability (n − 1)/n, the network load of an exchange; a token visits
    (n − 1)·(1 − ((n − 1)/n)^k) other domains on average. Inside each, fast links spread its copies.

    Formula: (1 − load^k) / (k · (1 − load))

    Assumes: experts are chosen alike and independently.

    Source: derived; DeepEP and HybridEP dispatch so (arXiv:2412.19437, section 3.2.2), and combine likewise.

    >>> sent_once_ratio(network_load=0.5, k=2)  # 2 domains: half a token crosses twice as copies, once as a token
    0.75
    >>> sent_once_ratio(network_load=0.0, k=8)
    0.125
    """
    return (1.0 - network_load**k) / (k * (1.0 - network_load))


def devices_visited_ratio(*, N: Number, k: int) -> Number:
    """Copies over fast links where a token goes once to each device that has any of its experts, over all copies.

    A token visits N·(1 − ((N − 1)/N)^k) devices on average; of the experts' outputs for it a device sends back the sum.

    Formula: N · (1 − ((N − 1)/N)^k) / k

    Assumes: experts are chosen alike and independently.

    Source: derived; DeepEP and HybridEP dispatch and combine so (arXiv:2412.19437, section 3.2.2).

    >>> devices_visited_ratio(N=2.0, k=2)  # a token's two copies meet on one of two devices every other time
    0.75
    >>> devices_visited_ratio(N=1.0, k=8)
    0.125
    """
    return N * (1.0 - ((N - 1.0) / N) ** k) / k


def gathered_tokens_bytes(*, tokens_bytes: Number, N: Number) -> Number:
    """Tokens of all devices that share out the experts: what each gathers instead of sending copies to their experts.

    Each then computes its own experts for all of them, and their partial results are summed and scattered. It beats
    sending k copies of every token where N is not much larger than k, for an all-gather uses links better.

    Formula: N · V

    Source: derived; MaxText's ring of experts.

    >>> gathered_tokens_bytes(tokens_bytes=16.0, N=8.0)
    128.0
    """
    return N * tokens_bytes
