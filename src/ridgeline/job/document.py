"""The shape of a job file: which tables and keys there are, and of which type.

pydantic checks it, here and nowhere further in; quantities (`"15T"`), names (`"bf16"`, `"fsdp"`) and
what follows from several keys are understood in `reading.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeGuard, cast, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import (
    AttentionProgram,
    ContextStrategy,
    ExpertDispatch,
    ExpertProgram,
    OptimizerKind,
    OptimizerState,
    Orthogonalization,
    TokenExchange,
)
from ridgeline.job.serving import CacheSplit, ExpertSplit, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pydantic_core import ErrorDetails

_MOST = 1e9
_Positive = Annotated[int, Field(gt=0, le=_MOST)]
_Quantity = int | float | str

_WORD, _NUMBER, _TEXT, _TABLE = "word", "number", "text", "table"
_WordOrNumber = Discriminator(lambda value: _WORD if isinstance(value, str) else _NUMBER)
_TextOrTable = Discriminator(lambda value: _TABLE if isinstance(value, dict) else _TEXT)
_MaxLogit = Annotated[
    Annotated[Literal["none", "estimate"], Tag(_WORD)]
    | Annotated[float, Field(gt=0, allow_inf_nan=False), Tag(_NUMBER)],
    _WordOrNumber,
]


class _Table(BaseModel):
    """A table that knows all its keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class HardwareTable(_Table):
    """`[hardware]`: a slice of the catalogue, and figures that replace its chip's."""

    name: str
    peak_flops_per_s: dict[str, _Quantity] = Field(default_factory=dict[str, _Quantity])
    hbm_bytes: _Quantity | None = None
    usable_hbm_bytes: _Quantity | None = None
    hbm_bytes_per_s: _Quantity | None = None
    link_bytes_per_s: _Quantity | None = None
    network_bytes_per_s: _Quantity | None = None
    usd_per_chip_hour: _Quantity | None = None


class WorkloadTable(_Table):
    """`[workload]`."""

    seq_len: _Quantity
    kind: str = "train"
    global_batch: _Quantity | None = None
    batch_tokens: _Quantity | None = None
    tokens: _Quantity | None = None


class PipelineTable(_Table):
    """`pipeline`."""

    microbatches: _Positive | None = None
    repeats: _Positive | None = None
    gather_once: bool | None = None


class DtypesTable(_Table):
    """`dtypes`."""

    weights: str | None = None
    compute: str | None = None
    gradients: str | None = None
    activations: str | None = None


class QuantizationTable(_Table):
    """`quantization`."""

    kind: str
    weights: str | None = None
    activations: str | None = None
    gradients: str | None = None
    granularity: str | None = None
    scaling: str | None = None
    rounding: str | None = None


class OptimizerTable(_Table):
    """`optimizer`."""

    kind: OptimizerKind = "adamw"
    mu_dtype: str | None = None
    nu_dtype: str | None = None
    state: OptimizerState | None = None
    distributed: bool = False
    sync_overlap: bool | None = None
    orthogonalize: Orthogonalization | None = None


class LoraTable(_Table):
    """`lora`."""

    rank: _Quantity
    targets: list[str] | None = None
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class AttentionTable(_Table):
    """`attention`."""

    kernel: AttentionProgram | None = None
    block_q: _Positive | None = None
    block_kv: _Positive | None = None
    dq_reduction_steps: Literal[3] | None = None
    max_logit: _MaxLogit | None = None
    fused_rotary: bool | None = None
    fp8: bool | None = None


class MoeTable(_Table):
    """`moe`."""

    dispatch: ExpertDispatch | None = None
    capacity_factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    imbalance: Annotated[float, Field(ge=1, le=1e4, allow_inf_nan=False)] = 1.0
    kernel: ExpertProgram | None = None
    exchange: TokenExchange | None = None
    exchange_overlap: bool | None = None
    fused: bool | None = None
    paged_stash: bool | None = None
    shard_experts_on_fsdp: bool | None = None


class ContextTable(_Table):
    """`context`."""

    strategy: ContextStrategy | None = None
    load_balance: bool | None = None


class CompilerTable(_Table):
    """`compiler`."""

    scoped_vmem_kib: _Positive | None = None
    sparse_core_offload: list[Literal["all_gather", "reduce_scatter", "all_reduce"]] = Field(default_factory=list)
    kernel_launch: Literal["eager", "graph"] | None = None
    collective_matmul: bool | None = None


class PlanTable(_Table):
    """`[plan]`."""

    mesh: dict[str, _Quantity] = Field(default_factory=dict[str, _Quantity])
    placement: dict[str, str] = Field(default_factory=dict[str, str])
    gradient_accumulation: _Quantity | None = None
    pipeline: PipelineTable = PipelineTable()
    dtypes: DtypesTable = DtypesTable()
    quantization: QuantizationTable | None = None
    remat: dict[str, str] | None = None
    optimizer: OptimizerTable = OptimizerTable()
    lora: LoraTable | None = None
    attention: AttentionTable = AttentionTable()
    moe: MoeTable = MoeTable()
    context: ContextTable = ContextTable()
    vocab_tiling: _Quantity = 1
    compiler: CompilerTable = CompilerTable()


