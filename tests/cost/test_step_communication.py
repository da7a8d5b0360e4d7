"""What a step waits for when it communicates, by hand: gathers, sums of gradients, and replicas across slices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ridgeline.cost.causes import time_by_cause
from ridgeline.cost.collectives import Transfer
from ridgeline.cost.training.held_weights import local_elements
from ridgeline.cost.training.step import roofline_s, training_step
from ridgeline.cost.work import Hiding, Part, overlapped
from tests.cost.settings import one_plan, setting_on

if TYPE_CHECKING:
    from ridgeline.cost.columns import TrainingSetting

LAYERS = 8
LAYER_WEIGHTS = 2048 * 128 * (16 + 2 * 8) + 16 * 128 * 2048 + 3 * 2048 * 8192 + 2 * 2048
LAYER_BYTES = 2 * LAYER_WEIGHTS


def setting_with(hardware: str, **efficiencies: float) -> TrainingSetting:
    setting = setting_on(hardware)
    return replace(setting, efficiency=replace(setting.efficiency, **efficiencies))


def leaves(step: Part, name: str) -> list[Part]:
    """Those of the layers."""
    return [part for path, part in step.walk() if path.endswith(f"/{name}") and "/layer/" in path]


def replicas(step: Part) -> list[Part]:
    """Sums of gradients over replicas."""
    found = (part for path, part in step.walk() if path.endswith("gradient/all_reduce"))
    return [part for part in found if "link.data" in part.work.amounts]


def test_around_two_rings_at_once_a_gather_reaches_less_of_four_links_than_around_one_of_two() -> None:
    efficiencies = {"link": 0.9, "link_several_rings": 0.5}
    ring = setting_with("v5e:16x16", **efficiencies)
    (around_both,) = leaves(training_step(ring, one_plan(ring, {"fsdp": 256})), "weights/all_gather")[:1]
    (around_one,) = leaves(training_step(ring, one_plan(ring, {"fsdp": 16, "dp": 16})), "weights/all_gather")[:1]

    link_bytes_per_s = 50e9
    both_s = LAYERS * LAYER_BYTES * 255 / 256 / (4 * link_bytes_per_s * 0.9 * 0.5)
    one_s = LAYERS * LAYER_BYTES * 15 / 16 / (2 * link_bytes_per_s * 0.9)
    assert float(around_both.expected_s) == pytest.approx(both_s)
    assert float(around_one.expected_s) == pytest.approx(one_s)


def test_lines_are_no_rings() -> None:
    lines = setting_with("v5e:4x4", link=0.9, link_several_rings=0.5)
    (gather,) = leaves(training_step(lines, one_plan(lines, {"fsdp": 16})), "weights/all_gather")[:1]

    assert float(gather.expected_s) == pytest.approx(LAYERS * LAYER_BYTES * 15 / 16 / (2 * 50e9 * 0.9))


def test_a_sum_written_as_an_all_reduce_takes_twice_as_long_as_its_gather_and_leaves_the_bound() -> None:
    once, twice = (setting_with("v5e:16x16", sum_passes=passes, unhidden_sum=1.0) for passes in (1.0, 2.0))
    steps = [training_step(setting, one_plan(setting, {"fsdp": 256})) for setting in (once, twice)]
    gather = leaves(steps[1], "weights/all_gather")[0]
    (summed,) = leaves(steps[1], "weights/reduce_scatter")

    assert float(summed.expected_s) == pytest.approx(2 * float(gather.expected_s))
    assert roofline_s(steps[0].work, once) == roofline_s(steps[1].work, twice)


def test_transfers_to_the_host_and_over_links_run_at_the_same_time() -> None:
    """Ten seconds hide nine; two gathers queue for the links, and the host has wires of its own."""
    compute, gather, summed, offload = (
        Part(name=name, phase="forward", resource=resource, expected_s=time_s)
        for name, resource, time_s in (
            ("c", "compute", 10.0),
            ("g", "ici", 8.0),
            ("s", "ici", 6.0),
            ("o", "host", 12.0),
        )
    )
    hiding = Hiding(overlap=0.9, unhidden_share=0.0)

    def shown_s(*behind: Part) -> float:
        return float(overlapped("layer", "forward", compute, list(behind), hiding=hiding).expected_s) - 10.0

    assert shown_s(offload) == pytest.approx(12.0 - 9.0)
    assert shown_s(gather, offload) == pytest.approx(12.0 - 9.0)
    assert shown_s(gather, summed, offload) == pytest.approx(8.0 + 6.0 - 9.0)


def test_a_sum_that_the_compiler_waits_for_shows_whole_and_gathers_hide() -> None:
    """A layer computes longer than it gathers, so of gathers only the unhidden share shows."""
    hidden, waiting = (setting_with("v5e:16x16", unhidden_gather=0.0, unhidden_sum=share) for share in (0.0, 1.0))
    before, after = (training_step(setting, one_plan(setting, {"fsdp": 256})) for setting in (hidden, waiting))
    layers = leaves(after, "weights/reduce_scatter")
    outside = [part for path, part in after.walk() if path.endswith("head/weights/reduce_scatter")]

    shown_s = float(after.expected_s) - float(before.expected_s)
    assert shown_s == pytest.approx(sum(float(part.expected_s) for part in (*layers, *outside)))
    assert sum(time_by_cause(after).values()) == pytest.approx(float(after.expected_s))


def test_what_sparse_cores_carry_hides_but_for_its_first_part() -> None:
    """v5p writes sums of gradients as all-reduces, so offloading reduce-scatters there moves nothing away."""
    waiting = setting_with("v5p:4x4x4", unhidden=0.16, unhidden_gather=0.8, unhidden_sum=1.0, sum_passes=2.0)

    def shown(*offloaded: str) -> tuple[float, float]:
        setting = replace(waiting, sparse_core_offload=offloaded)
        step = training_step(setting, one_plan(setting, {"fsdp": 64}))
        gather, summed = (leaves(step, f"weights/{kind}")[0] for kind in ("all_gather", "reduce_scatter"))
        return float(gather.unhidden_share or 0.0), float(summed.unhidden_share or 0.0)

    assert shown() == (0.8, 1.0)
    assert shown("all_gather") == (0.16, 1.0)
    assert shown("all_gather", "reduce_scatter") == (0.16, 1.0)
    assert shown("all_gather", "all_reduce") == (0.16, 0.16)


def test_offloaded_reduce_scatters_hide_where_the_compiler_writes_such() -> None:
    setting = setting_with("tpu7x:4x4x4", unhidden=0.16, unhidden_sum=1.0, sum_passes=1.0)
    offloaded = replace(setting, sparse_core_offload=("reduce_scatter",))

    assert (setting.unhidden_sum_share, offloaded.unhidden_sum_share) == (1.0, 0.16)


def test_replicas_across_slices_sum_a_layers_gradients_in_steps_of_a_ring() -> None:
    """Four slices: each chip sends 2·(3/4) of its gradients; for every layer a ring is started and takes 2·3 steps."""
    network = {"network": 0.4, "network_step_s": 1e-3, "network_launch_s": 5e-3}
    setting = setting_with("4*v5e:16x16", **network, unhidden_network=1.0)
    columns = one_plan(setting, {"fsdp": 256, "dcn_dp": 4})
    (summed,) = replicas(training_step(setting, columns))

    sent_bytes = 2 * 3 / 4 * 2 * float(local_elements(setting, columns))
    assert float(summed.expected_s) == pytest.approx(sent_bytes / (3.125e9 * 0.4) + LAYERS * (5e-3 + 2 * 3 * 1e-3))


def test_inside_a_slice_nothing_is_started_over_the_network() -> None:
    quick, slow = (setting_with("v5e:16x16", network_launch_s=launch_s) for launch_s in (1e-9, 1.0))
    (first, second) = (training_step(each, one_plan(each, {"fsdp": 16, "dp": 16})).expected_s for each in (quick, slow))

    assert float(first) == float(second)


def test_a_gather_across_slices_is_started_once_by_the_hosts() -> None:
    """The weights of a layer are gathered together, forward and backward."""
    quick, slow = (setting_with("2*v5e:16x16", network_launch_s=launch_s) for launch_s in (1e-3, 0.2))
    gathers = [
        leaves(training_step(each, one_plan(each, {"fsdp": 256, "dcn_fsdp": 2})), "weights/all_gather")[0]
        for each in (quick, slow)
    ]

    assert float(gathers[1].expected_s) - float(gathers[0].expected_s) == pytest.approx(LAYERS * (0.2 - 1e-3))


def test_what_nothing_hides_of_a_sum_across_slices_adds_to_the_step() -> None:
    hidden, waiting = (
        setting_with("4*v5e:16x16", network_step_s=1e-4, network_launch_s=1e-4, unhidden_network=share)
        for share in (0.0, 1.0)
    )
    plan = {"fsdp": 256, "dcn_dp": 4}
    before, after = (training_step(setting, one_plan(setting, plan)) for setting in (hidden, waiting))
    (summed,) = replicas(after)

    assert float(after.expected_s) - float(before.expected_s) == pytest.approx(float(summed.expected_s), rel=0.01)


def test_a_ring_over_the_network_adds_its_steps_to_the_time_of_the_bytes() -> None:
    arrays = {"array_bytes": 8.0, "link_bytes": 3.0, "network_bytes": 4.0, "latency_s": 0.5}
    transfer = Transfer(**arrays, network_steps=6.0, num_network_launches=3.0)
    rates = {"link_bytes_per_s": 1.0, "network_bytes_per_s": 2.0}

    assert transfer.expected_s(**rates, network_step_s=0.25) == 4 / 2 + 6 / 4
    assert transfer.expected_s(**rates, network_step_s=0.25, network_launch_s=0.5) == 4 / 2 + 6 / 4 + 3 / 2


def test_across_gpu_nodes_the_network_says_what_nothing_hides_of_fsdp_inside_one_the_links() -> None:
    shares = {"unhidden_gather": 0.2, "unhidden_sum": 0.3, "unhidden_network": 0.4}
    for hardware, gathered, summed in (("h100:8", 0.2, 0.3), ("h100:16", 0.4, 0.4)):
        setting = setting_with(hardware, **shares)
        step = training_step(setting, one_plan(setting, {"fsdp": setting.hardware.num_devices}))

        assert {float(part.unhidden_share or 0) for part in leaves(step, "weights/all_gather")} == {gathered}
        assert {float(part.unhidden_share or 0) for part in leaves(step, "weights/reduce_scatter")} == {summed}


def test_what_the_backward_pass_does_not_read_stays_off_the_host() -> None:
    """An MLP's output is only added to the stream, so naming it moves nothing; attention's is read by a norm."""
    setting = setting_with("v5e:4x4")
    plan = one_plan(setting, {"fsdp": 16})

    def moved_bytes(*names: str) -> float:
        offloaded = replace(plan, offloaded={**plan.offloaded, **dict.fromkeys(names, 1.0)})
        return float(training_step(setting, offloaded).work.amounts["host"])

    tokens = 256 * 2048 / 16
    assert moved_bytes("mlpwo") == 0.0
    assert moved_bytes("mlpwo", "out_proj") == pytest.approx(2 * LAYERS * tokens * 2048 * 2)
