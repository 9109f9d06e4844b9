"""Recording a match: `.mp4` through ffmpeg, `.gif` through Pillow, frame by frame."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage, RunError, pip_install

SUFFIXES = (".mp4", ".gif")
GIF_SHORTEST_MS = 20  # viewers take anything shorter for a mistake, and show it slowly

Append = Callable[[np.ndarray], None]


def check_video(path: Path) -> None:
    """Raise a LamarckError unless a video can be made at `path`; nothing is written."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--video is {str(path)!r}; its name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ConfigError(
            f"--video is {str(path)!r}; there is no folder {path.parent}: mkdir -p {path.parent}"
        )
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--video is {str(path)!r}, which cannot be written; give another file")
    modules = ("imageio_ffmpeg",) if path.suffix.lower() == ".mp4" else ("imageio", "PIL")
    for module in modules:
        if find_spec(module) is None:
            package = {"PIL": "pillow"}.get(module, module.replace("_", "-"))
            raise MissingPackage(f"a video needs {package}, which is not installed: {pip_install(package)}")
    if path.suffix.lower() == ".mp4":
        _check_ffmpeg()


@contextmanager
def record(path: Path, fps: float) -> Iterator[Append]:
    """Call what this gives with each frame, `[H, W, 3]` uint8; the video is at `path` in the end.

    It is written beside and renamed, so a recording that fails leaves what was there before.
    """
    check_video(path)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix.lower()}")
    writer: _Mp4 | _Gif = (_Mp4 if path.suffix.lower() == ".mp4" else _Gif)(partial, fps)
    try:
        try:
            yield writer.append
        finally:
            writer.close()
        if not writer.frames:
            raise RunError(f"{path} was not made: the match showed no frame")
        partial.replace(path)
    except OSError as error:
        raise RunError(f"{path} could not be recorded: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


def checked_frame(frame: Any) -> np.ndarray:
    """The frame as `[H, W, 3]` uint8 with even sides, as video needs it; MDPError for any other shape."""
    shape, dtype = np.shape(frame), getattr(frame, "dtype", None)
    if len(shape) != 3 or shape[2] != 3 or dtype != np.uint8 or 0 in shape:
        raise MDPError(f"frame() gave {list(shape)} of {dtype}; [H, W, 3] of uint8 is expected")
    height, width = shape[0] % 2, shape[1] % 2
    if height or width:
        frame = np.pad(frame, ((0, height), (0, width), (0, 0)), mode="edge")
    return np.ascontiguousarray(frame)


def _check_ffmpeg() -> None:
    import imageio_ffmpeg

    try:
        imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise MissingPackage(
            f"an .mp4 needs ffmpeg, and there is none: {pip_install('--force-reinstall imageio-ffmpeg')}, "
            "or record a .gif"
        ) from error


class _Mp4:
    def __init__(self, path: Path, fps: float) -> None:
        self.frames = 0
        self._path, self._fps = path, fps
        self._size: tuple[int, int] | None = None
        self._process: Any = None

    def append(self, frame: np.ndarray) -> None:
        frame = checked_frame(frame)
        size = (frame.shape[1], frame.shape[0])
        if self._process is None:
            import imageio_ffmpeg

            self._size = size
            self._process = imageio_ffmpeg.write_frames(
                str(self._path), size, fps=self._fps, macro_block_size=1, quality=7
            )
            self._process.send(None)
        if size != self._size:
            raise MDPError(f"frame() changed its size from {self._size} to {size}; it must stay the same")
        try:
            self._process.send(frame.tobytes())
        except (OSError, StopIteration) as error:
            raise RunError(f"{self._path} could not be recorded: ffmpeg says {error}") from error
        self.frames += 1

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


class _Gif:
    def __init__(self, path: Path, fps: float) -> None:
        self.frames = 0
        self._path, self._duration_ms = path, max(GIF_SHORTEST_MS, round(1000 / fps))
        self._writer: Any = None

    def append(self, frame: np.ndarray) -> None:
        frame = checked_frame(frame)
        if self._writer is None:
            import imageio.v2

            self._writer = imageio.v2.get_writer(
                self._path, format="GIF", mode="I", duration=self._duration_ms, loop=0
            )
        try:
            self._writer.append_data(frame)
        except OSError as error:
            raise RunError(f"{self._path} could not be recorded: {error}") from error
        self.frames += 1

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
