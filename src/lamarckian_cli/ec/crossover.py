"""Crossover: pairs of parents [2, N, D] in, pairs of children [2, N, D] out, always new arrays.

Parents must follow their coding; the children then do too. `probability` is that of a pair
being crossed at all; the children of the others are copies.
"""

from __future__ import annotations

import numpy as np

BY_VARIABLE = (
    0.5  # of a crossed pair, the share of variables that is recombined (Deb's and everybody's choice)
)


def sbx(
    parents: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    eta: float,
    probability: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Simulated binary crossover within bounds (Deb & Agrawal 1995; bounds as in Deb's NSGA-II code).

    Parents y1 < y2 give children at y1 + (1 - β)(y2 - y1)/2 and at y2 - (1 - β)(y2 - y1)/2. β has
    the density (η+1)β^η/α up to 1 and (η+1)β^-(η+2)/α beyond, cut off where the child meets its
    bound at β_b = 1 + 2 (distance to the bound)/(y2 - y1), so that α = 2 - β_b^-(η+1).

    Args:
        parents: float64 [2, N, D], within the bounds.
        low, high: float64 [D]; may be infinite.
        eta: the distribution index η, at least 0; the larger, the closer to the parents.
    """
    children, at, pair, column = _recombined(parents, probability, rng)
    lower, upper = np.minimum(pair[0], pair[1]), np.maximum(pair[0], pair[1])
    gap = upper - lower
    least, most = low[column], high[column]
    with np.errstate(over="ignore"):  # bounds very far away count as infinitely far
        bound = np.array((lower - least, most - upper)) * 2.0
        bound /= gap
    bound += 1.0
    alpha = 2.0 - bound ** -(eta + 1.0)
    u, swapped = rng.random((2, len(at)))
    step = 0.5 * gap * (1.0 - _spread(u * alpha, eta))
    _write(children, at, np.array((lower + step[0], upper - step[1])), least, most, swapped < 0.5)
    return children


def sbx_clamped(
    parents: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    eta: float,
    probability: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """SBX that ignores the bounds and then clamps to them, as PlatEMO and EvoX do.

    It puts children exactly on the bounds, where some test problems have their optima: figures
    made with it say so. Arguments as of `sbx`.
    """
    children, at, pair, column = _recombined(parents, probability, rng)
    lower, upper = np.minimum(pair[0], pair[1]), np.maximum(pair[0], pair[1])
    u, swapped = rng.random((2, len(at)))
    step = 0.5 * (upper - lower) * (1.0 - _spread(2.0 * u, eta))
    _write(children, at, np.array((lower + step, upper - step)), low[column], high[column], swapped < 0.5)
    return children


def one_point(parents: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Exchange everything from a random cut on (Holland 1975); the cut is inside, so both parents count."""
    _, n, size = parents.shape
    cut = rng.integers(1, max(size, 2), (n, 1))
    return _exchanged(parents, np.arange(size) >= cut, probability, rng)


def two_point(parents: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Exchange what is between two random cuts of the genome seen as a ring (De Jong 1975)."""
    _, n, size = parents.shape
    first, last = _cuts(n, size, rng)
    place = np.arange(size)
    return _exchanged(parents, (place >= first) & (place < last), probability, rng)


def uniform(
    parents: np.ndarray, *, probability: float, exchange: float = BY_VARIABLE, rng: np.random.Generator
) -> np.ndarray:
    """Exchange each number with the probability `exchange` (Syswerda 1989)."""
    _, n, size = parents.shape
    return _exchanged(parents, rng.random((n, size)) < exchange, probability, rng)


def layers(
    parents: np.ndarray, sizes: tuple[int, ...], *, probability: float, rng: np.random.Generator
) -> np.ndarray:
    """Exchange whole layers of two networks from a random layer on (as Wuji does; Zheng et al. 2019).

    `sizes` are the numbers of each layer, D in all. Networks of one layer are not crossed.
    """
    _, n, size = parents.shape
    starts = np.cumsum((0, *sizes))[:-1]
    cut = starts[rng.integers(1, len(starts), (n, 1))] if len(starts) > 1 else np.full((n, 1), size)
    return _exchanged(parents, np.arange(size) >= cut, probability, rng)


def order(parents: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Order crossover OX of permutations (Davis 1985).

    A child keeps a random stretch of one parent in its place. The rest comes from the other
    parent in its order, read and written from behind the stretch on, round the end.
    """
    _, n, size = parents.shape
    first, last = _cuts(n, size, rng)
    crossed = rng.random((n, 1)) < probability
    turned = (last + np.arange(size)) % max(size, 1)  # [N, D] places, from behind the stretch on
    children = parents.copy()
    for child, keeper, giver in zip(children, parents, parents[::-1], strict=True):
        kept = (_inverse(keeper) >= first) & (_inverse(keeper) < last)  # by thing
        offered = np.take_along_axis(giver, turned, axis=1)
        behind = np.argsort(np.take_along_axis(kept, offered, axis=1), axis=1, kind="stable")
        offered = np.take_along_axis(offered, behind, axis=1)  # those that are not kept come first
        free = np.arange(size) < size - (last - first)
        there = np.take_along_axis(keeper, turned, axis=1)
        np.put_along_axis(child, turned, np.where(free & crossed, offered, there), axis=1)
    return children


def edge(parents: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Edge recombination ERX of permutations seen as tours (Whitley, Starkweather & Fuquay 1989).

    The first child starts where the first parent does, the second where the second does. Next
    comes, of the things that are neighbours of the last one in either parent and still free,
    one with the fewest free neighbours itself; where there is none, any free thing.
    """
    _, n, size = parents.shape
    crossed = np.flatnonzero(rng.random(n) < probability)
    children = parents.copy()
    if size > 2 and len(crossed):
        tours = parents[:, crossed]
        neighbours = np.tile(_neighbours(tours), (2, 1, 1))
        made = _walks(tours[:, :, 0].reshape(-1), neighbours, rng)
        children[:, crossed] = made.reshape(2, len(crossed), size)
    return children


def _walks(start: np.ndarray, neighbours: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """ERX tours [N, D] from each `start` [N], by neighbours [N, D, 4] (-1 is none); all walk at once."""
    n, size, _ = neighbours.shape
    each = np.arange(n)
    free = np.ones((n, size + 1), bool)
    free[:, size] = False  # what neighbour -1 points to
    degree = np.concatenate(((neighbours >= 0).sum(axis=2), np.zeros((n, 1), np.int64)), axis=1)
    walk = np.empty((n, size), np.int64)
    here = start
    for place in range(size):
        walk[:, place] = here
        free[each, here] = False
        around = neighbours[each, here]  # [N, 4]
        degree[each[:, None], around] -= 1  # no neighbour is named twice, but for none at all
        if place == size - 1:
            break
        fewest = np.where(free[each[:, None], around], degree[each[:, None], around], 5)
        # Ties are drawn: the fraction never makes up for a whole neighbour.
        best = (fewest + rng.random(fewest.shape)).argmin(axis=1)
        lost = fewest[each, best] == 5
        here = around[each, best]
        if lost.any():
            drawn = np.where(free[lost, :size], rng.random((int(lost.sum()), size)), -1.0)
            here[lost] = drawn.argmax(axis=1)
    return walk


def _neighbours(tours: np.ndarray) -> np.ndarray:
    """The neighbours [N, D, 4] of each thing in both tours [2, N, D]; -1 for a repeated one."""
    _, n, size = tours.shape
    found = np.empty((n, size, 4), np.int64)
    for tour, (before, after) in zip(tours, ((0, 1), (2, 3)), strict=True):
        rows = np.arange(n)[:, None]
        found[rows, tour, before] = np.roll(tour, 1, axis=1)
        found[rows, tour, after] = np.roll(tour, -1, axis=1)
    for k in range(1, 4):
        repeated = (found[:, :, :k] == found[:, :, k : k + 1]).any(axis=2)
        found[:, :, k][repeated] = -1
    return found


def _inverse(permutations: np.ndarray) -> np.ndarray:
    """Where each thing is: the inverse of every row of [N, D]."""
    return np.argsort(permutations, axis=1)


def _recombined(
    parents: np.ndarray, probability: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Children as copies [2, N, D]; flat places [K] to recombine; both parents there [2, K]; columns [K].

    Where parents agree there is nothing to recombine, and nothing to divide by.
    """
    _, n, size = parents.shape
    crossed = rng.random((n, 1)) < probability
    places = rng.random((n, size)) < BY_VARIABLE
    places &= crossed
    places &= parents[0] != parents[1]
    at = np.flatnonzero(places)
    children = parents.copy()
    return children, at, children.reshape(2, -1)[:, at], at % size if size else at


def _spread(t: np.ndarray, eta: float) -> np.ndarray:
    """β for t = uα in [0, 2): the inverse of its distribution function."""
    spread: np.ndarray = np.where(t > 1.0, 1.0 / (2.0 - t), t) ** (1.0 / (eta + 1.0))
    return spread


def _write(
    children: np.ndarray,
    at: np.ndarray,
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    swapped: np.ndarray,
) -> None:
    """Put values [2, K], kept in bounds [K], into the children; who gets which is drawn for each place."""
    np.maximum(values, low, out=values)
    np.minimum(values, high, out=values)
    children.reshape(2, -1)[:, at] = np.where(swapped, values[::-1], values)


def _exchanged(
    parents: np.ndarray, places: np.ndarray, probability: float, rng: np.random.Generator
) -> np.ndarray:
    """Children [2, N, D] whose parents change sides at `places` [N, D], in the pairs that are crossed."""
    crossed = rng.random((parents.shape[1], 1)) < probability
    return np.where(places & crossed, parents[::-1], parents)


def _cuts(n: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two different cuts a < b, each [n, 1], of a ring of `size` numbers: 1 to size - 1 lie between."""
    one = rng.integers(0, max(size, 1), (n, 1))
    other = (one + rng.integers(1, max(size, 2), (n, 1))) % max(size, 1)
    return np.minimum(one, other), np.maximum(one, other)
