"""What Megatron-Bridge's performance recipes set where its tables say nothing, by release, model, GPU and precision.

`bridge_recipes.csv` copies the settings of mixtures of experts out of the recipes' source:

    25.09   scripts/performance/run_script.py and configs/*.yaml of v0.1.0rc4
    25.11 to 26.06   scripts/performance/configs of v0.2.0, v0.3.0, v0.3.1, v0.4.0, v0.4.2, v0.5.0 and v0.5.1
    26.08   src/megatron/bridge/perf_recipes of v0.6.0

DeepEP and HybridEP send a token once, but the containers of 26.02 had no DeepEP (docs/releases/known-issues.md).
Full-iteration CUDA graphs are `graph`, and so are 25.09's (`cuda_graphs`); graphs of attention and router alone leave
the experts to the host. Rows of 25.09 drop tokens beyond an expert's capacity, others none. What the last release
leaves to a default is as in the one before.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from io import StringIO
from typing import TYPE_CHECKING, Final, cast

from ridgeline.study.measured.gpu_settings import Choice, remat_of_modules
from ridgeline.study.measured.records import text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ridgeline.job.job import KernelLaunch, TokenExchange
    from ridgeline.study.measured.records import Record

_FILE: Final = "bridge_recipes.csv"
_DEGREES: Final = ("tp", "pp", "vp", "ep", "mbs")
_RELEASE: Final = re.compile(r"\b2\d\.\d\d(?:\.\d\d)?\b")
_YES: Final = "yes"

_PRECISIONS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"nvfp4"), "nvfp4"),
    (re.compile(r"mxfp8|fp8[ _-]?mx"), "mxfp8"),
    (re.compile(r"fp8[ _-]?sc"), "fp8_blocks"),
    (re.compile(r"fp8"), "fp8"),
    (re.compile(r"bf16"), "bf16"),
)
"""The first pattern that is found in what a row calls its precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRecipe:
    """What a recipe sets.

    Attributes:
        is_of_run: It splits the run as the row does; else it is its release's for another split.
        exchange: How tokens reach their experts.
        exchange_overlap: They travel beside another microbatch (`moe_a2a_overlap`).
        kernel_launch: Whether a host issues the experts' kernels one by one.
        recomputed: Modules that are computed again in the backward pass (`recompute_modules`).
        fp8_attention: Scores and their gradients are products in fp8 (`fp8_dot_product_attention`).
        fused_experts: One kernel makes the experts' gated unit and narrows it (`cutedsl_fused_grouped_mlp`).
    """

    is_of_run: bool
    exchange: TokenExchange
    exchange_overlap: bool
    kernel_launch: KernelLaunch
    recomputed: tuple[str, ...]
    fp8_attention: bool
    fused_experts: bool


def bridge_recipe(record: Record, *, model: str, chip: str) -> BridgeRecipe | None:
    """The recipe of a row: of its own release, or of the nearest one that splits a run as the row does.

    Tables of one release carry rows on from earlier ones, and foretell later ones.

    Args:
        record: The row.
        model: Its zoo name.
        chip: Its chip's name.

    Returns:
        None where no recipe is known.
    """
    release = _RELEASE.search(text(record, "framework"))
    if release is None or "Megatron-Bridge" not in text(record, "source") + text(record, "framework"):
        return None
    precision, drops_tokens = _precision(record), "tokendrop" in text(record, "model").lower()
    degrees = tuple(str(whole(record, key) or 1) for key in _DEGREES)
    alike = [row for row in _rows() if row.is_for(model, chip, precision, drops_tokens=drops_tokens)]
    of_run = [row for row in alike if row.degrees == degrees]
    of_release = [row for row in alike if release[0] in row.releases]
    if of_run:
        return min(of_run, key=lambda row: row.distance(release[0])).recipe(is_of_run=True)
    return of_release[0].recipe(is_of_run=False) if of_release else None


