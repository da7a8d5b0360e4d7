"""From the `[plan]` of a serving job to what is pinned; and what it shares with that of a training job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError
from ridgeline.job.job import DCN_AXES, RANK_AXES, SERVING_AXES, AttentionKernel, Compiler
from ridgeline.job.mesh import check_batch, check_mesh, parse_mesh
from ridgeline.job.model_path import path_from
from ridgeline.job.precision import parse_dtype, parse_serving_dtype
from ridgeline.job.serving import MTP, ServingDtypes, ServingPlan, Speculation
from ridgeline.model.kind import model_kind
from ridgeline.model.zoo import resolve_model
from ridgeline.units import parse_fraction, parse_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.chip import Chip
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.document import CompilerTable, ServingPlanTable, SpeculationTable
    from ridgeline.job.job import Dtype
    from ridgeline.job.origin import Origin
    from ridgeline.job.serving import Mode
    from ridgeline.model.spec import ModelSpec

_MOST = 1e9
_MOST_DRAFTS: Final = 64

ANY: Final = "any"
"""The precision that is left to the planner."""

_PADDED_TOKENS: Final = 1024
"""Tokens by which vocabularies of one family may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a plan is asked for.

    Attributes:
        model: The model to be served.
        hardware: The slice of one server.
        folder: What a relative path of a model counts from.
    """

    model: ModelSpec
    hardware: Slice
    folder: str


def serving_plan(table: ServingPlanTable, batch: int | None, asked: Asked, origin: Origin) -> ServingPlan:
    """What is pinned: each mesh fills the slice and shares out the sequences that it is given.

    Args:
        table: Of the right shape.
        batch: Sequences that are decoded at once; None where it is open.
        asked: The model and the slice that it is a plan of.
        origin: Where its values were written, for error messages.
    """
    plan = ServingPlan(
        prefill=parse_mesh(table.prefill, where=origin.of("plan.prefill"), axes=SERVING_AXES),
        decode=parse_mesh(table.decode, where=origin.of("plan.decode"), axes=SERVING_AXES),
        mode=table.mode,
        server_ratio=_server_ratio(table.server_ratio, origin.of("plan.server_ratio")),
        prefill_batch=_whole(table.prefill_batch, "plan.prefill_batch", "sequences", origin),
        prefill_chunk=_whole(table.prefill_chunk, "plan.prefill_chunk", "tokens", origin),
        memory_utilization=_memory_utilization(table.memory_utilization, origin.of("plan.memory_utilization")),
        page_tokens=_whole(table.page_tokens, "plan.page_tokens", "tokens", origin),
        cache=table.cache,
        speculation=_speculation(table.speculation, asked, origin),
        expert_split=table.expert_split,
        dtypes=_serving_dtypes(table, asked, origin),
        open_dtypes=tuple(key for key, name in _named_dtypes(table).items() if name == ANY and key != "experts"),
        attention=AttentionKernel(**table.attention.model_dump()),
        compiler=compiler_settings(table.compiler),
    )
    _check_phase(plan.prefill, asked.hardware, origin.of("plan.prefill"))
    _check_phase(plan.decode, asked.hardware, origin.of("plan.decode"))
    _check_shares(plan.prefill_batch, plan.prefill, origin.of("plan.prefill_batch"))
    _check_shares(batch, plan.decode, origin.of("workload.batch"))
    _check_mode(plan, origin)
    return plan


def _serving_dtypes(table: ServingPlanTable, asked: Asked, origin: Origin) -> ServingDtypes:
    """What is said; else as the checkpoint is published, unless the weights are said: then it is another checkpoint."""
    said: dict[str, Dtype] = {
        key: _computed(dtype) if key == "compute" else dtype
        for key, name in _named_dtypes(table).items()
        if name != ANY or key == "experts"
        for dtype in (parse_serving_dtype(name, where=origin.of(f"plan.dtypes.{key}")),)
    }
    if "experts" in said and model_kind(asked.model) not in {"moe", "mla_moe"}:
        raise InputError(
            f"{asked.model.name} has no experts",
            where=origin.of("plan.dtypes.experts"),
            value=said["experts"],
            expected="a mixture of experts",
            fix="leave it out: weights says what all matrices are stored in",
        )
    usual = ServingDtypes() if "weights" in said else published_dtypes(asked.model, asked.hardware.chip)
    return replace(usual, **said)


def _computed(dtype: Dtype) -> Dtype:
    """Chips have one rate for all formats of 4 bits."""
    return "fp4" if dtype == "mxfp4" else dtype


def published_dtypes(model: ModelSpec, chip: Chip) -> ServingDtypes:
    """Weights as the model's checkpoint is published; matmuls in its narrow format where the chip has it, else in bf16.

    Source: vLLM 0.32.0, layers/quantization: where a GPU has no matmul of a format, Marlin kernels read weights as they
    are stored and widen them.

    >>> from ridgeline.hardware.catalog import load_chip
    >>> from ridgeline.model.zoo import load_model
    >>> published_dtypes(load_model("deepseek-v3"), load_chip("a100-80gb"))
    ServingDtypes(weights='fp8', kv_cache='bf16', compute='bf16', experts=None)
    """
    stored = model.stored
    if stored is None:
        return ServingDtypes()
    return ServingDtypes(
        weights=stored.weights,
        kv_cache=stored.kv_cache or "bf16",
        compute=stored.compute if stored.compute in chip.peak_flops_per_s else "bf16",
        experts=stored.experts,
    )


def _named_dtypes(table: ServingPlanTable) -> dict[str, str]:
    return table.dtypes.model_dump(exclude_none=True)


def parse_dtypes(names: Mapping[str, str], key: str, origin: Origin) -> dict[str, Dtype]:
    """The dtypes of a table, by their keys in it."""
    return {field: parse_dtype(name, where=origin.of(f"{key}.{field}")) for field, name in names.items()}


def compiler_settings(table: CompilerTable) -> Compiler:
    """What the compiler is told."""
    return Compiler(
        scoped_vmem_kib=table.scoped_vmem_kib,
        sparse_core_offload=tuple(table.sparse_core_offload),
        kernel_launch=table.kernel_launch,
        collective_matmul=table.collective_matmul,
    )


def _whole(value: str | float | None, key: str, unit: str, origin: Origin) -> int | None:
    if value is None:
        return None
    return parse_whole(value, where=origin.of(key), unit=unit, most=_MOST)


def _server_ratio(text: str | None, where: str) -> tuple[int, int] | None:
    """`1:3` as prefill servers and decode servers, in lowest terms."""
    if text is None:
        return None
    readers, colon, writers = text.partition(":")
    if not (colon and readers.strip().isdecimal() and writers.strip().isdecimal() and int(readers) * int(writers)):
        expected = "prefill servers and decode servers, as in 1:3"
        raise InputError("malformed ratio of servers", where=where, value=text, expected=expected, fix="write 1:3")
    common = gcd(int(readers), int(writers))
    return int(readers) // common, int(writers) // common


def _memory_utilization(value: str | float | None, where: str) -> float | None:
    if value is None:
        return None
    share = parse_fraction(value, where=where)
    if share == 0:
        expected = "more than 0, at most 1"
        fix = "write 0.9, or leave it out"
        raise InputError("an engine without memory", where=where, value=value, expected=expected, fix=fix)
    return share


def _speculation(table: SpeculationTable | None, asked: Asked, origin: Origin) -> Speculation | None:
    """What is drafted ahead, and by which model."""
    if table is None:
        return None
    reference, where = table.draft_model, origin.of("plan.speculation.draft_model")
    if reference == MTP and not asked.model.mtp_layers:
        raise InputError(
            f"{asked.model.name} has no heads for further tokens",
            where=where,
            value=reference,
            expected="a model with multi-token-prediction layers, or a draft model",
            fix="name a draft model, e.g. llama3.2-1b, or leave it out where looking up words drafts",
        )
    drafter = None
    if reference is not None and reference != MTP:
        reference = path_from(reference, "." if origin.gives("plan.speculation.draft_model") else asked.folder)
        drafter = resolve_model(reference, where=where)
        _check_vocabulary(drafter, asked.model, where)
    return Speculation(
        draft_tokens=parse_whole(
            table.draft_tokens, where=origin.of("plan.speculation.draft_tokens"), unit="tokens", most=_MOST_DRAFTS
        ),
        acceptance_fraction=parse_fraction(table.acceptance, where=origin.of("plan.speculation.acceptance")),
        draft_model=reference,
        drafter=drafter,
    )


def _check_vocabulary(drafter: ModelSpec, model: ModelSpec, where: str) -> None:
    """Refuses a draft model whose tokens are not the model's; a few more or fewer are padding."""
    if abs(drafter.vocab_size - model.vocab_size) > _PADDED_TOKENS:
        raise InputError(
            f"{drafter.name} has another vocabulary than {model.name}",
            where=where,
            value=f"{drafter.vocab_size:,} tokens",
            expected=f"{model.vocab_size:,} tokens",
            fix="name a smaller model of the same family",
        )


