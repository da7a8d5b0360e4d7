"""Rooflines of single operations, and the chip from inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import ridgeline
from tests.book.registry import adapter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Inputs: TypeAlias = Mapping[str, Any]
    Answers: TypeAlias = Mapping[str, Any]

CHIP = "v5e"
"""The chip of the book's first chapter, for questions that name none."""

PEAKS = ("C_used", "C", "C_bf16", "C_int8", "C_int4", "C_fp8", "C_mxu", "C_vpu", "C_chip", "C_core", "peak", "C_sparse")
HBM = ("W_hbm", "W", "W_mem", "hbm_bw", "bandwidth")
VMEM = ("W_vmem", "W", "W_hbm", "vmem_bw")
PCIE = ("W_pcie", "W_host", "W", "pcie", "pcie_bw")
LINK = ("W_net", "W_link", "W_one", "W", "W_ici_one_way")
ELEMENT = ("bpe", "bytes_per_el", "bytes_per_elem", "el_bytes", "dtype_bytes", "b", "bytes_el")
WEIGHT = ("weight_bytes", "b_w", "w_bytes", "bytes_w", "bpe_w")
ACTIVATION = ("act_bytes", "b_a", "a_bytes", "bytes_a", "bpe_a")
OUTPUT = ("out_bytes", "b_o", "o_bytes", "bytes_o", "bpe_o")
FLOPS = ("flops", "FLOPs", "ops")
BYTES = ("bytes", "nbytes", "bytes_moved")
DTYPES = ("int8", "int4", "fp8", "f32", "bf16")

OPERATION: Mapping[str, Callable[[Any], Any]] = {
    "flops": lambda answer: answer.flops,
    "ops": lambda answer: answer.flops,
    "flops_exact": lambda answer: answer.exact_flops,
    "exact_flops": lambda answer: answer.exact_flops,
    "bytes": lambda answer: answer.traffic_bytes,
    "bytes_total": lambda answer: answer.traffic_bytes,
    "total_bytes": lambda answer: answer.traffic_bytes,
    "bytes_moved": lambda answer: answer.traffic_bytes,
    "bytes_read": lambda answer: answer.read_bytes,
    "bytes_load": lambda answer: answer.read_bytes,
    "bytes_loaded": lambda answer: answer.read_bytes,
    "load_bytes": lambda answer: answer.read_bytes,
    "loaded": lambda answer: answer.read_bytes,
    "bytes_in": lambda answer: answer.read_bytes,
    "bytes_write": lambda answer: answer.written_bytes,
    "bytes_written": lambda answer: answer.written_bytes,
    "bytes_store": lambda answer: answer.written_bytes,
    "bytes_stored": lambda answer: answer.written_bytes,
    "store_bytes": lambda answer: answer.written_bytes,
    "written": lambda answer: answer.written_bytes,
    "bytes_out": lambda answer: answer.written_bytes,
    "intensity": lambda answer: answer.intensity_flops_per_byte,
    "intensity_exact": lambda answer: answer.intensity_flops_per_byte,
    "ai": lambda answer: answer.intensity_flops_per_byte,
    "AI": lambda answer: answer.intensity_flops_per_byte,
    "ridge": lambda answer: answer.ridge_flops_per_byte,
    "t_math": lambda answer: answer.compute_s,
    "t_compute": lambda answer: answer.compute_s,
    "t_flops": lambda answer: answer.compute_s,
    "t_comms": lambda answer: answer.transfer_s,
    "t_mem": lambda answer: answer.transfer_s,
    "t_memory": lambda answer: answer.transfer_s,
    "t_hbm": lambda answer: answer.transfer_s,
    "t_load": lambda answer: answer.transfer_s,
    "t_pcie": lambda answer: answer.transfer_s,
    "t_vmem": lambda answer: answer.transfer_s,
    "t": lambda answer: answer.lower_s,
    "t_lower": lambda answer: answer.lower_s,
    "lower": lambda answer: answer.lower_s,
    "t_upper": lambda answer: answer.upper_s,
    "upper": lambda answer: answer.upper_s,
    "ratio": lambda answer: answer.bounds_ratio,
    "max_ratio": lambda answer: answer.largest_bounds_ratio,
    "largest_ratio": lambda answer: answer.largest_bounds_ratio,
    "ratio_here_le_2": lambda answer: answer.bounds_agree,
    "bound": lambda answer: answer.limit,
    "regime": lambda answer: answer.limit,
    "limited_by": lambda answer: answer.limit,
    "compute_bound": lambda answer: answer.is_compute_bound,
    "is_compute_bound": lambda answer: answer.is_compute_bound,
    "attained": lambda answer: answer.attained_flops_per_s,
    "attainable": lambda answer: answer.attained_flops_per_s,
    "flops_per_s": lambda answer: answer.attained_flops_per_s,
    "utilization": lambda answer: answer.peak_fraction,
}
"""Fields of a roofline, by answer key."""

