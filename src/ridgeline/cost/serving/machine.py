"""What every pass of a server shares: the model, the precisions, the slice and what programs reach of its peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ridgeline.cost.placement import link_rate_bytes_per_s
from ridgeline.cost.serving.device import SCALE_BYTES, PhaseColumns, split_shards, stored_dtype, stored_element_bytes
from ridgeline.job.job import BYTES_OF

if TYPE_CHECKING:
    from ridgeline.cost.efficiency import Efficiency
    from ridgeline.cost.serving.device import ServingSetting
    from ridgeline.cost.serving.drafting import Drafting
    from ridgeline.cost.serving.efficiency import ServingEfficiency
    from ridgeline.cost.work import Number
    from ridgeline.hardware.slice import Slice
    from ridgeline.job.serving import ExpertSplit

DISPATCH_BLOCK = 128
"""Elements of a token that share a scale in f32. Source: DeepSeek-V3, section 3.3.2: tiles of 1 x 128."""

LEAST_ACTIVATION_BYTES = BYTES_OF["bf16"]
"""Bytes of an element of the residual stream, whatever the matmuls compute in: engines narrow a matmul's operand only.
Source: vLLM, `fp8` linear layers; their num_outputs, and what they all-reduce, are bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMachine:
    """A slice that serves a model.

    Attributes:
        setting: The model, the precisions, the lengths.
        hardware: The slice of one server.
        efficiency: Fractions of its peaks that kernels reach.
        serving: What passes of a server reach, beside.
        memory_utilization: Part of a device's memory that the engine takes; None for its default.
        tokens_of_page: Tokens of a page of the KV cache; None for the engine's default.
        drafting: Tokens that are drafted ahead; None for none.
        expert_split: How experts lie on tensor-parallel devices: each over all, or whole on one.
        takes_likeliest: Whether the likeliest token is taken, for which no device needs another's logits; else tokens
            are drawn.
    """

    setting: ServingSetting
    hardware: Slice
    efficiency: Efficiency
    serving: ServingEfficiency
    memory_utilization: float | None = None
    tokens_of_page: int | None = None
    drafting: Drafting | None = None
    expert_split: ExpertSplit = "width"
    takes_likeliest: bool = False

    @property
    def each_tokens(self) -> float:
        """Tokens of each sequence that a pass of decoding computes: the next, and those that were drafted for it."""
        return 1.0 if self.drafting is None else 1.0 + self.drafting.num_draft_tokens

    @property
    def pass_tokens(self) -> float:
        """Tokens that a pass of decoding adds to a sequence, mean."""
        return 1.0 if self.drafting is None else self.drafting.pass_tokens

    @property
    def reply_pass_count(self) -> float:
        """Passes of decoding that a reply takes, mean: prefill gives its first token.

        A reply of one token is counted as if it took a pass; the answer says so.
        """
        return max(self.setting.lengths.reply_tokens - 1.0, 1.0) / self.pass_tokens

    @property
    def compute_dtype(self) -> str:
        """The dtype whose rate matmuls have: that asked for where the chip has it, else bf16: operands are upcast."""
        asked = self.setting.dtypes.compute
        return asked if asked in self.hardware.chip.peak_flops_per_s else "bf16"

    def product_dtype(self, axes: tuple[str, ...]) -> str:
        """What a matmul by a weight of these logical axes is computed in: no narrower than the weight is stored."""
        asked, stored = self.setting.dtypes.compute, stored_dtype(self.setting, axes)
        wider = stored if BYTES_OF[stored] > BYTES_OF[asked] else asked
        return wider if wider in self.hardware.chip.peak_flops_per_s else "bf16"

    def peak_flops_per_s(self, dtype: str) -> float:
        """Published peak of one device."""
        return self.hardware.chip.peak_flops_per_s[dtype] / self.hardware.chip.devices_per_chip

    def matmul_flops_per_s(self, axes: tuple[str, ...]) -> float:
        """What large matmuls by a weight of these logical axes reach on one device."""
        reached, dtype = self.efficiency.matmul, self.product_dtype(axes)
        stored = stored_dtype(self.setting, axes)
        kept = self.serving.arithmetic * (self.serving.widened if BYTES_OF[stored] < BYTES_OF[dtype] else 1.0)
        return self.peak_flops_per_s(dtype) * reached.get(dtype, reached["bf16"]) * kept

    @property
    def attention_flops_per_s(self) -> float:
        """What a fused attention reaches over the keys it visits, at heads of 128; scores are in bf16."""
        return self.peak_flops_per_s("bf16") * self.efficiency.attention_forward * self.serving.arithmetic

    @property
    def peak_hbm_bytes_per_s(self) -> float:
        """Published memory bandwidth of one device."""
        return self.hardware.chip.hbm_bytes_per_s / self.hardware.chip.devices_per_chip

    @property
    def weights_bytes_per_s(self) -> float:
        """What reading matrices reaches."""
        return self.peak_hbm_bytes_per_s * self.serving.weights

    @property
    def experts_bytes_per_s(self) -> float:
        """What reading experts reaches."""
        return self.peak_hbm_bytes_per_s * self.serving.experts

    @property
    def cache_bytes_per_s(self) -> float:
        """What reading the KV cache reaches."""
        return self.peak_hbm_bytes_per_s * self.serving.cache

    @property
    def vector_bytes_per_s(self) -> float:
        """What norms and passes that gather rows reach."""
        return self.peak_hbm_bytes_per_s * self.efficiency.vector

    @property
    def link_bytes_per_s(self) -> float:
        """The rate that loads of fast links refer to."""
        return link_rate_bytes_per_s(self.hardware)

    def weight_element_bytes(self, axes: tuple[str, ...]) -> float:
        """Of a stored weight of these logical axes."""
        return stored_element_bytes(self.setting, axes)

    @property
    def activation_element_bytes(self) -> float:
        """Of the residual stream, and of what collectives carry."""
        return max(BYTES_OF[self.setting.dtypes.compute], LEAST_ACTIVATION_BYTES)

    @property
    def dispatched_element_bytes(self) -> float:
        """Of tokens on their way to experts, with the scale of a block: narrowed before they travel.

        Source: DeepSeek-V3, section 3.2.2: dispatch in fp8, combine in bf16; TensorRT-LLM quantizes before it gathers.
        """
        asked = BYTES_OF[self.setting.dtypes.compute]
        return asked + SCALE_BYTES / DISPATCH_BLOCK if asked < LEAST_ACTIVATION_BYTES else LEAST_ACTIVATION_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of a server over all layers: sequences that each add a token, tokens of prompts, or both.

    Attributes:
        columns: Mesh, wiring, and how the cache is split.
        num_decoding: Sequences that add a token, on all devices.
        context_keys: Tokens that each of them has, mean.
        prompt_tokens: Tokens of prompts that are read, on all devices.
        each_tokens: Tokens of each sequence that are computed, those that may be added.
        idle_rows: Tokens of a device that a replayed program computes beside, for nobody: its batch is filled up.
    """

    columns: PhaseColumns
    num_decoding: Number
    context_keys: Number
    prompt_tokens: Number
    each_tokens: float = 1.0
    idle_rows: Number = 0.0

    @property
    def num_sequences(self) -> Number:
        """Sequences of a rank that add a token."""
        return self.num_decoding / self.columns.rank_degree

    @property
    def prompt_rows(self) -> Number:
        """Tokens of prompts on a device."""
        return self.prompt_tokens / (self.columns.rank_degree * self.columns.degree(("cp",)))

    @property
    def attended_sequences_size(self) -> Number:
        """Of the sequences that add a token, those whose attention a device computes."""
        return self.num_sequences / self.columns.transpose_degree

    @property
    def attended_prompt_rows(self) -> Number:
        """Tokens of prompts whose attention a device computes."""
        return self.prompt_rows / self.columns.transpose_degree

    @property
    def rows(self) -> Number:
        """Tokens on a device."""
        return self.num_sequences * self.each_tokens + self.prompt_rows + self.idle_rows

    def shards(self, axes: tuple[str, ...], shape: tuple[int, ...]) -> Number:
        """Ways in which an array of these logical axes is split."""
        return split_shards(axes, shape, self.columns)
