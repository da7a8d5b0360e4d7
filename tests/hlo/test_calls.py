"""How often loops run, and what is executed how often."""

from __future__ import annotations

from math import isnan

import pytest

from ridgeline.errors import InputError
from ridgeline.hlo.calls import CallGraph, call_graph
from tests.hlo.programs import TPU7X, V5P, compiled, loop, module

LESS = "  %bound = s32[] constant({})\n  ROOT %test = pred[] compare(%i.1, %bound), direction={}"


@pytest.mark.parametrize("path", [TPU7X, V5P])
def test_the_scans_of_a_compiled_module_run_once_a_layer(path: object) -> None:
    graph = call_graph(compiled(path))

    assert [loop.trip_count for loop in graph.loops] == [4, 4]  # L = 4, forward and backward
    assert graph.counts["wide.region_0.1_spmd.sunk"] == 4
    assert graph.counts["wide.region_1.2_spmd"] == 5  # the condition is asked once more


@pytest.mark.parametrize(
    ("condition", "start", "step", "rounds"),
    [
        (LESS.format(80, "LT"), "constant(0)", "add(%i, %one)", 80),
        (LESS.format(80, "LE"), "constant(0)", "add(%i, %one)", 81),
        (LESS.format(80, "LT"), "constant(4)", "add(%one, %i)", 76),
        (LESS.format(0, "GT"), "constant(7)", "subtract(%i, %one)", 7),
        (LESS.format(0, "GE"), "constant(7)", "subtract(%i, %one)", 8),
        (LESS.format(0, "LT"), "constant(7)", "add(%i, %one)", 0),
        (
            "  %bound = s32[] constant(9)\n  ROOT %test = pred[] compare(%bound, %i.1), direction=GT",
            "constant(0)",
            "add(%i, %one)",
            9,
        ),
    ],
)
def test_a_counted_loop_runs_from_its_start_to_its_bound(condition: str, start: str, step: str, rounds: float) -> None:
    graph = call_graph(loop(condition=condition, start=start, step=step))

    assert [found.trip_count for found in graph.loops] == [rounds]


@pytest.mark.parametrize(
    ("condition", "start", "step"),
    [
        (LESS.format(80, "LT"), "parameter(1)", "add(%i, %one)"),  # where it starts is not in the text
        (LESS.format(80, "LT"), "constant(0)", "multiply(%i, %one)"),
        (LESS.format(80, "LT"), "constant(0)", "add(%i, %i)"),
        (LESS.format(80, "LT"), "constant(0)", "subtract(%i, %one)"),  # never ends
        (LESS.format(80, "NE"), "constant(0)", "add(%i, %one)"),
        ("  ROOT %test = pred[] custom-call(%i.1)", "constant(0)", "add(%i, %one)"),
        ("  ROOT %test = pred[] compare(%i.1, %i.1), direction=LT", "constant(0)", "add(%i, %one)"),
    ],
)
def test_a_loop_that_cannot_be_counted_is_unknown_and_never_one(condition: str, start: str, step: str) -> None:
    graph = call_graph(loop(condition=condition, start=start, step=step))

    assert isnan(graph.loops[0].trip_count)
    assert isnan(graph.counts["body"])


def test_the_compilers_own_note_of_a_trip_count_is_taken() -> None:
    unreadable = "  ROOT %test = pred[] custom-call(%i.1)"
    graph = call_graph(loop(condition=unreadable, config=', backend_config={"known_trip_count":{"n":"12"}}'))

    assert graph.counts["body"] == 12


