"""The KV cache of a server, and attention over it.

Of every loop over layers it holds, for each place in the loop's body, the keys and values of all rounds: arrays
[L, B, K, T, H], heads before tokens, so that a TPU's tiles hold tokens and widths and are full with one head a device.
A layer writes into the arrays as they are carried through the loop, so that a server holds them once.

Of latent attention (DeepSeek) it holds one array of latents, [L, B, 1, T, R + rotary width], the same on every device
along the tensor axes: queries are brought into the latents' space instead of keys out of it.

Where a layer sees a window of W tokens, T is W: token p lies in slot p mod W, over the one that has left the window.
In 8 bits every head of every token has a scale of its own, [L, B, K, T].

Shapes: L rounds, B sequences, S tokens at hand, N query heads, K key-value heads, T slots, H width of keys, H_v of
values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ridgeline.model.operations import Attention
from ridgeline.program.attention import OwnKeys, dot_product
from ridgeline.program.dtypes import jax_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jax import Array
    from jax.sharding import Mesh

    from ridgeline.job.job import Dtype
    from ridgeline.job.sharding import Axes
    from ridgeline.model.operations import Layer
    from ridgeline.program.serving import ServingProgram

    Cache: TypeAlias = Mapping[str, Mapping[str, Array]]
    """By the name of a layer's place, then `key`, `value`, and in 8 bits `key_scale` and `value_scale`."""

LARGEST: Final[Mapping[Dtype, float]] = {"int8": 127.0, "fp8": 448.0}
"""The largest number of each 8-bit format; of fp8, e4m3's (arXiv:2209.05433, table 1)."""

SCALE_DTYPE: Final[Dtype] = "f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedKeys:
    """Keys and values of the tokens at hand, and of those before them, in one layer of a pass.

    Attributes:
        program: Its phase, layout and precisions.
        mesh: The devices.
        start: Position of the first token at hand.
        stored: The cache of the layer's place, all rounds.
        number: Which round this is.
        written: Where `attend` leaves the cache with the tokens at hand in it; read within the same trace.
    """

    program: ServingProgram
    mesh: Mesh
    start: Array | int
    stored: Mapping[str, Array]
    number: Array
    written: dict[str, Array] = field(default_factory=dict[str, Any])

    def attend(
        self, query: Array, key: Array, value: Array, sinks: Array | None = None, *, operation: Attention
    ) -> Array:
        """Writes keys and values down; then each query sees those of its span, in the prompt or in the cache."""
        if not self.written:
            self._write("key", key)
            self._write("value", value)
        if self.program.phase == "prefill":
            return OwnKeys(program=self.program, mesh=self.mesh).attend(query, key, value, sinks, operation=operation)
        return self._over_slots(query, sinks, operation, v_head_dim=value.shape[-1])

    def keeps(self, latents: Array) -> bool:
        """Latents take the place of keys; their first elements are values too."""
        self._write("key", latents)
        return self.program.phase == "decode"

    def _write(self, name: str, tokens: Array) -> None:
        """The last tokens [B, S, K, H] into their slots."""
        import jax
        import jax.numpy as jnp

        slots = self.stored[name].shape[3]
        last = tokens[:, -slots:].swapaxes(1, 2)
        seq_len = last.shape[2]
        first = (self.start + tokens.shape[1] - seq_len) % slots
        if seq_len == slots:  # the window is full: its slots turn so that each token comes to lie in its own
            last, first = jnp.roll(last, first, axis=2), 0
        for array_name, array in self._packed(name, last):
            whole = self.written.get(array_name, self.stored[array_name])
            at = (self.number, 0, 0, first, 0)[: whole.ndim]
            self.written[array_name] = jax.lax.dynamic_update_slice(whole, array[None], at)

    def _packed(self, name: str, tokens: Array) -> Iterator[tuple[str, Array]]:
        """Tokens [B, K, S, H] as the cache keeps them, with their scales if it has such."""
        import jax.numpy as jnp

        dtype = self.program.kv_cache
        if dtype not in LARGEST:
            yield name, tokens.astype(jax_dtype(dtype))
            return
        wide = tokens.astype(jnp.float32)
        scale = jnp.maximum(jnp.max(jnp.abs(wide), axis=-1), jnp.finfo(jnp.float32).tiny) / LARGEST[dtype]
        scaled = wide / scale[..., None]
        yield name, (jnp.round(scaled) if dtype == "int8" else scaled).astype(jax_dtype(dtype))
        yield f"{name}_scale", scale

    def _over_slots(self, query: Array, sinks: Array | None, operation: Attention, *, v_head_dim: int) -> Array:
        """One query of each sequence over all slots that are in use: [B, 1, N, H] to [B, 1, N, H_v]."""
        import jax.numpy as jnp

        key = self._read("key")
        value = self._read("value") if "value" in self.written else key[..., :v_head_dim]
        slots = key.shape[1]
        # A chunk's slots fill again from the first; a window's are all in use once it has been full.
        newest = self.start % slots if operation.span.kind == "chunked" else self.start
        seen = (jnp.arange(slots) <= newest)[None]
        if not self.program.layout.spreads_cache:
            return dot_product(query, key, value, sinks, seen=seen)
        layout, heads = self.program.layout, operation.num_cached_heads
        where_cached = layout.cache_batch(heads), (), layout.kv_heads(heads), ()
        context = dot_product(self._moved(query, *where_cached), key, value, sinks, seen=seen)
        return self._moved(self._moved(context, *where_cached), layout.batch, (), layout.tensor, ())

    def _moved(self, array: Array, *axes: Axes) -> Array:
        """The array laid out so; where it lies elsewhere, it is sent."""
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(*axes)))

    def _read(self, name: str) -> Array:
        """This round's part of the cache, the tokens at hand among it: [B, T, K, H] as attention takes them."""
        import jax
        import jax.numpy as jnp

        def of_round(name: str) -> Array:
            return jax.lax.dynamic_index_in_dim(self.written[name], self.number, keepdims=False)

        tokens, compute = of_round(name), jax_dtype(self.program.dtypes.compute)
        if (scale := f"{name}_scale") in self.written:
            tokens = tokens.astype(jnp.float32) * of_round(scale)[..., None]
        return tokens.astype(compute).swapaxes(1, 2)


