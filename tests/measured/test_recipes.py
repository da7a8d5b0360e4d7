"""Beside published recipes for Ironwood the planner's choice is as fast on paper, and fits."""

from __future__ import annotations

from functools import cache

import pytest

from tests.measured.compiled import compiled_plans
from tests.measured.recipes import Recipe, beside_the_planner, differences, published_recipes

RECIPES = {case.id: case for case in published_recipes()}
QUICK = [name for name in RECIPES if "llama3.1-405b" in name or "llama3.1-70b" in name]


@cache
def planned(name: str) -> Recipe:
    """Both tests ask for the same plans."""
    return beside_the_planner(RECIPES[name])


def test_every_ironwood_recipe_with_a_published_plan_has_a_row() -> None:
    assert len(RECIPES) >= 14
    assert all(case.job.plan.remat is not None and not case.assumed for case in RECIPES.values())


@pytest.mark.parametrize("name", QUICK)
def test_the_planner_chooses_a_plan_that_fits_and_is_no_slower_than_the_published_one(name: str) -> None:
    recipe = planned(name)

    assert recipe.planned.memory.verdict == "fits"
    assert recipe.saved > -0.005
    assert any(differences(recipe))


@pytest.mark.parametrize("name", QUICK)
def test_the_planner_finds_the_mesh_of_the_dense_recipes(name: str) -> None:
    published = {axis: degree for axis, degree in RECIPES[name].job.plan.mesh.items() if degree > 1}

    assert planned(name).planned.plan.mesh == published


def test_both_compiled_plans_need_the_memory_that_the_equation_says() -> None:
    plans = compiled_plans()

    assert len(plans) >= 2
    for plan in plans:
        assert plan.estimate.memory.total_bytes == pytest.approx(plan.peak_bytes, rel=0.1)
