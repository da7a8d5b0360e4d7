"""Tables that devices hold a part of the width of: gathered, or their rows exchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.training.collectives import step_collectives
from tests.cost.settings import one_plan, setting_on

VOCAB, EMBED = 32768, 2048


def of_the_embedding(*, global_batch: int, is_eager: bool = False) -> list[tuple[str, str, float, float]]:
    """Collectives of a table of 32,768 rows on eight devices with sequences of 2,048 tokens."""
    setting = replace(setting_on("v5e:2x4", global_batch=global_batch), is_eager=is_eager)
    found = step_collectives(setting, one_plan(setting, {"fsdp": 8}))
    return sorted(
        (each.kind, each.phase, each.count, each.array_bytes) for each in found if each.part == "embedding/tokens"
    )


def test_rows_are_exchanged_where_a_table_has_more_than_a_device_has_tokens() -> None:
    """8 sequences a device are 16,384 tokens: XLA's program for a table of 20,000 rows exchanges them."""
    rows_bytes = 8 * 2048 * EMBED * 2

    assert of_the_embedding(global_batch=64) == [
        ("all_to_all", "backward", 1, rows_bytes),
        ("all_to_all", "forward", 1, rows_bytes),
    ]


@pytest.mark.parametrize(("global_batch", "is_eager"), [(128, False), (64, True)])
def test_a_table_is_gathered_that_has_no_more_rows_or_that_kernels_read_one_by_one(
    *, global_batch: int, is_eager: bool
) -> None:
    table_bytes = VOCAB * EMBED * 2

    assert of_the_embedding(global_batch=global_batch, is_eager=is_eager) == [
        ("all_gather", "forward", 1, table_bytes),
        ("reduce_scatter", "backward", 1, table_bytes),
    ]
