"""Both plans of a recipe as XLA compiles a program of them, ours or MaxText's.

`compiled.json` holds what `ridgeline compile --json` printed of each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeline.job.reading import read_job
from ridgeline.search.train import cost_pinned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.search.answer import PlanEstimate

FOLDER = Path(__file__).parent
FILE = FOLDER / "compiled.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPlan:
    """One plan, compiled.

    Attributes:
        name: Of its file in `jobs/`.
        program: Whose: `ours`, or `maxtext`.
        versions: What compiled it.
        peak_bytes: Of one device.
        host_bytes: What one device places in host memory.
        executed_flops: Of one device and step.
        estimated_cycles: By the compiler, every loop multiplied out.
        exchanged: By kind of collective: how many, and bytes of their arrays.
    """

    name: str
    program: str
    versions: str
    peak_bytes: float
    host_bytes: float
    executed_flops: float
    estimated_cycles: float
    exchanged: Mapping[str, tuple[float, float]]

    @property
    def estimate(self) -> PlanEstimate:
        """What the equation says of it today."""
        return cost_pinned(read_job(str(FOLDER / "jobs" / f"{self.name}.toml")))


def compiled_plans() -> tuple[CompiledPlan, ...]:
    """Every plan that was compiled."""
    return tuple(
        CompiledPlan(
            name=name,
            program=row["program"],
            versions=row["versions"],
            peak_bytes=row["peak_bytes"],
            host_bytes=row["host_bytes"],
            executed_flops=row["executed_flops"],
            estimated_cycles=row["estimated_cycles"],
            exchanged={kind: (count, size_bytes) for kind, (count, size_bytes) in row["exchanged"].items()},
        )
        for name, row in sorted(_record().items())
    )


def record(name: str, answer: Mapping[str, Any]) -> None:
    """Keeps what the compiler said of a plan.

    Args:
        name: Of its file in `jobs/`.
        answer: What `ridgeline compile FILE --program ours --json` printed, or of `maxtext`.
    """
    exchanged: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in answer["collectives"]:
        if row["count"]:
            exchanged[row["kind"]][0] += row["count"]
            exchanged[row["kind"]][1] += row["bytes"]
    row = {
        "program": answer["program"],
        "versions": ", ".join(
            f"{library} {answer['versions'][library]}"
            for library in ("maxtext", "jax", "libtpu")
            if library in answer["versions"]
        ),
        "peak_bytes": answer["memory"]["peak_bytes"],
        "host_bytes": answer["memory"]["host_bytes"],
        "executed_flops": answer["flops"],
        "estimated_cycles": answer["estimated_cycles"],
        "exchanged": dict(sorted(exchanged.items())),
    }
    FILE.write_text(json.dumps({**_record(), name: row}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _record() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
