"""MaxText's program: an interpreter that answers at once stands in for MaxText; the real one where it is installed."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.compiler.compilable import Ended
from ridgeline.compiler.maxtext import MaxTextProgram
from ridgeline.compiler.maxtext_child import LIBRARIES
from ridgeline.compiler.maxtext_environment import find_maxtext, need_maxtext
from ridgeline.errors import InfeasibleError, InputError, MissingExtraError
from ridgeline.export.maxtext_version import maxtext_version
from ridgeline.study.compile_job import compile_job
from tests.compiler.jobs import tiny_job
from tests.conftest import MAXTEXT_PYTHON

if TYPE_CHECKING:
    from ridgeline.job.job import Job

MODULE = Path(__file__).parents[1] / "hlo" / "data" / "v5p_4x4x4_mlp.hlo"

OUTCOME = {
    "compile_s": 12.5,
    "lower_s": 2.0,
    "process_bytes": 1.0e9,
    "versions": {"maxtext": "0.2.5"},
    "memory": {
        "peak_bytes": 3.0e9,
        "arguments_bytes": 2.0e9,
        "outputs_bytes": 2.0e9,
        "aliased_bytes": 2.0e9,
        "temporaries_bytes": 1.0e9,
        "code_bytes": 1.0e6,
        "host_bytes": 0.0,
    },
    "refusal": None,
}

OUT_OF_HBM = """\
Jitting and compiling train step...
Traceback (most recent call last):
  File "train_compile.py", line 214, in jit_and_compile
jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom:
Ran out of memory on HBM, the total memory required for HLO temporaries (2.70T) exceeds available HBM (94.74G).
"""

CONFIGURATION_REFUSED = """\
E1129 22:01:03.100201 1403 pyconfig.py:391] ================
E1129 22:01:03.100210 1403 pyconfig.py:392] MAXTEXT CONFIG ERROR: Flash attention needs a longer sequence.
E1129 22:01:03.100215 1403 pyconfig.py:393] ================
"""


def install(folder: Path, *, version: str = maxtext_version().version, says: str = "", code: int = 0) -> str:
    """An interpreter that tells versions when it is asked, else does what our child does."""
    found = folder / "found"
    found.mkdir(exist_ok=True)
    (found / "outcome.json").write_text(json.dumps(OUTCOME))
    (found / "module.hlo").write_bytes(MODULE.read_bytes())
    (found / "says").write_text(says)
    python = folder / "python"
    told = "\n".join(f"echo {name} {version if name == 'maxtext' else '1.0'}" for name in LIBRARIES)
    python.write_text(
        f"""#!/bin/sh
