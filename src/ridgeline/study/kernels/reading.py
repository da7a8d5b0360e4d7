"""Reads tables of kernel times: the only place that knows how their files are written.

Two tables ship with the package, in `study/measured/published`.

A `.csv` or `.csv.gz` has the columns `device`, `op`, `key` (JSON: the arguments, arrays as `bf16[8,128]`), `config`
and `median_ms`: the autotuning tables of tokamax (Apache-2.0). Rows of other operations, dtypes, masks and biases
than the formulas speak of are counted, not used.

A `.json` is a list of records with `op`, `chip`, `shape`, `dtype` and `achieved`, the TFLOP/s of one device: of those
the matmuls (AI-Hypercomputer/tpu-recipes, Apache-2.0, and what else each record names).
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from math import prod
from typing import TYPE_CHECKING, Any, TextIO, cast

from ridgeline.errors import InputError, shown
from ridgeline.model.flops import matmul_flops
from ridgeline.study.kernels.times import KernelTime, fastest
from ridgeline.units import parse_duration, parse_flops_per_s

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ridgeline.study.kernels.times import Kernel

CHIP_OF_DEVICE = {
    "tpu7x": "tpu7x",
    "tpu_v6_lite": "v6e",
    "tpu_v5": "v5p",
    "tpu_v5_lite": "v5e",
    "nvidia_h100_80gb_hbm3": "h100",
    "nvidia_a100-sxm4-40gb": "a100-40gb",
    "nvidia_b200": "b200",
}
"""The catalogue's name of a device, as JAX names its kind."""

TPUS = frozenset({"tpu7x", "v6e", "v5p", "v5e"})
"""Of these, those whose kernels have tiles of a programmer's choice."""

_PUBLISHED = {
    "kernels.csv.gz": "https://github.com/openxla/tokamax (783ea957, tokamax/data/autotuning)",
    "tpu_micro.json": "",
}
"""Files, and where they are from where their rows do not say."""

_COLUMNS = ("device", "op", "key", "median_ms")
_PRODUCT_OF_CONTRACTION = {
    "[[[1],[1]],[[],[]]]": "output",
    "[[[1],[2]],[[],[]]]": "input_gradient",
    "[[[0],[0]],[[],[]]]": "weight_gradient",
}
_RAGGED_NOT_RUN = ("ragged_dot", "pallas_mosaic_tpu_v2_ragged_dot")
"""Left out: XLA's own lowering, and a second TPU kernel. MaxText and tokamax run the first one unless told otherwise
(`megablox`, `implementation="mosaic"`), and so does our program; the second one is up to a third faster."""
_UNFUSED_ATTENTION = ("dot_product_attention", "splash_attention")
_PLAIN_ATTENTION_KEYS = ("bias", "segment_ids", "sinks", "dropout_mask", "paging_info", "q_indices", "k_indices")
_STACKED_RANK = 4
_MOST_GROUPS = 1024

_Array = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """What a file holds.

    Attributes:
        times: The fastest of each question and chip.
        num_rows: Of the file.
        not_used: Rows that no formula speaks of, by operation.
    """

    times: tuple[KernelTime, ...]
    num_rows: int
    not_used: Mapping[str, int]


