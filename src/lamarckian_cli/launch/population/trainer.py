"""What trains a population, wherever its processes are: individuals are placed, and told of when done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from lamarckian_cli.launch.population.members import Placing, Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every individual gets."""

    env_steps: int  # to learn from
    matches: int  # that its results are means of
    apart: bool = False  # played once it has learned; otherwise the newest while it learns


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How the training stands."""

    env_steps: int  # taken in by all learners together
    dropped_env_steps: int  # that came too late for their individual
    actors: int


class Trainer(Protocol):
    notes: list[str]  # for the user, in order

    def place(self, member: str, placing: Placing) -> None:
        """Let an individual begin on a free member."""

    def give_up(self, member: str, error: str) -> None:
        """End an individual's time without a result; it is told of by `advance`, with this error."""

    def advance(self, timeout_s: float) -> list[Trained]:
        """Go on until somebody is done, but no longer than that; who is done."""

    def keep(self, individuals: Collection[int]) -> None:
        """Forget what others became than these."""

    def kept(self, individual: int) -> dict[str, Any]:
        """The learner's state that an individual came to; KeyError where it is not kept."""

    def report(self) -> Progress: ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs; whoever is being trained begins again."""

    def close(self) -> None:
        """End every process. Twice is fine."""