if [ "$1" = -I ]; then {told}
exit 0; fi
echo "$@" > {folder}/arguments
cat {found}/says
[ {code} = 0 ] && cp {found}/outcome.json {found}/module.hlo "$3"
exit {code}
"""
    )
    python.chmod(0o755)
    return str(python)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_CACHE", str(tmp_path / "cache"))


def known_job(**more: object) -> Job:
    """A job that both programs can be."""
    return tiny_job(**more)


def test_the_named_interpreter_is_asked_for_its_versions(tmp_path: Path) -> None:
    environment = need_maxtext(install(tmp_path))
    assert environment.versions["maxtext"] == maxtext_version().version


def test_the_environment_variable_names_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_MAXTEXT_PYTHON", install(tmp_path))
    environment = find_maxtext()
    assert environment is not None
    assert environment.python == str(tmp_path / "python")


def test_maxtext_is_not_looked_for_where_the_variable_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_MAXTEXT_PYTHON", "")
    assert find_maxtext() is None
    with pytest.raises(MissingExtraError, match=r"maxtext\[tpu\]==0\.2\.5"):
        need_maxtext()


def test_another_version_of_maxtext_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"it has MaxText 0\.1\.0"):
        need_maxtext(install(tmp_path, version="0.1.0"))


def test_a_path_that_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot run MaxText: no interpreter"):
        need_maxtext(str(tmp_path / "nothing"))


def test_the_compiler_is_asked_for_the_slice_with_the_flags_of_the_job(tmp_path: Path) -> None:
    job = known_job(plan__compiler={"scoped_vmem_kib": 65536})
    answer = compile_job(job, program="maxtext", maxtext_python=install(tmp_path))

    words = (tmp_path / "arguments").read_text().split()
    assert {"compile_topology=v5e-4", "compile_topology_num_slices=1", "jax_cache_dir="} <= set(words)
    assert "compile_xla_flags=--xla_tpu_scoped_vmem_limit_kib=65536" in words
    assert answer.program == "maxtext"
    assert answer.peak_bytes == 3.0e9
    assert answer.summary is not None


def test_the_same_question_is_answered_from_the_cache(tmp_path: Path) -> None:
    python = install(tmp_path)
    first = compile_job(known_job(), program="maxtext", maxtext_python=python)
    again = compile_job(known_job(), program="maxtext", maxtext_python=python)
    other = compile_job(known_job(plan__remat="minimal"), program="maxtext", maxtext_python=python)

    assert (first.compilation.is_cached, again.compilation.is_cached) == (False, True)
    assert not other.compilation.is_cached


def test_what_the_environment_tells_maxtext_belongs_to_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = MaxTextProgram(job=known_job(), environment=need_maxtext(install(tmp_path)))
    before = program.question
    monkeypatch.setenv("M_SCAN_LAYERS", "false")
    assert program.question != before


def test_maxtext_is_the_usual_program_where_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGELINE_MAXTEXT_PYTHON", install(tmp_path))
    assert compile_job(known_job()).program == "maxtext"


def test_our_program_takes_the_place_where_maxtext_has_no_word_for_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("RIDGELINE_MAXTEXT_PYTHON", install(tmp_path))
    job = known_job(plan__optimizer={"nu_dtype": "bf16"})

    from ridgeline.study.compiled_program import who_is_asked

    asked = who_is_asked(job, program=None, compiler=None, maxtext_python=None)
    assert asked.program == "ours"
    assert "a second moment of another dtype" in asked.why_ours
    with pytest.raises(InputError, match="a second moment of another dtype"):
        who_is_asked(job, program="maxtext", compiler=None, maxtext_python=None)


def test_maxtext_is_compiled_for_tpus_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="compiled for TPUs alone"):
        compile_job(known_job(), program="maxtext", compiler="cpu", maxtext_python=install(tmp_path))


def test_a_refusal_of_the_compiler_is_an_answer(tmp_path: Path) -> None:
    answer = compile_job(known_job(), program="maxtext", maxtext_python=install(tmp_path, says=OUT_OF_HBM, code=1))

    refusal = answer.compilation.outcome.refusal
    assert refusal is not None
    assert (round(refusal.needed_bytes / 2**40, 2), round(refusal.available_bytes / 2**30, 2)) == (2.70, 94.74)
    assert answer.verdict == "does_not_fit"


def test_a_configuration_that_maxtext_refuses_is_bad_input_in_its_words(tmp_path: Path) -> None:
    python = install(tmp_path, says=CONFIGURATION_REFUSED, code=2)
    with pytest.raises(InputError, match="MaxText refuses this configuration: Flash attention needs"):
        compile_job(known_job(), program="maxtext", maxtext_python=python)


def test_a_child_that_fails_otherwise_is_quoted(tmp_path: Path) -> None:
    program = MaxTextProgram(job=known_job(), environment=need_maxtext(install(tmp_path)))
    ended = Ended(code=-9, said="Killed", elapsed_s=1.0, resident_bytes=0.0)
    with pytest.raises(InfeasibleError, match="ended by signal 9"):
        program.read(tmp_path, ended)


def test_the_command_line_names_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["llama3.1-8b", "--layers=2", "--on=v5e:2x2", "--mesh=fsdp=4", "--global-batch=4", "--seq-len=512"]
    code = main(
        ["compile", *arguments, "--remat=full", "--program=maxtext", f"--maxtext-python={install(tmp_path)}", "--json"]
    )
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (found["program"], found["why_ours"]) == ("maxtext", None)


@pytest.mark.slow
@pytest.mark.skipif(not MAXTEXT_PYTHON and find_spec("maxtext") is None, reason="MaxText is not installed")
def test_maxtext_itself_does_the_flops_of_the_equation_in_the_parts_of_the_model() -> None:
    job = known_job()
    small = replace(job, plan=replace(job.plan, mesh={"fsdp": 4}))

    answer = compile_job(small, program="maxtext", maxtext_python=MAXTEXT_PYTHON or None)

    assert answer.summary is not None
    # Without kernel = "splash" MaxText's backward kernels are two, with seven products where one kernel has five.
    assert answer.summary.flops == pytest.approx(answer.predicted_flops, rel=0.06)
    parts = {each.place.part for each in answer.summary.parts}
    assert {"layer/attention/query", "layer/mlp/gate", "layer/mlp/down", "head/logits"} <= parts
    assert {each.collective.axis for each in answer.summary.collectives} == {"fsdp"}
