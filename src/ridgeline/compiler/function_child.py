"""The child process that compiles a user's function: `python -m ridgeline.compiler.function_child ERRAND.json`.

Nobody else runs the user's code. What is wrong with it is written down as an `InputError` for whoever asked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ridgeline.compiler.child import AT_FAULT, compile_lowered
from ridgeline.compiler.function_errand import read_function_errand
from ridgeline.compiler.outcome import complaint_json, outcome_json
from ridgeline.errors import InputError, nearest
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.abstract_arguments import AbstractArray, read_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from traceback import FrameSummary

    from jax.sharding import Mesh

    from ridgeline.compiler.function_errand import FunctionErrand
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.abstract_arguments import AbstractArguments

_SHOWN_FRAMES = 3


def main(arguments: Sequence[str]) -> None:
    """Does the errand: lowers, compiles, writes the module's text, then the outcome; or a complaint."""
    errand = read_function_errand(Path(arguments[0]).read_text(encoding="utf-8"))
    try:
        run(errand)
    except InputError as error:
        Path(errand.complaint).write_text(complaint_json(error), encoding="utf-8")
        sys.exit(AT_FAULT)


def run(errand: FunctionErrand) -> None:
    """Imports, traces and lowers a function, and compiles it if it is to be compiled.

    Raises:
        InputError: The function is at fault.
    """
    import jax

    phase = Path(errand.phase)
    phase.write_text("importing the function", encoding="utf-8")
    function = imported(errand.function)
    phase.write_text("describing the machine", encoding="utf-8")
    mesh = _mesh(errand.mesh, parse_slice(errand.hardware), errand.compiler)
    phase.write_text("tracing the function", encoding="utf-8")
    began_s = perf_counter()
    with jax.set_mesh(mesh):
        lowered = _lowered(function, errand, mesh)
        text = lowered.as_text(debug_info=True)  # with scopes and places: the compiled text repeats them
        Path(errand.lowered).write_text(sha256(text.encode()).hexdigest(), encoding="utf-8")
        if errand.only_lower:
            return
        outcome = compile_lowered(lowered, errand, began_s=began_s)
    Path(errand.outcome).write_text(outcome_json(outcome), encoding="utf-8")


