"""Programs to read: two that the compiler wrote, and small ones written here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ridgeline.hlo.text import parse_hlo, read_hlo

if TYPE_CHECKING:
    from ridgeline.hlo.module import HloModule

DATA = Path(__file__).parent / "data"
TPU7X = DATA / "tpu7x_4x4x4_mlp.hlo"
V5P = DATA / "v5p_4x4x4_mlp.hlo"


def compiled(path: Path) -> HloModule:
    """A program that the compiler wrote."""
    return read_hlo(str(path), where="--hlo")


def module(text: str) -> HloModule:
    """A program from its text."""
    return parse_hlo(text.splitlines(keepends=True), where="test.hlo")


def entry(body: str, *, header: str = "num_partitions=8") -> HloModule:
    """A program of one computation."""
    return module(f"HloModule test, {header}\n\nENTRY %main (x: f32[]) -> f32[] {{\n{body}\n}}\n")


def loop(*, condition: str, start: str = "constant(0)", step: str = "add(%i, %one)", config: str = "") -> HloModule:
    """A loop over one counter, with a matmul of 2·8·8·8 = 1,024 FLOPs in its body."""
    return module(f"""HloModule loop

%body (state: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {{
  %state = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = f32[8,8] get-tuple-element(%state), index=1
  %one = s32[] constant(1)
  %next = s32[] {step}
  %y = f32[8,8] dot(%x, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT %out = (s32[], f32[8,8]) tuple(%next, %y)
}}

%condition (state.1: (s32[], f32[8,8])) -> pred[] {{
  %state.1 = (s32[], f32[8,8]) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
{condition}
}}

ENTRY %main (x: f32[8,8]) -> f32[8,8] {{
  %x.2 = f32[8,8] parameter(0)
  %start = s32[] {start}
  %first = (s32[], f32[8,8]) tuple(%start, %x.2)
  %while.1 = (s32[], f32[8,8]) while(%first), condition=%condition, body=%body{config}
  ROOT %result = f32[8,8] get-tuple-element(%while.1), index=1
}}
""")
