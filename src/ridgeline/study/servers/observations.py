"""Measured servers made ready for many trials: passes are built once, each trial only composes them."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from ridgeline.cost.serving.calibration import prior_serving_calibration
from ridgeline.errors import RidgelineError
from ridgeline.search.serving.interval import serving_part_shares
from ridgeline.search.serving.pinned import pinned_server
from ridgeline.study.measured.case import Skipped
from ridgeline.study.servers.parameters import SERVING_PARAMETERS, with_serving_factors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ridgeline.cost.serving.calibration import ServingCalibration
    from ridgeline.cost.serving.efficiency import ServingEfficiency
    from ridgeline.hardware.chip import ChipKind
    from ridgeline.search.serving.pinned import PinnedServer
    from ridgeline.study.measured.serving_case import ServingCase

_DEVIATION: Final = 0.12
"""What versions, flags and clients that no record states make of a time per token: of records that differ in nothing
else, up to 1.3 times is published."""

_FIRST: Final = 0.6
"""The same of the time to the first token, which hangs on how requests come."""

_NOT_STATED: Final = 0.25
_DERIVED: Final = 0.1
_FIRST_CLUSTER: Final = " to the first token"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingObservation:
    """A measurement of a server, as a time.

    Attributes:
        case: The measurement.
        server: What was measured.
        prior: Efficiencies of its chip under its engine before these servers were looked at.
    """

    case: ServingCase
    server: PinnedServer
    prior: ServingEfficiency

    @property
    def kind(self) -> ChipKind:
        """Of its chip."""
        return self.case.kind

    @property
    def parts(self) -> tuple[str, ...]:
        """What its parameters are parts of: its kind, its chip, the engine on chips of the kind."""
        return self.kind, f"chip.{self.case.chip}", f"engine.{self.case.engine.name}.{self.kind}"

    @property
    def cell(self) -> str:
        """Chip and engine."""
        return f"{self.case.chip} {self.case.engine.name}"

    @property
    def is_first(self) -> bool:
        """Whether the time to the first token was measured."""
        return self.case.metric == "ttft_s"

    @property
    def cluster(self) -> str:
        """That of its case; times to the first token are clusters of their own."""
        return self.case.cluster + (_FIRST_CLUSTER if self.is_first else "")

    @property
    def deviation(self) -> float:
        """Of the logarithm of the measured time, beyond any model's reach."""
        return hypot(
            _FIRST if self.is_first else _DEVIATION,
            _NOT_STATED if self.case.not_stated else 0.0,
            _DERIVED if self.case.source_of_measured == "derived" else 0.0,
        )

    def time_s(self, serving: ServingEfficiency) -> object:
        """What is estimated of what was measured, as a time."""
        times = self.server.with_efficiency(serving).times()
        match self.case.metric:
            case "ttft_s":
                return times.ttft_s
            case "tpot_s":
                return times.tpot_s
            case "output_tokens_per_s_per_chip":
                return 1.0 / times.output_tokens_per_s_per_chip

    def shares(self, factors: Mapping[str, NDArray[np.float64]]) -> Mapping[str, float]:  # noqa: ARG002 - as of steps
        """What uncertainties are multiplied by: the whole, whatever the factors."""
        return serving_part_shares(self.case.job.model)

    def expected_s(self, factors: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The time under trial factors on the prior, a column of them each."""
        count = len(next(iter(factors.values())))
        found = self.time_s(with_serving_factors(self.prior, factors))
        return np.broadcast_to(np.asarray(found, dtype=np.float64), (count,))


def serving_observations(
    cases: Sequence[ServingCase],
    *,
    prior_of: Callable[[ChipKind], ServingCalibration] = prior_serving_calibration,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[list[ServingObservation], list[Skipped]]:
    """Cases made ready, and those that cannot be estimated, with the reason.

    Args:
        cases: Measurements.
        prior_of: Efficiencies of a kind of chip before these servers were looked at.
        progress: Told how far it is.
    """
    none = {parameter.key: np.ones(1) for parameter in SERVING_PARAMETERS}
    ready: list[ServingObservation] = []
    left_out: list[Skipped] = []
    for index, case in enumerate(cases):
        if progress is not None:
            progress("reading measured servers", index / len(cases))
        try:
            found = ServingObservation(
                case=case,
                server=pinned_server(case.job, case.engine),
                prior=prior_of(case.kind).efficiency(case.chip, case.engine.name),
            )
        except RidgelineError as error:
            left_out.append(Skipped(id=case.id, reason=f"cannot be estimated: {str(error).splitlines()[0]}"))
            continue
        expected_s = float(found.expected_s(none)[0])
        if isfinite(expected_s) and expected_s > 0:
            ready.append(found)
        else:
            left_out.append(Skipped(id=case.id, reason="cannot be estimated: the estimate is not a number"))
    return ready, left_out
