"""The other libraries of `lamarck bench ec`. Who is not installed is said, and its numbers are left out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from lamarckian_cli.errors import pip_install
from lamarckian_cli.problems.evaluator import Evaluator
from lamarckian_cli.problems.formula import PART


class Pymoo:
    """pymoo's NSGA-II with the same operators as ours, on the same evaluators, and its sorting."""

    name = "pymoo"

    def __init__(self) -> None:
        self.missing: str | None = None  # why it cannot be measured, and the remedy
        self.compiled = False
        try:
            functions = importlib.import_module("pymoo.functions")
            importlib.import_module("pymoo.optimize")
        except ImportError as error:
            self.missing = f"pymoo ({error}): {pip_install('pymoo')}"
            return
        self.compiled = bool(functions.is_compiled())

    @property
    def versions(self) -> dict[str, str]:
        """Of those whose numbers are there."""
        names = ["moocore"] if self.missing else ["moocore", "pymoo"]
        return {name: metadata.version(name) for name in names}

    def nsga2(self, evaluator: Evaluator, *, population: int, generations: int, seed: int) -> np.ndarray:
        """Objectives [N, M] of the last population. Deb's settings: SBX 0.9, 20; polynomial 1/n, 20."""
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.operators.crossover.sbx import SBX
        from pymoo.operators.mutation.pm import PM
        from pymoo.optimize import minimize

        real = evaluator.describe().coding.parts[PART]
        algorithm = NSGA2(
            pop_size=population,
            crossover=SBX(prob=0.9, eta=20),
            mutation=PM(prob=1.0, prob_var=1.0 / real.size, eta=20),
        )
        found = minimize(_as_pymoo(evaluator), algorithm, ("n_gen", generations), seed=seed)
        objectives: np.ndarray = found.pop.get("F")
        return objectives

    def sorting(self) -> dict[str, Callable[[np.ndarray], Any]]:
        """How it sorts: as its algorithms do it, and by its own compiled function where there is one."""
        from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

        ways = {self.name: NonDominatedSorting().do}
        if self.compiled:
            from pymoo.functions import load_function

            ways[f"{self.name} fast sort"] = load_function("fast_non_dominated_sort")
        return ways


def _as_pymoo(evaluator: Evaluator) -> Any:
    """The evaluator as a pymoo problem, so that both evaluate with the same code."""
    from pymoo.core.problem import Problem

    description = evaluator.describe()
    real: Any = description.coding.parts[PART]

    class Ours(Problem):  # type: ignore[misc]
        def _evaluate(self, x: np.ndarray, out: dict[str, Any], *_: Any, **__: Any) -> None:
            out["F"] = evaluator.evaluate({PART: x}, np.zeros(len(x), np.int64)).objectives

    return Ours(n_var=real.size, n_obj=len(description.objectives), xl=real.low, xu=real.high)
