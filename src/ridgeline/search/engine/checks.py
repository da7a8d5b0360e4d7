"""What no engine can do: refused before anything is simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.errors import InputError

if TYPE_CHECKING:
    from ridgeline.job.traffic import Requests
    from ridgeline.search.engine.setting import Engine


def check_engine(requests: Requests, engine: Engine) -> None:
    """Refuses limits that contradict each other, and a request that no server ever has room for.

    Raises:
        InputError: It names the limit.
    """
    limits, speculation = engine.limits, engine.speculation
    if limits.max_sequences < 1:
        raise _refused("no sequence may run", "max_sequences", limits.max_sequences, "1 or more")
    rows = limits.max_sequences * (speculation.draft_tokens + 1)
    if limits.max_pass_tokens < rows:
        raise _refused("a pass has no rows for all sequences", "max_pass_tokens", limits.max_pass_tokens, f"{rows:,}")
    for name, part in (
        ("acceptance_fraction", speculation.acceptance_fraction),
        ("prefix_hit_fraction", engine.scheduling.prefix_hit_fraction),
    ):
        if not 0 <= part <= 1:
            raise _refused(f"{name} is a part of a whole", name, part, "0 to 1; 0.8 for 80 percent")
    if limits.kv_pages is not None and requests.count:
        longest = int((requests.prompt_tokens + requests.output_tokens).max())
        pages = -(-longest // limits.page_tokens)
        if pages > limits.kv_pages:
            what = f"no room for the longest request: {longest:,} tokens of prompt and reply"
            raise _refused(what, "kv_pages", limits.kv_pages, f"{pages:,} pages or more")


def _refused(what: str, where: str, value: float, expected: str) -> InputError:
    return InputError(what, where=where, value=value, expected=expected, fix=f"give {where} = {expected}")
