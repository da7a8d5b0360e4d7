"""FLOPs of the kernels that MaxText calls, against products counted by hand."""

from __future__ import annotations

import pytest

from ridgeline.hlo.text import parse_hlo
from ridgeline.study.maxtext_kernels import maxtext_kernel_rules
from tests.compiler.jobs import tiny_job

CALL = 'custom_call_target="tpu_custom_call"'

TEXT = f"""\
HloModule jit_train_step, is_scheduled=true

ENTRY %main (p: s8[1,2,2]) -> bf16[2,4,1024,128] {{
  %next = s8[1,2,2]{{2,1,0}} parameter(0)
  %mask = s8[1,2,2]{{2,1,0}} parameter(1)
  %q = bf16[2,4,1024,128]{{3,2,1,0}} parameter(2)
  %k = bf16[2,2,1024,128]{{3,2,1,0}} parameter(3)
  %v = bf16[2,2,1024,64]{{3,2,1,0}} parameter(4)
  %fwd = (bf16[2,4,1024,64]{{3,2,1,0}}, f32[2,4,1024]{{2,1,0}}) custom-call(%next, %mask, %q, %k, %v), {CALL}
  %dq = bf16[2,4,1024,128]{{3,2,1,0}} custom-call(%next, %mask, %q, %k, %v), {CALL}
  %dkv = (bf16[2,2,1024,128]{{3,2,1,0}}, bf16[2,2,1024,64]{{3,2,1,0}}) custom-call(%next, %mask, %q, %k, %v), {CALL}
  %all = (bf16[2,4,1024,128]{{3,2,1,0}}, bf16[2,2,1024,128]{{3,2,1,0}}, bf16[2,2,1024,64]{{3,2,1,0}}) \
custom-call(%next, %mask, %q, %k, %v), {CALL}
  %tokens = bf16[64,16]{{1,0}} parameter(5)
  %experts = bf16[8,16,32]{{2,1,0}} parameter(6)
  %slopes = bf16[64,32]{{1,0}} parameter(7)
  %gmm = bf16[64,32]{{1,0}} custom-call(%tokens, %experts), {CALL}
  %tgmm = bf16[8,16,32]{{2,1,0}} custom-call(%tokens, %slopes), {CALL}
  ROOT %out = bf16[2,4,1024,128]{{3,2,1,0}} copy(%dq)
}}
"""

PAIRS = 3 * 512 * 512
"""Of two by two tiles of 512 the causal mask leaves three."""

SCORE, VALUE = (2 * 2 * 4 * PAIRS * width for width in (128, 64))
"""FLOPs of a product as wide as keys, and as values: of 2 sequences and 4 query heads."""


@pytest.mark.parametrize(
    ("name", "kernel", "flops"),
    [
        ("fwd", "splash_mha_fwd_segmented_residuals", SCORE + VALUE),
        ("dq", "splash_mha_dq_segmented_no_residuals", 2 * SCORE + VALUE),
        ("dkv", "splash_mha_dkv_segmented_no_residuals", 2 * SCORE + 2 * VALUE),
        ("all", "splash_mqa_dkv_no_residuals", 3 * SCORE + 2 * VALUE),
        ("gmm", "gmm", 2 * 64 * 16 * 32),
        ("tgmm", "tgmm", 2 * 64 * 16 * 32),
    ],
)
def test_a_kernel_does_the_flops_of_its_products(name: str, kernel: str, flops: float) -> None:
    module = parse_hlo(TEXT.splitlines(keepends=True), where="text")
    rules = maxtext_kernel_rules(tiny_job(workload__seq_len=1024))

    main = module.entry_computation
    assert rules[kernel](main, main.instructions[name]) == flops
