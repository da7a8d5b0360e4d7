"""Flags judged by the compiler that is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ridgeline.cli.app import main
from ridgeline.compiler import flags as flags_module
from ridgeline.compiler.compilable import Ended
from ridgeline.compiler.flag_child import _finding, _retyped
from ridgeline.compiler.flag_errand import Findings, findings_json, read_findings, read_flag_errand
from ridgeline.compiler.flags import FlagsAnswer, JudgedFlag, judge_flags
from ridgeline.export.communication_flags import communication_flags
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.flag_string import read_flags
from ridgeline.report.flags import flags_report
from ridgeline.report.terminal import screen

EVERY_VERDICT = (
    "LIBTPU_INIT_ARGS='--xla_tpu_scoped_vmem_limit_kib=98304 --xla_tpu_enable_asinc_collective_fusion=true "
    "--xla_tpu_bf16_emission_mode=FASTER --megascale_grpc_premap_memory_bytes=17179869184 --megascale_chunk_size=four "
    "--xla_dump_to=/tmp/dump --xla_enable_async_all_gather=true "
    "--xla_tpu_enable_async_collective_fusion_fuse_all_gather=true'"
)


def test_every_verdict_is_the_compilers(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("libtpu")

    code = main(["compile", "--lint-flags", EVERY_VERDICT, "--on=v5p", "--json"])

    found = json.loads(capsys.readouterr().out)
    assert (code, found["hardware"], found["num_refused"]) == (1, "v5p:2x2x1", 6)
    assert {flag["name"]: flag["verdict"] for flag in found["flags"]} == {
        "xla_tpu_scoped_vmem_limit_kib": "accepted",
        "xla_tpu_enable_asinc_collective_fusion": "unknown",
        "xla_tpu_bf16_emission_mode": "bad_value",
        "megascale_grpc_premap_memory_bytes": "not_checked",
        "megascale_chunk_size": "bad_value",
        "xla_dump_to": "unknown",
        # Accepted one by one, but together meant for v5e alone.
        "xla_enable_async_all_gather": "not_for_chip",
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather": "not_for_chip",
    }
    by_name = {flag["name"]: flag for flag in found["flags"]}
    suggestion = by_name["xla_tpu_enable_asinc_collective_fusion"]["suggestion"]
    assert suggestion == "did you mean xla_tpu_enable_async_collective_fusion?"
    assert "NATIVE_EMISSION" in by_name["xla_tpu_bf16_emission_mode"]["reason"]
    assert by_name["xla_dump_to"]["reason"] == "LIBTPU_INIT_ARGS does not take it: it belongs in XLA_FLAGS"


@pytest.mark.parametrize(
    ("message", "finding"),
    [
        ("INVALID_ARGUMENT: No such compile option: 'xla_tpu_bogus'", ("no_option", "")),
        ("INVALID_ARGUMENT: Failed to parse 'lots' into flag xla_a: ", ("bad_value", "")),
        ("INVALID_ARGUMENT: Failed to parse 'x' into flag xla_a: Valid: a, b.", ("bad_value", "Valid: a, b.")),
        ("FAILED_PRECONDITION: Not on platforms like v5p", ("not_for_chip", "Not on platforms like v5p")),
        ("RESOURCE_EXHAUSTED: E1001: Ran out of\nvmem", ("bad_value", "Ran out of vmem")),
    ],
)
def test_a_refusal_is_read_from_the_compilers_message(message: str, finding: tuple[str, str]) -> None:
    assert _finding(message) == finding


def test_an_option_that_takes_no_text_is_given_its_own_type() -> None:
    message = "INVALID_ARGUMENT: While setting option xla_a, '1' is not a valid {} value."

    assert _retyped("xla_a", "true", message.format("bool")) is True
    assert _retyped("xla_a", "12", message.format("int32")) == 12
    assert _retyped("xla_a", "maybe", message.format("bool")) == "maybe"
    assert _retyped("xla_b", "1", message.format("bool")) == "1"


def test_a_flag_that_crashes_the_compiler_is_named_and_the_others_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(folder: object, limits: object, *words: str, **_: object) -> Ended:
        del folder, limits
        errand = read_flag_errand(Path(words[0]).read_text(encoding="utf-8"))
        crashes = "xla_b" in errand.flags
        Path(errand.phase).write_text("xla_b" if crashes else "all together", encoding="utf-8")
        found = Findings(found=dict.fromkeys(errand.flags, ("accepted", "")), defaults={})
        Path(errand.findings).write_text(findings_json(found), encoding="utf-8")
        return Ended(code=-6 if crashes else 0, said="", elapsed_s=1.0, resident_bytes=1.0)

    monkeypatch.setattr(flags_module, "check_installed", lambda _: None)
    monkeypatch.setattr(flags_module, "_run", run)

    answer = judge_flags(read_flags("--xla_a --xla_b --xla_c", where="-"), parse_slice("v5e:2x2"))

    assert [judged.verdict for judged in answer.flags] == ["accepted", "bad_value", "accepted"]
    assert answer.flags[1].reason == "the compiler crashes when it compiles with it"


def test_findings_read_back_as_they_were_written() -> None:
    findings = Findings(found={"xla_a": ("bad_value", "why")}, defaults={"xla_a": "1"})

    assert read_findings(findings_json(findings)) == findings


def test_the_screen_says_why() -> None:
    written = read_flags("--xla_foo --xla_a=2 --xla_a=1", where="-")
    judged = (
        JudgedFlag(flag=written[0], verdict="unknown", reason="", default=None),
        JudgedFlag(flag=written[1], verdict="accepted", reason="", default="0"),
    )

    said = screen(flags_report(FlagsAnswer(hardware=parse_slice("v5e:2x2"), versions={"libtpu": "1"}, flags=judged)))

    assert "2 flags for v5e:2x2: 1 refused, by libtpu 1" in said
    assert "xla_foo: libtpu knows no such flag; none is spelt alike." in said
    assert "xla_a: written 2 times; the last counts." in said


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--lint-flags=--xla_a"], "flags are judged for a chip"),
        (["--lint-flags=--xla_a", "--on=h100"], "flags are judged by the compiler for TPUs"),
        (["--lint-flags=--xla_a", "--on=h100:8"], "flags are judged by the compiler for TPUs"),
        (["--lint-flags=--xla_a", "--on=v5p", "--layers=2"], "--lint-flags has no --layers"),
        (["--lint-flags=", "--on=v5p"], "no flags"),
        (["llama3.1-8b", "--lint-flags=--xla_a", "--on=v5p"], "either a job, an HLO text or flags"),
    ],
)
def test_bad_input_is_met_with_one_clear_message(
    capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    pytest.importorskip("libtpu")

    assert main(["compile", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {what}\n")


@pytest.mark.parametrize(("chip", "engine"), [("v5p", "continuation_fusion"), ("tpu7x", "sparse_core")])
def test_the_compiler_takes_the_flags_that_follow_from_a_plans_collectives(
    chip: str, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("libtpu")
    kinds = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
    advice = communication_flags(
        chip=chip,
        carried={kind: {engine, "tensor_core"} for kind in kinds},
        traits=frozenset({"several_axes", "slices", "host"}),
    )

    main(["compile", "--lint-flags", " ".join(each.flag.written for each in advice), f"--on={chip}", "--json"])

    verdicts = {flag["name"]: flag["verdict"] for flag in json.loads(capsys.readouterr().out)["flags"]}
    # Judged alone, the layer scheduler lacks the aggregator that is set beside it.
    verdicts.pop("xla_tpu_enable_latency_hiding_layer_scheduler", None)
    refused = {name for name, verdict in verdicts.items() if verdict not in {"accepted", "not_checked"}}
    assert len(verdicts) > 10
    assert refused == {each.flag.name for each in advice if "libtpu" in each.trouble} | (
        {"xla_enable_async_all_gather"} if chip == "v5p" else set()
    )
