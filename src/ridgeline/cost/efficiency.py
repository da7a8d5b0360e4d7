"""How much of each published peak real programs reach: few, physical, sourced numbers per chip.

A bound uses peaks alone; an estimate multiplies them by these. Each number is a `Fact` of
`calibration/CHIP.toml` with its source and kind; none is keyed by a model or a measured run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ridgeline.cost.work import larger, smaller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.cost.work import Number
    from ridgeline.hardware.chip import Fact

NARROW_DTYPES: Final = frozenset({"fp8", "fp4", "int8", "int4"})
"""Dtypes that products have by a quantization recipe only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Achieved fractions of a chip's peaks, and its fixed costs.

    Attributes:
        matmul: Fraction of the dtype's peak that a large, aligned matmul reaches, by compute dtype.
        matmul_overhead_s: Fixed time of one matmul (dispatch, pipeline fill), which small ones feel.
        matmul_fill_bytes: What a matmul moves before its arithmetic begins and after it ends: first and last tiles.
        grouped_matmul: As `matmul` in bf16, for expert matmuls over ragged groups, by product
            (`kernel_time.Product`): each has its own kernel.
        grouped_edge_rows: What a group costs beside its rows, in rows, by product: partial tiles, start and end.
            Of one kernel for all groups: a step on GPUs has a product for each (`kernel_time`).
        grouped_partial_factor: Time of such a matmul over itself, for each width that is no multiple of 128.
        attention_forward: Fraction of the bf16 peak that a fused attention reaches at head_dim 128, over the FLOPs
            of visited query-key pairs (`kernel_time.visited_keys`).
        attention_backward: The same for the backward kernel, over its own (2.5 times forward) FLOPs.
        attention_block: Queries and keys of one tile, where no job says; half of one is masked at each edge.
        attention_tile_pairs: What starting a tile costs, in query-key pairs.
        attention_row_keys: What starting a row of tiles costs, in keys of one query.
        attention_head_dim: Efficiency at other head dims over that at 128 (which is in the table, as 1), by
            head dim; linear between them. Small ones leave a matrix unit idle.
        loss_forward_bytes: HBM traffic of softmax and cross entropy, a logit, beside the product that makes it.
        loss_backward_bytes: The same for the gradient.
        vector: Fraction of HBM bandwidth that norms reach, and passes that gather rows.
        elementwise: The same for passes that only map, which the compiler fuses with each other or into a matmul.
        hbm: Fraction of HBM bandwidth that large copies reach.
        link: Fraction of a link's one-way rate that ring collectives reach (ICI, NVLink).
        link_several_rings: What of that is left where a collective runs around several rings of a torus at once.
        network: The same as `link` for DCN or the GPU network.
        network_step_s: Time of one step of a ring over the network beside what its bytes take: host, switch, jitter.
        network_launch_s: Time to start a collective over the network, once: over DCN hosts do.
        pcie: The same for host transfers.
        sustained: What of the rates of matmuls and attention, each timed alone, a whole step keeps: its clock under
            power, gaps between kernels. A ratio: it may exceed 1 where the kernels timed were not the best.
        sustained_narrow: The same of matmuls in quantized dtypes beside `sustained`: they draw other power.
        sustained_grouped: Of matmuls over ragged groups beside `sustained`: programs have kernels of their own.
        overlap: Fraction of a layer's compute time behind which its FSDP collectives can hide.
        unhidden: Fraction of transfers beside compute that nothing hides, however long it is: the first ones.
        unhidden_gather: The same for FSDP's gathers: a layer's first; all, where the compiler makes them synchronous.
        unhidden_sum: The same for the sums of gradients over FSDP's ways.
        unhidden_network: The same for the sums of gradients of replicas across slices, and FSDP across GPU nodes.
        sum_passes: Times that such a sum crosses the links: 1 as a reduce-scatter, 2 as an all-reduce of which each
            device keeps its shard.
        tensor_overlap: Fraction of tensor-parallel collective time that is hidden (collective matmul).
        launch_s: Time of a host to issue one kernel, where a program neither compiles nor replays them.
        step_overhead_s: Fixed time per optimizer step (launch, host, input).
        spread: Half-width of the interval around the estimate, as a fraction (low = 1/(1+spread), high = 1+spread).
        facts: Every number above by key, with source.
    """

    matmul: Mapping[str, float]
    matmul_overhead_s: float
    matmul_fill_bytes: float
    grouped_matmul: Mapping[str, float]
    grouped_edge_rows: Mapping[str, float]
    grouped_partial_factor: float
    attention_forward: float
    attention_backward: float
    attention_block: float
    attention_tile_pairs: float
    attention_row_keys: float
    attention_head_dim: Mapping[int, float]
    loss_forward_bytes: float
    loss_backward_bytes: float
    vector: float
    elementwise: float
    hbm: float
    link: float
    link_several_rings: float
    network: float
    network_step_s: float
    network_launch_s: float
    pcie: float
    sustained: float
    sustained_narrow: float
    sustained_grouped: float
    overlap: float
    unhidden: float
    unhidden_gather: float
    unhidden_sum: float
    unhidden_network: float
    sum_passes: float
    tensor_overlap: float
    launch_s: float
    step_overhead_s: float
    spread: float
    facts: Mapping[str, Fact]

    def link_fraction(self, num_rings: Number) -> Number:
        """Fraction of the links' rate that a collective reaches around one ring of a torus, or several at once."""
        are_several = smaller(larger(num_rings - 1.0, 0.0), 1.0)
        return self.link * (1.0 - are_several * (1.0 - self.link_several_rings))

    @property
    def in_whole_steps(self) -> Efficiency:
        """The same with the rates of matmuls and attention as whole steps sustain them."""
        kept = self.sustained
        narrow, grouped = kept * self.sustained_narrow, kept * self.sustained_grouped
        return replace(
            self,
            matmul={name: share * (narrow if name in NARROW_DTYPES else kept) for name, share in self.matmul.items()},
            grouped_matmul={name: share * grouped for name, share in self.grouped_matmul.items()},
            attention_forward=self.attention_forward * kept,
            attention_backward=self.attention_backward * kept,
        )

    def at_head_dim(self, width: float) -> float:
        """Attention's efficiency at a head dim over that at 128."""
        return head_dim_factor(self.attention_head_dim, width)


def head_dim_factor(table: Mapping[int, float], width: float) -> float:
    """Attention's efficiency at a head dim over that at 128.

    Linear between the table's entries, flat above, proportional to the width below: a matrix unit takes the same
    time for any width up to its own.

    >>> [head_dim_factor({64: 0.5, 128: 1.0}, width) for width in (32, 96, 256)]
    [0.25, 0.75, 1.0]

    Args:
        table: Head dim to efficiency.
        width: Mean of a key's and a value's.
    """
    known = sorted(table.items())
    if width < known[0][0]:
        return known[0][1] * width / known[0][0]
    below = max((item for item in known if item[0] <= width), default=known[0])
    above = min((item for item in known if item[0] >= width), default=known[-1])
    span = above[0] - below[0]
    return below[1] if span <= 0 else below[1] + (above[1] - below[1]) * (width - below[0]) / span
