"""Who plays each seat of a game, checked against what the game can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.settings import POOL, is_trained
from lamarckian_cli.records import MDPSpec, SeatSpec

WIN = "win"  # what games report of a match's outcome: 1 won, 0.5 drawn, 0 lost
TWO = 2


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who plays each seat of a game, checked against what the game can do."""

    players: tuple[str, ...]  # one a seat
    trained: dict[str, SeatSpec]  # policy name -> what its seats look like
    driven: tuple[int, ...]  # seats that are played through a controller

    @property
    def pool(self) -> SeatSpec | None:
        """What the seats of self-play's opponents look like; None where there are none."""
        return next(iter(self.trained.values())) if POOL in self.players else None


def cast_players(job: Job, spec: MDPSpec) -> Cast:
    """Decide who plays each seat; ConfigError where the game cannot have it so."""
    players = job.players.seats or _usual_players(job, spec)
    if len(players) != len(spec.seats):
        raise ConfigError(
            f"players.seats is {list(players)}; {spec.name} has {len(spec.seats)} "
            f"seat{'s' if len(spec.seats) > 1 else ''}, so it must name {len(spec.seats)}, "
            f"such as {['main'] * len(spec.seats)}"
        )
    trained: dict[str, SeatSpec] = {}
    for number, (player, seat) in enumerate(zip(players, spec.seats, strict=True)):
        if player == "builtin" and number not in spec.builtin_seats:
            raise ConfigError(
                f"players.seats[{number}] is 'builtin'; {spec.name} has no opponent of its own there "
                "(name a policy, or take random)"
            )
        if is_trained(player):
            known = trained.setdefault(player, seat)
            if (known.inputs, known.heads, known.rewards) != (seat.inputs, seat.heads, seat.rewards):
                raise ConfigError(
                    f"players.seats is {list(players)}; seat {number} of {spec.name} differs from the other "
                    f"that {player!r} plays, so it needs a policy of another name"
                )
    if job.members:
        trained = _members(job, players, trained)
    _check_selfplay(job, players, trained, spec)
    return Cast(players=tuple(players), trained=trained, driven=_driven(players))


def judged(cast: Cast, spec: MDPSpec) -> Cast:
    """Who plays when a run is judged: the game's own opponent has the pool's seats, where there is one."""
    players = tuple(
        "builtin" if player == POOL and seat in spec.builtin_seats else player
        for seat, player in enumerate(cast.players)
    )
    return replace(cast, players=players, driven=_driven(players))


def _driven(players: Sequence[str]) -> tuple[int, ...]:
    return tuple(number for number, player in enumerate(players) if player != "builtin")


def _usual_players(job: Job, spec: MDPSpec) -> tuple[str, ...]:
    rest = range(1, len(spec.seats))
    if job.selfplay.matchmaking == "none":
        return ("main", *["builtin" if seat in spec.builtin_seats else "main" for seat in rest])
    if len(spec.seats) != TWO:
        raise ConfigError(
            f"selfplay.matchmaking is {job.selfplay.matchmaking!r}; {spec.name} has {len(spec.seats)} "
            f"seat{'s' if len(spec.seats) > 1 else ''}, "
            + (
                "and there is nobody to play against; take selfplay=none"
                if len(spec.seats) < TWO
                else f"so say in players.seats who are main's and who {POOL}'s, such as "
                f"{['main'] * (len(spec.seats) // 2) + [POOL] * (len(spec.seats) - len(spec.seats) // 2)}"
            )
        )
    return ("main", POOL)


def _check_selfplay(job: Job, players: Sequence[str], trained: dict[str, SeatSpec], spec: MDPSpec) -> None:
    """Hold seats of the pool against what self-play needs; ConfigError where they do not go together."""
    rule, shown = job.selfplay.matchmaking, f"players.seats is {list(players)}"
    if POOL not in players:
        if rule != "none":
            raise ConfigError(f"{shown}; with selfplay.matchmaking={rule} one must be {POOL!r}, or take none")
        return
    if rule == "none":
        raise ConfigError(f"{shown}; {POOL!r} needs self-play: take selfplay=pfsp, latest or another")
    if WIN not in spec.results:
        raise ConfigError(
            f"selfplay.matchmaking is {rule!r}; matches of {spec.name} do not report {WIN!r} (1, 0.5 or 0), "
            "by which players of the pool are rated"
        )
    if len(trained) > 1 and not job.members:
        raise ConfigError(
            f"{shown}; with {POOL!r} one policy trains, so that each match has one learner and one opponent"
        )
    [learner] = {id(seat): seat for seat in trained.values()}.values()
    for number, player in enumerate(players):
        seat = spec.seats[number]
        if player == POOL and (seat.inputs, seat.heads) != (learner.inputs, learner.heads):
            raise ConfigError(
                f"{shown}; seat {number} of {spec.name} differs from those of the policy that trains, so its "
                f"snapshots cannot play there"
            )


def _members(job: Job, players: Sequence[str], trained: dict[str, SeatSpec]) -> dict[str, SeatSpec]:
    """A population's members in the place of the one policy that trains."""
    if len(trained) > 1:
        raise ConfigError(
            f"players.seats is {list(players)}; a population takes the place of one policy, so name one "
            f"that trains, such as {['main' if is_trained(p) else p for p in players]}"
        )
    [seat] = trained.values()
    return dict.fromkeys(job.members, seat)
