"""What our program refuses, and that it says which part."""

from __future__ import annotations

import pytest

from ridgeline.errors import InputError
from ridgeline.job.origin import Setting
from ridgeline.job.reading import read_job
from ridgeline.model.operations import Attention
from ridgeline.program.layout import Layout
from ridgeline.program.request import TrainingProgram, training_program
from ridgeline.program.splash import splash_flops, splash_tiles
from ridgeline.program.training import stacked_shape
from tests.messages import refusal


def program_of(name: str, mesh: str, **more: object) -> TrainingProgram:
    settings = {
        "hardware": "v5e:4x4",
        "workload.seq_len": 4096,
        "workload.global_batch": 16,
        "plan.mesh": mesh,
        "plan.remat": "full",
    } | {f"{key.replace('__', '.')}": value for key, value in more.items()}
    return training_program(
        read_job(name, [Setting(key=key, value=value, where=key) for key, value in settings.items()])
    )


def test_a_weight_is_stored_over_all_its_axes_and_gathered_to_the_tensor_axes_alone() -> None:
    program = program_of("llama3.1-8b", "fsdp=4,tp=4")
    query, layers = program.weights["layer/attention/query"]

    assert (query.axes, query.shape, layers) == (("embed", "heads", "head_dim"), (4096, 32, 128), 32)
    assert program.layout.stored(query) == (("fsdp",), ("tp",), ())
    assert program.layout.gathered(query) == ((), ("tp",), ())
    assert program.layout.stream == (("fsdp",), ("tp",), ())


def test_an_axis_that_two_dimensions_ask_for_splits_the_first() -> None:
    program = program_of("llama3.1-8b", "fsdp=4,fsdp_transpose=4")
    up, _ = program.weights["layer/mlp/up"]

    assert program.layout.stored(up) == (("fsdp", "fsdp_transpose"), ())


def test_axes_across_slices_are_outermost_and_no_part_of_a_slice() -> None:
    layout = Layout(degrees={"fsdp": 4, "tp": 2, "dcn_dp": 2})

    assert list(layout.mesh_axes.items()) == [("dcn_dp", 2), ("fsdp", 4), ("tp", 2)]
    assert layout.axes_of_a_slice == {"fsdp": 4, "tp": 2}


def test_a_dimension_that_the_mesh_does_not_divide_is_named_with_its_tensor() -> None:
    with pytest.raises(InputError) as caught:
        program_of("llama3.1-8b", "tp=16")

    assert str(caught.value) == refusal(
        "kv_heads of layer/attention/key is not divisible by the mesh",
        where="plan.mesh",
        value="8 over tp=16",
        expected="a multiple of 16",
        fix="lower the degree of tp",
    )


