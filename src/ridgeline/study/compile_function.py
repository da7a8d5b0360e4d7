"""A user's own function asked of the compiler: there is no equation of it, so nothing stands beside the answer."""

from __future__ import annotations

import gzip
import os
import sys
from dataclasses import dataclass
from math import nan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.compilation import compile_program
from ridgeline.compiler.installed import check_installed, own_compiler, usable_compiler
from ridgeline.compiler.process import Limits
from ridgeline.compiler.user_function import UserFunction
from ridgeline.errors import InputError
from ridgeline.hardware.topology import parse_slice
from ridgeline.hlo.summary import summarise
from ridgeline.hlo.text import parse_hlo
from ridgeline.job.abstract_arguments import AbstractArguments, described, read_arguments
from ridgeline.job.notation import read_mesh
from ridgeline.search.estimate import verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.compiler.compilation import Compilation
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.hardware.slice import Slice
    from ridgeline.hlo.summary import HloSummary
    from ridgeline.job.abstract_arguments import Value
    from ridgeline.search.answer import Verdict

ONE_AXIS = "devices"
"""Name of the only mesh axis where the user names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAnswer:
    """What `ridgeline compile module:function` answers.

    Attributes:
        reference: Where the function is.
        arguments: What it is called with.
        mesh: Degrees by axis, outermost first.
        hardware: The slice.
        compiler: Which was asked.
        is_stand_in: The slice's own compiler is not installed, and the CPU's stands in for it.
        compilation: What it says of the program's memory, or why there is no place for it.
        summary: What the compiled text says; None where nothing was compiled.
    """

    reference: str
    arguments: AbstractArguments
    mesh: Mapping[str, int]
    hardware: Slice
    compiler: CompilerName
    is_stand_in: bool
    compilation: Compilation
    summary: HloSummary | None

    @property
    def name(self) -> str:
        """Of the function."""
        return self.reference.rpartition(":")[2]

    @property
    def peak_bytes(self) -> float:
        """Memory of a device by the compiler; where it refused, what it says it needs (NaN if the host lacks it)."""
        memory, refusal = self.compilation.outcome.memory, self.compilation.outcome.refusal
        if memory is not None:
            return memory.peak_bytes
        return refusal.needed_bytes if refusal is not None and refusal.where == "hbm" else nan

    @property
    def usable_bytes(self) -> float:
        """Memory of a device that programs may use."""
        return self.hardware.usable_hbm_bytes / self.hardware.num_devices

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits on the chip."""
        if self.compilation.outcome.memory is None:
            return "does_not_fit"
        return verdict(self.peak_bytes, self.usable_bytes)