class LengthTable(_Table):
    """`prompt_len` or `generate_len` where not all are alike."""

    mean: _Quantity | None = None
    sigma: _Quantity | None = None
    p50: _Quantity | None = None
    p90: _Quantity | None = None
    min: _Quantity | None = None
    max: _Quantity | None = None
    file: str | None = None


class LimitTable(_Table):
    """`ttft_s` or `tpot_s` where it says of which requests it is a limit."""

    mean: _Quantity | None = None
    p50: _Quantity | None = None
    p90: _Quantity | None = None
    p99: _Quantity | None = None


class PrefixCacheTable(_Table):
    """`prefix_cache`."""

    hit_rate: _Quantity
    shared: bool = False


_LengthOrTable = Annotated[Annotated[_Quantity, Tag(_TEXT)] | Annotated[LengthTable, Tag(_TABLE)], _TextOrTable]
_LimitOrTable = Annotated[Annotated[_Quantity, Tag(_TEXT)] | Annotated[LimitTable, Tag(_TABLE)], _TextOrTable]


class ServingWorkloadTable(_Table):
    """`[workload]` of a serving job; lengths are said, or those of a trace."""

    prompt_len: _LengthOrTable | None = None
    generate_len: _LengthOrTable | None = None
    trace: str | None = None
    kind: Literal["serve"] = "serve"
    batch: _Quantity | None = None
    rate: _Quantity | None = None
    ttft_s: _LimitOrTable | None = None
    tpot_s: _LimitOrTable | None = None
    prefix_cache: PrefixCacheTable | None = None


class ServingDtypesTable(_Table):
    """`dtypes` of a serving job."""

    weights: str | None = None
    kv_cache: str | None = None
    compute: str | None = None
    experts: str | None = None


class SpeculationTable(_Table):
    """`speculation`."""

    draft_tokens: _Quantity
    acceptance: _Quantity
    draft_model: str | None = None


class ServingPlanTable(_Table):
    """`[plan]` of a serving job."""

    prefill: dict[str, _Quantity] = Field(default_factory=dict[str, _Quantity])
    decode: dict[str, _Quantity] = Field(default_factory=dict[str, _Quantity])
    mode: Mode | None = None
    server_ratio: str | None = None
    prefill_batch: _Quantity | None = None
    prefill_chunk: _Quantity | None = None
    memory_utilization: _Quantity | None = None
    page_tokens: _Quantity | None = None
    cache: CacheSplit | None = None
    speculation: SpeculationTable | None = None
    expert_split: ExpertSplit = "width"
    dtypes: ServingDtypesTable = ServingDtypesTable()
    attention: AttentionTable = AttentionTable()
    compiler: CompilerTable = CompilerTable()


class _Document(_Table):
    """What every job file says, whatever is asked."""

    version: Literal[1]
    model: Annotated[Annotated[str, Tag(_TEXT)] | Annotated[dict[str, Any], Tag(_TABLE)], _TextOrTable]
    hardware: Annotated[Annotated[str, Tag(_TEXT)] | Annotated[HardwareTable, Tag(_TABLE)], _TextOrTable]
    calibration: str | None = None


class JobDocument(_Document):
    """The file of a training job."""

    workload: WorkloadTable
    plan: PlanTable = PlanTable()


class ServingDocument(_Document):
    """The file of a serving job."""

    workload: ServingWorkloadTable
    plan: ServingPlanTable = ServingPlanTable()


AnyDocument: TypeAlias = JobDocument | ServingDocument


_MISSING_FIXES: Mapping[str, str] = {
    "version": "add version = 1 at the top",
    "model": 'add e.g. model = "llama3.1-70b"',
    "hardware": 'say which machine: --on tpu7x:4x4x4, or hardware = "tpu7x:4x4x4" in a job file',
    "hardware.name": 'say which slice: name = "tpu7x:4x4x4"',
    "workload": "say how long a sequence is: --seq-len 8192, or seq_len = 8192 under [workload] in a job file",
    "workload.seq_len": "say how long a sequence is: --seq-len 8192, or seq_len = 8192 under [workload] in a job file",
    "workload.prompt_len": "say how long prompts and replies are: --prompt-len 1024 --generate-len 256, or "
    "prompt_len = 1024 and generate_len = 256 under [workload]",
    "workload.generate_len": "say how long a reply is: --generate-len 256, or generate_len = 256 under [workload]",
    "workload.prefix_cache.hit_rate": "say which part of prompts is cached already: hit_rate = 0.5",
    "plan.lora.rank": "say how wide adapters are: --lora-rank 16, or rank = 16",
    "plan.speculation.draft_tokens": "say how many tokens are drafted a pass: --draft-tokens 3, or draft_tokens = 3",
    "plan.speculation.acceptance": "say how likely a draft is accepted: --acceptance 0.8, or acceptance = 0.8",
}

