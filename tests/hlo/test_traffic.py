"""Bytes that operations move through HBM."""

from __future__ import annotations

import pytest

from ridgeline.hlo.calls import call_graph
from ridgeline.hlo.traffic import hbm_bytes
from tests.hlo.programs import entry, module

STACK = "f32[8,128,128]{2,1,0:T(8,128)}"
LAYER = "f32[1,128,128]{2,1,0:T(8,128)}"
LAYER_BYTES = 128 * 128 * 4


def moved(text: str) -> float:
    """Bytes of the entry's root."""
    graph = call_graph(module(text))
    computation = graph.module.entry_computation
    return hbm_bytes(graph, computation, computation.instructions[computation.root])


@pytest.mark.parametrize(
    ("body", "num_layers"),
    [
        (f"ROOT %y = {LAYER} add(%a, %b)", 3),
        (f"ROOT %y = {LAYER.replace(')}', ')S(1)}')} add(%a, %b)", 2),
        (f"ROOT %y = {LAYER} dynamic-slice(%stack, %i, %i, %i), dynamic_slice_sizes={{1,128,128}}", 2),
        (f"ROOT %y = {STACK} dynamic-update-slice(%stack, %a, %i, %i, %i)", 2),
        (f"ROOT %y = ({LAYER}) tuple(%a)", 0),
        (f"ROOT %y = {LAYER} bitcast(%a)", 0),
        (f"ROOT %y = ({LAYER.replace(')}', ')S(1)}')}, {LAYER}, u32[]) copy-start(%a)", 1),
        (f"ROOT %y = {STACK} all-gather(%a), replica_groups={{}}, dimensions={{0}}", 9),
    ],
)
def test_operands_and_results_in_hbm_count_and_slices_alone_where_slices_are_taken(body: str, num_layers: int) -> None:
    given = (
        f"  %a = {LAYER} parameter(0)\n  %b = {LAYER} parameter(1)\n  %stack = {STACK} parameter(2)\n"
        "  %i = s32[]{:S(6)} parameter(3)\n"
    )
    graph = call_graph(entry(given + body))
    computation = graph.module.entry_computation

    assert hbm_bytes(graph, computation, computation.instructions["y"]) == num_layers * LAYER_BYTES


def test_a_fusion_moves_the_slices_that_it_takes_and_the_slice_that_it_updates() -> None:
    assert (
        moved(f"""HloModule fused

%inner (s: {STACK}) -> {STACK} {{
  %s = {STACK} parameter(0)
  ROOT %same = {STACK} copy(%s)
}}

%outer (p: {STACK}, q: {STACK}, i: s32[]) -> {STACK} {{
  %p = {STACK} parameter(0)
  %q = {STACK} parameter(1)
  %i = s32[]{{:S(6)}} parameter(2)
  %view = {STACK} fusion(%p), kind=kLoop, calls=%inner
  %layer = {LAYER} dynamic-slice(%view, %i, %i, %i), dynamic_slice_sizes={{1,128,128}}
  %twice = {LAYER} add(%layer, %layer)
  ROOT %r = {STACK} dynamic-update-slice(%q, %twice, %i, %i, %i)
}}

ENTRY %main (p: {STACK}, q: {STACK}, i: s32[]) -> {STACK} {{
  %p.1 = {STACK} parameter(0)
  %q.1 = {STACK} parameter(1)
  %i.1 = s32[]{{:S(6)}} parameter(2)
  ROOT %y = {STACK} fusion(%p.1, %q.1, %i.1), kind=kLoop, calls=%outer
}}
""")
        == 2 * LAYER_BYTES  # one layer read, one written; the rest of both stacks is not touched
    )
