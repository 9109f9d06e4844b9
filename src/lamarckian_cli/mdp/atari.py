"""Atari games by ale-py, with the preprocessing that the literature calls standard.

A match owns one emulator from a pool; loading a ROM takes a tenth of a second, so emulators
outlive their matches. A new match does not reset the game either, which emulates for
milliseconds: it restores the state after its number of no-ops, which is saved the first
time it is needed. Emulating takes four fifths of a step's time, so what remains is written
for speed: no frame is looked at that is not shown, and all buffers are reused.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage, pip_install, require
from lamarckian_cli.mdp.gymnasium_adapter import find_spec, register_atari
from lamarckian_cli.mdp.picture import picture_text
from lamarckian_cli.mdp.shrink import Shrink
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    Action,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    Outcome,
    SeatSpec,
    State,
)


class AtariMDP:
    """One seat in an Atari game. Its arguments are the keys of `conf/env/atari.yaml`.

    - `frames_per_step`: an action is repeated for so many frames; the last two are shown as
      their pixelwise maximum, since many games draw every other sprite only in every other frame.
    - `noop_max`: a match starts after 1 to so many frames without action, as its seed says;
      0 starts at once.
    - `sticky`: the probability with which a frame repeats the previous frame's action
      instead (0.25 in newer literature).
    - `size`: height and width of the grey images; `stack`: how many of them are seen.
    - `clip_reward`: rewards become -1, 0 or 1; the result `score` keeps the true sum.
    - `end_on_life_loss`: a lost life terminates the match; the next one starts a new game.
    - `full_actions`: all 18 actions instead of those that matter in this game.
    - `max_frames`: a match is truncated after so many (108,000 are half an hour).

    Input: uint8 `[stack, size, size]`, oldest image first; a match starts with copies of its
    first. The arrays of a State are valid until the next `act`, which overwrites them.

    Raises ConfigError for a value that cannot work, MissingPackage without ale-py or OpenCV.
    """

    external = False

    def __init__(
        self,
        id: str = "ALE/Pong-v5",
        *,
        frames_per_step: int = 4,
        noop_max: int = 30,
        sticky: float = 0.0,
        size: int = 84,
        stack: int = 4,
        clip_reward: bool = False,
        end_on_life_loss: bool = False,
        full_actions: bool = False,
        max_frames: int = 108_000,
    ) -> None:
        require(frames_per_step >= 1, "env.frames_per_step", frames_per_step, "it must be at least 1 (4)")
        require(noop_max >= 0, "env.noop_max", noop_max, "it must be at least 0 (30 is usual)")
        require(0.0 <= sticky < 1.0, "env.sticky", sticky, "it must lie in [0, 1)")
        require(size >= 1, "env.size", size, "it must be at least 1 (84 is usual)")
        require(stack >= 1, "env.stack", stack, "it must be at least 1 (4 is usual)")
        require(max_frames >= 1, "env.max_frames", max_frames, "it must be at least 1 (108000 is usual)")
        self.id = id
        self.frames_per_step = frames_per_step
        self.noop_max = noop_max
        self.sticky = sticky
        self.clip_reward = clip_reward
        self.end_on_life_loss = end_on_life_loss
        self.max_frames = max_frames
        self.shape = (stack, size, size)
        self._closed = False
        self._ale = _load_ale_py()
        self._rom = self._find_rom()
        self._starts: dict[int, tuple[Any, np.ndarray]] = {}  # no-ops -> state, image [size, size]
        emulator = self._new_emulator()
        self._pool = [emulator]
        actions = emulator.getLegalActionSet() if full_actions else emulator.getMinimalActionSet()
        self.codes = [int(action.value) for action in actions]
        self._names = tuple(action.name.lower() for action in actions)
        self.shrink = Shrink(emulator.getScreenDims(), size)

    def describe(self) -> MDPSpec:
        seat = SeatSpec(
            inputs=(InputSpec(name="screen", shape=self.shape, dtype="uint8"),),
            heads=(DiscreteHead(name="action", n=len(self.codes), names=self._names),),
        )
        return MDPSpec(
            name=self.id,
            seats=(seat,),
            frames_per_step=self.frames_per_step,
            results=("score", "lives"),
        )

    def reset(self, seats: Sequence[int], seed: int) -> AtariMatch:
        if tuple(seats) != (0,):
            raise MDPError(f"{self.id} has one seat, 0; seats {tuple(seats)} were asked for")
        if self._closed:
            raise MDPError(f"{self.id} is closed; it starts no more matches")
        return AtariMatch(self, self._pool.pop() if self._pool else self._new_emulator(), seed)

    def close(self) -> None:
        self._closed = True
        self._pool.clear()  # an emulator goes with its last reference

    def give_back(self, emulator: Any) -> None:
        """Take over the emulator of a closed match."""
        if not self._closed:
            self._pool.append(emulator)

    def start(self, emulator: Any, noops: int) -> np.ndarray:
        """Bring `emulator` to the start of a game `noops` frames in; its image `[size, size]`."""
        known = self._starts.get(noops)
        if known is None:
            emulator.reset_game()
            for _ in range(noops):
                emulator.act(0)
            image = np.empty(self.shape[1:], np.uint8)
            self.shrink(emulator.getScreenGrayscale(), image)
            known = self._starts[noops] = (emulator.cloneState(), image)
        # The one that was just reset is restored as well, so that all start alike.
        emulator.restoreState(known[0])
        return known[1]

    def _find_rom(self) -> tuple[Any, int | None, int | None]:
        """ROM file, mode and difficulty of the registered game."""
        register_atari()
        arguments = find_spec(self.id).kwargs
        if "game" not in arguments:
            raise ConfigError(
                f"env.id={self.id} is no Atari game; ALE/Breakout-v5 is one (env=gym takes others)"
            )
        roms = importlib.import_module("ale_py.roms")
        return roms.get_rom_path(arguments["game"]), arguments.get("mode"), arguments.get("difficulty")

    def _new_emulator(self) -> Any:
        path, mode, difficulty = self._rom
        emulator = self._ale.ALEInterface()
        emulator.setFloat("repeat_action_probability", 0.0)  # the controller does this, from the match's seed
        emulator.setInt("random_seed", 0)
        emulator.loadROM(path)
        if mode is not None:
            emulator.setMode(mode)
        if difficulty is not None:
            emulator.setDifficulty(difficulty)
        return emulator


class AtariMatch:
    """One game, or one life of it; its emulator goes back to the pool when it is closed."""

    __slots__ = ("_closed", "_mdp", "controllers", "emulator", "ticks")

    def __init__(self, mdp: AtariMDP, emulator: Any, seed: int) -> None:
        self._mdp = mdp
        self._closed = False
        self.emulator = emulator
        self.controllers = (AtariController(mdp, emulator, seed),)
        self.ticks: tuple[Coroutine[Any, Any, None], ...] = ()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.controllers[0].stop("the match is closed")
            self._mdp.give_back(self.emulator)

    def frame(self) -> np.ndarray:
        """The screen, `[210, 160, 3]` uint8 (some games have 250 lines)."""
        return self.emulator.getScreenRGB()

    def text(self) -> str:
        """The screen in half blocks, 80 columns wide."""
        return picture_text(self.frame())


class AtariController:
    """The one player of a match."""

    __slots__ = (
        "_clip",
        "_codes",
        "_emulate",
        "_emulator",
        "_frames_left",
        "_held",
        "_id",
        "_last",
        "_life_loss",
        "_lives",
        "_random",
        "_reward",
        "_score",
        "_shown",
        "_shrink",
        "_skip",
        "_stack",
        "_state",
        "_sticky",
    )

    def __init__(self, mdp: AtariMDP, emulator: Any, seed: int) -> None:
        self._id = mdp.id
        self._codes = mdp.codes
        self._skip = mdp.frames_per_step
        self._clip = mdp.clip_reward
        self._sticky = mdp.sticky
        self._shrink = mdp.shrink
        self._emulator = emulator
        self._random = random.Random(seed)
        noops = self._random.randint(1, mdp.noop_max) if mdp.noop_max else 0
        first = mdp.start(emulator, noops)
        self._emulate: Callable[[int], int] = emulator.act
        self._life_loss = mdp.end_on_life_loss
        self._lives = emulator.lives()
        self._held = 0  # the previous frame's action
        self._frames_left = mdp.max_frames
        self._score = 0
        self._reward = (0.0,)

        images = np.empty(mdp.shape, np.uint8)
        images[:] = first
        flat = images.reshape(-1)
        # The same memory throughout: all but the oldest image, where they move to, and the newest.
        self._shown, self._stack, self._last = flat[first.size :], flat[: -first.size], images[-1]
        self._state = State((images,))

    def state(self) -> State:
        return self._state

    async def act(self, action: Action | None) -> Outcome:
        code = self._codes[action[0]]  # type: ignore[index]
        emulate = self._emulate
        score = 0
        if self._sticky:
            frames = self._stick(code)
            code = frames[-1]
            for frame in frames[:-1]:
                score += emulate(frame)
        else:
            for _ in range(self._skip - 1):
                score += emulate(code)
        shrink, emulator = self._shrink, self._emulator
        if self._skip > 1:
            emulator.getScreenGrayscale(shrink.before)
            score += emulate(code)
            emulator.getScreenGrayscale(shrink.now)
            np.maximum(shrink.before, shrink.now, out=shrink.now)
        else:
            score += emulate(code)
            emulator.getScreenGrayscale(shrink.now)
        self._stack[:] = self._shown
        shrink(shrink.now, self._last)

        self._score += score
        self._reward = (float((score > 0) - (score < 0) if self._clip else score),)
        self._frames_left -= self._skip
        if emulator.game_over() or (self._life_loss and emulator.lives() < self._lives):
            self.stop("the match has ended")
            return TERMINATED
        if self._frames_left <= 0:
            self.stop("the match has ended")
            return TRUNCATED
        return RUNNING

    def reward(self) -> Sequence[float]:
        return self._reward

    def result(self) -> dict[str, float]:
        """`score`: what the game counted; `lives`: how many are left."""
        return {"score": float(self._score), "lives": float(self._emulator.lives())}

    def stop(self, why: str) -> None:
        """Refuse every further action, saying why."""

        def refuse(_: int) -> int:
            raise MDPError(f"{self._id}, seat 0: act() was called although {why}")

        self._emulate = refuse

    def _stick(self, code: int) -> list[int]:
        """The action of each frame of a step."""
        frames = []
        for _ in range(self._skip):
            if self._random.random() >= self._sticky:
                self._held = code
            frames.append(self._held)
        return frames


def _load_ale_py() -> Any:
    try:
        ale = importlib.import_module("ale_py")
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"Atari games need {error.name}, which is not installed ({pip_install('ale-py')})"
        ) from error
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    return ale
