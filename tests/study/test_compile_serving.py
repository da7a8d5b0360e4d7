"""A serving job asked of the equation and of the TPU compiler: prefill and decode of a tiny model on four chips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ridgeline
from ridgeline.cli.app import main
from ridgeline.errors import InputError
from ridgeline.job.origin import settings
from ridgeline.job.reading import read_serving_job
from ridgeline.report.compiled_serving import compiled_serving_json, compiled_serving_report
from ridgeline.report.terminal import screen
from ridgeline.search.serve import serve
from ridgeline.study.compile_serving import compile_serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytest.importorskip("jax")
pytest.importorskip("libtpu")

TINY = """
version = 1
hardware = "v5e:2x2"
workload = { kind = "serve", prompt_len = 256, generate_len = 256, batch = 16 }

[model]
name = "tiny"
embed_dim = 256
vocab_size = 1024
num_layers = 4
attention = { num_heads = 8, num_kv_heads = 2, head_dim = 128 }
mlp = { mlp_dim = 512 }

[plan]
prefill = { tp = 4 }
decode = { dp = 2, tp = 2 }
"""
LAYERS, CONTEXT, KV_HEADS, WIDTH = 4, 512, 2, 128
TOKEN_BYTES = 2 * KV_HEADS * WIDTH * 2
"""Of a key and a value of each head in bf16."""


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIDGELINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "serve.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answer(own_cache: None, file: Path) -> dict[str, Any]:
    del own_cache
    return compiled_serving_json(compile_serving(read_serving_job(str(file))))


def test_a_step_of_decoding_updates_its_cache_in_place(answer: dict[str, Any]) -> None:
    memory = answer["decode"]["memory"]
    # 8 of 16 sequences and one of two heads a device.
    cache_bytes = LAYERS * 8 * CONTEXT * TOKEN_BYTES / 2

    assert memory["aliased_bytes"] == cache_bytes
    assert memory["temporaries_bytes"] < 0.1 * cache_bytes


def test_devices_beyond_the_key_value_heads_hold_copies_of_them(answer: dict[str, Any]) -> None:
    prefill = answer["prefill"]
    # One prompt; each of two heads lies on two of four devices.
    cache_bytes = LAYERS * CONTEXT * TOKEN_BYTES / 2

    assert prefill["memory"]["predicted_parts"]["kv_cache_bytes"] == cache_bytes
    assert cache_bytes < prefill["memory"]["outputs_bytes"] < 1.01 * cache_bytes


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_memory_and_flops_of_both_phases_are_those_of_the_equation(answer: dict[str, Any], phase: str) -> None:
    found = answer[phase]
    memory, parts = found["memory"], found["memory"]["predicted_parts"]

    assert (memory["verdict"], found["refusal"]) == ("fits", None)
    assert memory["predicted_bytes"] == pytest.approx(memory["peak_bytes"], rel=0.1)
    given_bytes = parts["weights_bytes"] + (parts["kv_cache_bytes"] if phase == "decode" else 0)
    assert memory["arguments_bytes"] == pytest.approx(given_bytes, rel=0.01)  # with tokens, padded to tiles
    assert found["flops"] == pytest.approx(found["predicted_flops"], rel=0.001)


def test_each_phase_has_the_collectives_of_its_own_mesh(answer: dict[str, Any]) -> None:
    axes = {phase: {each["axis"] for each in answer[phase]["collectives"]} for phase in ("prefill", "decode")}

    assert axes == {"prefill": {"tp+kv_copy"}, "decode": {"tp"}}


def test_a_spread_cache_has_no_copies_and_sends_queries_and_outputs(own_cache: None, file: Path) -> None:
    del own_cache
    text = file.read_text(encoding="utf-8").replace(
        "decode = { dp = 2, tp = 2 }", 'decode = { tp = 4 }\ncache = "spread"'
    )
    spread_file = file.with_name("spread.toml")
    spread_file.write_text(text, encoding="utf-8")

    found = compiled_serving_json(compile_serving(read_serving_job(str(spread_file))))["decode"]

    # 8 of 16 sequences and one of two heads a device, as two devices for each head share its sequences out.
    assert found["memory"]["aliased_bytes"] == LAYERS * 8 * CONTEXT * TOKEN_BYTES / 2
    assert found["memory"]["predicted_parts"]["kv_cache_bytes"] == found["memory"]["aliased_bytes"]
    sent = [each for each in found["collectives"] if each["kind"] == "all_to_all"]
    assert {each["axis"] for each in sent} == {"kv_copy"}
    assert sum(each["count"] for each in sent) == 2 * LAYERS  # queries there, and what comes of them back


def test_the_json_answer_has_a_part_for_each_phase(answer: dict[str, Any]) -> None:
    keys = {"memory", "collectives", "flops", "predicted_flops", "heaviest", "compile_s", "cached"}

    assert {"job", "hardware", "program", "versions", "compile_s", "cached", "prefill", "decode"} <= set(answer)
    assert keys <= set(answer["prefill"])
    assert keys <= set(answer["decode"])


def test_the_command_answers_again_from_the_cache_with_a_section_for_each_phase(
    answer: dict[str, Any], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del answer
    code = main(["compile", str(file)])
    shown = capsys.readouterr().out

    assert code == 0
    assert "2 copies of each key-value head" in shown
    assert shown.count("compiled before") == 2
    assert shown.index("Prefill") < shown.index("Decode")


def test_on_emulated_devices_what_is_left_open_is_the_plan_of_serve(file: Path) -> None:
    text = file.read_text(encoding="utf-8").split("[plan]")[0]
    open_file = file.with_name("open.toml")
    open_file.write_text(text, encoding="utf-8")
    job = read_serving_job(str(open_file))

    found = compile_serving(job, compiler="cpu")

    best = serve(job).best.plan
    assert (found.job.plan.decode, found.job.plan.prefill) == (best.decode, best.prefill)
    assert found.decode.summary is not None
    assert "Decode" in screen(compiled_serving_report(found))


def test_a_batch_that_is_left_open_is_as_large_as_serve_takes_it(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace(", batch = 16", "")
    open_file = file.with_name("batch.toml")
    open_file.write_text(text, encoding="utf-8")
    job = read_serving_job(str(open_file))

    found = compile_serving(job, compiler="cpu")

    assert found.job.workload.batch == serve(job).best.plan.batch
    assert found.decode.program.global_batch == found.job.workload.batch


def test_a_whole_job_takes_no_further_arguments(file: Path) -> None:
    with pytest.raises(ridgeline.InputError, match="a whole job takes no further arguments"):
        ridgeline.compile_serving(read_serving_job(str(file)), batch=4)


def test_maxtext_has_no_program_for_serving(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["compile", str(file), "--program", "maxtext"])

    assert code == 2
    assert "MaxText's program is a training step" in capsys.readouterr().err


def test_a_training_verb_says_that_the_job_is_one_of_serving(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["train", str(file)])

    assert code == 2
    assert "a serving job, where one of training is asked for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "flags", "what"),
    [
        ("llama3.1-8b", {"weights_dtype": "int8"}, "our program has no narrow weights in serving yet"),
        ("llama3.1-8b", {"prefill_mesh": "fsdp=8"}, "our program has no fsdp axis in prefill yet"),
    ],
)
def test_a_part_that_serving_lacks_is_named(model: str, flags: dict[str, str], what: str) -> None:
    said = {"on": "v5e:2x4", "prompt_len": 64, "generate_len": 64, "batch": 8, **flags}
    job = read_serving_job(model, settings(said, written=str))

    with pytest.raises(InputError) as caught:
        compile_serving(job, compiler="cpu")

    assert caught.value.what == what
