"""Loops over layers: every layer once, in order, and no more bodies than a model has different layers in a row."""

from __future__ import annotations

import pytest

from ridgeline.model.operations import weights_of
from ridgeline.model.tree import layer_names, model_tree
from ridgeline.model.zoo import load_model, model_names
from ridgeline.program.request import training_program
from ridgeline.program.scans import LayerScan, declared_weights, layer_scans
from tests.compiler.jobs import TINY, tiny_job


def scans_of(model: str) -> tuple[LayerScan, ...]:
    spec = load_model(model)
    return layer_scans(spec, model_tree(spec))


@pytest.mark.parametrize("model", model_names())
def test_the_loops_of_a_model_are_its_layers_in_order(model: str) -> None:
    spec = load_model(model)
    kinds = tuple(dict.fromkeys(layer for layer, _ in spec.layers))
    names = dict(zip(kinds, layer_names(kinds), strict=True))
    in_order = [names[layer] for layer, count in spec.layers for _ in range(count)]

    looped = [position.layer.name for scan in scans_of(model) for _ in range(scan.count) for position in scan.positions]

    assert looped == in_order


@pytest.mark.parametrize(
    ("model", "bodies"),
    [
        ("llama3.1-70b", [(80, ["layer"])]),
        ("deepseek3-671b", [(3, ["dense_layer"]), (58, ["moe_layer"])]),
        ("gemma2-9b", [(21, ["local_layer", "global_layer"])]),
        (
            "gemma3-27b",
            [
                (10, [*(f"local_layer.{number}" for number in range(5)), "global_layer"]),
                (2, ["local_layer.5"]),
            ],
        ),
    ],
)
def test_a_pattern_of_layers_is_one_loop(model: str, bodies: list[tuple[int, list[str]]]) -> None:
    assert [(scan.count, [position.name for position in scan.positions]) for scan in scans_of(model)] == bodies


def test_every_place_of_a_loop_has_weights_of_its_own() -> None:
    tree = model_tree(load_model("gemma3-27b"))
    (local, _) = tree.layers
    tensors = [tensor for block in local.blocks for each in block.operations for tensor in weights_of(each)]

    weights = declared_weights(tree, scans_of("gemma3-27b"))

    stacked = {name: count for name, (tensor, count) in weights.items() if tensor in tensors}
    assert stacked["local_layer.3/attention/query"] == 10
    assert stacked["local_layer.5/attention/query"] == 2
    assert sum(stacked.values()) == len(tensors) * local.count


@pytest.mark.parametrize(("num_layers", "barriers"), [(1, 1), (2, 0)])
def test_a_loop_of_one_round_keeps_apart_what_is_computed_again(num_layers: int, barriers: int) -> None:
    pytest.importorskip("jax")
    from ridgeline.program.mesh import cpu_mesh
    from ridgeline.program.training import abstract_state, abstract_tokens, training_step

    model = {**TINY, "num_layers": num_layers}
    program = training_program(tiny_job(model=model, hardware="v5e:1x1", plan__mesh={"fsdp": 1}))
    mesh = cpu_mesh(program.layout)

    lowered = training_step(program, mesh).lower(abstract_state(program, mesh), abstract_tokens(program, mesh))

    assert lowered.as_text().count("optimization_barrier") == barriers
