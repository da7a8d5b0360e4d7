"""Write the generated parts of the documentation; with `--check`, only say which are out of date.

A page marks a generated part with a pair of comments, of which the first names the generator:

    <!-- generated: output ridgeline chips -->
    …
    <!-- end -->

`output COMMAND` runs a command and shows it with what it printed; `python EXPRESSION` evaluates an expression over
`ridgeline` and shows its value; `verbs` is the table of verbs; `help` is every verb's `--help`; `formulas planner` and
`formulas questions` are the formulas of `cost/`, from their docstrings.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from difflib import unified_diff
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import ridgeline
from ridgeline.cli.app import VERBS as WORKING_VERBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

FIGURES = {
    "docs/accuracy.svg": "ridgeline calibrate --shipped",
    "docs/serving_accuracy.svg": "ridgeline calibrate --serving --shipped",
    "docs/architectures.svg": (
        "ridgeline train llama3.1-70b --on tpu7x:4x4x4 --seq-len 8192 --global-batch 256 --architectures"
    ),
    "docs/batch.svg": "ridgeline train llama3.1-8b --on v6e:4x4 --seq-len 8192 --global-batch 16 --batch-levers",
    "docs/communication.svg": (
        "ridgeline train llama3.1-70b --on tpu7x:4x4x4 --seq-len 8192 --global-batch 512 --mesh fsdp=128 --remat full "
        "--communication"
    ),
    "docs/precision.svg": (
        "ridgeline train llama3.1-70b --on tpu7x:4x4x4 --seq-len 8192 --global-batch 256 --mesh fsdp=128 --precision"
    ),
    "docs/book/roofline.svg": "ridgeline roofline matmul --B 64 --D 4096 --F 16384 --on v5e",
    "docs/scale.svg": (
        "ridgeline scale llama3.1-70b --on tpu7x --seq-len 8192 --global-batch 128 --remat full --chips 64:4096"
    ),
    "docs/remat.svg": "ridgeline train llama3.1-70b --on tpu7x:4x4x4 --global-batch 256 --seq-len 8192",
    "docs/serving.svg": (
        "ridgeline serve llama3.1-70b --on v6e:2x4 --prompt-len 1000 --generate-len 1000 --rate 20"
        " --tpot 30ms --ttft 1s"
    ),
    "docs/sharding.svg": "ridgeline train llama3.1-70b --on tpu7x:4x4x4 --global-batch 256 --seq-len 8192 --why tp=8",
    "docs/book/rows.svg": "ridgeline roofline matmul --B 64 --D 4096 --F 16384 --on v5e --sweep B=1:8192",
}
"""Drawings that pages show, and the commands that draw them."""

IN_PART = {
    "calibrate": "in part: from measured steps, servers and kernel times; not yet by measuring this machine",
    "export": "in part: MaxText, vLLM with its Kubernetes manifests, JetStream; not yet XPK or Kubernetes for training",
}
"""Verbs that answer only some of their questions, with which."""

VERBS = {
    "chips [NAME]": "what is this machine: peaks by dtype, HBM, VMEM, links, price, each with its source",
    "model MODEL": "parameters, FLOPs, KV-cache and activation bytes, part by part",
    "roofline OP": "is this operation bound by compute, memory or links, and from which size on",
    "matmul NOTATION": "which collectives a sharded product needs, what they cost, which layout is best",
    "train JOB": "the best way to train it here: plan, step time, memory, bottleneck, days, dollars",
    "scale JOB": "strong and weak scaling, and where communication begins to bind",
    "serve JOB": "the best way to serve it: latency-throughput frontier, cost per million tokens",
    "compile JOB": "what the XLA compiler says of this job, beside the estimate",
    "run JOB": "execute it on the devices at hand, measure, compare",
    "profile TRACE": "where the time of a real run went, operation by operation",
    "tune KERNEL JOB": "which block sizes fit VMEM, and which is fastest",
    "numerics JOB": "does this precision recipe train as bf16 does",
    "calibrate": "measure this machine's real peaks; the estimate then uses them",
    "export JOB": "the exact MaxText, XPK, Kubernetes or vLLM configuration that runs this plan",
    "sweep SWEEP": "many jobs at once, on this machine or on a Ray cluster",
    "validate CASES": "how far the estimates are from published measurements",
    "ui": "the same, in a browser",
}
"""Every verb there will be, as typed, and the question it answers."""

PLANNER_MODULES = (
    "cost/training/step.py",
    "cost/training/layer.py",
    "cost/training/operation.py",
    "cost/training/quantization_pass.py",
    "cost/training/context.py",
    "cost/roofline.py",
    "model/flops.py",
    "cost/collectives.py",
    "cost/wiring.py",
    "cost/placement.py",
    "cost/training/memory.py",
    "cost/training/working_set.py",
    "cost/work.py",
    "cost/calibration.py",
)
"""Modules that cost a training step, the whole before its parts."""

_REGION = re.compile(
    r"(?P<head><!-- generated: (?P<name>\w+) ?(?P<argument>.*?) -->\n)(?P<body>.*?)(?=<!-- end -->)", re.DOTALL
)


def main(arguments: Sequence[str]) -> int:
    """Write every page and figure; with `--check` write none, print what would change, and return 1 if any would."""
    if unknown := [argument for argument in arguments if argument != "--check"]:
        print(f"unknown argument {unknown[0]}: expected none, or --check", file=sys.stderr)
        return 2
    check = "--check" in arguments
    stale = False
    for path, new in generated():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if new == old:
            continue
        stale = True
        name = path.relative_to(ROOT).as_posix()
        if check:
            print(*unified_diff(old.splitlines(), new.splitlines(), name, "generated", lineterm=""), sep="\n")
        else:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {name}")
    if stale and check:
        print("\nThe documentation is out of date: run `make docs`.")
    return int(stale and check)


def generated() -> Iterator[tuple[Path, str]]:
    """Every page and figure, with what it should be."""
    for page in PAGES:
        yield page, rewritten(page.read_text(encoding="utf-8"))
    for name, command in FIGURES.items():
        yield ROOT / name, drawn(command)


def rewritten(page: str) -> str:
    """The text of a page with every generated part written anew, unless only the time it took would change."""

    def written(region: re.Match[str]) -> str:
        body = GENERATORS[region["name"]](region["argument"])
        return region["head"] + (region["body"] if _timeless(body) == _timeless(region["body"]) else body)

    return _REGION.sub(written, page)


def _timeless(text: str) -> str:
    return re.sub(r"(?<=costed in )[\d.]+ m?s", "…", text)


def output(command: str) -> str:
    """A command as typed, and what it prints."""
    return f"```console\n$ {command}\n{printed(command)}```\n"


def excerpt(argument: str) -> str:
    """`TITLE | COMMAND`: a command as typed, and of what it prints the sections whose titles begin so."""
    title, _, command = (part.strip() for part in argument.partition("|"))
    shown: list[str] = []
    inside = False
    for line in printed(command).splitlines():
        inside = line.startswith(title) if line and not line.startswith(" ") else inside
        shown += [line] if inside else []
    if not shown:
        raise SystemExit(f"`{command}` prints no section '{title}'")
    text = "\n".join(shown).strip("\n")
    return f"```console\n$ {command}\n…\n{text}\n```\n"


@cache
def printed(command: str) -> str:
    """What a command of ours prints to a plain terminal 100 columns wide; it must succeed."""
    program, *arguments = shlex.split(command)
    plain = {"COLUMNS": "100", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    result = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        env={**os.environ, **plain},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if result.returncode != 0:
        raise SystemExit(f"`{command}` failed, exit code {result.returncode}:\n{result.stderr}")
    lines = [line.rstrip() for line in result.stdout.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


def drawn(command: str) -> str:
    """What a command of ours draws with `--plot`, as SVG."""
    with TemporaryDirectory() as folder:
        figure = Path(folder) / "figure.svg"
        printed(f"{command} --plot {figure}")
        return figure.read_text(encoding="utf-8")


def evaluated(expression: str) -> str:
    """A Python expression over the package, and its value."""
    value = eval(expression, {"ridgeline": ridgeline})  # noqa: S307 - expressions of our own pages
    return f"```python\n>>> {expression}\n{value!r}\n\n```\n"


def verbs(_: str) -> str:
    """The table of all verbs and of which work today."""
    rows = (
        f"| `ridgeline {usage}` | {question} | {_works_today(usage.split()[0])} |\n"
        for usage, question in VERBS.items()
    )
    return "| verb | question it answers | works today |\n|---|---|---|\n" + "".join(rows)


def _works_today(verb: str) -> str:
    return IN_PART.get(verb, "yes") if verb in WORKING_VERBS else "planned"


def manual(_: str) -> str:
    """`--help` of the program and of every verb."""
    commands = ["ridgeline", *(f"ridgeline {verb}" for verb in WORKING_VERBS)]
    return "".join(f"## {command}\n\n```text\n{printed(f'{command} --help')}```\n\n" for command in commands)


def formulas(which: str) -> str:
    """Formulas from their docstrings, module by module: the planner's, or those of `cost/` for other questions."""
    package = ROOT / "src" / "ridgeline"
    others = {path.relative_to(package).as_posix() for path in (package / "cost").rglob("*.py")} - set(PLANNER_MODULES)
    names = {"planner": PLANNER_MODULES, "questions": sorted(others)}[which]
    trees = {name: ast.parse((package / name).read_text(encoding="utf-8")) for name in names}
    told = {name: tree for name, tree in trees.items() if which == "planner" or any(map(_is_formula, tree.body))}
    return "".join(_chapter(tree, name) for name, tree in told.items())


