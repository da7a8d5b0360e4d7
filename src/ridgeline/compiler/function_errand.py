"""What a child process is told of a user's function: as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionErrand:
    """What a child process is sent to do with a user's function.

    Attributes:
        function: Where it is: `module:name`, or `path/to/file.py:name`.
        arguments: What it is called with, in the notation of `job/abstract_arguments.py`.
        mesh: Degrees by axis, outermost first.
        hardware: Name of the slice.
        compiler: `tpu`, `gpu`, or `cpu` for emulated devices.
        options: Of the compiler.
        only_lower: Whether to stop before the compiler.
        lowered: Path to write the lowered module's digest to.
        outcome: Path to write the outcome to.
        hlo: Path to write the compiled module's text to.
        phase: Path to write to what it is doing.
        complaint: Path to write to what is wrong with the function.
    """

    function: str
    arguments: str
    mesh: Mapping[str, int]
    hardware: str
    compiler: str
    options: Mapping[str, str]
    only_lower: bool
    lowered: str
    outcome: str
    hlo: str
    phase: str
    complaint: str


def function_errand_json(errand: FunctionErrand) -> str:
    """An errand as text."""
    return json.dumps(asdict(errand))


def read_function_errand(text: str) -> FunctionErrand:
    """The errand that a text tells of."""
    return FunctionErrand(**json.loads(text))
