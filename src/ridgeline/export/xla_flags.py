"""XLA flags that a plan's compiler settings mean, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.job.job import Compiler

_OFFLOADED: Final[Mapping[str, str]] = {
    "all_gather": "all-gathers",
    "reduce_scatter": "reduce-scatters",
    "all_reduce": "all-reduces",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaFlag:
    """One flag.

    Attributes:
        name: Without dashes; in capitals that of an environment variable.
        value: As written after the equals sign.
        reason: What it is for.
    """

    name: str
    value: str
    reason: str

    @property
    def written(self) -> str:
        """`--name=value`, or `NAME=value`."""
        return f"{'' if self.name.isupper() else '--'}{self.name}={self.value}"


def xla_flags(compiler: Compiler) -> tuple[XlaFlag, ...]:
    """What a plan tells the TPU compiler; what it leaves open stays at the compiler's default.

    >>> from ridgeline.job.job import Compiler
    >>> [flag.written for flag in xla_flags(Compiler(scoped_vmem_kib=61440))]
    ['--xla_tpu_scoped_vmem_limit_kib=61440']
    """
    return tuple(_flags(compiler))


def _flags(compiler: Compiler) -> Iterator[XlaFlag]:
    if compiler.scoped_vmem_kib is not None:
        yield XlaFlag(
            name="xla_tpu_scoped_vmem_limit_kib",
            value=str(compiler.scoped_vmem_kib),
            reason=f"one operation may use {compiler.scoped_vmem_kib} KiB of VMEM; the rest is for prefetches",
        )
    if compiler.sparse_core_offload:
        for kind, collectives in _OFFLOADED.items():
            offloaded = kind in compiler.sparse_core_offload
            yield XlaFlag(
                name=f"xla_tpu_enable_sparse_core_collective_offload_{kind}",
                value=str(offloaded).lower(),
                reason=f"{collectives} run on the {'SparseCore' if offloaded else 'TensorCore'}",
            )
