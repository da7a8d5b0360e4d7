"""Arguments that are not there: shapes, dtypes and layouts as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ridgeline.errors import InputError
from ridgeline.job.abstract_arguments import AbstractArguments, AbstractArray, described, read_arguments

if TYPE_CHECKING:
    from ridgeline.job.abstract_arguments import Value

MESH = {"fsdp": 4, "tp": 2, "X": 1, "Y": 1}


def read(text: str) -> AbstractArguments:
    return read_arguments(text, mesh=MESH, where="--args")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f32[]", AbstractArray(dtype="float32", dims=())),
        ("bfloat16[8,4]", AbstractArray(dtype="bfloat16", dims=(8, 4))),
        ("s32[8Ki]", AbstractArray(dtype="int32", dims=(8192,))),
        ("bf16[8_fsdp, 4]", AbstractArray(dtype="bfloat16", dims=(8, 4), axes=(("fsdp",), ()))),
        ("bf16[8_{fsdp,tp}]", AbstractArray(dtype="bfloat16", dims=(8,), axes=(("fsdp", "tp"),))),
        ("bf16[8_XY]", AbstractArray(dtype="bfloat16", dims=(8,), axes=(("X", "Y"),))),
        ("bf16[8_{},4]", AbstractArray(dtype="bfloat16", dims=(8, 4), axes=((), ()))),
        ("(3, [-0.5, true], {a: none, 'b c': \"relu\"},)", (3, [-0.5, True], {"a": None, "b c": "relu"})),
    ],
)
def test_a_value_reads_as_what_it_says(text: str, value: Value) -> None:
    assert read(text).positional == (value,)


def test_arguments_with_names_follow_those_without() -> None:
    found = read("f32[2], 3, rate=0.1, w={k: f32[4_tp]}")

    assert found.positional == (AbstractArray(dtype="float32", dims=(2,)), 3)
    assert found.keywords == {"rate": 0.1, "w": {"k": AbstractArray(dtype="float32", dims=(4,), axes=(("tp",),))}}


@pytest.mark.parametrize(
    "text",
    ["f32[8_{fsdp,tp},4], [bf16[2]], (1, 2.5), rate=0.1", "pred[4_{},2_{}], {'a': none}, s8[], 'text'", "", "()"],
)
def test_what_is_read_reads_back_as_it_is_written(text: str) -> None:
    assert read(str(read(text))) == read(text)


@pytest.mark.parametrize(
    ("text", "what", "column"),
    [
        ("f32[8", "malformed arguments: it ends too early", 6),
        ("f32[8 4]", "malformed arguments: `4` is out of place", 7),
        ("f32", "malformed arguments: it ends too early", 4),
        ("f33[8]", "unknown dtype f33", 1),
        ("f32[x]", "malformed arguments: `x` is out of place", 5),
        ("f32[8_]", "malformed arguments: `]` is out of place", 7),
        ("f32[8_dp]", "unknown mesh axis dp", 6),
        ("f32[8_{dp}]", "unknown mesh axis dp", 8),
        ("f32[8_tp,8_tp]", "mesh axis tp is used twice", 10),
        ("f32[6_fsdp]", "6 elements do not divide over fsdp=4", 5),
        ("[f32[2]", "malformed arguments: it ends too early", 8),
        ("{f32[2]}", "malformed arguments: `[` is out of place", 5),
        ("{:3}", "malformed arguments: `:` is out of place", 2),
        ("a=1, 2", "malformed arguments: `2` is out of place", 6),
        ("f32[2] f32[2]", "malformed arguments: `f32` is out of place", 8),
        ("@", "malformed arguments: `@` is out of place", 1),
    ],
)
def test_a_fault_is_named_with_its_column(text: str, what: str, column: int) -> None:
    with pytest.raises(InputError) as caught:
        read(text)

    assert (caught.value.what, caught.value.where) == (what, f"--args, column {column}")


def test_an_endless_text_is_refused() -> None:
    with pytest.raises(InputError, match="arguments too long"):
        read("1," * 20_000)


def test_arrays_and_shapes_of_a_program_are_described() -> None:
    spec = ("fsdp", None, ("tp",))
    laid_out = SimpleNamespace(shape=(8, 3, 2), dtype="bfloat16", sharding=SimpleNamespace(spec=spec))
    plain = SimpleNamespace(shape=(3,), dtype="int32")

    value = described({"a": laid_out, "b": [plain, 2], "c": (None, True)}, mesh=MESH, where="argument 1")

    assert value == {
        "a": AbstractArray(dtype="bfloat16", dims=(8, 3, 2), axes=(("fsdp",), (), ("tp",))),
        "b": [AbstractArray(dtype="int32", dims=(3,)), 2],
        "c": (None, True),
    }


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "a kind of argument that no child process can be told of"),
        (SimpleNamespace(shape=(3,), dtype="float64"), "unknown dtype"),
        (SimpleNamespace(shape=(3,), dtype="int8", sharding=SimpleNamespace(spec=("tp",))), "3 elements do not divide"),
    ],
)
def test_what_cannot_be_described_is_refused(value: object, what: str) -> None:
    with pytest.raises(InputError, match=what):
        described(value, mesh=MESH, where="argument 1")
