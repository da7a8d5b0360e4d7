"""A job asked of the equation and of the compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.compiler import compilation
from ridgeline.compiler.cache import Entry
from ridgeline.compiler.outcome import CompiledMemory, Outcome, OutOfMemory
from ridgeline.errors import InputError
from ridgeline.hlo.peak import LiveValue
from ridgeline.report.compiled_job import compiled_job_json, compiled_job_report
from ridgeline.report.terminal import screen
from ridgeline.study.compile_job import CompileAnswer, compile_job
from ridgeline.study.compiled_program import Asked, readable_program
from tests.compiler.jobs import TINY, tiny_job

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("jax")

SCORES = "layer/attention/scores"
"""XLA for CPUs drops the scopes of batched matmuls."""


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def answer(own_cache: None) -> CompileAnswer:
    del own_cache
    return compile_job(tiny_job(), compiler="cpu")


def test_the_compiled_program_does_the_flops_of_the_equation(answer: CompileAnswer) -> None:
    assert answer.summary is not None
    # Plain attention computes every score, also those that the causal mask then hides; so does the equation here.
    assert answer.summary.flops == pytest.approx(answer.predicted_flops, rel=1e-9)
    of_weights = [row for row in answer.beside.parts if row.predicted_flops and row.place.part != SCORES]
    assert {row.place.phase for row in of_weights} == {"forward", "recompute", "backward"}
    for row in of_weights:
        assert row.flops == pytest.approx(row.predicted_flops, rel=1e-9), row.place


def test_parts_of_the_compiled_program_are_those_of_the_model(answer: CompileAnswer) -> None:
    assert answer.summary is not None
    places = {(part.place.part, part.place.phase) for part in answer.summary.parts}

    assert {
        ("layer/attention/query", "forward"),
        ("layer/attention/query", "backward"),
        ("layer/mlp/down", "forward"),
        ("layer/mlp/up", "recompute"),
        ("head/logits", "backward"),
    } <= places


def collectives_of(answer: CompileAnswer, part: str) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Runs and bytes by kind, axis and phase."""
    assert answer.summary is not None
    totals: dict[tuple[str, str, str], tuple[float, float]] = {}
    for placed in answer.summary.collectives:
        if placed.place.part.partition("/")[0] == part:
            key = placed.collective.kind, placed.collective.axis, placed.place.phase
            runs, size_bytes = totals.get(key, (0.0, 0.0))
            found = placed.collective
            totals[key] = runs + found.count, size_bytes + found.count * found.array_bytes
    return totals


