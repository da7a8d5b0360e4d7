"""A job as MaxText is told it: its configuration, the XLA flags beside it, and the command that starts it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from shlex import quote
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.export.maxtext_model import model_settings
from ridgeline.export.maxtext_plan import plan_settings
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.export.xla_flags import xla_flags
from ridgeline.hardware.topology import written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.export.maxtext_version import Value
    from ridgeline.export.xla_flags import XlaFlag
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.job import Job

TRAIN_MODULE: Final = "maxtext.trainers.pre_train.train"

_PLACEHOLDERS: Final[Mapping[str, Value]] = {"run_name": "ridgeline", "base_output_directory": "./maxtext-runs"}
_MEASURED: Final[Mapping[str, Value]] = {"dataset_type": "synthetic", "enable_checkpointing": False}
"""A run that measures: no data set, no checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTextConfig:
    """What MaxText is told.

    Attributes:
        version: Of MaxText, whose keys these are.
        settings: Value by key; what is left out stays as in its `base.yml` and the model's own file.
        flags: XLA flags, for `LIBTPU_INIT_ARGS` in a run and for `compile_xla_flags` in a compilation.
    """

    version: str
    settings: Mapping[str, Value]
    flags: tuple[XlaFlag, ...]

    @property
    def overriding(self) -> Mapping[str, Value]:
        """What replaces a key of the model's own file: MaxText takes it from the command line alone."""
        of_model = maxtext_version().models.get(str(self.settings["model_name"]), frozenset())
        replaced = {key: value for key, value in self.settings.items() if key in of_model}
        return {"override_model_config": True, **replaced} if replaced else {}


def maxtext_config(job: Job) -> MaxTextConfig:
    """The configuration of a job in which nothing is left to choose.

    Raises:
        InputError: Something is left open, or MaxText has no word for it; the message names it.
    """
    version = maxtext_version()
    settings: dict[str, Value] = {**model_settings(job), **plan_settings(job), **_MEASURED}
    if job.hardware.chip.torus is None:
        settings["hardware"] = "gpu"
    config = MaxTextConfig(version=version.version, settings=settings, flags=xla_flags(job.plan.compiler))
    version.check(settings := {"model_name": settings["model_name"], **config.overriding, **settings})
    return replace(config, settings=settings)


def topology_name(hardware: Slice) -> str:
    """MaxText's name for a TPU slice: it counts TensorCores on v4, v5p and TPU7x, else chips.

    Raises:
        InputError: MaxText has no name for this shape.

    >>> from ridgeline.hardware.topology import parse_slice
    >>> topology_name(parse_slice("tpu7x:4x4x4")), topology_name(parse_slice("v5p:4x4x4"))
    ('tpu7x-128', 'v5p-128')
    """
    chip, shape = hardware.chip.name, written(hardware.shape)
    shapes = {name: each for name, each in maxtext_version().topologies.items() if name.rpartition("-")[0] == chip}
    for name, each in shapes.items():
        if _sorted(each) == _sorted(shape):
            return name
    chips = prod(hardware.shape)
    alike = [each for each in shapes.values() if _chips(each) == chips]
    known = f"a shape that MaxText knows{f': {alike[0]} has as many chips' if alike else ''}"
    raise InputError(
        f"MaxText {maxtext_version().version} has no name for such a slice",
        where="hardware",
        value=hardware.name,
        expected=known if shapes else "v4, v5e, v5p, v6e or tpu7x",
        fix=f"use {chip}:{alike[0]}, or --program ours" if alike else "choose another slice, or --program ours",
    )


def _sorted(shape: str) -> list[str]:
    """A shape whatever the order of its axes: the same slice."""
    return sorted(shape.split("x"))


def _chips(shape: str) -> int:
    """Chips in a block of a shape."""
    return prod(int(axis) for axis in shape.split("x"))


def config_yaml(config: MaxTextConfig) -> str:
    """The configuration as a file: what it leaves out is MaxText's `base.yml`, and what is said on the command line."""
    said = config.overriding
    lines = (
        f'{key}: "{value}"' if isinstance(value, str) else f"{key}: {value_text(value)}"
        for key, value in config.settings.items()
        if key not in said
    )
    return "\n".join((f"# For MaxText {config.version}.", "base_config: base.yml", *lines)) + "\n"


def config_arguments(config: MaxTextConfig) -> tuple[str, ...]:
    """The configuration as `key=value` arguments of MaxText's programs."""
    return _arguments(config.settings)


def train_words(config: MaxTextConfig, *, steps: int, file: str | None = None) -> tuple[str, ...]:
    """The words of the command that starts a run on every host of the slice, quoted for a shell.

    Args:
        config: What is run.
        steps: Optimizer steps.
        file: Where the configuration was written; None for all of it on the command line.
    """
    flags = " ".join(flag.written for flag in config.flags)
    rest = config.settings if file is None else config.overriding
    words = (
        *("python3", "-m", TRAIN_MODULE),
        *(() if file is None else (file,)),
        *_arguments({**_PLACEHOLDERS, "steps": steps}),
        *_arguments(rest),
    )
    return (*((f"LIBTPU_INIT_ARGS={quote(flags)}",) if flags else ()), *map(quote, words))


def _arguments(settings: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(f"{key}={value_text(value)}" for key, value in settings.items())


def value_text(value: Value) -> str:
    """A value as MaxText reads it: `true`, `0.5`, `full`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
