"""Work adds, time composes.

An operation asks for `Work`: so many FLOPs of each dtype, so many bytes of memory traffic, so many bytes
over the busiest link of each kind. Work of parts adds up. Time does not: parts run one after the other
(`in_sequence`) or one behind the other (`overlapped`), and the tree says which.

Every quantity is a `Number`: one float for one plan, or a column of floats for many plans at once. The
formulas are the same; none looks at the values. numpy is imported by what meets columns: questions about one
number answer without it, and sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

Number: TypeAlias = "float | NDArray[np.float64]"
"""One value, or a column of values (one a plan)."""

Phase: TypeAlias = Literal["forward", "recompute", "backward", "optimizer", "step"]
"""When in a training step a part runs; `step` for what belongs to no single phase."""

Composition: TypeAlias = Literal["leaf", "sequence", "overlap"]
"""How a part's time follows from its children: their sum, or the first hiding the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a part asks of the machine, per device and step.

    Attributes:
        amounts: Keyed by resource: `flops.bf16`, `flops.fp8`, … (FLOPs on the matrix unit), `hbm` (bytes),
            `link.weights`, `link.tensor`, … (bytes over the busiest fast link of a device, one way, by the group
            of devices that communicates), `network` (bytes over its network port), `host` (bytes over PCIe).
    """

    amounts: Mapping[str, Number] = field(default_factory=dict[str, Number])

    def __add__(self, other: Work) -> Work:
        """Both works together."""
        if not self.amounts:
            return other
        merged = dict(self.amounts)
        for resource, amount in other.amounts.items():
            merged[resource] = merged[resource] + amount if resource in merged else amount
        return Work(amounts=merged)

    def __mul__(self, times: Number) -> Work:
        """This work, `times` over."""
        return Work(amounts={resource: amount * times for resource, amount in self.amounts.items()})


NOTHING = Work()
"""No work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A node of the tree of a training step.

    Attributes:
        name: Of this node; paths join names with `/`.
        phase: When it runs.
        resource: What a leaf mainly waits for: `compute`, `hbm`, `ici`, `network`, `host`, `overhead`;
            "" for inner nodes.
        expected_s: Estimated time it adds to the step, its repetitions included.
        work: Its work, repetitions included.
        composition: How `expected_s` follows from the children; for `overlap` the first one hides the others.
        once: The children of one repetition, in order.
        times: Repetitions.
        array_bytes: Of a collective: the gathered, scattered, summed or exchanged array of one repetition.
        unhidden_share: Of `expected_s`, shown even where another part hides this one; None leaves it to `Hiding`.
    """

    name: str
    phase: Phase
    expected_s: Number
    work: Work = NOTHING
    resource: str = ""
    composition: Composition = "leaf"
    once: tuple[Part, ...] = ()
    times: Number = 1.0
    array_bytes: Number = 0.0
    unhidden_share: Number | None = None

    @property
    def children(self) -> tuple[Part, ...]:
        """The children, all repetitions included."""
        return tuple(scaled(child, self.times) for child in self.once)

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Part]]:
        """Every node below and including this one, with its path, parents first."""
        path = f"{prefix}/{self.name}" if prefix else self.name
        yield path, self
        for child in self.children:
            yield from child.walk(path)


def in_sequence(name: str, phase: Phase, children: Sequence[Part], *, times: Number = 1.0) -> Part:
    """The children one after the other, the whole `times` over: times add.

    >>> a, b = (Part(name=n, phase="forward", expected_s=s) for n, s in (("a", 2.0), ("b", 3.0)))
    >>> in_sequence("both", "forward", [a, b], times=4).expected_s
    20.0
    """
    together = Part(
        name=name,
        phase=phase,
        expected_s=_total([child.expected_s for child in children]),
        work=_total_work(children),
        composition="sequence",
        once=tuple(children),
    )
    return scaled(together, times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiding:
    """How far a part can hide another.

    Attributes:
        overlap: Fraction of the front's time behind which the other can run.
        unhidden_share: Fraction of the other that shows in any case, unless the part says otherwise.
    """

    overlap: Number
    unhidden_share: float


def overlapped(name: str, phase: Phase, front: Part, behind: Sequence[Part], *, hiding: Hiding) -> Part:
    """`front` hides `behind` as far as its time reaches; the rest is exposed (`exposed_s`).

    What waits for different resources (links, the host) runs at the same time; what waits for one queues.

    >>> compute, gather = (Part(name=n, phase="forward", expected_s=s) for n, s in (("c", 10.0), ("g", 12.0)))
    >>> overlapped("layer", "forward", compute, [gather], hiding=Hiding(overlap=0.9, unhidden_share=0.1)).expected_s
    13.0
    """
    known = tuple(replace(part, unhidden_share=_unhidden(part, hiding)) for part in behind)
    exposed = exposed_s(
        front_s=front.expected_s,
        behind_s=_longest_queue(known),
        least_s=_total([_least_s(part) for part in known]),
        overlap=hiding.overlap,
    )
    return Part(
        name=name,
        phase=phase,
        expected_s=front.expected_s + exposed,
        work=_total_work((front, *behind)),
        composition="overlap",
        once=(front, *known),
    )


def exposed_s(*, front_s: Number, behind_s: Number, least_s: Number, overlap: Number) -> Number:
    """Time of what runs behind that shows: max(behind − overlap · front, what nothing can hide).

    >>> [exposed_s(front_s=10.0, behind_s=s, least_s=0.1 * s, overlap=0.9) for s in (4.0, 12.0)]
    [0.4, 3.0]
    """
    return larger(behind_s - overlap * front_s, least_s)


def shown_shares(part: Part) -> Iterator[tuple[Part, float]]:
    """What an `overlap` hides, each with the share of its time that shows: what nothing hides, and of the rest alike.

    >>> times_s = {"compute": 9.0, "gather": 4.0, "sum": 2.0}
    >>> front, gather, add = (Part(name=name, phase="backward", expected_s=s) for name, s in times_s.items())
    >>> waiting = replace(add, unhidden_share=1.0)
    >>> hiding = Hiding(overlap=0.9, unhidden_share=0.25)
    >>> both = overlapped("layer", "backward", front, [gather, waiting], hiding=hiding)
    >>> [(child.name, share) for child, share in shown_shares(both)]
    [('gather', 0.25), ('sum', 1.0)]

    Args:
        part: Of scalar times.
    """
    front, *behind = part.children
    least_s = sum(float(_least_s(child)) for child in behind)
    hidden_s = sum(float(child.expected_s) for child in behind) - least_s
    more_s = float(part.expected_s) - float(front.expected_s) - least_s
    more = more_s / hidden_s if hidden_s > 0 else 0.0
    for child in behind:
        least = 0.0 if child.unhidden_share is None else float(child.unhidden_share)
        yield child, least + (1.0 - least) * more


def scaled(part: Part, times: Number) -> Part:
    """The part, `times` over: its time and its work; its children when they are asked for."""
    if isinstance(times, float | int) and times == 1:
        return part
    return replace(part, expected_s=part.expected_s * times, work=part.work * times, times=part.times * times)


def larger(a: Number, b: Number) -> Number:
    """Elementwise maximum, a float for floats.

    >>> larger(1.0, 2.0)
    2.0
    """
    if isinstance(a, float | int) and isinstance(b, float | int):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)


def smaller(a: Number, b: Number) -> Number:
    """Elementwise minimum, a float for floats.

    >>> smaller(1.0, 2.0)
    1.0
    """
    if isinstance(a, float | int) and isinstance(b, float | int):
        return min(a, b)
    import numpy as np

    return np.minimum(a, b)


def _unhidden(part: Part, hiding: Hiding) -> Number:
    return hiding.unhidden_share if part.unhidden_share is None else part.unhidden_share


def _least_s(part: Part) -> Number:
    """What of a part shows in any case."""
    return 0.0 if part.unhidden_share is None else part.expected_s * part.unhidden_share


def _longest_queue(parts: Sequence[Part]) -> Number:
    """Time of the resource that the parts keep busy longest."""
    queues: dict[str, Number] = {}
    for part in parts:
        queues[part.resource] = queues.get(part.resource, 0.0) + part.expected_s
    longest: Number = 0.0
    for queue_s in queues.values():
        longest = larger(longest, queue_s)
    return longest


def _total(times_s: Sequence[Number]) -> Number:
    total: Number = 0.0
    for time_s in times_s:
        total = total + time_s
    return total


def _total_work(parts: Sequence[Part]) -> Work:
    total = NOTHING
    for part in parts:
        total = total + part.work
    return total
