"""A model given by the letters of the Scaling Book: `L=64,D=4096,F=16384,N=32,K=8,H=256,V=32128,E=16,k=2,tied`.

It becomes a specification like any other: attention of N query and K key-value heads of width H, a gated MLP of
width F (or E experts of which a token visits k), L layers, a vocabulary of V. What is left out takes its usual
proportion: N·H = D, K = N, F = 4·D, one layer, no vocabulary; the specification's notes say which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ridgeline.errors import InputError, nearest
from ridgeline.model.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec
from ridgeline.units import parse_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SIZES: Final[Mapping[str, str]] = {
    "L": "layers",
    "D": "model width",
    "F": "MLP width",
    "N": "query heads",
    "K": "key-value heads",
    "H": "head width",
    "NH": "query heads times head width",
    "V": "vocabulary",
    "E": "experts",
    "k": "experts a token visits",
}
"""Letters with a size."""

FLAGS: Final[Mapping[str, bool]] = {"gated": True, "tied": False}
"""Words that are true or false, with what they are when left out; `ungated` and `untied` say the other."""

_USUAL_HEAD_DIM = 128


def parse_letters(text: str, *, where: str) -> dict[str, int]:
    """The letters of a text; a flag is 1 or 0.

    >>> parse_letters("L=2,D=4Ki,ungated", where="MODEL")
    {'L': 2, 'D': 4096, 'gated': 0}

    Args:
        text: `L=64,D=4096,…`; commas or spaces between them.
        where: The flag or key, for error messages, which also point at the column.
    """
    letters: dict[str, int] = {}
    for column, word in _words(text):
        name, equals, value = word.partition("=")
        flag = name.removeprefix("un")
        place = f"{where}, column {column}"
        if name in letters or flag in letters:
            raise InputError(
                "a letter is given twice", where=place, value=word, expected=f"{name} once", fix="drop one"
            )
        if equals and name in SIZES:
            letters[name] = parse_whole(value, where=place, unit=SIZES[name])
        elif not equals and flag in FLAGS:
            letters[flag] = int(flag == name)
        else:
            known = (*(f"{letter}=…" for letter in SIZES), *FLAGS)
            fix = nearest(name, (*SIZES, *FLAGS)) or "see `ridgeline model --help`"
            raise InputError("unknown letter of a model", where=place, value=word, expected=", ".join(known), fix=fix)
    return letters


def model_from_letters(letters: Mapping[str, int], *, where: str) -> ModelSpec:
    """The model of some letters.

    >>> spec = model_from_letters({"L": 64, "D": 4096, "F": 16384, "N": 32, "K": 8, "H": 256, "V": 32128}, where="")
    >>> spec.num_layers, spec.layers[0][0].mlp
    (64, MlpSpec(mlp_dim=16384, gated=True, bias=False, fused=False))

    Args:
        letters: Of `SIZES`, and `FLAGS` as 1 or 0.
        where: The flag or argument they came from, for error messages.
    """
    for name, value in letters.items():
        if name not in SIZES and name not in FLAGS:
            fix = nearest(name, (*SIZES, *FLAGS)) or "leave it out"
            raise InputError("unknown letter of a model", where=where, value=name, expected=", ".join(SIZES), fix=fix)
        if name in SIZES and value < 1:
            raise InputError(
                "number too small", where=f"{where}: {name}", value=value, expected="1 or more", fix=f"mend {name}"
            )
    full = _completed(letters, where=where)
    gated = bool(letters.get("gated", FLAGS["gated"]))
    mlp = (
        MoeSpec(num_experts=full["E"], top_k=letters.get("k", 1), expert_mlp_dim=full["F"], gated=gated)
        if "E" in letters
        else MlpSpec(mlp_dim=full["F"], gated=gated)
    )
    attention = AttentionSpec(num_heads=full["N"], num_kv_heads=full["K"], head_dim=full["H"])
    taken = ", ".join(f"{name} = {full[name]:,}" for name in ("L", "D", "F", "N", "K", "H", "V") if name not in letters)
    return ModelSpec(
        name=" ".join(f"{name}={value}" for name, value in letters.items() if name in SIZES),
        embed_dim=full["D"],
        vocab_size=full["V"],
        layers=((LayerSpec(mixer=attention, mlp=mlp), full["L"]),),
        tied_embeddings=bool(letters.get("tied", FLAGS["tied"])),
        notes=(f"Not given, and taken as usual: {taken}.",) if taken else (),
    )


def _completed(letters: Mapping[str, int], *, where: str) -> dict[str, int]:
    """Every letter, those left out in their usual proportion to the others."""
    heads, width, both = letters.get("N") or letters.get("K"), letters.get("H"), letters.get("NH")
    both = both or (heads * width if heads and width else None) or letters.get("D")
    if both is None:
        known = "D, or N and H"
        raise InputError("no width is given", where=where, value=", ".join(letters), expected=known, fix="give D")
    width = width or (both // heads if heads else _USUAL_HEAD_DIM if both % _USUAL_HEAD_DIM == 0 else both)
    heads = heads or both // width
    embed_dim = letters.get("D", both)
    return {
        "L": letters.get("L", 1),
        "D": embed_dim,
        "F": letters.get("F", 4 * embed_dim),
        "N": letters.get("N", heads),
        "K": letters.get("K", heads),
        "H": width,
        "V": letters.get("V", 0),
        "E": letters.get("E", 1),
    }


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Each word with the column it starts at, counted from 1."""
    column = 1
    for word in text.replace(" ", ",").split(","):
        if word:
            yield column, word
        column += len(word) + 1
