"""Prompts whose beginning is cached: what the rest of them sees, and what it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.cost.serving.attention import prompt_keys
from ridgeline.cost.serving.device import cached_attentions
from ridgeline.cost.serving.requests import like
from ridgeline.model.tree import model_tree
from ridgeline.model.zoo import load_model


def test_tokens_after_a_cached_beginning_see_it_whole() -> None:
    operation, _ = next(cached_attentions(model_tree(load_model("llama3.1-8b"))))
    whole = like(prompt_tokens=1000, reply_tokens=100)
    rest = replace(whole, mean_read_tokens=400.0, read_tokens=(400.0,))

    # Token t sees t keys: on average (1 + 1000) / 2 of all, and (601 + 1000) / 2 of the last 400.
    assert prompt_keys(operation, whole) == pytest.approx(500.5, rel=2e-3)
    assert prompt_keys(operation, rest) == pytest.approx(800.5, rel=2e-3)


def test_a_window_hides_most_of_a_cached_beginning() -> None:
    tree = model_tree(load_model("gemma3-27b"))
    operation = next(each for each, _ in cached_attentions(tree) if each.span.kind == "sliding")
    whole = like(prompt_tokens=16_384, reply_tokens=100)
    rest = replace(whole, mean_read_tokens=4096.0, read_tokens=(4096.0,))

    assert prompt_keys(operation, rest) == pytest.approx(operation.span.window, rel=1e-3)
