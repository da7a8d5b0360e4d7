"""From the tables of a serving job to its workload and plan; and what they share with those of a training job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.job.job import DCN_AXES, AttentionKernel, Compiler
from ridgeline.job.mesh import check_batch, check_mesh, parse_mesh
from ridgeline.job.precision import parse_dtype, parse_serving_dtype
from ridgeline.job.serving import ServingDtypes, ServingPlan, ServingWorkload
from ridgeline.units import parse_count, parse_duration, parse_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.hardware.slice import Slice
    from ridgeline.job.document import CompilerTable, ServingPlanTable, ServingWorkloadTable
    from ridgeline.job.job import Dtype
    from ridgeline.job.origin import Origin

_MOST_TOKENS_OF_A_SEQUENCE = 1e9
_MOST_SEQUENCES = 1e9


def serving_workload(table: ServingWorkloadTable, origin: Origin) -> ServingWorkload:
    """What is to be served; lengths and limits in numbers."""
    rate = table.rate
    if rate is not None:
        rate = parse_count(rate, where=origin.of("workload.rate"), unit="requests a second")
    return ServingWorkload(
        prompt_len=_tokens(table.prompt_len, "prompt_len", origin),
        generate_len=_tokens(table.generate_len, "generate_len", origin),
        batch=_sequences(table.batch, "workload.batch", origin),
        rate=None if rate is None else _more_than_nothing(rate, "rate", origin),
        ttft_s=_limit_s(table.ttft_s, "ttft_s", origin),
        tpot_s=_limit_s(table.tpot_s, "tpot_s", origin),
    )


def serving_plan(table: ServingPlanTable, batch: int | None, hardware: Slice, origin: Origin) -> ServingPlan:
    """What is pinned: each mesh fills the slice and shares out the sequences that it is given."""
    plan = ServingPlan(
        prefill=parse_mesh(table.prefill, where=origin.of("plan.prefill")),
        decode=parse_mesh(table.decode, where=origin.of("plan.decode")),
        prefill_batch=_sequences(table.prefill_batch, "plan.prefill_batch", origin),
        dtypes=ServingDtypes(**_serving_dtypes(table, origin)),
        attention=AttentionKernel(**table.attention.model_dump()),
        compiler=compiler_settings(table.compiler),
    )
    _check_phase(plan.prefill, hardware, origin.of("plan.prefill"))
    _check_phase(plan.decode, hardware, origin.of("plan.decode"))
    _check_shares(plan.prefill_batch, plan.prefill, origin.of("plan.prefill_batch"))
    _check_shares(batch, plan.decode, origin.of("workload.batch"))
    return plan


def _serving_dtypes(table: ServingPlanTable, origin: Origin) -> dict[str, Dtype]:
    names: dict[str, str] = table.dtypes.model_dump(exclude_none=True)
    return {key: parse_serving_dtype(name, where=origin.of(f"plan.dtypes.{key}")) for key, name in names.items()}


def parse_dtypes(names: Mapping[str, str], key: str, origin: Origin) -> dict[str, Dtype]:
    """The dtypes of a table, by their keys in it."""
    return {field: parse_dtype(name, where=origin.of(f"{key}.{field}")) for field, name in names.items()}


def compiler_settings(table: CompilerTable) -> Compiler:
    """What the compiler is told."""
    return Compiler(
        scoped_vmem_kib=table.scoped_vmem_kib,
        sparse_core_offload=tuple(table.sparse_core_offload),
        kernel_launch=table.kernel_launch,
    )


def _tokens(value: str | float, key: str, origin: Origin) -> int:
    return parse_whole(value, where=origin.of(f"workload.{key}"), unit="tokens", most=_MOST_TOKENS_OF_A_SEQUENCE)


def _sequences(value: str | float | None, key: str, origin: Origin) -> int | None:
    if value is None:
        return None
    return parse_whole(value, where=origin.of(key), unit="sequences", most=_MOST_SEQUENCES)


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
        check_batch(batch, mesh, gradient_accumulation=1, where=where, where_accumulation=where)


def _limit_s(value: str | float | None, key: str, origin: Origin) -> float | None:
    if value is None:
        return None
    return _more_than_nothing(parse_duration(value, where=origin.of(f"workload.{key}")), key, origin)


def _more_than_nothing(value: float, key: str, origin: Origin) -> float:
    if value <= 0:
        raise InputError(
            f"{key} must be more than zero",
            where=origin.of(f"workload.{key}"),
            value=value,
            expected="more than 0",
            fix=f"give a larger number, or leave {key} out",
        )
    return value
