"""The two programs of a server: prefill of whole prompts, and a step of decoding, on devices or on shapes alone.

    prefill (weights, tokens [B, P])                  -> logits of the token that follows each prompt [B, V], cache
    decode  (weights, cache, tokens [B, 1], position) -> logits of the token that follows each [B, V], cache

Decode takes the cache's memory for the cache that it returns. All sequences of a step are equally long: `position` is
that of their newest token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ridgeline.program.decoder import Decoder
from ridgeline.program.dtypes import jax_dtype
from ridgeline.program.kv_cache import CachedKeys, abstract_cache
from ridgeline.program.training import stacked_shape, weight_sharding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jax import Array
    from jax.sharding import Mesh

    from ridgeline.program.kv_cache import Cache
    from ridgeline.program.part import Weights
    from ridgeline.program.scans import LayerScan
    from ridgeline.program.serving import ServingProgram

    Carry: TypeAlias = tuple[Array, Mapping[str, Mapping[str, Array]]]
    """The residual stream, and the cache of a loop's layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The forward pass of one phase, which reads and writes a KV cache.

    Attributes:
        program: What is computed.
        mesh: The devices, with the axes of the program's layout.
    """

    program: ServingProgram
    mesh: Mesh

    def prefill(self, weights: Weights, tokens: Array) -> tuple[Array, Cache]:
        """Logits of the token that follows each prompt, [B, V], and the cache that holds the prompts.

        Args:
            weights: By name.
            tokens: [B, P].
        """
        import jax
        import jax.numpy as jnp

        empty = jax.tree.map(
            lambda spec: jax.lax.with_sharding_constraint(jnp.zeros(spec.shape, spec.dtype), spec.sharding),
            abstract_cache(self.program, self.mesh),
        )
        return self._next(weights, empty, tokens, 0)

    def decode(self, weights: Weights, cache: Cache, tokens: Array, position: Array) -> tuple[Array, Cache]:
        """Logits of the token that follows each sequence, [B, V], and the cache with the newest token in it.

        Args:
            weights: By name.
            cache: Of the tokens before.
            tokens: The newest token of each sequence, [B, 1].
            position: Its place, the same in all sequences.
        """
        return self._next(weights, cache, tokens, position)

    def _next(self, weights: Weights, cache: Cache, tokens: Array, start: Array | int) -> tuple[Array, Cache]:
        keys = CachedKeys(program=self.program, mesh=self.mesh, start=start, stored={}, number=tokens[0, 0])
        decoder = Decoder(program=self.program, mesh=self.mesh, keys=keys)
        stream = decoder.embedded(weights, tokens)
        for scan in self.program.scans:
            stream, of_scan = self._layers(scan, decoder, weights, (stream, cache), start)
            cache = {**cache, **of_scan}
        last = replace(self.program.layout, is_one_token=True)
        head = replace(decoder, program=replace(self.program, layout=last))
        return head.head(weights, stream[:, -1:])[:, 0], cache

    def _layers(self, scan: LayerScan, decoder: Decoder, weights: Weights, carry: Carry, start: Array | int) -> Carry:
        """Layers one after another; each finds its round of the cache in the arrays that the loop carries."""
        import jax
        import jax.numpy as jnp

        stacked = {position.name: decoder.stacked(position, weights) for position in scan.positions}

        def one_round(carry: Carry, own: tuple[Array, Mapping[str, Weights]]) -> tuple[Carry, None]:
            (stream, cache), (number, round_weights) = carry, own
            for position in scan.positions:
                keys = CachedKeys(
                    program=self.program, mesh=self.mesh, start=start, stored=cache[position.name], number=number
                )
                layer = replace(decoder, keys=keys)
                stream = layer.layer(position.layer, stream, round_weights[position.name])
                cache = {**cache, position.name: keys.written}
            return (stream, cache), None

        stream, cache = carry
        ours = {position.name: cache[position.name] for position in scan.positions}
        rounds = jnp.arange(scan.count)
        return jax.lax.scan(one_round, (stream, ours), (rounds, stacked))[0]


def prefill_step(program: ServingProgram, mesh: Mesh) -> Callable[..., Any]:
    """The jitted program `(weights, tokens) -> (logits, cache)`."""
    import jax

    return jax.jit(Server(program=program, mesh=mesh).prefill, out_shardings=(None, _cache_formats(program, mesh)))


def decode_step(program: ServingProgram, mesh: Mesh) -> Callable[..., Any]:
    """The jitted program `(weights, cache, tokens, position) -> (logits, cache)`; the cache's memory is used again."""
    import jax

    formats, decode = _cache_formats(program, mesh), Server(program=program, mesh=mesh).decode
    return jax.jit(decode, donate_argnums=1, in_shardings=(None, formats, None, None), out_shardings=(None, formats))


def _cache_formats(program: ServingProgram, mesh: Mesh) -> Any:  # noqa: ANN401 - a tree, as JAX types it
    """How a cache lies: over the devices as declared, and in a TPU's memory as the compiler likes it best.

    In JAX's own order of dimensions the compiler would copy the whole cache into another one, and back, in every step.
    """
    import jax
    from jax.experimental.layout import Format, Layout

    shardings = jax.tree.map(lambda shape: shape.sharding, abstract_cache(program, mesh))
    if mesh.devices.flat[0].platform != "tpu":
        return shardings
    return jax.tree.map(lambda sharding: Format(Layout.AUTO, sharding), shardings)


def phase_step(program: ServingProgram, mesh: Mesh) -> Callable[..., Any]:
    """The jitted program of a phase; it is called with what `abstract_arguments` describes."""
    return prefill_step(program, mesh) if program.phase == "prefill" else decode_step(program, mesh)


def abstract_weights(program: ServingProgram, mesh: Mesh) -> Mapping[str, Any]:
    """The shapes, dtypes and layouts of the weights."""
    import jax

    dtype = jax_dtype(program.dtypes.weights)
    return {
        name: jax.ShapeDtypeStruct(
            stacked_shape(tensor, count), dtype, sharding=weight_sharding(program, mesh, tensor, count)
        )
        for name, (tensor, count) in program.weights.items()
    }


def abstract_arguments(program: ServingProgram, mesh: Mesh) -> tuple[Any, ...]:
    """What the program of a phase is called with, as shapes, dtypes and layouts."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    def integers(shape: tuple[int, ...], *axes: tuple[str, ...]) -> Any:  # noqa: ANN401 - as JAX types it
        return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=NamedSharding(mesh, PartitionSpec(*axes)))

    weights = abstract_weights(program, mesh)
    tokens = integers((program.global_batch, program.seq_len), program.layout.batch)
    if program.phase == "prefill":
        return weights, tokens
    return weights, abstract_cache(program, mesh), tokens, integers(())
