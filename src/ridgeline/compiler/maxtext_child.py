"""MaxText's own ahead-of-time compilation, in MaxText's own environment: `python maxtext_child.py FOLDER key=value…`.

This file runs where Ridgeline is not installed, so it stands alone. It starts `train_compile` as a user would, and
adds two things that change nothing of what is compiled: the modules' names as scopes, which MaxText's modules do not
write of themselves, so that the compiled text says what part an operation belongs to; and it keeps the compiled
program's text and account of memory, of which `train_compile` prints a part.
"""

from __future__ import annotations

import functools
import json
import resource
import sys
from contextlib import ExitStack, nullcontext
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIBRARIES = ("maxtext", "jax", "jaxlib", "libtpu", "flax", "qwix", "tokamax")
"""What decides a compilation beside the configuration."""

_KIB = 1024 if sys.platform != "darwin" else 1  # getrusage counts in KiB, on macOS in bytes


def main(arguments: Sequence[str]) -> None:
    """Runs `train_compile`.

    Args:
        arguments: A folder for what is found, then MaxText's own arguments.
    """
    folder = Path(arguments[0])
    (folder / "phase").write_text("starting MaxText", encoding="utf-8")
    with ExitStack() as changes:
        name_modules(changes)
        keep_compiled(folder, changes)
        app: Any = import_module("absl.app")
        train_compile: Any = import_module("maxtext.trainers.pre_train.train_compile")
        app.run(train_compile.main, argv=[train_compile.__file__, *arguments[1:]])


def name_modules(changes: ExitStack) -> None:
    """Lets every flax module work in a scope of its name: what its caller calls it, else its class.

    It must be called before the modules' classes are made.

    Args:
        changes: Where to note what is changed.
    """
    import jax

    base: Any = import_module("flax.nnx").Module
    working: list[Any] = []

    def name_of(module: Any) -> str:  # noqa: ANN401 - any flax module
        if not working:
            return ""  # the model itself
        called = (name for name, value in vars(working[-1]).items() if value is module)
        return next(called, type(module).__name__)

    def in_scope(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def scoped(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the module takes
            if working and working[-1] is self:  # a class calls its base
                return call(self, *arguments, **named)
            name = name_of(self)
            working.append(self)
            try:
                with jax.named_scope(name) if name else nullcontext():
                    return call(self, *arguments, **named)
            finally:
                working.pop()

        return scoped

    prepared = base.__init_subclass__

    def prepare(cls: type, **named: Any) -> None:  # noqa: ANN401 - as flax takes them
        prepared.__func__(cls, **named)
        if "__call__" in vars(cls):
            changes.enter_context(patch.object(cls, "__call__", in_scope(vars(cls)["__call__"])))

    changes.enter_context(patch.object(base, "__init_subclass__", classmethod(prepare)))


def keep_compiled(folder: Path, changes: ExitStack) -> None:
    """Lets the compiler's result be written to a folder as soon as there is one, and what is being done before.

    Args:
        folder: Where to.
        changes: Where to note what is changed.
    """
    import jax

    began_s = perf_counter()
    compile_lowered: Any = jax.stages.Lowered.compile

    def compile_and_keep(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as JAX takes them
        (folder / "phase").write_text("compiling", encoding="utf-8")
        lowered_s = perf_counter()
        compiled = compile_lowered(self, *arguments, **named)
        compiled_s = perf_counter()
        (folder / "phase").write_text("reading the result", encoding="utf-8")
        (folder / "module.hlo").write_text(compiled.as_text(), encoding="utf-8")
        outcome = {
            "compile_s": compiled_s - lowered_s,
            "lower_s": lowered_s - began_s,
            "process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB,
            "versions": {name: version(name) for name in LIBRARIES},
            "memory": _memory(compiled.memory_analysis()),
            "refusal": None,
        }
        (folder / "outcome.json").write_text(json.dumps(outcome), encoding="utf-8")
        return compiled

    changes.enter_context(patch.object(jax.stages.Lowered, "compile", compile_and_keep))
    (folder / "phase").write_text("lowering", encoding="utf-8")


def _memory(found: Any) -> dict[str, float]:  # noqa: ANN401 - jaxlib's CompiledMemoryStats has no type
    """The account that jaxlib gives of a compiled program, under the names of `CompiledMemory`."""
    together_bytes = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    together_bytes += found.temp_size_in_bytes
    return {
        # The peak counts the chip's inner memory too, which shows in small programs.
        "peak_bytes": min(found.peak_memory_in_bytes, together_bytes),
        "arguments_bytes": found.argument_size_in_bytes,
        "outputs_bytes": found.output_size_in_bytes,
        "aliased_bytes": found.alias_size_in_bytes,
        "temporaries_bytes": found.temp_size_in_bytes,
        "code_bytes": found.generated_code_size_in_bytes,
        "host_bytes": found.host_argument_size_in_bytes
        + found.host_output_size_in_bytes
        - found.host_alias_size_in_bytes
        + found.host_temp_size_in_bytes,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
