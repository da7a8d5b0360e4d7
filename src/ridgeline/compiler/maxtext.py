"""MaxText's training step of a job, compiled by MaxText's own ahead-of-time entry point in its own environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ridgeline.compiler import maxtext_child
from ridgeline.compiler.compilable import Command, Found
from ridgeline.compiler.dump import dump_options, dumped_program, largest_at_peak
from ridgeline.compiler.outcome import Outcome, out_of_memory, read_outcome
from ridgeline.compiler.process import failed, tpu_environment
from ridgeline.errors import InputError
from ridgeline.export.maxtext import config_arguments, maxtext_config, topology_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.compiler.compilable import Ended
    from ridgeline.compiler.maxtext_environment import MaxTextEnvironment
    from ridgeline.job.job import Job

_OUTCOME, _MODULE, _PHASE, _DUMP = "outcome.json", "module.hlo", "phase", "dump"
_OWN_ENVIRONMENT: Final = "M_"
"""MaxText takes a variable of this prefix and a key's name in capitals for that key."""

_CONFIGURATION_REFUSED = "MAXTEXT CONFIG ERROR:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextProgram:
    """A job's program by MaxText.

    Attributes:
        job: With batch, mesh, micro-steps and remat policy.
        environment: Where MaxText is.
    """

    job: Job
    environment: MaxTextEnvironment

    @property
    def question(self) -> str:
        """All that the result follows from.

        Raises:
            InputError: MaxText has no word for a part of the job, or no name for its slice.
        """
        versions, own = sorted(self.environment.versions.items()), sorted(_own_variables().items())
        child = sha256(Path(maxtext_child.__file__).read_bytes()).hexdigest()
        return "\n".join((repr(self.arguments), repr(versions), repr(own), child))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What `train_compile` is told.

        Raises:
            InputError: As of `question`.
        """
        return self._arguments({})

    def _arguments(self, more_flags: Mapping[str, str]) -> tuple[str, ...]:
        """The same with more flags of the compiler, that change nothing of what is compiled."""
        config = maxtext_config(self.job)
        written = [flag.written for flag in config.flags]
        flags = " ".join([*written, *(f"--{name}={value}" for name, value in more_flags.items())])
        return (
            f"compile_topology={topology_name(self.job.hardware)}",
            f"compile_topology_num_slices={self.job.hardware.num_slices}",
            *config_arguments(config),
            *((f"compile_xla_flags={flags}",) if flags else ()),
        )

    def command(self, folder: Path) -> Command:
        """Our child's file, run by MaxText's interpreter."""
        told = self._arguments(dump_options(folder / _DUMP))
        places = (f"base_output_directory={folder}", "run_name=compilation", "jax_cache_dir=")
        # -P: the folder of our own modules, where a `maxtext` is too, is not searched for MaxText.
        arguments = (self.environment.python, "-P", maxtext_child.__file__, str(folder), *told, *places)
        return Command(arguments=arguments, environment=tpu_environment())

    def phase(self, folder: Path) -> str:
        """What the child last wrote that it does."""
        file = folder / _PHASE
        return file.read_text(encoding="utf-8") if file.exists() else "starting MaxText"

    def read(self, folder: Path, ended: Ended) -> Found:
        """The outcome and the module's text; of a refusal, the compiler's message.

        Raises:
            InputError: MaxText refused the configuration.
            InfeasibleError: It failed.
        """
        if ended.code:
            outcome, module = self._refused(ended), dumped_program(folder / _DUMP)
        else:
            outcome, module = read_outcome((folder / _OUTCOME).read_text(encoding="utf-8")), folder / _MODULE
        return Found(outcome=replace(outcome, largest=largest_at_peak(folder / _DUMP)), hlo=module)

    def _refused(self, ended: Ended) -> Outcome:
        refusal = out_of_memory(ended.said)
        if refusal is not None:
            return Outcome(
                compile_s=ended.elapsed_s,
                lower_s=0.0,
                process_bytes=ended.resident_bytes,
                versions=self.environment.versions,
                refusal=refusal,
            )
        _, found, message = ended.said.rpartition(_CONFIGURATION_REFUSED)
        if found:
            raise InputError(
                f"MaxText refuses this configuration: {message.strip().splitlines()[0]}",
                where="--program maxtext",
                value=self.job.model.name,
                expected="a job that MaxText takes",
                fix="change what it names, or use --program ours",
            )
        raise failed(ended)


def _own_variables() -> Mapping[str, str]:
    """What the environment tells MaxText."""
    return {name: value for name, value in os.environ.items() if name.startswith(_OWN_ENVIRONMENT)}
