"""What a video says on top of the engine's picture: the score, and what every agent does."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lamarckian_cli.errors import MissingPackage, pip_install
from lamarckian_cli.mdp.football.actions import NAMES
from lamarckian_cli.mdp.football.pitch import MODES
from lamarckian_cli.mdp.football.raw import AGENTS

BAR = 24  # rows of the scoreboard, which covers the engine's own
LINE, COLUMN = 18, 200  # rows and columns of what is said of one agent
MARGIN, ARROW = 8, 6
WHITE, YELLOW, DARK = (240, 244, 250), (250, 210, 80), (15, 18, 28)
DIM = 0.35  # of the picture's light, behind text
WAYS = (
    (-1, 0),
    (-1, -1),
    (0, -1),
    (1, -1),
    (1, 0),
    (1, 1),
    (0, 1),
    (-1, 1),
)  # x, y of what is held: left ...


def caption(
    picture: np.ndarray,
    raw: np.ndarray,
    driven: Sequence[tuple[int, int]],
    actions: Sequence[int],
    duration: int,
) -> np.ndarray:
    """A copy of `picture`, `[H, W, 3]` uint8, with captions.

    Above: the mode of the game, the score, the step of the `duration` that a match has. Below, on
    their own side: for each agent of `driven`, (side, number), the player whom it controls, its
    action of `actions` (none before the first), and what it holds: an arrow, sprint, dribble.
    Directions are those of the field. Raises MissingPackage without OpenCV.
    """
    cv2 = _load_cv2()
    out = picture.copy()
    height, width = out.shape[:2]
    out[:BAR] = DARK
    row = BAR - MARGIN
    _write(cv2, out, MODES[int(raw[11])], (MARGIN, row), WHITE)
    score = f"left {int(raw[12])} : {int(raw[13])} right"
    _write(cv2, out, score, ((width - _width(cv2, score)) // 2, row), YELLOW)
    steps = f"step {int(raw[15])} of {duration}"
    _write(cv2, out, steps, (width - MARGIN - _width(cv2, steps), row), WHITE)

    agents = raw[AGENTS].reshape(2, 11, 11)
    below = [height, height]  # the first row of what each side has been given
    for index in reversed(range(len(driven))):
        side, number = driven[index]
        below[side] -= LINE
        left, top = side * (width - COLUMN), below[side]
        out[top : top + LINE, left : left + COLUMN] = out[top : top + LINE, left : left + COLUMN] * DIM
        action = _on_the_field(actions[index], side) if actions else ""
        _agent(cv2, out, agents[side, number], action, left + MARGIN, top)
    return out


def _on_the_field(action: int, side: int) -> str:
    """The action's name, where the right side's directions are turned round."""
    turned = (action + 3) % 8 + 1 if side and action in range(1, 9) else action
    return NAMES[turned].replace("_", " ")


def _agent(cv2: Any, out: np.ndarray, agent: np.ndarray, action: str, left: int, top: int) -> None:
    row = top + LINE - 5
    if agent[0] < 0:
        _write(cv2, out, "no player", (left, row), WHITE)
        return
    _write(cv2, out, f"{int(agent[0])}", (left, row), WHITE)
    for held, (x, y) in zip(agent[1:9], WAYS, strict=True):
        if held:
            middle = left + 28, top + LINE // 2
            tail, tip = ((middle[0] + s * x * ARROW, middle[1] + s * y * ARROW) for s in (-1, 1))
            cv2.arrowedLine(out, tail, tip, YELLOW, 1, cv2.LINE_AA, tipLength=0.4)
    _write(cv2, out, action, (left + 42, row), YELLOW)
    holds = " ".join(name for name, held in zip(("sprint", "dribble"), agent[9:], strict=True) if held)
    _write(cv2, out, holds, (left + COLUMN - 2 * MARGIN - _width(cv2, holds), row), WHITE)


def _write(
    cv2: Any, out: np.ndarray, text: str, where: tuple[int, int], colour: tuple[int, int, int]
) -> None:
    cv2.putText(out, text, where, cv2.FONT_HERSHEY_SIMPLEX, 0.4, colour, 1, cv2.LINE_AA)


def _width(cv2: Any, text: str) -> int:
    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)[0][0])


def _load_cv2() -> Any:
    try:
        return importlib.import_module("cv2")
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"captions need OpenCV, which is not installed: {pip_install('opencv-python-headless')}"
        ) from error
