"""Matmuls whose scopes the compiler lost: they belong to the part that owns the weight, in the phase of the data."""

from __future__ import annotations

import pytest

from ridgeline.hlo.parts import Place
from ridgeline.hlo.summary import summarise
from tests.hlo.programs import module

AGAIN = "jit(step)/transpose(jvp())/while/body/checkpoint/rematted_computation/layer/attention"
BACKWARD = "jit(step)/transpose(jvp())/while/body/checkpoint/layer/attention"


def program(*, left: str, right: str, matmul: str = "", scaled: str = "") -> str:
    """A fused matmul of two values, each made under a scope, in a program that is given a weight and a norm's scale."""
    return f"""HloModule step

%weight (w: f32[8,8]) -> f32[8,8] {{
  %w = f32[8,8] parameter(0)
  ROOT %same = f32[8,8] bitcast(%w)
}}

%fused (a: f32[8,8], b: f32[8,8]) -> f32[8,8] {{
  %a = f32[8,8] parameter(0)
  %b = f32[8,8] parameter(1)
  %rows = f32[8,8] fusion(%b), kind=kLoop, calls=%weight
  ROOT %d = f32[8,8] dot(%a, %rows), lhs_contracting_dims={{1}}, metadata={{op_name="{matmul}"}}
}}

ENTRY %main (x: f32[8,8], q: f32[8,8], k: f32[8,8], s: f32[8]) -> f32[8,8] {{
  %x = f32[8,8] parameter(0), metadata={{op_name="tokens"}}
  %q = f32[8,8] parameter(1), metadata={{op_name="state['weights']['layer/attention/query']"}}
  %k = f32[8,8] parameter(2), metadata={{op_name="state['weights']['layer/attention/key']"}}
  %s = f32[8] parameter(3), metadata={{op_name="state['weights']['layer/attention/norm/scale']"}}
  %scaled = f32[8,8] negate(%x), metadata={{op_name="{scaled}"}}
  %left = f32[8,8] negate(%scaled), metadata={{op_name="{left}"}}
  %right = f32[8,8] negate(%x), metadata={{op_name="{right}"}}
  %copy = f32[8,8] copy(%right)
  ROOT %f = f32[8,8] fusion(%left, %copy), kind=kOutput, calls=%fused, backend_config={{"estimated_cycles":"7"}}
}}
"""


@pytest.mark.parametrize(
    ("left", "right", "matmul", "part", "phase"),
    [
        (f"{AGAIN}/norm/rsqrt", f"{AGAIN}/query/convert_element_type", "", "layer/attention/query", "recompute"),
        (f"{AGAIN}/key/convert_element_type", f"{AGAIN}/norm/mul", "", "layer/attention/key", "recompute"),
        # of the backward pass: the weight was converted again, the gradient is new
        (f"{BACKWARD}/rotary/mul", f"{AGAIN}/query/convert", "", "layer/attention/query", "backward"),
        # the gradient of a weight is made from no weight
        (f"{AGAIN}/norm/mul", f"{BACKWARD}/rotary/mul", "", "", "backward"),
        # the operands speak of two parts
        (f"{AGAIN}/query/dot_general", f"{AGAIN}/key/dot_general", "", "", "recompute"),
        # what the matmul says itself
        (f"{AGAIN}/query/mul", f"{AGAIN}/norm/mul", f"{BACKWARD}/scores/dot", "layer/attention/scores", "backward"),
    ],
)
def test_a_matmul_without_a_scope_belongs_to_the_part_whose_weight_it_multiplies(
    left: str, right: str, matmul: str, part: str, phase: str
) -> None:
    summary = summarise(module(program(left=left, right=right, matmul=matmul)))

    flops = {each.place: each.flops for each in summary.parts if each.flops}
    assert {(place.part, place.phase): total for place, total in flops.items()} == {(part, phase): 1024.0}


def test_an_input_quantised_under_another_user_is_no_weight() -> None:
    left, right = f"{AGAIN}/query/convert_element_type", f"{AGAIN}/key/convert_element_type"
    text = program(left=left, right=right, scaled=f"{AGAIN}/norm/mul")

    (operation,) = summarise(module(text)).heaviest
    assert operation.place == Place(part="layer/attention/key", phase="recompute")


def test_a_fusion_without_a_scope_belongs_where_its_matmul_does() -> None:
    text = program(left=f"{AGAIN}/norm/rsqrt", right=f"{AGAIN}/query/convert_element_type")

    (operation,) = summarise(module(text)).heaviest
    assert operation.place == Place(part="layer/attention/query", phase="recompute")
