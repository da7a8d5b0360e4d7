"""The plan of a TPU record: precision, remat, kernels and optimizer, in the words of a job file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ridgeline.job.remat import ALIASES, CUSTOM_NAMES, POLICIES
from ridgeline.study.measured.records import number, sequence, table, text, unusable, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.job.job import AttentionProgram, OptimizerKind
    from ridgeline.study.measured.records import Record

Tables = dict[str, object]

_DTYPES: Final[Mapping[str, str]] = {"float32": "f32", "fp32": "f32", "bfloat16": "bf16", "float8_e4m3fn": "fp8"}

_DTYPE_KEYS: Final[Mapping[str, str]] = {
    "compute": "compute",
    "weights": "weights",
    "grads": "gradients",
    "gradients": "gradients",
    "activations": "activations",
}

_OTHER_POLICIES: Final[Mapping[str, str]] = {
    "nothing_saveable": "full",
    "dots_saveable": "minimal",
    "dots_with_no_batch_dims_saveable": "minimal",
    "offload_dots_saveable": "minimal_offloaded",
    "everything_saveable": "none",
    "no": "none",
    "off": "none",
    "disabled": "none",
    "false": "none",
}
"""Policies of `jax.checkpoint`, and words for no remat at all, as the policy that keeps the same values."""

_DEFAULTS: Final[Mapping[str, str]] = {"axlearn": "save_dot_except_mlp"}
"""By framework: the policy of its decoders where the record says `default`; `full` for all others.

AXLearn keeps the projections of attention; MaxText, Levanter and torchprime keep a layer's input.
"""

_ADAM: Final = ("adam", "adamw", "adam_pax", "adam-w", "adamw_pax")
_KINDS: Final[Mapping[str, OptimizerKind]] = {
    "adamh": "adamh",
    "adamh/muonh": "adamh",
    "muon": "muon",
    "muonh": "muonh",
    "adafactor": "adafactor",
}
"""First words of an optimizer's name. Marin's Delphi recipe is AdamH.
Source: marin-community/marin, experiments/scaling_law_sweeps/completed_adamh.py."""

_SPARSE_CORE = re.compile(
    r"--xla_tpu_enable_sparse_core_collective_offload_(all_gather|all_reduce|reduce_scatter)=true"
)
_OFFLOAD_REMARK = re.compile(r"\b(?:SC|SparseCore) offload(?: of)? ((?:AG|AR|RS)(?:\+(?:AG|AR|RS))*)\b")
_FULL_OFFLOAD_REMARK = re.compile(r"\bfull (?:SC|SparseCore) offload\b")
_COLLECTIVES: Final[Mapping[str, str]] = {"AG": "all_gather", "AR": "all_reduce", "RS": "reduce_scatter"}
"""As remarks abbreviate them: SC offload of AR+RS+AG."""

_SCOPED_VMEM = re.compile(r"--xla_tpu_scoped_vmem_limit_kib=(\d+)")
_SPLASH: Final = ("flash", "splash")
_FUSED: Final = ("use_tokamax_splash", "sa_use_fused_bwd_kernel")
_SAY_FUSED: Final = ("tokamax", "fused")
_TILE: Final = 512
"""Queries and keys of a tile in MaxText (`sa_block_q`, `sa_block_kv`), AXLearn and Levanter unless they are told.

Their backward pass is in two kernels unless they are told so (`_FUSED`)."""
_TORCH_TILES: Final[Mapping[str, Mapping[str, int]]] = {
    "splash": {"block_q": 2048, "block_kv": 2048},
    "flash": {"block_q": 2048, "block_kv": 512},
}
"""The same in PyTorch/XLA: of splash, whose backward pass is one kernel (`SplashAttentionConfig`), and of its flash,
which has two. Source: AI-Hypercomputer/torchprime, torchprime/torch_xla_models/attention.py."""
_REDUCED_PARTS: Final = 3
"""What MaxText's `dq_reduction_steps` can be beside 0, which is a part for each tile of keys."""


def plan_tables(record: Record) -> tuple[Tables, tuple[str, ...]]:
    """The `[plan]` of a record but for its mesh and remat policy, and what of it was assumed.

    Raises:
        InputError: A precision is unknown, or a number is malformed.
    """
    recipe, compute = _precision(record)
    dtypes, said = _dtypes(record)
    plan: Tables = {
        "gradient_accumulation": whole(record, "grad_accum") or 1,
        "dtypes": {**dtypes, **({"compute": compute} if compute else {})},
        "optimizer": _optimizer(record),
        "vocab_tiling": whole(record, "num_vocab_tiling") or 1,
        "attention": _attention(
            table(record, "attention") or {"attention": text(record, "attention")}, framework=text(record, "framework")
        ),
        "moe": _experts(table(record, "moe_kernel"), table(record, "sharding")),
        "context": _context(table(record, "sharding")),
        "pipeline": _pipeline(table(record, "framework_args")),
        "compiler": _compiler(record),
    }
    return plan | ({"quantization": recipe} if recipe else {}), said


