"""The words a quantity's name may end in, and the names that need no unit. `docs/nomenclature.md` explains them."""

from __future__ import annotations

import re

UNIT = re.compile(r"(^|_)(bytes|flops|s|seconds|hours|usd|tokens|elements)(_per_[a-z]+(_hour)?)*$")
"""Base units and their rates, as the last words of a name."""

DIMENSIONLESS = re.compile(
    r"^num_\w+$|(^|_)(copies|count|degree|efficiency|factor|fraction|imbalance|keys|links|load|overlap|ratio|rows"
    r"|share|shards|sharers|size|steps|times|utilization)$"
)
"""Names that say by themselves that they are plain numbers."""

PLAIN_NUMBERS = {
    "accumulation": "micro-steps per optimizer step",
    "degrees": "ways in which each mesh axis splits",
    "kept": "1 where an intermediate survives to the backward pass, else 0",
    "mfu": "model FLOPs over what the chips could do in that time: a fraction",
    "microbatches": "pieces of a batch that a pipeline is fed",
    "microsteps": "passes of a microbatch through a stage, per optimizer step",
    "offloaded": "1 where an intermediate is kept on the host, else 0",
    "repeats": "times a circular pipeline visits each stage",
    "saved": "1 where an intermediate is kept on the device, else 0",
    "spread": "half-width of an interval around an estimate: a fraction",
    "stages": "pipeline stages",
    "tensor": "ways in which tensor parallelism splits",
    "value": "the number of a Fact, in the unit that ends its key",
}
"""Further plain numbers, each with what it is."""

FRACTIONS_OF_A_PEAK = {"Efficiency"}
"""Records whose unitless fields are all fractions of a published peak."""

KEYED = {
    "amounts": "by resource, each in its own unit",
    "parts": "bytes by part, as the JSON key `memory.parts` has it",
}
"""Mappings whose keys or documentation carry the unit."""

CHOICES = {
    "larger": "elementwise maximum",
    "smaller": "elementwise minimum",
}
"""Functions over any unit, which return the unit of their operands."""

SYMBOL = re.compile(r"^[A-Za-z](_[a-z]+)?$")
"""The field's letters, allowed as parameters of a formula: B, T, D, F, N, K, H, W_ici, …"""

BOUND_OF_SANITY = re.compile(r"^_?(ABSURD|LARGEST|MOST|LONGEST)(_\w+)?$")
"""Constants beyond which an input is refused; a power of two there scales nothing."""


def says_its_unit(name: str) -> bool:
    """Whether a quantity of this name needs no further explanation."""
    return bool(UNIT.search(name) or DIMENSIONLESS.search(name) or name in PLAIN_NUMBERS or name in KEYED)