@pytest.mark.parametrize(
    ("model", "more", "what", "value"),
    [
        ("deepseek3.2-671b", {}, "sparse attention", "2048 keys of a query"),
        ("gemma4-e4b", {}, "per-layer inputs", 256),
        ("llama3.1-8b", {"model": {"base": "llama3.1-8b", "mtp_depth": 1}}, "multi-token prediction", 1),
        (
            "llama3.1-8b",
            {"plan__mesh": "fsdp=4,cp=4", "plan__context": {"strategy": "ring"}},
            "context parallelism by another strategy than all_gather",
            "ring",
        ),
        (
            "llama3.1-8b",
            {"plan__mesh": "fsdp=4,cp=4", "plan__context": {"load_balance": True}},
            "reordering of tokens for context parallelism",
            "yes",
        ),
        (
            "llama3.1-8b",
            {"plan__quantization": {"kind": "fp8", "scaling": "static"}},
            "quantization with static scales",
            "static",
        ),
        (
            "llama3.1-8b",
            {"plan__quantization": {"kind": "fp8", "rounding": "stochastic"}},
            "quantization with stochastic rounding",
            "stochastic",
        ),
        (
            "llama3.1-8b",
            {"plan__quantization": {"kind": "fp8", "granularity": "sub_channel"}},
            "quantization with scales of sub-channels",
            "sub_channel",
        ),
        ("mixtral-8x7b", {"plan__quantization": "fp8"}, "quantization of experts", "fp8"),
        ("gemma3-27b", {"plan__mesh": "fsdp=8,pp=2"}, "pipeline over a mix of different layers", "2 loops"),
    ],
)
def test_a_part_that_our_program_lacks_is_named(model: str, more: dict[str, object], what: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        program_of(model, "fsdp=16", **more)

    assert caught.value.what == f"our program has no {what} yet"
    assert caught.value.value == value


def test_quantized_experts_are_refused_with_what_can_be_done() -> None:
    with pytest.raises(InputError) as caught:
        program_of("mixtral-8x7b", "fsdp=16", plan__quantization="fp8")

    assert str(caught.value) == refusal(
        "our program has no quantization of experts yet",
        where="--program ours",
        value="fp8",
        expected="no quantization, or a model without experts",
        fix="leave plan.quantization out, or let MaxText compile the job (--program maxtext)",
    )


@pytest.mark.parametrize(
    ("model", "pipeline", "expected"),
    [
        (
            "llama3.1-8b",
            {"repeats": 3},
            refusal(
                "the layers are not divisible by the stages",
                where="plan.pipeline",
                value="32 over pp=4, 3 repeats",
                expected="a multiple of 12",
                fix="lower the degree of pp or the repeats",
            ),
        ),
        (
            "llama3.1-8b",
            {"microbatches": 6},
            refusal(
                "the microbatches are not divisible by the stages",
                where="plan.pipeline.microbatches",
                value="6 over pp=4",
                expected="a multiple of 4",
                fix="use 4",
            ),
        ),
    ],
)
def test_a_pipeline_that_does_not_come_out_even_is_refused(model: str, pipeline: dict[str, int], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        program_of(model, "fsdp=4,pp=4", plan__pipeline=pipeline)

    assert str(caught.value) == expected


def test_a_stage_stores_its_own_layers_and_the_stages_share_out_what_lies_outside() -> None:
    program = program_of("llama3.1-8b", "fsdp=4,pp=4", plan__pipeline={"microbatches": 4, "repeats": 2})
    query, layers = program.weights["layer/attention/query"]

    assert stacked_shape(query, layers, num_stages=4) == (8, 4, 4096, 32, 128)
    assert program.layout.stream == (("fsdp",), (), ())
    assert program.layout.outside.stream == (("pp", "fsdp"), (), ())


def test_tiles_of_the_vocabulary_divide_the_tokens_of_a_device() -> None:
    with pytest.raises(InputError) as caught:
        program_of("llama3.1-8b", "fsdp=4,tp=4", plan__vocab_tiling=24)

    assert str(caught.value) == refusal(
        "the vocabulary's tiles do not divide the tokens of a sequence on a device",
        where="plan.vocab_tiling",
        value="24",
        expected="a divisor of 1024",
        fix="use 8",
    )


def test_what_is_left_to_choose_is_asked_for() -> None:
    job = read_job(
        "llama3.1-8b",
        [
            Setting(key="hardware", value="v5e:4x4", where="--on"),
            Setting(key="workload.seq_len", value=4096, where="--seq-len"),
        ],
    )

    with pytest.raises(InputError, match="the batch is not given"):
        training_program(job)


def test_a_splash_kernel_computes_the_tiles_that_a_causal_mask_touches() -> None:
    program = program_of("llama3.1-8b", "fsdp=4,tp=4", plan__attention={"block_q": 1024, "block_kv": 512})
    scores = next(each for each in program.tree.layers[0].blocks[0].operations if isinstance(each, Attention))

    flops = splash_flops(program, scores)

    # Of 4 x 8 tiles those up to the diagonal: 2 + 4 + 6 + 8. A device has 4 sequences and 8 heads of 128.
    product = 2 * 4 * 8 * 20 * 1024 * 512 * 128
    assert flops["splash_mha_fwd_residuals"] == 2 * product
    assert flops["splash_mha_dkv_no_residuals"] == 5 * product


@pytest.mark.parametrize(("window", "visited"), [(512, 2 + 3 + 3 + 3), (1024, 2 + 4 + 4 + 4), (4096, 2 + 4 + 6 + 8)])
def test_a_splash_kernel_skips_the_tiles_behind_a_window(window: int, visited: int) -> None:
    model = {
        "name": "tiny",
        "embed_dim": 256,
        "vocab_size": 1024,
        "num_layers": 1,
        "attention": {
            "num_heads": 4,
            "num_kv_heads": 4,
            "head_dim": 64,
            "v_head_dim": 128,
            "span": {"kind": "sliding", "window": window},
        },
        "mlp": {"mlp_dim": 512},
    }
    program = program_of("tiny", "fsdp=16", model=model, plan__attention={"block_q": 1024, "block_kv": 512})
    scores = next(each for each in program.tree.layers[0].blocks[0].operations if isinstance(each, Attention))

    # Of 4 x 8 tiles, those with a key in reach of one of their queries; keys are 64 wide and values 128.
    pairs = 2 * 4 * visited * 1024 * 512
    assert splash_flops(program, scores)["splash_mha_fwd_residuals"] == pairs * (64 + 128)
    assert splash_flops(program, scores)["splash_mha_dkv_no_residuals"] == pairs * (3 * 64 + 2 * 128)


@pytest.mark.parametrize(
    ("asked", "value", "of"),
    [("block_q", 100, "1024 queries"), ("block_q", 64, "1024 queries"), ("block_kv", 768, "4096 keys")],
)
def test_a_tile_that_the_splash_kernel_cannot_compute_is_refused(asked: str, value: int, of: str) -> None:
    program = program_of("llama3.1-8b", "fsdp=4,cp=4", plan__attention={asked: value})

    with pytest.raises(InputError) as caught:
        splash_tiles(program)

    assert str(caught.value) == refusal(
        f"the splash kernel has no tiles of so many {of.partition(' ')[2]}",
        where=f"plan.attention.{asked}",
        value=str(value),
        expected=f"a multiple of 128 that divides the {of} of a sequence on a device",
        fix="use 512, or leave it out",
    )


def test_heads_of_a_fused_projection_are_shared_out_whole() -> None:
    model = {
        "name": "tiny",
        "embed_dim": 256,
        "vocab_size": 1024,
        "num_layers": 1,
        "attention": {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "fused_qkv": True},
        "mlp": {"mlp_dim": 512},
    }

    with pytest.raises(InputError, match="the key-value heads of layer/attention/scores"):
        program_of("tiny", "fsdp=4,tp=4", model=model)
