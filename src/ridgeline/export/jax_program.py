"""A strategy for a sharded product as a JAX program: its mesh, its layouts, and its collectives in the order planned.

The program holds the same product once more with nothing but layouts, so that what XLA does can be laid beside it.
"""

from __future__ import annotations

import builtins
from keyword import iskeyword
from math import isnan, prod
from string import ascii_lowercase
from typing import TYPE_CHECKING

from ridgeline.errors import InputError
from ridgeline.job.sharding import ways

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ridgeline.cost.sharding.resharding import Step
    from ridgeline.cost.sharding.sharded_matmul import Strategy
    from ridgeline.job.sharding import Axes, Product, ShardedArray

_DTYPES: Mapping[str, str] = {
    "f32": "jnp.float32",
    "bf16": "jnp.bfloat16",
    "f16": "jnp.float16",
    "fp8": "jnp.float8_e4m3fn",
    "int8": "jnp.int8",
}

_PROGRAM = '''"""{title}

On a mesh of {mesh_in_words}: {strategy}.
`matmul` communicates as it is written here; `by_compiler` has the same layouts and leaves the rest to XLA.
Without {num_devices} devices, emulate them: XLA_FLAGS=--xla_force_host_platform_device_count={num_devices}
"""
{imports}
EINSUM = "{einsum}"
DEVICES = jax.devices()[:{num_devices}]
MESH = jax.make_mesh({mesh_shape}, {mesh_axes}, axis_types=(AxisType.Auto,) * {num_axes}, devices=DEVICES)
{layouts}

{functions}
def multiply_blocks({left}, {right}):
    """What each device does with its blocks: {blocks}."""
{body}


# JAX does not follow which values collectives leave equal on all devices of an axis; check_vma would ask it to.
matmul = jax.jit(
    jax.shard_map(
        multiply_blocks, mesh=MESH, in_specs=({left}_SPEC, {right}_SPEC), out_specs={output}_SPEC, check_vma=False
    )
)


@jax.jit
def einsum({left}, {right}):
    """The product of whole arrays."""
    return jnp.einsum(EINSUM, {left}, {right}, preferred_element_type={output_dtype})

{by_compiler}
def operands():
    """Small whole numbers, laid out."""
    keys = jax.random.split(jax.random.key(0))
    whole = (
        jax.random.randint(keys[0], {left_shape}, -3, 4).astype({left_dtype}),
        jax.random.randint(keys[1], {right_shape}, -3, 4).astype({right_dtype}),
    )
    return jax.device_put(whole, (NamedSharding(MESH, {left}_SPEC), NamedSharding(MESH, {right}_SPEC)))


if __name__ == "__main__":
    {left}, {right} = operands()
    {output} = matmul({left}, {right})
    difference = jnp.max(jnp.abs({summed}.astype(jnp.float32) - einsum({left}, {right}).astype(jnp.float32)))
    print("{output}", {output}.shape, {output}.sharding.spec, "largest difference from one einsum:", difference)
'''

_BY_COMPILER = """
by_compiler = jax.jit(
    einsum,
    in_shardings=(NamedSharding(MESH, {left}_SPEC), NamedSharding(MESH, {right}_SPEC)),
    out_shardings=NamedSharding(MESH, {output}_SPEC),
)

"""

_OWN_BLOCK = '''
def own_block(block, axes, dim):
    """The part that a device keeps of a block that is the same on all devices along some axes."""
    size = block.shape[dim] // jax.lax.axis_size(axes)
    return jax.lax.dynamic_slice_in_dim(block, jax.lax.axis_index(axes) * size, size, axis=dim)

'''

_REORDERED = '''
def reordered(block, held, wanted):
    """The blocks of a dimension that is split over axes `held` change places: it is then split over `wanted`."""
    axes = [axis for axis in MESH.axis_names if axis in held]
    devices = np.arange(np.prod([MESH.shape[axis] for axis in axes])).reshape([MESH.shape[axis] for axis in axes])
    holders, takers = (devices.transpose([axes.index(axis) for axis in order]).ravel() for order in (held, wanted))
    return jax.lax.ppermute(block, tuple(axes), list(zip(holders.tolist(), takers.tolist())))

'''


