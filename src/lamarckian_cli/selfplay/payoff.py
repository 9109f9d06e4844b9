"""The table of results between any two players: snapshots and policies that still learn.

Results of a learning policy go stale. With a decay below 1 every new result of a pair takes
that much from the older ones of the same pair, so about 1 / (1 - decay) matches count
(AlphaStar, Vinyals et al. 2019, uses 0.99).
"""

from __future__ import annotations

from typing import Any

import numpy as np

WIN, DRAW, LOSS = 1.0, 0.5, 0.0


class Payoff:
    """Wins and draws of every pair. `prior` is a number of drawn matches that every pair starts with
    as far as rates go: it keeps a single result from looking like certainty."""

    def __init__(self, *, decay: float = 1.0, prior: float = 2.0) -> None:
        if not 0 < decay <= 1 or prior < 0:
            raise ValueError(f"Payoff(decay={decay}, prior={prior}): decay in (0, 1], prior 0 or more")
        self.decay = decay
        self.prior = prior
        self._index: dict[str, int] = {}
        self._wins = np.zeros((0, 0))  # [N, N] float64: of the row over the column
        self._draws = np.zeros((0, 0))  # [N, N] float64, symmetric

    @property
    def players(self) -> tuple[str, ...]:
        """Names, in the order of rows and columns."""
        return tuple(self._index)

    def __contains__(self, player: str) -> bool:
        return player in self._index

    def add(self, player: str, *, like: str | None = None) -> None:
        """A new player, or a known one anew: without results, or with copies of those that `like` has.

        The copy is for a snapshot of a policy, which has just played as it would, and for a
        policy that was given another's weights. The two of them have no results against each other.
        """
        if like == player:
            return
        if player not in self._index:
            self._index[player] = len(self._index)
            self._wins = np.pad(self._wins, (0, 1))
            self._draws = np.pad(self._draws, (0, 1))
        at = self._index[player]
        for table in (self._wins, self._draws):
            table[at, :] = table[:, at] = 0.0
            if like is not None:
                source = self._index[like]
                table[at, :], table[:, at] = table[source, :], table[:, source]

    def forget(self, player: str) -> None:
        """Take a player out, with all its results."""
        at = self._index.pop(player)
        self._index = {name: index for index, name in enumerate(self._index)}
        self._wins = np.delete(np.delete(self._wins, at, 0), at, 1)
        self._draws = np.delete(np.delete(self._draws, at, 0), at, 1)

    def record(self, home: str, away: str, score: float) -> None:
        """One match: `score` is WIN, DRAW or LOSS of `home`. Raises ValueError for any other."""
        if score not in (WIN, DRAW, LOSS):
            raise ValueError(
                f"{home} scored {score} against {away}; a match is won (1), drawn (0.5) or lost (0)"
            )
        if home == away:
            raise ValueError(f"{home} played itself; that says nothing about anybody")
        i, j = self._index[home], self._index[away]
        for table in (self._wins, self._draws):
            table[i, j] *= self.decay
            table[j, i] *= self.decay
        if score == DRAW:
            self._draws[i, j] += 1
            self._draws[j, i] += 1
        elif score == WIN:
            self._wins[i, j] += 1
        else:
            self._wins[j, i] += 1

    def wins(self) -> np.ndarray:
        """[N, N] float64, decayed, of the row over the column."""
        return self._wins.copy()

    def draws(self) -> np.ndarray:
        """[N, N] float64, decayed; symmetric."""
        return self._draws.copy()

    def losses(self) -> np.ndarray:
        """[N, N] float64, decayed, of the row against the column."""
        return self._wins.T.copy()

    def matches(self) -> np.ndarray:
        """[N, N] float64: the matches that count, decayed; symmetric."""
        return self._wins + self._wins.T + self._draws

    def advantage(self) -> np.ndarray:
        """[N, N] float64 in [-1, 1]: wins less losses over matches and prior; exactly antisymmetric."""
        played = self.matches() + self.prior
        difference = self._wins - self._wins.T
        return np.divide(difference, played, out=np.zeros_like(difference), where=played > 0)

    def win_rates(self) -> np.ndarray:
        """[N, N] float64 in [0, 1]: of the row against the column, a draw as half a win, prior included.

        0.5 where nothing was played, and on the diagonal.
        """
        return (1 + self.advantage()) / 2

    def rows(self, players: tuple[str, ...]) -> np.ndarray:
        """[n] int64: where these players stand in the tables."""
        return np.array([self._index[player] for player in players], np.int64)

    def state(self) -> dict[str, Any]:
        return {"players": list(self._index), "wins": self._wins.copy(), "draws": self._draws.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self._index = {str(name): index for index, name in enumerate(state["players"])}
        self._wins = np.array(state["wins"], np.float64)
        self._draws = np.array(state["draws"], np.float64)
