"""A user's own function asked of the compiler."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

import ridgeline
from ridgeline.cli.app import main
from ridgeline.errors import InputError
from ridgeline.study.compile_function import reference_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ridgeline.study.compile_function import FunctionAnswer

pytest.importorskip("jax")

MODULE = "tests.compiler.functions"
SHAPES = "{up: bf16[1024_fsdp,4096_tp], down: bf16[4096_tp,1024_fsdp]}, bf16[2048_fsdp,1024]"
MESH = "fsdp=2,tp=2"


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def answer(own_cache: None) -> FunctionAnswer:
    del own_cache
    pytest.importorskip("libtpu")
    return ridgeline.compile_function(f"{MODULE}:step", SHAPES, hardware="v5e:2x2", mesh=MESH)


def test_memory_is_that_of_the_shards(answer: FunctionAnswer) -> None:
    memory = answer.compilation.outcome.memory
    assert memory is not None
    # Two matrices of 1024 x 4096 in quarters, 2048 x 1024 inputs in halves, all in bf16.
    assert memory.arguments_bytes == 2 * (2 * 1024 * 4096 / 4 + 2048 * 1024 / 2)
    assert (answer.verdict, answer.usable_bytes) == ("fits", 15.75 * 2**30)


def test_flops_are_those_of_the_matmuls(answer: FunctionAnswer) -> None:
    assert answer.summary is not None
    # 2 products forward, and backward 2 for `down` and 1 for `up`, whose inputs need no gradient; a quarter each.
    assert answer.summary.flops == 5 * 2 * 2048 * 1024 * 4096 / 4


def test_collectives_run_over_the_axes_of_the_users_mesh(answer: FunctionAnswer) -> None:
    assert answer.summary is not None
    found = {
        (each.collective.kind, each.collective.axis, each.collective.array_bytes) for each in answer.summary.collectives
    }

    # Weights gathered along fsdp, their gradients scattered; activations summed along tp.
    half_bytes = 2 * 1024 * 4096 / 2
    assert found == {
        ("all_gather", "fsdp", half_bytes),
        ("reduce_scatter", "fsdp", half_bytes),
        ("all_reduce", "tp", 2 * 1024 * 1024),
    }


def test_the_same_function_is_answered_from_the_cache_and_a_changed_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def double(x):\n    return 2 * x\n", encoding="utf-8")

    def cached() -> bool:
        reference = f"{file}:double"
        return ridgeline.compile_function(reference, "f32[8]", hardware="v5e:2x2", compiler="cpu").compilation.is_cached

    assert [cached(), cached()] == [False, True]
    file.write_text("def double(x):\n    return 3 * x\n", encoding="utf-8")
    assert not cached()


def test_a_jitted_function_keeps_its_own_shardings_and_donation() -> None:
    import jax
    import jax.numpy as jnp

    from tests.compiler.functions import own_step

    weights = {
        name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in {"up": (64, 128), "down": (128, 64)}.items()
    }
    inputs = jax.ShapeDtypeStruct((32, 64), jnp.bfloat16)

    found = ridgeline.compile_function(own_step, weights, inputs, hardware="v5e:2x2", mesh=MESH, compiler="cpu")

    memory = found.compilation.outcome.memory
    assert memory is not None
    assert memory.arguments_bytes == 2 * (2 * 64 * 128 / 4 + 32 * 64 / 2)
    assert memory.aliased_bytes == 2 * 2 * 64 * 128 / 4


def test_the_command_line_answers_in_the_keys_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", f"{MODULE}:product", "--on=v5e:2x2", "--args=f32[64_devices,32], f32[32,16]", "--compiler=cpu"]

    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["program"], found["hardware"], found["mesh"]) == ("product", "v5e:2x2", {"devices": 4})
    assert (found["predicted_flops"], found["memory"]["predicted_bytes"]) == (None, None)
    assert (found["flops"], found["memory"]["verdict"]) == (2 * 16 * 32 * 16, "fits")

    assert main(words) == 0
    assert "product on v5e:2x2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "arguments", "what", "where"),
    [
        ("product", "f32[8,4], f32[8,4]", "the function cannot be lowered: TypeError", "functions.py:"),
        ("product", "f32[8,4]", "the function cannot be lowered: TypeError", "FUNCTION: "),
        ("product", "f32[8,4], f32[4,8], 3", "the function cannot be lowered: ValueError", "FUNCTION: "),
        ("prodct", "f32[8,4]", f"{MODULE} has no prodct", "FUNCTION"),
        ("NO_FUNCTION", "f32[8,4]", "NO_FUNCTION is not a function", "FUNCTION"),
    ],
)
def test_a_fault_of_the_function_is_one_clear_error(function: str, arguments: str, what: str, where: str) -> None:
    with pytest.raises(InputError) as caught:
        ridgeline.compile_function(f"{MODULE}:{function}", arguments, hardware="v5e:2x2", compiler="cpu")

    assert caught.value.what == what
    assert where in caught.value.where


@pytest.mark.parametrize(
    ("code", "what", "where"),
    [
        ("def f(:", "cannot be imported: SyntaxError", ":1"),
        ("def g():\n    raise OSError('no data')\n\ng()\n", "cannot be imported: OSError", ":2 (raise OSError"),
        ("import sys\nsys.exit()\n", "cannot be imported: SystemExit", ":2 (sys.exit())"),
    ],
)
def test_a_module_that_cannot_be_imported_is_shown_where(tmp_path: Path, code: str, what: str, where: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(code, encoding="utf-8")

    with pytest.raises(InputError) as caught:
        ridgeline.compile_function(f"{file}:f", "f32[8]", hardware="v5e:2x2", compiler="cpu")

    assert caught.value.what.endswith(what)
    assert f"broken.py{where}" in caught.value.where


def test_a_function_that_no_child_can_find_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(InputError, match="a child process cannot find the function"):
        reference_of(inner)
    assert reference_of(reference_of) == "ridgeline.study.compile_function:reference_of"


@pytest.mark.parametrize(
    ("flags", "what", "where"),
    [
        (["--args=f32[8]"], "--on is missing", "--on"),
        (["--on=v5e:2x2"], "--args is missing", "--args"),
        (["--on=v5e:2x2", "--args=f32[8]", "--seq-len=8"], "a function has no --seq-len", "--seq-len"),
        (["--on=v5e:2x2", "--args=f32[8]", "--program=ours"], "a function has no --program", "--program"),
        (["--on=v5e:2x2", "--args=f32[8]", "--mesh=x=3"], "mesh does not fill the devices", "--mesh"),
        (
            ["--on=2*v5e:2x2", "--args=f32[8]", "--mesh=x=1,y=8"],
            "the outermost axis does not cross the slices",
            "--mesh",
        ),
        (["--on=v5e:2x2", "--args=f32[7_x]", "--mesh=x=4"], "7 elements do not divide over x=4", "--args, column 5"),
    ],
)
def test_bad_input_is_met_with_one_clear_message(
    capsys: pytest.CaptureFixture[str], flags: list[str], what: str, where: str
) -> None:
    assert main(["compile", f"{MODULE}:product", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {what}")
    assert f"\n  where:    {where}\n" in said


@pytest.mark.parametrize("reference", [":product", f"{MODULE}:", "product"])
def test_half_a_place_is_no_place_of_a_function(reference: str) -> None:
    with pytest.raises(InputError, match="not the place of a function"):
        ridgeline.compile_function(reference, "f32[8]", hardware="v5e:2x2", compiler="cpu")


def test_a_compiler_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="no such compiler"):
        ridgeline.compile_function(f"{MODULE}:product", "f32[8]", hardware="v5e:2x2", compiler=cast("Any", "gcc"))