def compile_reference(
    reference: str,
    arguments: AbstractArguments,
    *,
    mesh: Mapping[str, int],
    hardware: Slice,
    compiler: CompilerName | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> FunctionAnswer:
    """What a compiler says of a function that child processes import.

    Args:
        reference: `module:name`, or `path/to/file.py:name`.
        arguments: What it is called with.
        mesh: Degrees by axis, outermost first, that fill the slice.
        hardware: The slice.
        compiler: As of `compile_job`.
        limits: What the compiler may use.
        progress: Told what is being done.

    Raises:
        InputError: The function is at fault.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    place, _, name = reference.rpartition(":")
    if not (place and name):
        raise InputError(
            "not the place of a function",
            where="FUNCTION",
            value=reference,
            expected="module:function, or path/to/file.py:function",
            fix="write both, with a colon between them",
        )
    asked = compiler or usable_compiler(hardware)
    check_installed(asked)
    allowed = limits or Limits()
    program = UserFunction(
        reference=reference,
        arguments=arguments,
        mesh=mesh,
        hardware=hardware,
        compiler=asked,
        limits=allowed,
        progress=progress,
        environment={"PYTHONPATH": os.pathsep.join(sys.path)},  # so that a child finds modules where we do
    )
    compilation = compile_program(program, limits=allowed, progress=progress)
    progress("reading the compiled program")
    return FunctionAnswer(
        reference=reference,
        arguments=arguments,
        mesh=mesh,
        hardware=hardware,
        compiler=asked,
        is_stand_in=compiler is None and asked != own_compiler(hardware),
        compilation=compilation,
        summary=_summary(mesh, hardware, compilation),
    )


def compile_function(
    function: Callable[..., Any] | str,
    *arguments: object,
    hardware: str,
    mesh: str | Mapping[str, int] | None = None,
    compiler: CompilerName | None = None,
    limits: Limits | None = None,
    progress: Callable[[str], None] | None = None,
) -> FunctionAnswer:
    """What the XLA compiler says of a function (the verb `compile`, asked of `module:function`).

    A child process imports the function, traces it and compiles it: what counts is what stands in its module or file.

    Args:
        function: At the top level of a module or file, jitted or not; or where it is: `module:name`.
        arguments: What it is called with: `jax.ShapeDtypeStruct`s or arrays, of which only shape, dtype and the spec of
            a `NamedSharding` count, in tuples, lists and dicts; numbers; or texts in the notation of `--args`.
        hardware: The slice: `v5p:2x2x2`.
        mesh: Degrees by axis, outermost first: `fsdp=4,tp=2`; one axis, `devices`, if it is not said.
        compiler: As of `compile_job`.
        limits: The longest time and the largest memory of the compiler.
        progress: Called with what is being done.

    Raises:
        InputError: The function, its arguments or the mesh are at fault.
        MissingExtraError: The compiler is not installed.
        InfeasibleError: The compiler was stopped, or failed.
    """
    slice_ = parse_slice(hardware, where="hardware")
    degrees = read_degrees(mesh, slice_, where="mesh")
    positional: list[Value] = []
    keywords: dict[str, Value] = {}
    for number, argument in enumerate(arguments, start=1):
        if isinstance(argument, str):
            read = read_arguments(argument, mesh=degrees, where=f"argument {number}")
            positional += read.positional
            keywords |= read.keywords
        else:
            positional.append(described(argument, mesh=degrees, where=f"argument {number}"))
    return compile_reference(
        function if isinstance(function, str) else reference_of(function),
        AbstractArguments(positional=tuple(positional), keywords=keywords),
        mesh=degrees,
        hardware=slice_,
        compiler=compiler,
        limits=limits,
        progress=progress or (lambda _: None),
    )


def read_degrees(mesh: str | Mapping[str, int] | None, hardware: Slice, *, where: str) -> dict[str, int]:
    """Degrees by axis, outermost first, of a mesh that fills a slice; without one, all devices along one axis.

    Raises:
        InputError: They do not fill it.
    """
    if mesh is None:
        return {ONE_AXIS: hardware.num_devices}
    degrees = {axis: int(degree) for axis, degree in read_mesh(mesh, where=where).items()}
    _check_mesh(degrees, hardware, where=where)
    return degrees


def reference_of(function: Callable[..., Any]) -> str:
    """Where a child process finds a function of this process.

    Raises:
        InputError: It does not stand at the top level of a module or file.
    """
    module_name, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    module = sys.modules.get(module_name or "")
    found: object = module
    for part in (name or "").split("."):
        found = getattr(found, part, None)
    file = getattr(module, "__file__", None)
    if module is None or found is not function or (module_name == "__main__" and file is None):
        raise InputError(
            "a child process cannot find the function",
            where="function",
            value=function,
            expected="a function at the top level of a module or file, under its own name",
            fix="define it there (not inside another function, nor in an interactive session)",
        )
    place = str(Path(file).resolve()) if module_name == "__main__" and file else module_name
    return f"{place}:{name}"


def _check_mesh(mesh: Mapping[str, int], hardware: Slice, *, where: str) -> None:
    written = " ".join(f"{axis}={degree}" for axis, degree in mesh.items())
    if prod(mesh.values()) != hardware.num_devices:
        raise InputError(
            "mesh does not fill the devices",
            where=where,
            value=f"{written}, product {prod(mesh.values())}",
            expected=f"{hardware.num_devices}: {hardware.name} has {hardware.num_devices} devices",
            fix=f"choose degrees whose product is {hardware.num_devices}",
        )
    if next(iter(mesh.values())) % hardware.num_slices:
        raise InputError(
            "the outermost axis does not cross the slices",
            where=where,
            value=written,
            expected=f"a first axis of a multiple of {hardware.num_slices} devices: it goes from slice to slice",
            fix="put the axis that crosses slices first",
        )


def _summary(mesh: Mapping[str, int], hardware: Slice, compilation: Compilation) -> HloSummary | None:
    """What the compiled text says of FLOPs, collectives and values."""
    if compilation.hlo is None:
        return None
    with gzip.open(compilation.hlo, "rt", encoding="utf-8") as lines:
        module = parse_hlo(lines, where=str(compilation.hlo))
    outermost = next(iter(mesh))
    return summarise(module, mesh={**mesh, outermost: mesh[outermost] // hardware.num_slices})  # devices of one slice
