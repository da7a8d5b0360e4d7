"""The laws of training as one system: say what is known, read what follows.

    laws = training_laws(C_flops_per_s=4.59e14, W_ici_bytes_per_s=1.8e11, n_axes=3, batch_tokens="4Mi", num_chips=8960)
    laws["fsdp_critical_tokens_per_chip"], laws["tokens_per_chip"], laws.choice

The names are those of the formulas in `batch`, `slices`, `memory`, `run` and `pipeline` of this folder, and
of their parameters. Whatever is given stands, be it a constant, or a figure that could have been derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.cost.laws import batch as laws_batch
from ridgeline.cost.laws import memory as laws_memory
from ridgeline.cost.laws import pipeline as laws_pipeline
from ridgeline.cost.laws import run as laws_run
from ridgeline.cost.laws import slices as laws_slices
from ridgeline.cost.laws.deduce import Laws, System, deduce, read_quantities, system
from ridgeline.units import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping


LAWS: Final[System] = (
    *system(
        F=laws_memory.mlp_width,
        W_dcn_bytes_per_s=laws_slices.chip_dcn_bytes_per_s,
        C_flops_per_s=laws_run.dense_flops_per_s,
        num_chips=laws_slices.num_chips_of_slices,
        N=laws_slices.num_chips_of_slice,
        batch_tokens=laws_slices.batch_of_sequences_tokens,
        B_tokens=laws_slices.slice_batch_tokens,
    ),
    *system(batch_tokens=laws_slices.batch_of_slices_tokens),
    *system(
        laws_slices.num_sequences,
        laws_slices.sequence_limited_degree,
        laws_slices.sequences_suffice,
        laws_batch.alpha_flops_per_byte,
        laws_slices.hbm_flops_per_byte,
        laws_slices.dcn_flops_per_byte,
        laws_batch.tokens_per_chip,
        laws_slices.memory_critical_tokens_per_chip,
        laws_batch.dp_critical_tokens_per_chip,
        laws_batch.fsdp_critical_tokens_per_chip,
        laws_batch.fsdp_matches_dp,
        laws_batch.fsdp_critical_tokens,
        laws_batch.num_fsdp_chips,
        laws_slices.num_fsdp_slices,
        laws_batch.fsdp_is_compute_bound,
        laws_batch.fsdp_compute_ratio,
        laws_batch.mixed_critical_tokens_per_chip,
        laws_batch.mixed_critical_tokens,
        laws_batch.num_mixed_chips,
        laws_batch.mixed_is_compute_bound,
        laws_batch.mixed_compute_ratio,
        laws_batch.compute_bound_split_exists,
        laws_batch.fsdp_overtakes_tokens_per_chip,
        laws_batch.optimal_data_degree,
        laws_batch.optimal_tensor_degree,
        laws_batch.rounded_data_degree,
        laws_batch.rounded_tensor_degree,
        laws_batch.capped_data_degree,
        laws_batch.context_degree,
        laws_batch.num_layout_chips,
        laws_batch.whole_tensor_degree,
        laws_batch.whole_data_degree,
        laws_batch.tensor_largest_degree,
        laws_batch.tensor_whole_degree,
        laws_batch.tensor_least_width,
        laws_batch.tensor_is_compute_bound,
        laws_batch.tensor_compute_ratio,
        laws_batch.split_critical_tokens,
        laws_batch.fsdp_overtakes_tokens,
        laws_slices.dcn_critical_tokens,
        laws_slices.dcn_is_hidden,
        laws_slices.num_hosts,
        laws_slices.slice_dcn_bytes_per_s,
        laws_slices.slice_flops_per_s,
    ),
    *system(kappa=laws_memory.moments_bytes_per_parameter),
    *system(
        laws_memory.weight_bytes,
        laws_memory.optimizer_bytes,
        laws_memory.gradient_bytes,
        laws_memory.state_bytes,
        laws_memory.saved_width,
        laws_memory.saved_bytes,
        laws_memory.held_bytes,
        laws_memory.num_memory_chips,
        laws_memory.num_whole_memory_chips,
        laws_memory.zero_bytes,
    ),
    *system(chip_held_bytes=laws_memory.chip_staged_bytes),
    *system(
        laws_memory.chip_held_bytes,
        laws_memory.run_fits,
        laws_memory.replica_fits,
        laws_memory.num_replica_parameters,
        laws_memory.slice_hbm_bytes,
    ),
    *system(chip_s=laws_run.chip_s_of_hours, run_s=laws_run.spent_run_s),
    *system(
        laws_run.training_flops_per_token,
        laws_run.forward_flops_per_token,
        laws_run.run_flops,
        laws_run.token_on_one_chip_s,
        laws_run.run_s,
        laws_run.peak_run_s,
        laws_run.communicating_run_s,
        laws_run.rescaled_run_s,
        laws_run.chip_s,
        laws_run.available_flops,
        laws_run.mfu,
        laws_run.num_steps,
        laws_pipeline.bubble_ratio,
        laws_pipeline.bubble_fraction,
        laws_pipeline.hand_over_bytes,
        laws_run.run_usd,
    ),
)
"""Every law. Those that others may take as an option stand before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition of a plan, in the order in which a planner asks.

    Attributes:
        name: `memory`, `sequences`, `fsdp`, `mixed` or `dcn`.
        passed: Whether it holds.
        condition: The law that decides it.
        have: The quantity that decides it.
        need: What it is compared with.
    """

    name: str
    passed: bool
    condition: str
    have: str
    need: str


_GATES = (
    ("memory", "run_fits", "chip_held_bytes", "hbm_bytes"),
    ("sequences", "sequences_suffice", "num_sequences", "num_chips"),
    ("fsdp", "fsdp_is_compute_bound", "tokens_per_chip", "fsdp_critical_tokens_per_chip"),
    ("mixed", "mixed_is_compute_bound", "tokens_per_chip", "mixed_critical_tokens_per_chip"),
    ("dcn", "dcn_is_hidden", "B_tokens", "dcn_critical_tokens"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLaws(Laws):
    """What the laws of training say of what was given."""

    @property
    def values(self) -> Mapping[str, float]:
        """Every quantity, by name."""
        return self.known.values

    def depends(self, quantity: str, *, on: str) -> bool:
        """Whether one quantity changes with another."""
        return self.known.depends(quantity, on=on)

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The conditions that can be decided."""
        return tuple(
            Gate(name=name, passed=bool(self.known[condition]), condition=condition, have=have, need=need)
            for name, condition, have, need in _GATES
            if condition in self.known and (name != "dcn" or self.values.get("num_slices", 1) > 1)
        )

    @property
    def compute_bound_schemes(self) -> tuple[str, ...]:
        """Of `mixed` (FSDP with tensor parallelism) and `fsdp`, those that are bound by arithmetic."""
        passed = {gate.name for gate in self.gates if gate.passed}
        return tuple(name for name in ("mixed", "fsdp") if name in passed)

    @property
    def choice(self) -> str:
        """Those schemes in words: `mixed or fsdp`, `mixed only`, `fsdp only`, `none`."""
        match self.compute_bound_schemes:
            case ():
                return "none"
            case (only,):
                return f"{only} only"
            case both:
                return " or ".join(both)

    @property
    def usual_tensor_degrees(self) -> tuple[int, ...]:
        """Ways of tensor parallelism that practice takes, whatever is given."""
        return laws_batch.USUAL_TENSOR_DEGREES

    @property
    def layout(self) -> str:
        """What to do, in words: the simplest scheme that is bound by arithmetic, or else the one that comes closest."""
        inside = "data parallel"
        if "fsdp_is_compute_bound" in self.known:
            inside = "FSDP" if self._fsdp_is_enough else "FSDP+TP"
        elif self.values.get("num_chips") == 1:
            inside = "one chip"
        elif self.values.get("replica_fits") is False:
            inside = "FSDP"
        if self.known.values.get("num_slices", 1) == 1:
            return inside
        return f"data parallel over DCN, {inside} inside each pod"

    @property
    def _fsdp_is_enough(self) -> bool:
        """Whether FSDP is bound by arithmetic, or the best split comes to it, or comes no closer than it does."""
        if "fsdp" in self.compute_bound_schemes or self.values.get("rounded_tensor_degree") == 1:
            return True
        ratios = [self.values.get(f"{scheme}_compute_ratio", 0.0) for scheme in ("fsdp", "mixed")]
        return self.choice == "none" and ratios[0] > ratios[1]

    @property
    def reason(self) -> str:
        """Why no scheme is bound by arithmetic, and what would help; "" where one is, or where it is not known."""
        if self.choice != "none" or not {"fsdp_is_compute_bound", "mixed_is_compute_bound"} <= self.values.keys():
            return ""
        have, fsdp, mixed = (
            format_count(self[f"{scheme}tokens_per_chip"]) for scheme in ("", "fsdp_critical_", "mixed_critical_")
        )
        chips = format_count(max(self["num_fsdp_chips"], self["num_mixed_chips"]))
        tokens = format_count(min(self["fsdp_critical_tokens"], self["mixed_critical_tokens"]))
        ratios = [self[f"{scheme}_compute_ratio"] for scheme in ("fsdp", "mixed")]
        closest = "FSDP" if self._fsdp_is_enough else "FSDP with tensor parallelism"
        return (
            f"no scheme is bound by arithmetic; the closest is {closest}, whose communication takes "
            f"{1 / ratios[closest != 'FSDP']:.3g} times as long as arithmetic. {have} tokens a chip, where FSDP "
            f"asks for {fsdp} and FSDP with tensor parallelism for {mixed}: "
            f"use at most {chips} chips a slice, or a batch of at least {tokens} tokens a slice"
        )


def training_laws(**given: float | str) -> TrainingLaws:
    """Everything the laws of training say of what is given.

    >>> laws = training_laws(alpha_flops_per_byte=2550, n_axes=3, F=28672, batch_tokens="4Mi", num_chips=8960)
    >>> laws["tokens_per_chip"] > laws["fsdp_critical_tokens_per_chip"], laws.choice
    (False, 'mixed only')
    >>> round(laws["optimal_data_degree"]), laws["rounded_data_degree"], laws["rounded_tensor_degree"]
    (1619, 2048.0, 4.0)

    Args:
        **given: Quantities by name, in base units, or as text with a unit (`run_s="44 days"`, `run_tokens="15T"`).

    Raises:
        InputError: A name is unknown, or a value is not a positive number.
    """
    return TrainingLaws(known=deduce(LAWS, read_quantities(given)))
