"""Training: what a scheme moves, critical batches, splits, memory, time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NAMES = {
    "alpha": "alpha_flops_per_byte",
    "alpha_used": "alpha_flops_per_byte",
    "C": "C_flops_per_s",
    "W": "W_ici_bytes_per_s",
    "W_ici": "W_ici_bytes_per_s",
    "W_hbm": "W_hbm_bytes_per_s",
    "W_dcn": "W_dcn_bytes_per_s",
    "W_dcn_chip": "W_dcn_bytes_per_s",
    "W_dcn_per_chip": "W_dcn_bytes_per_s",
    "W_host": "W_host_bytes_per_s",
    "chips_per_host": "num_chips_per_host",
    "n_axes": "n_axes",
    "Mx": "M_X",
    "My": "M_Y",
    "M_X": "M_X",
    "M_Y": "M_Y",
    "MxMy": "M_X",
    "overlapped": "overlapped",
    "F": "F",
    "D": "D",
    "L": "L",
    "E": "E",
    "k": "k",
    "X": "X",
    "Y": "Y",
    "mult": "mlp_ratio",
    "N": "N",
    "chips": "num_chips",
    "n_chips": "num_chips",
    "num_chips": "num_chips",
    "pods": "num_slices",
    "slices": "num_slices",
    "B": "B_tokens",
    "batch": "batch_tokens",
    "batches": "batch_tokens",
    "batch_tokens": "batch_tokens",
    "tokens": "batch_tokens",
    "seq": "T",
    "seq_len": "T",
    "sequences": "num_sequences",
    "tokens_per_chip": "tokens_per_chip",
    "mixed": "mixed_critical_tokens_per_chip",
    "fsdp": "fsdp_critical_tokens_per_chip",
    "hbm": "hbm_bytes",
    "state": "state_bytes",
    "P": "P",
    "params": "P",
    "bpe": "b_a",
    "nodes": "num_stream_saved",
    "ckpts": "num_stream_saved",
    "checkpoints": "num_stream_saved",
    "matmuls": "num_stream_saved",
    "saved": "num_stream_saved",
    "total": "held_bytes",
    "mfu": "mfu",
    "flops": "run_flops",
    "dp": "capped_data_degree",
    "sp": "context_degree",
    "tp": "rounded_tensor_degree",
    "active": "P_active",
    "C_sparse": "sparse_flops_per_s",
    "sparsity": "sparsity_factor",
    "stage": "stage",
    "zero_stage": "stage",
    "kappa": "kappa",
    "stages": "num_stages",
    "num_stages": "num_stages",
    "pp": "num_stages",
    "microbatches": "num_microbatches",
    "num_microbatches": "num_microbatches",
    "repeats": "num_repeats",
}
"""What an item calls a quantity of the laws."""

MLP_OUTPUTS = {"num_stream_saved": 1, "num_mlp_saved": 2}
"""The outputs of the three matmuls of a gated MLP: one as wide as the stream, two as the MLP."""

BOUND = ("sequences_suffice", "mixed_is_compute_bound", "fsdp_is_compute_bound", "tensor_is_compute_bound")

BATCH = {
    "threshold": ("mixed_critical_tokens_per_chip", "fsdp_critical_tokens_per_chip"),
    "thresholds": ("fsdp_critical_tokens_per_chip",),
    "tokens_per_chip": ("tokens_per_chip", "mixed_critical_tokens_per_chip", "fsdp_critical_tokens_per_chip"),
    "tokens_per_pod": ("fsdp_critical_tokens",),
    "same_as_dp": ("fsdp_matches_dp",),
    "bound": ("mixed_critical_tokens_per_chip",),
    "B_crit": ("mixed_critical_tokens", "fsdp_critical_tokens"),
    "B_crit_plot": ("mixed_critical_tokens",),
    "ici": ("alpha_flops_per_byte",),
    "dcn": ("dcn_flops_per_byte",),
    "alpha": ("alpha_flops_per_byte",),
    "ok": BOUND,
    "compute_bound": BOUND,
    "fsdp_ok": ("fsdp_is_compute_bound",),
    "mixed_ok": ("mixed_is_compute_bound",),
}

FSDP = {
    "threshold": ("fsdp_critical_tokens_per_chip",),
    "ok": ("fsdp_is_compute_bound",),
    "compute_bound": ("fsdp_is_compute_bound",),
    "chips": ("num_fsdp_chips",),
    "ratio": ("fsdp_compute_ratio",),
}
"""The same where the sentence names FSDP alone."""

PLAN = BATCH | {
    "ratio": ("mixed_compute_ratio", "fsdp_compute_ratio", "tensor_compute_ratio"),
    "math_over_comms_max": ("mixed_compute_ratio",),
    "tokens": ("memory_critical_tokens_per_chip",),
    "chips": ("num_fsdp_chips", "num_mixed_chips"),
    "max_chips": ("num_fsdp_chips", "num_mixed_chips"),
    "pods": ("num_fsdp_slices",),
    "pod_fraction": ("num_fsdp_slices",),
    "chips_at_2M": ("num_mixed_chips",),
    "Y_max": ("tensor_largest_degree",),
    "ways": ("tensor_largest_degree",),
    "Y_per_axis": ("tensor_whole_degree",),
    "X_opt": ("optimal_data_degree",),
    "Y_opt": ("optimal_tensor_degree",),
    "X": ("rounded_data_degree",),
    "Y": ("rounded_tensor_degree",),
    "mixed_compute_bound_from": ("split_critical_tokens",),
    "fsdp_better_above": ("fsdp_overtakes_tokens",),
    "sequences": ("num_sequences",),
    "max_ways": ("sequence_limited_degree",),
    "slice_hbm": ("slice_hbm_bytes",),
    "dp_fits": ("replica_fits",),
    "fits": ("run_fits", "replica_fits"),
    "dcn_ok": ("dcn_is_hidden",),
    "mem_per_chip": ("chip_held_bytes",),
    "per_pod_batch": ("B_tokens",),
    "mixed_threshold_sum": ("mixed_critical_tokens_per_chip",),
    "math_over_comms_sum": ("mixed_compute_ratio",),
    "math_over_comms": ("mixed_compute_ratio",),
    "dp": ("capped_data_degree",),
    "sp": ("context_degree",),
    "tp": ("rounded_tensor_degree",),
    "total": ("num_layout_chips",),
    "bubble": ("bubble_ratio",),
    "bubble_ratio": ("bubble_ratio",),
    "fraction": ("bubble_fraction", "num_fsdp_slices"),
    "bubble_fraction": ("bubble_fraction",),
    "bytes_per_chip": ("chip_held_bytes",),
}

OVERLAPPED = {"overlapped", "tokens_per_chip_max", "mixed_threshold_max"}
"""Keys by which an item asks for overlapped communication beside the sum."""

AT_ONCE = {"overlapped": True}

ALONE = {"num_chips": 1, "mfu": 1}
"""One chip at its peak."""

ONCE = {"same_as_dp", "depends_on_batch", "typical"}
"""Answers that are one for all variants."""


@adapter("training.critical_batch", "training.dcn")
def critical_batch(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    axes = {} if "F" in inputs else {"n_axes": inputs.get("n_axes", 1)}
    laws = _laws(inputs, {"pod": "N", "chips": "N"}, **(axes | _overlap(inputs, wanted)))
    answers = _picked(laws, BATCH, wanted) | _picked(
        laws,
        {
            "hosts": ("num_hosts",),
            "W_pod": ("slice_dcn_bytes_per_s",),
            "C_pod": ("slice_flops_per_s",),
            "min_batch_per_pod": ("dcn_critical_tokens",),
            "min_batch_per_slice": ("dcn_critical_tokens",),
        },
        wanted,
    )
    for key in {"overlapped", "tokens_per_chip_max", "mixed_threshold_max"}.intersection(wanted):
        answers[key] = _laws(inputs, {}, overlapped=True)[0]["mixed_critical_tokens_per_chip"]
    if "same" in wanted:
        at_bound = _laws(inputs, {}, B_tokens=laws[0]["mixed_critical_tokens"])
        answers["same"] = at_bound[0]["compute_bound_split_exists"]
    return answers


@adapter("training.plan")
def plan(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    pod = "N" if "pods" in inputs else "num_chips_per_pod"
    saved = MLP_OUTPUTS if "mult" in inputs else {}
    axes = {"n_axes": inputs.get("n_axes", 3), "n_tensor_axes": inputs.get("n_axes", 1)}
    laws = _laws(inputs, {"pod": pod}, **(axes | saved))
    answers = _picked(laws, PLAN | FSDP if _scheme(inputs["setup"]) == "fsdp" else PLAN, wanted)
    if "scheme" in wanted:
        answers["scheme"] = laws[0].layout
    if "choice" in wanted:
        answers["choice"] = _one_or_all([each.choice for each in laws])
    if "depends_on_batch" in wanted:
        answers["depends_on_batch"] = laws[0].depends("tensor_largest_degree", on="B_tokens")
    if "typical" in wanted:
        answers["typical"] = laws[0].usual_tensor_degrees
    if "mixed_threshold_max" in wanted:
        at_once = _laws(inputs, {"pod": pod}, overlapped=True)
        answers["mixed_threshold_max"] = at_once[0]["mixed_critical_tokens_per_chip"]
    if "days_comms_limited" in wanted:
        answers["days_comms_limited"] = ridgeline.duration_in(laws[0]["communicating_run_s"], "days")
    for key in wanted:
        if key.startswith("days_") and key.removeprefix("days_").isdigit():
            answers[key] = _days(inputs, {"pod": pod}, mfu=f"0.{key.removeprefix('days_')}")
        if key.startswith(("ok", "F_needed_")) and key != "ok":
            answers[key] = _tensor_limit(inputs, key)
        if key.startswith("batch_for_"):
            answers[key] = _laws(inputs, {}, N=key.removeprefix("batch_for_"))[0]["mixed_critical_tokens"]
    return answers


@adapter("training.memory")
def memory(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    saved = MLP_OUTPUTS if {"mult", "F"} & {*inputs} else {}
    if {"nodes", "ckpts", "checkpoints", "matmuls", "saved"} & {*inputs}:
        saved = {}
    names = {"K": "kappa", "Nd": "X", "N_d": "X", "B": "batch_tokens", "N": "num_chips"}
    if {"stage", "zero_stage"} & {*inputs} and not {"X", "Nd", "N_d"} & {*inputs}:
        names = names | {"N": "X", "chips": "X", "n_chips": "X", "num_chips": "X", "dp": "X"}
    laws = _laws(inputs, names, **saved)
    answers = _picked(
        laws,
        {
            "bytes": ("saved_bytes",),
            "activations": ("saved_bytes",),
            "ckpt_bytes": ("saved_bytes",),
            "state": ("state_bytes",),
            "params_bytes": ("weight_bytes",),
            "opt_bytes": ("optimizer_bytes",),
            "grad_bytes": ("gradient_bytes",),
            "total": ("held_bytes",),
            "chips": ("num_memory_chips",),
            "min_chips": ("num_whole_memory_chips",),
            "per_chip": ("chip_held_bytes", "zero_bytes"),
            "bytes_per_chip": ("chip_held_bytes", "zero_bytes"),
            "fits": ("run_fits", "replica_fits"),
            "dp_fits": ("replica_fits",),
            "max_params": ("num_replica_parameters",),
            "P_max": ("num_replica_parameters",),
            "params": ("num_replica_parameters",),
        },
        wanted,
    )
    for key, stage in (("baseline", 0), ("zero1", 1), ("zero2", 2), ("zero3", 3)):
        if key in wanted:
            answers[key] = _laws(inputs, names, stage=stage)[0]["zero_bytes"]
    parts = {name: value for name, value in inputs.items() if name != "total"}
    for key in wanted:
        if key.startswith("per_chip_"):
            saving = _laws(parts, names, num_stream_saved=key.removeprefix("per_chip_"))
            answers[key] = saving[0]["chip_held_bytes"]
        if key.startswith("ckpt_bytes_as_printed_"):
            saving = _laws(parts, names, num_stream_saved=key.removeprefix("ckpt_bytes_as_printed_"))
            answers[key] = saving[0]["saved_bytes"]
    return answers


@adapter("training.time", "training.mfu")
def time(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    names = {"tokens": "run_tokens", "params": "P_active", "pod": "N" if "pods" in inputs else "num_chips_per_pod"}
    rates = {"W_dcn_bytes_per_s": ridgeline.chips("v5p").network_bytes_per_s} if "dcn_ok" in wanted else {}
    spent = {"chip_s": f"{inputs['hours']}h"} if "hours" in inputs else {}
    if "days_pod" in inputs:
        return _rescaled(inputs, wanted)
    laws = _laws(inputs, names, **(rates | spent))
    answers = _picked(
        laws,
        {
            "flops": ("run_flops",),
            "chips": ("num_fsdp_chips", "num_chips"),
            "pods": ("num_fsdp_slices",),
            "per_pod_batch": ("B_tokens",),
            "dcn_ok": ("dcn_is_hidden",),
            "t": ("run_s", "token_on_one_chip_s"),
            "C": ("C_flops_per_s",),
            "available": ("available_flops",),
            "used": ("run_flops",),
            "utilization": ("mfu",),
            "mfu": ("mfu",),
            "steps": ("num_steps",),
        },
        wanted,
    )
    for key in wanted:
        if key in {"days", "years"}:
            run = _laws(inputs, names, **_left_open(inputs, laws))[0]
            answers[key] = ridgeline.duration_in(run["run_s"], key)
        if key.startswith("days_") and key.removeprefix("days_").isdigit():
            answers[key] = _days(inputs, names, mfu=f"0.{key.removeprefix('days_')}")
        if key == "days_at_peak":
            answers[key] = ridgeline.duration_in(laws[0]["peak_run_s"], "days")
    return answers


@adapter("training.remat")
def remat(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    letters = {name: value for name, value in inputs.items() if name in {"L", "D", "F", "N", "K", "H"}}
    count = ridgeline.transformer(letters, seq_len=inputs["T"], num_sequences=inputs["B"])
    projections = count.remat["minimal"]
    found = {"extra": projections.recomputed_flops, "bytes": projections.saved_bytes}
    return {key: found[key] for key in wanted if key in found}


LAYER = {name: name for name in ("D", "F", "X", "Y", "M_X", "M_Y", "gated", "b_a", "b_w")} | {
    "B": "B_tokens",
    "tokens": "B_tokens",
    "batch": "B_tokens",
    "C": "C_flops_per_s",
    "W": "W_ici_bytes_per_s",
    "W_ici": "W_ici_bytes_per_s",
    "Mx": "M_X",
    "My": "M_Y",
}
"""What an item calls a number of the layer or the machine."""

SCHEMES = (
    ("mixed", "mixed", ""),
    ("mixed", "fsdp", "tp"),
    ("fsdp", "fsdp", ""),
    ("fsdp", "zero-3", ""),
    ("tp", "tp", ""),
    ("tp", "tensor", ""),
    ("dp", "", ""),
)
"""A scheme and the words that name it; the first whose words are all there."""


@adapter("training.comms")
def comms(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
    if "alpha" in inputs:
        laws = _laws(inputs, {})
        return _picked(
            laws,
            {
                "tp_only": ("tensor_compute_ratio",),
                "fsdp_one": ("fsdp_critical_tokens_per_chip",),
                "mixed_one": ("mixed_critical_tokens_per_chip",),
                "fsdp_beats_mixed": ("fsdp_overtakes_tokens_per_chip",),
                "ratio": ("mixed_compute_ratio", "fsdp_compute_ratio", "tensor_compute_ratio"),
                "math_over_comms": ("mixed_compute_ratio",),
                "threshold": ("mixed_critical_tokens_per_chip", "fsdp_critical_tokens_per_chip"),
                "X_opt": ("optimal_data_degree",),
            },
            wanted,
        )
    sizes = {LAYER[name]: value for name, value in inputs.items() if name in LAYER}
    sizes = sizes | ({"b_a": inputs["bpe"], "b_w": inputs["bpe"]} if "bpe" in inputs else {})
    scheme = str(inputs.get("scheme", _scheme(inputs["setup"]))).lower()
    axes = {"M_X": inputs["n_axes"], "M_Y": inputs["n_axes"]} if "n_axes" in inputs else {}
    answer = ridgeline.layer_communication(scheme, **(axes | sizes))
    found = {
        "forward": answer.schedule["forward"],
        "backward": answer.schedule["backward"],
        "critical_path": answer.critical_path,
        "n_collectives": answer.num_collectives,
        "flops": answer.flops,
        "bytes": answer.table_bytes,
        "bytes_by_the_listed_algorithm": answer.listed_bytes,
    }
    if answer.forward is None:
        return {key: found[key] for key in wanted if key in found}
    forward, backward = answer.forward, answer.backward
    asked = backward if scheme == "dp" else forward  # data parallelism communicates in the backward pass alone
    passes = {
        "t_math": asked.math_s,
        "t_fsdp": asked.weights_s,
        "t_tp": asked.activations_s,
        "t_comms": asked.moves_s,
        "bound": asked.summed_bound,
        "bound_sum": asked.summed_bound,
        "bound_max": asked.overlapped_bound,
        "fwd_flops": forward.flops,
        "fwd_bytes": forward.moved_bytes,
        "bwd_flops": backward.flops,
        "bwd_bytes": backward.moved_bytes,
    }
    return {key: (found | passes)[key] for key in wanted if key in found | passes}


def _scheme(setup: str) -> str:
    """The scheme that the sentence names."""
    words = ["", *setup.lower().replace("+", " ").replace(",", " ").split()]
    found, *_ = [scheme for scheme, one, other in SCHEMES if one in words and other in words]
    return found


def _overlap(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, bool]:
    """The switch, where the sentence has the communications of both axes at once and no key asks for that beside it."""
    sentence = inputs["setup"].lower()
    if "not overlapped" in sentence or "un-overlapped" in sentence or "overlapped" not in sentence:
        return {}
    return {} if OVERLAPPED & {*inputs, *wanted} else AT_ONCE


def _laws(inputs: Mapping[str, Any], names: Mapping[str, str], **more: float | str) -> list[Any]:
    """What the laws say of each variant: one for each entry of the inputs that are lists."""
    known = NAMES | names
    given = {known[name]: value for name, value in inputs.items() if name in known} | more
    lists = {name: values for name, values in given.items() if isinstance(values, list)}
    if not lists:
        return [ridgeline.training_laws(**given)]
    variants = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    return [ridgeline.training_laws(**(given | variant)) for variant in variants]


def _picked(laws: list[Any], fields: Mapping[str, tuple[str, ...]], wanted: Collection[str]) -> dict[str, Any]:
    """Of each wanted answer, the first of its quantities that is known; a list where there are variants."""
    found = {}
    for key in wanted:
        known = [quantity for quantity in fields.get(key, ()) if quantity in laws[0]]
        if known:
            values = [each[known[0]] for each in laws]
            found[key] = values[0] if key in ONCE else _one_or_all(values)
    return found


def _one_or_all(values: list[Any]) -> object:
    first, *others = values
    return values if others else first


def _days(inputs: Mapping[str, Any], names: Mapping[str, str], **more: float | str) -> object:
    return ridgeline.duration_in(_laws(inputs, names, **more)[0]["run_s"], "days")


def _left_open(inputs: Mapping[str, Any], laws: list[Any]) -> dict[str, Any]:
    """What a run is told where the item does not say: at the peak, on one chip or on as many as FSDP keeps busy."""
    fitting = {"num_chips": laws[0]["num_fsdp_chips"]} if "batch" in inputs else {}
    told = {NAMES.get(name, name) for name in inputs} | ({"num_chips"} if "pods" in inputs else set())
    return {name: value for name, value in (ALONE | fitting).items() if name not in told}


def _rescaled(inputs: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """A run whose days on a pod are given, on other numbers of chips."""
    chips = {"days": "chips", "years": "chips", "days_with_171": "chips_printed"}
    runs = {
        key: ridgeline.training_laws(
            run_s=f"{inputs['days_pod']} days", num_chips=inputs["pod"], num_other_chips=inputs[chips[key]]
        )
        for key in wanted
        if key in chips
    }
    return {
        key: ridgeline.duration_in(run["rescaled_run_s"], "years" if key == "years" else "days")
        for key, run in runs.items()
    }


def _tensor_limit(inputs: Mapping[str, Any], key: str) -> object:
    """`ok8`, `F_needed_8`, and the same with a chip's own figures: `ok8_true_v4p`."""
    question, _, chip = key.partition("_true_")
    ways = question.removeprefix("ok").removeprefix("F_needed_")
    if chip:
        rates = {"C_flops_per_s": inputs[f"C_{chip}"], "W_ici_bytes_per_s": inputs[f"W_{chip}"]}
    else:
        rates = {NAMES[name]: value for name, value in inputs.items() if name in {"alpha", "alpha_used"}}
    laws = ridgeline.training_laws(F=inputs["F"], Y=ways, **rates)
    return laws["tensor_is_compute_bound" if question.startswith("ok") else "tensor_least_width"]
