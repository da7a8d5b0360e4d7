"""What `ridgeline matmul` answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose, isnan, nan
from typing import TYPE_CHECKING

from ridgeline.cost.sharding.resharding import axes_of, kinds_of, told
from ridgeline.errors import InputError
from ridgeline.job.sharding import joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ridgeline.cost.explain import Derivation
    from ridgeline.cost.sharding.layout import ArrayLayout
    from ridgeline.cost.sharding.mesh_machine import MeshMachine
    from ridgeline.cost.sharding.resharding import Step
    from ridgeline.cost.sharding.sharded_matmul import Case
    from ridgeline.cost.sharding.strategy_cost import StepCost, StrategyCost
    from ridgeline.cost.sharding.strategy_explain import GatherRules
    from ridgeline.cost.sharding.strategy_thresholds import Threshold
    from ridgeline.job.matmul_question import MatmulQuestion
    from ridgeline.job.sharding import Axes, Product
    from ridgeline.search.layouts import LayoutSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductAnswer:
    """What a product of sharded arrays needs; what the question leaves open is NaN.

    Attributes:
        product: With every layout, those that were searched included.
        cases: By mesh axis that splits an operand.
        inherited_output: The output with every sharding of the operands, legal or not.
        conflicts: Mesh axes that would split two of its dimensions, so that one operand must be gathered.
        flops: Of the product, done once.
        strategies: By number: the textbook's first; last those that leave the output scattered, if it may be.
        approximate: The same, with collectives as the book has them: (N − 1)/N of a ring taken as 1.
        compute_bound_from: Of each strategy, by dimension: the size from which it waits for arithmetic.
        thresholds: Sizes at which another strategy becomes the fastest.
        rules: The book's, where they apply.
        search: The search of layouts; None where they were given.
    """

    product: Product
    cases: Mapping[str, Case]
    inherited_output: str
    conflicts: Axes
    flops: float
    strategies: tuple[StrategyCost, ...]
    approximate: tuple[StrategyCost, ...]
    compute_bound_from: tuple[Mapping[str, float], ...]
    thresholds: tuple[Threshold, ...]
    rules: tuple[GatherRules, ...]
    search: LayoutSearch | None

    @property
    def case(self) -> Case:
        """The highest case of any mesh axis."""
        found: list[Case] = [1, *self.cases.values()]
        return max(found)

    @property
    def textbook(self) -> StrategyCost:
        """What the case asks for."""
        return self.strategies[0]

    @property
    def best(self) -> StrategyCost:
        """The fastest strategy that leaves the output as asked; the textbook's where times are not known."""
        return _fastest(self.strategies)

    @property
    def approximate_best(self) -> StrategyCost:
        """The same by the book's times."""
        return _fastest(self.approximate)

    @property
    def scattered(self) -> StrategyCost | None:
        """The strategy that the case asks for if the output may stay scattered; None where nothing is summed."""
        return next((each for each in self.strategies if not each.strategy.is_as_asked), None)

    @property
    def inherited_output_is_legal(self) -> bool:
        """Whether the output could have every sharding of the operands."""
        return not self.conflicts

    @property
    def partial(self) -> str:
        """The axes along which devices hold partial sums before they are reduced: `U_X`; "" for none."""
        axes = self.textbook.strategy.result.partial
        return f"U_{joined(axes)}" if axes else ""

    @property
    def gathered(self) -> str:
        """The operand that the case gathers: its name, `A and B`, `either`, or `none`."""
        alone = [name for each in self.strategies if len(name := _gathered(each.strategy.before)) == 1]
        if self.conflicts and len({name for names in alone for name in names}) > 1:
            return "either"
        return " and ".join(_gathered(self.textbook.strategy.before)) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulAnswer:
    """How arrays lie on a mesh, and what is to be done with them.

    Attributes:
        question: As read.
        machine: The devices of the mesh.
        arrays: Every array, in the order they were named.
        steps: From one layout to the other, where that was asked.
        approximate_steps: The same, with collectives as the book has them.
        product: What the product needs; None where none was asked.
        notes: What was taken for granted.
        derivations: Where the numbers come from.
    """

    question: MatmulQuestion
    machine: MeshMachine
    arrays: tuple[ArrayLayout, ...]
    steps: tuple[StepCost, ...]
    approximate_steps: tuple[StepCost, ...]
    product: ProductAnswer | None
    notes: tuple[str, ...]
    derivations: tuple[Derivation, ...]

    @property
    def collective(self) -> str:
        """The kinds of the collectives between layouts: `all_gather`, `none`."""
        return kinds_of(cost.step for cost in self.steps)

    @property
    def collective_axes(self) -> str:
        """Their mesh axes, as a subscript."""
        return axes_of(cost.step for cost in self.steps)

    @property
    def communication(self) -> str:
        """Both, for every step: `all_gather X of A`, `none`."""
        return told(cost.step for cost in self.steps)

    def numbered(self, number: int | None, *, where: str) -> StrategyCost:
        """The strategy of a number; the fastest if none is said.

        Args:
            number: From 1.
            where: The argument, for error messages.

        Raises:
            InputError: No product was asked, or it has no such strategy.
        """
        if self.product is None:
            raise InputError(
                "only a product has strategies",
                where=where,
                value=str(self.question.arrays),
                expected="a product of two arrays",
                fix="write e.g. A[B,D] @ W[D_X,F_Y] -> C[B,F_Y]",
            )
        if number is None:
            return self.product.best
        for cost in self.product.strategies:
            if cost.number == number:
                return cost
        raise InputError(
            "no such strategy",
            where=where,
            value=number,
            expected=f"1 to {len(self.product.strategies)}",
            fix="; ".join(f"{cost.number}: {cost.strategy}" for cost in self.product.strategies),
        )


def _fastest(costs: Sequence[StrategyCost]) -> StrategyCost:
    """Of those that are as fast, the first."""
    asked = [cost for cost in costs if cost.strategy.is_as_asked and not isnan(cost.time_s)]
    least_s = min((cost.time_s for cost in asked), default=nan)
    return next((cost for cost in asked if isclose(cost.time_s, least_s)), costs[0])


def _gathered(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(step.before.name for step in steps if step.kind == "all_gather"))
