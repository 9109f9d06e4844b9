"""The travelling salesperson: the shortest tour through all cities and back.

Cities are drawn in the unit square, stand on a circle (whose tour is known), or come from a
file: of TSPLIB with EUC_2D distances (Reinelt, ORSA Journal on Computing 3(4), 1991), or two
numbers a line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from lamarckian_cli.ec.coding import Permutation
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.problems.evaluator import Objective
from lamarckian_cli.problems.formula import Formula
from lamarckian_cli.seeding import stream

EXACT_CITIES = 12  # up to so many, every set of cities is gone through


class TSP(Formula):
    """The length of a tour; the genome is the order of the cities."""

    def __init__(
        self,
        *,
        cities: int = 50,
        layout: Literal["random", "circle"] = "random",
        instance: int = 0,
        file: str | None = None,
        known: float | None = None,
    ) -> None:
        rounded = False
        if file is not None:
            places, rounded = read_cities(Path(file))
        else:
            require(cities >= 3, "problem.cities", cities, "it must be at least 3")
            places = _circle(cities) if layout == "circle" else stream(instance, "tsp").random((cities, 2))
        distances = np.linalg.norm(places[:, None] - places[None], axis=2)
        self.distances = np.floor(distances + 0.5) if rounded else distances  # TSPLIB's nearest whole number
        self.known = known
        self.on_circle = file is None and layout == "circle"
        super().__init__(Permutation(size=len(places)), (Objective(name="length"),))

    def values(self, x: np.ndarray) -> np.ndarray:
        return self.distances[x, np.roll(x, -1, axis=1)].sum(1)[:, None]

    def optimum(self) -> float | None:
        """What `known` says; else of a circle, or of at most 12 cities; else None."""
        if self.known is not None:
            return self.known
        if self.on_circle:
            return float(2.0 * len(self.distances) * np.sin(np.pi / len(self.distances)))
        return shortest(self.distances) if len(self.distances) <= EXACT_CITIES else None


def shortest(distances: np.ndarray) -> float:
    """The length of the shortest tour over distances [C, C], by Held and Karp's program over sets of cities.

    Its time grows as 2 ** C * C ** 2.
    """
    others = len(distances) - 1
    # [set, last]: the shortest way from the last city of all through the set to `last`, which is in it.
    way = np.full((1 << others, others), np.inf)
    way[1 << np.arange(others), np.arange(others)] = distances[others, :others]
    for chosen in range(1, 1 << others):
        on = (way[chosen][:, None] + distances[:others, :others]).min(0)
        for city in range(others):
            if not chosen >> city & 1:
                way[chosen | 1 << city, city] = min(way[chosen | 1 << city, city], on[city])
    return float((way[-1] + distances[:others, others]).min())


def read_cities(path: Path) -> tuple[np.ndarray, bool]:
    """Places [C, 2] of a file, and whether its distances are rounded, as TSPLIB's are."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"problem.file is {str(path)!r}; it cannot be read ({error}). It must be there on every machine"
        ) from error
    header = [line.upper().replace(" ", "") for line in lines]
    of_tsplib = "NODE_COORD_SECTION" in header
    if of_tsplib:
        start = header.index("NODE_COORD_SECTION") + 1
        kinds = [line.partition(":")[2] for line in header[:start] if line.startswith("EDGE_WEIGHT_TYPE")]
        if kinds != ["EUC_2D"]:
            raise ConfigError(
                f"problem.file is {str(path)!r}; its EDGE_WEIGHT_TYPE is {', '.join(kinds) or 'not given'}, "
                "and only EUC_2D can be read"
            )
    else:
        start = 0
    places = []
    for number, line in enumerate(lines[start:], start + 1):
        if line.upper() == "EOF":
            break
        if line:
            places.append(
                _place(line, of_tsplib, f"problem.file is {str(path)!r}; line {number} is {line!r}")
            )
    if len(places) < 3:
        raise ConfigError(f"problem.file is {str(path)!r}; it has {len(places)} cities, and 3 are the least")
    return np.array(places), of_tsplib


def _place(line: str, numbered: bool, where: str) -> list[float]:
    fields = line.replace(",", " ").split()[1 if numbered else 0 :]
    try:
        place = [float(field) for field in fields]
    except ValueError:
        place = []
    if len(place) != 2 or not np.isfinite(place).all():
        raise ConfigError(f"{where}, expected {'a number and ' if numbered else ''}two coordinates")
    return place


def _circle(cities: int) -> np.ndarray:
    """Cities of a unit circle, [C, 2], out of order so that 0, 1, 2, ... is no good tour."""
    angles = 2.0 * np.pi * stream(0, "circle", cities).permutation(cities) / cities
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