CRITICAL = ("B_crit", "B", "critical", "threshold", "limit", "B_min")
EXACT = ("B_crit_exact", "B_exact", "B_cross")
RULE = ("B_crit_rule", "B_crit_simple", "B_crit_unrounded", "B_crit_approx", "B_crit_small_batch")


@adapter("roofline.time")
def time(inputs: Inputs, wanted: Collection[str]) -> Answers:
    if "t_math" in inputs:  # one FLOP a second, one byte a second: times as they are
        given = {"flops": inputs["t_math"], "bytes": inputs["t_comms"]}
        return picked(ridgeline.roofline("work", peak=1.0, hbm_bandwidth=1.0, **given), wanted)
    each = {chip: work(one_of(inputs, chip), "") for chip in mapped(inputs)}
    if each:
        seconds = {
            name: answer.compute_s for chip, answer in each.items() for name in (chip, chip.removeprefix("tpu_"))
        }
        fields = {key: {chip: OPERATION[key](each[chip]) for chip in each} for key in wanted if key in OPERATION}
        return fields | {key: seconds[key] for key in wanted if key in seconds}
    answers = picked(work(inputs, ""), wanted)
    return answers | {
        key: value
        for key in wanted
        for base, suffix in parted(key)
        if f"C_{suffix}" in inputs
        for value in picked(work(inputs, suffix), [base]).values()
    }


@adapter("roofline.ridge")
def ridge(inputs: Inputs, wanted: Collection[str]) -> Answers:
    chips = mapped(inputs)
    if chips:
        return {key: {chip: ridge_of(one_of(inputs, chip), "hbm") for chip in chips} for key in wanted}
    if "intensity" in inputs:
        given = {"flops": inputs["intensity"], "bytes": 1.0}
        answers = dict(picked(ridgeline.roofline("work", **given, **machine(inputs)), wanted))
    else:
        answers = {}
    for key in wanted:
        for base, suffix in (*parted(key), (key, "")):
            if base in {"ridge", "intensity", "critical", "B_crit", "peak_intensity"} and key not in answers:
                answers[key] = ridge_of(inputs, "hbm", suffix)
    return answers


@adapter("roofline.plot")
def plot(inputs: Inputs, _: Collection[str]) -> Answers:
    found = ridgeline.ridge(**machine(inputs))
    answers = {"critical": found.ridge_flops_per_byte, "ridge": found.ridge_flops_per_byte}
    if "intensities" in inputs:
        answers["attainable"] = [found.attainable_flops_per_s(intensity) for intensity in inputs["intensities"]]
    stored = {"weights_dtype": "int8"} | elements(inputs)
    answers["limit"] = ridgeline.critical_batch(**machine(inputs), **stored).rule_size
    if "DF" in inputs:
        answers["B_crit_by_DF"] = [
            ridgeline.critical_batch(D=D, F=F, **machine(inputs), **stored).exact_size for D, F in inputs["DF"]
        ]
    if "B" in inputs and "DF" in inputs:
        curves = [
            [ridgeline.roofline("matmul", B=B, D=D, F=F, **machine(inputs), **stored) for B in several(inputs["B"])]
            for D, F in inputs["DF"]
        ]
        answers["attained"] = [[answer.attained_flops_per_s for answer in curve] for curve in curves]
    return answers


@adapter("roofline.intensity")
def intensity(inputs: Inputs, wanted: Collection[str]) -> Answers:
    if "B" in inputs:
        return matmul(inputs, wanted)
    length = chosen(inputs, D=("N", "n", "D", "length"))
    answer = ridgeline.roofline("dot", **length, **machine(inputs), **elements(inputs))
    return {**picked(answer, wanted), "intensity_limit": answer.intensity_flops_per_byte}


