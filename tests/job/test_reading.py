"""Job files and the flags laid over them, from text to a `Job`."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from ridgeline.errors import InputError
from ridgeline.job.job import Dtypes, Lora, Optimizer, Quantization, Remat
from ridgeline.job.notes import notes
from ridgeline.job.origin import Arguments, Setting, settings
from ridgeline.job.reading import read_job
from tests.messages import refusal

SMALLEST = """
    version = 1
    model = "llama3.1-8b"
    hardware = "v6e:8x8"
    [workload]
    seq_len = 8192
"""

FULL = """
    version = 1
    model = "llama3.1-70b"
    hardware = "tpu7x:4x4x4"

    [workload]
    kind = "train"
    batch_tokens = "2Mi"
    seq_len = 8192
    tokens = "15T"

    [plan]
    mesh = { fsdp = 128 }
    placement = { tp = "core" }
    gradient_accumulation = 1
    pipeline = { microbatches = 8, repeats = 2 }
    dtypes = { weights = "bf16", compute = "bf16", gradients = "f32", activations = "bf16" }
    quantization = { kind = "fp8", scaling = "fixed" }
    remat = { policy = "custom", decoder_layer_input = "offload", context = "device" }
    optimizer = { kind = "adamw", mu_dtype = "bf16", nu_dtype = "f32", state = "device" }
    attention = { kernel = "splash", block_q = 2048, block_kv = 2048, max_logit = "none" }
    moe = { dispatch = "dropless", capacity_factor = 1.0, imbalance = 1.2, kernel = "gmm" }
    context = { strategy = "all_gather", load_balance = true }
    vocab_tiling = 4
    compiler = { scoped_vmem_kib = 61440, sparse_core_offload = ["all_gather", "reduce_scatter"] }
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a job file into the current folder and gives its name."""
    monkeypatch.chdir(tmp_path)

    def write_text(text: str) -> str:
        Path("job.toml").write_text(dedent(text), encoding="utf-8")
        return "job.toml"

    return write_text


def flags(**arguments: object) -> tuple[Setting, ...]:
    return settings(Arguments(**arguments), written=lambda name: f"--{name.replace('_', '-')}")


def test_a_job_file_says_everything_it_can_say(write: Callable[[str], str]) -> None:
    job = read_job(write(FULL))

    assert (job.model_reference, job.model.num_layers, job.hardware.name) == ("llama3.1-70b", 80, "tpu7x:4x4x4")
    assert (job.workload.global_batch, job.workload.seq_len, job.workload.tokens) == (256, 8192, 15e12)
    plan = job.plan
    assert (plan.mesh, plan.placement, plan.gradient_accumulation) == ({"fsdp": 128}, {"tp": "core"}, 1)
    assert (plan.pipeline.microbatches, plan.pipeline.repeats) == (8, 2)
    assert plan.dtypes == Dtypes(weights="bf16", compute="bf16", gradients="f32", activations="bf16")
    assert plan.quantization == Quantization(kind="fp8", scaling="fixed")
    assert plan.remat == Remat(policy="custom", tensors={"decoder_layer_input": "offload", "context": "device"})
    assert plan.optimizer == Optimizer(mu_dtype="bf16", nu_dtype="f32", state="device")
    assert (plan.attention.block_q, plan.attention.max_logit) == (2048, "none")
    assert (plan.experts.kernel, plan.moe_imbalance) == ("gmm", 1.2)
    assert (plan.context.strategy, plan.context.load_balance) == ("all_gather", True)
    assert (plan.vocab_tiling, plan.compiler.scoped_vmem_kib) == (4, 61440)
    assert plan.compiler.sparse_core_offload == ("all_gather", "reduce_scatter")


def test_what_a_job_leaves_out_is_left_to_the_planner(write: Callable[[str], str]) -> None:
    job = read_job(write(SMALLEST))

    assert (job.workload.global_batch, job.workload.tokens) == (None, None)
    assert (job.plan.mesh, job.plan.remat, job.plan.gradient_accumulation) == ({}, None, None)


def test_a_model_and_flags_make_the_same_job_as_a_file(write: Callable[[str], str]) -> None:
    text = SMALLEST + 'global_batch = 256\n[plan]\nmesh = {fsdp = 64}\nremat = {policy = "full"}\n'
    said = flags(on="v6e:8x8", seq_len="8Ki", global_batch="256", mesh="fsdp=64", remat="full")

    assert read_job("llama3.1-8b", said) == read_job(write(text))


def test_a_flag_overrides_the_file(write: Callable[[str], str]) -> None:
    said = flags(on="v5p:4x4x8", mesh="fsdp=32,tp=4", remat="minimal", quantization="none")
    job = read_job(write(FULL.replace('tp = "core"', 'tp = "x"')), said)

    assert job.hardware.name == "v5p:4x4x8"
    assert job.plan.mesh == {"fsdp": 32, "tp": 4}
    assert (job.plan.remat, job.plan.quantization) == (Remat(policy="minimal"), None)


def test_a_batch_flag_overrides_the_files_batch_in_its_other_form(write: Callable[[str], str]) -> None:
    assert read_job(write(FULL), flags(global_batch="512")).workload.global_batch == 512


def test_adapters_lie_beside_every_linear_layer_unless_some_are_named(write: Callable[[str], str]) -> None:
    said, named = read_job(write(FULL), flags(lora_rank="16")), {"rank": 8, "targets": ["query", "value"]}

    assert said.plan.lora == Lora(rank=16, targets=("query", "key", "value", "out", "gate", "up", "down"))
    assert read_job(write(FULL), [Setting(key="plan.lora", value=named, where="")]).plan.lora == Lora(
        rank=8, targets=("query", "value")
    )


def test_the_optimizer_may_be_said_in_a_flag(write: Callable[[str], str]) -> None:
    assert read_job(write(FULL), flags(optimizer="muon")).plan.optimizer.kind == "muon"


def test_tensors_named_in_a_flag_make_a_custom_policy(write: Callable[[str], str]) -> None:
    job = read_job(write(SMALLEST), flags(remat="context=device,out_proj=offload"))

    assert job.plan.remat == Remat(policy="custom", tensors={"context": "device", "out_proj": "offload"})


def test_moments_are_as_wide_as_the_weights_unless_said_otherwise(write: Callable[[str], str]) -> None:
    # MaxText: mu_dtype inherits weight_dtype, and Adam's nu follows the parameters.
    job = read_job(write(SMALLEST), flags(weights_dtype="bf16", nu_dtype="f32"))

    assert job.plan.optimizer == Optimizer(mu_dtype="bf16", nu_dtype="f32")


def test_a_models_path_counts_from_the_folder_of_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "job.toml").write_text(dedent(SMALLEST).replace("llama3.1-8b", "../config.json"), encoding="utf-8")

    with pytest.raises(InputError) as refused:
        read_job("jobs/job.toml")

    assert (refused.value.where, refused.value.value) == ("jobs/job.toml: model", "config.json")


def test_settings_that_are_not_modelled_are_named(write: Callable[[str], str]) -> None:
    job = read_job(write(FULL.replace('tp = "core"', 'tp = "x"')), flags(on="v5p:4x4x8"))

    assert notes(job, {"fsdp": 128}) == (
        "plan.moe.kernel is kept in the job but not modelled yet.",
        "plan.compiler.scoped_vmem_kib is kept in the job but not modelled yet.",
        "plan.pipeline settings have no effect without pp.",
        f"{job.hardware.chip.title} has no native fp8 matmul: operands are upcast.",
    )


def test_pipeline_settings_of_a_plan_with_stages_need_no_note(write: Callable[[str], str]) -> None:
    job = read_job(write(SMALLEST + "[plan]\npipeline = { microbatches = 8 }\n"))

    assert notes(job, {"fsdp": 16, "pp": 4}) == ()
    assert notes(job, {"fsdp": 64}) == ("plan.pipeline settings have no effect without pp.",)


def test_a_job_without_such_settings_has_no_notes(write: Callable[[str], str]) -> None:
    assert notes(read_job(write(SMALLEST)), {"fsdp": 64}) == ()


@pytest.mark.parametrize(
    ("old", "new", "what", "where", "value", "expected", "fix"),
    [
        ("version = 1", "version = 2", "wrong value of version", "version", "2", "1", "change version to 1"),
        ("version = 1", "", "missing version", "version", "(absent)", "a value", "add version = 1 at the top"),
        (
            "seq_len = 8192",
            "seqlen = 8192",
            "unknown key",
            "workload.seqlen",
            "seqlen",
            "seq_len, kind, global_batch, batch_tokens, tokens",
            "did you mean seq_len?",
        ),
        (
            "seq_len = 8192",
            "",
            "missing seq_len",
            "workload.seq_len",
            "(absent)",
            "a value",
            "say how long a sequence is: --seq-len 8192, or seq_len = 8192 under [workload] in a job file",
        ),
        (
            "seq_len = 8192",
            "seq_len = 0",
            "number too small",
            "workload.seq_len",
            "0",
            "a whole number of tokens, at least 1",
            "write 1",
        ),
        (
            "seq_len = 8192",
            "seq_len = true",
            "wrong value of seq_len",
            "workload.seq_len",
            "True",
            "a number, or text in quotes",
            "change seq_len to a number, or text in quotes",
        ),
        (
            "seq_len = 8192",
            "seq_len = nan",
            "not a finite number",
            "workload.seq_len",
            "nan",
            "a number of tokens",
            "write e.g. 256, 4Mi or 15T",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\ntokens = "15Q"',
            "unknown unit 'Q'",
            "workload.tokens",
            "15Q",
            "a number of tokens",
            "use one of K, M, B, T, Ki, Mi, Gi, Ti, k, G",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\nkind = "infer"',
            "unknown kind of workload",
            "workload.kind",
            "infer",
            "train, serve",
            'use kind = "train", or kind = "serve"',
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\nbatch_tokens = 10000",
            "batch is not a whole number of sequences",
            "workload.batch_tokens",
            "10000",
            "a multiple of the sequence length, 8192 tokens",
            "use 8192",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\nglobal_batch = 8\nbatch_tokens = 65536",
            "the batch is given twice",
            "workload.global_batch and job.toml: workload.batch_tokens",
            "8 sequences, 65536 tokens",
            "either sequences (global_batch) or tokens (batch_tokens)",
            "leave one of them out",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\nglobal_batch = 1e20",
            "absurdly large number",
            "workload.global_batch",
            "1e+20",
            "at most 1B sequences",
            "check the unit; K, M, B, T are powers of 1000",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\noptimizer = {state = "hots"}',
            "wrong value of state",
            "plan.optimizer.state",
            "hots",
            "'device' or 'host'",
            "did you mean host?",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\nlora = {rank = 16, targets = ["query", "vlaue"]}',
            "no product that an adapter can lie beside",
            "plan.lora.targets",
            "vlaue",
            "query, key, value, out, gate, up, down",
            "did you mean value?",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\nlora = {targets = []}",
            "missing rank",
            "plan.lora.rank",
            "(absent)",
            "a value",
            "say how wide adapters are: --lora-rank 16, or rank = 16",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\nlora = {rank = 16}\noptimizer = {kind = "muon"}',
            "what muon costs on adapters is not known",
            "plan.optimizer.kind",
            "muon",
            "adamw beside lora",
            'use kind = "adamw"',
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\noptimizer = {kind = "shampoo"}',
            "wrong value of kind",
            "plan.optimizer.kind",
            "shampoo",
            "'adamw', 'adamh', 'muon', 'muonh' or 'adafactor'",
            "change kind to 'adamw', 'adamh', 'muon', 'muonh' or 'adafactor'",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\noptimizer = {orthogonalize = "whole"}',
            "adamw makes no matrix orthogonal",
            "plan.optimizer.orthogonalize",
            "whole",
            "nothing, but for muon and muonh",
            'leave it out, or use kind = "muon"',
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\noptimizer = {kind = "muon", distributed = true, orthogonalize = "sharded"}',
            "a distributed optimizer gives each replica whole matrices",
            "plan.optimizer.orthogonalize",
            "sharded",
            "whole",
            "leave it out, or leave out distributed",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\nvocab_tiling = 0",
            "number too small",
            "plan.vocab_tiling",
            "0",
            "a whole number of chunks, at least 1",
            "write 1",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\ndtypes = {weights = "half"}',
            "unknown dtype",
            "plan.dtypes.weights",
            "half",
            "f32, bf16, fp8, int8",
            "use one of f32, bf16, fp8, int8",
        ),
        (
            "seq_len = 8192",
            'seq_len = 8192\n[plan]\nremat = {context = "device"}',
            "missing policy",
            "plan.remat",
            "context",
            "a policy",
            'add policy = "custom", or name a preset',
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\n" + 'attention = {kernel = "spalsh"}',
            "wrong value of kernel",
            "plan.attention.kernel",
            "spalsh",
            "'splash', 'flash', 'dot_product', 'cudnn_flash_te' or 'autoselected'",
            "did you mean splash?",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\n" + 'attention = {max_logit = "nope"}',
            "wrong value of max_logit",
            "plan.attention.max_logit",
            "nope",
            "'none' or 'estimate'",
            "did you mean none?",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\n" + "attention = {max_logit = -1.0}",
            "wrong value of max_logit",
            "plan.attention.max_logit",
            "-1.0",
            "a number greater than 0",
            "change max_logit to a number greater than 0",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\n" + 'moe = {kernel = "gnm"}',
            "wrong value of kernel",
            "plan.moe.kernel",
            "gnm",
            "'gmm', 'ragged_dot' or 'dense'",
            "did you mean gmm?",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\n" + 'moe = {dispatch = "dropples"}',
            "wrong value of dispatch",
            "plan.moe.dispatch",
            "dropples",
            "'dropless' or 'capacity'",
            "did you mean dropless?",
        ),
        (
            "seq_len = 8192",
            "seq_len = 8192\n[plan]\n" + 'context = {strategy = "rings"}',
            "wrong value of strategy",
            "plan.context.strategy",
            "rings",
            "'all_gather', 'ring', 'ulysses' or 'usp'",
            "did you mean ring?",
        ),
    ],
)
def test_a_fault_in_a_job_file_is_told_with_file_key_and_fix(
    write: Callable[[str], str], old: str, new: str, *, what: str, where: str, value: str, expected: str, fix: str
) -> None:
    path = write(dedent(SMALLEST).replace(old, new))

    with pytest.raises(InputError) as refused:
        read_job(path)

    assert str(refused.value) == refusal(what, where=f"job.toml: {where}", value=value, expected=expected, fix=fix)


@pytest.mark.parametrize(
    ("content", "what", "expected", "fix"),
    [
        (
            b'version = 1\nmodel = "llama3',
            "job file is not TOML: Unterminated string",
            "TOML",
            "mend it there, or write the file again",
        ),
        (
            b"[plan]\nmesh = { fsdp = 2, fsdp = 4 }",
            "job file is not TOML: Duplicate inline table key 'fsdp'",
            "TOML",
            "mend it there, or write the file again",
        ),
        (
            b"a = " + b"[" * 100_000,
            "job file is nested too deeply",
            "tables a few levels deep",
            "check that this is a job file",
        ),
        (b"a = " + b"9" * 100_000, "job file is not TOML: ", "TOML", "mend it there, or write the file again"),
        (b"\x7fELF\x02\xff\xfe", "job file is not text", "TOML in UTF-8", "check that this is a job file"),
    ],
)
def test_a_file_that_is_no_job_file_is_refused(
    tmp_path: Path, content: bytes, what: str, expected: str, fix: str
) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)

    with pytest.raises(InputError) as refused:
        read_job(str(path))

    # Python's own words follow, with line and column as its version counts them.
    assert refused.value.what.startswith(what)
    assert (refused.value.where, refused.value.value) == ("JOB", str(path))
    assert (refused.value.expected, refused.value.fix) == (expected, fix)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    with path.open("wb") as file:
        file.truncate(200_000_000)

    with pytest.raises(InputError, match="job file too large: 200,000,000 bytes"):
        read_job(str(path))


def test_a_folder_and_an_absent_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()

    with pytest.raises(InputError, match="not a file"):
        read_job(str(tmp_path / "folder.toml"))
    with pytest.raises(InputError, match="no such job file"):
        read_job(str(tmp_path / "absent.toml"))


def test_links_in_a_circle_are_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "job.toml").symlink_to(tmp_path / "again.toml")
    (tmp_path / "again.toml").symlink_to(tmp_path / "job.toml")

    with pytest.raises(InputError) as refused:
        read_job(str(tmp_path / "job.toml"))

    assert refused.value.what == "cannot read job file: Too many levels of symbolic links"


def test_an_unknown_argument_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InputError) as refused:
        flags(seqlen=8192)

    assert (refused.value.what, refused.value.fix) == ("unknown argument", "did you mean seq_len?")
