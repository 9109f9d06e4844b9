"""Scripted players for the seats that nobody drives."""

from __future__ import annotations

import math

import numpy as np

from lamarckian_cli.mdp.football.actions import IDLE, SHOT, SPRINT
from lamarckian_cli.mdp.football.raw import AGENTS, PLAYERS

SCRIPTS = ("builtin", "idle", "chase")
SHOOT_FROM = 0.65  # x from which the script shoots
DIRECTIONS = (5, 4, 3, 2, 1, 8, 7, 6)  # right, then against the clock; y points down


def chase(raw: np.ndarray, side: int, number: int) -> int:
    """Runs after the ball, runs with it towards the goal, and shoots: an action 0..18.

    `raw` as in `raw.py`; the agent is `number` of `side`.
    """
    sign = -1.0 if side else 1.0
    agent = raw[AGENTS].reshape(2, 11, 11)[side, number]
    player = int(agent[0])
    if player < 0:
        return IDLE
    x, y = (sign * raw[PLAYERS].reshape(2, 11, 9)[side, player, :2]).tolist()
    if int(raw[9]) == side and int(raw[10]) == player:
        if x > SHOOT_FROM:
            return SHOT
        target_x, target_y = 1.0, 0.0
    else:
        target_x, target_y = sign * float(raw[0]), sign * float(raw[1])
    if not agent[9]:
        return SPRINT
    angle = math.atan2(y - target_y, target_x - x)
    return DIRECTIONS[round(angle / (math.pi / 4)) % 8]
