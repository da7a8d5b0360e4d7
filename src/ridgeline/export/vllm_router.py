"""The router before two kinds of servers: it sends a prompt to one that reads, then on to one that decodes.

vLLM's own (github.com/vllm-project/router), for servers that hand caches over by NIXL. It is a package apart, with a
version of its own; every flag that is written is one of that version.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ridgeline.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ridgeline.export.vllm import VllmConfig

PORT: Final = 8000
"""Where clients ask."""

_FILE: Final = Path(__file__).with_name("vllm_router_0_1_17.toml")
_STARTUP_S: Final = 3600
"""How long it waits for servers to load their weights; its own default is 600 seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterVersion:
    """One version of the router.

    Attributes:
        version: Its number.
        source: Where its flags are defined.
        flags: Their names, without dashes in front.
    """

    version: str
    source: str
    flags: frozenset[str]

    @property
    def requirement(self) -> str:
        """What pip installs."""
        return f"vllm-router=={self.version}"

    def words(self, flags: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Flags and their values as words of a command; a flag alone has an empty value.

        Raises:
            InputError: It names the first flag that this version does not have.
        """
        found: list[str] = []
        for flag, value in flags:
            if flag not in self.flags:
                fix = nearest(flag, self.flags) or "leave it out"
                what = f"vLLM Router {self.version}: no such flag"
                raise InputError(what, where=flag, value=value, expected="a flag of vllm-router", fix=fix)
            found += [f"--{flag}", value] if value else [f"--{flag}"]
        return tuple(found)


@cache
def router_version() -> RouterVersion:
    """The version that commands are written for."""
    found: dict[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return RouterVersion(version=found["version"], source=found["source"], flags=frozenset(found["flags"]))


def has_router(configs: Iterable[VllmConfig]) -> bool:
    """Whether there are two kinds of servers that this router knows: GPUs, whose caches go by NIXL."""
    return {config.server.role for config in configs if not config.server.is_tpu} == {"prefill", "decode"}


def router_words(*, prefill: Iterable[str], decode: Iterable[str]) -> tuple[str, ...]:
    """The command that starts it.

    Args:
        prefill: URLs of the servers that read prompts, or of what stands before all of them.
        decode: The same of those that decode.
    """
    flags = [
        ("vllm-pd-disaggregation", ""),
        ("policy", "round_robin"),
        *(("prefill", url) for url in prefill),
        *(("decode", url) for url in decode),
        ("host", "0.0.0.0"),  # noqa: S104 - of a container, or of the host that is to be asked
        ("port", str(PORT)),
        ("worker-startup-timeout-secs", str(_STARTUP_S)),
    ]
    return ("vllm-router", *router_version().words(flags))
