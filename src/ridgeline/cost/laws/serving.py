"""What serving keeps in memory: weights and KV caches, the chips that hold them, and how long reading them takes.

P  parameters     B  sequences at once     T  tokens of a sequence
b_w, b_a  bytes of a weight's and of a cached element
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, log2
from typing import TYPE_CHECKING, Final

from ridgeline.cost.laws import memory as laws_memory
from ridgeline.cost.laws.deduce import Laws, System, deduce, read_quantities, system
from ridgeline.cost.laws.transformer import cache_bytes
from ridgeline.model.accounting import account
from ridgeline.model.reference import model_of
from ridgeline.model.roles import matrix_parameters, role_accounts
from ridgeline.model.tree import model_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ridgeline.model.reference import ModelReference
    from ridgeline.model.roles import Role, RoleAccount
    from ridgeline.model.spec import ModelSpec


def token_cache_bytes(*, token_cache_elements: float, b_a: float = 2.0) -> float:
    """KV cache of a token.

    Formula: 2 · b_a · K · H · L

    Source: Scaling Book, ch. 4.

    >>> token_cache_bytes(token_cache_elements=2 * 8 * 128 * 80, b_a=1)
    163840
    """
    return cache_bytes(cache_elements=token_cache_elements, b_a=b_a)


def sequence_cache_bytes(*, token_cache_bytes: float, T: float) -> float:
    """KV cache of a sequence.

    Formula: token_cache_bytes · T

    Assumes: every layer keeps every token; windows keep less.

    Source: Scaling Book, ch. 4.

    >>> sequence_cache_bytes(token_cache_bytes=163840, T=32768)
    5368709120
    """
    return token_cache_bytes * T


def windowed_cache_bytes(*, sequence_cache_elements: float, b_a: float = 2.0) -> float:
    """KV cache of a sequence whose elements are counted: windows cap it, states do not grow with it.

    Formula: b_a · sequence_cache_elements

    Source: Scaling Book, ch. 7, local attention.

    >>> windowed_cache_bytes(sequence_cache_elements=1024, b_a=2)
    2048
    """
    return cache_bytes(cache_elements=sequence_cache_elements, b_a=b_a)


def batch_cache_bytes(*, sequence_cache_bytes: float, B: float) -> float:
    """KV cache of all sequences.

    Formula: sequence_cache_bytes · B

    Source: Scaling Book, ch. 7.

    >>> batch_cache_bytes(sequence_cache_bytes=5368709120, B=240)
    1288490188800
    """
    return sequence_cache_bytes * B


def serving_bytes(*, weight_bytes: float, batch_cache_bytes: float = 0.0) -> float:
    """Weights and caches.

    Formula: weight_bytes + batch_cache_bytes

    Assumes: activations are few beside them.

    Source: Scaling Book, ch. 7.

    >>> serving_bytes(weight_bytes=7.0e10, batch_cache_bytes=1.3e12)
    1370000000000.0
    """
    return weight_bytes + batch_cache_bytes


def num_rounded_memory_chips(*, num_memory_chips: float) -> float:
    """The next power of two: slices come in those sizes.

    Formula: 2^⌈log₂ num_memory_chips⌉

    Source: Scaling Book, ch. 8.

    >>> num_rounded_memory_chips(num_memory_chips=13.2)
    16
    """
    return 2 ** max(ceil(log2(num_memory_chips)), 0)


def num_sequences_beside_weights(*, weight_bytes: float, sequence_cache_bytes: float) -> float:
    """Sequences whose caches together reach the size of the weights.

    Formula: ⌈weight_bytes / sequence_cache_bytes⌉

    Source: Scaling Book, ch. 7.

    >>> num_sequences_beside_weights(weight_bytes=2.6e10, sequence_cache_bytes=6.7e9)
    4
    """
    return ceil(weight_bytes / sequence_cache_bytes)


def weight_load_s(*, weight_bytes: float, num_chips: float, W_hbm_bytes_per_s: float) -> float:
    """Time in which chips read all weights from their memories: no step of decoding is faster.

    Formula: T = weight_bytes / (num_chips · W_hbm)

    Assumes: weights split over all chips.

    Source: Scaling Book, ch. 2, question 1; ch. 7.

    >>> weight_load_s(weight_bytes=1.6e12, num_chips=1000, W_hbm_bytes_per_s=8.0e11)
    0.002
    """
    return weight_bytes / (num_chips * W_hbm_bytes_per_s)


def chip_free_bytes(*, hbm_bytes: float, weight_bytes: float, num_chips: float) -> float:
    """Memory that weights leave on each chip.

    Formula: hbm_bytes − weight_bytes / num_chips

    Source: Scaling Book, ch. 7.

    >>> chip_free_bytes(hbm_bytes=1.6e10, weight_bytes=6.4e10, num_chips=8)
    8000000000.0
    """
    return hbm_bytes - weight_bytes / num_chips


def chip_weight_bytes(*, num_local_parameters: float, b_w: float = 2.0) -> float:
    """Weights on a chip when experts are split over as many ways as there are, and every matrix over the rest.

    Formula: b_w · num_local_parameters

    Source: Scaling Book, ch. 7, question 6.

    >>> chip_weight_bytes(num_local_parameters=100)
    200.0
    """
    return b_w * num_local_parameters


def mlp_cache_ratio(*, D: float, F: float, T: float, K: float, H: float) -> float:
    """MLP matrices over the KV cache of a sequence: what a larger batch can still gain.

    Formula: 2 · D · F / (T · H · K)

    Source: Scaling Book, ch. 7: F/T up to a constant.

    >>> mlp_cache_ratio(D=8192, F=28672, T=8192, K=64, H=128)
    7.0
    """
    return 2 * D * F / (T * H * K)


SERVING: Final[System] = (
    *system(laws_memory.weight_bytes, token_cache_bytes),
    *system(sequence_cache_bytes=windowed_cache_bytes),
    *system(sequence_cache_bytes, batch_cache_bytes),
    *system(held_bytes=serving_bytes),
    *system(
        laws_memory.num_memory_chips,
        laws_memory.num_whole_memory_chips,
        num_rounded_memory_chips,
        num_sequences_beside_weights,
        weight_load_s,
        chip_free_bytes,
        chip_weight_bytes,
        mlp_cache_ratio,
    ),
)
"""What can be said of memory in serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory(Laws):
    """What the laws of memory in serving say of what was given."""

    @property
    def mlp_cache_scaling(self) -> str:
        """How the ratio of MLP to cache goes with the model and the sequence, S tokens long."""
        return "F/S up to a constant"


