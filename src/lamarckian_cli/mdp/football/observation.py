"""What a player sees: three encodings of the engine's 460 numbers, for several agents at once.

Every agent sees its own side as the left one, which plays to the right: for the right side
the field is turned by half a circle. `simple115` and `minimap` give the numbers of
gfootball's own `simple115v2` and `extracted`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lamarckian_cli.mdp.football.raw import AGENTS, PLAYERS

Seats = Sequence[tuple[int, int]]  # (side, number on that side) of each agent
Encode = Callable[[np.ndarray, Seats, float], np.ndarray]

SPEED = 50.0  # movements are some hundredths a step
ROLES = 10
MINIMAP_WIDTH, MINIMAP_HEIGHT = 96, 72
TOP = -1.0 / 2.25  # of the minimap; x spans -1 to 1

UNUSED = 19  # a number that is always 0
_MIRROR = np.array([5, 6, 7, 8, 1, 2, 3, 4, 9, 10])  # an agent's flags as seen from the right side


class Encoding(NamedTuple):
    """`encode(raw, seats, duration) -> [n, *shape]`: `duration` is the match's length in steps."""

    shape: tuple[int, ...]
    dtype: str
    encode: Encode


def simple115(raw: np.ndarray, seats: Seats, duration: float = 0.0) -> np.ndarray:
    """float32 `[n, 115]`, as gfootball's simple115v2.

    0-43 own side: positions of 11 players, then their movements; 44-87 the other side; -1 for
    those who do not exist. 88-90 the ball, 91-93 its movement, 94-96 who has it (nobody, own
    side, other side), 97-107 the agent's own player, 108-114 the mode of the game.
    """
    out = np.empty((len(seats), 115), np.float32)
    for row, (side, number) in zip(out, seats, strict=True):
        _gather(row, raw, _simple_plan(side, int(raw[16 + side]), int(raw[17 - side])))
        _mark(row, raw, side, int(raw[218 + 121 * side + 11 * number]))
    return out


def floats(raw: np.ndarray, seats: Seats, duration: float) -> np.ndarray:
    """float32 `[n, 221]`: simple115 with all movements times 50, and

    115-118 own player's position and movement; 119-121 ball relative to it, and its distance;
    122-124 the goal likewise; 125, 126 own tiredness, yellow card; 127-136 what is held;
    137-146 own role; 147 share of the match that is left; 148 lead in goals over 5, within
    [-1, 1]; 149-151 rotation of the ball; 152-154 nearest opponent relative to it, and its
    distance; 155-198 all 22 players relative to it (0 for those who do not exist);
    199-220 tiredness of all 22.
    """
    out = np.empty((len(seats), 221), np.float32)
    left = 1.0 - float(raw[15]) / duration
    for row, (side, number) in zip(out, seats, strict=True):
        plan = _rich_plan(side, number, int(raw[16 + side]), int(raw[17 - side]))
        _gather(row, raw, plan)
        player = int(raw[218 + 121 * side + 11 * number])
        _mark(row, raw, side, player)
        lead = float(raw[12 + side] - raw[13 - side])
        row[147], row[148] = left, min(max(lead / 5.0, -1.0), 1.0)
        if player >= 0:
            _own_player(row, raw[20 + 99 * side + 9 * player :][:9].tolist(), side, plan)
        else:
            row[155:199] = 0.0
    return out


def minimap(raw: np.ndarray, seats: Seats, duration: float = 0.0) -> np.ndarray:
    """uint8 `[n, 4, 72, 96]`, 0 or 255, as gfootball's `extracted` with channels first.

    Channels: own side, the other side, the ball, the agent's own player.
    """
    out = np.zeros((len(seats), 4, MINIMAP_HEIGHT, MINIMAP_WIDTH), np.uint8)
    agents = raw[AGENTS].reshape(2, 11, 11)
    points = np.empty((23, 2))
    points[:22] = raw[PLAYERS].reshape(22, 9)[:, :2]
    points[22] = raw[:2]
    cells = _cells(points), _cells(-points)
    for picture, (side, number) in zip(out, seats, strict=True):
        y, x = cells[side]
        for channel, team in enumerate((side, 1 - side)):
            there = slice(11 * team, 11 * team + int(raw[16 + team]))
            picture[channel, y[there], x[there]] = 255
        picture[2, y[22], x[22]] = 255
        player = int(agents[side, number, 0])
        if player >= 0:
            picture[3, y[11 * side + player], x[11 * side + player]] = 255
    return out


ENCODINGS = {
    "simple115": Encoding((115,), "float32", simple115),
    "floats": Encoding((221,), "float32", floats),
    "minimap": Encoding((4, MINIMAP_HEIGHT, MINIMAP_WIDTH), "uint8", minimap),
}


# ------------------------------------------------------------------ parts