@adapter("roofline.matmul")
def matmul(inputs: Inputs, wanted: Collection[str]) -> Answers:
    stored = named_dtype(inputs) | elements(inputs)
    if "B" not in inputs:
        return critical_batch(inputs, wanted)
    if "D" not in inputs or "F" not in inputs:
        return {}
    answer = ridgeline.roofline("matmul", **sizes(inputs, "BDF"), **machine(inputs), **stored)
    few_rows = answer.small_batch_intensity_flops_per_byte
    found = critical(answer, "B")
    return {
        **picked(answer, wanted),
        **dict.fromkeys(
            ("intensity_limit", "intensity_approx", "intensity_small_batch", "intensity_small_B"), few_rows
        ),
        **dict.fromkeys((*CRITICAL, *RULE), found.rule_size),
        **dict.fromkeys(EXACT, found.exact_size),
    }


@adapter("roofline.batched_matmul")
def batched_matmul(inputs: Inputs, wanted: Collection[str]) -> Answers:
    stored = {"dtype": "int8"} | named_dtype(inputs) | elements(inputs)
    answer = ridgeline.roofline("batched_matmul", **sizes(inputs, "BTDF"), **machine(inputs), **stored)
    return {
        **picked(answer, wanted),
        "intensity_limit": answer.small_batch_intensity_flops_per_byte,
        "B_crit": critical(answer, "B").exact_size,
    }


@adapter("roofline.critical_batch")
def critical_batch(inputs: Inputs, wanted: Collection[str]) -> Answers:
    chips = mapped(inputs)
    if chips:
        each = {chip: criticals(one_of(inputs, chip), "hbm", "") for chip in chips}
        return {key: {chip: each[chip][key] for chip in chips} for key in wanted if key in each[chips[0]]}
    answers = criticals(inputs, "hbm", "")
    if "C_sparse" in inputs:
        dense = chosen(inputs, peak=("C_sparse",), sparsity=("sparsity_factor", "sparsity"))
        answers["B_crit_unrounded"] = ridgeline.critical_batch(**machine(inputs) | dense, **elements(inputs)).rule_size
    for key in wanted:
        for base, suffix in parted(key):
            if base in CRITICAL and f"C_{suffix}" in inputs:
                answers[key] = criticals(inputs, "hbm", suffix)[base]
    return answers


@adapter("roofline.vmem", "roofline.pcie")
def other_memory(inputs: Inputs, wanted: Collection[str]) -> Answers:
    memory = "host" if "W_pcie" in inputs else "vmem"
    answers = criticals(inputs, memory, "")
    activations = {"vmem": "vmem", "host": "hbm"}[memory]
    names = ("ridge", "ridge_vmem", "ridge_pcie", "intensity")
    answers.update(dict.fromkeys(names, ridge_of(inputs, memory)))
    if "B" in inputs:
        placed = {"weights_from": memory, "activations_from": activations}
        stored = named_dtype(inputs) | elements(inputs)
        answer = ridgeline.roofline("matmul", **sizes(inputs, "BDF"), **machine(inputs, memory), **stored, **placed)
        answers.update(picked(answer, wanted))
    return answers


@adapter("roofline.network")
def network(inputs: Inputs, wanted: Collection[str]) -> Answers:
    split = chosen(inputs, chips=("n_chips", "chips", "N", "X"), link_bandwidth=LINK)
    shapes = {letter: inputs.get(letter, split["chips"]) for letter in "BDF"}
    answer = ridgeline.roofline("matmul", **shapes, **split, **machine(inputs), **elements(inputs))
    crossover = answer.link.crossovers[0]
    return {
        **picked(answer, wanted),
        "net_intensity": answer.link.ridge_flops_per_byte,
        "t_net": answer.link.transfer_s,
        "D_crit": crossover.rule.value,
        "D_crit_exact": crossover.exact.value,
        "depends_on": crossover.letter,
    }


