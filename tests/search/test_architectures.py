"""Which architecture of a size runs fastest."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from ridgeline.cli.app import main
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.job import Job, PlanRequest, Remat, Workload
from ridgeline.model.parameters import count_parameters
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model
from ridgeline.report.architectures import architectures_chart, architectures_json, architectures_pieces
from ridgeline.report.blocks import Report
from ridgeline.report.terminal import screen
from ridgeline.search.architectures import BAND, ArchitecturesAnswer, architectures, matrix_use
from ridgeline.search.pinned import pinned_columns, pinned_to
from ridgeline.search.train import train

if TYPE_CHECKING:
    from pathlib import Path

PINNED = PlanRequest(mesh={"fsdp": 16}, remat=Remat(policy="full"), gradient_accumulation=1)
WORDS = ("llama3.1-8b", "--on=v6e:4x4", "--seq-len=4096", "--global-batch=32", "--mesh=fsdp=16", "--remat=full")


def job_of(model: str, plan: PlanRequest = PINNED, *, seq_len: int = 4096) -> Job:
    return Job(
        model_reference=model,
        model=load_model(model),
        hardware=parse_slice("v6e:4x4"),
        workload=Workload(seq_len=seq_len, global_batch=32),
        plan=plan,
    )


@cache
def dense() -> ArchitecturesAnswer:
    job = job_of("llama3.1-8b")
    return architectures(job, train(job))


def test_shapes_are_ranked_by_their_step_with_the_jobs_own_among_them() -> None:
    times = [each.best.step.expected_s for each in dense().found if each.best is not None]

    assert times == sorted(times)
    assert dense().own in dense().found
    assert dense().own.time_ratio == 1


def test_every_shape_has_the_size_of_the_jobs_model() -> None:
    own = count_parameters(model_tree(load_model("llama3.1-8b"))).total

    assert all(each.parameters.total == pytest.approx(own, rel=BAND) for each in dense().found)


def test_narrower_heads_are_slower_because_they_leave_matrix_units_idle_in_attention() -> None:
    narrow = next(each for each in dense().found if each.factor_of_dimension == {"head_dim": 0.5})

    assert narrow.time_ratio > 1
    assert narrow.because.startswith("attention +")


def test_fewer_and_wider_layers_do_more_arithmetic_on_a_byte_and_have_less_attention() -> None:
    shallow = next(each for each in dense().found if each.factor_of_dimension == {"num_layers": 0.5})

    assert shallow.use is not None
    assert dense().own.use is not None
    assert shallow.use.intensity_flops_per_byte > dense().own.use.intensity_flops_per_byte
    assert shallow.flops_per_token < dense().own.flops_per_token
    assert shallow.time_ratio < 1


def test_what_pays_by_itself_is_tried_together_and_wins() -> None:
    first = dense().found[0]

    assert len(first.factor_of_dimension) > 1
    assert first.time_ratio == min(each.time_ratio for each in dense().found)


def test_of_a_dense_model_no_shape_with_more_experts_is_missed() -> None:
    assert not any("num_experts" in trade for trade in dense().left_out)


def test_a_width_beside_the_tiles_fills_matrix_units_less() -> None:
    """gpt-oss: widths of 2880 take 12 tiles of 256, which are 3072."""
    job = job_of("gpt-oss-20b")
    best = train(job).best

    use = matrix_use(*pinned_columns(pinned_to(job, best.plan, global_batch=32)), best)

    assert use.filled_fraction == pytest.approx((2880 / 3072) ** 2, abs=0.03)


def test_a_shape_that_the_pinned_mesh_does_not_divide_stands_last_with_the_reason() -> None:
    job = job_of("llama3.1-8b", replace(PINNED, mesh={"fsdp": 2, "tp": 8}))
    answer = architectures(job, train(job))
    fewer = next(each for each in answer.found if each.factor_of_dimension == {"num_kv_heads": 0.5})

    assert fewer.best is None
    assert "key-value heads 4 cannot be split 8 ways" in fewer.reason
    assert answer.found[-1].best is None
    text = screen(Report(headline="", pieces=tuple(architectures_pieces(answer))))
    assert "cannot be split" in text


def test_the_screen_says_why_and_that_quality_is_not_known() -> None:
    text = " ".join(screen(Report(headline="", pieces=tuple(architectures_pieces(dense())))).split())

    assert "how well each would learn is not known" in text
    assert "matrix units filled to" in text
    assert "FLOP a byte of HBM" in text


def test_the_chart_has_a_curve_for_each_dimension_through_the_jobs_own() -> None:
    chart = architectures_chart(dense(), title="")

    assert {curve.name for curve in chart.curves} == {
        "layers",
        "MLP over width",
        "query heads",
        "key-value heads",
        "head width",
    }
    assert all((1.0, 1.0) in curve.points for curve in chart.curves)


def test_experts_keep_what_a_token_visits() -> None:
    job = replace(job_of("qwen3-30b-a3b", replace(PINNED, mesh={"fsdp": 32})), hardware=parse_slice("v6e:4x8"))
    answer = architectures(job, train(job))
    active = answer.own.parameters.active

    assert any("num_experts" in each.factor_of_dimension for each in answer.found)
    assert all(each.parameters.active == pytest.approx(active, rel=BAND) for each in answer.found)


def test_the_command_prints_json_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", *WORDS, "--architectures", "--json", "--plot", str(tmp_path / "shapes.svg")]) == 0
    found = json.loads(capsys.readouterr().out)["architectures"]

    assert found["quality"] is None
    assert found["fastest"] == architectures_json(dense())["fastest"]
    assert {"plan", "expected_s", "mfu", "memory_bytes", "matrix_units_filled"} <= found["found"][0].keys()
    assert (tmp_path / "shapes.svg").read_text(encoding="utf-8").startswith("<svg")
    assert main(["train", *WORDS, "--architectures", "--laws"]) == 2


def test_no_shape_is_listed_twice() -> None:
    """Half as many heads of twice the width are one shape, by whichever of the two it is asked for."""
    shapes = [replace(each.model, name="") for each in dense().found]

    assert len(shapes) == len(set(shapes))