def _chapter(tree: ast.Module, name: str) -> str:
    """What a module says of itself, and its formulas."""
    entries = [_entry(node) for node in tree.body if isinstance(node, ast.FunctionDef) and _is_formula(node)]
    title, *legend = paragraphs(ast.get_docstring(tree) or name)
    return "\n\n".join([f"## {title.rstrip('.')} (`{name}`)", *map(_shown, legend), *entries]) + "\n\n"


def _is_formula(node: ast.stmt) -> bool:
    """A public function of named quantities that returns one, or says whether; `larger(a, b)` is none."""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
        return False
    returns = "" if node.returns is None else ast.unparse(node.returns)
    is_arithmetic = [argument.arg for argument in node.args.args] == ["a", "b"]
    says_so = "Formula:" in (ast.get_docstring(node) or "")
    is_counted = says_so and (returns in {"bool", "int"} or returns.startswith("tuple["))
    return (returns in {"Number", "float"} or is_counted) and not is_arithmetic


def _entry(node: ast.FunctionDef) -> str:
    rest = [] if node.args.kwarg is None else [f"**{node.args.kwarg.arg}"]
    arguments = ", ".join([*(argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]), *rest])
    body = [_shown(paragraph) for paragraph in paragraphs(ast.get_docstring(node) or "")]
    return "\n\n".join([f"### `{node.name}({arguments})`", *body])


def paragraphs(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring, without doctests and without the list of arguments."""
    for paragraph in docstring.split("\n\n"):
        if paragraph.strip() and not paragraph.lstrip().startswith(
            (">>>", "Args:", "Attributes:", "Raises:", "Returns:")
        ):
            yield paragraph.rstrip()


def _shown(paragraph: str) -> str:
    """A formula, or what was indented or aligned, as a block of code; prose as it is."""
    is_code = re.match(r" {4}|\w+ = ", paragraph) or re.search(r"\S {2,}\S", paragraph)
    return f"```text\n{textwrap.dedent(paragraph)}\n```" if is_code else paragraph


GENERATORS: dict[str, Callable[[str], str]] = {
    "excerpt": excerpt,
    "formulas": formulas,
    "help": manual,
    "output": output,
    "python": evaluated,
    "verbs": verbs,
}
"""By the word after `generated:`; each takes the rest of the line."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