@adapter("hardware.mxu")
def mxu(inputs: Inputs, _: Collection[str]) -> Answers:
    given = chosen(
        inputs,
        array=("array", "n", "mxu", "mxu_shape", "dim", "tile", "k", "edge", "mxu_edge", "mxu_dim"),
        versus=("n6", "n_v6", "other"),
        clock=("clock", "freq", "f", "hz", "clock_hz"),
        count=("n_mxu", "mxus", "num_mxu", "units"),
        core_units=("n_mxu", "mxu_per_core"),
        per_unit=("per_mxu", "C_mxu"),
        peak=("C", "C_chip", "C_bf16"),
        block_rows=("rows", "m", "block_rows"),
        block_cycles=("cycles", "block_cycles"),
    )
    known = ridgeline.mxu(**given)
    names = {
        "num_alus": ("alus", "macs_per_cycle"),
        "cycle_flops": ("flops_per_cycle",),
        "unit_flops_per_s": ("per_mxu", "flops", "flops_per_mxu", "rate", "C_mxu", "per_unit"),
        "chip_flops_per_s": ("total", "chip", "C", "total_flops", "flops_chip"),
        "multiply_adds_count_per_s": ("macs", "macs_per_s"),
        "gain_ratio": ("gain", "ratio"),
        "filling_width": ("min_tile", "min_dim", "tile"),
    }
    return told(known, names)


@adapter("hardware.vpu")
def vpu(inputs: Inputs, _: Collection[str]) -> Answers:
    sides = [
        dict(zip(("sublanes", "lanes"), shape, strict=True))
        for shape in among(inputs, ("shape", "vpu_shape", "vreg_shape", "reg_shape"))
    ]
    given = dict(*sides[:1]) | chosen(
        inputs,
        sublanes=("sublanes", "n_sublanes"),
        lanes=("lanes", "n_lanes"),
        alus=("alus_per_position", "alus", "alus_per_lane", "alus_per_pos", "per_position", "n_alu", "adds_per_cycle"),
        clock=("clock", "freq", "f", "hz", "clock_hz"),
        cores=("cores", "n_cores", "cores_per_chip"),
        registers=("vregs", "registers", "n_vregs", "n_regs", "num_vregs"),
        dtype=(*ELEMENT, "bytes"),
    )
    known = ridgeline.vpu(**given)
    names = {
        "num_adders": ("total", "alus", "adders", "alus_total", "total_alus", "per_cycle", "adds_per_cycle"),
        "vector_flops_per_s": ("flops", "flops_per_s", "rate", "C_vpu", "vpu_flops", "throughput"),
        "register_elements": ("elements", "vreg_elements", "positions"),
        "register_bytes": ("vreg_bytes", "register_bytes", "bytes_per_vreg", "per_vreg", "reg_bytes"),
        "registers_bytes": (
            "vregs_bytes",
            "registers_bytes",
            "capacity",
            "capacity_bytes",
            "total_bytes",
            "bytes_total",
            "bytes",
        ),
    }
    return told(known, names)


@adapter("hardware.padding")
def padding(inputs: Inputs, wanted: Collection[str]) -> Answers:
    answers = dict(mxu(inputs, wanted))
    if "shape" not in inputs:
        return answers
    tiles = {"v5": "tile_default", "v5e": "tile_default", "v6e": "tile_v6", "padded": "tile", "shape": "tile"}
    for key in wanted:
        for tile in (tiles.get(key, key), f"tile_{key}"):
            if tile in inputs:
                tiling = ridgeline.padding(inputs["shape"], array=inputs[tile]).of("matrix unit")
                answers[key] = list(tiling.shape)
    if "tile" in inputs:
        tiling = ridgeline.padding(inputs["shape"], array=inputs["tile"], **elements(inputs)).of("matrix unit")
        answers.update(dict.fromkeys(("waste", "wasted", "waste_fraction", "wasted_fraction"), tiling.wasted_fraction))
        answers.update(dict.fromkeys(("expansion", "ratio", "overhead_ratio"), tiling.expansion_ratio))
        answers.update(dict.fromkeys(("padded_elements", "elements"), tiling.num_elements))
        answers.update(dict.fromkeys(("padded_bytes", "bytes"), tiling.padded_bytes))
    return answers


def work(inputs: Inputs, suffix: str) -> Any:  # noqa: ANN401 - a record of the API
    """So many FLOPs and bytes; without bytes, only the FLOPs."""
    given = {"flops": 0, "bytes": 0} | chosen(inputs, flops=FLOPS, bytes=BYTES)
    return ridgeline.roofline("work", **machine(inputs, suffix=suffix), **given)


