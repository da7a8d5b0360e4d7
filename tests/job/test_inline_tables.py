"""A job file that describes its own model, or puts figures of its own over a machine's."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import InputError
from ridgeline.hardware.figures import own_figures, with_figures
from ridgeline.hardware.topology import parse_slice
from ridgeline.job.document import HardwareTable
from ridgeline.job.job import Job, Workload
from ridgeline.job.notes import notes
from ridgeline.job.origin import Arguments, settings
from ridgeline.job.reading import read_job
from ridgeline.job.writing import write_job
from ridgeline.model.spec import MlpSpec, MoeSpec
from ridgeline.model.zoo import load_model
from tests.messages import refusal

TINY = """
    [model]
    name = "tiny"
    embed_dim = 512
    vocab_size = 32000
    num_layers = 8
    attention = { num_heads = 8, num_kv_heads = 2, head_dim = 64 }
    mlp = { mlp_dim = 2048 }
"""
MACHINE = """
    [hardware]
    name = "tpu7x:4x4x4"
    hbm_bytes_per_s = 8e12
    usable_hbm_bytes = "180GiB"
    link_bytes_per_s = "120GB/s"
    network_bytes_per_s = 1e10
    usd_per_chip_hour = 6.5
    peak_flops_per_s = { bf16 = 2e15 }
"""
WORKLOAD = """
    [workload]
    seq_len = 8192
"""

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a job file with these tables into the current folder and gives its name."""
    monkeypatch.chdir(tmp_path)

    def write_tables(*tables: str) -> str:
        keys = "" if "[model]" in "".join(tables) else 'model = "llama3.1-8b"\n'
        keys += "" if "[hardware]" in "".join(tables) else 'hardware = "v6e:8x8"\n'
        text = "version = 1\n" + keys + "".join(map(dedent, tables)) + dedent(WORKLOAD)
        Path("job.toml").write_text(text, encoding="utf-8")
        return "job.toml"

    return write_tables


def test_a_job_may_describe_its_own_model(write: Write) -> None:
    job = read_job(write(TINY))

    assert (job.model_reference, job.model.name, job.model.num_layers) == ("tiny", "tiny", 8)
    assert (job.model.embed_dim, job.model.vocab_size) == (512, 32000)


def test_a_model_may_be_one_of_the_zoo_with_changes(write: Write) -> None:
    job = read_job(write('[model]\nbase = "llama3.1-8b"\nnum_layers = 16\n'))
    original = load_model("llama3.1-8b")

    assert (job.model.name, job.model.num_layers) == ("llama3.1-8b (changed)", 16)
    assert [layer for layer, _ in job.model.layers] == [layer for layer, _ in original.layers]
    assert job.model.notes == (*original.notes, "llama3.1-8b with its own num_layers")


def test_another_sort_of_mlp_takes_the_place_of_the_bases(write: Write) -> None:
    experts = "moe = { num_experts = 8, top_k = 2, expert_mlp_dim = 4096 }"
    job = read_job(write(f'[model]\nname = "sparse"\nbase = "llama3.1-8b"\n{experts}\n'))

    assert isinstance(load_model("llama3.1-8b").layers[0][0].mlp, MlpSpec)
    assert job.model.layers[0][0].mlp == MoeSpec(num_experts=8, top_k=2, expert_mlp_dim=4096)
    assert job.model.name == "sparse"


def test_a_job_may_put_its_own_figures_over_a_machines(write: Write) -> None:
    hardware = read_job(write(MACHINE)).hardware

    assert (hardware.name, hardware.num_chips, hardware.usd_per_hour) == ("tpu7x:4x4x4", 64, 64 * 6.5)
    chip = hardware.chip
    assert (chip.hbm_bytes_per_s, chip.usable_hbm_bytes, chip.network_bytes_per_s) == (8e12, 180 * 2**30, 1e10)
    assert (chip.peak_flops_per_s["bf16"], hardware.axes[0].bytes_per_s) == (2e15, 1.2e11)
    assert chip.peak_flops_per_s["fp8"] == parse_slice("tpu7x:4x4x4").chip.peak_flops_per_s["fp8"]