class _Plan(NamedTuple):
    """A row is `raw[places] * scale + offset`, but for what depends on values."""

    places: np.ndarray
    scale: np.ndarray
    offset: np.ndarray
    there: np.ndarray  # float32 [22, 1]: 1 for players who exist, own side first
    others: int  # players of the other side


@functools.lru_cache(maxsize=256)
def _simple_plan(side: int, own: int, others: int) -> _Plan:
    """simple115 for a side of `own` players against `others`, without its one-hot parts."""
    sign = -1.0 if side else 1.0
    places = np.full(115, UNUSED)
    scale, offset = np.zeros(115, np.float32), np.zeros(115, np.float32)
    for start, team, count in ((0, side, own), (44, 1 - side, others)):
        for part in (0, 1):  # positions, movements
            players = slice(start + 22 * part, start + 22 * part + 2 * count)
            places[players] = [
                20 + 99 * team + 9 * player + 2 * part + axis for player in range(count) for axis in (0, 1)
            ]
            scale[players] = sign
            offset[players.stop : start + 22 * part + 22] = -1.0
    places[88:94] = range(6)
    scale[88:94] = sign, sign, 1.0, sign, sign, 1.0
    there = np.zeros((22, 1), np.float32)
    there[:own] = there[11 : 11 + others] = 1.0
    return _Plan(places, scale, offset, there, others)


@functools.lru_cache(maxsize=256)
def _rich_plan(side: int, number: int, own: int, others: int) -> _Plan:
    """`floats` of an agent, with positions of all where those relative to its player go."""
    simple = _simple_plan(side, own, others)
    places = np.full(221, UNUSED)
    scale, offset = np.zeros(221, np.float32), np.zeros(221, np.float32)
    places[:115], scale[:115], offset[:115] = simple.places, simple.scale, simple.offset
    for first, last in ((22, 22 + 2 * own), (66, 66 + 2 * others), (91, 94)):
        scale[first:last] *= SPEED
    places[127:137] = 218 + 121 * side + 11 * number + (_MIRROR if side else np.arange(1, 11))
    places[149:152] = 6, 7, 8
    scale[127:137] = scale[149:152] = 1.0
    for place, team in enumerate((side, 1 - side)):
        players = 20 + 99 * team + 9 * np.arange(11)
        places[155 + 22 * place : 177 + 22 * place] = (players[:, None] + (0, 1)).ravel()
        places[199 + 11 * place : 210 + 11 * place] = players + 4
    scale[155:199] = np.repeat((-1.0 if side else 1.0) * simple.there, 2)
    scale[199:221] = simple.there[:, 0]
    return _Plan(places, scale, offset, simple.there, others)


def _gather(row: np.ndarray, raw: np.ndarray, plan: _Plan) -> None:
    raw.take(plan.places, out=row, mode="clip")  # which, unlike "raise", needs no copy
    row *= plan.scale
    row += plan.offset


def _mark(row: np.ndarray, raw: np.ndarray, side: int, player: int) -> None:
    """The one-hot parts of simple115: who has the ball, the own player, the mode of the game."""
    owner = int(raw[9])
    row[94 if owner < 0 else 95 if owner == side else 96] = 1.0
    if player >= 0:
        row[97 + player] = 1.0
    row[108 + int(raw[11])] = 1.0


def _own_player(row: np.ndarray, mine: list[float], side: int, plan: _Plan) -> None:
    """What `floats` says of the agent's own player, whose nine numbers are `mine`, and relative to it."""
    sign = -1.0 if side else 1.0
    x, y = sign * mine[0], sign * mine[1]
    ball_x, ball_y = float(row[88]) - x, float(row[89]) - y
    row[115:127] = (
        *(x, y, sign * SPEED * mine[2], sign * SPEED * mine[3]),
        *(ball_x, ball_y, math.hypot(ball_x, ball_y)),
        *(1.0 - x, -y, math.hypot(1.0 - x, y)),
        *(mine[4], mine[6]),
    )
    role = int(mine[7])
    if 0 <= role < ROLES:
        row[137 + role] = 1.0
    relative = row[155:199].reshape(22, 2)
    relative -= plan.there * np.array((x, y), np.float32)
    if plan.others:
        away = relative[11 : 11 + plan.others]
        distances = (away * away).sum(axis=1)
        nearest = int(distances.argmin())
        row[152:154], row[154] = away[nearest], math.sqrt(distances[nearest])


def _cells(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the minimap for float64 `[n, 2]`, those outside at its edge."""
    x = ((points[:, 0] + 1.0) / 2.0 * MINIMAP_WIDTH).astype(np.int64)
    y = ((points[:, 1] - TOP) / (-TOP - TOP) * MINIMAP_HEIGHT).astype(np.int64)
    return y.clip(0, MINIMAP_HEIGHT - 1), x.clip(0, MINIMAP_WIDTH - 1)