# XLA for CPUs moves everything in f32, and writes each reduce-scatter as an all-reduce of the whole array.
F32, LAYERS, EMBED, VOCAB = 4, 2, 256, 1024
STREAM = (4 // 2) * 256 * EMBED * F32  # a device's 2 of 4 sequences of 256 tokens, gathered along tp
MATRICES = EMBED * (4 + 2 + 2 + 4) * 128 + 3 * EMBED * 512  # query, key, value, out; gate, up, down
GATHERED = MATRICES // 2 * F32  # still split by tp
SCALES = 2 * EMBED * F32  # the norms of a layer


def test_a_layer_gathers_each_weight_twice_and_the_stream_around_each_block_and_nothing_else(
    answer: CompileAnswer,
) -> None:
    found = collectives_of(answer, "layer")

    assert {key: moved for key, moved in found.items() if key[0] != "all_reduce"} == {
        ("all_gather", "fsdp", "forward"): (LAYERS * 7, LAYERS * GATHERED),
        ("all_gather", "fsdp", "recompute"): (LAYERS * 7, LAYERS * GATHERED),
        # The inputs of attention and MLP; both again; the gradients of both outputs.
        ("all_gather", "tp", "forward"): (LAYERS * 2, LAYERS * 2 * STREAM),
        ("all_gather", "tp", "recompute"): (LAYERS * 2, LAYERS * 2 * STREAM),
        ("all_gather", "tp", "backward"): (LAYERS * 2, LAYERS * 2 * STREAM),
    }


def test_a_layer_sums_each_gradient_once_and_each_partial_product(answer: CompileAnswer) -> None:
    found = collectives_of(answer, "layer")

    # XLA joins several sums in one, so only bytes are told. Along tp: both outputs; attention's again, for the MLP's
    # is read by nobody; the inputs' gradients from query, key, value and from gate, up; norms of a split sequence.
    assert {key: moved for key, (_, moved) in found.items() if key[0] != "all_gather"} == {
        ("all_reduce", "fsdp", "backward"): LAYERS * (GATHERED + SCALES),
        ("all_reduce", "tp", "forward"): LAYERS * 2 * STREAM,
        ("all_reduce", "tp", "recompute"): LAYERS * STREAM,
        ("all_reduce", "tp", "backward"): LAYERS * ((3 + 2) * STREAM + SCALES),
    }


def test_the_head_gathers_its_table_and_its_input_once(answer: CompileAnswer) -> None:
    found = collectives_of(answer, "head")

    assert {key: moved for key, moved in found.items() if key[0] != "all_reduce"} == {
        ("all_gather", "fsdp", ""): (1, EMBED * VOCAB // 2 * F32),
        ("all_gather", "tp", "forward"): (1, STREAM),
    }


def test_the_same_question_is_answered_from_the_cache(answer: CompileAnswer) -> None:
    again = compile_job(tiny_job(), compiler="cpu")

    assert (again.compilation.is_cached, again.peak_bytes) == (True, answer.peak_bytes)


def test_what_a_job_leaves_open_is_chosen_among_the_axes_that_the_program_knows() -> None:
    job = tiny_job(plan__mesh={})
    open_job = replace(job, plan=replace(job.plan, remat=None))

    found = compile_job(open_job, compiler="cpu").job

    assert found.plan.remat is not None
    assert set(found.plan.mesh) <= {"dp", "fsdp", "tp"}


def test_a_model_that_the_program_lacks_is_refused_before_a_plan_is_searched() -> None:
    later = {"num_heads": 2, "num_kv_heads": 2, "head_dim": 32, "span": {"kind": "full"}}
    model = {"name": "tiny", "embed_dim": 64, "vocab_size": 128, "num_layers": 2, "mlp": {"mlp_dim": 64}}

    with pytest.raises(InputError, match="our program has no attention to later tokens yet"):
        compile_job(tiny_job(model={**model, "attention": later}), compiler="cpu")


def test_tiles_of_a_kernel_are_refused_before_the_compiler_starts_and_only_where_it_runs() -> None:
    job = tiny_job(plan__attention={"block_q": 100})

    with pytest.raises(InputError, match="no tiles of so many queries"):
        readable_program(job, Asked(program="ours", compiler="tpu"))
    assert not readable_program(job, Asked(program="ours", compiler="cpu")).rules


def test_the_json_answer_keeps_the_keys_it_promises(answer: CompileAnswer) -> None:
    found = compiled_job_json(answer)

    assert set(found) >= {
        "job",
        "hardware",
        "program",
        "versions",
        "compile_s",
        "cached",
        "memory",
        "collectives",
        "flops",
        "predicted_flops",
        "heaviest",
    }  # fmt: skip - a list of words
    memory = found["memory"]
    assert isinstance(memory, dict)
    assert set(memory) >= {
        "peak_bytes",
        "arguments_bytes",
        "temporaries_bytes",
        "host_bytes",
        "usable_bytes",
        "verdict",
        "predicted_bytes",
        "largest",
    }  # fmt: skip - a list of words
    assert (found["program"], found["hardware"], memory["verdict"]) == ("ours", "v5e:2x2", "fits")
    assert memory["predicted_bytes"] == answer.estimate.memory.total_bytes


def test_a_program_that_the_compiler_refuses_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = OutOfMemory(needed_bytes=64e9, available_bytes=16e9, where="hbm")
    outcome = Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, refusal=refusal)
    monkeypatch.setattr(compilation, "load", lambda _: Entry(outcome=outcome, hlo=None))

    refused = compile_job(tiny_job(), compiler="cpu")
    text = screen(compiled_job_report(refused))
    code = main(["compile", "llama3.1-8b", "--on=v5e:4x4", "--seq-len=2048", "--compiler=cpu", "--json"])

    assert refused.verdict == "does_not_fit"
    assert "The compiler refused: 59.6 GiB needed, 14.9 GiB there, in the chip's memory." in text
    found = json.loads(capsys.readouterr().out)
    assert (code, found["memory"]["verdict"], found["memory"]["peak_bytes"]) == (1, "does_not_fit", 64e9)
    assert (found["collectives"], found["memory"]["largest"], found["flops"]) == ([], [], None)


@pytest.mark.parametrize(("compiled_mib", "is_why"), [(180, True), (330, False), (100, False)])
def test_the_equation_needs_more_because_of_the_logits_gradient_where_that_accounts_for_it(
    monkeypatch: pytest.MonkeyPatch, compiled_mib: int, is_why: object
) -> None:
    pytest.importorskip("libtpu")
    memory = CompiledMemory(
        arguments_bytes=2.0**20,
        outputs_bytes=0.0,
        aliased_bytes=0.0,
        temporaries_bytes=0.0,
        code_bytes=0.0,
        host_bytes=0.0,
        peak_bytes=compiled_mib * 2.0**20,
    )
    outcome = Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, memory=memory)
    monkeypatch.setattr(compilation, "load", lambda _: Entry(outcome=outcome, hlo=None))
    job = tiny_job(model={**TINY, "vocab_size": 32768}, plan__mesh={"fsdp": 4}, workload__seq_len=2048)

    answer = compile_job(job, compiler="tpu", program="ours")
    text = " ".join(screen(compiled_job_report(answer)).split())

    # One sequence of 2,048 tokens a device, 32,768 logits of two bytes for each; about 329 MiB by the equation.
    assert answer.logits_gradient_bytes == (2048 * 32768 * 2 if is_why else 0)
    assert ("the logits' gradient (128 MiB) beside the logits" in text) == is_why