_NAMES = {
    *("jax", "jnp", "np", "AxisType", "NamedSharding", "PartitionSpec"),
    *("EINSUM", "DEVICES", "MESH", "matmul", "einsum", "operands", "reordered", "keys", "whole", "difference"),
}
"""What the program calls something itself, as an array could be called."""


def jax_program(
    strategy: Strategy, *, sizes: Mapping[str, float], mesh: Mapping[str, float], dtypes: Mapping[str, str], where: str
) -> str:
    """The source of a program for as many devices as the mesh has.

    Args:
        strategy: What to do.
        sizes: Elements along each dimension.
        mesh: Devices along each axis.
        dtypes: By the name of the array.
        where: What asked for it, for error messages.

    Raises:
        InputError: A size is open, or JAX has no such dtype.
    """
    _check(strategy, (*sizes.values(), *mesh.values()), dtypes, where=where)
    left, right = strategy.product.left, strategy.product.right
    output, steps = strategy.output, (*strategy.before, *strategy.after)
    names = {"left": _variable(left), "right": _variable(right), "output": _variable(output)}
    kinds = {step.kind for step in steps}
    return _PROGRAM.format(
        **names,
        title=f"{left} @ {right} -> {output}",
        strategy=strategy,
        mesh_in_words=" × ".join(f"{axis} {size:g}" for axis, size in mesh.items()),
        num_devices=f"{prod(mesh.values()):g}",
        num_axes=len(mesh),
        mesh_shape=_tuple(f"{size:g}" for size in mesh.values()),
        mesh_axes=_tuple(f'"{axis}"' for axis in mesh),
        imports=_imports(needs_numpy="collective_permute" in kinds),
        layouts="\n".join(f"{_variable(array)}_SPEC = {_spec(array)}" for array in (left, right, output)),
        functions=(_OWN_BLOCK if "slice" in kinds else "") + (_REORDERED if "collective_permute" in kinds else ""),
        blocks=" and ".join(_sized(array, sizes, mesh) for array in (left, right)),
        body="\n".join(f"    {line}" for line in _body(strategy, sizes, mesh, dtypes)),
        einsum=_einsum(strategy.product),
        output_dtype=_DTYPES[dtypes[output.name]],
        by_compiler="" if output.partial else _BY_COMPILER.format(**names),
        left_shape=_shape(left, sizes),
        right_shape=_shape(right, sizes),
        left_dtype=_DTYPES[dtypes[left.name]],
        right_dtype=_DTYPES[dtypes[right.name]],
        summed=f"{names['output']}.sum(0)" if output.partial else names["output"],
    )


def _check(strategy: Strategy, values: Iterable[float], dtypes: Mapping[str, str], *, where: str) -> None:
    if any(map(isnan, values)):
        raise InputError(
            "a program needs sizes and a mesh",
            where=where,
            value=str(strategy.product),
            expected="the size of every dimension and of every mesh axis",
            fix="add, for example, --sizes B=4096,D=8192,F=32768 --mesh X=4,Y=8",
        )
    if unknown := next((dtype for dtype in dtypes.values() if dtype not in _DTYPES), None):
        raise InputError(
            "no JAX dtype", where=where, value=unknown, expected=", ".join(_DTYPES), fix="choose one of those"
        )


def _imports(*, needs_numpy: bool) -> str:
    numpy = ["import numpy as np"] if needs_numpy else []
    sharding = "from jax.sharding import AxisType, NamedSharding, PartitionSpec"
    return "\n".join(("", "import jax", "import jax.numpy as jnp", *numpy, sharding, ""))


