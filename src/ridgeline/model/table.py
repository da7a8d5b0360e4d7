"""Reads a model written as a TOML table: the form of the zoo's files and of a job's inline `[model]`.

The keys are the fields of `spec.py`. What all layers share stands in the model's own table; where layers
differ, `layer.KIND` says how each kind differs, `pattern` repeats the kinds down the stack, and `leading`
puts some in front::

    embed_dim = 7168
    vocab_size = 129280
    num_layers = 61
    leading = ["dense", "dense", "dense"]
    pattern = ["moe"]
    mla = { num_heads = 128, q_lora_rank = 1536, … }
    moe = { num_experts = 256, top_k = 8, expert_mlp_dim = 2048, shared_mlp_dim = 2048 }
    layer.dense.mlp = { mlp_dim = 18432 }

A kind with a mixer or a channel mixer of another sort than the shared one has that instead of it. Kinds with names of
one letter may be written without commas, as hybrids are published: `pattern = "MEMEM*E"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import chain, cycle, groupby, islice
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ridgeline.errors import InputError, nearest
from ridgeline.model.spec import (
    AttentionSpec,
    CompressedAttentionSpec,
    GatedDeltaSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
)

Table: TypeAlias = Mapping[str, object]
"""A parsed TOML table."""

_Record = TypeVar("_Record")

_MIXERS = {
    "attention": AttentionSpec,
    "mla": MlaSpec,
    "compressed": CompressedAttentionSpec,
    "mamba": MambaSpec,
    "gated_delta": GatedDeltaSpec,
}
_CHANNELS = {"mlp": MlpSpec, "moe": MoeSpec}
_LAYER_KEYS = {*_MIXERS, *_CHANNELS} | {field.name for field in fields(LayerSpec)} - {"mixer", "mlp"}
_STACK_KEYS = {"num_layers", "leading", "pattern", "layer"}
_ONLY_KIND = "layer"
_LARGEST = 2**40
_MOST_LAYERS = 10_000


def model_from_table(table: Table, *, name: str, where: str) -> ModelSpec:
    """The decoder a table describes.

    Args:
        table: The model's keys.
        name: What to call it.
        where: The file and key it stands under, for error messages.
    """
    shared = {key: value for key, value in table.items() if key in _LAYER_KEYS}
    kinds = _subtable(table, "layer", where)
    order = _kinds_in_order(table, where)
    layers = {
        kind: _layer(shared, _subtable(kinds, kind, where), where=f"{where}.layer.{kind}")
        for kind in dict.fromkeys(order)
    }
    rest = {key: value for key, value in table.items() if key not in _LAYER_KEYS | _STACK_KEYS}
    model = {"final_norm": shared.get("norm", {}), **rest}
    stack = tuple((layer, len(list(run))) for layer, run in groupby(layers[kind] for kind in order))
    return _record(ModelSpec, model, where, name=name, layers=stack)


def merged(below: Table, above: Table) -> Table:
    """Both tables; where they meet, sub-tables merge and other values of `above` win.

    >>> merged({"mlp": {"mlp_dim": 8, "bias": True}, "norm": {}}, {"mlp": {"mlp_dim": 16}})
    {'mlp': {'mlp_dim': 16, 'bias': True}, 'norm': {}}
    """
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merged(_as_table(old), _as_table(value)) if _is_table(old) and _is_table(value) else value
    return both


def changed(base: Table, changes: Table) -> Table:
    """`merged`, except that a mixer or channel mixer of another sort takes the place of the base's.

    >>> sorted(changed({"mlp": {"mlp_dim": 8}, "norm": {}}, {"moe": {"num_experts": 4}}))
    ['moe', 'norm']
    """
    named = [kinds for kinds in (_MIXERS, _CHANNELS) if not kinds.keys().isdisjoint(changes)]
    replaced = {key for kinds in named for key in kinds if key not in changes}
    return merged({key: value for key, value in base.items() if key not in replaced}, changes)


def _kinds_in_order(table: Table, where: str) -> list[str]:
    """The kind of each layer, from the first to the last."""
    num_layers = table.get("num_layers")
    if not _conforms(num_layers, int) or not 0 < cast("int", num_layers) <= _MOST_LAYERS:
        raise _wrong(where, "num_layers", num_layers, f"a whole number from 1 to {_MOST_LAYERS}")
    front, repeated = _named_kinds(table, "leading", [], where), _named_kinds(table, "pattern", [_ONLY_KIND], where)
    if not repeated:
        raise _wrong(where, "pattern", repeated, "a list of layer kinds")
    for kind in _subtable(table, "layer", where):
        if kind not in front + repeated:
            raise _wrong(
                where, f"layer.{kind}", kind, f"a kind of `leading` or `pattern`: {', '.join(front + repeated)}"
            )
    return list(islice(chain(front, cycle(repeated)), cast("int", num_layers)))


def _named_kinds(table: Table, key: str, otherwise: list[str], where: str) -> list[str]:
    """Layer kinds of a list, or of a text whose letters are the kinds that `layer` describes."""
    kinds, described = table.get(key, otherwise), _subtable(table, "layer", where)
    as_letters = isinstance(kinds, str) and all(letter in described for letter in kinds)
    if not (as_letters or _conforms(kinds, list[str])):
        raise _wrong(where, key, kinds, "a list of layer kinds")
    return list(cast("Sequence[str]", kinds))


def _layer(shared: Table, own: Table, *, where: str) -> LayerSpec:
    """One kind of layer: its mixers, its channel mixer and its norms."""
    both = merged(shared, own)
    parts = {role: _chosen(kinds, shared, own, where) for role, kinds in (("mixer", _MIXERS), ("mlp", _CHANNELS))}
    beside = _subtable(both, "beside", where)
    if not beside.keys() <= _MIXERS.keys():
        raise _wrong(where, "beside", ", ".join(beside), f"one of {', '.join(_MIXERS)}")
    parts["beside"] = _chosen(_MIXERS, {}, beside, f"{where}.beside")
    rest = {key: value for key, value in both.items() if key not in {*_MIXERS, *_CHANNELS, "beside"}}
    return _record(LayerSpec, rest, where, **parts)


def _chosen(kinds: Mapping[str, type[object]], shared: Table, own: Table, where: str) -> object:
    """The one record that a table names out of several kinds, or None; `own` may name another kind than `shared`."""
    found = [key for key in kinds if key in own] or [key for key in kinds if key in shared]
    if len(found) > 1:
        raise _wrong(where, found[1], ", ".join(found), f"one of {', '.join(kinds)}")
    both = merged(shared, own)
    return next((_shaped(kinds[key], _subtable(both, key, where), f"{where}.{key}") for key in found), None)


def _shaped(kind: type[object], table: Table, where: str) -> object:
    """A record whose counts agree with each other."""
    match _record(kind, table, where):
        case AttentionSpec(num_heads=heads, num_kv_heads=groups) if heads % groups:
            raise _wrong(where, "num_heads", heads, f"a multiple of the {groups} key-value heads")
        case MoeSpec(top_k=visited, num_experts=experts) if visited > experts:
            raise _wrong(where, "top_k", visited, f"no more than the {experts} experts")
        case record:
            return record


def _record(kind: type[_Record], table: Table, where: str, **ready: object) -> _Record:
    """A dataclass from a table whose keys are its fields; `ready` holds fields that are values already."""
    hints = _hints(kind)
    values: dict[str, Any] = dict(ready)
    for key, value in table.items():
        if key not in hints or key in ready:
            known = [name for name in hints if name not in ready]
            fix = nearest(key, known) or "remove it"
            raise InputError("unknown key", where=where, value=key, expected=f"one of {', '.join(known)}", fix=fix)
        values[key] = _value(value, hints[key], key=key, where=where)
    for field in fields(cast("Any", kind)):
        hint = hints[field.name]
        if field.default is not MISSING or field.default_factory is not MISSING:
            continue
        if NoneType in get_args(hint):
            values.setdefault(field.name, None)
        elif values.get(field.name, 0) == 0:  # a size that must be given must not be zero either
            expected = _described(hint).replace("zero", "one")
            raise _wrong(where, field.name, table.get(field.name, "(absent)"), expected)
    return kind(**values)


def _value(value: object, hint: object, *, key: str, where: str) -> object:
    """A field's value, a nested record included."""
    record = next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)
    if record is not None and _is_table(value):
        return _record(cast("type[object]", record), _as_table(value), f"{where}.{key}")
    if not _conforms(value, hint):
        raise _wrong(where, key, value, _described(hint))
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _conforms(value: object, hint: object) -> bool:
    """Whether a TOML value is what a field's annotation asks for; whole numbers are never negative."""
    origin = get_origin(hint)
    if origin in {Union, UnionType}:
        return any(_conforms(value, option) for option in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin in {tuple, list}:
        item_hint = get_args(hint)[0]
        return isinstance(value, list) and all(_conforms(item, item_hint) for item in cast("list[object]", value))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    return isinstance(value, hint) if isinstance(hint, type) else False


def _described(hint: object) -> str:
    """An annotation in words."""
    options = [option for option in get_args(hint) if option is not NoneType]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(str(option) for option in options)}"
    if get_origin(hint) in {Union, UnionType}:
        return " or ".join(_described(option) for option in options)
    if get_origin(hint) in {tuple, list}:
        return "a list"
    words = {int: "a whole number, zero or more", bool: "true or false", str: "a text"}
    return words.get(cast("type", hint), "a table")


@cache
def _hints(kind: type[object]) -> Mapping[str, object]:
    return get_type_hints(kind)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _as_table(value: object) -> Table:
    return cast("Table", value)


def _subtable(table: Table, key: str, where: str) -> Table:
    value = table.get(key, {})
    if not _is_table(value):
        raise _wrong(where, key, value, "a table")
    return _as_table(value)


def _wrong(where: str, key: str, value: object, expected: str) -> InputError:
    return InputError(f"unusable `{key}`", where=where, value=value, expected=expected, fix=f"mend `{key}`")
