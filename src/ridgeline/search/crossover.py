"""From which batch, and which sequence, each part of a plan waits for its arithmetic and no longer for what it reads.

By the laws of the Scaling Book, at peak rates: a matmul against its operands in memory, the gather of its weights and
the sum of their gradients, each from so many tokens of a device; attention against its own traffic and the gather of
keys and values, from a length of sequence. What grows with the tokens as the arithmetic does, activations under tensor
parallelism and copies for experts, is covered at any batch or at none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.cost.columns import gathered_shards, tokens_per_microbatch, weight_shards
from ridgeline.cost.critical_size import (
    constant_critical_size,
    expert_critical_rows,
    matmul_critical_rows,
    self_attention_critical_queries,
    small_batch_critical_queries,
)
from ridgeline.cost.explain import derive
from ridgeline.cost.product import matmul_dtype, product_demand
from ridgeline.cost.sharding.strategy_thresholds import gather_critical_rows
from ridgeline.cost.training.held_weights import group_of_replicas
from ridgeline.model.accounting import keys_read, operations
from ridgeline.model.operations import Attention, ExpertMatmul, Matmul
from ridgeline.search.section import ATTENTION, section_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.collectives import Link
    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.work import Part

Wire: TypeAlias = Literal["hbm", "ici", "network"]
"""What something comes over; `ici` is NVLink on GPUs."""

_MOVED: Final = {"link.tensor": "activations", "link.expert": "copies of tokens"}
"""What grows with the tokens, by the group of devices that it moves between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """The size from which arithmetic takes longer than something else.

    Attributes:
        section: The part of the model's work.
        wire: What it waits for below.
        moves: What comes over it: `operands`, `weights`, `gradients`, `keys and values`, `activations`, …
        of_sequence: Whether it is a length of sequence; else tokens that a device has at once.
        critical_tokens: The size; 0 where any will do, infinite where none does.
        here_tokens: The plan's own.
        num_sequences: A batch that reaches it under this mesh; NaN for a length of sequence.
        derivation: Where it comes from.
    """

    section: str
    wire: Wire
    moves: str
    of_sequence: bool
    critical_tokens: float
    here_tokens: float
    num_sequences: float
    derivation: Derivation

    @property
    def is_reached(self) -> bool:
        """Whether arithmetic takes longer here."""
        return self.here_tokens >= self.critical_tokens


def crossovers(setting: TrainingSetting, columns: PlanColumns, step: Part) -> tuple[Crossover, ...]:
    """Those of every section, in the order of the model.

    Args:
        setting: The job, as the plan was costed.
        columns: The plan (scalar columns).
        step: Its step.
    """
    found = [
        *(each for path, op in _largest_products(setting) for each in _of_product(path, op, setting, columns)),
        *_of_attention(setting, columns),
        *_of_what_grows(setting, columns, step),
    ]
    return tuple(each for each in found if not isnan(each.critical_tokens))


def _largest_products(setting: TrainingSetting) -> Iterator[tuple[str, Matmul | ExpertMatmul]]:
    """Of each section the matmul with the largest weight, as one token meets it."""
    largest: dict[str, tuple[str, Matmul | ExpertMatmul]] = {}
    for path, op, _ in operations(setting.tree):
        section = section_of(path)
        if isinstance(op, Matmul | ExpertMatmul) and section and not path.endswith("router"):
            known = largest.get(section)
            if known is None or op.weight.size > known[1].weight.size:
                largest[section] = (path, op)
    yield from largest.values()


