"""`ridgeline train` at the command line: what is answered, and how each kind of bad input is met."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ridgeline.cli.app import main
from ridgeline.job.reading import read_job
from tests.messages import refusal

QUESTION = ("llama3.1-8b", "--on", "v6e:8x8", "--global-batch", "256", "--seq-len", "8192")

TOO_LARGE = ("llama3.1-405b", "--on", "v5e:2x2", "--global-batch", "4", "--seq-len", "8192")


@pytest.fixture
def train(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the verb; gives exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["train", *arguments])
        return code, *capsys.readouterr()

    return run


Train = Callable[..., tuple[int, str, str]]


def with_flags(**flags: str) -> list[str]:
    """The usual question with some flags changed."""
    said = {"on": "v6e:8x8", "global-batch": "256", "seq-len": "8192"} | {
        name.replace("_", "-"): value for name, value in flags.items()
    }
    return ["llama3.1-8b", *(f"--{name}={value}" for name, value in said.items())]


def test_the_answer_names_the_question_the_plan_and_the_bottleneck(train: Train) -> None:
    code, screen, complaints = train(*QUESTION, "--tokens", "1T")

    assert (code, complaints) == (0, "")
    assert screen.startswith("llama3.1-8b on v6e:8x8: 64 chips, 256 × 8,192 tokens a step\n")
    for label in ("mesh", "step", "roofline", "MFU", "waits for", "memory", "run of 1T"):
        assert f"\n  {label} " in screen


def test_explain_adds_the_formulas_that_costed_the_best_plan(train: Train) -> None:
    _, brief, _ = train(*QUESTION)
    _, screen, _ = train(*QUESTION, "--explain")

    added = screen.partition("Where the numbers come from\n")[2]
    assert "Where the numbers come from" not in brief
    for heading in ("FLOPs of layer/mlp/", "Weight gathers, of a whole step", "Weights on a device", "MFU"):
        assert f"\n{heading}" in added


def test_json_always_carries_derivations(train: Train) -> None:
    _, text, _ = train(*QUESTION, "--json")

    derivations = json.loads(text)["derivations"]
    assert {"quantity", "value", "unit", "formula", "values", "assumes", "source"} == derivations[0].keys()


def test_json_is_one_object_with_the_promised_keys(train: Train) -> None:
    code, text, complaints = train(*QUESTION, "--tokens", "1T", "--json")

    answer = json.loads(text)
    assert (code, complaints) == (0, "")
    assert {"job", "best", "alternatives", "rejected", "run", "search"} <= answer.keys()
    assert {"plan", "step", "memory", "bound", "mfu", "tokens_per_s_per_chip"} <= answer["best"].keys()
    assert {"roofline_s", "expected_s", "low_s", "high_s", "widened_by", "parts"} <= answer["best"]["step"].keys()
    assert {"verdict", "total_bytes", "usable_bytes", "parts"} <= answer["best"]["memory"].keys()
    assert {"duration_s", "cost_usd", "price_source"} <= answer["run"].keys()
    assert {"plans", "seconds"} <= answer["search"].keys()
    assert answer["job"]["workload"] == {
        "kind": "train",
        "global_batch": 256,
        "seq_len": 8192,
        "tokens": 1_000_000_000_000,
    }


def test_a_pinned_mesh_is_the_one_that_is_costed(train: Train) -> None:
    _, text, _ = train(*QUESTION, "--mesh", "fsdp=16,tp=4", "--remat", "full", "--json")

    plan = json.loads(text)["best"]["plan"]
    assert (plan["mesh"], plan["remat"]["policy"]) == ({"fsdp": 16, "tp": 4}, "full")


def test_logits_computed_in_eight_chunks_are_an_eighth_as_large(train: Train) -> None:
    pinned = (*QUESTION, "--mesh", "fsdp=64", "--remat", "full", "--json")
    whole, chunked = (json.loads(train(*pinned, "--vocab-tiling", chunks)[1])["best"] for chunks in ("1", "8"))

    assert (whole["plan"]["vocab_tiling"], chunked["plan"]["vocab_tiling"]) == (1, 8)
    logits_bytes = [
        next(tensor["bytes"] for tensor in best["memory"]["largest"] if tensor["name"] == "head/logits")
        for best in (whole, chunked)
    ]
    assert logits_bytes[0] == 8 * logits_bytes[1]


def test_a_run_shorter_than_a_step_is_said_to_be_so(train: Train) -> None:
    screen = train(*QUESTION, "--tokens", "1")[1]

    assert "\n  run of 1    less than one step, which is 2.1M tokens\n" in screen


def test_one_of_a_thing_is_not_many(train: Train) -> None:
    pinned = ("--mesh", "tp=1", "--remat", "full", "--gradient-accumulation", "1")
    screen = train("gpt3-52k", "--on", "v5e:1x1", "--global-batch", "1", "--seq-len", "1024", *pinned)[1]

    assert screen.startswith("gpt3-52k on v5e:1x1: 1 chip, 1 × 1,024 tokens a step\n")
    assert "\n  1 plan costed in " in screen
    assert screen.endswith("; 1 fits.\n")


def test_a_saved_job_asks_the_same_question(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(*QUESTION, "--mesh", "fsdp=64", "--quantization", "int8", "--save", "job.toml")

    job = read_job("job.toml")
    assert (job.model.name, job.hardware.name, job.workload.global_batch) == ("llama3.1-8b", "v6e:8x8", 256)
    assert job.plan.mesh == {"fsdp": 64}
    assert train("job.toml")[0] == 0


def test_save_does_not_replace_a_file_unless_forced(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text("precious", encoding="utf-8")

    code, screen, complaints = train(*QUESTION, "--save", "job.toml")

    assert (code, screen) == (2, "")
    assert complaints.startswith("error: the file exists\n  where:    --save\n")
    assert Path("job.toml").read_text(encoding="utf-8") == "precious"
    assert train(*QUESTION, "--save", "job.toml", "--force")[0] == 0


def test_a_setting_that_is_not_modelled_is_said_to_be_so(train: Train, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'version = 1\nmodel = "llama3.1-8b"\nhardware = "v6e:8x8"\n[workload]\nseq_len = 8192\nglobal_batch = 256\n'
        '[plan]\nattention = { kernel = "autoselected" }\n',
        encoding="utf-8",
    )

    assert "plan.attention.kernel is kept in the job but not modelled yet." in train(str(path))[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            with_flags(on="v6e:8x8", seq_len="0"),
            refusal(
                "number too small",
                where="--seq-len",
                value="0",
                expected="a whole number of tokens, at least 1",
                fix="write 1",
            ),
        ),
        (
            with_flags(seq_len="-8192"),
            refusal(
                "negative number",
                where="--seq-len",
                value="-8192",
                expected="a number of tokens",
                fix="write e.g. 256, 4Mi or 15T",
            ),
        ),
        (
            with_flags(tokens="nan"),
            refusal(
                "not a finite number",
                where="--tokens",
                value="nan",
                expected="a number of tokens",
                fix="write e.g. 256, 4Mi or 15T",
            ),
        ),
        (
            with_flags(tokens="1e25"),
            refusal(
                "absurdly large number",
                where="--tokens",
                value="1e25",
                expected="at most 1,000,000T tokens",
                fix="check the unit; K, M, B, T are powers of 1000",
            ),
        ),
        (
            with_flags(tokens="15X"),
            refusal(
                "unknown unit 'X'",
                where="--tokens",
                value="15X",
                expected="a number of tokens",
                fix="use one of K, M, B, T, Ki, Mi, Gi, Ti, k, G",
            ),
        ),
        (
            with_flags(mesh="fsdp=0"),
            refusal(
                "number too small",
                where="--mesh: fsdp",
                value="0",
                expected="a whole number of devices, at least 1",
                fix="write 1",
            ),
        ),
        (
            with_flags(mesh="fsdp=16,tp"),
            refusal(
                "item 2 is malformed: 'tp'",
                where="--mesh",
                value="fsdp=16,tp",
                expected="name=value pairs joined by commas",
                fix="write e.g. fsdp=32,tp=4",
            ),
        ),
        (
            with_flags(mesh="fsdp=16,fsdp=4"),
            refusal(
                "item 2 repeats 'fsdp'",
                where="--mesh",
                value="fsdp=16,fsdp=4",
                expected="name=value pairs joined by commas",
                fix="write e.g. fsdp=32,tp=4",
            ),
        ),
        (
            with_flags(mesh="tensor=4"),
            refusal(
                "unknown mesh axis",
                where="--mesh",
                value="tensor",
                expected="dp, fsdp, fsdp_transpose, tp, tp_sequence, cp, ep, pp, dcn_dp, dcn_fsdp, dcn_pp",
                fix="did you mean tp?",
            ),
        ),
        (
            with_flags(mesh="fsdp=48"),
            refusal(
                "mesh does not fill the devices in one slice",
                where="--mesh",
                value="fsdp=48, product 48",
                expected="64: v6e:8x8 has 64 devices in one slice",
                fix="choose degrees whose product is 64, or write -1 for an axis that takes the rest: fsdp=-1",
            ),
        ),
        (
            with_flags(mesh="fsdp=64", global_batch="100"),
            refusal(
                "batch is not divisible",
                where="--global-batch",
                value="100",
                expected="a multiple of 64 sequences (fsdp=64)",
                fix="use 64 or 128, or lower a degree that splits the batch",
            ),
        ),
        (
            with_flags(vocab_tiling="-2"),
            refusal(
                "negative number",
                where="--vocab-tiling",
                value="-2",
                expected="a number of chunks",
                fix="write e.g. 256, 4Mi or 15T",
            ),
        ),
        (
            with_flags(quantization="fp9"),
            refusal(
                "unknown quantization",
                where="--quantization",
                value="fp9",
                expected="fp8, int8, fp4, mxfp8, none",
                fix="did you mean fp8, fp4?",
            ),
        ),
        (
            with_flags(weights_dtype="half"),
            refusal(
                "unknown dtype",
                where="--weights-dtype",
                value="half",
                expected="f32, bf16, fp8, int8",
                fix="use one of f32, bf16, fp8, int8",
            ),
        ),
        (
            with_flags(batch_tokens="2Mi"),
            refusal(
                "the batch is given twice",
                where="--global-batch and --batch-tokens",
                value="256 sequences, 2Mi tokens",
                expected="either sequences (global_batch) or tokens (batch_tokens)",
                fix="leave one of them out",
            ),
        ),
        (
            [*with_flags(), "--force"],
            refusal(
                "nothing to replace",
                where="--force",
                value="--force without --save",
                expected="--save FILE beside it",
                fix="add --save FILE, or leave --force out",
            ),
        ),
        (
            ["llama3.1-8b", "--seq-len=8192"],
            refusal(
                "missing hardware",
                where="job: hardware",
                value="(absent)",
                expected="a value",
                fix='say which machine: --on tpu7x:4x4x4, or hardware = "tpu7x:4x4x4" in a job file',
            ),
        ),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_bad_input_is_met_with_one_clear_message(
    train: Train, arguments: list[str], message: str, form: list[str]
) -> None:
    assert train(*arguments, *form) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "opening"),
    [
        (["lama3.1-8b", "--on=v6e:8x8", "--seq-len=8192"], "error: unknown model\n  where:    MODEL\n"),
        (with_flags(on="v6f:8x8"), "error: unknown chip\n  where:    --on\n"),
        (with_flags(on="v6e:7x9"), "error: v6e has no slice of that shape\n  where:    --on\n"),
        (with_flags(remat="minimum"), "error: unknown remat policy\n  where:    --remat\n"),
        (["absent.toml"], "error: no such job file\n  where:    JOB\n  value:    absent.toml\n"),
    ],
)
def test_an_unknown_name_is_met_with_the_place_it_was_given(train: Train, arguments: list[str], opening: str) -> None:
    code, screen, complaints = train(*arguments)

    assert (code, screen) == (2, "")
    assert complaints.startswith(opening)
    assert "\n  fix:      " in complaints


def test_a_model_that_fits_on_no_setting_is_an_answer_and_not_an_error(train: Train) -> None:
    code, screen, complaints = train(*TOO_LARGE)

    assert (code, screen) == (1, "")
    assert complaints.startswith("not possible: ")
    assert "\n  fix: " in complaints


def test_that_nothing_fits_is_one_json_object_with_the_reasons(train: Train) -> None:
    code, text, complaints = train(*TOO_LARGE, "--json")

    answer = json.loads(text)
    assert (code, answer["best"], answer["alternatives"], answer["run"]) == (1, None, [], None)
    assert complaints.startswith(f"not possible: {answer['reason']}\n  - {answer['reasons'][0]}\n")
    assert complaints.endswith(f"\n  fix: {answer['fix']}\n")
    assert (answer["job"]["model"], answer["global_batch"]) == ("llama3.1-405b", 4)
    assert all(family.keys() == {"family", "reason", "plans"} for family in answer["rejected"])
    assert sum(family["plans"] for family in answer["rejected"]) >= answer["search"]["plans"] > 0
    assert answer["search"]["fitting"] == 0
    assert answer["closest"]["memory"]["verdict"] == "does_not_fit"


def test_a_drawing_is_told_on_standard_error_alone(train: Train, tmp_path: Path) -> None:
    chart = tmp_path / "remat.svg"

    code, answer, told = train(*QUESTION, f"--plot={chart}", "--json")

    assert (code, told) == (0, f"drawn to {chart}\n")
    assert json.loads(answer)["best"]
    assert chart.exists()