def remat_table(record: Record) -> tuple[dict[str, str] | None, tuple[str, ...]]:
    """The remat policy of a record, and what of it was assumed; None where the record has none.

    A policy is told by its first words that name one; a framework's `default` is what that framework does.
    """
    remat = record.get("remat")
    stated = table(record, "remat") if not isinstance(remat, str) else {"policy": remat}
    tensors = {name: str(place) for name, place in table(stated, "tensors").items() if name in CUSTOM_NAMES}
    if "policy" not in stated:  # tensors alone, as a custom policy
        tensors |= {name: str(place) for name, place in stated.items() if name in CUSTOM_NAMES}
    policy = text(stated, "policy")
    name = _policy(policy, framework=text(record, "framework"))
    if name is None and not tensors:
        return None, ()
    if tensors and name in {"custom", None}:
        return {"policy": "custom", **tensors}, ()
    if name == "custom":  # without tensors MaxText keeps the layer's input alone
        return {"policy": "full"}, ("remat: full, tensors of the custom policy are not stated",)
    is_named = name in _words(policy)
    return {"policy": str(name)}, () if is_named else (f"remat: {name} for {policy}",)


def not_stated(record: Record) -> str:
    """What of a run no job can say; "" when it is all said."""
    words = text(table(record, "optimizer"), "type").lower().split()
    if not words or words[0] in _ADAM:
        return ""
    if words[0] not in _KINDS:
        return f"no job has the optimizer of this run, {words[0].capitalize()}"
    return "the second moment whole, not factored" if "(no" in words else ""


def _policy(said: str, *, framework: str) -> str | None:
    """The preset that a text names, `custom`, or None."""
    words = _words(said)
    known = {name: ALIASES.get(name, name) for name in (*POLICIES, *ALIASES)} | _OTHER_POLICIES
    if words and words[0] in known:
        return known[words[0]]
    if any(word in {"full", "full_ish", "nothing_saveable"} for word in words):
        return "full"
    if "default" in words:
        first = framework.lower().split()
        return _DEFAULTS.get(first[0] if first else "", "full")
    return next((known[word] for word in words if word in known and word not in {"no", "off", "none"}), None)


def _words(said: str) -> list[str]:
    return [word.strip("(),;:") for word in said.lower().replace("-", "_").split()]


def _precision(record: Record) -> tuple[Tables | None, str | None]:
    """The low-precision recipe, or the compute dtype where it is not bf16."""
    recipe = table(record, "quantization")
    kind = (text(recipe, "quantization") or text(record, "quantization") or text(record, "precision")).lower()
    if "fp8" in kind or "e4m3" in kind or "f8" in kind.split("_"):
        methods = [text(recipe, f"{role}_quantization_calibration_method") for role in ("weight", "act")]
        fixed = any(method.startswith("fixed") for method in methods)
        return {"kind": "fp8", **({"scaling": "fixed"} if fixed else {})}, None
    if "int8" in kind:
        return {"kind": "int8"}, None
    if not kind or "bf16" in kind or "bfloat16" in kind:
        return None, None
    if kind in {"f32", "fp32", "float32"}:
        return None, "f32"
    raise unusable("no recipe of that precision", kind, key="precision")


def _dtypes(record: Record) -> tuple[dict[str, str], tuple[str, ...]]:
    """Dtypes by role; MaxText's defaults, which most frameworks share, where the record has none."""
    dtypes = table(record, "dtypes")
    said = {_DTYPE_KEYS[key]: text(dtypes, key) for key in dtypes if key in _DTYPE_KEYS}
    found = {role: _DTYPES.get(name, name) for role, name in said.items() if name}
    return found, () if dtypes else ("dtypes: f32 weights, gradients and moments",)


def _optimizer(record: Record) -> Tables:
    """The optimizer and its moments.

    Grug's MuonH shares out stacks of experts only where the devices divide them; on more devices than experts every
    device takes all of them, as it does all other matrices.
    Source: Levanter, optim/grugmuon.py (`_batch_sharded_stack_target_pspec`).
    """
    dtypes, optimizer = table(record, "dtypes"), table(record, "optimizer")
    on_host = optimizer.get("memory_host_offload") is True
    words = text(optimizer, "type").lower().split()
    kind: OptimizerKind = _KINDS.get(words[0], "adamw") if words else "adamw"
    is_shared_out = kind != "muonh" or "grug" not in text(record, "framework").lower()
    moments = {"mu_dtype": text(dtypes, "adam_mu"), "nu_dtype": text(dtypes, "adam_nu")}
    return {
        **{key: _DTYPES.get(name, name) for key, name in moments.items() if name},
        **({"state": "host"} if on_host else {}),
        **({"kind": kind} if kind != "adamw" else {}),
        **({} if is_shared_out else {"orthogonalize": "replicated"}),
    }