def _body(
    strategy: Strategy, sizes: Mapping[str, float], mesh: Mapping[str, float], dtypes: Mapping[str, str]
) -> Iterable[str]:
    """One line a step, with the block as it is then."""
    left, right, output = map(_variable, (strategy.left, strategy.right, strategy.output))
    for step in strategy.before:
        yield f"{_call(step)}  # {_sized(step.after, sizes, mesh)}"
    dtype = _DTYPES[dtypes[strategy.output.name]]
    product = f"jnp.einsum(EINSUM, {left}, {right}, preferred_element_type={dtype})"
    yield f"{output} = {product}  # {_sized(strategy.result, sizes, mesh)}"
    for step in strategy.after:
        yield f"{_call(step)}  # {_sized(step.after, sizes, mesh)}"
    # Partial sums are no array of JAX's: they lie along a dimension of their own.
    yield f"return {output}[None]  # one partial sum a device" if strategy.output.partial else f"return {output}"


def _call(step: Step) -> str:
    """A step as a statement on the block of its array."""
    name, dims, axes = _variable(step.before), step.before.dims, _axes(step.axes)
    match step.kind:
        case "slice":
            call = f"own_block({name}, {axes}, {dims.index(step.to_dim)})"
        case "collective_permute":
            call = f"reordered({name}, {_axes_tuple(step.axes)}, {_axes_tuple(step.after.layout[step.to_dim])})"
        case "all_gather":
            call = f"jax.lax.all_gather({name}, {axes}, axis={dims.index(step.from_dim)}, tiled=True)"
        case "reduce_scatter":
            scattered = dims.index(step.to_dim)
            call = f"jax.lax.psum_scatter({name}, {axes}, scatter_dimension={scattered}, tiled=True)"
        case "all_reduce":
            call = f"jax.lax.psum({name}, {axes})"
        case "all_to_all":
            cut, joined = dims.index(step.to_dim), dims.index(step.from_dim)
            call = f"jax.lax.all_to_all({name}, {axes}, split_axis={cut}, concat_axis={joined}, tiled=True)"
    return f"{name} = {call}"


def _variable(array: ShardedArray) -> str:
    """The name of an array; with an underscore, which no array's has, where Python or the program has it already."""
    taken = iskeyword(array.name) or array.name in _NAMES or hasattr(builtins, array.name)
    return f"{array.name}_" if taken else array.name


def _einsum(product: Product) -> str:
    """`bd,df->bf`: each dimension by the first letter of its name, or by one that is free."""
    letters: dict[str, str] = {}
    for dim in product.dims:
        wanted = dim[0].lower()
        letters[dim] = wanted if wanted not in letters.values() else _free_letter(letters)
    left, right, output = ("".join(letters[dim] for dim in array.dims) for array in product.arrays)
    return f"{left},{right}->{output}"


def _free_letter(letters: Mapping[str, str]) -> str:
    return next(letter for letter in reversed(ascii_lowercase) if letter not in letters.values())


def _spec(array: ShardedArray) -> str:
    """Its layout; partial sums lie along a dimension in front."""
    entries = [_axes(axes) if axes else "None" for axes in array.axes]
    if array.partial:
        entries.insert(0, _axes(array.partial))
    return f"PartitionSpec({', '.join(entries)})"


def _axes(axes: Axes) -> str:
    return f'"{axes[0]}"' if len(axes) == 1 else _axes_tuple(axes)


def _axes_tuple(axes: Axes) -> str:
    return _tuple(f'"{axis}"' for axis in axes)


def _shape(array: ShardedArray, sizes: Mapping[str, float]) -> str:
    return _tuple(f"{sizes[dim]:.0f}" for dim in array.dims)


def _sized(array: ShardedArray, sizes: Mapping[str, float], mesh: Mapping[str, float]) -> str:
    """An array with the shape of a device's block: `W[D_X,F] 2048 × 32768`."""
    local = (sizes[dim] / ways(axes, mesh) for dim, axes in array.layout.items())
    return f"{array} {' × '.join(f'{size:.0f}' for size in local)}".rstrip()


def _tuple(items: Iterable[str]) -> str:
    entries = list(items)
    return f"({', '.join(entries)}{',' * (len(entries) == 1)})"
