"""What a job needs beside algorithm, model and environment: budget, cluster, players, run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lamarckian_cli.errors import require


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When training stops: whichever comes first. At least one of the first two is given."""

    env_steps: int | None = 2_000_000
    seconds: float | None = None
    stop_return: float | None = None  # mean of the last `evaluation.window` matches reaches it
    stop_win_rate: float | None = None

    def __post_init__(self) -> None:
        require(
            self.env_steps is not None or self.seconds is not None,
            "budget.env_steps",
            None,
            "give budget.env_steps or budget.seconds, else the run has no end",
        )
        for name in ("env_steps", "seconds"):
            value = getattr(self, name)
            require(
                value is None or value > 0,
                f"budget.{name}",
                value,
                "it must be above 0, or null for no limit",
            )
        rate = self.stop_win_rate
        require(
            rate is None or 0 < rate <= 1, "budget.stop_win_rate", rate, "it must lie in (0, 1], or be null"
        )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the job runs.

    `inproc`: one process, deterministic. `local`: Ray on this machine, started for the job.
    `auto`: the Ray cluster that is there. A cluster that is named by its size is `auto` with
    `cores`, which the machines that are there must have.
    """

    kind: str = "local"
    actors: int | None = 2  # None: one a core, of `cores` or of all that are free
    matches: int = 64  # at once, per actor
    queue_batches: float = 1.0  # sampled ahead of the learner before actors wait for new weights
    restart_limit: int = 10  # times that a killed actor is started again
    start_timeout_s: float = 60.0
    cores: int | None = None  # for actors, as the cluster's name asks for; None: what is there
    cores_per_machine: int = 40  # of a named cluster
    learner_gpus: int = 0  # that the learner must have; where there is one it gets it anyway
    on_shortage: str = "stop"  # or shrink
    address: str = "auto"  # of the Ray cluster that `auto` joins
    working_dir: str | None = None  # folder that every machine is given; for a game of one's own
    broadcast: str = "tree"  # or flat
    fanout: str | int = "sqrt"  # of the tree: sqrt, auto (by measured links), or a number
    half_precision: bool = False  # weights travel as float16
    port: int = 0  # that node agents listen on; 0: any free one
    silence_s: float = 10.0  # after which a machine that does not answer is done without

    def __post_init__(self) -> None:
        kinds = ("inproc", "local", "auto")
        require(self.kind in kinds, "cluster.kind", self.kind, f"choose one of {', '.join(kinds)}")
        require(
            self.working_dir is None or bool(self.working_dir.strip()),
            "cluster.working_dir",
            self.working_dir,
            "give the folder that has your game, or null",
        )
        self._check_sizes()
        choices = {"on_shortage": ("stop", "shrink"), "broadcast": ("tree", "flat")}
        for name, allowed in choices.items():
            value = getattr(self, name)
            require(value in allowed, f"cluster.{name}", value, f"choose {' or '.join(allowed)}")
        require(
            self.fanout in ("sqrt", "auto") if isinstance(self.fanout, str) else self.fanout >= 1,
            "cluster.fanout",
            self.fanout,
            "give sqrt, auto, or a number of at least 1",
        )
        require(
            self.port == 0 or 1024 <= self.port <= 65535,
            "cluster.port",
            self.port,
            "it must be 1024 to 65535, or 0 for a free one",
        )
        for name, usual in (("start_timeout_s", 60), ("silence_s", 10)):
            value = getattr(self, name)
            require(value > 0, f"cluster.{name}", value, f"it must be above 0 ({usual})")

    def check_here(self) -> None:
        """Raise a ConfigError where this machine, on which a job is about to start, has no `working_dir`."""
        folder = self.working_dir
        require(
            folder is None or (os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK)),
            "cluster.working_dir",
            folder,
            "it must be a folder that is there and can be read: give the one that has your game, or null",
        )

    def _check_sizes(self) -> None:
        for name in ("actors", "cores", "cores_per_machine"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"cluster.{name}", value, "it must be at least 1")
        require(
            self.kind == "auto" or self.actors is not None,
            "cluster.actors",
            None,
            f"cluster={self.kind} needs a number of actors, such as 2",
        )
        require(
            self.kind != "inproc" or self.actors == 1,
            "cluster.actors",
            self.actors,
            "cluster=inproc has one actor; raise cluster.matches, or take cluster=local",
        )
        require(
            self.matches >= 1, "cluster.matches", self.matches, "it must be at least 1 (64 suits most games)"
        )
        require(
            self.queue_batches >= 0,
            "cluster.queue_batches",
            self.queue_batches,
            "it must be 0 (actors wait for each update) or more (1)",
        )
        require(self.restart_limit >= 0, "cluster.restart_limit", self.restart_limit, "it must be 0 or more")
        require(self.learner_gpus in (0, 1), "cluster.learner_gpus", self.learner_gpus, "it must be 0 or 1")


POOL = "pool"  # the seats of self-play's opponents


@dataclass(frozen=True, kw_only=True)
class Players:
    """Who plays each seat of a match.

    A name (`main`) is a policy that trains there; the same name on two seats is one shared
    policy. `builtin` is the game's own opponent, `random` plays random legal actions,
    `frozen:RUN` the policy of a finished run, and `pool` an opponent of self-play, the same on
    all of its seats; these four record nothing.
    """

    seats: tuple[str, ...] | None = None  # None: `main` on the first seat, `builtin` or `pool` on the rest

    def __post_init__(self) -> None:
        require(
            self.seats is None or (len(self.seats) > 0 and any(is_trained(s) for s in self.seats)),
            "players.seats",
            self.seats,
            "at least one seat must be played by a policy that trains, such as main",
        )


def is_trained(player: str) -> bool:
    """Whether a seat's player is a policy that trains."""
    return player not in ("builtin", "random", POOL) and not player.startswith("frozen:")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How progress is judged."""

    window: int = 100  # finished training matches that the shown return and win rate average
    episodes: int = 100  # matches of `lamarck eval`, played greedily

    def __post_init__(self) -> None:
        require(self.window >= 1, "evaluation.window", self.window, "it must be at least 1")
        require(self.episodes >= 1, "evaluation.episodes", self.episodes, "it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run folder."""

    dir: str = ""
    checkpoint_every_s: float = 60.0  # with Ray
    checkpoint_every_env_steps: int = 500_000  # in process, where a clock would not be deterministic
    keep_checkpoints: int = 3
    log_every_s: float = 2.0

    def __post_init__(self) -> None:
        for name in ("checkpoint_every_s", "checkpoint_every_env_steps", "log_every_s"):
            value = getattr(self, name)
            require(value > 0, f"run.{name}", value, "it must be above 0")
        require(
            self.keep_checkpoints >= 1, "run.keep_checkpoints", self.keep_checkpoints, "it must be at least 1"
        )
