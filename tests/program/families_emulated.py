"""Run in a process of its own, as `emulated.py`: what our program says of tiny models of every family, as JSON.

    python -m tests.program.families_emulated < questions.json

Questions are those of `emulated.py`: `{"references": [...], "measured": [...]}`. Of the first the answer is the largest
distance of the program's logits from those of `reference.py`, over the largest logit, and that of the loss, with random
numbers in every weight; of the second that of `emulated.py`.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ridgeline.model.operations import weights_of
from ridgeline.model.table import changed
from ridgeline.program.decoder import Decoder
from ridgeline.program.mesh import cpu_mesh
from ridgeline.program.training import loss_and_gradients
from tests.program import emulated, reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.program.request import TrainingProgram


def reference_errors(question: dict[str, Any]) -> dict[str, float]:
    """The program's logits and loss against those of the reference."""
    program, random = emulated.program_of(question), np.random.default_rng(2)
    weights = {
        name: np.asarray(array) + 0.2 * random.standard_normal(array.shape).astype(np.float32)
        for name, array in emulated.first_state(question)["weights"].items()
    }
    sequence = random.integers(0, question["model"]["vocab_size"], program.seq_len + 1)
    batch = np.tile(sequence, (program.global_batch, 1))
    decoder = Decoder(program=program, mesh=cpu_mesh(program.layout))
    ours = np.asarray(jax.jit(decoder.logits)(weights, batch[:, :-1]))[0]
    loss, _ = jax.jit(partial(loss_and_gradients, program, decoder.mesh))(weights, batch)
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    theirs = reference.logits(
        question["model"], list(layers(question["model"], program, wide)), wide, list(sequence[:-1])
    )
    expected = reference.loss(theirs, list(sequence[1:]))
    return {
        "logits": float(np.abs(ours - theirs).max() / np.abs(theirs).max()),
        "loss": abs(float(loss) / expected - 1.0),
    }


def layers(
    model: dict[str, Any], program: TrainingProgram, weights: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Each layer in order: its name, what it is by the model's own words, and its weights."""
    kinds = islice(chain(model.get("leading", []), cycle(model.get("pattern", ["layer"]))), model["num_layers"])
    places = [(position, step) for scan in program.scans for step in range(scan.count) for position in scan.positions]
    for kind, (position, step) in zip(kinds, places, strict=True):
        operations = [operation for block in position.layer.blocks for operation in block.operations]
        tensors = [tensor for operation in operations for tensor in weights_of(operation)]
        own = {tensor.name: weights[position.weight_name(tensor)][step] for tensor in tensors}
        yield position.layer.name, changed(model, model.get("layer", {}).get(kind, {})), own


def main() -> None:
    """Answers every question of both kinds."""
    asked = json.load(sys.stdin)
    errors = [reference_errors(question) for question in asked["references"]]
    json.dump({"references": errors, "measured": emulated.answers(asked["measured"])}, sys.stdout)


if __name__ == "__main__":
    main()
