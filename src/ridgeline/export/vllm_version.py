"""What vLLM can be told: the flags of `vllm serve` about its engine, with their types or values, read from data.

Source: `vllm_0_32_0.toml`, which `scripts/vllm_keys.py` writes from the published package.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

Value: TypeAlias = str | int | float | bool
"""What a flag is set to."""

_FILE = Path(__file__).with_name("vllm_0_32_0.toml")
_TYPES: Mapping[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmVersion:
    """One version of vLLM.

    Attributes:
        version: Its number.
        source: Where its keys are defined.
        keys: By flag, without dashes: `bool`, `int`, `float`, `str` or `other`, or the texts that it may be set to.
        speculation_keys: The same of the object that `speculative_config` takes.
        transfer_keys: The same of `kv_transfer_config`.
        tpu_connectors: What moves KV caches between TPUs.
        sharding_keys: Keys of the sharding strategy of TPUs, inside `additional_config`.
        environment: Variables of the environment that are read.
    """

    version: str
    source: str
    keys: Mapping[str, str | tuple[str, ...]]
    speculation_keys: Mapping[str, str | tuple[str, ...]]
    transfer_keys: Mapping[str, str | tuple[str, ...]]
    tpu_connectors: tuple[str, ...]
    sharding_keys: tuple[str, ...]
    environment: frozenset[str]

    def check(self, settings: Mapping[str, Value]) -> None:
        """Refuses flags that this version does not have, and values that they do not take.

        Raises:
            InputError: It names the first such flag.
        """
        self._check(settings, self.keys)

    def check_speculation(self, settings: Mapping[str, Value]) -> None:
        """The same of the keys of `speculative_config`.

        Raises:
            InputError: It names the first such key.
        """
        self._check(settings, self.speculation_keys)

    def speculation_text(self, settings: Mapping[str, Value]) -> str:
        """The value of `speculative_config`.

        Raises:
            InputError: It names the first key that it does not have.
        """
        self.check_speculation(settings)
        return json.dumps(settings)

    def transfer_text(self, settings: Mapping[str, Value]) -> str:
        """The value of `kv_transfer_config`; a connector in a module of its own is one of TPUs.

        Raises:
            InputError: It names the first key that it does not have, or the value that it does not take.
        """
        known = dict(self.transfer_keys)
        if "kv_connector_module_path" in settings:
            known["kv_connector"] = self.tpu_connectors
        self._check(settings, known)
        return json.dumps(settings)

    def sharding_text(self, strategy: Mapping[str, Value]) -> str:
        """The value of `additional_config` that carries a sharding strategy of TPUs.

        Raises:
            InputError: It names the first key that a strategy does not have.
        """
        self._check(strategy, dict.fromkeys(self.sharding_keys, "other"))
        return json.dumps({"sharding": {"sharding_strategy": strategy}})

    def check_environment(self, variables: Mapping[str, str]) -> None:
        """Refuses variables that this version does not read.

        Raises:
            InputError: It names the first such variable.
        """
        self._check(variables, dict.fromkeys(self.environment, "other"))

    def _check(self, settings: Mapping[str, Value], known: Mapping[str, str | tuple[str, ...]]) -> None:
        for key, value in settings.items():
            kind = known.get(key)
            if kind is None:
                raise self._refusal(
                    "no such key", key, key, "a flag of vllm serve", nearest(key, known) or "leave it out"
                )
            if isinstance(kind, tuple):
                if value not in kind:
                    fix = nearest(str(value), kind) or "use one of those"
                    raise self._refusal("no such value", key, value, ", ".join(kind), fix)
            elif kind != "other" and not _has_type(value, kind):
                raise self._refusal(f"not of type {kind}", key, value, kind, f"give a value of type {kind}")

    def _refusal(self, what: str, key: str, value: Value, expected: str, fix: str) -> InputError:
        return InputError(f"vLLM {self.version}: {what}", where=key, value=value, expected=expected, fix=fix)


@cache
def vllm_version() -> VllmVersion:
    """The version that flags are written for."""
    found: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    keys, speculation, transfer = (
        {key: kind if isinstance(kind, str) else tuple(kind) for key, kind in found[table].items()}
        for table in ("keys", "speculative_config", "kv_transfer_config")
    )
    return VllmVersion(
        version=found["version"],
        source=found["source"],
        keys=keys,
        speculation_keys=speculation,
        transfer_keys=transfer,
        tpu_connectors=tuple(found["tpu_inference"]["connectors"]),
        sharding_keys=tuple(found["tpu_inference"]["sharding_strategy"]),
        environment=frozenset(found["environment"]["names"]),
    )


def _has_type(value: Value, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "bool" or not isinstance(value, bool))
