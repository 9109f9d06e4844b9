"""What a player sees: three encodings of the engine's 460 numbers, for several agents at once.

Every agent sees its own side as the left one, which plays to the right: for the right side
the field is turned by half a circle. `simple115` and `minimap` give the numbers of
gfootball's own `simple115v2` and `extracted`.
"""

from __future__ import annotations

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

_ABSENT = np.zeros(115, np.float32)
_ABSENT[:88] = -1.0
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
    bases: list[np.ndarray | None] = [None, None]
    out = np.empty((len(seats), 115), np.float32)
    agents = raw[AGENTS].reshape(2, 11, 11)
    for row, (side, number) in zip(out, seats, strict=True):
        base = bases[side]
        if base is None:
            base = bases[side] = _base115(raw, side)
        row[:] = base
        player = int(agents[side, number, 0])
        if player >= 0:
            row[97 + player] = 1.0
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
    out = np.zeros((len(seats), 221), np.float32)
    out[:, :115] = simple115(raw, seats)
    all_players, agents = raw[PLAYERS].reshape(2, 11, 9), raw[AGENTS].reshape(2, 11, 11)
    for row, (side, number) in zip(out, seats, strict=True):
        sign = np.float32(-1.0 if side else 1.0)
        own, other = all_players[side], all_players[1 - side]
        counts = int(raw[16 + side]), int(raw[17 - side])
        row[22 : 22 + 2 * counts[0]] *= SPEED
        row[66 : 66 + 2 * counts[1]] *= SPEED
        row[91:94] *= SPEED
        agent = agents[side, number]
        row[127:137] = agent[_MIRROR] if side else agent[1:]
        row[147] = 1.0 - raw[15] / duration
        row[148] = min(max(sign * (raw[12] - raw[13]) / 5.0, -1.0), 1.0)
        row[149:152] = raw[6:9]
        row[199:210], row[210:221] = own[:, 4], other[:, 4]
        if agent[0] >= 0:
            _own_player(row, raw, own, other, int(agent[0]), sign, counts)
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


def _base115(raw: np.ndarray, side: int) -> np.ndarray:
    """simple115 as all agents of `side` see it: no player is the own one."""
    sign = np.float32(-1.0 if side else 1.0)
    players = raw[PLAYERS].reshape(2, 11, 9)
    base = _ABSENT.copy()
    for start, team in ((0, side), (44, 1 - side)):
        count = int(raw[16 + team])
        moved = sign * players[team, :count, :4]
        base[start : start + 2 * count].reshape(count, 2)[:] = moved[:, :2]
        base[start + 22 : start + 22 + 2 * count].reshape(count, 2)[:] = moved[:, 2:]
    base[88:94] = raw[:6]
    if side:
        base[[88, 89, 91, 92]] *= sign
    owner = int(raw[9])
    base[94 if owner < 0 else 95 if owner == side else 96] = 1.0
    base[108 + int(raw[11])] = 1.0
    return base


def _own_player(
    row: np.ndarray,
    raw: np.ndarray,
    own: np.ndarray,
    other: np.ndarray,
    player: int,
    sign: np.float32,
    counts: tuple[int, int],
) -> None:
    """What `floats` says of the agent's own player and of everything relative to it."""
    mine = own[player]
    x, y = sign * mine[0], sign * mine[1]
    row[115], row[116] = x, y
    row[117:119] = sign * SPEED * mine[2:4]
    ball_x, ball_y = row[88] - x, row[89] - y
    row[119], row[120], row[121] = ball_x, ball_y, np.hypot(ball_x, ball_y)
    row[122], row[123], row[124] = 1.0 - x, -y, np.hypot(1.0 - x, y)
    row[125], row[126] = mine[4], mine[6]
    role = int(mine[7])
    if 0 <= role < ROLES:
        row[137 + role] = 1.0
    for start, team, count in ((155, own, counts[0]), (177, other, counts[1])):
        row[start : start + 2 * count].reshape(count, 2)[:] = sign * (team[:count, :2] - mine[:2])
    if counts[1]:
        away = row[177 : 177 + 2 * counts[1]].reshape(-1, 2)
        distances = np.hypot(away[:, 0], away[:, 1])
        nearest = int(distances.argmin())
        row[152:154], row[154] = away[nearest], distances[nearest]


def _cells(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the minimap for float64 `[n, 2]`, those outside at its edge."""
    x = ((points[:, 0] + 1.0) / 2.0 * MINIMAP_WIDTH).astype(np.int64)
    y = ((points[:, 1] - TOP) / (-TOP - TOP) * MINIMAP_HEIGHT).astype(np.int64)
    return y.clip(0, MINIMAP_HEIGHT - 1), x.clip(0, MINIMAP_WIDTH - 1)
