"""Collectives, transfers between slices and to the host, against what the program must send."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.hlo.calls import call_graph
from ridgeline.hlo.collectives import collectives, host_transfers
from ridgeline.hlo.groups import axes_in_mesh, parse_groups
from ridgeline.hlo.summary import summarise
from tests.hlo.programs import TPU7X, V5P, compiled, entry, loop, module

if TYPE_CHECKING:
    from ridgeline.hlo.collectives import Collective

L, D, F = 4, 2048, 8192
WEIGHTS_BYTES = L * 2 * D * F * 2
"""Of the compiled programs: two matrices a layer, in bf16."""


def _only(body: str, **mesh: int) -> Collective:
    (found,) = collectives(call_graph(entry(body)), mesh=mesh)
    return found


def test_fsdp_on_tpu7x_gathers_the_weights_twice_and_scatters_their_gradients_on_the_sparse_cores() -> None:
    found = [each.collective for each in summarise(compiled(TPU7X)).collectives]

    # Once for forward, once for backward; gradients of all weights, in the dtype of the matmuls.
    assert {(each.kind, each.total_bytes) for each in found} == {
        ("all_gather", WEIGHTS_BYTES),
        ("reduce_scatter", WEIGHTS_BYTES),
    }
    assert [each.kind for each in found].count("all_gather") == 2
    assert {(each.axis, each.num_devices, each.is_async, each.engine) for each in found} == {
        ("axis_0", 128, True, "sparse_core")
    }


def test_fsdp_on_v5p_waits_for_gathers_and_sums_gradients_whole() -> None:
    found = [each.collective for each in summarise(compiled(V5P)).collectives]

    assert [(each.kind, each.count, each.total_bytes) for each in found] == [
        ("all_gather", 2 * L, WEIGHTS_BYTES),
        ("all_gather", 2 * L, WEIGHTS_BYTES),
        ("all_reduce", L, WEIGHTS_BYTES),  # both gradients of a layer in one
    ]
    assert {(each.num_devices, each.is_async, each.engine) for each in found} == {(64, False, "tensor_core")}


def test_a_gather_without_a_scope_belongs_where_what_it_is_fed_was_made() -> None:
    phases = {each.collective.kind: each.place.phase for each in summarise(compiled(TPU7X)).collectives}

    assert phases["reduce_scatter"] == "backward"


@pytest.mark.parametrize(
    ("text", "num_devices", "members"),
    [
        ("{{0,1},{2,3}}", 2, ((0, 1), (2, 3))),
        ("{ {0, 4}, {1, 5} }", 2, ((0, 4), (1, 5))),
        ("{}", 8, (tuple(range(8)),)),
        ("", 8, (tuple(range(8)),)),
        ("[2,4]<=[8]", 4, ((0, 1, 2, 3), (4, 5, 6, 7))),
        # 0..7 as 4 rows of 2, columns first
        ("[2,4]<=[4,2]T(1,0)", 4, ((0, 2, 4, 6), (1, 3, 5, 7))),
        # 2×2×2 with the middle axis last: groups along it
        ("[4,2]<=[2,2,2]T(0,2,1)", 2, ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['dcn'=1,'fsdp'=4,'tp'=2] {'fsdp'}", 4, ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("@mesh['dcn'=2,'fsdp'=2,'tp'=2] {'dcn','tp'}", 4, ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['x'=8] {'x':(2)4}", 4, ()),
    ],
)
def test_replica_groups_are_read_in_every_syntax(text: str, num_devices: int, members: tuple[object, ...]) -> None:
    found = parse_groups(text, num_devices=8)

    assert found is not None
    assert (found.num_devices, found.members) == (num_devices, members)


@pytest.mark.parametrize(
    "text",
    ["{{}}", "[0,0]<=[0]", "mesh['a'=0] {'a'}", "[3,3]<=[8]", "[2,4]<=[4,2]T(1,1)", "mesh['a'=2] {'b'}", "later"],
)
def test_groups_in_no_known_form_are_unknown(text: str) -> None:
    assert parse_groups(text, num_devices=8) is None


def test_a_collective_with_unreadable_groups_has_an_unknown_number_of_devices() -> None:
    found = _only("  %x = f32[8] parameter(0)\n  ROOT %y = f32[8] all-reduce(%x), replica_groups=later")

    assert isnan(found.num_devices)
    assert found.axis == ""


@given(sizes=st.lists(st.integers(2, 4), min_size=1, max_size=4), choice=st.sets(st.integers(0, 3), min_size=1))
def test_groups_along_axes_of_a_mesh_are_recognised(sizes: list[int], choice: set[int]) -> None:
    mesh = {f"axis_{number}": size for number, size in enumerate(sizes)}
    chosen = [axis for axis in choice if axis < len(sizes)] or [0]
    others = [axis for axis in range(len(sizes)) if axis not in chosen]
    count = 1
    for axis in chosen:
        count *= sizes[axis]
    total = 1
    for size in sizes:
        total *= size
    order = ",".join(map(str, others + sorted(chosen)))
    text = f"[{total // count},{count}]<=[{','.join(map(str, sizes))}]T({order})"

    groups = parse_groups(text, num_devices=total)

    assert groups is not None
    assert axes_in_mesh(groups, mesh) == tuple(f"axis_{axis}" for axis in sorted(chosen))


def test_groups_that_follow_no_axis_of_the_mesh_are_not_named() -> None:
    groups = parse_groups("{{0,3},{1,2}}", num_devices=4)

    assert groups is not None
    assert axes_in_mesh(groups, {"a": 2, "b": 2}) == ()
    assert axes_in_mesh(groups, {"a": 8}) == ()


GIVEN = "  %x = bf16[4,8]{1,0} parameter(0)\n"


@pytest.mark.parametrize(
    ("rest", "kind", "array_bytes", "is_async"),
    [
        ("  ROOT %y = bf16[32,8] all-gather(%x), replica_groups=[1,8]<=[8]", "all_gather", 512, False),
        (
            "  ROOT %y = (bf16[4,8], bf16[32,8]) all-gather-start(%x), replica_groups=[1,8]<=[8]",
            "all_gather",
            512,
            True,
        ),
        (
            "  ROOT %y = bf16[4,8] all-reduce-start(%x), replica_groups=[1,8]<=[8]",
            "all_reduce",
            64,
            True,
        ),
        ("  ROOT %y = bf16[1,8] reduce-scatter(%x), replica_groups=[2,4]<=[8]", "reduce_scatter", 64, False),
        ("  ROOT %y = bf16[4,8] all-to-all(%x), replica_groups=[2,4]<=[8]", "all_to_all", 64, False),
        ("  ROOT %y = (bf16[4,8], bf16[4,8]) all-reduce(%x, %x), replica_groups={}", "all_reduce", 128, False),
    ],
)
def test_a_collectives_array_is_the_larger_of_what_goes_in_and_comes_out(
    rest: str, kind: str, array_bytes: float, *, is_async: bool
) -> None:
    found = _only(GIVEN + rest)

    assert (found.kind, found.array_bytes, found.is_async, found.count) == (kind, array_bytes, is_async, 1)


def test_a_permutation_lies_along_the_axis_in_which_its_pairs_differ() -> None:
    body = "  ROOT %y = bf16[4,8] collective-permute(%x), source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,4}}"

    assert _only(GIVEN + body, fsdp=2, tp=4).axis == "tp"
    assert _only(GIVEN + body).axis == ""


def test_a_transfer_between_slices_is_carried_by_the_hosts() -> None:
    sent = (
        "  %t = token[] after-all()\n"
        "  %s = (bf16[4,8], u32[], token[]) send(%x, %t), channel_id=1, is_host_transfer=true, frontend_attributes="
        '{_xla_host_transfer_handler_name="xla_megascale_runtime",_xla_megascale_target="{1,2}x{0:127}",'
        '_xla_megascale_transfer_type="ALL_REDUCE"}\n'
        "  %r = (bf16[4,8], u32[], token[]) recv(%t), channel_id=2, is_host_transfer=true, frontend_attributes="
        '{_xla_megascale_transfer_type="ALL_REDUCE"}\n'
        "  %d = token[] send-done(%s), channel_id=1, is_host_transfer=true\n"
        "  ROOT %e = (bf16[4,8], token[]) recv-done(%r), channel_id=2, is_host_transfer=true"
    )

    found = _only(GIVEN + sent)

    assert (found.kind, found.axis, found.array_bytes, found.engine) == ("all_reduce", "dcn", 64, "megascale")


def test_a_collective_in_a_loop_of_unknown_length_has_an_unknown_count() -> None:
    program = loop(
        condition="  ROOT %test = pred[] custom-call(%i.1)", step="all-reduce(%i), replica_groups={}, to_apply=%body"
    )

    (found,) = collectives(call_graph(program))

    assert isnan(found.count)
    assert isnan(found.total_bytes)


def test_copies_to_and_from_the_host_are_told_by_their_memory_space() -> None:
    found = host_transfers(
        call_graph(
            entry(
                "  %stack = bf16[80,64]{1,0:T(8,128)S(5)} parameter(0)\n"
                "  %layer = bf16[1,64]{1,0:T(8,128)} parameter(1)\n"
                "  %i = s32[] parameter(2)\n"
                "  %put = ((bf16[80,64]{1,0:S(5)}, bf16[1,64]{1,0}, s32[]), bf16[80,64]{1,0:S(5)}, u32[])"
                " dynamic-update-slice-start(%stack, %layer, %i, %i)\n"
                "  %done = bf16[80,64]{1,0:S(5)} dynamic-update-slice-done(%put)\n"
                "  %get = ((bf16[80,64]{1,0:S(5)}, s32[]), bf16[1,64]{1,0}, u32[])"
                " dynamic-slice-start(%stack, %i, %i), dynamic_slice_sizes={1,64}\n"
                "  %copied = (bf16[1,64]{1,0:S(5)}, bf16[1,64]{1,0}, u32[]) copy-start(%layer)\n"
                "  %near = bf16[1,64]{1,0:S(1)} copy(%layer)\n"
                "  ROOT %back = bf16[80,64]{1,0} copy(%stack)"
            )
        )
    )

    # One layer's 64 elements in bf16 are 128 bytes; the whole stack is 80 times that.
    assert [(each.name, each.direction, each.array_bytes, each.is_async) for each in found] == [
        ("put", "to_host", 128, True),
        ("get", "from_host", 128, True),
        ("copied", "to_host", 128, True),
        ("back", "from_host", 80 * 128, False),
    ]


def test_a_call_started_beside_other_work_on_the_sparse_cores_is_followed() -> None:
    program = module("""HloModule offloaded, num_partitions=8

