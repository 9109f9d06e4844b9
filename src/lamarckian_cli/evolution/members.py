"""Members that last while their candidates come and go: particles of a swarm, members of PBT."""

from __future__ import annotations

import numpy as np


class Members:
    """Which candidate each of n members has out. A member has one out at most."""

    def __init__(self, n: int) -> None:
        self.asked = np.zeros(n, np.int64)  # [n] how often each was asked for
        self._out = np.full(n, -1)  # [n] id of the candidate; -1: none

    def __len__(self) -> int:
        return len(self.asked)

    def free(self) -> np.ndarray:
        """Indices of those who have nobody out, the least often asked for first."""
        free = np.flatnonzero(self._out < 0)
        return free[np.argsort(self.asked[free], kind="stable")]

    def who(self, identity: int) -> int:
        """The member that has this candidate out."""
        return int(np.flatnonzero(self._out == identity)[0])

    def send(self, members: np.ndarray, ids: np.ndarray) -> None:
        """Candidates `ids` [K] go out for free members [K]."""
        self._out[members] = ids
        self.asked[members] += 1

    def back(self, ids: np.ndarray) -> np.ndarray:
        """Members [K] whose candidates came back, and who are free again."""
        order = np.argsort(self._out, kind="stable")
        places = np.searchsorted(self._out[order], ids)
        members = order[np.minimum(places, len(order) - 1)]
        if not np.array_equal(self._out[members], ids):
            raise ValueError(f"candidates {ids.tolist()} came back; {sorted(self._out.tolist())} are out")
        self._out[members] = -1
        return members

    def state(self) -> dict[str, np.ndarray]:
        return {"asked": self.asked.copy(), "out": self._out.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.asked, self._out = np.array(state["asked"]), np.array(state["out"])
