"""The runner compares as the problems' schema says, and fails what it should."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ridgeline.errors import InputError
from tests.book.__main__ import main
from tests.book.problems import Problem, Target, read_problems
from tests.book.runner import agrees, run

if TYPE_CHECKING:
    from pathlib import Path

ITEM: dict[str, Any] = {
    "id": "ridge",
    "feature": "roofline.ridge",
    "rel_tol": 0.015,
    "inputs": {"C": 1.97e14},
    "answer": {"ridge": {"target": 240.2439}, "t_measured": {"value": 8e-6, "measured": True}},
}


def written(folder: Path, document: object) -> Path:
    path = folder / "problems.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def problem(feature: str = "roofline.ridge", **targets: object) -> Problem:
    return Problem(
        name="item",
        feature=feature,
        inputs={},
        targets={key: Target(value=value, tolerance=0.01) for key, value in targets.items()},
    )


@pytest.mark.parametrize(
    ("got", "target", "tolerance"),
    [
        (243.0, 240.2439, 0.015),
        (16384.0, 16384, 0.0),
        (1, 1.0, 0.0),
        (3607.2511, 3607.251, 0.0),  # printed with seven digits
        (float(3 * 2**53 + 4), 3 * 2**53 + 4, 0.0),
        (True, True, 0.0),
        ("All gather", "all_gather", 0.0),
        ((1.001, 5), [1.0, 5], 0.01),
        ([True, "none"], [True, "none"], 0.0),
        ({"v5p": 2.0, "v5e": 2.0, "v3": 1.0}, {"v5p": 2.0, "v5e": 2.0}, 0.0),
        (0.0, 0.0, 0.0),
        (float("inf"), float("inf"), 0.01),
        ([], [], 0.0),
    ],
)
def test_an_answer_within_its_tolerance_agrees(got: object, target: object, tolerance: float) -> None:
    assert agrees(got, target, tolerance=tolerance)


@pytest.mark.parametrize(
    ("got", "target", "tolerance"),
    [
        (236.0, 240.2439, 0.015),
        (16385, 16384, 0.1),
        (16384.5, 16384, 0.1),
        (True, 1, 0.1),
        (1, True, 0.1),
        (1.0, True, 0.1),
        ("all reduce", "all_gather", 0.1),
        (None, 0.0, 0.1),
        ("240", 240, 0.1),
        ([1.0], [1.0, 2.0], 0.1),
        ([1.0, 2.5], [1.0, 2.0], 0.1),
        ([16385], [16384], 0.1),
        ({"v5p": 2.0}, {"v5p": 2.0, "v5e": 2.0}, 0.1),
        (1e-9, 0.0, 0.1),
        (float("nan"), 1.0, 0.1),
        (1e300, float("inf"), 0.1),
    ],
)
def test_an_answer_that_differs_does_not_agree(got: object, target: object, tolerance: float) -> None:
    assert not agrees(got, target, tolerance=tolerance)


def test_an_item_passes_when_every_answer_with_a_target_agrees() -> None:
    asked: list[object] = []

    def adapter(_: object, wanted: object) -> dict[str, object]:
        asked.append(wanted)
        return {"t": 1.001, "bound": "memory", "more": 5}

    outcome = run(problem(t=1.0, bound="memory"), {"roofline.ridge": adapter})

    assert (outcome.state, outcome.misses) == ("passed", ())
    assert asked == [{"t", "bound"}]


def test_a_failure_names_the_key_both_values_and_the_error() -> None:
    outcome = run(problem(t=1.0, flops=7, bound="hbm"), {"roofline.ridge": lambda *_: {"t": 1.5, "bound": "mxu"}})

    assert outcome.state == "failed"
    assert {miss.key: miss.said for miss in outcome.misses} == {
        "t": "got 1.5, target 1.0, off by +50.000%",
        "flops": "no answer; target 7",
        "bound": "got 'mxu', target 'hbm'",
    }


def test_an_adapter_that_raises_fails_its_item() -> None:
    def refusing(*_: object) -> dict[str, object]:
        raise InputError("unknown axis", where="spec", value="Q", expected="X", fix="name it")

    refused = run(problem(t=1.0), {"roofline.ridge": refusing})
    broken = run(problem(t=1.0), {"roofline.ridge": lambda inputs, _: inputs["B"]})

    assert (refused.state, broken.state) == ("failed", "failed")
    assert refused.misses[0].said.startswith("refused: unknown axis")
    assert broken.misses[0].said == "KeyError: 'B'"


@pytest.mark.parametrize("feature", ["profile.hlo", "profile.memory", "jax"])
def test_a_feature_of_a_verb_still_to_come_is_unsupported(feature: str) -> None:
    assert run(problem(feature, t=1.0), {}).state == "unsupported"


def test_a_feature_of_a_later_verb_is_asked_once_it_has_an_adapter() -> None:
    assert run(problem("inference.latency", t=1.0), {"inference.latency": lambda *_: {"t": 2.0}}).state == "failed"


def test_an_unknown_feature_fails() -> None:
    outcome = run(problem("roofline.unheard_of", t=1.0), {})

    assert outcome.state == "failed"
    assert outcome.misses[0].said == "no adapter answers roofline.unheard_of"


def test_measured_answers_are_not_asked_for(tmp_path: Path) -> None:
    (item,) = read_problems(written(tmp_path, {"problems": [ITEM]}))

    assert item.targets == {"ridge": Target(value=240.2439, tolerance=0.015)}


def test_an_item_carries_the_sentence_that_poses_it(tmp_path: Path) -> None:
    (item,) = read_problems(written(tmp_path, {"problems": [{**ITEM, "setup": "A[I_X,J] x B[J,K]"}]}))

    assert item.inputs == {"setup": "A[I_X,J] x B[J,K]", "C": 1.97e14}


def test_an_answer_may_have_a_tolerance_of_its_own(tmp_path: Path) -> None:
    answer = {"ridge": {"target": 240.0, "rel_tol": 0.3}, "flops": {"target": 5}}

    (item,) = read_problems(written(tmp_path, {"problems": [{**ITEM, "answer": answer}]}))

    assert (item.targets["ridge"].tolerance, item.targets["flops"].tolerance) == (0.3, 0.015)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", r"the file is not JSON\n  where:    .*problems.json:1:2"),
        ([], 'not an object\n  where:    .*problems.json\n.*\n  expected: an object with "problems"'),
        ({"items": []}, 'no "problems"'),
        ({"problems": {}}, '"problems" is of another kind'),
        ({"problems": [3]}, r"not an object\n  where:    .*problems\[0\]"),
        ({"problems": [{**ITEM, "id": 3}]}, r'"id" is of another kind\n  where:    .*problems\[0\]'),
        ({"problems": [{"id": "ridge"}]}, r'no "answer"\n  where:    .*problems\[0\] \(ridge\)'),
        ({"problems": [{**ITEM, "inputs": []}]}, '"inputs" is of another kind'),
        (
            {"problems": [{**ITEM, "rel_tol": "1%"}]},
            r"not a tolerance\n  where:    .*\(ridge\).rel_tol\n  value:    1%",
        ),
        ({"problems": [{**ITEM, "rel_tol": 2}]}, "not a tolerance"),
        ({"problems": [{**ITEM, "answer": {"t": 3}}]}, r"an answer is an object\n  where:    .*\(ridge\).answer.t"),
        ({"problems": [ITEM, ITEM]}, "two items have one id\n.*\n  value:    ridge"),
    ],
)
def test_a_malformed_file_is_refused_at_the_place(tmp_path: Path, document: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_problems(written(tmp_path, document))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the problems"):
        read_problems(tmp_path / "absent.json")


def test_the_command_closes_with_the_totals_and_fails_if_an_item_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [
        {**ITEM, "id": "a", "feature": "roofline.unheard_of"},
        {**ITEM, "id": "b", "feature": "profile.unheard_of"},
    ]

    code = main([str(written(tmp_path, {"problems": items}))])
    printed = capsys.readouterr().out.splitlines()

    assert code == 1
    assert printed[0] == "FAILED a (roofline.unheard_of)"
    assert [line.split() for line in printed if line.startswith("profile")] == [["profile.unheard_of", "1"]]
    assert printed[-1] == "0 passed, 1 failed, 1 unsupported"


def test_the_command_says_so_when_nothing_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    item = {**ITEM, "feature": "profile.unheard_of"}

    assert main([str(written(tmp_path, {"problems": [item]}))]) == 0
    assert capsys.readouterr().out.endswith("\n0 passed, 0 failed, 1 unsupported\n")


def test_the_command_refuses_a_malformed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(written(tmp_path, "[1, 2"))]) == 2
    assert capsys.readouterr().err.startswith("error: the file is not JSON")


def test_one_feature_can_be_asked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = [{**ITEM, "id": name, "feature": f"profile.{name}"} for name in ("one", "other")]

    main([str(written(tmp_path, {"problems": items})), "--only", "profile.one"])

    assert capsys.readouterr().out.endswith("\n0 passed, 0 failed, 1 unsupported\n")
