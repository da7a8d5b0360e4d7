"""A Transformer as chapter 4 of the Scaling Book counts it: parameters and FLOPs by role, attention beside the matmuls.

Counts are of matrices and tables; norms, biases and routers are `rest`. Scores count the whole sequence unless a
discount for the causal mask is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ridgeline.cost.explain import Derivation, derive
from ridgeline.cost.laws.memory import saved_bytes
from ridgeline.cost.laws.run import forward_flops_per_token, training_flops_per_token
from ridgeline.cost.laws.transformer import cache_bytes, crossover_tokens, passes_flops, scores_ratio
from ridgeline.cost.questions.parameter_formula import parameter_derivations
from ridgeline.job.remat import KEPT_ON_DEVICE, OFFLOADED
from ridgeline.model import accounting
from ridgeline.model.accounting import TRAINING_PASSES, kept_elements_per_token, operations
from ridgeline.model.operations import Attention
from ridgeline.model.recompute import recomputed_flops_per_token
from ridgeline.model.reference import model_of
from ridgeline.model.roles import Role, RoleAccount, matrix_parameters, role_accounts
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ridgeline.model.operations import ModelTree
    from ridgeline.model.reference import ModelReference
    from ridgeline.model.spec import ModelSpec

_LONGEST = 2**40
"""Tokens; any window is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCount:
    """One role, in all layers.

    Attributes:
        parameters: Its weights.
        active_parameters: Those one token visits.
        forward_flops: Of all tokens asked about.
        training_flops: Of them, forward and backward.
    """

    parameters: int
    active_parameters: int
    forward_flops: float
    training_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RematCount:
    """What a rematerialisation policy keeps and repeats, of all tokens asked about, in all layers.

    Attributes:
        saved_bytes: Kept by the forward pass, on the device or on the host.
        recomputed_flops: Repeated by the backward pass.
    """

    saved_bytes: float
    recomputed_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerCount:
    """A model counted.

    Attributes:
        spec: The model.
        num_tokens: Tokens asked about.
        roles: `attention` (its projections), `scores`, `mlp`, `mixer`, `embedding`, `unembedding`, `rest`.
        parameters: Of matrices and tables.
        active_parameters: Of those, what one token visits.
        all_parameters: Norms, biases and routers too.
        forward_flops_per_token: 2 for each active parameter.
        training_flops_per_token: 6 for each active parameter.
        scores_ratio: FLOPs of scores and values over those of the layers' matmuls, at this length.
        crossover_tokens: Length from which scores take more than all of the layers' matmuls.
        projections_crossover_tokens: Length from which they take more than attention's own matmuls.
        cache_bytes_per_token: Growth of the KV cache.
        cache_bytes_per_sequence: Of one sequence.
        remat: By policy.
        derivations: Where the numbers come from.
    """

    spec: ModelSpec
    num_tokens: float
    roles: Mapping[Role, RoleCount]
    parameters: int
    active_parameters: int
    all_parameters: int
    forward_flops_per_token: float
    training_flops_per_token: float
    scores_ratio: float
    crossover_tokens: float
    projections_crossover_tokens: float
    cache_bytes_per_token: float
    cache_bytes_per_sequence: float
    remat: Mapping[str, RematCount]
    derivations: tuple[Derivation, ...]

    @property
    def vocabulary(self) -> RoleCount:
        """Both tables together; looking a row up costs no FLOPs."""
        return _together(self.roles["embedding"], self.roles["unembedding"])

    @property
    def matmuls(self) -> RoleCount:
        """The matmuls of the layers: attention's projections, the MLP, and whatever else mixes the sequence."""
        return _together(self.roles["attention"], self.roles["mlp"], self.roles["mixer"])

    @property
    def whole(self) -> RoleCount:
        """All matrices and tables, 6 FLOPs for each parameter that meets a token, the scores left out."""
        return RoleCount(
            parameters=self.parameters,
            active_parameters=self.active_parameters,
            forward_flops=self.num_tokens * self.forward_flops_per_token,
            training_flops=self.num_tokens * self.training_flops_per_token,
        )

    @property
    def attention_share(self) -> float:
        """Attention's parameters over all of the matrices' and tables'."""
        return self.roles["attention"].parameters / self.parameters

    @property
    def vocabulary_parameter_flops(self) -> float:
        """Training FLOPs of the vocabulary if both tables were multiplied: what counting 6 a parameter assumes."""
        return self.num_tokens * training_flops_per_token(P_active=self.vocabulary.parameters)

    @property
    def matmuls_follow_parameters(self) -> bool:
        """Whether the layers' matmuls take 6 FLOPs for each active parameter and token, exactly."""
        by_parameters = training_flops_per_token(P_active=self.matmuls.active_parameters)
        return self.matmuls.training_flops == self.num_tokens * by_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """The tokens that are asked about.

    Attributes:
        seq_len: Tokens of a sequence: what a query may see.
        num_sequences: Sequences.
        num_queries: Of each sequence; None for all its tokens.
        masked: Count only the keys that a query sees.
    """

    seq_len: int
    num_sequences: int = 1
    num_queries: int | None = None
    masked: bool = False

    @property
    def num_tokens(self) -> int:
        """Queries of all sequences."""
        return self.num_sequences * (self.seq_len if self.num_queries is None else self.num_queries)