%called (p: bf16[4,8]) -> bf16[32,8] {
  %p = bf16[4,8] parameter(0)
  ROOT %gather = bf16[32,8] all-gather(%p), replica_groups=mesh['fsdp'=4,'tp'=2] {'fsdp'}, dimensions={0}
}, execution_thread="sparsecore"

ENTRY %main (x: bf16[4,8]) -> bf16[32,8] {
  %x = bf16[4,8] parameter(0)
  %start = ((), (), (s32[1])) call-start(), async_execution_thread="sparsecore", to_apply=%called
  %update = ((bf16[4,8]), bf16[32,8]) call-update(%start, %x)
  ROOT %done = bf16[32,8] call-done(%update)
}
""")

    (found,) = collectives(call_graph(program))

    assert (found.kind, found.axis, found.count, found.is_async, found.engine) == (
        "all_gather",
        "fsdp",
        1,
        True,
        "sparse_core",
    )


def test_a_chain_of_fusions_around_one_gather_counts_once() -> None:
    gather = (
        'all-gather(%p), channel_id=6, replica_groups=[2,4]<=[8], dimensions={0}, frontend_attributes={chain_id="0"}'
    )
    program = module(f"""HloModule chain, num_partitions=8

%begins (p: bf16[4,8]) -> (bf16[4,8], bf16[16,8]) {{
  %p = bf16[4,8] parameter(0)
  %gather.1 = bf16[16,8] {gather}
  ROOT %started = (bf16[4,8], bf16[16,8]) custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}}

