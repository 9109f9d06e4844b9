"""What crosses rooms: frozen records with shapes.

Shapes use T (steps of an unroll), B (unrolls of a batch), K (reward heads), D (size of a
continuous head), n (choices of a discrete head) and F (matches that were truncated inside).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# ------------------------------------------------------------------ what a game offers


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One observation array of a seat, without batch or time."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # NumPy name: float32, uint8, int64, ...

    @property
    def is_image(self) -> bool:
        """Channels first, as `[C, H, W]` of uint8."""
        return len(self.shape) == 3 and self.dtype == "uint8"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteHead:
    """An action component with `n` choices 0..n-1; `names` are shown to people."""

    name: str
    n: int
    names: tuple[str, ...] = ()
    masked: bool = False  # State.masks has an array for this head


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousHead:
    """An action component of D real numbers, each within [low, high]."""

    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.low)


Head = DiscreteHead | ContinuousHead


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardHead:
    """One reward signal. What is None is taken from the algorithm's configuration."""

    name: str = "reward"
    discount: float | None = None
    gae_lambda: float | None = None
    weight: float = 1.0  # of its advantage in the policy loss and of its value loss


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatSpec:
    """What one player sees, does and is rewarded with."""

    inputs: tuple[InputSpec, ...]
    heads: tuple[Head, ...]
    rewards: tuple[RewardHead, ...] = (RewardHead(),)
    name: str = "player"


@dataclass(frozen=True, slots=True, kw_only=True)
class MDPSpec:
    """What `MDP.describe()` returns."""

    name: str
    seats: tuple[SeatSpec, ...]
    builtin_seats: tuple[int, ...] = ()  # seats that the game itself can play
    frames_per_step: int = 1  # frame skip: frames that one env step advances
    results: tuple[str, ...] = ()  # numbers that Controller.result() reports, beside "return"


# ------------------------------------------------------------------ while a match runs

Action = tuple[Any, ...]
"""One entry a head: an int for a discrete head, a float32 array [D] for a continuous one."""


class State(NamedTuple):
    """What a controller sees before it acts.

    `inputs`: one array per InputSpec. `masks`: None, or per head a bool array [n] (True is
    legal) or None. `script`: an action that the game dictates; it is played instead of the
    policy's, and the step trains the value alone. `decision` is False on a step that takes
    no decision: `act(None)` is played, nothing is recorded, and its reward is added to the
    step before it (to the first recorded step where there is none before).
    """

    inputs: tuple[np.ndarray, ...]
    masks: tuple[np.ndarray | None, ...] | None = None
    script: Action | None = None
    decision: bool = True


class Outcome(NamedTuple):
    """What an action led to. Termination ends the value; truncation bootstraps it."""

    terminated: bool = False
    truncated: bool = False


RUNNING = Outcome()
TERMINATED = Outcome(terminated=True)
TRUNCATED = Outcome(truncated=True)

# ------------------------------------------------------------------ what is learned from


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolls:
    """B unrolls of T consecutive steps each, of controllers that play one policy.

    Matches that end inside an unroll are followed by the next match in the same row; the
    final observation of a truncated match, which the row has no place for, is kept apart.
    """

    policy: str
    inputs: tuple[np.ndarray, ...]  # each [B, T + 1, *shape]; the last step bootstraps
    masks: tuple[np.ndarray | None, ...]  # per head [B, T, n] bool, or None
    actions: tuple[np.ndarray, ...]  # per head [B, T] int64 or [B, T, D] float32
    log_prob: np.ndarray  # [B, T] float32 of the behaviour policy, summed over heads
    reward: np.ndarray  # [B, T, K] float32
    terminated: np.ndarray  # [B, T] bool
    truncated: np.ndarray  # [B, T] bool
    decided: np.ndarray  # [B, T] bool; False where a script chose the action
    version: np.ndarray  # [B, T] int64, of the weights that acted
    final_inputs: tuple[np.ndarray, ...]  # each [F, *shape]
    final_index: np.ndarray  # [F, 2] int64: (unroll, step) of each truncation

    @property
    def env_steps(self) -> int:
        return int(self.reward.shape[0] * self.reward.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchResult:
    """One finished match, seen from one training agent."""

    policy: str
    seat: int
    version: int  # of the weights at its last action
    first_version: int  # of those at its start
    env_steps: int
    frames: int
    result: dict[str, float]  # "return", and whatever the game reports
    opponent: str = ""  # whom of the pool it met; told once a match, of the first seat that trains


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One policy's parameters and observation statistics as one flat vector."""

    policy: str
    version: int  # optimizer steps that produced them
    vector: np.ndarray  # [P] float32


# ------------------------------------------------------------------ self-play


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairings:
    """Whom each policy meets that learns: what actors draw opponents by, one for a whole match.

    The pool's snapshots stand in numbered places, and their weights are published by `place_name`.
    """

    version: int  # the newest counts
    opponents: tuple[str, ...]  # who stands in each place; "" where nobody does
    numbers: tuple[int, ...]  # of these snapshots, which is the version of the weights in their place
    learners: tuple[str, ...]
    chances: np.ndarray  # [learners, places] float64; each row sums to 1, and 0 where nobody stands


def place_name(place: int) -> str:
    """What weights of whoever stands in a place of the pool are published by."""
    return f"pool/{place}"
