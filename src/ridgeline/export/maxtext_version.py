"""What MaxText can be told: its keys with their types or values, its models and its topologies, read from data.

Source: `maxtext_0_2_5.toml`, which `scripts/maxtext_keys.py` writes from the installed package.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

Value: TypeAlias = str | int | float | bool
"""What a key is set to."""

_FILE = Path(__file__).with_name("maxtext_0_2_5.toml")
_TYPES: Mapping[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextVersion:
    """One version of MaxText.

    Attributes:
        version: Its number.
        keys: By key: `bool`, `int`, `float`, `str` or `other`, or the texts that it may be set to.
        models: By name of a model: the keys that it sets by itself.
        topologies: By name of a TPU slice: its shape in chips, e.g. `4x4x4`.
    """

    version: str
    keys: Mapping[str, str | tuple[str, ...]]
    models: Mapping[str, frozenset[str]]
    topologies: Mapping[str, str]

    def check(self, settings: Mapping[str, Value]) -> None:
        """Refuses keys that this version does not have, and values that they do not take.

        Raises:
            InputError: It names the first such key.
        """
        for key, value in settings.items():
            kind = self.keys.get(key)
            if kind is None:
                raise self._refusal("no such key", key, key, nearest(key, self.keys) or "leave it out")
            if isinstance(kind, tuple):
                if value not in kind:
                    fix = nearest(str(value), filter(None, kind)) or "use one of those"
                    raise self._refusal("no such value", key, value, fix)
            elif not _has_type(value, kind):
                raise self._refusal(f"not of type {kind}", key, value, f"give a value of type {kind}")
        model = settings.get("model_name", "default")
        if model != "default" and model not in self.models:
            fix = nearest(str(model), self.models) or "describe the model by its dimensions"
            raise self._refusal("no file for such a model", "model_name", model, fix)

    def _refusal(self, what: str, key: str, value: Value, fix: str) -> InputError:
        known = self.keys.get(key)
        expected = "a key of base.yml" if known is None else known
        if isinstance(known, tuple):
            expected = ", ".join(filter(None, known))
        return InputError(f"MaxText {self.version}: {what}", where=key, value=value, expected=str(expected), fix=fix)


@cache
def maxtext_version() -> MaxTextVersion:
    """The version that configurations are written for."""
    found: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return MaxTextVersion(
        version=found["version"],
        keys={key: kind if isinstance(kind, str) else tuple(kind) for key, kind in found["keys"].items()},
        models={name: frozenset(keys) for name, keys in found["models"].items()},
        topologies=found["topologies"],
    )


def _has_type(value: Value, kind: str) -> bool:
    if kind == "other":
        return True
    return isinstance(value, _TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))
