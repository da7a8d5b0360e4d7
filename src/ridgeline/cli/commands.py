"""From words to a verb and back to an exit code; each verb's module is imported only when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline import __version__
from ridgeline.cli.app import ALL_VERBS, VERBS
from ridgeline.cli.output import complain, discard_output
from ridgeline.errors import InfeasibleError, RidgelineError

if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP_WIDTH = 100
_ANSWERED, _NOT_POSSIBLE, _BAD_INPUT = 0, 1, 2


def run(words: Sequence[str]) -> int:
    """Answers one command line and returns its exit code.

    Args:
        words: As typed, without the program's name.
    """
    if sys.stdout is None:
        complain("error: cannot write the answer: standard output is closed")
        return _BAD_INPUT
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × and █ gets a question mark, not a traceback
    words = list(words) or ["--help"]
    if words[0] in ALL_VERBS and words[0] not in VERBS:
        complain(
            f"error: '{words[0]}' is planned, not built yet\n  where:    ridgeline\n"
            f"  expected: {', '.join(VERBS)}\n  fix:      see ridgeline --help for what works today"
        )
        return _BAD_INPUT
    # A verb's own module is enough to run it; help, and a misspelt verb, need them all.
    verbs = (words[0],) if words[0] in VERBS else VERBS
    command = typer.main.get_command(_application(verbs))
    try:
        code = command.main(args=words, prog_name="ridgeline", standalone_mode=False)
    except InfeasibleError as error:
        complain(f"not possible: {error}")
        return _NOT_POSSIBLE
    except RidgelineError as error:
        complain(f"error: {error}")
        return _BAD_INPUT
    except typer.TyperException as error:
        complain(_usage_message(error, "ridgeline" if verbs is VERBS else f"ridgeline {words[0]}"))
        return _BAD_INPUT
    except SystemExit:  # how typer ends when the reader of its help has gone away
        return _ANSWERED
    except OSError as error:
        if error.filename is not None:
            raise  # not of a stream but of a file that some reader did not guard: a bug, which must show
        discard_output()
        complain(f"error: cannot write the answer: {error.strerror}")
        return _BAD_INPUT
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
        typer.echo(f"ridgeline {__version__}")
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
    message = error.format_message().strip().rstrip(".").replace("Value error, ", "")  # pydantic's word, not ours
    return f"error: {message[:1].lower()}{message[1:]}\n  where:    {command}\n  fix:      see {command} --help"