%continues (p.1: bf16[4,8]) -> bf16[16,8] {{
  %p = bf16[4,8] parameter(0)
  ROOT %gather.2 = bf16[16,8] {gather}
}}

ENTRY %main (x: bf16[4,8]) -> bf16[16,8] {{
  %x = bf16[4,8] parameter(0)
  %a = (bf16[4,8], bf16[16,8]) fusion(%x), kind=kCustom, calls=%begins
  ROOT %b = bf16[16,8] fusion(%x), kind=kOutput, calls=%continues
}}
""")

    (found,) = collectives(call_graph(program))

    assert (found.name, found.is_async, found.array_bytes) == ("gather.1", True, 16 * 8 * 2)
    assert summarise(program).uncounted == ()


def test_a_sum_of_which_a_shard_is_kept_is_a_reduce_scatter() -> None:
    program = module("""HloModule kept, num_partitions=8

%all-reduce-scatter.1 (p: bf16[16,8]) -> bf16[4,8] {
  %p = bf16[16,8] parameter(0)
  %sum = bf16[16,8] all-reduce(%p), replica_groups=[2,4]<=[8]
  %at = s32[] constant(0)
  ROOT %kept = bf16[4,8] dynamic-slice(%sum, %at, %at), dynamic_slice_sizes={4,8}
}

