"""Where everything lies in the 460 float32 that `GameEnv.observe()` gives, and its other view.

| numbers | what |
| --- | --- |
| 0-2, 3-5, 6-8 | ball: position x, y, z; movement a step; rotation a step |
| 9, 10 | side (-1: nobody) and number of the player who has the ball |
| 11 | mode: 0 normal, 1 kick-off, 2 goal kick, 3 free kick, 4 corner, 5 throw-in, 6 penalty |
| 12, 13 | goals of the left and of the right side |
| 14, 15 | in play; steps since the kick-off |
| 16, 17 | players of the left and of the right side |
| 18, 19 | steps that a set piece has been waiting; unused |
| 20-217 | players, `[2, 11, 9]`: x, y, movement x, y, tiredness, active, yellow card, role, designated |
| 218-459 | agents, `[2, 11, 11]`: player (-1: none), then 1 for what is held: 8 ways, sprint, dribble |

The field spans x from -1 (the left side's goal) to 1 and y from -0.42 (top) to 0.42.
"""

from __future__ import annotations

RAW_SIZE = 460
PLAYERS = slice(20, 218)
AGENTS = slice(218, 460)
