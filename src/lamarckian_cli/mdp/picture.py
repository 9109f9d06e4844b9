"""A picture as text for a terminal: two pixels a character, in 24-bit colour."""

from __future__ import annotations

import numpy as np

RESET = "\x1b[0m"


def picture_text(picture: np.ndarray, columns: int = 80) -> str:
    """Lines of upper half blocks, whose foreground is the upper and background the lower pixel.

    `picture` is `[H, W, 3]` uint8; it is averaged down to `columns` pixels across, and to as
    many rows of pixels as keep its proportions (a character is about twice as high as wide).
    A picture that is narrower stays as it is.
    """
    small = shrink(picture, columns)
    if small.shape[0] % 2:
        small = np.concatenate([small, np.zeros_like(small[:1])])
    return "\n".join(
        _line(upper, lower) for upper, lower in zip(small[::2].tolist(), small[1::2].tolist(), strict=True)
    )


def shrink(picture: np.ndarray, columns: int) -> np.ndarray:
    """`[H, W, 3]` uint8 averaged over blocks to `[h, columns, 3]`; no wider than it was."""
    height, width = picture.shape[:2]
    columns = min(columns, width)
    rows = max(1, round(height * columns / width))
    top = np.linspace(0, height, rows, endpoint=False).astype(int)
    left = np.linspace(0, width, columns, endpoint=False).astype(int)
    sums = np.add.reduceat(np.add.reduceat(picture.astype(np.uint32), top, axis=0), left, axis=1)
    count = np.diff(np.append(top, height))[:, None] * np.diff(np.append(left, width))[None, :]
    return (sums // count[:, :, None]).astype(np.uint8)


def _line(upper: list[list[int]], lower: list[list[int]]) -> str:
    """One line of text; a colour is written only where it changes."""
    parts, before = [], None
    for above, below in zip(upper, lower, strict=True):
        if (above, below) != before:
            parts.append("\x1b[38;2;{};{};{};48;2;{};{};{}m".format(*above, *below))
            before = (above, below)
        parts.append("▀")
    return "".join(parts) + RESET