def _check_mode(plan: ServingPlan, origin: Origin) -> None:
    """Refuses what only the other kind of servers has."""
    own: Mapping[Mode, tuple[str, ...]] = {
        "interleaved": ("prefill_chunk",),
        "disaggregated": ("server_ratio", "prefill_batch"),
    }
    said: dict[str, Mode] = {key: mode for mode, keys in own.items() for key in keys if getattr(plan, key) is not None}
    if plan.mode == "interleaved" and plan.prefill and plan.decode and plan.prefill != plan.decode:
        said["decode"] = "disaggregated"
    mode = plan.mode or next(iter(said.values()), None)
    for key, needed in said.items():
        if needed != mode:
            raise InputError(
                f"{key} is of {needed} servers only",
                where=origin.of(f"plan.{key}"),
                value=getattr(plan, key),
                expected=f"{needed} servers; these are {mode}",
                fix=f'leave it out, or ask for mode = "{needed}"',
            )


def check_one_slice(hardware: Slice, *, where: str) -> None:
    """Refuses several slices joined by DCN: no server spans them, and each would be paid for.

    Raises:
        InputError: There are several.
    """
    if hardware.num_slices > 1:
        one = replace(hardware, num_slices=1, dcn=None).name
        raise InputError(
            "a server is one slice",
            where=where,
            value=hardware.name,
            expected="one slice",
            fix=f"write {one}; further slices are further servers, as many as --rate needs",
        )


def _check_phase(mesh: Mapping[str, int], hardware: Slice, where: str) -> None:
    """Refuses a mesh that does not fill the slice, or that reaches beyond it."""
    across = ", ".join(axis for axis in DCN_AXES if axis in mesh)
    if across:
        raise InputError(
            "a server is one slice",
            where=where,
            value=across,
            expected="axes inside a slice",
            fix=f"leave {across} out; further slices are further servers",
        )
    check_mesh(mesh, hardware, where=where)


def _check_shares(batch: int | None, mesh: Mapping[str, int], where: str) -> None:
    """Refuses sequences that the batch axes cannot share out evenly."""
    if batch is not None:
        check_batch(batch, mesh, gradient_accumulation=1, where=where, where_accumulation=where, axes=RANK_AXES)
