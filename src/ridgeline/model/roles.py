"""What the parts of a Transformer are there for: attention, scores, MLP, vocabulary, and the rest.

The Scaling Book counts a model by roles: matrices of attention and of the MLP, the scores and values of attention,
which have no weights and grow with the sequence, and the two tables of the vocabulary. Norms, biases and routers
are the rest. The counts are sums over the same tree as everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.model.accounting import forward_flops_per_token, operations
from ridgeline.model.operations import (
    Attention,
    Dispatch,
    Elementwise,
    ExpertMatmul,
    Lookup,
    Matmul,
    Recurrence,
    weights_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.model.operations import ModelTree, Operation, Tensor

Role: TypeAlias = Literal["attention", "scores", "mlp", "mixer", "embedding", "unembedding", "rest"]
"""`mixer` is what mixes the sequence without attention (Mamba, delta rule)."""

ROLES: Final[tuple[Role, ...]] = ("attention", "scores", "mlp", "mixer", "embedding", "unembedding", "rest")
"""Every role, in the order of a layer."""

_BLOCKS: Final[Mapping[str, Role]] = {
    "attention": "attention",
    "mlp": "mlp",
    "moe": "mlp",
    "mamba": "mixer",
    "delta": "mixer",
}
"""The role of a matmul by the block it is in, of several the first (a hybrid block holds both mixers)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAccount:
    """What all layers together have and do in one role.

    Attributes:
        parameters: Weights; a tied table counts as embedding.
        active_parameters: Those one token visits.
        flops_per_token: Forward.
        tensors: The weights, each with how many layers have one.
    """

    parameters: int = 0
    active_parameters: int = 0
    flops_per_token: float = 0.0
    tensors: tuple[tuple[Tensor, int], ...] = ()


def role_accounts(tree: ModelTree, *, seq_len: int, masked: bool = True) -> Mapping[Role, RoleAccount]:
    """Every role's account.

    >>> from ridgeline.model.letters import model_from_letters
    >>> from ridgeline.model.tree import model_tree
    >>> tree = model_tree(model_from_letters({"L": 2, "D": 8, "F": 16, "N": 2, "K": 1, "H": 4, "V": 32}, where=""))
    >>> accounts = role_accounts(tree, seq_len=10, masked=False)
    >>> accounts["attention"].parameters, accounts["mlp"].parameters  # 2·(2·8·(2 + 1)·4), 2·(3·8·16)
    (384, 768)
    >>> accounts["scores"].flops_per_token  # 2·(4·10·2·4)
    640.0

    Args:
        tree: The model.
        seq_len: Tokens a sequence.
        masked: Count only the keys a query sees; else its whole sequence or window, as the Scaling Book does.
    """
    found: dict[Role, RoleAccount] = dict.fromkeys(ROLES, RoleAccount())
    tables: set[str] = set()
    for path, operation, num_layers in operations(tree):
        main = role_of(path, operation)
        flops = num_layers * forward_flops_per_token(operation, seq_len=seq_len, masked=masked)
        found[main] = replace(found[main], flops_per_token=found[main].flops_per_token + flops)
        for role, tensor in _weights(main, operation):
            if tensor.name not in tables:
                found[role] = _with(found[role], tensor, num_layers, _active_share(operation))
        if isinstance(operation, Lookup):
            tables.add(operation.weight.name)
    return found


def role_of(path: str, operation: Operation) -> Role:
    """The role of an operation, by its kind and, for matmuls, by the block it is in."""
    match operation:
        case Attention():
            return "scores"
        case Recurrence():
            return "mixer"
        case Lookup():
            return "embedding"
        case Elementwise() | Dispatch():
            return "rest"
        case Matmul() | ExpertMatmul():
            words = path.split("/")
    if path == "head/logits":
        return "unembedding"
    if "router" in words or words[0] in {"embedding", "head"}:
        return "rest"
    for block, role in _BLOCKS.items():
        if block in words:
            return role
    return "rest"


def matrix_parameters(accounts: Mapping[Role, RoleAccount], *, active: bool = False) -> int:
    """Parameters of matrices and tables alone, as the Scaling Book counts a model; `active`: that a token visits."""
    counted = [account for role, account in accounts.items() if role != "rest"]
    return sum(account.active_parameters if active else account.parameters for account in counted)


def _weights(main: Role, operation: Operation) -> Iterator[tuple[Role, Tensor]]:
    """Each weight with its role: the matrix has its operation's, a bias or a scale is of the rest."""
    for index, tensor in enumerate(weights_of(operation)):
        yield main if index == 0 or main == "mixer" else "rest", tensor


def _active_share(operation: Operation) -> tuple[int, int]:
    """Of an operation's weights, the part a token visits, as a ratio of whole numbers."""
    return (operation.top_k, operation.weight.shape[0]) if isinstance(operation, ExpertMatmul) else (1, 1)


def _with(account: RoleAccount, tensor: Tensor, num_layers: int, share: tuple[int, int]) -> RoleAccount:
    size, (visited, of) = num_layers * tensor.size, share
    return replace(
        account,
        parameters=account.parameters + size,
        active_parameters=account.active_parameters + size // of * visited,
        tensors=(*account.tensors, (tensor, num_layers)),
    )