def serving_memory(model: ModelReference | None = None, **given: float | str) -> ServingMemory:
    """Everything these laws say of a model, or of what is given alone.

    >>> cached = {"L": 80, "K": 8, "H": 128}  # of Llama 3 70B, all that its cache depends on
    >>> answer = serving_memory(cached, T=32768, B=240, b_a=1, weight_bytes="70GB", hbm_bytes="16GB")
    >>> answer["token_cache_bytes"], answer["num_whole_memory_chips"]
    (163840.0, 85.0)

    Args:
        model: A name, a file, letters, or a specification; what is given of it stands.
        **given: Quantities by name: P, b_w, b_a, T, B, num_chips, hbm_bytes, W_hbm_bytes_per_s, ….
    """
    known = read_quantities(given)
    of_model = {} if model is None else quantities_of_model(model, known)
    return ServingMemory(known=deduce(SERVING, of_model | known))


def quantities_of_model(model: ModelReference, values: Mapping[str, float]) -> dict[str, float]:
    """What these laws take from a model.

    Args:
        model: A name, a file, letters, or a specification.
        values: What is given beside it: T and num_chips, where they are known.
    """
    return dict(_of_model(model_of(model, where="model"), values))


def _of_model(spec: ModelSpec, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    tree = model_tree(spec)
    accounts = role_accounts(tree, seq_len=1)
    yield "P", float(matrix_parameters(accounts))
    seq_len = int(values.get("T", 1))
    counted = account(tree, embed_dim=spec.embed_dim, seq_len=seq_len)
    yield "token_cache_elements", counted.cache_elements_per_token
    if "T" in values:
        yield "sequence_cache_elements", counted.cache_elements_per_sequence
    if "num_chips" in values:
        yield "num_local_parameters", _local_parameters(accounts, int(values["num_chips"]))


def _local_parameters(accounts: Mapping[Role, RoleAccount], num_chips: int) -> float:
    """Experts over as many ways as there are; every matrix, theirs too, over the ways that are left."""
    tensors = [item for role, each in accounts.items() if role != "rest" for item in each.tensors]
    experts = gcd(num_chips, *(tensor.shape[0] for tensor, _ in tensors if "experts" in tensor.axes))
    ways = experts if any("experts" in tensor.axes for tensor, _ in tensors) else 1
    return sum(
        num_layers * tensor.size / (num_chips if "experts" in tensor.axes else num_chips / ways)
        for tensor, num_layers in tensors
    )
