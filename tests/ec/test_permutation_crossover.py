"""Order and edge crossover against their published procedures, outcome by outcome."""

from collections import Counter
from itertools import pairwise

import numpy as np
from scipy import stats

from lamarckian_cli.ec import crossover

N = 20_000
ENOUGH = 0.001


def order_by_hand(keeper, giver, first, last):
    """OX for one child: a stretch stays, the rest comes from the other parent, from behind it on."""
    size = len(keeper)
    child = [None] * size
    child[first:last] = keeper[first:last]
    rest = [giver[(last + k) % size] for k in range(size)]
    rest = [thing for thing in rest if thing not in keeper[first:last]]
    for k, thing in enumerate(rest):
        child[(last + k) % size] = thing
    return tuple(child)


def test_the_procedure_written_here_gives_the_textbook_example():
    one, other = [1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 3, 7, 8, 2, 6, 5, 1, 4]
    assert order_by_hand(one, other, 3, 7) == (3, 8, 2, 4, 5, 6, 7, 1, 9)


def test_order_crossover_gives_each_outcome_as_often_as_its_cuts():
    one, other = [0, 1, 2, 3, 4, 5], [5, 2, 4, 1, 0, 3]
    parents = np.array([one, other])[:, None, :].repeat(N, axis=1)
    children = crossover.order(parents, probability=1.0, rng=np.random.default_rng(1))
    expected = Counter(
        (order_by_hand(one, other, a, b), order_by_hand(other, one, a, b)) for b in range(6) for a in range(b)
    )
    found = Counter((tuple(c), tuple(d)) for c, d in zip(*children.tolist(), strict=True))
    assert set(found) <= set(expected)
    share = np.array([expected[pair] for pair in expected]) / sum(expected.values())
    assert stats.chisquare([found[pair] for pair in expected], N * share).pvalue > ENOUGH


def neighbours_of(thing, *tours):
    found = set()
    for tour in tours:
        at = tour.index(thing)
        found |= {tour[at - 1], tour[(at + 1) % len(tour)]}
    return found


def edge_by_hand(walk, table, odds, outcomes):
    """Every way that ERX goes on from `walk`, with its probability."""
    if len(walk) == len(table):
        outcomes[walk] += odds
        return
    free = [thing for thing in table if thing not in walk]
    near = [thing for thing in table[walk[-1]] if thing in free]
    if near:
        degree = {thing: sum(other in free for other in table[thing]) for thing in near}
        choices = [thing for thing in near if degree[thing] == min(degree.values())]
    else:
        choices = free
    for thing in choices:
        edge_by_hand((*walk, thing), table, odds / len(choices), outcomes)


def test_edge_crossover_gives_each_tour_as_often_as_the_procedure():
    one, other = [0, 1, 2, 3, 4, 5, 6], [2, 5, 0, 3, 6, 1, 4]
    table = {thing: neighbours_of(thing, one, other) for thing in one}
    parents = np.array([one, other])[:, None, :].repeat(N, axis=1)
    children = crossover.edge(parents, probability=1.0, rng=np.random.default_rng(2))
    for parent, made in zip((one, other), children, strict=True):
        expected: Counter = Counter()
        edge_by_hand((parent[0],), table, 1.0, expected)
        found = Counter(tuple(tour) for tour in made.tolist())
        assert set(found) <= set(expected)
        counts = [found[tour] for tour in expected]
        assert stats.chisquare(counts, N * np.array([*expected.values()])).pvalue > ENOUGH


def test_edge_crossover_without_neighbours_left_goes_anywhere():
    # Such walks are rare; here one of eight runs dry.
    one, other = [0, 1, 2, 3, 4, 5, 6, 7], [2, 4, 3, 0, 6, 7, 5, 1]
    table = {thing: neighbours_of(thing, one, other) for thing in one}
    expected: Counter = Counter()
    edge_by_hand((0,), table, 1.0, expected)
    strange = {tour for tour in expected if any(b not in table[a] for a, b in pairwise(tour))}
    assert strange, "the example does not show what it is for"
    parents = np.array([one, other])[:, None, :].repeat(N, axis=1)
    children = crossover.edge(parents, probability=1.0, rng=np.random.default_rng(3))
    found = Counter(tuple(tour) for tour in children[0].tolist())
    assert set(found) <= set(expected)
    assert stats.chisquare([found[t] for t in expected], N * np.array([*expected.values()])).pvalue > ENOUGH


def test_edge_crossover_keeps_a_tour_that_both_parents_share():
    tour = np.array([3, 0, 4, 1, 2, 5])
    parents = np.stack([tour, np.roll(tour, 2)[::-1]])[:, None, :]
    shared = {frozenset((a, b)) for a, b in zip(tour.tolist(), np.roll(tour, 1).tolist(), strict=True)}
    for child in crossover.edge(parents, probability=1.0, rng=np.random.default_rng(4))[:, 0]:
        edges = zip(child.tolist(), np.roll(child, 1).tolist(), strict=True)
        assert {frozenset(e) for e in edges} == shared
