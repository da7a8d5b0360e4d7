"""`ridgeline compile --lint-flags`: a string of flags judged by the compiler that is installed."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import typer

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.compiler.process import Limits
    from ridgeline.hardware.slice import Slice

_FEW_CHIPS = 4


def lint(text: str, *, on: str | None, limits: Limits, json: bool) -> None:
    """Prints what the compiler says of each flag; ends with 1 where it refuses one."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.compiler.flags import judge_flags
    from ridgeline.job.flag_string import read_flags
    from ridgeline.report.flags import flags_json, flags_report

    flags = read_flags(text, where="--lint-flags")
    answer = judge_flags(flags, _few_chips(on), limits=limits)
    if json:
        print_json(flags_json(answer))
    else:
        print_report(flags_report(answer))
    if answer.num_refused:
        raise typer.Exit(1)


def _few_chips(on: str | None) -> Slice:
    """The slice that is named; of a chip alone, a small one."""
    from ridgeline.hardware.catalog import find_chip
    from ridgeline.hardware.topology import legal_shapes, parse_slice, torus_slice

    if on is None:
        raise InputError(
            "flags are judged for a chip", where="--on", value="", expected="a chip: v5p", fix="add --on v5p"
        )
    chip = find_chip(on)
    torus = parse_slice(on).chip.torus if chip is None else chip.torus
    if torus is None:
        raise InputError(
            "flags are judged by the compiler for TPUs", where="--on", value=on, expected="a TPU: v5p", fix="name a TPU"
        )
    if chip is None:
        return parse_slice(on)
    shape = next(shape for shape in legal_shapes(torus) if prod(shape) >= _FEW_CHIPS)
    return torus_slice(chip, torus, shape, 1)