def test_the_answer_says_which_figures_are_the_users(write: Write) -> None:
    assert notes(read_job(write('[hardware]\nname = "v5p:4x4x4"\nhbm_bytes_per_s = 3e12\n')), {}) == (
        "v5p with figures of the job file: hbm_bytes_per_s.",
    )


@pytest.mark.parametrize("hbm", ["24GiB", "64GiB"])
def test_of_other_memory_as_large_a_part_is_usable(write: Write, hbm: str) -> None:
    named = parse_slice("v6e:4x4").chip
    job = read_job(write(f'[hardware]\nname = "v6e:4x4"\nhbm_bytes = "{hbm}"\n'))
    chip = job.hardware.chip

    assert chip.usable_hbm_bytes / chip.hbm_bytes == pytest.approx(named.usable_hbm_bytes / named.hbm_bytes)
    assert notes(job, {}) == ("v6e with figures of the job file: hbm_bytes; usable_hbm_bytes in proportion.",)
    write_job(job, "again.toml")
    assert read_job("again.toml") == job


def test_a_flag_takes_the_place_of_the_whole_machine(write: Write) -> None:
    said = settings(Arguments(on="v5p:4x4x8"), written=lambda name: f"--{name}")

    assert read_job(write(MACHINE), said).hardware == parse_slice("v5p:4x4x8")


@pytest.mark.parametrize("tables", [(TINY,), (MACHINE,), (TINY, MACHINE), ('[model]\nbase = "mixtral-8x7b"\n',)])
def test_inline_tables_are_written_down_again(write: Write, tables: tuple[str, ...]) -> None:
    job = read_job(write(*tables))

    write_job(job, "again.toml")

    assert read_job("again.toml") == job


@given(
    st.dictionaries(
        st.sampled_from(["usable_hbm_bytes", "hbm_bytes_per_s", "link_bytes_per_s", "usd_per_chip_hour"]),
        st.floats(1, 1e10),
    )
)
def test_every_figure_keeps_all_its_digits(tmp_path_factory: pytest.TempPathFactory, own: dict[str, float]) -> None:
    job = Job(
        model_reference="llama3.1-8b",
        model=load_model("llama3.1-8b"),
        hardware=parse_slice("v5e:4x4"),
        workload=Workload(seq_len=8192),
    )
    job = replace(job, hardware=with_figures(job.hardware, own))
    path = str(tmp_path_factory.getbasetemp() / "own_figures.toml")

    write_job(job, path, force=True)

    assert own_figures(read_job(path).hardware.chip) == own
    assert read_job(path) == job


@pytest.mark.parametrize(
    ("old", "new", "what", "where", "value", "expected", "fix"),
    [
        (
            'name = "tiny"',
            "",
            "a model without a name",
            "model",
            "embed_dim, vocab_size, num_layers, attention, mlp",
            "name = … and the model's dimensions, or base = … and what differs from it",
            'add name = "mine", or base = "llama3.1-8b"',
        ),
        ('name = "tiny"', "name = 8", "unusable `name`", "model.name", "8", "a name", "mend `name`"),
        (
            "embed_dim = 512",
            "embed_dimm = 512",
            "unknown key",
            "model",
            "embed_dimm",
            "one of ",
            "did you mean embed_dim, ",
        ),
        (
            "embed_dim = 512",
            "embed_dim = 0",
            "unusable `embed_dim`",
            "model",
            "0",
            "a whole number, one or more",
            "mend `embed_dim`",
        ),
        (
            "mlp_dim = 2048",
            "mlp_dim = '2048'",
            "unusable `mlp_dim`",
            "model.layer.layer.mlp",
            "2048",
            "a whole number, zero or more",
            "mend `mlp_dim`",
        ),
        (
            'name = "tiny"',
            'base = "lama3.1-8b"',
            "unknown model",
            "model.base",
            "lama3.1-8b",
            "one of the zoo's ",
            "did you mean llama3.1-8b",
        ),
    ],
)
def test_a_fault_in_an_inline_model_is_told_with_file_and_key(
    write: Write, old: str, new: str, *, what: str, where: str, value: str, expected: str, fix: str
) -> None:
    with pytest.raises(InputError) as refused:
        read_job(write(TINY.replace(old, new)))

    error = refused.value
    assert (error.what, error.where, str(error.value)) == (what, f"job.toml: {where}", value)
    assert error.expected.startswith(expected)
    assert error.fix.startswith(fix)