def _attention(attention: Record, *, framework: str) -> Tables:
    """The kernel and its tiles: as stated, else what the framework runs."""
    name = text(attention, "attention").lower()
    kernel: AttentionProgram | None = None
    if "dot_product" in name:  # first, for a remark beside it may say before which kernel that was
        kernel = "dot_product"
    elif attention.get("use_tokamax_splash") is True or any(word in name for word in _SPLASH):
        is_fused = any(attention.get(key) is True for key in _FUSED) or any(word in name for word in _SAY_FUSED)
        kernel = "splash" if is_fused or ("torch" in framework.lower() and "splash" in name) else "flash"
    tile = {"block_q": "q", "block_kv": "kv"} if kernel in {"splash", "flash"} else {}
    usual = _TORCH_TILES.get(kernel or "", {}) if "torch" in framework.lower() else {}
    sizes = {key: _tile_size(attention, which) or usual.get(key, _TILE) for key, which in tile.items()}
    limit = attention.get("use_max_logit_estimate")
    parts = attention.get("dq_reduction_steps")
    bound = float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) and limit > 0 else None
    return {
        **({"kernel": kernel} if kernel else {}),
        **sizes,
        **({"dq_reduction_steps": parts} if parts == _REDUCED_PARTS else {}),
        **({"max_logit": bound} if bound else {}),
    }


def _tile_size(attention: Record, which: str) -> int:
    """Queries (`q`) or keys (`kv`) of one tile, as MaxText's keys or a remark state it; 0 where nothing does."""
    for key in (f"sa_block_{which}", "sa_block_all"):
        size = attention.get(key)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    said = re.search(rf"\bb{which}(\d+)", text(attention, "attention"))
    return int(said.group(1)) if said else 0


def _experts(moe: Record, sharding: Record) -> Tables:
    """How experts are computed: MaxText's grouped matmul and an all-to-all, unless it is told otherwise."""
    found: Tables = {"exchange": "all_to_all"}
    if isinstance(sharding.get("fsdp_shard_on_exp"), bool):
        found["shard_experts_on_fsdp"] = sharding["fsdp_shard_on_exp"]
    if not moe:
        return found
    if moe.get("sparse_matmul") is False or (moe.get("megablox") is False and "capacity_factor" in moe):
        capacity = number(moe, "capacity_factor")
        return found | {"dispatch": "capacity", **({"capacity_factor": capacity} if capacity else {})}
    return found | {"dispatch": "dropless", "kernel": "ragged_dot" if moe.get("megablox") is False else "gmm"}


def _context(sharding: Record) -> Tables:
    strategy = text(sharding, "context_parallel_strategy")
    balance = sharding.get("context_parallel_load_balance")
    return {
        **({"strategy": strategy} if strategy else {}),
        **({"load_balance": balance} if isinstance(balance, bool) else {}),
    }


def _pipeline(arguments: Record) -> Tables:
    said = {
        "microbatches": whole(arguments, "num_pipeline_microbatches"),
        "repeats": whole(arguments, "num_pipeline_repeats"),
    }
    return {key: value for key, value in said.items() if value}


def _compiler(record: Record) -> Tables:
    """What its flags tell the compiler of which a job knows."""
    flags = " ".join(str(flag) for flag in sequence(record, "xla_flags"))
    vmem = _SCOPED_VMEM.search(flags)
    remarks = "; ".join(str(note) for note in sequence(record, "notes"))
    offloaded = sorted({*_SPARSE_CORE.findall(flags), *_offload_in_remarks(remarks)})
    return {
        **({"scoped_vmem_kib": int(vmem.group(1))} if vmem else {}),
        **({"sparse_core_offload": offloaded} if offloaded else {}),
    }


def _offload_in_remarks(remarks: str) -> Iterator[str]:
    """Collectives that a remark says run on SparseCores, where a source lists no flags."""
    if _FULL_OFFLOAD_REMARK.search(remarks):
        yield from _COLLECTIVES.values()
    for kinds in _OFFLOAD_REMARK.findall(remarks):
        yield from (_COLLECTIVES[kind] for kind in kinds.split("+"))