def read_kernel_times(path: Path, *, source: str = "") -> KernelTable:
    """The kernel times of a table.

    Args:
        path: `.csv`, `.csv.gz` or `.json`.
        source: Where it was published; without, the name of the file.

    Raises:
        InputError: The file lacks a column, or is no such table.
    """
    if path.suffix == ".json":
        return _read_micro(path)
    try:
        return _read_times(path, source=source or path.name)
    except (OSError, EOFError, zlib.error, csv.Error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _no_table(path, f"{type(error).__name__}: {error}") from error


def _no_table(path: Path, value: str) -> InputError:
    return InputError(
        "not a table of kernel times",
        where=str(path),
        value=shown(value),
        expected=f"columns {', '.join(_COLUMNS)}",
        fix="give a .csv or .csv.gz with these columns",
    )


def _read_times(path: Path, *, source: str) -> KernelTable:
    used: list[KernelTime] = []
    not_used: Counter[str] = Counter()
    with _opened(path) as file:
        rows = csv.DictReader(file)
        missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
        if missing:
            raise _no_table(path, f"without {', '.join(missing)}")
        for row in rows:
            time = _kernel_time(row, source=source)
            if time is None:
                not_used[row["op"]] += 1
            else:
                used.append(time)
    return KernelTable(times=fastest(used), num_rows=len(used) + not_used.total(), not_used=dict(not_used))


def read_published() -> tuple[KernelTable, ...]:
    """The tables that ship with the package."""
    folder = resources.files("ridgeline.study.measured") / "published"
    tables: list[KernelTable] = []
    for name, source in _PUBLISHED.items():
        with resources.as_file(folder / name) as path:
            tables.append(read_kernel_times(path, source=source))
    return tuple(tables)


def _read_micro(path: Path) -> KernelTable:
    records = cast("list[dict[str, Any]]", json.loads(path.read_text(encoding="utf-8")))
    used: list[KernelTime] = []
    not_used: Counter[str] = Counter()
    for record in records:
        if record["op"] == "matmul" and record["dtype"] == "bf16":
            used.append(_matmul_time(record))
        else:
            not_used[record["op"]] += 1
    return KernelTable(times=fastest(used), num_rows=len(records), not_used=dict(not_used))


def _matmul_time(record: Mapping[str, Any]) -> KernelTime:
    where = record["source"]
    rows, contracted, produced = (float(size) for size in record["shape"])
    rate_flops_per_s = parse_flops_per_s(f"{record['achieved']}TFLOP/s", where="achieved")
    return KernelTime(
        chip=record["chip"],
        kernel="matmul",
        variant=record["dtype"],
        sizes={"B": rows, "D": contracted, "F": produced},
        measured_s=float(matmul_flops(B=rows, D=contracted, F=produced) / rate_flops_per_s),
        program="xla",
        source=f"https://github.com/{where['repo']} ({where['commit']}, {where['path']})",
    )


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _kernel_time(row: Mapping[str, str], *, source: str) -> KernelTime | None:
    chip, operation = CHIP_OF_DEVICE.get(row["device"]), row["op"]
    if chip is None or not row["median_ms"]:
        return None
    key = cast("dict[str, Any]", json.loads(row["key"]))
    backward = operation.endswith("_vjp")
    direction = "backward" if backward else "forward"
    found: tuple[Kernel, str, dict[str, float] | None] | None = None
    if operation.endswith("ragged_dot") and operation not in _RAGGED_NOT_RUN:
        found = _grouped_matmul(key)
    elif "linear_softmax_cross_entropy_loss" in operation:
        found = ("loss", direction, _loss_sizes(operation, key))
    elif operation.endswith("gated_linear_unit"):
        found = ("gated_unit", direction, _gated_unit_sizes(chip, key))
    elif "attention" in operation and "latent" not in operation:
        found = ("attention", direction, _attention_sizes(operation, key, tile=_tile(chip, row, direction)))
    elif "normalization" in operation:
        found = ("normalization", direction, _normalization_sizes(key, num_arrays=3 if backward else 2))
    match found:
        case (kernel, variant, dict() as sizes):
            pass
        case _:
            return None
    return KernelTime(
        chip=chip,
        kernel=kernel,
        variant=variant,
        sizes=sizes,
        measured_s=parse_duration(f"{row['median_ms']}ms", where="median_ms"),
        program=operation,
        source=source,
    )


def _array(text: object) -> _Array | None:
    """Dtype and shape of `bf16[8,128]`; nothing for what is no plain array (a quantized one is an object)."""
    if not isinstance(text, str) or not text.endswith("]"):
        return None
    dtype, _, shape = text[:-1].partition("[")
    return dtype, tuple(int(size) for size in shape.split(",") if size)


def _bf16(key: Mapping[str, Any], *names: str) -> list[tuple[int, ...]] | None:
    """The shapes of some arguments, if all are bf16."""
    arrays = [_array(key.get(name)) for name in names]
    shapes = [array[1] for array in arrays if array is not None and array[0] == "bf16"]
    return shapes if len(shapes) == len(names) else None


def _grouped_matmul(key: Mapping[str, Any]) -> tuple[Kernel, str, dict[str, float]] | None:
    shapes = _bf16(key, "lhs", "rhs")
    contraction = key["ragged_dot_dimension_numbers"]["dot_dimension_numbers"]
    product = _PRODUCT_OF_CONTRACTION.get(json.dumps(contraction, separators=(",", ":")))
    if shapes is None or product is None or key.get("activation") or key.get("fuse_gateup_activation"):
        return None
    (rows, contracted), right = shapes
    groups = cast("dict[str, int] | list[int]", key["group_sizes"])
    num_groups = groups["num_groups"] if isinstance(groups, dict) else sum(1 for size in groups if size)
    if rows == num_groups and rows > _MOST_GROUPS:  # rows were written for groups
        return None
    produced = right[1] if product != "output" else right[2]
    return (
        "grouped_matmul",
        product,
        {"B": float(rows), "D": float(contracted), "F": float(produced), "E": float(num_groups)},
    )


def _loss_sizes(operation: str, key: Mapping[str, Any]) -> dict[str, float] | None:
    """Logits as one array, as training programs have them; not the kernels that never write them, nor chunks."""
    shapes = _bf16(key, "x", "w")
    if shapes is None or not operation.startswith("linear_"):
        return None
    (rows, width), (_, vocab) = shapes
    return {"B": float(rows), "D": float(width), "F": float(vocab)}


def _gated_unit_sizes(chip: str, key: Mapping[str, Any]) -> dict[str, float] | None:
    """On TPUs only inputs of rank 4: at a lower rank both halves share a tile, which is mostly padding."""
    shapes = _bf16(key, "x", "weights")
    if shapes is None or (chip.startswith(("tpu", "v")) and len(shapes[0]) < _STACKED_RANK):
        return None
    inputs, (width, _, hidden) = shapes
    return {"B": float(prod(inputs[:-1])), "D": float(width), "F": float(hidden)}


def _tile(chip: str, row: Mapping[str, str], direction: str) -> tuple[int, int] | None:
    """Queries and keys of one tile of a TPU's kernel; a GPU's are small, and too many to tell apart."""
    if chip not in TPUS:
        return None
    config, suffix = cast("dict[str, int]", json.loads(row["config"])), "_dkv" if direction == "backward" else ""
    tile = config.get(f"block_q{suffix}"), config.get(f"block_kv{suffix}")
    return None if None in tile else cast("tuple[int, int]", tile)


def _attention_sizes(
    operation: str, key: Mapping[str, Any], *, tile: tuple[int, int] | None
) -> dict[str, float] | None:
    """Fused kernels without bias, window or other mask than the causal one, as many queries as keys.

    Of a TPU's kernels that write the log-sum-exp or do not, those that do: training does.
    """
    is_silent = key.get("return_residuals") is False and not operation.endswith("_vjp")
    if tile is not None and is_silent:
        return None
    shapes = _bf16(key, "q", "k", "v")
    mask = cast("dict[str, Any]", key.get("mask") or {})
    causal_mask = cast("dict[str, Any] | None", mask.get("causal_mask"))
    causal = bool(mask.get("is_causal")) or causal_mask is not None
    masks = [mask.get(name) for name in ("bool_mask", "q_start", "q_end", "k_start", "k_end")]
    windowed = causal_mask is not None and bool(causal_mask.get("window_size"))
    unfused = operation.removesuffix("_vjp") in _UNFUSED_ATTENTION or "xla" in operation
    if shapes is None or unfused or windowed or any(masks) or any(key.get(name) for name in _PLAIN_ATTENTION_KEYS):
        return None
    if "splash" in operation:
        (*batch, heads, queries, width), (*_, kv_heads, keys, _), (*_, value_width) = shapes
    elif len(shapes[0]) == len(("B", "T", "N", "H")):
        (*batch, queries, heads, width), (*_, keys, kv_heads, _), (*_, value_width) = shapes
    else:
        return None
    letters = {"B": prod(batch), "T": queries, "S": keys, "N": heads, "K": kv_heads, "H": width, "V": value_width}
    if queries != keys:
        return None
    tiles = {} if tile is None else {"tile_q": min(tile[0], queries), "tile_kv": min(tile[1], keys)}
    return {name: float(size) for name, size in (letters | tiles).items()} | {"causal": float(causal)}


def _normalization_sizes(key: Mapping[str, Any], *, num_arrays: int) -> dict[str, float] | None:
    shapes = _bf16(key, "x")
    if shapes is None:
        return None
    return {"elements": float(prod(shapes[0])), "passes": float(num_arrays), "last": float(key["axis"] != 0)}
