"""Which function answers a question of which feature.

    @adapter("collective.all_gather")
    def all_gather(inputs: Mapping[str, Any], wanted: Collection[str]) -> Mapping[str, Any]:
        answer = ridgeline.collective("all_gather", V_bytes=inputs["V"], …)
        return {"t": answer.expected_s, "regime": answer.regime}

An adapter puts the inputs of one item to the public API and picks fields of the result by answer key. A key
it cannot answer it leaves out. It computes nothing itself: `test_adapters.py` reads its source. Beside the item's
inputs it finds under `inputs["setup"]` the sentence that poses the question: some items name their layout
(`A[I_X,J] x B[J_X,K_Y]`) or scheme (`FSDP`) only there.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from tests.book import adapters

Adapter: TypeAlias = Callable[[Mapping[str, Any], Collection[str]], Mapping[str, Any]]

ADAPTERS: dict[str, Adapter] = {}
"""By feature, once `load_adapters` has been called."""


def adapter(*features: str) -> Callable[[Adapter], Adapter]:
    """Marks the function that answers questions of these features."""

    def register(function: Adapter) -> Adapter:
        for feature in features:
            if feature in ADAPTERS:
                raise ValueError(f"{feature} has two adapters: {ADAPTERS[feature].__module__}, {function.__module__}")
            ADAPTERS[feature] = function
        return function

    return register


def load_adapters() -> Mapping[str, Adapter]:
    """Every adapter, by feature."""
    for module in pkgutil.iter_modules(adapters.__path__, f"{adapters.__name__}."):
        import_module(module.name)
    return ADAPTERS
