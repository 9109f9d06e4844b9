"""The 19 actions of Google Research Football, and which of them make sense when.

Directions are seen from one's own side, which always plays to the right; the engine knows
the field's directions alone, so those of the right side are turned round. A direction,
`sprint` and `dribble` are sticky: they are held until another takes their place, or until
they are released.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamarckian_cli.mdp.football.raw import AGENTS, PLAYERS, RAW_SIZE

NAMES = (
    *("idle", "left", "top_left", "top", "top_right", "right", "bottom_right", "bottom", "bottom_left"),
    *("long_pass", "high_pass", "short_pass", "shot", "sprint", "release_direction", "release_sprint"),
    *("sliding", "dribble", "release_dribble"),
)
BACKEND = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 18, 20, 30, 14, 19, 31)  # the engine's numbers
TURNED = (0, 5, 6, 7, 8, 1, 2, 3, 4, *BACKEND[9:])  # for the right side
ORDERS = (BACKEND, TURNED)  # by side

IDLE, LEFT, RIGHT, BOTTOM_LEFT = 0, 1, 5, 8
LONG_PASS, HIGH_PASS, SHORT_PASS, SHOT, SPRINT = 9, 10, 11, 12, 13
RELEASE_DIRECTION, RELEASE_SPRINT, SLIDING, DRIBBLE, RELEASE_DRIBBLE = 14, 15, 16, 17, 18

REACH = 0.2  # of the field's half length, about 11 m: from farther off nobody plays a free ball or slides
OVERHEAD = 2.5  # metres; a ball above it is dribbled and slid for by nobody
NORMAL, THROW_IN, PENALTY = 0, 5, 6  # of the game's modes


def legal(raw: np.ndarray, seats: Sequence[tuple[int, int]], *, offsides: bool) -> np.ndarray:
    """Which actions make sense, bool `[n, 19]`, for the agents `seats`: (side, number on that side).

    `raw`: float32 [460], what the engine observes (`raw.py`). To be idle and to move is
    always legal. Illegal, and nothing else:

    - everything but idle, where the agent has no player, or one who was sent off;
    - to release what is not held, and to sprint or dribble again while it is held;
    - to pass, shoot or dribble while the other side has the ball; while a team-mate has it;
      and with a free ball farther off than `REACH`; to dribble a ball that is free or overhead;
    - to slide with the ball or while a team-mate has it, overhead, or farther off than `REACH`;
    - in a set piece, to slide, sprint or dribble, and for those who do not take it to pass or
      shoot; to shoot a throw-in; to pass a penalty;
    - to pass where every team-mate stands off side (not from a throw-in, corner or goal kick).
    """
    masks = np.ones((len(seats), len(NAMES)), bool)
    if raw.shape != (RAW_SIZE,):
        raise ValueError(f"raw has shape {raw.shape}, expected ({RAW_SIZE},)")
    ball_x, ball_y, ball_z = raw[:3].tolist()
    owner_side, owner, mode = int(raw[9]), int(raw[10]), int(raw[11])
    players, agents = raw[PLAYERS].reshape(2, 11, 9), raw[AGENTS].reshape(2, 11, 11)
    for mask, (side, number) in zip(masks, seats, strict=True):
        agent = agents[side, number].tolist()
        player = int(agent[0])
        if player < 0 or not players[side, player, 5]:
            mask[1:] = False
            continue
        mask[RELEASE_DIRECTION] = any(agent[1:9])
        mask[SPRINT], mask[RELEASE_SPRINT] = not agent[9], bool(agent[9])
        mask[DRIBBLE], mask[RELEASE_DRIBBLE] = not agent[10], bool(agent[10])
        x, y = players[side, player, :2].tolist()
        near = (x - ball_x) ** 2 + (y - ball_y) ** 2 <= REACH * REACH
        has_ball = owner_side == side and owner == player
        if not has_ball:
            mask[DRIBBLE] = False
            if owner_side >= 0 or not near or mode != NORMAL:
                mask[LONG_PASS : SHOT + 1] = False
        if owner_side == side or ball_z > OVERHEAD or not near:
            mask[SLIDING] = False
        if ball_z > OVERHEAD:
            mask[DRIBBLE] = False
        if mode != NORMAL:
            mask[SLIDING] = mask[SPRINT] = mask[DRIBBLE] = False
            if mode == THROW_IN:
                mask[SHOT] = False
            elif mode == PENALTY:
                mask[LONG_PASS : SHORT_PASS + 1] = False
        elif has_ball and offsides and all_offside(raw, side, player):
            mask[LONG_PASS : SHORT_PASS + 1] = False
    return masks


def all_offside(raw: np.ndarray, side: int, player: int) -> bool:
    """Whether every team-mate of `player` on `side` stands off side, were the ball played now.

    Off side: in the other half, and nearer to its goal line than the ball and all but one of
    the other side's players.
    """
    sign = -1.0 if side else 1.0
    players = raw[PLAYERS].reshape(2, 11, 9)
    there = players[:, :, 5] > 0
    mates = there[side].copy()
    mates[player] = False
    if not mates.any():
        return False
    others = np.sort(sign * players[1 - side, there[1 - side], 0])
    line = max(float(others[-2]) if len(others) > 1 else 0.0, sign * float(raw[0]), 0.0)
    return bool((sign * players[side, mates, 0] > line).all())
