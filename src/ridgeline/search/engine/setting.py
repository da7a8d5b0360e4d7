"""What an engine is: its limits, how it schedules passes, how it speculates, and how many servers there are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from ridgeline.search.engine.times import StepTimes

PrefillMode: TypeAlias = Literal["chunked", "separate"]
Admission: TypeAlias = Literal["prompt", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one server has room for.

    Attributes:
        max_sequences: Sequences that run at once (vLLM's `max_num_seqs`).
        max_pass_tokens: Tokens of one pass (vLLM's `max_num_batched_tokens`): a chunk of prefill has what running
            sequences leave; prompts of a separate pass are packed up to it, and a longer one runs alone.
        kv_pages: Pages of the KV cache; None for as many as are asked for.
        page_tokens: Tokens of a page (vLLM's `block_size`).
    """

    max_sequences: int
    max_pass_tokens: int = 8192
    kv_pages: int | None = None
    page_tokens: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How a server orders its work; requests are admitted first come, first served.

    Attributes:
        prefill: `chunked` adds a piece of a prompt to every decode pass; `separate` stops decode while prompts are
            read, as soon as one can be admitted.
        admission: `prompt` admits a request when its prompt has room, and when pages run out preempts the youngest,
            which is read anew later (vLLM); `whole` waits for room for its whole reply, and preempts nobody.
        prefix_hit_fraction: Part of a prompt whose keys and values are in the cache already; its last token is always
            computed. Pages are counted as if nothing were shared.
    """

    prefill: PrefillMode = "chunked"
    admission: Admission = "prompt"
    prefix_hit_fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Drafted tokens that a decode pass verifies: from a draft model, or from prediction heads (MTP).

    A pass reads `draft_tokens + 1` rows a sequence, and adds (1 - a^(draft_tokens + 1)) / (1 - a) tokens on average.

    Attributes:
        draft_tokens: Drafted a pass and sequence; 0 for no speculation.
        acceptance_fraction: Chance a that a draft is accepted where all before it were.
        seed: Of how many passes each reply takes.
    """

    draft_tokens: int = 0
    acceptance_fraction: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """Servers that each do prefill and decode; requests go round."""

    num_servers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregated:
    """Servers that only prefill, and servers that only decode; the KV cache of a prompt is sent from one to the other.

    The first token is out when its prefill ends; what sending takes comes before the second.

    Attributes:
        num_prefill_servers: They share one queue.
        num_decode_servers: Requests go round.
        transfer_s_per_token: Seconds to send what one token of a prompt has in the cache.
        transfer_s: Seconds before the first byte.
    """

    num_prefill_servers: int = 1
    num_decode_servers: int = 1
    transfer_s_per_token: float = 0.0
    transfer_s: float = 0.0


Fleet: TypeAlias = Interleaved | Disaggregated
"""How many servers there are, and what each does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine, whole.

    Attributes:
        times: Of passes.
        limits: Of a server; of a disaggregated fleet, of a decode server, but for `max_pass_tokens` of prefill.
        scheduling: Of passes.
        speculation: Of tokens.
        fleet: Servers.
    """

    times: StepTimes
    limits: Limits
    scheduling: Scheduling = field(default_factory=Scheduling)
    speculation: Speculation = field(default_factory=Speculation)
    fleet: Fleet = field(default_factory=Interleaved)
