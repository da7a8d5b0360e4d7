"""However a caller means a model: by name, by file, by its letters, or as a specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ridgeline.model.letters import model_from_letters
from ridgeline.model.zoo import resolve_model

if TYPE_CHECKING:
    from ridgeline.model.spec import ModelSpec

ModelReference: TypeAlias = "str | Mapping[str, int] | ModelSpec"
"""`llama3.1-70b`, a path, `L=64,D=4096`, `{"L": 64, "D": 4096}`, or a specification."""


def model_of(reference: ModelReference, *, where: str) -> ModelSpec:
    """The model a caller means.

    >>> model_of({"D": 4096, "F": 14336}, where="model").embed_dim
    4096

    Args:
        reference: In any of its forms.
        where: The argument, for error messages.
    """
    match reference:
        case str():
            return resolve_model(reference, where=where)
        case Mapping():
            return model_from_letters(reference, where=where)
        case spec:
            return spec