def _of_product(
    path: str, op: Matmul | ExpertMatmul, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[Crossover]:
    """A matmul against its operands, its weights' gather and its gradients' sum."""
    peak_flops_per_s, chip = setting.peak_flops_per_s(matmul_dtype(op, setting)), setting.hardware.chip
    demand = product_demand(op, rows=1.0, setting=setting, columns=columns)
    in_hbm = derive(
        matmul_critical_rows,
        D=demand.contracted_width,
        F=demand.produced_width,
        b_a=setting.activation_bytes,
        b_w=setting.compute_bytes,
        b_o=setting.activation_bytes,
        C_flops_per_s=peak_flops_per_s,
        W_bytes_per_s=setting.hbm_bytes_per_s,
    )
    yield _of_tokens(path, op, "hbm", "operands", in_hbm, setting, columns)

    def over(link: Link, wire: Wire, moves: str, *, element_bytes: float, shards: float) -> Iterator[Crossover]:
        load = float(link.network_gather_load if wire == "network" else link.gather_load)
        rate = chip.network_bytes_per_s if wire == "network" else setting.link_bytes_per_s
        if load > 0 and float(link.size) > 1:
            exact = derive(
                gather_critical_rows,
                b_w=element_bytes,
                C_flops_per_s=peak_flops_per_s,
                n=shards * float(1 - 1 / link.size) / load,
                W_bytes_per_s=rate,
            )
            yield _of_tokens(path, op, wire, moves, exact, setting, columns)

    weights = columns.links["expert_weights" if isinstance(op, ExpertMatmul) else "weights"]
    replicas = columns.links[group_of_replicas(op.weight, setting)]
    shards = float(weight_shards(op.weight, columns, setting) / gathered_shards(op.weight, columns))
    summed_bytes = setting.compute_bytes  # summed and handed back: two moves, which four FLOPs a weight cover
    if setting.optimizer.distributed:
        summed_bytes = (setting.gradient_bytes + setting.compute_bytes) / 2
    for wire in ("ici", "network"):
        yield from over(weights, wire, "weights", element_bytes=setting.compute_bytes, shards=1.0)
        yield from over(replicas, wire, "gradients", element_bytes=summed_bytes, shards=shards)


def _of_tokens(
    path: str,
    op: Matmul | ExpertMatmul,
    wire: Wire,
    moves: str,
    exact: Derivation,
    setting: TrainingSetting,
    columns: PlanColumns,
) -> Crossover:
    """A number of rows as tokens of a device; of an expert's rows, which few of the tokens visit, so many more."""
    if isinstance(op, ExpertMatmul):
        experts = op.weight.shape[0] / float(columns.degrees["ep"])
        exact = derive(expert_critical_rows, B=exact.value, E=experts, k=op.top_k)
    here_tokens = float(tokens_per_microbatch(setting, columns))
    if moves == "gradients":  # once a step, after all of its micro-steps
        here_tokens *= float(columns.microsteps)
    if moves == "weights" and columns.gather_once:
        here_tokens *= float(columns.microbatches)
    return Crossover(
        section=section_of(path),
        wire=wire,
        moves=moves,
        of_sequence=False,
        critical_tokens=exact.value,
        here_tokens=here_tokens,
        num_sequences=setting.global_batch * exact.value / here_tokens,
        derivation=replace(exact, quantity=f"tokens of a device from which {path} covers its {moves} ({wire})"),
    )


def _of_attention(setting: TrainingSetting, columns: PlanColumns) -> Iterator[Crossover]:
    """The attention that sees most keys, against its traffic and the gather of keys and values."""
    found = [(path, op) for path, op, _ in operations(setting.tree) if isinstance(op, Attention)]
    if not found:
        return
    path, op = max(found, key=lambda item: keys_read(item[1], seq_len=setting.seq_len))
    peaks = {"C_flops_per_s": setting.peak_flops_per_s(setting.dtypes.compute)}
    heads = {"G": op.num_heads / op.num_kv_heads, "b_w": setting.activation_bytes}
    traffic = derive(
        self_attention_critical_queries,
        **heads,
        b_a=setting.activation_bytes,
        **peaks,
        W_bytes_per_s=setting.hbm_bytes_per_s,
    )
    yield _of_sequence(path, "hbm", "operands", traffic, traffic.value, setting)
    ways, read_share = float(columns.degrees["cp"]), keys_read(op, seq_len=setting.seq_len) / setting.seq_len
    for wire, moved_bytes_per_s in _of_keys_bytes_per_s(setting, columns):
        queries = derive(small_batch_critical_queries, **heads, **peaks, W_bytes_per_s=moved_bytes_per_s)
        critical_tokens = queries.value * ways / read_share  # a device has a part of the queries, which see a part
        yield _of_sequence(path, wire, "keys and values", queries, critical_tokens, setting)


def _of_keys_bytes_per_s(setting: TrainingSetting, columns: PlanColumns) -> Iterator[tuple[Wire, float]]:
    """The rate at which keys and values of a whole sequence reach a device: gathered, or round a ring."""
    link, ways = columns.links["context"], float(columns.degrees["cp"])
    loads = (link.gather_load, link.network_gather_load)
    if setting.context.strategy == "ring":
        loads = tuple(load * (1 - 1 / ways) for load in (link.permute_load, link.network_permute_load))
    wires: tuple[Wire, Wire] = ("ici", "network")
    rates = (setting.link_bytes_per_s, setting.hardware.chip.network_bytes_per_s)
    for wire, load, bytes_per_s in zip(wires, loads, rates, strict=True):
        if ways > 1 and float(load) > 0:
            yield wire, bytes_per_s * (1 - 1 / ways) / float(load)


def _of_sequence(
    path: str, wire: Wire, moves: str, exact: Derivation, critical_tokens: float, setting: TrainingSetting
) -> Crossover:
    return Crossover(
        section=ATTENTION,
        wire=wire,
        moves=moves,
        of_sequence=True,
        critical_tokens=critical_tokens,
        here_tokens=float(setting.seq_len),
        num_sequences=float("nan"),
        derivation=replace(exact, quantity=f"queries of a device from which {path} covers its {moves} ({wire})"),
    )


def _of_what_grows(setting: TrainingSetting, columns: PlanColumns, step: Part) -> Iterator[Crossover]:
    """Sections that bring activations, or copies of tokens: FLOPs over bytes stay, whatever the batch."""
    flops: defaultdict[str, float] = defaultdict(float)
    moved_bytes: defaultdict[tuple[str, str, Wire], float] = defaultdict(float)
    for path, part in step.walk():
        section, amounts = section_of(path), part.work.amounts
        if part.composition != "leaf" or not section:
            continue
        flops[section] += sum(float(each) for name, each in amounts.items() if name.startswith("flops."))
        for moves in (moves for link, moves in _MOVED.items() if link in amounts):
            link = next(name for name in amounts if name.startswith("link."))
            moved_bytes[section, moves, "ici"] += float(amounts[link])
            moved_bytes[section, moves, "network"] += float(amounts.get("network", 0.0))
    peak_flops_per_s = setting.peak_flops_per_s(setting.dtypes.compute)
    rates = {"ici": setting.link_bytes_per_s, "network": setting.hardware.chip.network_bytes_per_s}
    for (section, moves, wire), size_bytes in moved_bytes.items():
        if size_bytes > 0:
            exact = derive(
                constant_critical_size,
                intensity_flops_per_byte=flops[section] / size_bytes,
                ridge_flops_per_byte=peak_flops_per_s / rates[wire],
            )
            yield Crossover(
                section=section,
                wire=wire,
                moves=moves,
                of_sequence=False,
                critical_tokens=exact.value,
                here_tokens=float(tokens_per_microbatch(setting, columns)),
                num_sequences=exact.value,
                derivation=replace(exact, quantity=f"tokens from which {section} cover their {moves} ({wire})"),
            )
