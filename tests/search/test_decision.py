"""The sharding decision in words, for the four kinds of job that public guidance for Ironwood tells apart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import ridgeline
from ridgeline.cost.causes import BUBBLE, time_by_cause
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import ContextParallelism, ExpertKernel, Job, PlanRequest, Remat, Workload
from ridgeline.job.mesh import FREE
from ridgeline.model.zoo import load_model
from ridgeline.report.blocks import Report
from ridgeline.report.decision import crossovers_table, decision_facts, decision_json
from ridgeline.report.terminal import screen
from ridgeline.search.train import train
from ridgeline.search.why import why_not

if TYPE_CHECKING:
    from ridgeline.search.answer import TrainAnswer


def planned(model: str, on: str, *, global_batch: int, seq_len: int) -> TrainAnswer:
    return ridgeline.train(model, on=on, global_batch=global_batch, seq_len=seq_len)


def test_a_dense_model_on_short_sequences_takes_fsdp_alone() -> None:
    """Held up by its feed-forward matmuls and by what it computes again."""
    decision = planned("llama3.1-70b", "tpu7x:4x4x4", global_batch=256, seq_len=8192).decision

    assert decision.workload == "dense, short sequences"
    assert (decision.primary, decision.secondary) == ("FSDP", ())
    assert decision.bottlenecks[0][0] == "feed-forward matmuls"
    assert "recomputation" in dict(decision.bottlenecks)


@pytest.mark.parametrize("mesh", ["fsdp=16", "fsdp=4,tp=4"])
@pytest.mark.parametrize(("seq_len", "length"), [(8192, "short"), (65_536, "long")])
def test_whether_sequences_are_long_is_of_the_job_and_not_of_its_mesh(mesh: str, seq_len: int, length: str) -> None:
    """Scores are 12% of the FLOPs of an 8B model at 8k tokens, and half of them at 64k."""
    answer = ridgeline.train("llama3.1-8b", on="v5p:2x2x4", global_batch=16, seq_len=seq_len, mesh=mesh, remat="full")

    assert answer.decision.workload == f"dense, {length} sequences"


def test_a_dense_model_on_long_sequences_takes_fsdp_with_context_parallelism() -> None:
    """Held up by attention and by the memory of activations."""
    decision = planned("llama3.1-70b", "tpu7x:4x4x4", global_batch=16, seq_len=131_072).decision

    assert decision.workload == "dense, long sequences"
    assert {decision.primary, *decision.secondary} == {"FSDP", "context parallelism"}
    assert decision.bottlenecks[0][0] == "attention"
    assert "activation memory" in dict(decision.bottlenecks)


def test_a_mixture_of_experts_on_short_sequences_takes_fsdp_and_prices_expert_parallelism() -> None:
    """Guidance names FSDP with EP; published DeepSeek recipes run FSDP alone. They come out alike.

    Sent by all-to-all, tokens cost more than the weights they spare.
    """
    answer = planned("qwen3-235b-a22b", "v5p:4x8x8", global_batch=1024, seq_len=4096)
    decision = answer.decision
    with_experts = why_not(answer.job, answer.best, "ep=8", global_batch=1024)
    sending = replace(answer.job.plan, experts=ExpertKernel(exchange="all_to_all"))
    by_all_to_all = why_not(replace(answer.job, plan=sending), answer.best, "ep=8", global_batch=1024)

    assert decision.workload == "MoE, short sequences"
    assert decision.primary == "FSDP"
    assert decision.bottlenecks[0][0] == "expert matmuls"
    assert "recomputation" in dict(decision.bottlenecks)
    assert with_experts.estimate is not None
    assert with_experts.estimate.step.expected_s == pytest.approx(answer.best.step.expected_s, rel=0.1)
    assert "mostly for expert token exchange" in by_all_to_all.reason


def test_a_mixture_of_experts_beyond_a_slice_takes_fsdp_and_experts_and_prices_the_pipeline() -> None:
    """On two slices stages would wait for each other longer than the weights' way across takes."""
    answer = planned("kimi-k2", "2*tpu7x:4x4x4", global_batch=1024, seq_len=4096)
    decision = answer.decision
    with_stages = why_not(answer.job, answer.best, "dcn_pp=2", global_batch=1024)

    assert decision.workload == "MoE, short sequences, beyond the memory of a slice"
    assert (decision.primary, decision.secondary) == ("FSDP", ("expert parallelism",))
    assert "mostly for pipeline " in with_stages.reason


