"""Models by name: MaxText's names and the common ones, dimensions as published.

Each file of `zoo/` holds a family: one table a model, in the form `table.py` reads, over the family's
`[defaults]`. Besides dimensions a model states its `source` and its `aliases`. A name is matched by its
letters, digits and dots alone, without the organisation in front of it and without words that name a
fine-tune, its date or a storage format: `meta-llama/Llama-3.1-70B-Instruct-FP8`, `LLAMA3.1_70b` and
`llama3.1-70b` are one architecture. A storage format says what the checkpoint holds (`stored_format.py`).
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from os.path import lexists
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, cast

from ridgeline.errors import InputError, nearest
from ridgeline.model.letters import model_from_letters, parse_letters
from ridgeline.model.stored_format import as_named
from ridgeline.model.table import Table, changed, merged, model_from_table

if TYPE_CHECKING:
    from ridgeline.model.spec import ModelSpec

_ZOO = Path(__file__).with_name("zoo")
_DEFAULTS = "defaults"
_FINE_TUNES = {"base", "chat", "hf", "instruct", "it", "meta", "nvidia", "pt", "reasoning", "text", "thinking"}
_FORMATS = {"bf16", "fp8", "fp4", "nvfp4", "mxfp4", "int8", "int4", "awq", "gptq", "w8a8", "w4a16", "dynamic", "kv"}
_NOT_ARCHITECTURE = _FINE_TUNES | _FORMATS
_DATE = re.compile(r"2[3-9](0[1-9]|1[0-2])|(0[1-9]|1[0-2])[0-3][0-9]")
"""Year and month, or month and day: `2507`, `0528`."""
_IN_BRACKETS = re.compile(r"\([^)]*\)")
_POINT = re.compile(r"(?<=\d)_(?=\d(?![\d.bt]))")
"""An underscore in place of a version's point: `Qwen3_5_397B`, not `Llama3_8B`."""
_BETWEEN_WORDS = re.compile(r"[^a-z0-9.]+")


def model_names() -> tuple[str, ...]:
    """Every model's name, family by family."""
    return tuple(name for family in _families() for name in _read(family))


def load_model(name: str, *, where: str = "MODEL") -> ModelSpec:
    """The model of a name or alias.

    Args:
        name: E.g. `llama3.1-70b`, `Llama-3.1-70B` or `meta-llama/Llama-3.1-70B`.
        where: The flag or key the name came from, for the error message.
    """
    found = _find(name)
    if found is None:
        fix = "give the path of its config.json (with ./ in front, if it is a folder here)"
        raise _unknown(name, where, or_else=", or the path of a Hugging Face config.json", fix=fix)
    model, table = found
    spec = model_from_table(_described(table), name=model, where=f"zoo: {model}")
    return as_named(spec, name=name, words=_words(name))


def inline_model(table: Table, *, where: str) -> ModelSpec:
    """The model of a job file's `[model]` table.

    Args:
        table: In the form `table.py` reads, and a `name`; or the name of a zoo model as `base`, and what differs
            from it.
        where: The file and key it stands under, for error messages.
    """
    base = table.get("base")
    name = table.get("name", None if base is None else f"{base} (changed)")
    for key, value in (("base", base), ("name", name)):
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise InputError(
                f"unusable `{key}`", where=f"{where}.{key}", value=value, expected="a name", fix=f"mend `{key}`"
            )
    if name is None:
        raise InputError(
            "a model without a name",
            where=where,
            value=", ".join(table) or "(empty)",
            expected="name = … and the model's dimensions, or base = … and what differs from it",
            fix='add name = "mine", or base = "llama3.1-8b"',
        )
    own = {key: value for key, value in table.items() if key not in {"base", "name"}}
    if base is None:
        return model_from_table(own, name=str(name), where=where)
    found = _find(str(base))
    if found is None:
        raise _unknown(str(base), f"{where}.base", or_else="", fix="`ridgeline model` lists them")
    below = _described(found[1])
    notes = [*cast("list[str]", below["notes"]), f"{found[0]} with its own {', '.join(own)}"] if own else below["notes"]
    return model_from_table(changed({**below, "notes": notes}, own), name=str(name), where=where)


