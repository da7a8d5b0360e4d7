"""What comes back from a child process, and what the compiler's refusals say."""

from __future__ import annotations

import pytest

from ridgeline.compiler.outcome import CompiledMemory, Outcome, OutOfMemory, out_of_memory, outcome_json, read_outcome

MEMORY = CompiledMemory(
    peak_bytes=90.0,
    arguments_bytes=60.0,
    outputs_bytes=50.0,
    aliased_bytes=45.0,
    temporaries_bytes=30.0,
    code_bytes=2.0,
    host_bytes=7.0,
)
REFUSAL = OutOfMemory(needed_bytes=3e12, available_bytes=1e11, where="hbm")


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, versions={"jax": "0.12"}, memory=MEMORY),
        Outcome(compile_s=2.0, lower_s=1.0, process_bytes=1e9, refusal=REFUSAL),
    ],
)
def test_an_outcome_reads_back_as_it_was_written(outcome: Outcome) -> None:
    assert read_outcome(outcome_json(outcome)) == outcome


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"memory": 1, "refusal": null}'])
def test_what_is_no_outcome_is_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_outcome(text)


@pytest.mark.parametrize(
    ("message", "needed_bytes", "available_bytes", "where"),
    [
        (
            "total memory required for HLO temporaries (31.50G) exceeds available HBM (15.75G). HLO module: jit_step.",
            31.5 * 2**30,
            15.75 * 2**30,
            "hbm",
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 1.50T of 94.74G hbm. Exceeded by 1.4T.",
            1.5 * 2**40,
            94.74 * 2**30,
            "hbm",
        ),
        (
            "RESOURCE_EXHAUSTED: Allocation (size=2147483648000) would exceed memory (size=137438953472) :: %s0",
            2147483648000,
            137438953472,
            "host",
        ),
    ],
)
def test_a_refusal_of_the_compiler_is_read_for_its_numbers(
    message: str, needed_bytes: float, available_bytes: float, where: str
) -> None:
    refusal = out_of_memory(message)

    assert refusal == OutOfMemory(needed_bytes=needed_bytes, available_bytes=available_bytes, where=where)


def test_another_failure_is_no_refusal_for_memory() -> None:
    assert out_of_memory("INVALID_ARGUMENT: No such compile option: 'xla_tpu_bogus'") is None
