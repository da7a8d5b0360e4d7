"""The laws of serving as one system: say what is known, read what follows.

    laws = decode_laws(B=32, P="70B", b_w=1, token_cache_bytes=163840, T=8192, num_chips=8, W_hbm_bytes_per_s=8.2e11)
    laws["decode_step_s"], laws["decode_tokens_per_s_per_chip"]

The names are those of the formulas in `decode`, `capacity`, `decode_sharding`, `speculation` and `serving`, and of
their parameters. Whatever is given stands, be it a constant, or a figure that could have been derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ridgeline.cost.laws import batch as laws_batch
from ridgeline.cost.laws import capacity, decode, decode_sharding, serving, slices, speculation
from ridgeline.cost.laws import memory as laws_memory
from ridgeline.cost.laws.deduce import Laws, deduce, read_quantities, system

if TYPE_CHECKING:
    from ridgeline.cost.laws.deduce import System
    from ridgeline.model.reference import ModelReference

DECODING: Final[System] = (
    *system(
        laws_memory.weight_bytes,
        serving.token_cache_bytes,
        sequence_cache_bytes=serving.windowed_cache_bytes,
    ),
    *system(
        serving.sequence_cache_bytes,
        serving.batch_cache_bytes,
        slices.hbm_flops_per_byte,
        serving.chip_weight_bytes,
    ),
    *system(
        held_bytes=serving.serving_bytes,
        decode_critical_rows=slices.memory_critical_tokens_per_chip,
    ),
    *system(
        serving.weight_load_s,
        decode.cache_read_s,
        decode.decode_math_s,
        decode.decode_step_s,
    ),
    *system(decode_step_s=capacity.read_all_s),
    *system(
        decode.decode_tokens_per_s,
        decode.decode_tokens_per_s_per_chip,
        decode.weights_and_caches_fit,
        decode.matmuls_compute,
        decode.full_memory_step_s,
        decode.crossover_keys,
        decode.batch_is_compute_bound,
        decode.prompt_is_compute_bound,
        decode.prefill_s,
        decode.computed_fraction,
        decode.cached_prefill_s,
        decode.prefill_servers_ratio,
        decode.finished_requests,
        decode.evicted_tokens,
        laws_memory.slice_hbm_bytes,
        laws_memory.num_memory_chips,
        laws_memory.num_whole_memory_chips,
        serving.num_rounded_memory_chips,
        serving.num_sequences_beside_weights,
        capacity.slice_free_bytes,
        capacity.num_fitting_sequences,
        capacity.token_activation_bytes,
        capacity.activation_bytes,
        capacity.requests_per_s,
        capacity.requests_per_s_per_chip,
        capacity.cache_overtakes_math_tokens,
        capacity.lone_step_s,
        capacity.affordable_rows,
        capacity.cheaper_factor,
        laws_batch.alpha_flops_per_byte,
        laws_batch.tensor_largest_degree,
        laws_batch.tensor_is_compute_bound,
        decode.beta_ratio,
        decode.tensor_memory_degree,
        decode_sharding.tensor_reads_longer,
        decode_sharding.cache_head_degree,
        decode_sharding.cache_batch_degree,
        decode_sharding.cache_token_degree,
        decode_sharding.num_mlp_parameters,
        decode_sharding.mlp_load_s,
        decode_sharding.matmul_link_s,
        decode_sharding.matmul_load_s,
        decode_sharding.matmul_math_s,
        decode_sharding.stationary_model_degree,
        decode_sharding.stationary_width_degree,
        decode_sharding.mlp_math_s,
        decode_sharding.mlp_link_s,
        decode_sharding.stationary_link_s,
        decode_sharding.stationary_link_factor,
        decode_sharding.stationary_critical_chips,
        decode_sharding.stationary_is_quicker,
        speculation.loop_tokens,
        speculation.speculative_s,
        speculation.speculative_token_s,
        speculation.speculative_speedup,
    ),
)
"""What can be said of decoding and of prefill."""

Resource: TypeAlias = Literal["math", "hbm", "ici"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLaws(Laws):
    """What the laws of serving say of what was given."""

    @property
    def step_bound(self) -> Literal["compute", "memory"]:
        """What the matmuls of a step wait for: arithmetic, or their weights."""
        return "compute" if self.known["matmuls_compute"] else "memory"

    @property
    def matmul_bound(self) -> Resource:
        """What one matmul of tensor parallelism waits for: arithmetic, memory, or links."""
        names: dict[Resource, str] = {"math": "matmul_math_s", "hbm": "matmul_load_s", "ici": "matmul_link_s"}
        return max(names, key=lambda resource: self.known[names[resource]])


def decode_laws(model: ModelReference | None = None, **given: float | str) -> DecodeLaws:
    """Everything that these laws say of a model, or of what is given alone.

    >>> machine = {"num_chips": 8, "W_hbm_bytes_per_s": 8.2e11}
    >>> answer = decode_laws(B=32, sequence_cache_bytes="1GB", weight_bytes="70GB", **machine)
    >>> print(f"{answer['decode_step_s'] * 1e3:.1f} ms")
    15.5 ms

    Args:
        model: A name, a file, letters, or a specification; what is given of it stands.
        **given: Quantities by name: B, P, b_w, T, token_cache_bytes, num_chips, C_flops_per_s, W_hbm_bytes_per_s,
            hbm_bytes, mfu, ….
    """
    known = read_quantities(given)
    of_model = {} if model is None else serving.quantities_of_model(model, known)
    return DecodeLaws(known=deduce(DECODING, of_model | known))