def recipe_choices(recipe: BridgeRecipe) -> dict[str, Choice]:
    """What of a plan a recipe settles; where it is for another split, the other reading is laid beside it.

    >>> recipe = bridge_recipe(
    ...     {"framework": "Megatron-Bridge 26.06", "precision": "MXFP8", "pp": 4, "vp": 4, "ep": 64},
    ...     model="deepseek3-671b",
    ...     chip="gb200",
    ... )
    >>> {name: choice.value for name, choice in recipe_choices(recipe).items()}
    {'remat': 'none', 'launch': 'graph', 'exchange': 'send_once', 'overlap': True, 'stash': True, 'fused': True}
    """
    other_launch = "eager" if recipe.kernel_launch == "graph" else "graph"
    travel = "beside another microbatch" if recipe.exchange_overlap else "waited for"
    choices = {
        "remat": remat_of_modules(recipe.recomputed),
        "launch": Choice(
            value=recipe.kernel_launch,
            assumed="its recipe replays kernels as a graph"
            if recipe.kernel_launch == "graph"
            else "its recipe leaves experts' kernels to the host",
            others=(other_launch,),
        ),
        "exchange": Choice(value=recipe.exchange, assumed=f"its recipe exchanges tokens by {recipe.exchange}"),
        "overlap": Choice(
            value=recipe.exchange_overlap,
            assumed=f"its recipe's exchange of tokens {travel}",
            others=(not recipe.exchange_overlap,),
        ),
    }
    if recipe.fp8_attention:
        choices["fp8"] = Choice(value=True, assumed="its recipe computes attention in fp8")
    if recipe.fused_experts:
        choices["stash"] = Choice(value=True, assumed="its recipe stashes what experts keep in pages")
        choices["fused"] = Choice(value=True, assumed="its recipe fuses the experts' gated unit into their products")
    return {name: replace(choice, others=()) if recipe.is_of_run else choice for name, choice in choices.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of the file.

    Attributes:
        releases: In which the recipe stands so.
        degrees: Of `_DEGREES`.
        values: By column.
    """

    releases: tuple[str, ...]
    degrees: tuple[str, ...]
    values: Mapping[str, str]

    def is_for(self, model: str, chip: str, precision: str, *, drops_tokens: bool) -> bool:
        return (
            model == self.values["model"]
            and chip in self.values["gpus"].split()
            and precision in self.values["precisions"].split()
            and drops_tokens == (self.values["capacity"] == _YES)
        )

    def distance(self, release: str) -> tuple[bool, int]:
        """How far a release is: earlier recipes are nearer than later ones."""
        order = _order()
        asked = order.index(release) if release in order else len(order)
        steps = [asked - order.index(own) for own in self.releases]
        earlier = [step for step in steps if step >= 0]
        return (False, min(earlier)) if earlier else (True, -max(steps))

    def recipe(self, *, is_of_run: bool) -> BridgeRecipe:
        values = self.values
        return BridgeRecipe(
            is_of_run=is_of_run,
            exchange=cast("TokenExchange", values["exchange"]),
            exchange_overlap=values["exchange_overlap"] == _YES,
            kernel_launch=cast("KernelLaunch", values["kernel_launch"]),
            recomputed=tuple(values["recomputed"].split()),
            fp8_attention=values["fp8_attention"] == _YES,
            fused_experts=values["fused_experts"] == _YES,
        )


@cache
def _rows() -> tuple[_Row, ...]:
    lines = (resources.files("ridgeline.study.measured") / _FILE).read_text(encoding="utf-8")
    return tuple(
        _Row(
            releases=tuple(values["releases"].split()),
            degrees=tuple(values[key] for key in _DEGREES),
            values=values,
        )
        for values in csv.DictReader(StringIO(lines))
    )


@cache
def _order() -> tuple[str, ...]:
    """Every release, oldest first."""
    return tuple(sorted({release for row in _rows() for release in row.releases}))


def _precision(record: Record) -> str:
    said = text(record, "precision").lower()
    return next((name for pattern, name in _PRECISIONS if pattern.search(said)), said)
