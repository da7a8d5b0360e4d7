"""HLO text becomes a module, or an error that says the line."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import InputError
from ridgeline.hlo import text as hlo_text
from ridgeline.hlo.module import SPARSE_CORE_THREAD
from ridgeline.hlo.shape import parse_shape
from ridgeline.hlo.text import parse_hlo, read_hlo
from tests.hlo.programs import TPU7X, V5P, compiled, entry, module

if TYPE_CHECKING:
    from pathlib import Path


def test_a_scheduled_module_is_read_whole() -> None:
    found = compiled(TPU7X)

    assert (found.name, found.entry, found.num_devices, found.is_scheduled) == ("jit_f", "main.5_spmd", 128, True)
    # `grep -cE '^  (ROOT )?%'` of the file
    assert found.num_instructions == 366
    assert found.computations["called_computation.7"].thread == SPARSE_CORE_THREAD


def test_an_element_of_a_tuple_may_be_named_by_its_number() -> None:
    found = entry(
        '  %pair = (f32[], s32[2]) custom-call(), custom_call_target="x"\n  ROOT %y = s32[2] add(%pair#1, %pair#1)'
    ).entry_computation

    element = found.operand(found.instructions["y"], 0)
    assert element is not None
    assert (element.opcode, element.operands, element.attributes["index"]) == ("get-tuple-element", ("pair",), "1")
    assert str(element.shape) == "s32[2]"


def test_an_element_that_a_tuple_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="pair has 1 elements"):
        entry('  %pair = (f32[]) custom-call(), custom_call_target="x"\n  ROOT %y = f32[] add(%pair#1, %pair#1)')


def test_an_instruction_keeps_its_operands_attributes_and_scope() -> None:
    gather = compiled(V5P).computations["wide.region_0.1_spmd.sunk"].instructions["all-gather.11"]

    assert str(gather.shape) == "bf16[1,2048,8192]"
    assert gather.operands == ("dynamic-slice_convert_fusion.4",)
    assert gather.attributes["replica_groups"] == "mesh['axis_0'=64] {'axis_0'}"
    assert gather.attributes["dimensions"] == "{1}"
    assert gather.op_name == "jit(f)/jvp()/while/body/eval_jaxpr/convert_element_type"
    assert "3DAllGatherNonMajorDim" in gather.backend_config


def test_operands_are_found_with_shapes_before_them_and_without_signs() -> None:
    long = entry("  %x = f32[2]{0} parameter(0)\n  ROOT %y = f32[2]{0} add(f32[2]{0} %x, f32[2]{0} %x)")
    short = entry("  x = f32[2]{0} parameter(0)\n  ROOT y = f32[2]{0} add(f32[2]{0} x, x)")

    assert long.entry_computation.instructions["y"].operands == ("x", "x")
    assert short.entry_computation.instructions["y"].operands == ("x", "x")


def test_brackets_inside_strings_do_not_count() -> None:
    found = entry('  ROOT %x = f32[] custom-call(), custom_call_target="a(}\\"{", backend_config={"a":"]"}')

    attributes = found.entry_computation.instructions["x"].attributes
    assert attributes == {"custom_call_target": '"a(}\\"{"', "backend_config": '{"a":"]"}'}


def test_an_instruction_goes_on_while_its_brackets_are_open() -> None:
    # As compiled programs with Pallas kernels write it.
    found = entry(
        "  %x = f32[] parameter(0)\n"
        '  %k = f32[] custom-call(%x), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={\n'
        '"xprof_metadata":"{\\"block_q\\": 512}"\n'
        '}}, metadata={op_name="jit(f)/layer/attention/scores/pallas_call"}\n'
        "  ROOT %y = f32[] negate(%k)"
    )

    kernel, after = (found.entry_computation.instructions[name] for name in ("k", "y"))
    assert kernel.op_name == "jit(f)/layer/attention/scores/pallas_call"
    assert "block_q" in kernel.attributes["frontend_attributes"]
    assert (kernel.line, after.line) == (5, 8)


def test_quotes_in_a_scope_are_read_as_jax_wrote_them() -> None:
    found = entry("""  ROOT %x = f32[2] parameter(0), metadata={op_name="weights[\\'up\\']"}""")

    assert found.entry_computation.instructions["x"].op_name == "weights['up']"


def test_an_attribute_that_nobody_knows_is_kept() -> None:
    found = entry("  ROOT %x = f32[] constant(1), novelty={a={1,2},b}, flag")

    assert found.entry_computation.instructions["x"].attributes == {"novelty": "{a={1,2},b}", "flag": ""}


@pytest.mark.parametrize(
    ("text", "elements_bytes", "memory_bytes", "space"),
    [
        ("f32[4,32,8192]{2,1,0:T(8,128)}", 4 * 32 * 8192 * 4, 4 * 32 * 8192 * 4, 0),
        # 20 rows become 24, 130 columns 256: whole tiles of 8 × 128
        ("bf16[20,130]{1,0:T(8,128)(2,1)S(1)}", 20 * 130 * 2, 24 * 256 * 2, 1),
        # the minor dimension is the first one: 128 of it stay, 3 become 8
        ("f32[128,3]{0,1:T(8,128)}", 128 * 3 * 4, 128 * 8 * 4, 0),
        ("s32[]{:T(128)}", 4, 128 * 4, 0),
        ("f8e4m3fn[16]{0}", 16, 16, 0),
        ("s4[16]{0:E(4)S(5)}", 8, 8, 5),
        ("s4[16]{0}", 16, 16, 0),
        ("pred[7]{0}", 7, 7, 0),
        ("f32[<=8,2]", 64, 64, 0),
        ("token[]", 0, 0, 0),
    ],
)
def test_a_shape_says_its_bytes_padding_and_memory(
    text: str, elements_bytes: float, memory_bytes: float, space: int
) -> None:
    shape = parse_shape(text)

    assert (shape.size_bytes, shape.allocated_bytes, shape.memory_space) == (elements_bytes, memory_bytes, space)


def test_a_dtype_that_nobody_knows_has_an_unknown_size() -> None:
    assert parse_shape("f7x[4]").size_bytes != parse_shape("f7x[4]").size_bytes


@pytest.mark.parametrize(
    ("content", "what", "where"),
    [
        (b"", "nothing in it", ""),
        (b"\n\n", "nothing in it", ""),
        (b"hello\n", "not HLO: it must begin with HloModule", ": line 1"),
        (b"\x80\x03\xff", "not text: a binary file", "--hlo"),
        (b"a\0b", "not text: a binary file", ""),
        (b"HloModule a\n", "no ENTRY computation: the text is cut short", ": line 1"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n", "the text ends inside computation m", ": line 2"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n}\n", "a computation without instructions", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n what\n}\n", "not an instruction", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[] add(%a, \n}\n", "ends inside brackets", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = (f32[], \n}\n", "ends inside a shape", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[]\n}\n", "no operation after the shape", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[q] add()\n}\n", "invalid literal", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[2]{3} add()\n}\n", "does not order", ": line 3"),
        (b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[2]{0:T(0)} add()\n}\n", "empty tile", ": line 3"),
        (
            b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[] parameter()\n}\n",
            "without its number",
            ": line 3",
        ),
        (
            b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = f32[] fusion(), calls=%gone\n}\n",
            "computation gone is missing",
            ": line 3",
        ),
        (
            b"HloModule a\nENTRY %m (x: f32[]) -> f32[] {\n %x = " + b"(" * 2000 + b")" * 2000 + b" tuple()\n}\n",
            "brackets nested too deeply",
            ": line 3",
        ),
        (b"HloModule a\nHloModule b\n", "two modules in one text", ": line 2"),
    ],
)
def test_bad_text_is_refused_with_its_line(content: bytes, what: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_bytes(content)

    with pytest.raises(InputError) as error:
        read_hlo(str(path), where="--hlo")

    assert what in error.value.what
    assert error.value.where.endswith(where)


def test_a_folder_a_missing_file_and_a_huge_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = tmp_path / "huge.hlo"
    huge.write_text("HloModule a\n" * 10)
    monkeypatch.setattr(hlo_text, "LARGEST_FILE_BYTES", 100)

    for path, what in ((tmp_path, "a folder"), (tmp_path / "none.hlo", "No such file"), (huge, "too large: 120 B")):
        with pytest.raises(InputError, match=what):
            read_hlo(str(path), where="--hlo")


def test_a_path_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(InputError, match="cannot read the file"):
        read_hlo("a\0b", where="--hlo")


def test_a_module_cut_short_anywhere_is_refused_or_whole() -> None:
    text = V5P.read_text()

    for end in range(0, len(text) - 3, 997):
        with pytest.raises(InputError):
            parse_hlo(text[:end].splitlines(keepends=True), where="cut.hlo")


@given(st.text(alphabet='%=(){}[],"\\ af32\n', max_size=80))
def test_no_text_ends_in_anything_but_a_module_or_an_input_error(noise: str) -> None:
    with suppress(InputError):
        module(f"HloModule a\nENTRY %m (x: f32[]) -> f32[] {{\n %x = f32[] {noise}\n}}\n")
