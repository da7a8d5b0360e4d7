"""A model that is referred to by a path: as a file says it, and as seen from the current folder."""

from __future__ import annotations

from os.path import normpath, relpath
from pathlib import Path


def is_path(model_reference: str) -> bool:
    """Whether a model is referred to by a path that counts from some folder.

    >>> is_path("./llama"), is_path("config.json"), is_path("llama3.1-8b"), is_path("/models/config.json")
    (True, True, False, False)
    """
    return model_reference.startswith(".") or (model_reference.endswith(".json") and model_reference[0] not in "/~")


def path_from(model_reference: str, folder: str) -> str:
    """A reference that counts from a folder, as it counts from the current one; a zoo name as it is.

    >>> path_from("llama3.1-8b", "jobs"), path_from("models/config.json", "jobs")
    ('llama3.1-8b', 'jobs/models/config.json')
    """
    return _written(normpath(Path(folder) / model_reference)) if is_path(model_reference) else model_reference


def path_to(model_reference: str, folder: str) -> str:
    """The other way round: what counts from the current folder, as a file in `folder` must say it.

    >>> path_to("llama3.1-8b", "jobs"), path_to("jobs/models/config.json", "jobs")
    ('llama3.1-8b', 'models/config.json')
    """
    return _written(relpath(model_reference, folder)) if is_path(model_reference) else model_reference


def _written(path: str) -> str:
    """A path that is not taken for a name."""
    return path if path.endswith(".json") or path.startswith((".", "/")) else f"./{path}"
