"""Gymnasium spaces as our inputs and action heads.

| observation space | input |
| --- | --- |
| Box | the same array; float64 becomes float32 |
| Box of uint8, [H, W, C], [H, W] or [S, H, W, C] | an image [C, H, W], [1, H, W] or [S * C, H, W] |
| Discrete, MultiDiscrete | float32, one-hot (one after the other) |
| MultiBinary | float32 |
| Dict, Tuple | one input for each leaf, named by its path, in the space's own order |

| action space | heads |
| --- | --- |
| Discrete | one discrete head; its start is added |
| MultiDiscrete, MultiBinary | one discrete head for each component |
| Box | one continuous head of all its numbers, clipped to the bounds |
| Dict, Tuple | the heads of each leaf, named by its path, in the space's own order |

Observations that need no converting have no function: None stands for "as it is", so that
the commonest games pay nothing for the general ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.records import Action, ContinuousHead, DiscreteHead, Head, InputSpec

Path = tuple[Any, ...]  # keys and indices that lead to a leaf
Inputs = tuple[np.ndarray, ...]
Encode = Callable[[Any], Inputs]
Decode = Callable[[Action], Any]
Convert = Callable[[Any], Any]

OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these"
ACTIONS = "Discrete, MultiDiscrete, MultiBinary, bounded Box, and Dict or Tuple of these"
ONE_HOT_MAX = 65536  # choices of a Discrete observation


def encoder(space: gymnasium.Space, owner: str) -> tuple[tuple[InputSpec, ...], Encode | None]:
    """The inputs of `space`, and what turns an observation into their arrays.

    None: the observation itself is the one array. `owner` names the game in messages.
    Raises ConfigError for a space that cannot be an input.
    """
    leaves = list(_leaves(space, ()))
    if not leaves:
        raise ConfigError(f"{owner} observes nothing: its observation space {space} is empty")
    inputs, readers = [], []
    for path, leaf in leaves:
        name = "/".join(map(str, path)) or "observation"
        shape, dtype, convert = _input(leaf, name, owner)
        inputs.append(InputSpec(name=name, shape=shape, dtype=dtype))
        readers.append((path, convert))
    return tuple(inputs), _encode(readers)


def decoder(
    space: gymnasium.Space, owner: str, limit: float | None = None, names: tuple[str, ...] = ()
) -> tuple[tuple[Head, ...], Decode]:
    """The heads of `space`, and what turns our action into the game's.

    `limit` bounds what `space` leaves unbounded; `names` are the choices of a Discrete
    space, for people.
    Raises ConfigError for a space that cannot be acted in.
    """
    heads: list[Head] = []
    decodes: dict[Path, Decode] = {}
    for path, leaf in _leaves(space, ()):
        name = "/".join(map(str, path)) or "action"
        new, decodes[path] = _heads(leaf, name, owner, limit, names, first=len(heads))
        heads += new
    if not heads:
        raise ConfigError(f"{owner} offers nothing to do: its action space {space} is empty")
    return tuple(heads), _nest(space, (), decodes)


# ------------------------------------------------------------------ observations


def _leaves(space: Any, path: Path) -> Any:
    """Yield (path, space) for whatever is neither Dict nor Tuple, in the space's order."""
    if isinstance(space, gymnasium.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, gymnasium.spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, index))
    else:
        yield path, space


def _encode(readers: list[tuple[Path, Convert | None]]) -> Encode | None:
    if len(readers) == 1 and not readers[0][0]:
        convert = readers[0][1]
        return None if convert is None else lambda observation: (convert(observation),)

    def encode(observation: Any) -> Inputs:
        arrays = []
        for path, convert in readers:
            part = observation
            for key in path:
                part = part[key]
            arrays.append(part if convert is None else convert(part))
        return tuple(arrays)

    return encode


def _input(space: Any, name: str, owner: str) -> tuple[tuple[int, ...], str, Convert | None]:
    """Shape, dtype and conversion of one leaf."""
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Box):
        return _box_input(space)
    if isinstance(space, spaces.Discrete):
        n, start = int(space.n), int(space.start)
        if n > ONE_HOT_MAX:
            raise ConfigError(
                f"{owner}: observation {name} is Discrete({n}); one-hot input ends at {ONE_HOT_MAX} choices"
            )
        return (n,), "float32", lambda value: _one_hot(n, int(value) - start)
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.ravel()
        offsets = np.cumsum(sizes) - sizes - np.ravel(space.start)
        total = int(sizes.sum())
        return (total,), "float32", lambda value: _one_hot(total, np.ravel(value) + offsets)
    if isinstance(space, spaces.MultiBinary):
        return tuple(space.shape), "float32", lambda value: np.asarray(value, np.float32)
    raise ConfigError(
        f"{owner}: observation {name} has the space {space}, which cannot be an input; "
        f"supported are {OBSERVATIONS} (a gymnasium.ObservationWrapper can convert it)"
    )


def _one_hot(size: int, hot: Any) -> np.ndarray:
    array = np.zeros(size, np.float32)
    array[hot] = 1.0
    return array


