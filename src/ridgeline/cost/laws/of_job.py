"""The laws of training for one job: the model, the slice and the batch say what is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ridgeline.cost.explain import derive
from ridgeline.cost.laws.deduce import deduce, read_quantities
from ridgeline.cost.laws.memory import zero_bytes
from ridgeline.cost.laws.system import LAWS, TrainingLaws
from ridgeline.errors import InputError
from ridgeline.job.job import BYTES_OF, Remat
from ridgeline.job.remat import placements
from ridgeline.model.accounting import kept_elements_per_token
from ridgeline.model.roles import matrix_parameters, role_accounts
from ridgeline.model.spec import MlpSpec, MoeSpec
from ridgeline.model.tree import model_tree
from ridgeline.units import format_fraction, format_seconds, format_things

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ridgeline.cost.explain import Derivation
    from ridgeline.hardware.slice import PhysicalAxis, Slice
    from ridgeline.job.job import Job
    from ridgeline.model.spec import ChannelSpec, ModelSpec

USUAL_MFU: Final = 0.4
"""Where none is given. Source: Scaling Book, ch. 6, which plans with 40%."""

_TORUS_AXES = ("x", "y", "z")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaws:
    """What the laws say of a job.

    Attributes:
        job: The question.
        laws: What follows from it.
        zero: What a device holds of weights, gradients and optimizer under stages 0 to 3 of ZeRO.
        assumptions: What was taken for granted, in words.
    """

    job: Job
    laws: TrainingLaws
    zero: tuple[Derivation, ...]
    assumptions: tuple[str, ...]

    @property
    def derivations(self) -> tuple[Derivation, ...]:
        """Where each derived quantity comes from."""
        return (*self.laws.derivations, *self.zero)


def laws_of_job(job: Job, given: Mapping[str, float | str], *, where: str = "given") -> JobLaws:
    """What follows from a job, and from what is given beside it.

    Args:
        job: The model, the slice and, where there is one, the batch and the length of the run.
        given: Quantities of the laws by name; they take the place of the job's own (`mfu`, `hbm_bytes`, `n_axes`, …).
        where: The flag or argument they came from, for error messages.

    Raises:
        InputError: The slice is no torus, or a quantity is unknown or unusable.
    """
    if job.plan.lora is not None:
        raise InputError(
            "the laws train all weights",
            where="plan.lora",
            value=f"rank {job.plan.lora.rank}",
            expected="a job without adapters",
            fix="leave --laws out: the search knows adapters",
        )
    told = read_quantities(given, where=where)
    if not isinstance(_usual_channel(job.model), MoeSpec):
        _refuse_experts(told, job.model.name, where=where)
    spent = [name for name in _SPENT if name in told]
    if len(spent) > 1:
        raise _told_twice(spent, where=where)
    known = {
        **_of_slice(job.hardware, job.plan.dtypes.compute),
        **_of_model(job.model, job.plan.remat or Remat(policy="full")),
        **_of_workload(job),
        **({} if spent else {"mfu": USUAL_MFU}),
        **told,
    }
    ways = known.get("X", known["num_chips"])
    laws = TrainingLaws(known=deduce(LAWS, known | ({"X": ways} if "stage" in told else {})))
    for name in ("num_chips", "N"):
        if laws[name] % 1:
            raise _part_of_a_chip(laws, name, where=where)
    if spent and laws.values.get("mfu", 0) > 1:
        raise _beyond_the_peak(laws, spent[0], where=where)
    zero = tuple(derive(zero_bytes, stage=stage, X=ways, **_shares(laws)) for stage in range(4))
    return JobLaws(job=job, laws=laws, zero=zero, assumptions=tuple(_assumptions(job, told)))


_SPENT = ("mfu", "run_s", "chip_s", "chip_hours")
"""How well chips are used, or what that can be told from: one of them is enough."""


def _refuse_experts(values: Mapping[str, float], model: str, *, where: str) -> None:
    for name in ("E", "k"):
        if name in values:
            raise InputError(
                f"{model} is dense: it has no experts",
                where=f"{where}: {name}",
                value=values[name],
                expected="quantities of a dense model",
                fix=f"leave {name} out, or ask about a mixture of experts",
            )


def _part_of_a_chip(laws: TrainingLaws, name: str, *, where: str) -> InputError:
    slices = laws["num_slices"]
    return InputError(
        f"{name} would be {laws[name]:g}",
        where=f"{where}: {name}",
        value=f"num_chips = {laws['num_chips']:g}, num_slices = {slices:g}",
        expected="whole chips in every slice",
        fix=f"take a multiple of {format_things(slices, 'chip')}",
    )


def _told_twice(spent: Sequence[str], *, where: str) -> InputError:
    return InputError(
        f"{' and '.join(spent)} say the same thing",
        where=where,
        value=", ".join(spent),
        expected=f"one of {', '.join(_SPENT)}",
        fix=f"keep {spent[-1]}, say: the others follow from it",
    )


def _beyond_the_peak(laws: TrainingLaws, name: str, *, where: str) -> InputError:
    return InputError(
        f"no run can be that fast: its MFU would be {format_fraction(laws['mfu'])}",
        where=f"{where}: {name}",
        value=laws[name],
        expected=f"at least {format_seconds(laws['peak_run_s'])} on {format_things(laws['num_chips'], 'chip')}",
        fix=f"mend {name}, or give the peak of the chips it was measured on: C_flops_per_s=…",
    )


def _shares(laws: TrainingLaws) -> dict[str, float]:
    return {name: laws[name] for name in ("P", "kappa", "b_w", "b_g")}


def _of_slice(hardware: Slice, dtype: str) -> dict[str, float]:
    """Rates of a chip and the axes of its torus: all but one for FSDP, one for tensor parallelism."""
    chip, axes = hardware.chip, _torus_axes(hardware)
    if chip.torus is None:
        raise InputError(
            "the laws of training are those of a torus",
            where="hardware",
            value=hardware.name,
            expected="a TPU slice, e.g. v5p:16x20x28",
            fix="leave out --laws: the search knows switched networks",
        )
    known = {
        "C_flops_per_s": chip.peak_flops_per_s.get(dtype, chip.peak_flops_per_s["bf16"]),
        "W_hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "W_dcn_bytes_per_s": chip.network_bytes_per_s,
        "hbm_bytes": chip.usable_hbm_bytes,
        "num_chips": float(hardware.num_chips),
        "num_slices": float(hardware.num_slices),
    }
    if chip.prices:
        known["usd_per_chip_hour"] = chip.prices[0].usd_per_chip_hour
    if not axes:
        return known
    links = 2 if _all_rings(axes) else 1
    return known | {
        "W_ici_bytes_per_s": links * chip.torus.link_bytes_per_s,
        "n_axes": float(len(axes)),
        "M_X": float(max(len(axes) - 1, 1)),
        "M_Y": 1.0,
    }


def _of_model(spec: ModelSpec, remat: Remat) -> dict[str, float]:
    """Its size, and the sizes of the MLP that most of its layers have."""
    tree = model_tree(spec)
    accounts = role_accounts(tree, seq_len=1)
    kept = [name for name, place in placements(remat).items() if place == "device"]
    known = {
        "P": float(sum(each.parameters for each in accounts.values())),
        "P_active": float(matrix_parameters(accounts, active=True)),
        "D": float(spec.embed_dim),
        "L": float(spec.num_layers),
        "saved_width": kept_elements_per_token(tree, embed_dim=spec.embed_dim, names=kept) / spec.num_layers,
    }
    match _usual_channel(spec):
        case MlpSpec(mlp_dim=width):
            return known | {"F": float(width)}
        case MoeSpec(expert_mlp_dim=width) as experts:
            always = (experts.shared_mlp_dim + experts.dense_mlp_dim) / width
            return known | {"F": float(width), "E": experts.num_experts + always, "k": experts.top_k + always}
        case None:
            return known


def _of_workload(job: Job) -> dict[str, float]:
    workload, plan = job.workload, job.plan
    known = {
        "T": float(workload.seq_len),
        "b_w": BYTES_OF[plan.dtypes.weights],
        "b_g": BYTES_OF[plan.dtypes.gradients],
        "b_a": BYTES_OF[plan.dtypes.activations],
        "b_mu": BYTES_OF[plan.optimizer.mu_dtype],
        "b_nu": BYTES_OF[plan.optimizer.nu_dtype],
    }
    if workload.global_batch is not None:
        known["batch_tokens"] = float(workload.global_batch * workload.seq_len)
    return known if workload.tokens is None else known | {"run_tokens": workload.tokens}


def _assumptions(job: Job, given: Collection[str]) -> Iterator[str]:
    yield "The layer of these laws is an MLP in two-byte numbers; attention and vocabulary are left out of its traffic."
    if not any(name in given for name in _SPENT):
        usual = f"MFU is taken as {format_fraction(USUAL_MFU)}, which Scaling Book, ch. 6, plans with"
        yield f"{usual}; mfu=…, or chip_hours=… of a published run, replaces it."
    if job.hardware.chip.prices and "usd_per_chip_hour" not in given:
        yield f"Price: {job.hardware.chip.prices[0].in_words}."
    axes = _torus_axes(job.hardware)
    if axes and not _all_rings(axes):
        yield "Not every axis of the slice is a ring: links are counted one way."
    if isinstance(_usual_channel(job.model), MoeSpec):
        yield "All experts are gathered like other weights; expert parallelism is not among these laws."
    if len(Counter(layer.mlp for layer, _ in job.model.layers)) > 1:
        yield "Layers differ: F is the MLP width that most of them have."


def _torus_axes(hardware: Slice) -> list[PhysicalAxis]:
    return [axis for axis in hardware.axes if axis.name in _TORUS_AXES and axis.size > 1]


def _all_rings(axes: Sequence[PhysicalAxis]) -> bool:
    return all(axis.wiring == "ring" for axis in axes)


def _usual_channel(spec: ModelSpec) -> ChannelSpec | None:
    counts: Counter[ChannelSpec] = Counter()
    for layer, count in spec.layers:
        if layer.mlp is not None:
            counts[layer.mlp] += count
    return counts.most_common(1)[0][0] if counts else None
