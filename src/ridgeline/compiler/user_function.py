"""A user's own function, to be compiled for a slice; it is imported by child processes alone.

What the result follows from is the lowered module. A first child finds that out, and a second compiles if the answer
is not kept already: tracing takes seconds, compiling minutes.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.compiler.cache import source_digest
from ridgeline.compiler.child import installed_versions
from ridgeline.compiler.compilable import Command, Found
from ridgeline.compiler.function_errand import FunctionErrand, function_errand_json
from ridgeline.compiler.installed import check_installed
from ridgeline.compiler.our_program import topology_of
from ridgeline.compiler.outcome import read_outcome
from ridgeline.compiler.process import Limits, check_ended, run_watched, tpu_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ridgeline.compiler.compilable import Ended
    from ridgeline.compiler.installed import CompilerName
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.abstract_arguments import AbstractArguments

_ERRAND, _OUTCOME, _MODULE, _PHASE = "errand.json", "outcome.json", "module.hlo", "phase"
_LOWERED, _COMPLAINT = "lowered", "complaint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """A function of the user's, and what it is compiled for.

    Attributes:
        reference: `module:name`, or `path/to/file.py:name`.
        arguments: What it is called with.
        mesh: Degrees by axis, outermost first; they multiply to the devices of the slice.
        hardware: The slice.
        compiler: Which compiles it.
        limits: What a child process may use that only lowers it.
        progress: Told what such a child is doing.
        environment: Variables for child processes beside the user's own, such as where modules are found.
    """

    reference: str
    arguments: AbstractArguments
    mesh: Mapping[str, int]
    hardware: Slice
    compiler: CompilerName
    limits: Limits
    progress: Callable[[str], None] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def question(self) -> str:
        """The lowered module, the machine, and what compiles.

        Raises:
            InputError: The function is at fault, or the compiler does not know the chip.
            MissingExtraError: The compiler is not installed.
            InfeasibleError: The child was stopped, or failed.
        """
        check_installed(self.compiler)
        topology = topology_of(self.hardware, self.compiler)
        with tempfile.TemporaryDirectory(prefix="ridgeline-") as name:
            folder = Path(name)

            def doing() -> str:
                self.progress(phase := self.phase(folder))
                return phase

            ended = run_watched(self._command(folder, only_lower=True), folder, self.limits, doing)
            check_ended(ended, folder / _COMPLAINT)
            lowered = (folder / _LOWERED).read_text(encoding="utf-8")
        asked = (lowered, topology, tuple(self.mesh.items()), self.compiler)
        return "\n".join((repr(asked), source_digest(), repr(sorted(installed_versions().items()))))

    def command(self, folder: Path) -> Command:
        """Writes the errand."""
        return self._command(folder, only_lower=False)

    def phase(self, folder: Path) -> str:
        """What the child last wrote that it does."""
        file = folder / _PHASE
        return file.read_text(encoding="utf-8") if file.exists() else "starting the compiler"

    def read(self, folder: Path, ended: Ended) -> Found:
        """The outcome and the module's text.

        Raises:
            InputError: The function is at fault.
            InfeasibleError: The child failed.
        """
        check_ended(ended, folder / _COMPLAINT)
        module = folder / _MODULE
        outcome = read_outcome((folder / _OUTCOME).read_text(encoding="utf-8"))
        return Found(outcome=outcome, hlo=module if module.exists() else None)

    def _command(self, folder: Path, *, only_lower: bool) -> Command:
        errand = FunctionErrand(
            function=self.reference,
            arguments=str(self.arguments),
            mesh=dict(self.mesh),
            hardware=self.hardware.name,
            compiler=self.compiler,
            options={},
            only_lower=only_lower,
            lowered=str(folder / _LOWERED),
            outcome=str(folder / _OUTCOME),
            hlo=str(folder / _MODULE),
            phase=str(folder / _PHASE),
            complaint=str(folder / _COMPLAINT),
        )
        (folder / _ERRAND).write_text(function_errand_json(errand), encoding="utf-8")
        environment = {**tpu_environment(), **self.environment}
        if self.compiler == "cpu":
            environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={self.hardware.num_devices}"
        program = (sys.executable, "-m", "ridgeline.compiler.function_child", str(folder / _ERRAND))
        return Command(arguments=program, environment=environment)
