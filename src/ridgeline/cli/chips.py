"""`ridgeline chips`: what is this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ridgeline.cost.explain import Derivation


def chips(
    name: Annotated[
        str | None,
        typer.Argument(help="A chip (tpu7x, h100) or a slice (tpu7x:4x4x4, 2*v5e:16x16, h100:64, v5p-512)."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show where the numbers come from.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object in base units.")] = False,
) -> None:
    """What is this machine: peaks by dtype, memory, links, shapes and price, each with its source."""
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cost.explain_hardware import explain_chip, explain_slice
    from ridgeline.hardware.catalog import chip_names, find_chip, load_chip
    from ridgeline.hardware.topology import parse_slice
    from ridgeline.report.chips import chip_json, chip_report, chips_json, chips_report, slice_json, slice_report
    from ridgeline.report.derivations import explained

    derivations: tuple[Derivation, ...] = ()
    if name is None:
        catalogue = [load_chip(known) for known in chip_names()]
        report, answer = chips_report(catalogue), chips_json(catalogue)
    elif find_chip(name) is None and (":" in name or "-" in name):
        hardware = parse_slice(name, where="NAME")
        report, answer, derivations = slice_report(hardware), slice_json(hardware), explain_slice(hardware)
    else:
        chip = load_chip(name, where="NAME")
        report, answer, derivations = chip_report(chip), chip_json(chip), explain_chip(chip)
    if json:
        print_json(answer)
    else:
        print_report(explained(report, derivations) if explain else report)