def _described(table: Table) -> Table:
    """A table of the zoo with its source among the notes."""
    rest = {key: value for key, value in table.items() if key not in {"aliases", "source"}}
    return {**rest, "notes": [*cast("list[str]", table.get("notes", [])), f"Dimensions: {table['source']}"]}


def _unknown(name: str, where: str, *, or_else: str, fix: str) -> InputError:
    known = model_names()
    expected = f"one of the zoo's {len(known)} names{or_else}"
    return InputError("unknown model", where=where, value=name, expected=expected, fix=nearest(name, known) or fix)


def resolve_model(reference: str, *, where: str = "MODEL") -> ModelSpec:
    """The model a user means: a zoo name, a config.json, a folder that holds one, or letters (`L=64,D=4096,…`).

    What looks like a path (it ends in `.json`, or starts with `.`, `/` or `~`) is one. Otherwise a zoo name
    wins over a file or folder of the same name.
    """
    looks_like_path = reference.endswith(".json") or reference.startswith((".", "/", "~"))
    if not looks_like_path and "=" in reference:
        return model_from_letters(parse_letters(reference, where=where), where=where)
    is_file = looks_like_path or (reference.strip() and not _find(reference) and lexists(reference))
    if not is_file:
        return load_model(reference, where=where)
    config = _config_file(reference, where)

    from ridgeline.model.huggingface import read_config  # a zoo name must not wait for the reader

    return read_config(config)


def _config_file(reference: str, where: str) -> Path:
    def refuse(what: str) -> InputError:
        expected = "a Hugging Face config.json, or a folder that holds one"
        fix = "check the path, or give a zoo name such as llama3.1-70b"
        return InputError(what, where=where, value=reference, expected=expected, fix=fix)

    path, absent = _without_tilde(Path(reference)), "no such model file"
    try:
        if S_ISDIR(path.stat().st_mode):
            path, absent = path / "config.json", "this folder has no config.json"
            path.stat()
    except FileNotFoundError:
        raise refuse(absent) from None
    except OSError as error:  # links in a circle, a name too long, a folder that may not be read
        raise refuse(f"cannot read the model file: {error.strerror}") from None
    except ValueError as error:  # a null byte
        raise refuse(f"cannot read the model file: {error}") from None
    return path


def _without_tilde(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # `~someone` who is unknown here
        return path


def _find(name: str) -> tuple[str, Table] | None:
    """A model's name and table, by any of its names."""
    key = _key(name)
    for family in sorted(_families(), key=lambda family: _closeness(family, key), reverse=True):
        for model, table in _read(family).items():
            if key in {_key(model), *(_key(alias) for alias in cast("list[str]", table.get("aliases", [])))}:
                return model, table
    return None


def _closeness(family: Path, key: str) -> int:
    """Orders the search: the file whose name begins the model's is opened first, and is nearly always it."""
    stem = _key(family.stem)
    return len(stem) if key.startswith(stem) else 0


def _key(name: str) -> str:
    """What is left of a name when spelling is taken away.

    >>> _key("meta-llama/Meta-Llama-3.1-70B-Instruct"), _key("LLAMA3.1_70b"), _key("Qwen3_30B_a3B (tokendrop)")
    ('llama3.170b', 'llama3.170b', 'qwen330ba3b')
    >>> _key("nvidia/Qwen3-235B-A22B-NVFP4"), _key("Qwen/Qwen3-235B-A22B-Thinking-2507")
    ('qwen3235ba22b', 'qwen3235ba22b')
    """
    return "".join(word for word in _words(name) if word not in _NOT_ARCHITECTURE and not _DATE.fullmatch(word))


def _words(name: str) -> list[str]:
    """Of a name without the organisation in front of it, in small letters."""
    return _BETWEEN_WORDS.split(_POINT.sub(".", _IN_BRACKETS.sub("", name.lower()).rsplit("/", 1)[-1]))


@cache
def _families() -> tuple[Path, ...]:
    return tuple(sorted(_ZOO.glob("*.toml")))


@cache
def _read(family: Path) -> dict[str, Table]:
    """The models of one file, its defaults filled in."""
    tables = cast("dict[str, Table]", tomllib.loads(family.read_text(encoding="utf-8")))
    defaults = tables.pop(_DEFAULTS, {})
    return {name: merged(defaults, table) for name, table in tables.items()}