NESTED = """HloModule nested

%bump (i: s32[]) -> s32[] {
  %i = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %sum = s32[] add(%i, %one)
}

%below (i.4: s32[], n.4: s32[]) -> pred[] {
  %i.4 = s32[] parameter(0)
  %n.4 = s32[] parameter(1)
  ROOT %less = pred[] compare(%i.4, %n.4), direction=LT
}

%inner_body (s: (s32[], s32[])) -> (s32[], s32[]) {
  %s = (s32[], s32[]) parameter(0)
  %i.1 = s32[] get-tuple-element(%s), index=0
  %n.1 = s32[] get-tuple-element(%s), index=1
  %next = s32[] fusion(%i.1), kind=kLoop, calls=%bump
  ROOT %out = (s32[], s32[]) tuple(%next, %n.1)
}

%inner_condition (s.1: (s32[], s32[])) -> pred[] {
  %s.1 = (s32[], s32[]) parameter(0)
  %i.2 = s32[] get-tuple-element(%s.1), index=0
  %n.2 = s32[] get-tuple-element(%s.1), index=1
  ROOT %test = pred[] fusion(%i.2, %n.2), kind=kLoop, calls=%below
}

%outer_body (t: (s32[], s32[], s32[])) -> (s32[], s32[], s32[]) {
  %t = (s32[], s32[], s32[]) parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %zero = s32[] get-tuple-element(%t), index=1
  %n = s32[] get-tuple-element(%t), index=2
  %two = s32[] constant(2)
  %copied = s32[] copy(%zero)
  %first = (s32[], s32[]) tuple(%copied, %n)
  %inner = (s32[], s32[]) while(%first), condition=%inner_condition, body=%inner_body
  %more = s32[] add(%j, %two)
  ROOT %out.1 = (s32[], s32[], s32[]) tuple(%more, %zero, %n)
}

%outer_condition (t.1: (s32[], s32[], s32[])) -> pred[] {
  %t.1 = (s32[], s32[], s32[]) parameter(0)
  %j.1 = s32[] get-tuple-element(%t.1), index=0
  %five = s32[] constant(5)
  ROOT %test.1 = pred[] compare(%j.1, %five), direction=LT
}

ENTRY %main () -> s32[] {
  %none = s32[] constant(0)
  %six = s32[] constant(6)
  %begin = (s32[], s32[], s32[]) tuple(%none, %none, %six)
  %outer = (s32[], s32[], s32[]) while(%begin), condition=%outer_condition, body=%outer_body
  ROOT %answer = s32[] get-tuple-element(%outer), index=0
}
"""


def test_constants_are_followed_through_fusions_copies_and_the_state_of_an_outer_loop() -> None:
    graph = call_graph(module(NESTED))

    # The outer loop counts 0, 2, 4: three rounds; the inner one 0 to 6 in each.
    assert {found.name: found.trip_count for found in graph.loops} == {"outer": 3, "inner": 6}
    assert (graph.counts["inner_body"], graph.counts["inner_condition"], graph.counts["bump"]) == (18, 21, 18)


def conditional(yes: str, no: str) -> CallGraph:
    return call_graph(
        module(f"""HloModule branches, num_partitions=4

%yes (x: f32[4,4]) -> f32[4,4] {{
  %x = f32[4,4] parameter(0)
  ROOT %y = f32[4,4] {yes}
}}

%no (x: f32[4,4]) -> f32[4,4] {{
  %x = f32[4,4] parameter(0)
  ROOT %y = f32[4,4] {no}
}}

ENTRY %main (p: pred[], x.2: f32[4,4]) -> f32[4,4] {{
  %p = pred[] parameter(0)
  %x.2 = f32[4,4] parameter(1)
  ROOT %chosen = f32[4,4] conditional(%p, %x.2, %x.2), branch_computations={{%yes, %no}}
}}
""")
    )


def test_branches_that_do_different_work_run_an_unknown_number_of_times() -> None:
    graph = conditional("all-reduce(%x), replica_groups={}", "copy(%x)")

    assert isnan(graph.counts["yes"])
    assert isnan(graph.counts["no"])
    assert [found.name for found in graph.loops] == ["chosen"]


def test_branches_that_do_the_same_work_count_as_one_run_together() -> None:
    graph = conditional(
        "collective-permute(%x), source_target_pairs={{0,1}}", "collective-permute(%x), source_target_pairs={{2,3}}"
    )

    assert (graph.counts["yes"], graph.counts["no"]) == (0.5, 0.5)


def test_what_a_done_names_again_is_not_run_again() -> None:
    graph = call_graph(
        module("""HloModule beside

%wrapped (x: f32[8]) -> f32[8] {
  %x = f32[8] parameter(0)
  ROOT %sum = f32[8] all-reduce(%x), replica_groups={}
}

ENTRY %main (y: f32[8]) -> f32[8] {
  %y = f32[8] parameter(0)
  %start = ((f32[8]), f32[8], u32[]) async-start(%y), calls=%wrapped
  ROOT %done = f32[8] async-done(%start), calls=%wrapped
}
""")
    )

    assert graph.counts["wrapped"] == 1
    assert graph.is_started("wrapped")


def test_computations_that_call_each_other_are_refused() -> None:
    text = """HloModule circle

%a (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %y = f32[] call(%x), to_apply=%b
}

%b (x.1: f32[]) -> f32[] {
  %x.1 = f32[] parameter(0)
  ROOT %y.1 = f32[] call(%x.1), to_apply=%a
}

ENTRY %main (x.2: f32[]) -> f32[] {
  %x.2 = f32[] parameter(0)
  ROOT %y.2 = f32[] call(%x.2), to_apply=%a
}
"""

    with pytest.raises(InputError, match="in a circle"):
        call_graph(module(text))