def test_a_mixture_of_experts_far_beyond_a_slice_takes_fsdp_experts_and_stages() -> None:
    """Across eight slices the weights' way is the longer one. Held up by the exchange of tokens and the bubble too."""
    free = dict.fromkeys(("fsdp", "tp", "ep", "dcn_fsdp", "dcn_dp", "dcn_pp"), FREE)
    answer = ridgeline.train("kimi-k2", on="8*tpu7x:4x4x4", global_batch=2048, seq_len=4096, mesh=free)
    decision = answer.decision

    assert decision.workload == "MoE, short sequences, beyond the memory of a slice"
    assert {decision.primary, *decision.secondary} == {"FSDP", "expert parallelism", "pipeline parallelism"}
    assert "expert token exchange" in dict(decision.bottlenecks)
    assert time_by_cause(answer.best.step.parts)[BUBBLE] > 0.04 * answer.best.step.expected_s


def test_replicas_of_the_state_are_counted_once() -> None:
    """8.03 billion parameters of 4 bytes, two moments and a gradient: 120 GiB, however many copies there are."""
    answer = ridgeline.train(
        "llama3.1-8b", on="2*v5p:2x2x4", global_batch=64, seq_len=4096, mesh="fsdp=16,dcn_dp=2", remat="full"
    )

    assert answer.decision.workload == "dense, short sequences"
    assert answer.decision.reason.startswith("120 GiB of parameters, moments and gradients do not fit in the 95")


def test_ironwood_asks_for_eleven_thousand_flops_a_byte() -> None:
    """2,307 TFLOP/s over two links of 100 GB/s."""
    answer = planned("llama3.1-8b", "tpu7x:2x2x1", global_batch=16, seq_len=4096)

    assert answer.decision.ridge_flops_per_byte == pytest.approx(2307e12 / (2 * 100e9))


def test_what_tensor_parallelism_brings_over_links_is_weighed_against_it() -> None:
    """Each matmul of an MLP of width F on Y devices does 2·F/Y FLOPs for an element of the stream."""
    answer = ridgeline.train(
        "llama3.1-70b", on="tpu7x:4x4x4", global_batch=256, seq_len=8192, mesh="fsdp=32,tp=4", remat="full"
    )
    mlp = next(section for section in answer.decision.sections if section.name == "feed-forward matmuls")

    # Three matmuls forward, two of them again, six backward; the stream is gathered and scattered forward, gathered
    # again, and its gradient gathered and scattered: five times 2 bytes, of which a device has one in Y.
    matmuls, transfers, ways, width = 11, 5, 4, 28672
    expected = matmuls * 2 * width / ways / (transfers * 2 * (ways - 1) / ways)
    assert mlp.intensity_flops_per_byte == pytest.approx(expected, rel=1e-6)
    assert mlp.bound == "compute"


@pytest.mark.parametrize(
    ("model", "mesh", "moving"),
    [
        ("llama3.1-8b", "fsdp=4,cp=4", "attention"),
        ("qwen3-30b-a3b", "fsdp=4,ep=4", "expert matmuls"),
        ("deepseek2-16b", "fsdp=4,ep=4", "expert matmuls"),
    ],
)
def test_what_moves_counts_under_the_part_that_it_is_moved_for(model: str, mesh: str, moving: str) -> None:
    """Keys and values for attention, tokens for experts; weights that are gathered are FSDP's."""
    answer = ridgeline.train(model, on="v5p:2x2x4", global_batch=64, seq_len=4096, mesh=mesh, remat="full")
    names = {each.name for each in answer.decision.sections if math.isfinite(each.intensity_flops_per_byte)}

    assert names - {"head"} == {moving}


def test_screen_and_json_say_the_same() -> None:
    decision = planned("llama3.1-8b", "v6e:4x4", global_batch=32, seq_len=8192).decision
    text = screen(Report(headline="", pieces=(decision_facts(decision),)))

    assert decision.workload in text
    assert decision_json(decision)["primary"] == decision.primary == "FSDP"


