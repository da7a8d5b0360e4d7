"""Arguments, results and the largest values, against their shapes."""

from __future__ import annotations

import pytest

from ridgeline.hlo.calls import call_graph
from ridgeline.hlo.memory import entry_memory, largest_buffers
from tests.hlo.programs import TPU7X, V5P, compiled, entry, module


@pytest.mark.parametrize(("path", "num_devices"), [(TPU7X, 128), (V5P, 64)])
def test_the_weights_of_a_compiled_step_are_updated_in_place(path: object, num_devices: int) -> None:
    weights_bytes = 4 * 2 * 2048 * 8192 * 4 / num_devices  # four layers of two matrices in f32, sharded
    tokens_bytes = 2048 * 2048 * 2  # 2,048 tokens a device in bf16

    memory = entry_memory(compiled(path))

    assert memory.arguments_bytes == weights_bytes + tokens_bytes
    assert memory.outputs_bytes == memory.aliased_bytes == weights_bytes


def test_what_lives_on_the_host_is_counted_apart() -> None:
    layout = "entry_computation_layout={(f32[128]{0:T(128)S(5)}, bf16[3]{0:T(128)})->(f32[128]{0:T(128)S(5)})}"
    found = entry("  ROOT %x = f32[] constant(1)", header=layout)

    memory = entry_memory(found)

    assert (memory.arguments_bytes, memory.outputs_bytes) == (128 * 2, 0)  # 3 elements padded to a tile of 128
    assert (memory.host_arguments_bytes, memory.host_outputs_bytes) == (128 * 4, 128 * 4)


def test_without_a_layout_the_entry_computation_says_what_is_given() -> None:
    found = entry("  %x = f32[8] parameter(0)\n  ROOT %y = (f32[8], f32[2]) tuple(%x, %x)", header="is_scheduled=true")

    assert (entry_memory(found).arguments_bytes, entry_memory(found).outputs_bytes) == (32, 40)


def test_an_alias_of_one_element_of_a_nested_result_is_that_elements() -> None:
    header = (
        "input_output_alias={ {1, 0}: (0, {}, may-alias), {7}: (0, {}) }, "
        "entry_computation_layout={(f32[4]{0})->(f32[1]{0}, (f32[4]{0}, f32[2]{0}))}"
    )

    assert entry_memory(entry("  ROOT %x = f32[] constant(1)", header=header)).aliased_bytes == 16


def test_the_largest_values_leave_out_fused_ones_views_and_on_chip_memory() -> None:
    found = largest_buffers(
        call_graph(
            module("""HloModule values

%inside (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %huge = f32[1000] broadcast(%p), dimensions={0}
  ROOT %small = f32[4] slice(%huge), slice={[0:4]}
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4] parameter(0)
  %near = f32[500]{0:S(1)} broadcast(%x), dimensions={0}
  %view = f32[400] bitcast(%x)
  %far = f32[300]{0:S(5)} copy(%view)
  %moved = (f32[200]{0}, f32[200]{0:S(5)}, u32[]) copy-start(%view)
  %done = f32[200]{0} copy-done(%moved)
  %first = f32[100] negate(%view), metadata={op_name="jit(f)/layer/neg"}
  %second = f32[100] negate(%first)
  ROOT %out = f32[4] fusion(%second), kind=kLoop, calls=%inside
}
""")
        ),
        most=3,
    )

    assert [(each.shape, each.size_bytes, each.num_values, each.on_host, each.first) for each in found] == [
        ("f32[300]", 1200, 1, True, "far"),
        ("f32[200]", 800, 1, False, "moved"),
        ("f32[100]", 400, 2, False, "first"),
    ]
