"""Equilibria of matrix games against known solutions and best responses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from lamarckian_cli.selfplay.nash import equilibrium, exploitability, nash_mixture

ROCK_PAPER_SCISSORS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], float)


def antisymmetric(matrix: np.ndarray) -> np.ndarray:
    upper = np.triu(matrix, 1)
    return upper - upper.T


def test_rock_paper_scissors_is_played_evenly() -> None:
    solution = equilibrium(ROCK_PAPER_SCISSORS)
    for mixture in (nash_mixture(ROCK_PAPER_SCISSORS), solution.row, solution.column):
        np.testing.assert_allclose(mixture, [1 / 3] * 3, atol=1e-7)
    assert solution.value == pytest.approx(0, abs=1e-9)
    assert exploitability(ROCK_PAPER_SCISSORS, np.array([1.0, 0, 0])) == 1  # always rock loses to paper


@settings(deadline=None)
@given(st.lists(st.floats(0.05, 20), min_size=3, max_size=3))
def test_biased_rock_paper_scissors(stakes: list[float]) -> None:
    """With stakes a on paper over rock, b on rock over scissors and c on scissors over paper, the three are
    played as c : b : a (each pair of rows made indifferent)."""
    a, b, c = stakes
    game = np.array([[0, -a, b], [a, 0, -c], [-b, c, 0]])
    np.testing.assert_allclose(nash_mixture(game), np.array([c, b, a]) / (a + b + c), atol=1e-5)


@pytest.mark.parametrize(
    ("game", "row", "column", "value"),
    [
        # matching pennies with a stake of 2 on heads: solved by making the other indifferent
        ([[2, -1], [-1, 1]], [2 / 5, 3 / 5], [2 / 5, 3 / 5], 1 / 5),
        # a saddle point: the second row's worst is the second column's best
        ([[4, 1, 8], [5, 3, 7], [9, 2, -6]], [0, 1, 0], [0, 1, 0], 3),
        # not square; the third column is dominated by the second
        ([[0, 2, 3], [3, 1, 2]], [1 / 2, 1 / 2], [1 / 4, 3 / 4, 0], 3 / 2),
    ],
)
def test_games_with_known_solutions(
    game: list[list[float]], row: list[float], column: list[float], value: float
) -> None:
    solution = equilibrium(np.array(game, float))
    np.testing.assert_allclose(solution.row, row, atol=1e-7)
    np.testing.assert_allclose(solution.column, column, atol=1e-7)
    assert solution.value == pytest.approx(value, abs=1e-7)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12))
def test_nobody_gains_by_leaving_an_equilibrium(seed: int, rows: int, columns: int) -> None:
    game = np.random.default_rng(seed).normal(scale=10.0 ** (seed % 7 - 3), size=(rows, columns))
    solution = equilibrium(game)
    tolerance = 1e-6 * np.ptp(game) + 1e-12
    best_row, best_column = (game @ solution.column).max(), (solution.row @ game).min()
    assert best_row == pytest.approx(solution.value, abs=tolerance)  # minimax ...
    assert best_column == pytest.approx(solution.value, abs=tolerance)  # ... is maximin
    for mixture in (solution.row, solution.column):
        assert mixture.min() >= 0
        assert mixture.sum() == pytest.approx(1)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.booleans())
def test_the_nash_mixture_of_any_table_cannot_be_exploited(seed: int, n: int, whole: bool) -> None:
    matrix = np.random.default_rng(seed).normal(scale=2, size=(n, n))
    game = antisymmetric(np.round(matrix) if whole else matrix)  # whole numbers: many ties
    mixture = nash_mixture(game)
    assert mixture.sum() == pytest.approx(1)
    assert mixture.min() >= 0
    assert exploitability(game, mixture) <= 1e-6 * max(1.0, np.abs(game).max())


def test_who_is_beaten_by_all_is_never_played() -> None:
    game = np.zeros((4, 4))
    game[:3, :3] = ROCK_PAPER_SCISSORS
    game[:3, 3], game[3, :3] = 0.2, -0.2
    np.testing.assert_allclose(nash_mixture(game), [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-7)
    np.testing.assert_allclose(nash_mixture(antisymmetric(np.ones((5, 5)))), [1, 0, 0, 0, 0], atol=1e-7)


def test_without_any_result_all_are_equal() -> None:
    np.testing.assert_array_equal(nash_mixture(np.zeros((4, 4))), [0.25] * 4)


def test_of_many_equilibria_it_is_the_most_even() -> None:
    """Rock twice: any split of the two is an equilibrium; the even one has the largest entropy."""
    index = [0, 0, 1, 2]
    game = ROCK_PAPER_SCISSORS[np.ix_(index, index)]
    np.testing.assert_allclose(nash_mixture(game), [1 / 6, 1 / 6, 1 / 3, 1 / 3], atol=1e-7)
    # The first beats the third; the second, which draws with all, is as safe.
    np.testing.assert_allclose(
        nash_mixture(np.array([[0, 0, 1], [0, 0, 0], [-1, 0, 0]], float)), [0.5, 0.5, 0], atol=1e-7
    )


def test_the_most_even_equilibrium_stays_safe_from_those_outside_of_it() -> None:
    """The first two draw; the third loses 1 to the first and takes 3 from the second, which must not be
    played more than once in four times."""
    game = np.array([[0, 0, 1], [0, 0, -3], [-1, 3, 0]], float)
    np.testing.assert_allclose(nash_mixture(game), [0.75, 0.25, 0], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_even_equilibrium_agrees_with_a_general_optimiser(seed: int) -> None:
    """The game u_i v_j - v_i u_j has the equilibria x @ u = x @ v = 0; over them the entropy is maximised."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(8, 2))
    points -= rng.dirichlet(np.ones(8)) @ points  # so that all 8 can be mixed
    game = np.outer(points[:, 0], points[:, 1])
    found = minimize(
        lambda x: float((x * np.log(np.maximum(x, 1e-12))).sum()),
        np.full(8, 1 / 8),
        jac=lambda x: 1 + np.log(np.maximum(x, 1e-12)),
        bounds=[(0, 1)] * 8,
        constraints=[{"type": "eq", "fun": lambda x: np.append(x @ points, x.sum() - 1)}],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert found.success
    np.testing.assert_allclose(nash_mixture(game - game.T), found.x, atol=1e-6)


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (np.array([[0, 1], [1, 0.0]]), "antisymmetric"),
        (np.zeros((2, 3)), "antisymmetric"),
        (np.zeros((0, 0)), "at least 1"),
        (np.array([[0, np.nan], [np.nan, 0]]), "finite"),
    ],
)
def test_what_is_no_symmetric_game_is_refused(game: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nash_mixture(game)
