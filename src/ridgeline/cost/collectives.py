"""What a collective costs on real wiring.

The formulas are written with the letters of the Scaling Book's chapter on sharding:

    V  bytes of the gathered array (all_gather, reduce_scatter, all_reduce) or held by one device (all_to_all)
    N  devices in the group          W  bytes/s of one link, one way
    n  links a device receives over at once (a ring axis has two, a line one; a 3-D torus of rings six)

A plan sees wiring through a `Link`: for each kind of collective, how many bytes cross the busiest link per
byte of V. Loads, unlike seconds, are the same whatever fraction of its rate a link reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ridgeline.cost.work import Number, larger, smaller


def array_bytes(*, elements: Number, b: float) -> Number:
    """Size of an array.

    Formula: V = elements · b

    Source: Scaling Book, ch. 3: bf16 has 2 bytes an element.

    >>> array_bytes(elements=2048 * 8192, b=2)
    33554432
    """
    return elements * b


def all_gather_s(*, V_bytes: Number, N: Number, n: Number, W_bytes_per_s: Number) -> Number:
    """Time to gather V bytes onto each of N devices, bandwidth-bound.

    Formula: T = V · (N − 1)/N / (n · W)

    Assumes: bandwidth-bound; exact for rings and, with n = 1, for lines.

    Source: Scaling Book, ch. 3, all-gather.

    >>> round(all_gather_s(V_bytes=34e6, N=4, n=2, W_bytes_per_s=4.5e10) * 1e6, 1)  # 34 MB over a v5e ring of 4
    283.3
    """
    return V_bytes * gather_load(N=N, n=n) / W_bytes_per_s


def reduce_scatter_s(*, V_bytes: Number, N: Number, n: Number, W_bytes_per_s: Number) -> Number:
    """Time to sum V bytes held by each of N devices, leaving each with its share: as an all-gather.

    Formula: T = V · (N − 1)/N / (n · W)

    Source: Scaling Book, ch. 3: the transpose of an all-gather.

    >>> reduce_scatter_s(V_bytes=8.0, N=2, n=2, W_bytes_per_s=1.0)
    2.0
    """
    return all_gather_s(V_bytes=V_bytes, N=N, n=n, W_bytes_per_s=W_bytes_per_s)


def gather_load(*, N: Number, n: Number) -> Number:
    """Bytes over the busiest link per gathered byte: all but its own share reaches a device, over n links at once.

    Formula: load = (N − 1)/N / n

    Source: Scaling Book, ch. 3, all-gather.

    >>> gather_load(N=4, n=2)
    0.375
    """
    return (N - 1) / N / n


def all_reduce_s(*, V_bytes: Number, N: Number, n: Number, W_bytes_per_s: Number) -> Number:
    """Time to sum V bytes held by each of N devices, leaving each with the sum.

    Formula: T = 2 · V · (N − 1)/N / (n · W)

    Source: Scaling Book, ch. 3: a reduce-scatter, then an all-gather.

    >>> all_reduce_s(V_bytes=8.0, N=2, n=2, W_bytes_per_s=1.0)
    4.0
    """
    return 2 * all_gather_s(V_bytes=V_bytes, N=N, n=n, W_bytes_per_s=W_bytes_per_s)


def all_to_all_s(*, V_bytes: Number, load: Number, W_bytes_per_s: Number) -> Number:
    """Time for each device to exchange the V bytes it holds with all others.

    Formula: T = V · load / W

    Assumes: load, bytes over the busiest link per byte of V: N/8 on a ring, N/4 on a line.

    Source: Scaling Book, ch. 3: on a ring a quarter of an all-gather of the same global array.

    >>> V_global, N, W = 64.0, 8, 1.0
    >>> exchange = all_to_all_s(V_bytes=V_global / N, load=ring_exchange_load(N=N), W_bytes_per_s=W)
    >>> exchange / (V_global / (2 * W))  # over the book's all-gather V/(2W)
    0.25
    """
    return V_bytes * load / W_bytes_per_s


def all_gather_limit_s(*, V_bytes: Number, n: Number, W_bytes_per_s: Number) -> Number:
    """The book's time of an all-gather: what `all_gather_s` tends to around long rings.

    Formula: T = V / (n · W)

    Assumes: bandwidth-bound; (N − 1)/N taken as 1, so that the time is independent of N.

    Source: Scaling Book, ch. 3: V/W_ici over one axis, of which W_ici = 2·W is both links.

    >>> round(all_gather_limit_s(V_bytes=34e6, n=2, W_bytes_per_s=4.5e10) * 1e6, 1)  # 34 MB over any v5e ring
    377.8
    """
    return V_bytes / (n * W_bytes_per_s)


def all_reduce_limit_s(*, V_bytes: Number, n: Number, W_bytes_per_s: Number) -> Number:
    """The book's time of an all-reduce: a reduce-scatter and an all-gather around long rings.

    Formula: T = 2 · V / (n · W)

    Assumes: as the book's all-gather.

    Source: Scaling Book, ch. 3: 2·V/W_ici over one axis.

    >>> all_reduce_limit_s(V_bytes=8.0, n=2, W_bytes_per_s=1.0)
    8.0
    """
    return 2 * all_gather_limit_s(V_bytes=V_bytes, n=n, W_bytes_per_s=W_bytes_per_s)


def all_to_all_limit_s(*, V_bytes: Number, n: Number, W_bytes_per_s: Number) -> Number:
    """The book's time of an all-to-all, V the whole array: a quarter of an all-gather's.

    Formula: T = V / (4 · n · W)

    Assumes: a ring used both ways (n = 2), or a line (n = 1); of several axes of unknown size, their links together.

    Source: Scaling Book, ch. 3: V/(4·W_ici).

    >>> all_to_all_limit_s(V_bytes=8.0, n=2, W_bytes_per_s=1.0)
    1.0
    """
    return V_bytes / (4 * n * W_bytes_per_s)


def one_way_all_to_all_limit_s(*, V_bytes: Number, W_bytes_per_s: Number) -> Number:
    """Time of an all-to-all around a long ring in one direction, V the whole array: half of an all-gather's.

    Formula: T = V / (2 · W)

    Source: Scaling Book, ch. 3, question 10.

    >>> one_way_all_to_all_limit_s(V_bytes=8.0, W_bytes_per_s=1.0)
    4.0
    """
    return V_bytes / (2 * W_bytes_per_s)


def permute_s(*, V_bytes: Number, W_bytes_per_s: Number) -> Number:
    """Time to pass V bytes to a neighbour.

    Formula: T = V / W

    Source: Scaling Book, ch. 10: a ppermute is one hop over one link.

    >>> permute_s(V_bytes=9e9, W_bytes_per_s=4.5e10)
    0.2
    """
    return V_bytes / W_bytes_per_s


def ring_exchange_load(*, N: Number) -> Number:
    """Bytes over the busiest link per byte a device exchanges on a ring.

    A byte travels N/4 hops on average and each device has two links: (N/4)/2.

    Formula: load = N/8

    Source: Scaling Book, ch. 3, all-to-all.

    >>> ring_exchange_load(N=16)
    2.0
    """
    return N / 8


def line_exchange_load(*, N: Number) -> Number:
    """Bytes over the middle link per byte a device exchanges on a line.

    Half of the devices each send half of their bytes across the middle: (N/2)·(1/2).

    Formula: load = N/4

    Source: bisection of a line; derived here.

    >>> line_exchange_load(N=4)
    1.0
    """
    return N / 4


def one_way_exchange_load(*, N: Number) -> Number:
    """Bytes over a link per byte a device exchanges on a ring used in one direction.

    A byte travels 1 to N − 1 hops, N/2 on average over all N destinations, itself included.

    Formula: load = (N − 1)/2

    Source: Scaling Book, ch. 3, question 10: half of an all-gather of the same global array.

    >>> one_way_exchange_load(N=5)
    2.0
    """
    return (N - 1) / 2


def ring_latency_s(*, N: Number, t_min_s: float) -> Number:
    """Least time of a gather around a ring, both ways at once.

    Formula: T = N/2 · t_min

    Source: Scaling Book, ch. 3, latency floor.

    >>> ring_latency_s(N=16, t_min_s=1e-6) * 1e6
    8.0
    """
    return N / 2 * t_min_s


def line_latency_s(*, N: Number, t_min_s: float) -> Number:
    """Least time of a gather along a line, or around a ring in one direction.

    Formula: T = (N − 1) · t_min

    Source: Scaling Book, ch. 3, latency floor.

    >>> round(line_latency_s(N=4, t_min_s=1e-6) * 1e6, 9)
    3.0
    """
    return (N - 1) * t_min_s


def hop_threshold_bytes(*, W_bytes_per_s: float, t_min_s: float) -> Number:
    """Bytes per hop below which a hop takes its least time, whatever it carries.

    Formula: V_hop = W · t_min

    Source: Scaling Book, ch. 3, latency-bound all-gathers: 45 kB on v5e.

    >>> hop_threshold_bytes(W_bytes_per_s=4.5e10, t_min_s=1e-6)
    45000.0
    """
    return W_bytes_per_s * t_min_s


def latency_threshold_bytes(*, T_latency_s: Number, load: Number, W_bytes_per_s: float) -> Number:
    """Size of an array at which the latency regime of a collective ends.

    Formula: V = T_latency · W / load

    Assumes: load, bytes over the busiest link per byte of V, as the book approximates; on one axis V = N · W · t_min.

    Source: Scaling Book, ch. 7, appendix C: 360 kB over 8 chips of v5e.

    >>> floor_s = ring_latency_s(N=8, t_min_s=1e-6)
    >>> round(latency_threshold_bytes(T_latency_s=floor_s, load=1 / 2, W_bytes_per_s=4.5e10))
    360000
    """
    return T_latency_s * W_bytes_per_s / load


def latency_bound_shards(*, V_bytes: Number, W_bytes_per_s: float, t_min_s: float) -> Number:
    """Devices from which each one's share of an array is too small to fill a hop; infinite where a hop takes no time.

    Formula: N = V / (W · t_min)

    Source: Scaling Book, ch. 7, appendix C: Y > B·D/45,000 for int8 activations on v5e.

    >>> latency_bound_shards(V_bytes=90e3, W_bytes_per_s=4.5e10, t_min_s=1e-6)
    2.0
    """
    if t_min_s == 0:
        return V_bytes * inf
    return V_bytes / hop_threshold_bytes(W_bytes_per_s=W_bytes_per_s, t_min_s=t_min_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a group of devices is wired: bytes over a device's busiest link per byte of a collective.

    The group has a fast stage (ICI or NVLink) and, where it spans slices or GPU boxes, a network stage; a
    pipelined hierarchical collective takes as long as the slower of the two.

    Attributes:
        size: Devices in the group (1: no communication, every load is 0).
        gather_load: Fast links, per byte of the gathered array.
        exchange_load: Fast links, per byte a device holds in an all-to-all.
        permute_load: Fast links, per byte handed to a neighbour.
        network_gather_load: Network, per byte of the gathered array.
        network_exchange_load: Network, per byte a device holds in an all-to-all.
        network_permute_load: Network, per byte handed to a neighbour.
        latency_s: Floor of one gather.
        num_rings: Rings of a torus that the group runs around at once.
        network_steps: Of a ring over the network.
    """

    size: Number = 1.0
    gather_load: Number = 0.0
    exchange_load: Number = 0.0
    permute_load: Number = 0.0
    network_gather_load: Number = 0.0
    network_exchange_load: Number = 0.0
    network_permute_load: Number = 0.0
    latency_s: Number = 0.0
    num_rings: Number = 0.0
    network_steps: Number = 0.0

    @property
    def num_network_launches(self) -> Number:
        """Times that a collective over the group is started over the network: once, if it crosses it."""
        return smaller(self.network_steps, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One collective's demand on the wiring.

    Attributes:
        array_bytes: Of the gathered, scattered, summed or exchanged array.
        link_bytes: Over the busiest fast link of a device.
        network_bytes: Over its network port.
        latency_s: Floor, whatever the bytes.
        num_rings: Rings of a torus that it runs around at once.
        network_steps: Of a ring over the network, one after the other.
        num_network_launches: Times that something is started over the network, one after the other.
    """

    array_bytes: Number
    link_bytes: Number
    network_bytes: Number
    latency_s: Number
    num_rings: Number = 0.0
    network_steps: Number = 0.0
    num_network_launches: Number = 0.0

    def expected_s(
        self,
        *,
        link_bytes_per_s: Number,
        network_bytes_per_s: float,
        network_step_s: float = 0.0,
        network_launch_s: float = 0.0,
    ) -> Number:
        """The slower stage, or the latency floor: max(bytes/W_link, bytes/W_network + steps + launches, latency)."""
        waiting_s = self.network_steps * network_step_s + self.num_network_launches * network_launch_s
        network_s = self.network_bytes / network_bytes_per_s + waiting_s
        return larger(larger(self.link_bytes / link_bytes_per_s, network_s), self.latency_s)


def gather(link: Link, V_bytes: Number) -> Transfer:
    """An all-gather (or, transposed, a reduce-scatter) of V bytes over a group."""
    return Transfer(
        array_bytes=V_bytes,
        link_bytes=V_bytes * link.gather_load,
        network_bytes=V_bytes * link.network_gather_load,
        latency_s=link.latency_s,
        num_rings=link.num_rings,
        network_steps=link.network_steps,
        num_network_launches=link.num_network_launches,
    )


def reduce(link: Link, V_bytes: Number) -> Transfer:
    """An all-reduce of V bytes over a group: a reduce-scatter and an all-gather."""
    return Transfer(
        array_bytes=V_bytes,
        link_bytes=2 * V_bytes * link.gather_load,
        network_bytes=2 * V_bytes * link.network_gather_load,
        latency_s=2 * link.latency_s,
        num_rings=link.num_rings,
        network_steps=2 * link.network_steps,
        num_network_launches=link.num_network_launches,
    )


def exchange(link: Link, V_bytes: Number) -> Transfer:
    """An all-to-all in which each device holds V bytes."""
    return Transfer(
        array_bytes=V_bytes,
        link_bytes=V_bytes * link.exchange_load,
        network_bytes=V_bytes * link.network_exchange_load,
        latency_s=link.latency_s,
        num_rings=link.num_rings,
        network_steps=link.network_steps,
        num_network_launches=link.num_network_launches,
    )


def permute(link: Link, V_bytes: Number) -> Transfer:
    """A hand-over of V bytes to the next device of a group."""
    return Transfer(
        array_bytes=V_bytes,
        link_bytes=V_bytes * link.permute_load,
        network_bytes=V_bytes * link.network_permute_load,
        latency_s=link.latency_s * 0.0,
    )
