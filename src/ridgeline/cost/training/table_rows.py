"""Rows of a table that other devices hold a part of: the devices gather the table, or exchange the rows looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeline.cost.collectives import exchange
from ridgeline.cost.training.leaves import transfer_part
from ridgeline.cost.work import scaled
from ridgeline.model.operations import Lookup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ridgeline.cost.columns import PlanColumns, TrainingSetting
    from ridgeline.cost.work import Number, Part, Phase
    from ridgeline.model.operations import Operation


def exchanged_share(operation: Operation, *, rows: Number, setting: TrainingSetting) -> Number:
    """1 where a lookup exchanges rows, 0 where the table is gathered first.

    A program that XLA partitions exchanges them while the table has more rows than a device has tokens: every device
    looks up all tokens in its part of the width, and an all-to-all gives each device its own tokens whole. Kernels
    that a host issues one by one read a table that was gathered.

    Source: HLO of `table[tokens]` and of its gradient, the width over 8 devices, the tokens too (jax 0.12): of 16,384
    tokens a device, tables of 20,000 rows and more are exchanged, those of 12,000 and fewer gathered.

    Args:
        operation: Any; only a `Lookup` has rows.
        rows: Tokens of this device.
        setting: The job.
    """
    if setting.is_eager or not isinstance(operation, Lookup):
        return 0.0
    return np.where(np.asarray(rows) < operation.weight.shape[0], 1.0, 0.0)


def row_exchange(
    operation: Operation, phase: Phase, *, rows: Number, setting: TrainingSetting, columns: PlanColumns
) -> Iterator[Part]:
    """The rows of a device's tokens on their way to it; backward their gradients, where the table is trained."""
    if not isinstance(operation, Lookup) or (phase == "backward" and not setting.trains(operation.weight)):
        return
    travel = exchange(columns.links["weights"], rows * operation.width * setting.activation_bytes / columns.tensor)
    word = "all_to_all" if phase == "forward" else "all_to_all_gradient"
    sent = transfer_part(f"{operation.path}/{word}", phase, "weights", travel, setting=setting)
    yield scaled(sent, exchanged_share(operation, rows=rows, setting=setting))