def test_the_pipeline_that_was_chosen_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = OutOfMemory(needed_bytes=64e9, available_bytes=16e9, where="hbm")
    outcome = Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, refusal=refusal)
    monkeypatch.setattr(compilation, "load", lambda _: Entry(outcome=outcome, hlo=None))

    def shown(num_layers: int) -> str:
        job = tiny_job(
            model={**TINY, "num_layers": num_layers},
            plan__mesh={"fsdp": 2, "pp": 2},
            plan__pipeline={"microbatches": 2, "repeats": num_layers // 2},
        )
        return screen(compiled_job_report(compile_job(job, compiler="cpu")))

    assert "2 microbatches\n" in shown(2)
    assert "2 microbatches, 2 circular repeats\n" in shown(4)


def test_a_refusal_for_the_hosts_memory_is_met_with_what_all_devices_of_a_host_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = OutOfMemory(needed_bytes=2e12, available_bytes=2.0**37, where="host")
    largest = LiveValue(name="x.1", size_bytes=2e12, shape="bf16[8]", part="layer/mlp/up", phase="", role="kept")
    outcome = Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, refusal=refusal, largest=(largest,))
    monkeypatch.setattr(compilation, "load", lambda _: Entry(outcome=outcome, hlo=None))
    offload = {"policy": "custom", "mlpwi_0": "offload"}
    job = tiny_job(
        plan__remat=offload,
        plan__gradient_accumulation=1,
        plan__optimizer={"state": "device"},
        workload__global_batch=4096,
        workload__seq_len=8192,
    )

    answer = compile_job(job, compiler="cpu")
    text = screen(compiled_job_report(answer))

    # 4,096 sequences of 8,192 tokens over 2 layers, 512 elements of two bytes each; four devices in one host.
    assert answer.beside.host.total_bytes == 4096 * 8192 * 2 * 512 * 2
    assert "4 devices of a host keep 64.0 GiB of 358 GiB in its memory together (by the equation)." in text
    assert "layer/mlp/up, kept for the backward pass" in text


def test_where_the_equations_numbers_come_from_is_shown_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = OutOfMemory(needed_bytes=64e9, available_bytes=16e9, where="hbm")
    outcome = Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, refusal=refusal)
    monkeypatch.setattr(compilation, "load", lambda _: Entry(outcome=outcome, hlo=None))

    main(["compile", "llama3.1-8b", "--on=v5e:4x4", "--seq-len=2048", "--compiler=cpu", "--explain"])

    shown = capsys.readouterr().out
    assert "Where the numbers come from" in shown
    assert "Weights on a device" in shown
