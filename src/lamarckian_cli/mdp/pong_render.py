"""Draws Pong for people: a picture for videos, lines of text for a terminal. NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HEIGHT, WIDTH = 360, 480
TOP, BOTTOM = 12, HEIGHT - 12  # rows where y = 1 and y = -1
LEFT, RIGHT = 28, WIDTH - 28  # columns of the bats' lines, x = -1 and x = 1
BAT_WIDTH = 8
TEXT_ROWS, TEXT_COLUMNS = 21, 61

GROUND = (15, 18, 28)
COURT = (38, 44, 62)
SCORE = (74, 84, 112)
BATS = ((86, 204, 242), (242, 153, 74))
WHITE = (240, 244, 250)

# Digits 0..9, five rows of three pixels each.
_DIGITS = (
    "###/#.#/#.#/#.#/###",
    ".#./##./.#./.#./###",
    "###/..#/###/#../###",
    "###/..#/###/..#/###",
    "#.#/#.#/###/..#/..#",
    "###/#../###/..#/###",
    "###/#../###/#.#/###",
    "###/..#/..#/.#./.#.",
    "###/#.#/###/#.#/###",
    "###/#.#/###/..#/###",
)
_DIGIT_SCALE = 8


class PongView(NamedTuple):
    """What there is to draw; positions in [-1, 1], sizes are halves. Seat 0 is on the left."""

    bats: tuple[float, float]
    x: float
    y: float
    scores: tuple[int, int]
    bat: float
    ball: float


def draw(view: PongView) -> np.ndarray:
    """The picture, `[360, 480, 3]` uint8."""
    picture = _COURT_PICTURE.copy()
    for seat, score in enumerate(view.scores):
        _draw_number(picture, score, WIDTH // 4 if seat == 0 else 3 * WIDTH // 4)
    half = view.bat * (BOTTOM - TOP) / 2
    for seat, y in enumerate(view.bats):
        row = _row(y)
        column = LEFT - BAT_WIDTH if seat == 0 else RIGHT
        picture[round(row - half) : round(row + half), column : column + BAT_WIDTH] = BATS[seat]
    _draw_ball(picture, _row(view.y), _column(view.x), view.ball * (BOTTOM - TOP) / 2)
    return picture


def draw_text(view: PongView) -> str:
    """The same as 23 lines of 63 characters, with the score above."""
    grid = [[" "] * TEXT_COLUMNS for _ in range(TEXT_ROWS)]
    for row in range(0, TEXT_ROWS, 2):
        grid[row][TEXT_COLUMNS // 2] = "┊"
    for seat, y in enumerate(view.bats):
        first, last = _text_row(y + view.bat), _text_row(y - view.bat)
        for row in range(first, last + 1):
            grid[row][0 if seat == 0 else -1] = "█"
    column = min(max(round((view.x + 1) / 2 * (TEXT_COLUMNS - 3)) + 1, 1), TEXT_COLUMNS - 2)
    grid[_text_row(view.y)][column] = "●"
    score = f" {view.scores[0]} : {view.scores[1]} "
    lines = ["┌" + score.center(TEXT_COLUMNS, "─") + "┐"]
    lines += ["│" + "".join(row) + "│" for row in grid]
    lines.append("└" + "─" * TEXT_COLUMNS + "┘")
    return "\n".join(lines)


def _row(y: float) -> float:
    return TOP + (1.0 - y) / 2 * (BOTTOM - TOP)


def _column(x: float) -> float:
    return LEFT + (x + 1.0) / 2 * (RIGHT - LEFT)


def _text_row(y: float) -> int:
    return min(max(round((1.0 - y) / 2 * (TEXT_ROWS - 1)), 0), TEXT_ROWS - 1)


def _draw_number(picture: np.ndarray, number: int, centre: int) -> None:
    """`number` below the top edge, around column `centre`."""
    digits = [_DIGIT_MASKS[int(character)] for character in str(number)]
    gap = np.zeros((digits[0].shape[0], _DIGIT_SCALE), bool)
    mask = np.concatenate([part for digit in digits for part in (digit, gap)][:-1], axis=1)
    left = max(0, centre - mask.shape[1] // 2)
    area = picture[TOP + 14 : TOP + 14 + mask.shape[0], left : left + mask.shape[1]]
    area[mask[:, : area.shape[1]]] = SCORE


def _draw_ball(picture: np.ndarray, row: float, column: float, radius: float) -> None:
    """A white disc with a soft edge."""
    top, left = int(row - radius) - 1, int(column - radius) - 1
    size = int(2 * radius) + 4
    patch = picture[top : top + size, left : left + size]
    rows, columns = np.ogrid[top : top + patch.shape[0], left : left + patch.shape[1]]
    distance = np.hypot(rows + 0.5 - row, columns + 0.5 - column)
    cover = np.clip(radius + 0.5 - distance, 0.0, 1.0)[..., None]
    patch[:] = patch * (1.0 - cover) + np.array(WHITE) * cover


def _digit_mask(drawing: str) -> np.ndarray:
    """A digit as bool, each of its pixels a square."""
    pixels = np.array([[character == "#" for character in row] for row in drawing.split("/")])
    return pixels.repeat(_DIGIT_SCALE, axis=0).repeat(_DIGIT_SCALE, axis=1)


def _court() -> np.ndarray:
    """Everything that never moves."""
    picture = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    picture[:] = GROUND
    picture[TOP - 4 : TOP] = COURT
    picture[BOTTOM : BOTTOM + 4] = COURT
    for row in range(TOP + 8, BOTTOM - 8, 24):
        picture[row : row + 12, WIDTH // 2 - 2 : WIDTH // 2 + 2] = COURT
    return picture


_DIGIT_MASKS = tuple(_digit_mask(drawing) for drawing in _DIGITS)
_COURT_PICTURE = _court()
