"""What training, prefill and decode have in common: a decoder's forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import AttentionKernel, Dtypes, ExpertKernel, Quantization, Remat
    from ridgeline.model.operations import ModelTree, Tensor
    from ridgeline.program.layout import Layout
    from ridgeline.program.pipeline import Schedule
    from ridgeline.program.scans import LayerScan


class ForwardProgram(Protocol):
    """The forward pass of a decoder: what it computes, on how many tokens, and how a mesh splits it."""

    @property
    def tree(self) -> ModelTree:
        """The operations and weights it consists of."""
        ...

    @property
    def scans(self) -> tuple[LayerScan, ...]:
        """Its layers in order, as loops over stacked weights."""
        ...

    @property
    def weights(self) -> Mapping[str, tuple[Tensor, int]]:
        """Every weight by its name, with how many layers stack theirs (0: outside the layers)."""
        ...

    @property
    def layout(self) -> Layout:
        """How the mesh splits arrays."""
        ...

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        ...

    @property
    def micro_steps(self) -> int:
        """Passes in which they are computed."""
        ...

    @property
    def seq_len(self) -> int:
        """Tokens of each that are computed."""
        ...

    @property
    def dtypes(self) -> Dtypes:
        """Precisions."""
        ...

    @property
    def remat(self) -> Remat:
        """What it keeps for a backward pass."""
        ...

    @property
    def attention(self) -> AttentionKernel:
        """Kernel and tiles."""
        ...

    @property
    def pipeline(self) -> Schedule:
        """How microbatches pass through the stages, where there are any."""
        ...

    @property
    def quantization(self) -> Quantization | None:
        """The recipe of its matmuls in low precision."""
        ...

    @property
    def experts(self) -> ExpertKernel:
        """Kernel and dispatch of experts."""
        ...