def criticals(inputs: Inputs, memory: str, suffix: str) -> dict[str, Any]:
    """The critical batch by every key it goes by: exact where the widths are given."""
    stored = named_dtype(inputs, suffix) | elements(inputs)
    widths = sizes(inputs, "DF") if "D" in inputs and "F" in inputs else {}
    placed = {"weights_from": memory, "activations_from": "vmem" if memory == "vmem" else "hbm"}
    found = ridgeline.critical_batch(**machine(inputs, memory, suffix=suffix), **stored, **widths, **placed)
    best = found.exact_size if widths else found.rule_size
    return {
        **dict.fromkeys(CRITICAL, best),
        **dict.fromkeys(RULE, found.rule_size),
        **dict.fromkeys(EXACT, found.exact_size),
        "ridge": found.ridge.ridge_flops_per_byte,
    }


def ridge_of(inputs: Inputs, memory: str, suffix: str = "") -> float:
    return ridgeline.ridge(**machine(inputs, memory, suffix=suffix), weights_from=memory).ridge_flops_per_byte


def critical(answer: Any, letter: str) -> Any:  # noqa: ANN401 - a record of the API
    """The critical size of that letter."""
    return {size.letter: size for size in answer.critical}[letter]


def machine(inputs: Inputs, memory: str = "hbm", *, suffix: str = "") -> dict[str, Any]:
    """The rates of a question, or the chip it names; what it leaves open is the book's chip."""
    rates = {"hbm": HBM, "vmem": VMEM, "host": PCIE}[memory]
    own = (f"C_{suffix}",) if suffix else ()
    given = chosen(inputs, on=("chip", "hw", "tpu"), peak=(*own, *PEAKS), sparsity=("sparsity",))
    ratio = chosen(inputs, vmem_over_hbm=("vmem_ratio", "ratio_vmem", "vmem_over_hbm"))
    if memory == "vmem" and ratio:
        given.update(ratio | chosen(inputs, hbm_bandwidth=HBM))
    else:
        given.update(chosen(inputs, **{f"{memory}_bandwidth": rates}))
    if memory == "host":
        given.update(chosen(inputs, hbm_bandwidth=("W_hbm", "hbm_bw")))
    if "on" in given:
        given.update(figures="scaling-book")
    elif memory == "host" or "peak" not in given or not among(inputs, rates):
        given.update(on=CHIP)
    return given


def elements(inputs: Inputs) -> dict[str, Any]:
    """Bytes of an element of each array, as far as they are given."""
    return chosen(inputs, dtype=ELEMENT, weights_dtype=WEIGHT, activations_dtype=ACTIVATION, outputs_dtype=OUTPUT)


def named_dtype(inputs: Inputs, suffix: str = "") -> dict[str, Any]:
    """The dtype that a rate is named for."""
    named = [suffix] if suffix in DTYPES else [dtype for dtype in DTYPES if f"C_{dtype}" in inputs]
    return {"dtype": named[0]} if named else {}


def sizes(inputs: Inputs, letters: str) -> dict[str, Any]:
    return {letter: inputs[letter] for letter in letters if letter in inputs}


def mapped(inputs: Inputs) -> list[str]:
    """The chips of a question that gives a rate of each."""
    for value in inputs.values():
        if isinstance(value, dict):
            return list(value)
    return []


def one_of(inputs: Inputs, chip: str) -> Inputs:
    return {key: value[chip] if isinstance(value, dict) else value for key, value in inputs.items()}


def several(value: Any) -> list[Any]:  # noqa: ANN401 - a JSON value
    return value if isinstance(value, list) else [value]


def parted(key: str) -> list[tuple[str, str]]:
    """A key before and after its last underscore, where it has one."""
    base, mark, suffix = key.rpartition("_")
    return [(base, suffix)] if mark else []


def among(inputs: Inputs, names: Collection[str]) -> list[Any]:
    """The inputs that have one of these names, in the order of the names."""
    return [inputs[name] for name in names if name in inputs]


def chosen(inputs: Inputs, **names: Collection[str]) -> dict[str, Any]:
    """Arguments, each from the first input that has one of its names."""
    return {argument: value for argument, known in names.items() for value in among(inputs, known)[:1]}


def picked(answer: Any, wanted: Collection[str]) -> dict[str, Any]:  # noqa: ANN401 - a record of the API
    return {key: OPERATION[key](answer) for key in wanted if key in OPERATION}


def told(known: Any, names: Mapping[str, Collection[str]]) -> dict[str, Any]:  # noqa: ANN401 - a record of the API
    """Every quantity that is known, under each of its keys."""
    return {key: known[quantity] for quantity, keys in names.items() if quantity in known for key in keys}