ENTRY %main (x: bf16[16,8]) -> bf16[4,8] {
  %x = bf16[16,8] parameter(0)
  ROOT %y = bf16[4,8] fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1
}
""")

    (found,) = collectives(call_graph(program))

    assert (found.kind, found.array_bytes) == ("reduce_scatter", 16 * 8 * 2)


def test_axes_are_named_by_the_users_mesh_before_the_compilers() -> None:
    program = entry(
        "  %x = bf16[4,8] parameter(0)\n"
        "  %a = bf16[4,8] all-reduce(%x), replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_1'}\n"
        "  %b = bf16[4,8] all-reduce(%a), replica_groups=mesh['dcn'=1,'fsdp'=4,'tp'=2] {'fsdp'}\n"
        "  ROOT %c = bf16[4,8] all-reduce(%b), replica_groups=[2,4]<=[4,2]T(1,0)"
    )

    found = collectives(call_graph(program))

    assert [each.axis for each in found] == ["tp", "fsdp", "fsdp"]
    given = collectives(call_graph(program), mesh={"data": 4, "model": 2})
    assert [each.axis for each in given] == ["model", "data", "data"]


def test_a_transfer_between_slices_says_how_many_take_part() -> None:
    body = (
        "  ROOT %s = (bf16[4,8], u32[], token[]) send(%x, %x), is_host_transfer=true, frontend_attributes="
        '{_xla_megascale_target="{1,2,3}x{0:3}",_xla_megascale_transfer_type="ALL_GATHER"}'
    )

    assert _only(GIVEN + body).num_devices == 3


def test_a_transfer_to_the_host_itself_is_no_collective() -> None:
    body = "  ROOT %s = (bf16[4,8], u32[], token[]) send(%x, %x), channel_id=1, is_host_transfer=true"

    assert collectives(call_graph(entry(GIVEN + body))) == ()


@pytest.mark.parametrize(("goes_in", "comes_out"), [(16, 64), (64, 16)])
def test_a_ragged_exchange_moves_its_full_side_and_not_the_room_for_more(goes_in: int, comes_out: int) -> None:
    sizes = "\n".join(f"  %n{number} = s32[4] parameter({number + 2})" for number in range(4))
    found = _only(
        f"  %rows = bf16[{goes_in},128] parameter(0)\n  %room = bf16[{comes_out},128] parameter(1)\n{sizes}\n"
        f"  ROOT %r = bf16[{comes_out},128] ragged-all-to-all(%rows, %room, %n0, %n1, %n2, %n3),"
        " replica_groups={{0,1,2,3}}",
        ep=4,
    )

    assert (found.kind, found.axis, found.array_bytes) == ("ragged_all_to_all", "ep", 16 * 128 * 2)
