"""What one operation asks of a chip: FLOPs, bytes of one memory, and the sizes at which the two take as long.

Arrays that lie in another memory have elements of zero bytes here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, assert_never

from ridgeline.cost.critical_size import (
    attention_critical_keys,
    attention_critical_queries,
    constant_critical_size,
    expert_critical_rows,
    matmul_critical_rows,
    self_attention_critical_queries,
    small_batch_critical_queries,
    small_batch_critical_rows,
)
from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.roofline import attention_flops, matmul_bytes, matmul_flops
from ridgeline.cost.single_operation import (
    attention_bytes,
    batched_matmul_bytes,
    batched_matmul_flops,
    dot_bytes,
    dot_flops,
    elementwise_bytes,
    elementwise_flops,
    embedding_bytes,
    expert_matmul_bytes,
    matmul_exact_flops,
    routed_rows,
    small_batch_intensity_flops_per_byte,
    visited_experts_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.job.operation import ElementBytes, OperationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number, and how it was worked out; nothing where the question states it.

    Attributes:
        value: In the unit of what it is.
        derivations: Of the numbers it is made of, itself last.
    """

    value: float
    derivations: tuple[Derivation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """The size at which arithmetic and one kind of traffic take as long.

    Attributes:
        letter: Which size.
        exact: The crossover; infinite where no size is large enough.
        rule: By the rule for small batches; None where there is none.
    """

    letter: str
    exact: Figure
    rule: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What decides a crossover beside the sizes.

    Attributes:
        element_bytes: Of the arrays that lie in the memory in question.
        peak_flops_per_s: C.
        bytes_per_s: W.
        intensity_flops_per_byte: Of the operation as it is asked.
        ridge_flops_per_byte: C/W.
    """

    element_bytes: ElementBytes
    peak_flops_per_s: float
    bytes_per_s: float
    intensity_flops_per_byte: float
    ridge_flops_per_byte: float


def flops_of(kind: OperationKind, sizes: Mapping[str, float]) -> Figure:
    """FLOPs of an operation."""
    match kind:
        case "matmul":
            return _derived(derive(matmul_flops, **_pick(sizes, "BDF")))
        case "batched_matmul":
            return _derived(derive(batched_matmul_flops, **_pick(sizes, "BTDF")))
        case "expert_matmul":
            rows = derive(routed_rows, **_pick(sizes, "Bk"))
            return _derived(rows, derive(matmul_flops, B=rows.value, **_pick(sizes, "DF")))
        case "attention":
            queries = sizes["B"] * sizes["T"]
            return _derived(derive(attention_flops, T=queries, S=_keys(sizes), **_pick(sizes, "NH")))
        case "elementwise":
            return _derived(
                derive(elementwise_flops, flops_per_element=sizes["flops_per_element"], **_pick(sizes, "BD"))
            )
        case "embedding":
            return Figure(value=0.0)
        case "dot":
            return _derived(derive(dot_flops, **_pick(sizes, "D")))
        case "work":
            return Figure(value=sizes["flops"])
        case _:
            assert_never(kind)


def exact_flops_of(kind: OperationKind, sizes: Mapping[str, float]) -> Figure:
    """FLOPs of a matmul, the sums counted to the last; of anything else as always."""
    if kind != "matmul":
        return flops_of(kind, sizes)
    return _derived(derive(matmul_exact_flops, **_pick(sizes, "BDF")))


def small_batch_intensity_of(kind: OperationKind, sizes: Mapping[str, float], element_bytes: ElementBytes) -> Figure:
    """The intensity to which an operation tends while its weights are all the traffic; NaN where it has none."""
    match kind:
        case "matmul":
            rows = sizes["B"]
        case "batched_matmul":
            rows = sizes["T"]
        case "expert_matmul":
            rows = sizes["B"] * sizes["k"] / sizes["E"]
        case "attention":
            rows = sizes["T"] * sizes["N"] / sizes["K"]
        case _:
            return Figure(value=nan)
    return _derived(derive(small_batch_intensity_flops_per_byte, rows=rows, b_w=element_bytes.weights))


def traffic_of(kind: OperationKind, sizes: Mapping[str, float], element_bytes: ElementBytes) -> Figure:
    """Bytes that an operation reads and writes of one memory."""
    b_a, b_w, b_o = element_bytes.activations, element_bytes.weights, element_bytes.outputs
    match kind:
        case "matmul":
            return _derived(derive(matmul_bytes, **_pick(sizes, "BDF"), b_a=b_a, b_w=b_w, b_o=b_o))
        case "batched_matmul":
            return _derived(derive(batched_matmul_bytes, **_pick(sizes, "BTDF"), b_a=b_a, b_w=b_w, b_o=b_o))
        case "expert_matmul":
            rows = derive(routed_rows, **_pick(sizes, "Bk")).value
            experts = derive(visited_experts_count, E=sizes["E"], rows=rows)
            widths = _pick(sizes, "DF")
            moved = derive(expert_matmul_bytes, rows=rows, E=experts.value, **widths, b_a=b_a, b_w=b_w, b_o=b_o)
            return _derived(experts, moved)
        case "attention":
            tokens = {"T": sizes["B"] * sizes["T"], "S": sizes["B"] * _keys(sizes)}
            return _derived(derive(attention_bytes, **tokens, **_pick(sizes, "NKH"), b_a=(b_a + b_o) / 2, b_w=b_w))
        case "elementwise":
            passes = {"num_reads": sizes["reads"], "num_writes": sizes["writes"]}
            return _derived(derive(elementwise_bytes, **_pick(sizes, "BD"), **passes, b_a=b_a, b_o=b_o))
        case "embedding":
            return _derived(derive(embedding_bytes, **_pick(sizes, "BD"), b_w=b_w, b_o=b_o))
        case "dot":
            return _derived(derive(dot_bytes, **_pick(sizes, "D"), b_a=b_a, b_w=b_w, b_o=b_o))
        case "work":
            return Figure(value=sizes["bytes"] if b_w else 0.0)
        case _:
            assert_never(kind)


def crossovers_of(kind: OperationKind, sizes: Mapping[str, float], balance: Balance) -> Iterator[Crossover]:
    """The sizes from which an operation is not bound by one memory, most telling first."""
    match kind:
        case "matmul":
            yield _matmul_crossover("B", sizes, balance)
        case "batched_matmul":
            yield _matmul_crossover("T", sizes, balance)
            yield _constant_crossover("B", balance)
        case "expert_matmul":
            yield _expert_crossover(sizes, balance)
        case "attention":
            yield from _attention_crossovers(sizes, balance)
        case "elementwise" | "embedding":
            yield _constant_crossover("B", balance)
        case "dot":
            yield _constant_crossover("D", balance)
        case "work":
            return
        case _:
            assert_never(kind)


def _matmul_crossover(letter: str, sizes: Mapping[str, float], balance: Balance) -> Crossover:
    element_bytes, rates = balance.element_bytes, _rates(balance)
    exact = derive(
        matmul_critical_rows,
        **_pick(sizes, "DF"),
        b_a=element_bytes.activations,
        b_w=element_bytes.weights,
        b_o=element_bytes.outputs,
        **rates,
    )
    rule = derive(small_batch_critical_rows, b_w=element_bytes.weights, **rates)
    return Crossover(letter=letter, exact=_derived(exact), rule=_derived(rule) if element_bytes.weights else None)


def _expert_crossover(sizes: Mapping[str, float], balance: Balance) -> Crossover:
    """An expert sees k·B/E rows: its matmul's crossover, for all of them together."""
    one = _matmul_crossover("B", sizes, balance)

    def of_all(figure: Figure) -> Figure:
        every = derive(expert_critical_rows, B=figure.value, **_pick(sizes, "Ek"))
        return _derived(*figure.derivations, every)

    return Crossover(letter="B", exact=of_all(one.exact), rule=None if one.rule is None else of_all(one.rule))


def _attention_crossovers(sizes: Mapping[str, float], balance: Balance) -> Iterator[Crossover]:
    group = sizes["N"] / sizes["K"]
    element_bytes, rates = balance.element_bytes, _rates(balance)
    b_a, b_w = (element_bytes.activations + element_bytes.outputs) / 2, element_bytes.weights
    if "S" not in sizes:
        length = derive(self_attention_critical_queries, G=group, b_a=b_a, b_w=b_w, **rates)
        yield Crossover(letter="T", exact=_derived(length))
        return
    queries = derive(attention_critical_queries, S=sizes["S"], G=group, b_a=b_a, b_w=b_w, **rates)
    rule = derive(small_batch_critical_queries, G=group, b_w=b_w, **rates)
    yield Crossover(letter="T", exact=_derived(queries), rule=_derived(rule) if b_w else None)
    keys = derive(attention_critical_keys, T=sizes["T"], G=group, b_a=b_a, b_w=b_w, **rates)
    yield Crossover(letter="S", exact=_derived(keys))


def _constant_crossover(letter: str, balance: Balance) -> Crossover:
    size = derive(
        constant_critical_size,
        intensity_flops_per_byte=balance.intensity_flops_per_byte,
        ridge_flops_per_byte=balance.ridge_flops_per_byte,
    )
    return Crossover(letter=letter, exact=_derived(size))


def _rates(balance: Balance) -> dict[str, float]:
    return {"C_flops_per_s": balance.peak_flops_per_s, "W_bytes_per_s": balance.bytes_per_s}


def _keys(sizes: Mapping[str, float]) -> float:
    """Keys a query sees; without a number of its own, a sequence sees itself."""
    return sizes.get("S", sizes["T"])


def _pick(sizes: Mapping[str, float], letters: str) -> dict[str, float]:
    return {letter: sizes[letter] for letter in letters}


def _derived(*steps: Derivation) -> Figure:
    return Figure(value=steps[-1].value, derivations=steps)