def imported(reference: str) -> Callable[..., Any]:
    """The function that a reference names.

    Args:
        reference: `module:name` as importable from the current folder, or `path/to/file.py:name`.

    Raises:
        InputError: There is none, or its module cannot be imported.
    """
    place, _, name = reference.rpartition(":")
    module = _module(place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(
                f"{place} has no {name}",
                where="FUNCTION",
                value=reference,
                expected="the name of a function in it",
                fix=nearest(name, [each for each in vars(module) if callable(getattr(module, each))])
                or "name one that it defines",
            )
        found = getattr(found, part)
    if not callable(found):
        raise InputError(
            f"{name} is not a function",
            where="FUNCTION",
            value=f"{reference} is {found!r}",
            expected="something that can be called",
            fix="name a function of that module",
        )
    return found


def _module(place: str) -> Any:  # noqa: ANN401 - a module of the user's
    """A module, executed; whatever it raises is the user's to mend."""
    sys.path.insert(0, str(Path.cwd()))
    file = Path(place)
    try:
        if file.suffix != ".py":
            return importlib.import_module(place)
        sys.path.insert(0, str(file.resolve().parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{place} cannot be read")  # noqa: TRY301 - told like what the import itself raises
        module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{place} cannot be imported: {type(error).__name__}",
            where=_places(error) or "FUNCTION",
            value=str(error),
            expected="a module that can be imported here",
            fix="run this in the folder from which it can be imported, or write path/to/file.py:function",
        ) from error
    return module


def _mesh(degrees: Mapping[str, int], hardware: Slice, compiler: str) -> Mesh:
    """The devices of a slice with the user's axes; of several slices, the outermost axis crosses them."""
    import jax
    import numpy as np
    from jax.experimental import mesh_utils
    from jax.sharding import Mesh

    from ridgeline.compiler.gpu import describe_gpus, gpu_topology
    from ridgeline.compiler.topology import abstract_topology, describe_devices

    shape = tuple(degrees.values())
    match compiler:
        case "cpu":
            devices = np.array(jax.devices("cpu")).reshape(shape)
        case "gpu":
            devices = np.array(describe_gpus(gpu_topology(hardware))).reshape(shape)
        case _ if hardware.num_slices == 1:
            found = describe_devices(abstract_topology(hardware))
            devices = mesh_utils.create_device_mesh(shape, found, allow_split_physical_axes=True)
        case _:
            found = describe_devices(abstract_topology(hardware))
            inside = (shape[0] // hardware.num_slices, *shape[1:])
            across = (hardware.num_slices, *(1 for _ in shape[1:]))
            devices = mesh_utils.create_hybrid_device_mesh(inside, across, found, allow_split_physical_axes=True)
    return Mesh(devices, tuple(degrees))


def _lowered(function: Callable[..., Any], errand: FunctionErrand, mesh: Mesh) -> Any:  # noqa: ANN401 - of JAX, untyped
    """The function with its arguments' shapes, lowered."""
    said = read_arguments(errand.arguments, mesh=errand.mesh, where="--args")
    positional, keywords = _shapes((said.positional, dict(said.keywords)), mesh)
    try:
        return _jitted(function, said).lower(*positional, **keywords)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the function cannot be lowered: {type(error).__name__}",
            where=_places(error) or f"FUNCTION: {errand.function}",
            value=str(error),
            expected="a function that JAX can trace with these arguments on this mesh",
            fix="mend the function, or change --args or --mesh",
        ) from error


def _jitted(function: Callable[..., Any], said: AbstractArguments) -> Any:  # noqa: ANN401 - of JAX, untyped
    """The function as it is if it has been jitted; else jitted here, constants among its arguments static."""
    import jax

    if hasattr(function, "lower"):
        return function
    constant = (str, float, int, bool)
    return jax.jit(
        function,
        static_argnums=tuple(at for at, value in enumerate(said.positional) if isinstance(value, constant)),
        static_argnames=tuple(name for name, value in said.keywords.items() if isinstance(value, constant)),
    )


def _shapes(value: Any, mesh: Mesh) -> Any:  # noqa: ANN401 - a tree of whatever the user's function takes
    """The same tree with JAX's shapes in the place of arrays that are not there."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    match value:
        case AbstractArray(axes=None):
            return jax.ShapeDtypeStruct(value.dims, value.dtype)
        case AbstractArray():
            sharding = NamedSharding(mesh, PartitionSpec(*(axes or None for axes in value.axes or ())))
            return jax.ShapeDtypeStruct(value.dims, value.dtype, sharding=sharding)
        case tuple():
            return tuple(_shapes(each, mesh) for each in value)
        case list():
            return [_shapes(each, mesh) for each in value]
        case dict():
            return {name: _shapes(each, mesh) for name, each in value.items()}
        case _:
            return value


def _places(error: BaseException) -> str:
    """Where in the user's files an error arose, innermost first."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shortened(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_the_users(frame)]
    return ", called at ".join(map(_place, reversed(frames[-_SHOWN_FRAMES:])))


def _is_the_users(frame: FrameSummary) -> bool:
    ours, libraries = str(Path(__file__).parents[1]), (sys.base_prefix, sys.prefix)
    inside = Path(frame.filename)
    return (
        inside.is_absolute()
        and not frame.filename.startswith(ours)
        and not any(inside.is_relative_to(folder) for folder in _library_folders(libraries))
    )


def _library_folders(prefixes: Sequence[str]) -> Iterator[Path]:
    for prefix in prefixes:
        yield from (Path(prefix) / name for name in ("lib", "lib64", "Lib"))


def _place(frame: FrameSummary) -> str:
    return f"{_shortened(frame.filename)}:{frame.lineno} ({frame.line or frame.name})"


def _shortened(filename: str) -> str:
    """A path from the current folder, where it lies inside."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


if __name__ == "__main__":
    main(sys.argv[1:])
