from typing import NamedTuple
class PongView(NamedTuple):
    bats: tuple
    x: float
    y: float
    scores: tuple
    bat: float
    ball: float
def draw(view): ...
def draw_text(view): ...
