"""The command line: one file per verb, each imported only when it is asked for.

Exit codes: 0 answered, 1 answered "not possible", 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline import __version__
from ridgeline.errors import InfeasibleError, RidgelineError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = ("chips", "model", "train")
"""What can be asked, in the order of a first visit; each is the function of that name in the module of that name."""

_HELP_WIDTH = 100
_ANSWERED, _NOT_POSSIBLE, _BAD_INPUT, _INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Args:
        arguments: Without the program's name; None for those of the process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × and █ gets a question mark, not a traceback
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    # A verb's own module is enough to run it; help, and a misspelt verb, need them all.
    verbs = (words[0],) if words[0] in VERBS else VERBS
    command = typer.main.get_command(_application(verbs))
    try:
        code = command.main(args=words, prog_name="ridgeline", standalone_mode=False)
    except InfeasibleError as error:
        _complain(f"not possible: {error}")
        return _NOT_POSSIBLE
    except RidgelineError as error:
        _complain(f"error: {error}")
        return _BAD_INPUT
    except typer.TyperException as error:
        _complain(_usage_message(error, "ridgeline" if verbs is VERBS else f"ridgeline {words[0]}"))
        return _BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return code if isinstance(code, int) else _ANSWERED


def _application(verbs: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="ridgeline",
        help="How a Transformer will train or serve on TPUs and GPUs, before the chips are rented.",
        callback=_options,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": _HELP_WIDTH},
    )
    for verb in verbs:
        app.command(verb)(getattr(import_module(f"ridgeline.cli.{verb}"), verb))
    return app


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"ridgeline {__version__}\n")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options of the program itself; `--version` has answered before this is called."""
    del version


def _usage_message(error: typer.TyperException, command: str) -> str:
    """What typer says of a malformed command line, in our form."""
    message = error.format_message().strip().rstrip(".")
    return f"error: {message[:1].lower()}{message[1:]}\n  where:    {command}\n  fix:      see {command} --help"


def _complain(message: str) -> None:
    sys.stderr.write(f"{message}\n")
