"""Adapters of a job: which of the model's products have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import InputError, nearest
from ridgeline.job.job import Lora
from ridgeline.model.adapters import adaptable
from ridgeline.model.tree import model_tree
from ridgeline.units import parse_whole

if TYPE_CHECKING:
    from ridgeline.job.document import LoraTable
    from ridgeline.job.job import Optimizer
    from ridgeline.job.origin import Origin
    from ridgeline.model.spec import ModelSpec


def parse_lora(table: LoraTable | None, model: ModelSpec, optimizer: Optimizer, origin: Origin) -> Lora | None:
    """The adapters that a table describes; beside every product that can have one unless it names some.

    Raises:
        InputError: The model has no such product, or the optimizer is not AdamW.
    """
    if table is None:
        return None
    known = adaptable(model_tree(model))
    targets = known if table.targets is None else tuple(table.targets)
    for target in targets or ("",):
        if target not in known:
            raise InputError(
                "no product that an adapter can lie beside",
                where=origin.of("plan.lora.targets"),
                value=target or "(empty)",
                expected=", ".join(known),
                fix=nearest(target, known) or "use some of those, or leave targets out",
            )
    if optimizer.kind != "adamw":
        raise InputError(
            f"what {optimizer.kind} costs on adapters is not known",
            where=origin.of("plan.optimizer.kind"),
            value=optimizer.kind,
            expected="adamw beside lora",
            fix='use kind = "adamw"',
        )
    rank = parse_whole(table.rank, where=origin.of("plan.lora.rank"), unit="elements", most=model.embed_dim)
    return Lora(rank=rank, targets=targets, alpha=table.alpha)