def _box_input(space: gymnasium.spaces.Box) -> tuple[tuple[int, ...], str, Convert | None]:
    shape, dtype = space.shape, space.dtype
    if dtype == np.uint8 and len(shape) == 2:
        return (1, *shape), "uint8", lambda image: image[None]
    if dtype == np.uint8 and len(shape) == 3 and shape[2] < min(shape[:2]):
        return (shape[2], shape[0], shape[1]), "uint8", lambda image: image.transpose(2, 0, 1)
    if dtype == np.uint8 and len(shape) == 4 and shape[3] < min(shape[1:3]):
        stacked = (shape[0] * shape[3], shape[1], shape[2])
        return stacked, "uint8", lambda images: np.moveaxis(np.asarray(images), 3, 1).reshape(stacked)
    if not shape:
        kept = np.float32 if dtype == np.float64 else dtype
        return (1,), np.dtype(kept).name, lambda value: np.asarray(value, kept).reshape(1)
    if dtype == np.float64:
        return shape, "float32", lambda array: np.asarray(array, np.float32)
    return shape, np.dtype(dtype).name, None


# ------------------------------------------------------------------ actions


def _nest(space: Any, path: Path, decodes: dict[Path, Decode]) -> Decode:
    """Our action -> the game's nested one."""
    if isinstance(space, gymnasium.spaces.Dict):
        named = [(key, _nest(part, (*path, key), decodes)) for key, part in space.spaces.items()]
        return lambda action: {key: decode(action) for key, decode in named}
    if isinstance(space, gymnasium.spaces.Tuple):
        parts = [_nest(part, (*path, index), decodes) for index, part in enumerate(space.spaces)]
        return lambda action: tuple(decode(action) for decode in parts)
    return decodes[path]


def _heads(
    space: Any, name: str, owner: str, limit: float | None, names: tuple[str, ...], first: int
) -> tuple[list[Head], Decode]:
    """The heads of one leaf, of which the first is number `first` of all, and what decodes them."""
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Discrete):
        n, start = int(space.n), int(space.start)
        head = DiscreteHead(name=name, n=n, names=names if len(names) == n else ())
        # Environments that check their actions do so faster with the space's own type than with int.
        choices = dict(enumerate(np.arange(start, start + n, dtype=space.dtype)))
        return [head], lambda action: choices[action[first]]
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return _several_heads(space, name, first)
    if isinstance(space, spaces.Box):
        return _box_head(space, name, owner, limit, first)
    raise ConfigError(
        f"{owner}: action {name} has the space {space}, which cannot be acted in; "
        f"supported are {ACTIONS} (a gymnasium.ActionWrapper can convert it)"
    )


def _several_heads(space: Any, name: str, first: int) -> tuple[list[Head], Decode]:
    shape, dtype = space.shape, space.dtype
    if isinstance(space, gymnasium.spaces.MultiBinary):
        sizes, start = np.full(shape, 2), np.zeros(shape, dtype)
    else:
        sizes, start = space.nvec, space.start
    heads: list[Head] = [
        DiscreteHead(name=f"{name}/{'_'.join(map(str, index))}", n=int(n))
        for index, n in np.ndenumerate(sizes)
    ]
    last = first + len(heads)
    if start.any() or len(shape) > 1:
        return heads, lambda action: np.array(action[first:last], dtype).reshape(shape) + start
    return heads, lambda action: np.array(action[first:last], dtype)


def _box_head(
    space: gymnasium.spaces.Box, name: str, owner: str, limit: float | None, first: int
) -> tuple[list[Head], Decode]:
    low, high = space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)
    unbounded = ~(np.isfinite(low) & np.isfinite(high))
    if unbounded.any() and limit is None:
        raise ConfigError(
            f"{owner}: action {name} is unbounded in {int(unbounded.sum())} of its {low.size} numbers "
            f"({space}); set env.action_limit to the largest magnitude to play (for example 1.0)"
        )
    if limit is not None:
        low = np.where(np.isfinite(low), low, np.float32(-limit))
        high = np.where(np.isfinite(high), high, np.float32(limit))
    head = ContinuousHead(name=name, low=tuple(low.tolist()), high=tuple(high.tolist()))
    return [head], _clip(low, high, space.shape, np.dtype(space.dtype or np.float32), first)


def _clip(low: np.ndarray, high: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, first: int) -> Decode:
    """A head's float32 array [D] -> within bounds, in the game's shape and dtype.

    A Gaussian policy's actions may lie outside. Most lie within, which Python finds out
    faster than NumPy clips: for up to four numbers only those outside pay for an array.
    """
    plain = shape == (low.size,) and dtype == np.float32
    whole = np.issubdtype(dtype, np.integer)

    def clip(action: Action) -> np.ndarray:
        clipped = np.asarray(action[first], np.float32).clip(low, high)
        if plain:
            return clipped
        return (np.rint(clipped) if whole else clipped).astype(dtype).reshape(shape)

    if not plain or low.size > 4:
        return clip
    if low.size == 1:
        least, most = float(low[0]), float(high[0])

        def clip_one(action: Action) -> np.ndarray:
            values = action[first]
            return values if least <= values.item() <= most else clip(action)

        return clip_one
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))

    def clip_few(action: Action) -> np.ndarray:
        values = action[first]
        for value, (least, most) in zip(values.tolist(), bounds, strict=True):
            if not least <= value <= most:
                return clip(action)
        return values

    return clip_few
