"""What lives at the peak, by the compiler's list and the program's text."""

from __future__ import annotations

from ridgeline.hlo.peak import live_at_peak
from tests.hlo.programs import module

PROGRAM = """HloModule step, is_scheduled=true

%body (s: (s32[], f32[8], f32[2,8])) -> (s32[], f32[8], f32[2,8]) {
  %s = (s32[], f32[8], f32[2,8]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %w = f32[8] get-tuple-element(%s), index=1
  %stack = f32[2,8] get-tuple-element(%s), index=2
  %gate = f32[1,8] negate(%w), metadata={op_name="jit(step)/jvp()/while/body/layer/mlp/gate/dot_general"}
  %kept = f32[2,8] dynamic-update-slice(%stack, %gate, %i, %i)
  ROOT %t = (s32[], f32[8], f32[2,8]) tuple(%i, %w, %kept)
}

%condition (s: (s32[], f32[8], f32[2,8])) -> pred[] {
  %s = (s32[], f32[8], f32[2,8]) parameter(0)
  ROOT %p = pred[] constant(false)
}

ENTRY %main (mu: f32[8]) -> f32[8] {
  %mu = f32[8] parameter(0), metadata={op_name="state['mu']['layer/mlp/up']"}
  %zero = s32[] constant(0)
  %empty = f32[2,8] custom-call(), custom_call_target="AllocateBuffer"
  %begin = (s32[], f32[8], f32[2,8]) tuple(%zero, %mu, %empty)
  %loop = (s32[], f32[8], f32[2,8]) while(%begin), condition=%condition, body=%body
  %logits = f32[8] negate(%mu), metadata={op_name="jit(step)/jvp(head)/logits/dot_general"}
  %near = f32[8]{0:T(128)S(1)} negate(%mu), metadata={op_name="jit(step)/jvp(head)/logits/dot_general"}
  ROOT %out = f32[8] get-tuple-element(%loop), index=1
}
"""

LIST = """  BufferLiveRange:
    logits{}: 3-4
  Live ranges at 7 (peak):
    loop{2}: 64 bytes (cumulative: 64 bytes)
    near{}: 48 bytes (cumulative: 112 bytes)
    empty{}: 40 bytes (cumulative: 152 bytes)
    mu{}: 32 bytes (cumulative: 184 bytes)
    logits{}: 30 bytes (cumulative: 214 bytes)
    gone{}: 3 bytes (cumulative: 217 bytes)
  Stack trace breakdown for peak usage: 217 bytes
    other{}: 1 bytes (cumulative: 1 bytes)
"""


def test_values_have_the_names_of_the_model() -> None:
    values = live_at_peak(LIST.splitlines(), module(PROGRAM), most=16)

    kept = "layer/mlp/gate, kept for the backward pass"
    assert [(each.what, each.size_bytes) for each in values] == [
        (kept, 64.0),
        (kept, 40.0),
        ("mu of layer/mlp/up", 32.0),
        ("head/logits, forward", 30.0),
        ("gone", 3.0),
    ]


def test_a_list_that_is_not_there_names_nothing() -> None:
    assert live_at_peak([], module(PROGRAM), most=16) == ()


MOVED = """  BufferLiveRange:
    mu{}:0-9
    logits{}:2-6
    loop{}:3-5
    loop{1}:3-5
    loop{2}:3-5
    near{}:3-5
    gone{}:3-5
    empty{}:6-8
  Live ranges at 7 (peak):
    mu{}: 32 bytes (cumulative: 32 bytes)
"""


def test_a_moment_when_more_lives_is_the_peak_whatever_the_list_says() -> None:
    values = live_at_peak(MOVED.splitlines(), module(PROGRAM), most=16)

    assert [(each.name, each.size_bytes) for each in values] == [
        ("loop", 64.0),  # f32[2,8]
        ("mu", 32.0),
        ("logits", 32.0),
        ("loop", 32.0),  # f32[8]; nothing of the tuple itself, of VMEM, or of what the program does not define
    ]


def test_a_result_may_take_the_place_of_what_is_used_for_the_last_time() -> None:
    ranges = ["    mu{}:0-4\n", "    logits{}:4-9\n"]

    assert len(live_at_peak(ranges, module(PROGRAM), most=16)) == 1
