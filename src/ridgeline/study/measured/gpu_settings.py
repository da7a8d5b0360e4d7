"""What published GPU runs call things, and what a framework does where a row says nothing.

Source of the defaults: Megatron-LM and Megatron-Bridge (`--use-distributed-optimizer`, sequence parallelism beside
tensor parallelism, ring attention under context parallelism), llm-foundry (`FULL_SHARD`), torchtitan.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from ridgeline.hardware.catalog import find_chip
from ridgeline.job.remat import CUSTOM_NAMES
from ridgeline.study.measured.records import number, text, unusable, whole
from ridgeline.units import parse_bytes, parse_bytes_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ridgeline.hardware.chip import Chip
    from ridgeline.job.job import Dtype, TokenExchange
    from ridgeline.study.measured.records import Record

Recipe: TypeAlias = "Mapping[str, str] | None"

_WORDS = re.compile(r"[a-z0-9.]+")
_NODE_NETWORK = re.compile(r"(\d+) ?Gbps node")
_HBM_RATE = re.compile(r"(\d+(?:\.\d+)?) ?TB/s")
_HBM_SIZE = re.compile(r"(\d+) ?GB HBM")
_POWER = re.compile(r"(\d+) ?W limit")
_RATED_W: Final[Mapping[str, float]] = {"h100": 700.0}
"""Of the modules whose limits rows state. Source: NVIDIA, H100 data sheet, SXM5."""

_RELEASE = re.compile(r"\b(2\d)\.(\d\d)\b")
_GRAPHS_SINCE = (26, 6)
"""Megatron-Bridge, scripts/performance: `cuda_graph_impl="full_iteration"` in recipes of that release for racks."""

_LIBRARY_SINCE = (26, 2)

_HYBRID = re.compile(r"nemotron[ _-]?(h|3[ _-](nano|super|ultra|5))")
_WAITING = re.compile(rf"{_HYBRID.pattern}|deepseek[ _-]?v?4")
_DEPTH_OF_HYBRIDS: Final = 2

_GPT_OSS = re.compile(r"gpt[ _-]?oss")

_BEFORE_FUSED_ATTENTION: Final = ("2104.04473", "2205.05198")
_GPUS_PER_NODE = 8
_USUAL_TURNS = 4
_BITS_PER_BYTE = 8

_OTHER_NAMES: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    "h800": ("h100", {"link_bytes_per_s": 200e9}),
    "a800": ("a100-80gb", {"link_bytes_per_s": 200e9}),
    "ampere": ("a100-80gb", {}),
}
"""GPUs that are another with figures of their own: H800 and A800 have 400 GB/s of NVLink, both ways together.
Source: NVIDIA's data sheets; arXiv:2412.19437, section 3.1, for the H800."""

_NO_FIGURES: Final[Mapping[str, float]] = MappingProxyType({})

_BLOCKS = {"granularity": "sub_channel", "gradients": "e4m3"}
_CURRENT, _DELAYED = {"kind": "fp8"}, {"kind": "fp8", "scaling": "static"}
_BLOCKWISE, _MX = {"kind": "fp8", **_BLOCKS}, {"kind": "mxfp8"}

_PRECISIONS: Final[tuple[tuple[re.Pattern[str], Recipe], ...]] = (
    (re.compile(r"nvfp4|fp4"), {"kind": "fp4"}),
    (re.compile(r"mxfp8|fp8[ _-]?mx"), _MX),
    (re.compile(r"fp8[ _-]?(ds|delayed)"), _DELAYED),
    (re.compile(r"fp8[ _-]?(sc|subchannel|block)|blockwise"), _BLOCKWISE),
    (re.compile(r"(fp8|float8)[ _-]?row"), {"kind": "fp8", "granularity": "per_axis"}),
    (re.compile(r"fp8|float8|e4m3"), _CURRENT),
    (re.compile(r"bf16|bfloat16|fp16|float16|half"), None),
)
"""The first pattern that is found in what a row calls its precision."""

_MODULE = re.compile(r"core_attn|mla_up_proj|layernorm|moe_act|moe|mlp")
_MODULES: Final = ("core", "attn", "op", "mlp", "moe", "mla", "layernorm")
"""First words of what is recomputed alone (`core_attn`, `moe_act`, `mla_up_proj`), as Megatron names it."""

_NEXT_TO_NOTHING: Final = frozenset({"layernorm", "moe_act", "mla_up_proj", "mlp"})
_NAMES_OF_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "core_attn": ("context",),
    "mla_up_proj": ("mla_q", "mla_kv"),
    "moe": ("moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo", "mlpwi_0", "mlpwo"),
}
"""Names of a custom policy that a module of Megatron's makes."""

