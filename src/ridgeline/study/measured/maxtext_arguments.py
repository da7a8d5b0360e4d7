"""What a record leaves out and MaxText's arguments say: the same configuration, in the words of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.job.mesh import FREE
from ridgeline.job.remat import CUSTOM_NAMES
from ridgeline.study.measured.records import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.study.measured.records import Record

_KEYS: Final[Mapping[str, str]] = {
    "model": "model_name",
    "per_device_batch": "per_device_batch_size",
    "seq_len": "max_target_length",
    "grad_accum": "gradient_accumulation_steps",
    "num_vocab_tiling": "num_vocab_tiling",
}
"""MaxText's names of a record's keys."""

_DTYPES: Final[Mapping[str, str]] = {
    "compute": "dtype",
    "weights": "weight_dtype",
    "grads": "grad_dtype",
    "adam_mu": "mu_dtype",
}
_PARALLELISM: Final = "_parallelism"
_EXPERTS: Final = ("megablox", "sparse_matmul", "capacity_factor")


def with_arguments(record: Record) -> Record:
    """A record with what it does not state itself taken from its `framework_args`, where it has them."""
    arguments = table(record, "framework_args")
    if not arguments:
        return record
    told: dict[str, object] = {key: arguments.get(name) for key, name in _KEYS.items()}
    told["dtypes"] = {role: arguments[name] for role, name in _DTYPES.items() if arguments.get(name)}
    told["quantization"] = {key: value for key, value in arguments.items() if "quantization" in key}
    told["attention"] = {key: value for key, value in arguments.items() if key.startswith(("sa_", "attention", "use_"))}
    told["moe_kernel"] = {key: arguments[key] for key in _EXPERTS if key in arguments}
    told["remat"] = _remat(arguments)
    told["sharding"] = _sharding(arguments)
    stated = {key: value for key, value in record.items() if value not in (None, "", {}, [])}
    return {key: value for key, value in told.items() if value not in (None, "", {}, [])} | stated


def _remat(arguments: Record) -> dict[str, object]:
    """The policy, `full` unless it is named; tensors belong to a custom one alone."""
    policy = arguments.get("remat_policy", "full")
    tensors = {name: arguments[name] for name in CUSTOM_NAMES if name in arguments}
    return {"policy": policy, **({"tensors": tensors} if policy == "custom" else {})}


def _sharding(arguments: Record) -> dict[str, object]:
    """Degrees inside a slice and across; `fsdp` takes the rest of a slice unless another axis does."""
    levels: dict[str, object] = {}
    for level in ("ici", "dcn"):
        levels[level] = {
            name.removeprefix(f"{level}_").removesuffix(_PARALLELISM): degree
            for name, degree in arguments.items()
            if name.startswith(f"{level}_") and name.endswith(_PARALLELISM)
        }
    inside = table(levels, "ici")
    if str(FREE) not in map(str, inside.values()):
        levels["ici"] = {"fsdp": FREE, **inside}
    other = ("fsdp_shard_on_exp", "context_parallel_strategy", "context_parallel_load_balance")
    return levels | {key: arguments[key] for key in other if key in arguments}
