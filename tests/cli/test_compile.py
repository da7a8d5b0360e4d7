"""`ridgeline compile --hlo`: what an HLO text says, on screen and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.cli.compile import compile as compile_verb
from ridgeline.errors import InputError
from tests.hlo.programs import TPU7X

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = """HloModule decode, num_partitions=8

%body (s: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %s = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8,8] get-tuple-element(%s), index=1
  %y = f32[8,8] dot(%x, %x), lhs_contracting_dims={1}, metadata={op_name="jit(f)/layer/mlp/up/dot_general"}
  %z = f32[8,8] all-reduce(%y), replica_groups=[4,2]<=[8], metadata={op_name="jit(f)/layer/mlp/up/psum"}
  ROOT %o = (s32[], f32[8,8]) tuple(%i, %z)
}

%condition (s.1: (s32[], f32[8,8])) -> pred[] {
  %s.1 = (s32[], f32[8,8]) parameter(0)
  ROOT %t = pred[] custom-call(%s.1), custom_call_target="Sharding"
}

ENTRY %main (x.1: f32[8,8]) -> f32[8,8] {
  %x.1 = f32[8,8] parameter(0)
  %zero = s32[] constant(0)
  %f = (s32[], f32[8,8]) tuple(%zero, %x.1)
  %while.1 = (s32[], f32[8,8]) while(%f), condition=%condition, body=%body
  %r = f32[8,8] get-tuple-element(%while.1), index=1
  %h = f32[8,8]{1,0:S(5)} copy(%r)
  ROOT %k = f32[8,8] custom-call(%r), custom_call_target="mosaic", backend_config={"estimated_cycles":"NONE"}
}
""".replace("NONE", str(2**63 - 1))  # what the compiler writes where it has no estimate


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    """A program of which much cannot be told."""
    path = tmp_path / "decode.hlo"
    path.write_text(UNKNOWN)
    return str(path)


def asked(capsys: pytest.CaptureFixture[str], path: str, mesh: str | None = None) -> dict[str, object]:
    """The JSON object printed for a file."""
    compile_verb(hlo=path, mesh=mesh, json=True)
    return json.loads(capsys.readouterr().out)


def test_json_has_the_keys_of_the_verb_in_base_units(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, str(TPU7X))

    assert (answer["program"], answer["num_devices"], answer["is_scheduled"]) == ("jit_f", 128, True)
    assert answer["flops"] == 28 * 2 * 2048 * 2048 * 8192  # seven matmuls in each of four layers
    assert answer["memory"]["arguments_bytes"] == 4 * 2 * 2048 * 8192 * 4 / 128 + 2048 * 2048 * 2
    assert answer["memory"]["largest"][0]["size_bytes"] == 2048 * 8192 * 2
    gathers = [each for each in answer["collectives"] if each["kind"] == "all_gather"]
    assert gathers[0] == {
        "part": None,
        "phase": "forward",
        "kind": "all_gather",
        "axis": "axis_0",
        "num_devices": 128,
        "count": 8.0,
        "array_bytes": 2048 * 8192 * 2.0,
        "bytes": 8 * 2048 * 8192 * 2.0,
        "async": True,
        "engine": "sparse_core",
        "name": "all-gather.29",
    }
    assert answer["unknown_trip_counts"] == answer["uncounted"] == answer["notes"] == []


def test_cycles_of_a_loops_operations_count_once_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    heaviest = asked(capsys, str(TPU7X))["heaviest"]

    # "estimated_cycles":"184736" of convolution_add_fusion.2, in a loop of four rounds
    assert (heaviest[0]["name"], heaviest[0]["count"], heaviest[0]["estimated_cycles"]) == (
        "convolution_add_fusion.2",
        4.0,
        4 * 184736,
    )


def test_a_mesh_names_the_axes(capsys: pytest.CaptureFixture[str]) -> None:
    assert {each["axis"] for each in asked(capsys, str(TPU7X), "fsdp=128")["collectives"]} == {"fsdp"}


def test_what_is_unknown_is_null_and_listed(unknown: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, unknown, "fsdp=4,tp_1=2")

    assert answer["flops"] is answer["counted_flops"] is None
    assert [loop["name"] for loop in answer["unknown_trip_counts"]] == ["while.1"]
    assert [(each["target"], each["reason"]) for each in answer["uncounted"]] == [("mosaic", "no rule")]
    (reduced,) = answer["collectives"]
    assert (reduced["axis"], reduced["count"], reduced["bytes"], reduced["array_bytes"]) == ("tp_1", None, None, 256)
    assert answer["num_without_cycles"] == 1
    assert answer["host_transfers"][0]["direction"] == "to_host"


def test_the_screen_begins_with_what_is_unknown(unknown: str, capsys: pytest.CaptureFixture[str]) -> None:
    compile_verb(hlo=unknown)

    screen = " ".join(capsys.readouterr().out.split())
    assert screen.startswith("decode · 8 devices · 15 instructions not known while.1 (line 21): how often it runs")
    assert "mosaic (k, ×1, no scope): no rule for its FLOPs" in screen
    assert "1 operation: the compiler has no estimate of cycles" in screen
    assert "The text is not scheduled" in screen
    assert "FLOPs unknown" in screen
    assert "all-reduce – 2 unknown 256 B unknown waits" in screen


def test_the_screen_shows_collectives_parts_and_the_largest_values(capsys: pytest.CaptureFixture[str]) -> None:
    compile_verb(hlo=str(TPU7X))

    screen = " ".join(capsys.readouterr().out.split())
    assert screen.startswith("jit_f · 128 devices · 366 instructions one device, one run of the program")
    assert "all-gather axis_0 128 8 33.6 MB 268 MB async SparseCore forward" in screen
    assert "reduce-scatter axis_0 128 8 33.6 MB 268 MB async SparseCore backward" in screen
    assert "bf16[4,2048,2048] 32.0 MiB" in screen
    assert "not known" not in screen


def test_nothing_to_read_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to read"):
        compile_verb()


@pytest.mark.parametrize("mesh", ["fsdp", "fsdp=0", "fsdp=x", "fsdp=2,fsdp=2", ""])
def test_a_malformed_mesh_is_refused(mesh: str) -> None:
    with pytest.raises(InputError) as error:
        compile_verb(hlo=str(TPU7X), mesh=mesh)

    assert error.value.where.startswith("--mesh")


def test_a_file_that_is_no_hlo_ends_with_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.hlo"
    path.write_text("module @jit_f attributes {}\n")

    assert main(["compile", "--hlo", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: not HLO: it must begin with HloModule")
