"""A program compiled for TPUs, laid beside the equation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.report.beside_equation import host_json, host_pieces
from ridgeline.report.blocks import Report
from ridgeline.report.compiled_job import compiled_job_json, compiled_job_report
from ridgeline.report.terminal import screen
from ridgeline.study.beside_equation import HostMemory
from ridgeline.study.compile_job import compile_job
from tests.compiler.jobs import tiny_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.study.compile_job import CompileAnswer


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileAnswer]:
    pytest.importorskip("libtpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield compile_job(tiny_job(plan__mesh={"fsdp": 4}), compiler="tpu", program="ours")


def test_a_program_executes_the_flops_of_the_equation_part_by_part(answer: CompileAnswer) -> None:
    for row in answer.beside.parts:
        assert row.flops == pytest.approx(row.predicted_flops or 0.0, rel=0.02), row.place
    assert answer.beside.recomputed_share == pytest.approx(answer.beside.predicted_recomputed_share, rel=0.02)
    assert answer.beside.recomputed_share > 0


def test_each_collective_that_differs_has_its_reason(answer: CompileAnswer) -> None:
    rows = answer.beside.collectives
    assert rows
    assert [row for row in rows if row.reason == "unexplained"] == []
    agreeing = {row.part for row in rows if not row.reason}
    assert {"layer/mlp/gate", "layer/mlp/up", "layer/mlp/down", "layer/attention/query"} <= agreeing


def test_the_answer_says_the_same_on_the_screen_and_in_json(answer: CompileAnswer) -> None:
    found, text = compiled_job_json(answer), screen(compiled_job_report(answer))

    collectives, memory = found["collectives"], found["memory"]
    assert isinstance(collectives, list)
    assert isinstance(memory, dict)
    assert all(isinstance(row, dict) and "predicted_bytes" in row for row in collectives)
    assert found["predicted_flops"] == answer.predicted_flops
    assert "collectives that differ from the equation's (each explained)" in text
    assert "largest values at the peak" in text
    largest = memory["largest"]
    assert isinstance(largest, list)
    assert [row["what"] for row in largest if isinstance(row, dict)] == [
        value.what for value in answer.compilation.outcome.largest
    ]
    assert found["derivations"]


HOST = HostMemory(device_bytes=50e9, num_devices=8, ram_bytes=512e9, predicted_bytes=390e9)


@pytest.mark.parametrize(
    ("host", "total_bytes", "exceeds", "words"),
    [
        (HOST, 400e9, False, "8 devices of a host keep 373 GiB of 477 GiB in its memory together (46.6 GiB a device;"),
        (HOST, 400e9, False, "(46.6 GiB a device; 363 GiB by the equation)."),
        (replace(HOST, ram_bytes=384e9), 400e9, True, "more than it has; the compiler looks at one device alone"),
        (replace(HOST, device_bytes=None), 390e9, False, "(by the equation)"),
        (replace(HOST, ram_bytes=None), 400e9, False, "keep 373 GiB in its memory"),
    ],
)
def test_the_devices_of_a_host_share_its_memory(
    host: HostMemory, total_bytes: float, exceeds: object, words: str
) -> None:
    text = " ".join(screen(Report(headline="", pieces=tuple(host_pieces(host)))).split())

    assert (host.total_bytes, host.exceeds) == (total_bytes, exceeds)
    assert words in text
    assert host_json(host)["bytes_per_host"] == total_bytes


def test_a_host_in_which_nothing_is_kept_is_not_mentioned() -> None:
    assert not list(host_pieces(replace(HOST, device_bytes=0.0, predicted_bytes=0.0)))


def test_a_host_in_which_the_program_keeps_nothing_of_what_the_equation_expects_is_shown() -> None:
    text = screen(Report(headline="", pieces=tuple(host_pieces(replace(HOST, device_bytes=0.0)))))

    assert "(0 B a device; 363 GiB by the equation)" in " ".join(text.split())
