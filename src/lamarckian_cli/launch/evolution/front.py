"""The front that an evolution has reached, read from its newest checkpoint; nothing is evaluated or made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.runfolder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Front:
    """K individuals that no other of the population dominates, ordered by their first objective.

    Of a single objective that is the best one ever seen. Where nobody was feasible, it is
    those who violate the constraints least.
    """

    objectives: np.ndarray  # [K, M] float64, each in its own sense
    violation: np.ndarray  # [K] float64; 0 is feasible
    genomes: Genomes  # of K
    ids: np.ndarray  # [K] int64
    sense: tuple[str, ...]  # min or max, one an objective
    names: tuple[str, ...]  # of the objectives

    def __len__(self) -> int:
        return len(self.ids)

    def genome(self, index: int) -> dict[str, list[Any]]:
        """One genome as lists, by the names of its parts."""
        return {name: values[index].tolist() for name, values in self.genomes.items()}


def read_front(run: Path | str) -> Front:
    """Raises RunError where there is no such run, no checkpoint, or a training in it."""
    folder = RunFolder.open(run)
    state = folder.load_checkpoint("latest")
    document = state.get("front") if isinstance(state, dict) else None
    if document is None:
        raise RunError(f"{folder.path} is no evolution; lamarck eval shows what a training came to")
    objectives = np.asarray(document["objectives"])
    order = np.lexsort(objectives.T[::-1])
    return Front(
        objectives=objectives[order],
        violation=np.asarray(document["violation"])[order],
        genomes={name: np.asarray(values)[order] for name, values in document["genomes"].items()},
        ids=np.asarray(document["ids"])[order],
        sense=tuple(document["sense"]),
        names=tuple(document["names"]),
    )
