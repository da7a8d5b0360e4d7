"""What a layer of experts asks beside a dense one: two exchanges of tokens, more FLOPs, a larger batch.

E  experts     k  experts a token visits     S  tokens     C, W  peak FLOP/s and memory bandwidth of a chip
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ridgeline.cost.collectives import all_gather_limit_s, all_to_all_limit_s
from ridgeline.cost.critical_size import expert_critical_rows, small_batch_critical_rows
from ridgeline.cost.explain import Derivation, derive


def exchange_ratio(*, n: float = 2.0) -> float:
    """Time of an all-to-all over that of an all-gather of the same array, on a ring.

    Formula: (V / (4 · n · W)) / (V / (n · W))

    Source: Scaling Book, ch. 3, all-to-all.

    >>> exchange_ratio()
    0.25
    """
    exchange_s = all_to_all_limit_s(V_bytes=1.0, n=n, W_bytes_per_s=1.0)
    return float(exchange_s / all_gather_limit_s(V_bytes=1.0, n=n, W_bytes_per_s=1.0))


def routed_ratio(*, k: float) -> float:
    """FLOPs of top-k routing over those of top-1: a token visits k experts.

    Formula: k

    Source: Scaling Book, ch. 10, question 2.

    >>> routed_ratio(k=2)
    2
    """
    return k


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRouting:
    """What routing tokens to experts costs.

    Attributes:
        collective: What carries tokens to their experts' chips and back.
        num_collectives: Of them a layer, forward.
        exchange_ratio: Its time over an all-gather's, on a ring.
        routing_shape: Of the array that says which experts each token visits.
        flops_ratio: FLOPs over those of top-1 routing; None without k.
        critical_tokens: Tokens from which the experts' matmuls are bound by arithmetic; None without C, W, E and k.
        derivations: Where the numbers come from.
    """

    collective: Literal["all_to_all"]
    num_collectives: int
    exchange_ratio: float
    routing_shape: str
    flops_ratio: float | None
    critical_tokens: float | None
    derivations: tuple[Derivation, ...]


def expert_routing(
    *,
    E: float | None = None,
    k: float | None = None,
    C_flops_per_s: float | None = None,
    W_hbm_bytes_per_s: float | None = None,
    b_w: float = 2.0,
) -> ExpertRouting:
    """What can be said of what is given.

    >>> expert_routing(E=16, k=2, C_flops_per_s=2.4e14, W_hbm_bytes_per_s=1e12).critical_tokens
    1920.0
    """
    exchange = derive(exchange_ratio)
    flops = None if k is None else derive(routed_ratio, k=k)
    critical: tuple[Derivation, ...] = ()
    if E is not None and k is not None and C_flops_per_s is not None and W_hbm_bytes_per_s is not None:
        dense = derive(small_batch_critical_rows, b_w=b_w, C_flops_per_s=C_flops_per_s, W_bytes_per_s=W_hbm_bytes_per_s)
        critical = (dense, derive(expert_critical_rows, B=dense.value, E=E, k=k))
    return ExpertRouting(
        collective="all_to_all",
        num_collectives=2,
        exchange_ratio=exchange.value,
        routing_shape="[S]" if k == 1 else "[S, k]",
        flops_ratio=None if flops is None else flops.value,
        critical_tokens=critical[-1].value if critical else None,
        derivations=(exchange, *((flops,) if flops else ()), *critical),
    )
