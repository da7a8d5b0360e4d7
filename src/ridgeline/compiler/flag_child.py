"""The child process that tries flags: `python -m ridgeline.compiler.flag_child ERRAND.json`, or `load` alone.

Each flag is given to a compilation of a program that does nothing, then all together: some are refused only beside
others. `load` lets libtpu take flags from its environment, as it does in a user's process.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.compiler.flag_errand import Findings, findings_json, read_flag_errand
from ridgeline.hardware.topology import parse_slice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.compiler.flag_errand import Finding, FlagErrand

    Option: TypeAlias = str | bool | int
    """A value as the compiler takes it."""

TOGETHER = "all together"
"""What is tried last."""

_NO_OPTION = re.compile(r"No such compile option")
_BAD_TYPE = re.compile(r"While setting option (?P<option>\w+), .* is not a valid (?P<type>\w+) value")
_PARSED = re.compile(r"Failed to parse '.*?' into flag \w+:\s*(.*)", re.DOTALL)
_OF_PLATFORM = re.compile(r"FAILED_PRECONDITION|on platforms? |UNIMPLEMENTED")
_CODE = re.compile(r"^[A-Z_]+: (?:E\d+: )?")


def main(arguments: Sequence[str]) -> None:
    """Tries the flags of an errand; or, told the name of a slice after `load`, describes it and ends."""
    if arguments[0] == "load":
        _device(arguments[1])
        return
    errand = read_flag_errand(Path(arguments[0]).read_text(encoding="utf-8"))
    lowered = _nothing(errand.hardware)
    _say(errand, "nothing")
    lowered.compile(compiler_options={"xla_dump_to": errand.dump})
    defaults = _defaults(Path(errand.dump))
    found: dict[str, tuple[Finding, str]] = {}
    for name, value in errand.flags.items():
        _say(errand, name)
        found[name] = _tried(lowered, {name: value})
        _write(errand, found, defaults)
    _say(errand, TOGETHER)
    accepted = {name: errand.flags[name] for name, (finding, _) in found.items() if finding == "accepted"}
    found |= _tried_together(lowered, accepted)
    _write(errand, found, defaults)


def _device(hardware: str) -> Any:  # noqa: ANN401 - jaxlib's Device
    from ridgeline.compiler.topology import abstract_topology, describe_devices

    return describe_devices(abstract_topology(parse_slice(hardware)))


def _nothing(hardware: str) -> Any:  # noqa: ANN401 - of JAX, untyped
    """A program that returns its argument on every device, lowered."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(np.array(_device(hardware)), ("devices",)), PartitionSpec())
    shape = jax.ShapeDtypeStruct((8, 128), np.float32, sharding=sharding)
    return jax.jit(lambda array: array).lower(shape)


def _defaults(dump: Path) -> dict[str, str]:
    """The flags that libtpu has, with their values, from the file that it writes beside a dump."""
    lines = [line for file in dump.glob("*.flagfile") for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = (line.removeprefix("--").partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


def _tried(lowered: Any, options: Mapping[str, Option]) -> tuple[Finding, str]:  # noqa: ANN401 - of JAX, untyped
    """What the compiler makes of options."""
    try:
        lowered.compile(compiler_options=dict(options))
    except Exception as error:  # noqa: BLE001 - the compiler's own errors have no class of their own
        message = str(error).strip()
        retyped = {name: _retyped(name, value, message) for name, value in options.items()}
        if retyped != options:
            return _tried(lowered, retyped)
        return _finding(message)
    return "accepted", ""


def _retyped(name: str, value: Option, message: str) -> Option:
    """Some options take no text where a number or truth value is meant; the message names one of them."""
    refused = _BAD_TYPE.search(message)
    if refused is None or refused["option"] != name or not isinstance(value, str):
        return value
    if refused["type"] == "bool":
        return {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
    return int(value) if re.fullmatch(r"-?\d+", value) else value


def _finding(message: str) -> tuple[Finding, str]:
    if _NO_OPTION.search(message):
        return "no_option", ""
    if parsed := _PARSED.search(message):
        return "bad_value", parsed[1].strip()
    words = " ".join(_CODE.sub("", message).split())
    return ("not_for_chip" if _OF_PLATFORM.search(message) else "bad_value"), words


def _tried_together(lowered: Any, accepted: Mapping[str, str]) -> dict[str, tuple[Finding, str]]:  # noqa: ANN401 - of JAX, untyped
    """Those without which the others would be accepted; all, where no single one is to blame."""
    finding, reason = _tried(lowered, accepted)
    if finding == "accepted":
        return {}
    at_fault = [
        name
        for name in accepted
        if _tried(lowered, {other: value for other, value in accepted.items() if other != name})[0] == "accepted"
    ]
    named = at_fault or list(accepted)
    return {
        name: (finding, f"beside {', '.join(other for other in named if other != name)}: {reason}") for name in named
    }


def _say(errand: FlagErrand, phase: str) -> None:
    Path(errand.phase).write_text(phase, encoding="utf-8")


def _write(errand: FlagErrand, found: Mapping[str, tuple[Finding, str]], defaults: Mapping[str, str]) -> None:
    Path(errand.findings).write_text(findings_json(Findings(found=found, defaults=defaults)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
