"""The pitch as lines of text."""

from __future__ import annotations

import numpy as np

from lamarckian_cli.mdp.football.raw import AGENTS, PLAYERS

WIDTH, HEIGHT = 77, 21  # characters
MODES = ("", "kick-off", "goal kick", "free kick", "corner", "throw-in", "penalty")


def pitch_text(raw: np.ndarray) -> str:
    """The score above the field: o and x are players, O and X controlled ones, * the ball."""
    players, agents = raw[PLAYERS].reshape(2, 11, 9), raw[AGENTS].reshape(2, 11, 11)
    lines = [[" "] * WIDTH for _ in range(HEIGHT)]
    for row in lines:
        row[0] = row[-1] = row[WIDTH // 2] = "|"
    for y in range(HEIGHT // 2 - 1, HEIGHT // 2 + 2):
        lines[y][0] = lines[y][-1] = "#"
    for side, letter in enumerate("ox"):
        controlled = set(agents[side, :, 0].astype(int).tolist())
        for number in range(int(raw[16 + side])):
            _put(lines, players[side, number, :2], letter.upper() if number in controlled else letter)
    _put(lines, raw[:2], "*")
    edge = "+" + "-" * (WIDTH - 2) + "+"
    score = f"{int(raw[12])}:{int(raw[13])}  step {int(raw[15])}  {MODES[int(raw[11])]}"
    return "\n".join([score, edge, *("".join(line) for line in lines), edge])


def _put(lines: list[list[str]], point: np.ndarray, letter: str) -> None:
    x = round((float(point[0]) + 1.0) / 2.0 * (WIDTH - 1))
    y = round((float(point[1]) / 0.42 + 1.0) / 2.0 * (HEIGHT - 1))
    lines[min(max(y, 0), HEIGHT - 1)][min(max(x, 0), WIDTH - 1)] = letter
