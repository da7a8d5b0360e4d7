"""Dtypes of a job as JAX names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax.typing import DTypeLike

    from ridgeline.job.job import Dtype


def jax_dtype(dtype: Dtype) -> DTypeLike:
    """The scalar type of JAX."""
    import jax.numpy as jnp

    return {
        "f32": jnp.float32,
        "bf16": jnp.bfloat16,
        "fp8": jnp.float8_e4m3fn,
        "int8": jnp.int8,
        "int4": jnp.int4,
        "fp4": jnp.float4_e2m1fn,
    }[dtype]