def abstract_cache(program: ServingProgram, mesh: Mesh) -> Mapping[str, Mapping[str, Any]]:
    """The shapes, dtypes and layouts of a cache, as `Cache` has it."""
    return {
        position.name: _abstract_arrays(program, mesh, position.layer, scan.count)
        for scan in program.scans
        for position in scan.positions
    }


def _abstract_arrays(program: ServingProgram, mesh: Mesh, layer: Layer, count: int) -> dict[str, Any]:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    arrays: dict[str, Any] = {}
    for operation in (each for block in layer.blocks for each in block.operations):
        if not isinstance(operation, Attention):
            continue
        heads, slots = operation.num_cached_heads, num_slots(operation, context_len=program.context_len)
        layout = program.layout
        sharding = NamedSharding(
            mesh, PartitionSpec(None, layout.cache_batch(heads), layout.kv_heads(heads), layout.slots)
        )
        widths = {"key": operation.qk_head_dim, "value": operation.v_head_dim}
        for name, width in ({"key": operation.cache_elements} if operation.caches_latents else widths).items():
            shape = count, program.global_batch, heads, slots
            arrays[name] = jax.ShapeDtypeStruct((*shape, width), jax_dtype(program.kv_cache), sharding=sharding)
            if program.kv_cache in LARGEST:
                arrays[f"{name}_scale"] = jax.ShapeDtypeStruct(shape, jax_dtype(SCALE_DTYPE), sharding=sharding)
    return arrays


def num_slots(operation: Attention, *, context_len: int) -> int:
    """Tokens that a layer's cache keeps: the context, or as many as its window holds."""
    return min(operation.span.window or context_len, context_len)
