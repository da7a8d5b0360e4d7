"""What travels around a ring of devices, counted in hops and chunks.

    V  bytes of the array, all devices together      N  devices

In a gather each device starts with a share of V/N and sends on what it receives. In an all-to-all it holds N chunks
of V/N², one for each device, and a chunk for a device k hops away crosses k links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgeline.cost.work import Number


def one_way_hops(*, N: Number) -> Number:
    """Hops of a gather around a ring in one direction, or along a line.

    Formula: hops = N − 1

    Source: Scaling Book, ch. 3, all-gather.

    >>> one_way_hops(N=8)
    7
    """
    return N - 1


def two_way_hops(*, N: Number) -> Number:
    """Hops of a gather around a ring in both directions at once.

    Formula: hops = ⌈N/2⌉

    Assumes: as printed; with an odd N, ⌊N/2⌋ hops suffice.

    Source: Scaling Book, ch. 3, all-gather.

    >>> two_way_hops(N=8), two_way_hops(N=5)
    (4, 3)
    """
    return -(-N // 2)


def one_way_hop_bytes(*, V_bytes: Number, N: Number) -> Number:
    """Bytes a device sends in one hop of a gather in one direction.

    Formula: V_hop = V / N

    Source: Scaling Book, ch. 3, all-gather.

    >>> one_way_hop_bytes(V_bytes=8e6, N=8)
    1000000.0
    """
    return V_bytes / N


def two_way_hop_bytes(*, V_bytes: Number, N: Number) -> Number:
    """Bytes a device sends in one hop of a gather in both directions: a share each way.

    Formula: V_hop = 2 · V / N

    Source: Scaling Book, ch. 3, all-gather.

    >>> two_way_hop_bytes(V_bytes=8e6, N=8)
    2000000.0
    """
    return 2 * V_bytes / N


def exchange_chunk_bytes(*, V_bytes: Number, N: Number) -> Number:
    """Bytes that one device holds for one other in an all-to-all.

    Formula: V_chunk = V / N²

    Source: Scaling Book, ch. 3, all-to-all.

    >>> exchange_chunk_bytes(V_bytes=64.0, N=8)
    1.0
    """
    return V_bytes / N**2


def exchange_chunks(*, N: Number) -> Number:
    """Chunks each device sends on in an all-to-all, over both its links, everything going the shorter way.

    Formula: chunks = ⌊N²/4⌋

    Assumes: the distances 1 to ⌊N/2⌋ one way and 1 to ⌈N/2⌉ − 1 the other, summed.

    Source: Scaling Book, ch. 3, all-to-all.

    >>> exchange_chunks(N=8) == (1 + 2 + 3 + 4) + (1 + 2 + 3)
    True
    """
    return N**2 // 4


def two_way_exchange_chunks(*, N: Number) -> Number:
    """Chunks over the busier of a device's two links in an all-to-all.

    Formula: chunks = ⌊N/2⌋ · (⌊N/2⌋ + 1) / 2

    Assumes: the chunk for the device opposite goes one way whole.

    Source: Scaling Book, ch. 3, question 10.

    >>> two_way_exchange_chunks(N=8) == 1 + 2 + 3 + 4
    True
    """
    return N // 2 * (N // 2 + 1) / 2


def one_way_exchange_chunks(*, N: Number) -> Number:
    """Chunks over a link in an all-to-all around a ring in one direction.

    Formula: chunks = N · (N − 1) / 2

    Source: Scaling Book, ch. 3, question 10.

    >>> one_way_exchange_chunks(N=4) == 1 + 2 + 3
    True
    """
    return N * (N - 1) / 2
