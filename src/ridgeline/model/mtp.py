"""Heads for further tokens (multi-token prediction): each drafts the token after the one before it.

A head joins the stream of the last layer and the embedding of the token just drawn, projects both to the model's width,
and runs them through one more decoder layer. Embedding table and output matrix are the model's own.

Source: DeepSeek-V3 technical report (arXiv:2412.19437), section 2.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ridgeline.model.operations import Activation, Matmul, Tensor
from ridgeline.model.tree import model_tree, predicting_layers

if TYPE_CHECKING:
    from ridgeline.model.operations import ModelTree
    from ridgeline.model.spec import ModelSpec


def mtp_tree(spec: ModelSpec) -> ModelTree:
    """What one head computes to draft a token: a layer like the last, behind the projection of two streams to one.

    >>> from ridgeline.model.zoo import resolve_model
    >>> tree = mtp_tree(resolve_model("deepseek3-671b", where="model"))
    >>> [(layer.name, layer.count) for layer in tree.layers], tree.embedding.operations[-1].path
    ([('layer', 1)], 'mtp_projection')
    """
    layers = tuple((layer, 1) for layer in predicting_layers(spec))
    tree = model_tree(replace(spec, layers=layers, mtp_layers=0, mtp_depth=0))
    width = spec.embed_dim
    projection = Matmul(
        path="mtp_projection",
        weight=Tensor(name="embedding/mtp_projection", axes=("unit", "unit"), shape=(2 * width, width)),
        output=Activation(name="mtp_projection", axes=("embed",), shape=(width,)),
    )
    embedding = replace(tree.embedding, operations=(*tree.embedding.operations, projection))
    return replace(tree, embedding=embedding)
