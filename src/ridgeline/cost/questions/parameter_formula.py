"""How many parameters a role of a model has, in the letters of its own weights: `L · (2·D·N·H + 2·D·K·H)`.

The formula is read off the tensors whose sizes were summed, so that it cannot say anything but what was counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from ridgeline.cost.explain import Derivation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.model.operations import Tensor
    from ridgeline.model.roles import Role, RoleAccount

_LETTERS: Final = {
    "embed": "D",
    "embed_moe": "D",
    "mlp": "F",
    "mlp_moe": "F",
    "heads": "N",
    "kv_heads": "K",
    "head_dim": "H",
    "vocab": "V",
    "experts": "E",
}
"""The letter of a logical axis; others show their size."""

_LETTER_ORDER: Final = "EDFNKHV"
"""As the book writes a product."""


def parameter_derivations(accounts: Mapping[Role, RoleAccount]) -> Iterator[Derivation]:
    """One for each role that has matrices or tables.

    >>> from ridgeline.model.letters import model_from_letters
    >>> from ridgeline.model.roles import role_accounts
    >>> from ridgeline.model.tree import model_tree
    >>> tree = model_tree(model_from_letters({"L": 2, "D": 8, "F": 32, "N": 2, "K": 1, "H": 4}, where=""))
    >>> for each in parameter_derivations(role_accounts(tree, seq_len=1)):
    ...     print(each.quantity, "=", each.formula)
    parameters of attention = L · (2·D·N·H + 2·D·K·H)
    parameters of mlp = L · 3·D·F
    """
    for role, account in accounts.items():
        if role != "rest" and account.parameters:
            letters = _letters(account)
            groups = _terms(account, letters)
            layers = [count for _, count in groups]
            values = {"L": float(layers[0])} if len(layers) == 1 and layers[0] > 1 else {}
            yield Derivation(
                quantity=f"parameters of {role}",
                value=float(account.parameters),
                unit="",
                formula=" + ".join(_sum(terms, times="L" if values else f"{count:,}") for terms, count in groups),
                values=(*values.items(), *letters.items()),
                assumes="norms, biases and routers are counted apart.",
                source="the weights of the model; Scaling Book, ch. 4.",
            )


def _letters(account: RoleAccount) -> dict[str, float]:
    """The letters of a role's axes, as far as each has one size."""
    sizes: defaultdict[str, set[int]] = defaultdict(set)
    for tensor, _ in account.tensors:
        for axis, size in zip(tensor.axes, tensor.shape, strict=True):
            if axis in _LETTERS:
                sizes[_LETTERS[axis]].add(size)
    return {letter: float(min(sizes[letter])) for letter in _LETTER_ORDER if len(sizes[letter]) == 1}


def _terms(account: RoleAccount, values: Mapping[str, float]) -> list[tuple[Counter[str], int]]:
    """The weights of a layer, and how many layers have such ones; layers with the same weights together."""
    by_count: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for tensor, num_layers in account.tensors:
        by_count[num_layers][_product(tensor, values)] += 1
    merged: list[tuple[Counter[str], int]] = []
    for num_layers, terms in by_count.items():
        known = next((each for each in merged if each[0] == terms), None)
        if known is not None:
            merged.remove(known)
        merged.append((terms, num_layers + (known[1] if known else 0)))
    return merged


def _product(tensor: Tensor, values: Mapping[str, float]) -> str:
    """A weight's elements: `D·N·H`."""
    names = [_LETTERS.get(axis, "") for axis in tensor.axes]
    factors = [name if name in values else f"{size:,}" for name, size in zip(names, tensor.shape, strict=True)]
    return "·".join(sorted((factor for factor in factors if factor != "1"), key=_LETTER_ORDER.find)) or "1"


def _sum(terms: Mapping[str, int], *, times: str) -> str:
    added = " + ".join(f"{count}·{term}" if count > 1 else term for term, count in terms.items())
    if times == "1":
        return added
    return f"{times} · ({added})" if len(terms) > 1 else f"{times} · {added}"