def transformer_count(spec: ModelSpec, tokens: Sequences, *, b_a: float = 2.0) -> TransformerCount:
    """The model counted, for some tokens; activations and cache in elements of `b_a` bytes.

    >>> from ridgeline.model.letters import model_from_letters
    >>> count = transformer_count(model_from_letters({"D": 1024}, where=""), Sequences(seq_len=1024))
    >>> count.scores_ratio, count.crossover_tokens, count.projections_crossover_tokens  # T/8D, 8D, 2D
    (0.125, 8192.0, 2048.0)
    """
    tree = model_tree(spec)
    accounts = role_accounts(tree, seq_len=tokens.seq_len, masked=tokens.masked)
    whole = accounting.account(tree, embed_dim=spec.embed_dim, seq_len=tokens.seq_len)
    active = matrix_parameters(accounts, active=True)
    found = {
        "ratio": derive(
            scores_ratio,
            scores_flops_per_token=accounts["scores"].flops_per_token,
            matmul_flops_per_token=_layer_matmul_flops(accounts),
        ),
        "crossover": _crossover(tree, _layer_matmul_flops(accounts), masked=tokens.masked),
        "projections": replace(
            _crossover(tree, accounts["attention"].flops_per_token, masked=tokens.masked),
            quantity="crossover with attention's projections",
        ),
        "per_token": derive(cache_bytes, cache_elements=whole.cache_elements_per_token, b_a=b_a),
        "per_sequence": derive(cache_bytes, cache_elements=whole.cache_elements_per_sequence, b_a=b_a),
        "forward": derive(forward_flops_per_token, P_active=active),
        "training": derive(training_flops_per_token, P_active=active),
    }
    return TransformerCount(
        spec=spec,
        num_tokens=tokens.num_tokens,
        roles={role: _count(account, tokens.num_tokens) for role, account in accounts.items()},
        parameters=matrix_parameters(accounts),
        active_parameters=active,
        all_parameters=whole.parameters,
        forward_flops_per_token=found["forward"].value,
        training_flops_per_token=found["training"].value,
        scores_ratio=found["ratio"].value,
        crossover_tokens=found["crossover"].value,
        projections_crossover_tokens=found["projections"].value,
        cache_bytes_per_token=found["per_token"].value,
        cache_bytes_per_sequence=found["per_sequence"].value,
        remat=_remat(tree, spec, tokens, b_a=b_a),
        derivations=(*parameter_derivations(accounts), *found.values()),
    )


