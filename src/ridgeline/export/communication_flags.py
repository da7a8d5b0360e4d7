"""Which flags of the compiler a plan's collectives ask for, each with its reason and the trouble known of it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from math import ceil, log2
from typing import TYPE_CHECKING, Any, Final

from ridgeline.export.xla_flags import XlaFlag
from ridgeline.hardware.catalog import load_chip

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

_FILE: Final = "communication_flags.toml"

_LAYER: Final = "layer_bytes"
"""The value that stands for what a layer moves."""

_EVERY_GPU: Final = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagAdvice:
    """A flag that a plan asks for.

    Attributes:
        flag: The flag, with its reason.
        default: The compiler's own value; "" where it is not known.
        trouble: What went wrong with it; "" for nothing known.
        source: Who uses it, or documents it.
    """

    flag: XlaFlag
    default: str
    trouble: str
    source: str

    @property
    def is_default(self) -> bool:
        """Whether it need not be written."""
        return self.flag.value == self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """An entry of the file: the flag, and when it is named."""

    advice: FlagAdvice
    chips: tuple[str, ...]
    collective: str
    engine: str
    needs: str


def communication_flags(
    *,
    chip: str,
    carried: Mapping[str, AbstractSet[str]],
    traits: AbstractSet[str],
    layer_bytes: Mapping[str, float] | None = None,
) -> tuple[FlagAdvice, ...]:
    """The flags for a plan's collectives, in the file's order.

    Args:
        chip: Name of the chip.
        carried: Kinds of the plan's collectives, as HLO calls them, to what carries them.
        traits: What else is so: `several_axes`, `slices`, `host`, `tensor`.
        layer_bytes: What a layer moves in each kind of collective, on a device; those of the file's flags that ask for
            it are named only where it is known.

    >>> advice = communication_flags(chip="v6e", carried={"all_gather": {"continuation_fusion"}}, traits=frozenset())
    >>> [each.flag.name for each in advice if not each.is_default][1:3]
    ['xla_enable_async_all_gather', 'xla_tpu_enable_ici_ag_pipelining']
    """
    known = layer_bytes or {}
    found = (rule for rule in _rules() if _applies(rule, chip, carried, traits))
    return tuple(
        _filled(rule, known.get(rule.collective, 0.0))
        for rule in found
        if rule.advice.flag.value != _LAYER or known.get(rule.collective)
    )


def _filled(rule: _Rule, layer_bytes: float) -> FlagAdvice:
    """The advice with what a layer moves in place of the word for it, up to a power of two."""
    flag = rule.advice.flag
    if flag.value != _LAYER:
        return rule.advice
    return replace(rule.advice, flag=replace(flag, value=str(2 ** ceil(log2(layer_bytes)))))


def _applies(rule: _Rule, chip: str, carried: Mapping[str, AbstractSet[str]], traits: AbstractSet[str]) -> bool:
    kinds = [rule.collective] if rule.collective else list(carried)
    engines = {engine for kind in kinds for engine in carried.get(kind, ())}
    is_carried = rule.engine in engines if rule.engine else bool(engines) or not rule.collective
    is_named = chip in rule.chips or (_EVERY_GPU in rule.chips and load_chip(chip).torus is None)
    return is_named and is_carried and (not rule.needs or rule.needs in traits)


@cache
def _rules() -> tuple[_Rule, ...]:
    text = (resources.files("ridgeline.export") / _FILE).read_text(encoding="utf-8")
    return tuple(_read(tomllib.loads(text)))


def _read(table: Mapping[str, Any]) -> Iterator[_Rule]:
    """The file is ours, so a fault in it is a bug and may raise anything."""
    for entry in table["flag"]:
        flag = XlaFlag(name=entry["name"], value=entry["value"], reason=entry["reason"])
        advice = FlagAdvice(
            flag=flag,
            default=entry.get("default", ""),
            trouble=entry.get("trouble", ""),
            source=table["sources"][entry["source"]],
        )
        yield _Rule(
            advice=advice,
            chips=tuple(entry["chips"]),
            collective=entry.get("collective", ""),
            engine=entry.get("engine", ""),
            needs=entry.get("needs", ""),
        )