_REMATS: Final[Mapping[str, str]] = {
    "true": "full",
    "full": "full",
    "false": "none",
    "none": "none",
    "off": "none",
    "no": "none",
    "seq": "none",
    "yes": "full",
    "uniform": "full",
    "block": "full",
    "selective": "minimal_with_context",
    "sel": "minimal_with_context",
    "seqsel": "minimal_with_context",
    **dict.fromkeys(_MODULES, "minimal_with_context"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The GPUs of a row.

    Attributes:
        table: `hardware` of a job file.
        chip: Its name in the catalogue.
        domain: GPUs that NVLink joins.
        assumed: What was taken for granted.
    """

    table: str | Mapping[str, object]
    chip: str
    domain: int
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A setting as read, or as assumed where the row leaves it open.

    Attributes:
        value: What the job takes.
        assumed: What was taken for granted; "" where the row states it.
        others: The other readings.
    """

    value: object
    assumed: str = ""
    others: tuple[object, ...] = field(default_factory=tuple)


def ways_of(record: Record, key: str) -> int | None:
    """The degree of an axis: 1 where it is off (0), None where it is not stated."""
    return 1 if record.get(key) == 0 else whole(record, key)


def machine_of(record: Record, *, gpus: int) -> Machine:
    """The GPUs of a row, with what it says of their links and memory.

    Raises:
        InputError: The name is of no chip of the catalogue.
    """
    said = text(record, "gpu") or text(record, "system")
    chip, figures = _named_chip(said)
    details = f"{said} {text(record, 'section')}"
    own: dict[str, object] = {**figures, **_figures(details, chip, gpus)}
    assumed = [f"'{said}' is {chip.name}"] if not figures and _has_doubt(said) else []
    if is_zero_3_of_2021(record):
        own["network_bytes_per_s"] = chip.network_bytes_per_s / _GPUS_PER_NODE
        assumed.append("weights reach every GPU of a node over the network, not one of them and the others by NVLink")
    if (power := _POWER.search(details)) and chip.name in _RATED_W:
        own["peak_flops_per_s"] = _peaks_under_power(chip, power_w=float(power[1]))
        assumed.append(f"at {power[1]} W its clock is the cube root of that share of {_RATED_W[chip.name]:.0f} W")
    return Machine(
        chip=chip.name,
        domain=1 if chip.switch is None else chip.switch.domain_size,
        table=f"{chip.name}:{gpus}" if not own else {"name": f"{chip.name}:{gpus}", **own},
        assumed=tuple(assumed),
    )


def _peaks_under_power(chip: Chip, *, power_w: float) -> dict[str, float]:
    """Peaks at the clock that a power limit leaves: power goes as V²·f, and the voltage V as the clock f."""
    clock_ratio = (power_w / _RATED_W[chip.name]) ** (1 / 3)
    return {dtype: peak * clock_ratio for dtype, peak in chip.peak_flops_per_s.items()}


def _named_chip(said: str) -> tuple[Chip, Mapping[str, float]]:
    """The chip that a name begins with, or has in it: the longest run of words that is one."""
    words = _WORDS.findall(said.lower().replace("_", " "))
    for start in range(len(words)):
        for end in range(len(words), start, -1):
            name = "-".join(words[start:end])
            common, figures = _OTHER_NAMES.get(name, (name, _NO_FIGURES))
            chip = find_chip(common)
            if chip is not None and chip.vendor != "google":
                return chip, figures
    raise unusable("not a GPU of the catalogue", said or None, key="gpu")


def _has_doubt(said: str) -> bool:
    return any(word in said.lower() for word in ("believed", "unverified", "ampere", "?"))


def _figures(details: str, chip: Chip, gpus: int) -> dict[str, float]:
    """Figures that stand in the text beside a GPU's name: a network that is used, memory beyond the catalogue's."""
    found: dict[str, float] = {}
    if (rate := _NODE_NETWORK.search(details)) and gpus > _GPUS_PER_NODE:
        node_bytes_per_s = parse_bytes(f"{rate[1]}GB", where="section") / _BITS_PER_BYTE
        found["network_bytes_per_s"] = node_bytes_per_s / _GPUS_PER_NODE
    if rate := _HBM_RATE.search(details):
        found["hbm_bytes_per_s"] = parse_bytes_per_s(f"{rate[1]}TB/s", where="gpu")
    if (size := _HBM_SIZE.search(details)) and (more := parse_bytes(f"{size[1]}GB", where="gpu") - chip.hbm_bytes) > 0:
        found |= {"hbm_bytes": chip.hbm_bytes + more, "usable_hbm_bytes": chip.usable_hbm_bytes + more}
    return found


def recipe_of(record: Record) -> Choice:
    """The low-precision recipe of a row: the `quantization` table of a job, or None.

    Raises:
        InputError: The precision has a name that is not known.
    """
    said = text(record, "precision") or text(record, "dtype")
    if not said:
        return Choice(value=None, assumed="precision not stated: bf16")
    found = next((recipe for pattern, recipe in _PRECISIONS if pattern.search(said.lower())), said)
    if isinstance(found, str):
        raise unusable("unknown precision", said, key="precision")
    if "finer quantization" in text(record, "note"):
        return Choice(value=_BLOCKWISE, assumed="finer quantization: scales of blocks")
    if "not named" in said:
        return Choice(value=found, assumed="fp8 recipe not named: current scaling", others=(_DELAYED, _BLOCKWISE))
    if found == _CURRENT and "24.07" in text(record, "framework"):
        return Choice(value=_DELAYED, assumed="fp8 of 2024: delayed scaling")
    if found == _CURRENT and "HAI-LLM" in text(record, "framework"):
        return Choice(value=_BLOCKWISE)
    return Choice(value=found)


def remat_of(record: Record) -> Choice:
    """The recomputation of a row: a preset's name."""
    value = record.get("activation_checkpointing", record.get("recompute"))
    if isinstance(value, bool):
        return Choice(value="full" if value else "none")
    said = str(value or "").lower()
    words = _WORDS.findall(said)
    if not words and (is_of_2021(record) or text(record, "source").startswith("arXiv 2104.04473")):
        return Choice(value="full", assumed="rates that count recomputation: all of a layer's")
    if not words:
        others = ("minimal_with_context", "full")
        return Choice(value="none", assumed="recomputation not stated: none", others=others)
    if modules := _MODULE.findall(said):
        return remat_of_modules(modules)
    policy = _REMATS.get(words[0])
    if policy is None:
        raise unusable("unknown recomputation", said, key="activation_checkpointing")
    if words[0].startswith("sel") or words[0] in _MODULES:
        return Choice(value=policy, assumed=f"'{said}': what is cheap is computed again", others=("none",))
    return Choice(value=policy)


def remat_of_modules(modules: Sequence[str]) -> Choice:
    """The recomputation of Megatron's modules: cheap steps, which are left out, or attention and whole branches.

    Norms, activations, compressed attention's up-projections, and the few dense layers in front of a mixture of experts
    take a hundredth or two of a step. A policy by name would add far more, for it computes again whatever has no name,
    and tokens would travel to their experts once more.

    Source: Megatron-LM, megatron/core/transformer/transformer_config.py (`recompute_modules`).

    >>> remat_of_modules(["mla_up_proj"]).value, remat_of_modules(["core_attn"]).value["context"]
    ('none', 'remat')
    """
    if set(modules) <= _NEXT_TO_NOTHING:
        said = f"{', '.join(modules)} computed again: next to nothing" if modules else "nothing computed again"
        return Choice(value="none", assumed=said, others=("minimal_with_context",))
    dropped = {name for module in modules for name in _NAMES_OF_MODULES.get(module, ())}
    placed = {name: "remat" if name in dropped else "device" for name in CUSTOM_NAMES}
    return Choice(
        value={"policy": "custom", **placed}, assumed=f"{', '.join(modules)} computed again", others=("none",)
    )


def is_zero_3_of_2021(record: Record) -> bool:
    """DeepSpeed's first ZeRO-3, which gathers each parameter over all GPUs alike (arXiv:2104.04473, table 2)."""
    return "DeepSpeed" in text(record, "framework") and "2104.04473" in text(record, "source")


def is_fully_sharded(record: Record) -> bool:
    """Whether weights are split over the data-parallel GPUs (FSDP, ZeRO-3)."""
    return (
        (whole(record, "fsdp") or 0) > 1
        if record.get("fsdp") not in (0, None, False)
        else text(record, "sharding") == "FULL_SHARD" or "ZeRO-3" in text(record, "scheme") + text(record, "framework")
    )


def has_distributed_optimizer(record: Record) -> bool:
    """Whether replicas split the optimizer's state: Megatron's since 2022, or ZeRO-1 as stated."""
    zero = record.get("zero")
    if zero is not None:
        return zero != 0
    return not any(paper in text(record, "source") for paper in _BEFORE_FUSED_ATTENTION) and not is_of_2021(record)


def is_of_2021(record: Record) -> bool:
    """The table of Megatron-LM's paper of 2021, which counts recomputation in its rates."""
    return number(record, "achieved_tflops_per_s_per_gpu") is not None


def gradients_dtype(record: Record) -> Dtype:
    """In what gradients are kept and summed: Megatron-Bridge's tables were made with `grad_reduce_in_fp32` off.

    Source: Megatron-Bridge, scripts/performance/configs; PURE mixed precision of Composer reduces in bf16 as well.
    """
    return "bf16" if _is_of_bridge(record) or text(record, "fsdp_mixed_precision") == "PURE" else "f32"


def turns_of(record: Record, *, stages: int, num_layers: int) -> Choice:
    """Turns that each stage of a pipeline takes (virtual stages); a table with a column for them may leave it empty."""
    turns = ways_of(record, "vp")
    if "HAI-LLM" in text(record, "framework"):
        return Choice(value=2, assumed="DualPipe: both halves of the pipeline begin at once, as two turns of a stage")
    if turns is not None or stages == 1 or "ep" in record or "case" in record:
        return Choice(value=turns or 1)
    usual = max(min(_USUAL_TURNS, num_layers // stages), 1)
    return Choice(value=usual, assumed=f"interleaving not stated: turns of a stage {usual}", others=(1,))


def launch_of(record: Record, *, domain: int) -> Choice:
    """How kernels are launched: one by one from Python, unless a release's recipes replay graphs of a whole step.

    They do on racks, and for Qwen3-30B on B300.

    Args:
        record: The row.
        domain: GPUs of an NVLink domain.
    """
    is_small_on_b300 = "30b" in text(record, "model").lower() and "b300" in text(record, "gpu").lower()
    if (domain > _GPUS_PER_NODE or is_small_on_b300) and _release(record) >= _GRAPHS_SINCE:
        return Choice(value="graph", assumed="kernels replayed as a graph", others=("eager",))
    return Choice(value="eager", assumed="kernels launched one by one", others=("graph",))


def exchange_overlap_of(record: Record, *, launch: Choice, turns: Choice, domain: int) -> Choice:
    """Whether tokens travel to experts beside another microbatch: in DualPipe, and as Megatron-Bridge's recipes set it.

    These do (`moe_a2a_overlap`) where whole steps are replayed, and on nodes of 8 GPUs where stages are interleaved,
    but not for Nemotron's hybrids, nor for DeepSeek-V4.

    Source: arXiv:2412.19437, section 3.2.1; Megatron-Bridge, scripts/performance/configs, releases 25.11 to 26.06, and
    perf_recipes/nemotronh and perf_recipes/deepseek at 067f987df.

    Args:
        record: The row.
        launch: How its kernels are launched.
        turns: That each stage of its pipeline takes.
        domain: GPUs of an NVLink domain.
    """
    framework = text(record, "framework")
    if (ways_of(record, "ep") or 1) == 1:
        return Choice(value=False)
    if "HAI-LLM" in framework:
        return Choice(value=True)
    if not _is_of_bridge(record):
        return Choice(value=False)
    overlaps = launch.value == "graph" or (domain <= _GPUS_PER_NODE and turns.value != 1)
    overlaps = overlaps and _WAITING.search(text(record, "model").lower()) is None
    said = "beside another microbatch" if overlaps else "waited for"
    return Choice(value=overlaps, assumed=f"exchange of tokens {said}", others=(not overlaps,))


def mtp_depth_of(record: Record, published: int) -> int:
    """Further tokens that each position predicts: as many as the model was published with; in Nemotron's hybrids two.

    Source: Megatron-Bridge, perf_recipes/nemotronh at 067f987df (`mtp_num_layers`), whose rows count as many FLOPs.

    Args:
        record: The row.
        published: Prediction modules of the model.
    """
    is_hybrid = _HYBRID.search(text(record, "model").lower()) is not None
    return _DEPTH_OF_HYBRIDS if published and is_hybrid else published


def exchange_of(record: Record, *, domain: int) -> TokenExchange | None:
    """How tokens reach their experts: NCCL's all-to-all, or libraries that send a token once to each domain.

    Megatron-Bridge's recipes name a library (`moe_flex_dispatcher_backend`) for DeepSeek's models, on racks, and for
    Qwen3-30B from 26.02 on.

    Source: Megatron-Bridge, scripts/performance/configs, releases 25.11 to 26.06; arXiv:2412.19437, section 3.2.2.

    Args:
        record: The row.
        domain: GPUs of an NVLink domain.
    """
    if (ways_of(record, "ep") or 1) == 1:
        return None
    release, model = _release(record), text(record, "model").lower()
    has_library = "deepseek" in model or domain > _GPUS_PER_NODE or ("30b" in model and release >= _LIBRARY_SINCE)
    return "send_once" if has_library else "all_to_all"


def _release(record: Record) -> tuple[int, int]:
    """Year and month of a container; (0, 0) of none."""
    found = _RELEASE.search(text(record, "framework"))
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def expert_tensor_ways(record: Record, *, tp: int) -> int:
    """Ways in which tensor parallelism splits one expert: Megatron's `expert_tensor_parallel_size`.

    Megatron-Bridge's recipes set it to 1, so that ways of tensor parallelism are ways of expert parallelism.
    """
    stated = whole(record, "etp")
    return stated or (1 if _is_of_bridge(record) else tp)


def collective_matmul_of(record: Record) -> bool | None:
    """Whether products run beside the collectives of tensor parallelism; None where it is not known.

    torchtitan's rows say (`async TP`). Megatron-LM's flag (`--tp-comm-overlap`) is off unless given, and SimuMax's
    scripts turn each part of it off; what NVIDIA and MegaScale publish has it, but with NVFP4.

    Source: Megatron-LM, README, `--tp-comm-overlap`; SimuMax, simu_tools/megatron_scripts; Megatron-Bridge,
    scripts/performance/configs (`tp_comm_overlap = False if precision == "nvfp4"`); arXiv:2402.15627, section 3.2.
    """
    if "torchtitan" in text(record, "framework"):
        return "async" in text(record, "technique").lower()
    has_none = is_plain_megatron(record) or (_is_of_bridge(record) and "fp4" in text(record, "precision").lower())
    return False if has_none else None


def sync_overlap_of(record: Record) -> bool | None:
    """Whether replicas sum gradients and gather weights beside a microbatch's pass; None where it is not known.

    Megatron-LM's flags (`--overlap-grad-reduce`, `--overlap-param-gather`) are off unless given.

    Source: Megatron-LM, README; SimuMax, simu_tools/megatron_scripts, which gives neither.
    """
    return False if is_plain_megatron(record) else None


def is_plain_megatron(record: Record) -> bool:
    """Megatron-LM by its own defaults: of papers, their baselines, SimuMax; not Megatron-Core in NVIDIA's tables."""
    return text(record, "framework").startswith("Megatron-LM")


def _is_of_bridge(record: Record) -> bool:
    return "Megatron-Bridge" in text(record, "source") + text(record, "framework")


def attention_of(record: Record) -> Choice:
    """The attention kernel: llm-foundry's is Triton's of FlashAttention's first generation; before it none was fused.

    Source: llm-foundry, scripts/train/benchmarking (`attn_impl: triton`); arXiv:2104.04473 and arXiv:2205.05198, which
    count the scores among the activations.
    """
    if "llm-foundry" in text(record, "framework"):
        return Choice(value="flash", assumed="attention by FlashAttention's first kernels")
    if is_of_2021(record) or any(paper in text(record, "source") for paper in _BEFORE_FUSED_ATTENTION):
        return Choice(value="dot_product", assumed="attention not fused")
    return Choice(value=None)


def context_strategy_of(record: Record) -> str:
    """How attention of a split sequence is computed: a ring, Megatron's `p2p`, where nothing else is known.

    Source: arXiv:2407.21783, section 3.3.2 (all keys and values gathered); SimuMax, simu_tools/megatron_scripts
    (`--cp-comm-type a2a`).
    """
    source = text(record, "source")
    if "2407.21783" in source:
        return "all_gather"
    return "ulysses" if "SimuMax" in source else "ring"


def fused_rotary_of(record: Record) -> bool | None:
    """Whether one kernel rotates queries and keys; None where it is not known, and taken for granted.

    YaRN scales cosine and sine for GPT-OSS, which Transformer Engine's kernel does not; Megatron-LM does it apart then.

    Source: Megatron-LM, megatron/core/models/common/embeddings/rope_utils.py (`mscale != 1.0`).
    """
    is_scaled = _GPT_OSS.search(text(record, "model").lower()) is not None
    return False if is_scaled and _is_of_bridge(record) else None


def names_of_model(said: str, framework: str) -> Iterator[str]:
    """What to look a model up by, the most telling first: a framework's own variant before the common one."""
    size = said.rsplit("-", 1)[-1]
    if framework:
        yield f"{framework.split(maxsplit=1)[0]}-{size}"
    yield said