_OF_SERVING = ("prompt_len", "trace")
"""Keys of a workload that only serving has, and needs."""

_EXPECTED: Mapping[str, str] = {
    "model_type": "a table",
    "dict_type": "a table",
    "list_type": "a list",
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""pydantic's kinds of error in a user's words; its own words do for the rest."""

_ALTERNATIVES: Mapping[str, str] = {
    **dict.fromkeys(("int", "float", "str"), "a number, or text in quotes"),
    _TEXT: "text in quotes, or a table",
}
"""What pydantic adds to the path of a value that may be of several types, and those types in words."""

_TAGS = {*_ALTERNATIVES, _WORD, _NUMBER, _TABLE}
"""All that pydantic adds to a path beside the keys of the file."""


def job_document(tables: Mapping[str, object], *, where: Callable[[str], str]) -> AnyDocument:
    """The document that the tables of a file are: of a serving job where its workload is one.

    Args:
        tables: As TOML gave them.
        where: From a key path (`workload.seq_len`) to where it was written, for error messages.

    Raises:
        InputError: A key is unknown, missing or of the wrong type.
    """
    _check_kind(tables.get("workload"), where)
    document = ServingDocument if is_serving(tables.get("workload")) else JobDocument
    try:
        return document.model_validate(tables)
    except ValidationError as error:
        # A misspelt key is also a missing one; the misspelling is the one to tell.
        findings = sorted(error.errors(include_url=False), key=lambda finding: finding["type"] != "extra_forbidden")
        raise _input_error(findings[0], document, where) from None


def missing(key: str, where: Callable[[str], str]) -> InputError:
    """The error that a key must be said."""
    name = key.rpartition(".")[2]
    fix = _MISSING_FIXES.get(key, f"add {name}")
    return InputError(f"missing {name}", where=where(key), value="(absent)", expected="a value", fix=fix)


def is_serving(workload: object) -> bool:
    """Whether a workload is of serving: by its kind, or where that is not said, by prompts or a trace.

    >>> is_serving({"kind": "serve"}), is_serving({"prompt_len": 1024}), is_serving({"seq_len": 8192})
    (True, True, False)
    """
    said: Mapping[str, object] = cast("Mapping[str, object]", workload) if isinstance(workload, dict) else {}
    return said.get("kind", "serve" if said.keys() & set(_OF_SERVING) else "train") == "serve"


def _check_kind(workload: object, where: Callable[[str], str]) -> None:
    """Refuses a kind that there is not, or that other keys contradict: these would be told as unknown ones."""
    said: Mapping[str, object] = cast("Mapping[str, object]", workload) if isinstance(workload, dict) else {}
    kind, serving = said.get("kind"), [key for key in _OF_SERVING if key in said]
    if not isinstance(kind, str) or kind == "serve" or (kind == "train" and not serving):
        return
    what = "unknown kind of workload" if kind != "train" else f"a workload of training has no {serving[0]}"
    fix = 'use kind = "serve"' if serving or kind.lower() == "serve" else 'use kind = "train", or kind = "serve"'
    raise InputError(what, where=where("workload.kind"), value=kind, expected="train, serve", fix=fix)


def _input_error(finding: ErrorDetails, document: type[AnyDocument], where: Callable[[str], str]) -> InputError:
    """One of pydantic's findings, told as what, where, value, expected, fix."""
    path = [str(step) for step in finding["loc"]]
    keys = [step for step in path if not step.isdigit() and step not in _TAGS]
    key, name = ".".join(keys), keys[-1]
    if finding["type"] == "extra_forbidden":
        known = _keys_of(document, keys[:-1])
        fix = nearest(name, known) or "use one of those, or leave it out"
        return InputError("unknown key", where=where(key), value=name, expected=", ".join(known), fix=fix)
    if finding["type"] == "missing":
        return missing(key, where)
    expected = _EXPECTED.get(finding["type"], finding["msg"].removeprefix("Input should be "))
    if expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    expected = _ALTERNATIVES.get(path[-1], expected)
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    fix = nearest(str(finding["input"]), choices) or f"change {name} to {expected}"
    return InputError(f"wrong value of {name}", where=where(key), value=finding["input"], expected=expected, fix=fix)


def _keys_of(document: type[AnyDocument], path: Sequence[str]) -> tuple[str, ...]:
    """Keys of the table at a path."""
    table: type[BaseModel] = document
    for key in path:
        table = next(_tables_in(table.model_fields[key].annotation))
    return tuple(table.model_fields)


def _tables_in(annotation: object) -> Iterator[type[BaseModel]]:
    if _is_table(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _tables_in(part)


def _is_table(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
