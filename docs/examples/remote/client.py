"""The MDP for a game that runs elsewhere: its controllers wait on sockets, under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any

import numpy as np

from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    Action,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    Outcome,
    SeatSpec,
    State,
)

CONNECT_TIMEOUT_S = 20.0


class Remote:
    """The MDP. A match is one connection, and many are open at once."""

    external = True  # its controllers wait on asyncio futures

    def __init__(self, *, port: int = 5757) -> None:
        self.port = port

    def describe(self) -> MDPSpec:
        seat = SeatSpec(
            inputs=(InputSpec(name="number", shape=(1,), dtype="float32"),),
            heads=(DiscreteHead(name="guess", n=2, names=("lower", "higher")),),
        )
        return MDPSpec(name="higher or lower", seats=(seat,), results=("points",))

    def reset(self, seats: Sequence[int], seed: int) -> RemoteMatch:
        return RemoteMatch(self.port, seed)

    def close(self) -> None:
        """The server is not ours to stop."""


class RemoteMatch:
    """One connection, opened by the player's first step."""

    def __init__(self, port: int, seed: int) -> None:
        self.controllers = (RemotePlayer(port, seed),)
        self.ticks: Sequence[Coroutine[Any, Any, None]] = ()

    def close(self) -> None:
        """Also before the end: hang up."""
        self.controllers[0].hang_up()


class RemotePlayer:
    """The controller."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._seed = seed
        self._writer: asyncio.StreamWriter | None = None
        self._number = 0.0
        self._reward = 0.0
        self._points = 0.0
        self._over = False

    def state(self) -> State:
        """Until the server has answered there is nothing to decide."""
        seen = np.array([self._number], np.float32)
        return State(inputs=(seen,), decision=self._over or self._writer is not None)

    def act(self, action: Action | None) -> Awaitable[Outcome]:
        """A future: other matches go on while this one waits for the network."""
        return asyncio.ensure_future(self._exchange(action))

    def reward(self) -> Sequence[float]:
        return (self._reward,)

    def result(self) -> dict[str, float]:
        return {"points": self._points}

    def hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _exchange(self, action: Action | None) -> Outcome:
        if self._over:
            raise RuntimeError("the match is over")
        if self._writer is None:  # the first step, which takes no decision
            self._reader, self._writer = await _connect(self._port)
            self._writer.write(f"{self._seed}\n".encode())
        else:
            assert action is not None
            self._writer.write(f"{int(action[0])}\n".encode())
        number, points, over = (await self._reader.readline()).split()
        self._number, self._reward, self._over = float(number), float(points), over == b"1"
        self._points += self._reward
        return TERMINATED if self._over else RUNNING


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the server, which may still be starting."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.1)
