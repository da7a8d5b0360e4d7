"""Which of XLA's compilers can be asked: for TPUs, for GPUs, or for this machine's CPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice

CompilerName: TypeAlias = Literal["tpu", "gpu", "cpu"]
"""XLA for TPUs (in libtpu), for NVIDIA's GPUs (in the CUDA plugin), or for this machine's CPU with emulated devices."""

_LIBRARIES: Final[Mapping[CompilerName, tuple[str, ...]]] = {
    "tpu": ("jax", "libtpu"),
    "gpu": ("jax", "jax_cuda13_plugin", "jax_plugins.xla_cuda13"),
    "cpu": ("jax",),
}
_EXTRAS: Final[Mapping[CompilerName, str]] = {"tpu": "jax", "gpu": "cuda", "cpu": "jax"}
_NEEDED_FOR: Final[Mapping[CompilerName, str]] = {
    "tpu": "compiling for TPUs",
    "gpu": "compiling for GPUs",
    "cpu": "compiling",
}


def own_compiler(hardware: Slice) -> CompilerName:
    """The compiler whose chips a slice consists of."""
    return "gpu" if hardware.chip.torus is None else "tpu"


def usable_compiler(hardware: Slice) -> CompilerName:
    """A slice's own compiler; where that is not installed, emulated devices of this machine stand in."""
    own = own_compiler(hardware)
    return own if is_installed(own) else "cpu"


def is_installed(compiler: CompilerName) -> bool:
    """Whether all libraries of a compiler are there."""
    return all(map(_is_there, _LIBRARIES[compiler]))


def check_installed(compiler: CompilerName) -> None:
    """Refuses a compiler that is not installed, with the line that installs it.

    Raises:
        InputError: There is no such compiler.
        MissingExtraError: Something is missing.
    """
    if compiler not in _LIBRARIES:
        known = ", ".join(_LIBRARIES)
        raise InputError("no such compiler", where="compiler", value=compiler, expected=known, fix="use one of those")
    if not is_installed(compiler):
        raise MissingExtraError(_EXTRAS[compiler], needed_for=_NEEDED_FOR[compiler])


def install_line(compiler: CompilerName) -> str:
    """The line that installs a compiler."""
    return f"pip install 'ridgeline[{_EXTRAS[compiler]}]'"


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # of a part of a package that is missing itself
        return False
