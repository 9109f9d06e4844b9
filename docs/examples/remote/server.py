"""The game: higher or lower, for any number of players, over TCP. It knows nothing of Lamarckian.

A player sends a seed, then one guess (0: lower, 1: higher) a line. Each line back holds the
number that shows now, the points of the guess, and 1 when the match is over.
"""

import asyncio
import random
import sys

ROUNDS = 20


async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One match, to its end or until the player is gone."""
    try:
        seed = await reader.readline()
        if not seed:
            return
        numbers = random.Random(int(seed))
        shown, points = numbers.random(), 0
        for left in range(ROUNDS, -1, -1):
            writer.write(f"{shown} {points} {int(left == 0)}\n".encode())
            line = await reader.readline()
            if not line:
                return
            before, shown = shown, numbers.random()
            points = 1 if (shown > before) == bool(int(line)) else 0
    except ConnectionError:
        return
    finally:
        writer.close()


async def main(port: int) -> None:
    server = await asyncio.start_server(play, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
