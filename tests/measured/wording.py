"""Meshes and remat policies in words, alike for what was run and what is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cost.training.layer import named_activations
from ridgeline.job.job import MESH_AXES
from ridgeline.job.remat import LAYER_INPUT, keeps_unnamed, placements
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import Remat
    from ridgeline.model.spec import ModelSpec


def mesh_in_words(mesh: Mapping[str, int]) -> str:
    """`fsdp=64 tp=4`."""
    return " ".join(f"{axis}={mesh[axis]}" for axis in MESH_AXES if mesh.get(axis, 1) > 1) or "one device"


def kept_in_words(model: ModelSpec, remat: Remat) -> str:
    """What a policy keeps of the values that the model has; two policies that keep the same read the same."""
    if keeps_unnamed(remat):
        return "nothing computed again"
    names = {LAYER_INPUT} | {each.name for layer in model_tree(model).layers for each in named_activations(layer)}
    placed = {name: place for name, place in placements(remat).items() if name in names}
    kept = " ".join(name for name, place in placed.items() if place == "device" and name != LAYER_INPUT)
    moved = " ".join(name for name, place in placed.items() if place == "offload")
    said = (f"keeps {kept}" if kept else "", f"offloads {moved}" if moved else "")
    return "; ".join(each for each in said if each) or "all computed again"