@pytest.mark.parametrize(
    ("line", "what", "where", "value", "expected", "fix"),
    [
        (
            "hbm_bandwidth = 8e12",
            "unknown key",
            "hardware.hbm_bandwidth",
            "hbm_bandwidth",
            ", ".join(HardwareTable.model_fields),
            "use one of those, or leave it out",
        ),
        (
            "hbm_bytes_per_s = 0",
            "a figure of zero",
            "hardware.hbm_bytes_per_s",
            "0",
            "1 or more",
            "write e.g. 8e12, or 8TB/s in quotes",
        ),
        (
            "hbm_bytes_per_s = 1e-300",
            "absurdly small number",
            "hardware.hbm_bytes_per_s",
            "1e-300",
            "1 or more",
            "write e.g. 8e12, or 8TB/s in quotes",
        ),
        (
            "hbm_bytes_per_s = -8e12",
            "negative number",
            "hardware.hbm_bytes_per_s",
            "-8000000000000.0",
            "bytes a second",
            "write e.g. 820GB/s or 8.2e11",
        ),
        (
            "hbm_bytes_per_s = nan",
            "not a finite number",
            "hardware.hbm_bytes_per_s",
            "nan",
            "bytes a second",
            "write e.g. 820GB/s or 8.2e11",
        ),
        (
            "hbm_bytes_per_s = [8e12]",
            "wrong value of hbm_bytes_per_s",
            "hardware.hbm_bytes_per_s",
            "[8000000000000.0]",
            "a number, or text in quotes",
            "change hbm_bytes_per_s to a number, or text in quotes",
        ),
        (
            "usable_hbm_bytes = 1e12",
            "more usable HBM than there is",
            "hardware.usable_hbm_bytes",
            "931 GiB",
            "at most the HBM of the chip, 95.0 GiB",
            "give hbm_bytes and usable_hbm_bytes that agree",
        ),
        (
            "peak_flops_per_s = { fp8 = 1e15 }",
            "v5p has no fp8 peak to replace",
            "hardware.peak_flops_per_s",
            "fp8",
            "bf16, int8, int4",
            "leave fp8 out",
        ),
    ],
)
def test_a_fault_in_a_machines_own_figures_is_told_with_file_and_key(
    write: Write, line: str, *, what: str, where: str, value: str, expected: str, fix: str
) -> None:
    with pytest.raises(InputError) as refused:
        read_job(write(f'[hardware]\nname = "v5p:4x4x4"\n{line}\n'))

    error = refused.value
    assert (error.what, error.where, str(error.value), error.expected) == (what, f"job.toml: {where}", value, expected)
    assert error.fix.startswith(fix)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "model = 8",
            refusal(
                "wrong value of model",
                where="job.toml: model",
                value="8",
                expected="text in quotes, or a table",
                fix="change model to text in quotes, or a table",
            ),
        ),
        (
            "hardware = {}",
            refusal(
                "missing name",
                where="job.toml: hardware.name",
                value="(absent)",
                expected="a value",
                fix='say which slice: name = "tpu7x:4x4x4"',
            ),
        ),
    ],
)
def test_a_model_or_machine_is_a_name_or_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["version = 1", 'model = "llama3.1-8b"', 'hardware = "v6e:8x8"', "workload = { seq_len = 8192 }"]
    key = line.split(maxsplit=1)[0]
    kept = [other for other in lines if not other.startswith(key)]
    Path("job.toml").write_text("\n".join([*kept, line]), encoding="utf-8")

    with pytest.raises(InputError) as refused:
        read_job("job.toml")

    assert str(refused.value) == message
