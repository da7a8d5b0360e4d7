"""Sections of the model's work: which part of a step is whose."""

from __future__ import annotations

FEED_FORWARD, EXPERTS, ATTENTION, PROJECTIONS, HEAD = (
    "feed-forward matmuls",
    "expert matmuls",
    "attention",
    "attention projections",
    "head",
)
"""Sections of the model's work."""


def section_of(path: str) -> str:
    """The section of a leaf by its path; "" for what is none of the model's own work.

    >>> section_of("step/forward/layer/compute/mlp/up"), section_of("embedding/tokens")
    ('feed-forward matmuls', '')
    """
    steps = set(path.split("/"))
    if "moe" in steps and "shared" not in steps:
        return EXPERTS
    if steps & {"scores", "key_value", "key_value_gradient"}:
        return ATTENTION
    if "mlp" in steps or "moe" in steps:
        return FEED_FORWARD
    if "attention" in steps or "mla" in steps:
        return PROJECTIONS
    return HEAD if "head" in steps else ""