def test_the_batch_from_which_gathers_hide_is_that_of_the_book() -> None:
    """C·b_w/(2·n·W): in bf16 over the three axes of a v5p pod 765 tokens a chip, with links of 100 GB/s."""
    answer = ridgeline.train(
        "llama3.1-70b", on="v5p:16x20x28", global_batch=8960, seq_len=4096, mesh="fsdp=-1", remat="full"
    )
    gathers = [each for each in answer.decision.crossovers if (each.wire, each.moves) == ("ici", "weights")]
    names = {each.section for each in gathers}

    assert names == {"attention projections", "feed-forward matmuls", "head"}
    for each in gathers:
        assert each.critical_tokens == pytest.approx(4.59e14 / (6 * 100e9), rel=2e-2)
        assert each.num_sequences / answer.global_batch == pytest.approx(each.critical_tokens / each.here_tokens)


def test_experts_ask_for_as_many_more_tokens_as_a_token_leaves_out() -> None:
    """Of 128 experts a token visits 8; 16 ways of FSDP gather them all."""
    answer = ridgeline.train(
        "qwen3-30b-a3b", on="v5p:2x2x4", global_batch=64, seq_len=4096, mesh="fsdp=16", remat="full"
    )
    found = {(each.section, each.wire, each.moves): each for each in answer.decision.crossovers}
    dense, experts = (found[name, "ici", "weights"] for name in ("attention projections", "expert matmuls"))

    assert experts.critical_tokens == pytest.approx(dense.critical_tokens * 128 / 8)


def test_gathered_keys_and_values_are_covered_from_a_length_of_sequence() -> None:
    """A device's queries see half of the keys: T = C·b/(2·G·W) of them, twice over, times the ways."""
    answer = ridgeline.train(
        "llama3.1-8b", on="v5p:2x2x4", global_batch=16, seq_len=32768, mesh="fsdp=4,cp=4", remat="full"
    )
    found = {(each.section, each.moves): each for each in answer.decision.crossovers}
    length = found["attention", "keys and values"]

    assert length.of_sequence
    # 459 TFLOP/s, two bytes, four query heads of a key-value head, over both links of a ring of 4.
    assert length.critical_tokens == pytest.approx(2 * 4 * 4.59e14 * 2 / (2 * 4 * 2 * 100e9), rel=0.01)


def test_a_ring_hands_keys_and_values_over_one_link_and_asks_for_longer_sequences() -> None:
    """All-gathers use both links of a ring, a hand-over one of them."""
    lengths: list[float] = []
    for strategy in ("all_gather", "ring"):
        job = Job(
            model_reference="llama3.1-8b",
            model=load_model("llama3.1-8b"),
            hardware=parse_slice("v5p:2x2x4"),
            workload=Workload(seq_len=32768, global_batch=16),
            plan=PlanRequest(
                mesh={"fsdp": 4, "cp": 4}, remat=Remat(policy="full"), context=ContextParallelism(strategy=strategy)
            ),
        )
        found = {(each.section, each.moves): each for each in train(job).decision.crossovers}
        lengths.append(found["attention", "keys and values"].critical_tokens)

    assert lengths[1] == pytest.approx(2 * lengths[0])


def test_tensor_parallelism_pays_at_any_batch_or_at_none() -> None:
    answer = ridgeline.train(
        "llama3.1-70b", on="tpu7x:4x4x4", global_batch=256, seq_len=8192, mesh="fsdp=32,tp=4", remat="full"
    )
    found = {(each.section, each.moves): each for each in answer.decision.crossovers}

    assert found["feed-forward matmuls", "activations"].critical_tokens == 0
    assert math.isinf(found["attention projections", "activations"].critical_tokens)


def test_gpus_are_told_of_their_own_links_and_one_device_of_none() -> None:
    servers = planned("llama3.1-8b", "h100:16", global_batch=32, seq_len=4096).decision
    alone = ridgeline.train("llama3.2-1b", on="h100:1", global_batch=8, seq_len=4096, remat="full").decision
    said = screen(Report(headline="", pieces=(decision_facts(alone), crossovers_table(alone))))

    assert [over for over, _ in servers.ridges] == ["NVLink", "the network"]
    assert alone.ridges == ()
    assert "one device has the whole model" in said
    assert "links" not in said


def test_every_crossover_is_on_the_screen_in_json_and_explained() -> None:
    answer = planned("llama3.1-8b", "v6e:4x4", global_batch=32, seq_len=8192)
    text = screen(Report(headline="", pieces=(crossovers_table(answer.decision),)))
    entries = decision_json(answer.decision)["crossovers"]

    assert isinstance(entries, list)
    assert len(entries) == len(answer.decision.crossovers)
    for each in answer.decision.crossovers:
        assert each.section in " ".join(text.split())
        assert each.derivation in answer.derivations
