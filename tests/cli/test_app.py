"""The command line as a whole: what it lists, how it fails, how fast it starts."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import ridgeline
from ridgeline.cli import train as train_module
from ridgeline.cli.app import ALL_VERBS, VERBS, main
from ridgeline.errors import InfeasibleError, MissingExtraError

HEAVY = ("jax", "numpy", "plotly", "pydantic", "rich")


def run(*arguments: str, **keywords: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from ridgeline.cli.app import main; sys.exit(main())", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **keywords)


def run_in_shell(words: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from ridgeline.cli.app import main; sys.exit(main())"
    command = ["sh", "-c", f'exec "$0" -c "$1" {words}', sys.executable, program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_verb_and_no_other(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0

    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_speaks_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0

    assert "--json" in capsys.readouterr().out


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"ridgeline {ridgeline.__version__}\n"


def imported_by(program: str, *, names: tuple[str, ...] = HEAVY) -> list[str]:
    probe = f"import sys\n{program}\nprint('LOADED', *(name for name in {names} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stdout.partition("LOADED")[2].split()


def test_help_loads_no_heavy_library() -> None:
    assert imported_by("from ridgeline.cli.app import main; main(['--help'])") == []


def test_importing_the_package_loads_no_heavy_library() -> None:
    assert imported_by("import ridgeline") == []


def test_the_check_for_heavy_libraries_can_fail() -> None:
    assert imported_by("import numpy") == ["numpy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "error: no such command 'trian'. Did you mean 'train'?\n  where:    ridgeline\n"),
        (["train"], "error: missing argument 'JOB|MODEL'\n  where:    ridgeline train\n"),
        (["train", "m", "--jsno"], "error: no such option: --jsno"),
        (["train", "m", "n"], "error: got unexpected extra argument(s) (n)\n  where:    ridgeline train\n"),
        (["train", "m", "--on"], "error: option '--on' requires an argument\n  where:    ridgeline train\n"),
    ],
)
def test_a_malformed_command_line_gets_one_message_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(message)
    assert printed.err.endswith("--help\n")


@pytest.mark.parametrize("verb", [verb for verb in ALL_VERBS if verb not in VERBS])
def test_a_verb_that_is_planned_is_said_to_be_so(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"error: '{verb}' is planned, not built yet\n  where:    ridgeline\n  expected: {', '.join(VERBS)}\n"
        "  fix:      see ridgeline --help for what works today\n"
    )


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def verb(job: str) -> NoReturn:
        del job
        raise error

    return verb


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            InfeasibleError("no plan fits", reasons=["dp needs 1 TiB"], fix="use more chips"),
            1,
            "not possible: no plan fits\n  - dp needs 1 TiB\n  fix: use more chips\n",
        ),
        (
            MissingExtraError("jax", needed_for="compile"),
            2,
            "error: compile needs the extra 'jax'\n  fix: pip install 'ridgeline[jax]'\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_exit_code_tells_what_kind_of_answer_it_was(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(train_module, "train", raising(error))

    assert main(["train", "model"]) == code

    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize("arguments", [["chips"], ["chips", "--json"], ["--help"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str], tmp_path: Path) -> None:
    program = "import sys; from ridgeline.cli.app import main; sys.exit(main())"
    complaints = tmp_path / "stderr"
    with complaints.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=stderr)
        process.stdout.close()
        process.wait()

    assert complaints.read_bytes() == b""


def test_a_terminal_without_our_characters_gets_question_marks_and_no_traceback() -> None:
    done = run("chips", "h100:8", env=os.environ | {"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("h100:8 ? NVIDIA H100")


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">/dev/full", "No space left on device"), (">&-", "standard output is closed")],
)
@pytest.mark.parametrize("arguments", ["--help", "--version", "train --help", "chips", "chips h100 --json"])
def test_an_answer_that_cannot_be_written_is_said_so_in_one_line(arguments: str, redirection: str, reason: str) -> None:
    done = run_in_shell(f"{arguments} {redirection}")

    assert (done.returncode, done.stderr) == (2, f"error: cannot write the answer: {reason}\n")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_without_a_place_for_complaints_the_exit_code_still_tells(redirection: str) -> None:
    done = run_in_shell(f"chips nonesuch {redirection}")

    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_an_interrupt_while_libraries_load_is_no_traceback() -> None:
    interrupted = (
        "import sys\nfrom ridgeline.cli.app import main\n"
        "class Interrupt:\n    def find_spec(name, path, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt)\nsys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_little_is_loaded_before_an_interrupt_is_met() -> None:
    assert imported_by("import ridgeline.cli.app", names=("click", "difflib", "json", "re", "typer")) == []


def test_the_console_script_and_the_function_are_the_same_program() -> None:
    done = run("chips", "chip")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown chip\n  where:    NAME\n  value:    chip\n")
