"""The opponent pool: frozen snapshots of policies.

    snapshot = pool.add("main", vector, version=120, env_steps=1_000_000)
    dropped = pool.trim(ratings)      # down to the capacity

A snapshot is a copy that nobody can write to, and its digest is taken when it is made: the
learner goes on changing its own vector in place, and its opponents must not feel it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.errors import RunError
from lamarckian_cli.selfplay.settings import DROP_RULES

MARK = "#"  # between a policy's name and the number of its snapshot
_STORED = np.dtype("<f4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One policy's weights at one time, for ever."""

    number: int  # unique in a pool, in the order of taking, never used again
    policy: str  # whose weights these are
    version: int  # of the weights when they were taken
    env_steps: int  # of the policy when they were taken
    vector: np.ndarray  # [P] float32, cannot be written
    digest: str  # of the vector: blake2b, 32 hexadecimal digits

    @property
    def name(self) -> str:
        """What it is called wherever it plays: `main#3`."""
        return f"{self.policy}{MARK}{self.number}"


class Pool:
    """Snapshots by name, in the order of taking; `capacity` of them stay when `trim` is called.

    `drop` says which go first. `spread`: those whose neighbours in history are closest
    together, so that what stays covers all of training; `rating`: the lowest rated. The
    newest snapshot of each policy stays as long as any other can go.
    """

    def __init__(self, capacity: int, drop: str = "spread") -> None:
        if capacity < 1 or drop not in DROP_RULES:
            raise ValueError(f"Pool({capacity}, {drop!r}): at least 1, and one of {', '.join(DROP_RULES)}")
        self.capacity = capacity
        self.drop = drop
        self._snapshots: dict[str, Snapshot] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._snapshots)

    def __contains__(self, name: str) -> bool:
        return name in self._snapshots

    def __getitem__(self, name: str) -> Snapshot:
        return self._snapshots[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all snapshots, oldest first."""
        return tuple(self._snapshots)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All of them, oldest first."""
        return tuple(self._snapshots.values())

    def find(self, name: str) -> Snapshot | None:
        """A snapshot by its name; None where it is not in the pool."""
        return self._snapshots.get(name)

    def newest(self, policy: str) -> Snapshot | None:
        """The last one taken of `policy`; None where there is none."""
        return next((s for s in reversed(self._snapshots.values()) if s.policy == policy), None)

    def add(self, policy: str, vector: np.ndarray, *, version: int, env_steps: int) -> Snapshot:
        """Take a snapshot: `vector` [P] float32 is copied. Nothing is dropped before `trim`."""
        snapshot = _taken(self._next_number, policy, vector, version, env_steps)
        self._next_number += 1
        self._snapshots[snapshot.name] = snapshot
        return snapshot

    def trim(self, ratings: Mapping[str, float] | None = None) -> list[Snapshot]:
        """Drop what is too much and return it.

        `ratings`, by snapshot name, are needed with `drop` rating; who has none counts as the highest.
        """
        dropped = []
        while len(self) > self.capacity:
            worth = self._worth(ratings or {})
            least = min(self.snapshots[:-1], key=lambda s: (*worth[s.name], s.number))
            dropped.append(self._snapshots.pop(least.name))
        return dropped

    def state(self) -> dict[str, Any]:
        """All snapshots."""
        return {
            "next_number": self._next_number,
            "snapshots": [
                {
                    "number": s.number,
                    "policy": s.policy,
                    "version": s.version,
                    "env_steps": s.env_steps,
                    "vector": s.vector,
                    "digest": s.digest,
                }
                for s in self.snapshots
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`. Raises RunError where a vector is not what its digest says."""
        snapshots = {}
        for saved in state["snapshots"]:
            snapshot = _taken(
                int(saved["number"]),
                str(saved["policy"]),
                np.asarray(saved["vector"]),
                int(saved["version"]),
                int(saved["env_steps"]),
            )
            if snapshot.digest != saved["digest"]:
                raise RunError(
                    f"opponent {snapshot.name} of the saved pool has digest {snapshot.digest}, and "
                    f"{saved['digest']} was saved with it: its weights are damaged; take an older checkpoint"
                )
            snapshots[snapshot.name] = snapshot
        self._snapshots = snapshots
        self._next_number = int(state["next_number"])

    def _worth(self, ratings: Mapping[str, float]) -> dict[str, tuple[int, float]]:
        """For each snapshot what orders dropping, least first.

        Rank 2 is the newest of its policy; with `spread`, rank 1 is the oldest of its policy
        (without it the early part of history would be lost one by one) and rank 0 the others,
        by the env steps between their neighbours.
        """
        worth: dict[str, tuple[int, float]] = {}
        for policy in dict.fromkeys(s.policy for s in self.snapshots):
            history = [s for s in self.snapshots if s.policy == policy]
            for place, snapshot in enumerate(history):
                if place == len(history) - 1:
                    worth[snapshot.name] = (2, snapshot.env_steps)
                elif self.drop == "rating":
                    worth[snapshot.name] = (0, ratings.get(snapshot.name, math.inf))
                elif place == 0:
                    worth[snapshot.name] = (1, snapshot.env_steps)
                else:
                    gap = history[place + 1].env_steps - history[place - 1].env_steps
                    worth[snapshot.name] = (0, gap)
        return worth


def digest_of(vector: np.ndarray) -> str:
    """blake2b of a vector [P] float32, little endian: 32 hexadecimal digits."""
    return hashlib.blake2b(np.ascontiguousarray(vector, _STORED).data, digest_size=16).hexdigest()


def _taken(number: int, policy: str, vector: np.ndarray, version: int, env_steps: int) -> Snapshot:
    if vector.dtype != np.float32 or vector.ndim != 1:
        raise ValueError(
            f"weights of {policy} are {vector.dtype} {list(vector.shape)}; they must be float32 [P]"
        )
    # An array over `bytes` cannot be made writable again, unlike one whose flag is set.
    frozen = np.frombuffer(vector.astype(_STORED, copy=False).tobytes(), _STORED)
    return Snapshot(
        number=number,
        policy=policy,
        version=version,
        env_steps=env_steps,
        vector=frozen,
        digest=digest_of(frozen),
    )
