"""What an evolution needs beside strategy, problem and cluster: workflow, budget, run folder."""

from __future__ import annotations

from dataclasses import dataclass

from lamarckian_cli.errors import require


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """The keys of `evo` that are the workflow's own; all others are the strategy's."""

    evaluations: int | None = 25_000  # that were told to the strategy, failed ones among them
    target: float | None = None  # of the single objective: the evolution ends when it is reached
    in_flight: int | None = None  # candidates that may be out at once; None: as the workers can take
    deadline_s: float | None = None  # of one evaluation; None: none
    retries: int = 1  # of an evaluation that hung, or whose worker died
    reference: tuple[float, ...] | None = None  # of the hypervolume, in the objectives' own senses

    def __post_init__(self) -> None:
        for name, usual in (("evaluations", 25_000), ("in_flight", 16), ("deadline_s", 60)):
            value = getattr(self, name)
            require(
                value is None or value > 0, f"evo.{name}", value, f"it must be above 0 ({usual}), or null"
            )
        require(self.retries >= 0, "evo.retries", self.retries, "it must be 0 or more")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When an evolution stops, beside `evo.evaluations` and `evo.target`."""

    seconds: float | None = None

    def __post_init__(self) -> None:
        require(
            self.seconds is None or self.seconds > 0,
            "budget.seconds",
            self.seconds,
            "it must be above 0, or null for no limit",
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run folder."""

    dir: str = ""
    checkpoint_every_s: float = 60.0
    keep_checkpoints: int = 3
    log_every_s: float = 2.0
    plots: bool = True  # of front and convergence, at the end

    def __post_init__(self) -> None:
        for name in ("checkpoint_every_s", "log_every_s"):
            value = getattr(self, name)
            require(value > 0, f"run.{name}", value, "it must be above 0")
        require(
            self.keep_checkpoints >= 1, "run.keep_checkpoints", self.keep_checkpoints, "it must be at least 1"
        )
