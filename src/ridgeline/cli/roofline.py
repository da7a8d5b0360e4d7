"""`ridgeline roofline`: is an operation, or a transfer, bound by compute, memory or links, and from which size on."""

from __future__ import annotations

from typing import Annotated

import typer

from ridgeline.cli import options


def _size(letter: str, name: str, words: str) -> object:
    """The flag of a size, by its letter or by name."""
    return typer.Option(f"--{letter}", f"--{name}", metavar="N", help=words)


def roofline(
    operation: Annotated[
        str, typer.Argument(metavar="[OP]", help="What to ask about: see above. None: so many --flops and --bytes.")
    ] = "work",
    *,
    on: Annotated[options.Text, typer.Option(metavar="CHIP|SLICE", help="v5e, v5e:4x4, tpu7x:4x4x4, h100:8.")] = None,
    batch: Annotated[options.Text, _size("B", "batch", "Rows: tokens, or sequences.")] = None,
    queries: Annotated[options.Text, _size("T", "queries", "Queries of a sequence; rows of an example.")] = None,
    keys: Annotated[options.Text, _size("S", "keys", "Keys a query sees; without it a sequence sees itself.")] = None,
    width: Annotated[options.Text, _size("D", "width", "Contracted width.")] = None,
    outputs: Annotated[options.Text, _size("F", "outputs", "Output width.")] = None,
    heads: Annotated[options.Text, _size("N", "heads", "Query heads.")] = None,
    kv_heads: Annotated[
        options.Text, _size("K", "kv-heads", "Key-value heads; as many as query heads if not said.")
    ] = None,
    head_dim: Annotated[options.Text, _size("H", "head-dim", "Width of a head.")] = None,
    experts: Annotated[options.Text, _size("E", "experts", "Experts.")] = None,
    top_k: Annotated[options.Text, _size("k", "top-k", "Experts a row visits.")] = None,
    flops: Annotated[options.Text, typer.Option(metavar="FLOP", help="Of anything else: 40TFLOP.")] = None,
    moved: Annotated[
        options.Text, typer.Option("--bytes", metavar="BYTES", help="Of anything else, or of the array to move: 34MB.")
    ] = None,
    reads: Annotated[options.Text, typer.Option(metavar="N", help="Arrays an elementwise operation reads.")] = None,
    writes: Annotated[options.Text, typer.Option(metavar="N", help="Arrays it writes.")] = None,
    flops_per_element: Annotated[options.Text, typer.Option(metavar="N", help="FLOPs it does on each element.")] = None,
    dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Of every array: bf16, int8, …, or bytes.")
    ] = None,
    weights_dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Of weights, or of keys and values.")
    ] = None,
    activations_dtype: Annotated[options.Text, typer.Option(metavar="DTYPE", help="Of the other operand.")] = None,
    outputs_dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Of outputs; as activations if not said.")
    ] = None,
    compute_dtype: Annotated[
        options.Text, typer.Option(metavar="DTYPE", help="Whose rate counts; as activations.")
    ] = None,
    unit: Annotated[options.Text, typer.Option(metavar="mxu|vpu", help="What computes: matrix or vector unit.")] = None,
    weights_from: Annotated[options.Text, typer.Option(metavar="hbm|vmem|host", help="Where weights lie.")] = None,
    activations_from: Annotated[
        options.Text, typer.Option(metavar="hbm|vmem|host", help="Where the others lie.")
    ] = None,
    figures: options.Figures = None,
    peak: Annotated[
        options.Text, typer.Option("--peak", "--C", metavar="FLOP/S", help="Of a chip: 197TFLOP/s.")
    ] = None,
    sparsity: Annotated[
        options.Text, typer.Option(metavar="N", help="Divides a peak quoted for sparse operands: 2.")
    ] = None,
    hbm_bandwidth: Annotated[options.Text, typer.Option(metavar="BYTES/S", help="Of a chip's memory: 819GB/s.")] = None,
    vmem_bandwidth: Annotated[options.Text, typer.Option(metavar="BYTES/S", help="Of its vector memory.")] = None,
    vmem_over_hbm: Annotated[options.Text, typer.Option(metavar="N", help="Or their ratio: 22.")] = None,
    host_bandwidth: Annotated[options.Text, typer.Option(metavar="BYTES/S", help="From the host, of one chip.")] = None,
    axis: Annotated[
        options.Text,
        typer.Option(metavar="AXIS,...", help="Axes that share the contraction, or that a collective spans."),
    ] = None,
    chips: Annotated[options.Text, typer.Option(metavar="N", help="Without a slice, chips that share it.")] = None,
    scatter: Annotated[bool, typer.Option("--scatter", help="Leave the sum of their results scattered.")] = False,
    link_bandwidth: Annotated[options.Text, typer.Option(metavar="BYTES/S", help="Of one link, one way.")] = None,
    axis_bandwidth: Annotated[
        options.Text, typer.Option(metavar="BYTES/S", help="Of both links of a ring axis.")
    ] = None,
    network_bandwidth: Annotated[
        options.Text, typer.Option(metavar="BYTES/S", help="Of a chip's network share.")
    ] = None,
    hop: options.Hop = None,
    wiring: Annotated[options.Text, typer.Option(metavar="ring|line|one_way", help="Of every axis.")] = None,
    sharded: Annotated[options.Text, typer.Option(metavar="AXIS,...|N", help="What keeps the array split.")] = None,
    axes: Annotated[options.Text, typer.Option(metavar="N", help="Number of axes whose sizes are left open.")] = None,
    start: Annotated[options.Text, typer.Option(metavar="X,Y", help="Position of the sender.")] = None,
    end: Annotated[options.Text, typer.Option(metavar="X,Y", help="Position of the receiver.")] = None,
    topology: Annotated[
        options.Text, typer.Option(metavar="XxY", help="Chips along each axis, without a slice.")
    ] = None,
    wraps: Annotated[options.Text, typer.Option(metavar="yes|no,...", help="Whether its axes close.")] = None,
    hops: Annotated[options.Text, typer.Option(metavar="N", help="Between two chips, without positions.")] = None,
    ports: Annotated[options.Text, typer.Option(metavar="N", help="Links they can exchange over at once.")] = None,
    rows: Annotated[
        options.Text, typer.Option(metavar="N", help="Of a matrix multiplied with the array that arrives.")
    ] = None,
    shape: Annotated[options.Text, typer.Option(metavar="AxB", help="Of the array: 100x300.")] = None,
    array: Annotated[
        options.Text, typer.Option(metavar="AxB", help="Rows and columns of a matrix unit: 128x128.")
    ] = None,
    versus: Annotated[options.Text, typer.Option(metavar="AxB", help="Of another one, to compare with.")] = None,
    clock: Annotated[options.Text, typer.Option(metavar="HZ", help="1.5GHz.")] = None,
    count: Annotated[options.Text, typer.Option(metavar="N", help="Matrix units of the chip.")] = None,
    core_units: Annotated[options.Text, typer.Option(metavar="N", help="Matrix units of a core.")] = None,
    per_unit: Annotated[options.Text, typer.Option(metavar="FLOP/S", help="Of one matrix unit.")] = None,
    block_rows: Annotated[options.Text, typer.Option(metavar="N", help="Rows it multiplies at once; 8.")] = None,
    block_cycles: Annotated[options.Text, typer.Option(metavar="N", help="Cycles that takes; 8.")] = None,
    sublanes: Annotated[options.Text, typer.Option(metavar="N", help="Of a vector register.")] = None,
    lanes: Annotated[options.Text, typer.Option(metavar="N", help="Of a vector register.")] = None,
    alus: Annotated[options.Text, typer.Option(metavar="N", help="Of each lane and sublane.")] = None,
    cores: Annotated[options.Text, typer.Option(metavar="N", help="Of the chip, a vector unit each.")] = None,
    registers: Annotated[options.Text, typer.Option(metavar="N", help="Vector registers of a core.")] = None,
    sweep: Annotated[
        options.Text, typer.Option(metavar="SIZE=FIRST:LAST", help="Vary a size, doubling: batch=1:8192.")
    ] = None,
    plot: options.Plot = None,
    force: options.ForcePlot = False,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Is this bound by compute, memory or links, and from which size on.

    An operation: matmul [B,D] @ [D,F], batched_matmul, expert_matmul, attention, elementwise, embedding, dot.

    A transfer: all_gather, reduce_scatter, all_reduce, all_to_all, point_to_point, path.

    A chip: ridge, critical_batch, mxu, vpu, padding.
    """
    said = locals()  # the flags by their names, before anything else has one
    from ridgeline.cli.output import print_json, print_report
    from ridgeline.cli.plot_file import write_plot
    from ridgeline.cli.roofline_questions import answered
    from ridgeline.report.derivations import explained

    others = {"operation", "plot", "force", "explain", "json"}
    shown = answered(operation, {name: value for name, value in said.items() if value and name not in others})
    if plot is not None:
        write_plot(shown.charts(), plot, force=force)
    if json:
        print_json(shown.json)
    else:
        print_report(explained(shown.report, shown.derivations) if explain else shown.report)