def transformer(
    model: ModelReference,
    *,
    seq_len: int = 8192,
    num_sequences: int = 1,
    num_queries: int | None = None,
    masked: bool = False,
    b_a: float = 2.0,
) -> TransformerCount:
    """A model counted as the Scaling Book counts it, for some sequences.

    >>> count = transformer({"D": 1024, "N": 8, "K": 2, "H": 128}, seq_len=1024, num_sequences=2)
    >>> count.roles["attention"].parameters  # 2·D·(N + K)·H
    2621440

    Args:
        model: A name, a file, letters, or a specification.
        seq_len: Tokens of a sequence.
        num_sequences: How many.
        num_queries: Of each sequence; None for all its tokens.
        masked: Count only the keys that a query sees; the book counts them all.
        b_a: Bytes of a cached or saved element.
    """
    sequences = Sequences(seq_len=seq_len, num_sequences=num_sequences, num_queries=num_queries, masked=masked)
    return transformer_count(model_of(model, where="model"), sequences, b_a=b_a)


def _count(account: RoleAccount, num_tokens: float) -> RoleCount:
    def flops(num_passes: float) -> float:
        return passes_flops(flops_per_token=account.flops_per_token, num_tokens=num_tokens, num_passes=num_passes)

    return RoleCount(
        parameters=account.parameters,
        active_parameters=account.active_parameters,
        forward_flops=flops(1),
        training_flops=flops(TRAINING_PASSES),
    )


def _together(*counts: RoleCount) -> RoleCount:
    return RoleCount(
        parameters=sum(each.parameters for each in counts),
        active_parameters=sum(each.active_parameters for each in counts),
        forward_flops=sum(each.forward_flops for each in counts),
        training_flops=sum(each.training_flops for each in counts),
    )


def _layer_matmul_flops(accounts: Mapping[Role, RoleAccount]) -> float:
    return sum(accounts[role].flops_per_token for role in ("attention", "mlp", "mixer"))


def _crossover(tree: ModelTree, matmul_flops: float, *, masked: bool) -> Derivation:
    """Where the scores, which grow with the sequence until their windows are full, reach some matmuls' FLOPs."""
    scores = [
        (operation, num_layers) for _, operation, num_layers in operations(tree) if isinstance(operation, Attention)
    ]
    full: list[tuple[Attention, int]] = []  # those whose window is full at the crossover
    while True:
        growing = [each for each in scores if each not in full]
        found = derive(
            crossover_tokens,
            matmul_flops_per_token=matmul_flops,
            score_flops_per_key=_scores(growing, seq_len=1, masked=masked),
            windowed_flops_per_token=_scores(full, seq_len=_LONGEST, masked=masked),
        )
        narrower = [each for each in growing if found.value > _reach_tokens(each[0])]
        if not narrower:
            return found
        full += narrower


def _scores(layers: Iterable[tuple[Attention, int]], *, seq_len: int, masked: bool) -> float:
    """FLOPs a token of some layers' scores and values."""
    return sum(
        num_layers * accounting.forward_flops_per_token(operation, seq_len=seq_len, masked=masked)
        for operation, num_layers in layers
    )


def _reach_tokens(operation: Attention) -> float:
    """Tokens beyond which a query sees no more: a window, or all there can be."""
    return accounting.keys_in_reach(operation, seq_len=_LONGEST) * operation.tokens_per_key


def _remat(tree: ModelTree, spec: ModelSpec, tokens: Sequences, *, b_a: float) -> Mapping[str, RematCount]:
    policies = {**KEPT_ON_DEVICE, **OFFLOADED}
    return {
        policy: RematCount(
            saved_bytes=float(
                saved_bytes(
                    batch_tokens=tokens.num_tokens,
                    L=1,
                    saved_width=kept_elements_per_token(tree, embed_dim=spec.embed_dim, names=names),
                    b_a=b_a,
                )
            ),
            recomputed_flops=tokens.num_tokens
            * recomputed_flops_per_token(tree, seq_len=tokens.seq_len, names=names, masked=tokens.masked),
        )
        for policy, names in policies.items()
    }
