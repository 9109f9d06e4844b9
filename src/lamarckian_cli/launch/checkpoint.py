"""A checkpoint: a tree of plain values and NumPy arrays in one checksummed file.

    8 bytes   magic
    4         format version             unsigned, little endian
    8         size of the header         unsigned, little endian
    ...       header                     msgpack [tree, [[dtype, shape], ...]]
    ...       the bytes of each array    C order, little endian
    32        SHA-256 of all the above

In the header's tree an array stands as a reference to its place in the list. Nothing is
pickled, so a checkpoint from a stranger can be refused but cannot run code. A file is
written beside and renamed, so whoever is killed meanwhile leaves the old one as it was.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
import numpy as np

from lamarckian_cli.errors import RunError, pip_install

SUFFIX = ".ckpt"
PARTIAL = ".partial"  # ends the name of a file that is still being written
FORMAT_VERSION = 1

_MAGIC = b"LAMARCKP"
_PREFIX = struct.Struct("<8sIQ")
_DIGEST_SIZE = hashlib.sha256().digest_size
_ARRAY, _BIG_INT = 1, 2  # msgpack extension types
_DTYPES = frozenset(np.dtype(code).newbyteorder("<").str for code in "?bhiqBHIQefdFD")
# What reading a header can raise that nobody here wrote, though its checksum is right.
_NOT_OURS = (ValueError, TypeError, LookupError, OverflowError, RecursionError, msgpack.UnpackException)
_SMALL_INTS = range(-(2**63), 2**64)  # what msgpack carries; a PCG64 state has 128 bits


def save(path: Path, tree: Any) -> None:
    """Write `tree` to `path`, atomically and durably.

    A tree is made of dict (str keys), list, tuple (read back as list), str, int of any size,
    float, bool, None, bytes, NumPy arrays of numbers, and NumPy scalars (read back as plain
    ones). Raises TypeError for anything else, RunError where the file cannot be written.
    """
    arrays: list[np.ndarray] = []
    packed = _reduce(tree, arrays)
    layout = [[array.dtype.str, list(array.shape)] for array in arrays]
    header = msgpack.packb([packed, layout], unicode_errors="surrogatepass")
    with atomic_file(path) as file:
        digest = hashlib.sha256()
        for piece in (_PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header)), header, *map(_bytes_of, arrays)):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())


def load(path: Path) -> Any:
    """The tree that was saved to `path`; its arrays are fresh and writable.

    Raises RunError, which names the file, what is wrong with it and what to do, where it is
    missing, unreadable, damaged, no checkpoint, or written by a newer version.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise refusal(path, f"cannot be read ({error.strerror or error})") from error
    if len(content) < _PREFIX.size or content[:8] != _MAGIC:
        whole = len(content) >= 8 or not _MAGIC.startswith(content)
        raise refusal(path, "is no checkpoint" if whole else f"is cut off after {len(content)} bytes")
    _, version, header_size = _PREFIX.unpack_from(content)
    if version != FORMAT_VERSION:
        raise RunError(
            f"{path} has checkpoint format {version}, and this version of lamarckian-cli reads "
            f"{FORMAT_VERSION}; update it: {pip_install('--upgrade lamarckian-cli')}"
        )
    body = memoryview(content)[:-_DIGEST_SIZE]
    if hashlib.sha256(body).digest() != content[-_DIGEST_SIZE:]:
        raise refusal(path, f"is damaged: its {len(content)} bytes do not match their checksum")
    try:
        return _parse(body, header_size)
    except (
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        RecursionError,
        msgpack.UnpackException,
    ) as error:
        raise refusal(path, f"is not laid out as a checkpoint ({error})") from error


def older_than(path: Path) -> Path | None:
    """The newest checkpoint beside `path` that is older by its number of env steps."""
    if not path.stem.isdigit():
        return None
    numbers = {int(p.stem): p for p in path.parent.glob(f"*{SUFFIX}") if p.stem.isdigit()}
    older = [number for number in numbers if number < int(path.stem)]
    return numbers[max(older)] if older else None


def refusal(path: Path, what: str) -> RunError:
    """The error for a checkpoint that cannot be used: names it, the fault and the remedy."""
    path = Path(path)
    older, best = older_than(path), path.with_name(f"best{SUFFIX}")
    if older is not None:
        remedy = f"to use the one before it, {older.name}, remove this one: {shlex.join(['rm', str(path)])}"
    elif not path.stem.isdigit():
        remedy = "take another checkpoint"
    elif best.exists() and not (path.exists() and best.samefile(path)):
        remedy = f"to use the best one in its place: {shlex.join(['cp', str(best), str(path)])}"
    else:
        remedy = "there is no older one beside it, so the run must start anew"
    return RunError(f"checkpoint {path} {what}; {remedy}")


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place when the block ends well, and is gone otherwise.

    Raises RunError where it cannot be written: no permission, no space, no folder.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            _sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(
            f"{path} cannot be written ({error.strerror or error}); "
            f"check permissions and free space of {path.parent}"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; without it a power cut may bring the old name back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reduce(value: Any, arrays: list[np.ndarray]) -> Any:
    """`value` as msgpack carries it; its arrays are moved to `arrays`."""
    if isinstance(value, np.ndarray):
        array = np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")
        if array.dtype.str not in _DTYPES:
            raise TypeError(f"a checkpoint cannot hold an array of {value.dtype}; numbers only")
        arrays.append(array)
        return msgpack.ExtType(_ARRAY, msgpack.packb(len(arrays) - 1))
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | float | str | bytes):
        return value
    if isinstance(value, int):
        return value if value in _SMALL_INTS else msgpack.ExtType(_BIG_INT, str(value).encode())
    if isinstance(value, list | tuple):
        return [_reduce(item, arrays) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a checkpoint cannot hold the key {key!r}; keys are str")
        return {key: _reduce(item, arrays) for key, item in value.items()}
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}: {value!r}")


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _parse(body: memoryview, header_size: int) -> Any:
    start = _PREFIX.size + header_size
    if start > len(body):
        raise ValueError(f"a header of {header_size} bytes")
    arrays: list[np.ndarray] = []

    def expand(code: int, data: bytes) -> Any:
        if code == _BIG_INT:
            return int(data)
        if code == _ARRAY:
            return _Reference(msgpack.unpackb(data))
        raise ValueError(f"extension type {code}")

    header = body[_PREFIX.size : start]
    tree, layout = msgpack.unpackb(header, ext_hook=expand, unicode_errors="surrogatepass")
    for code, shape in layout:
        if code not in _DTYPES:
            raise ValueError(f"an array of {code}")
        dtype = np.dtype(code)
        end = start + prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or end > len(body):
            raise ValueError(f"an array {shape}")
        arrays.append(np.frombuffer(body[start:end], dtype).reshape(shape).copy())
        start = end
    if start != len(body):
        raise ValueError(f"{len(body) - start} bytes more than its arrays need")
    return _resolve(tree, arrays)


class _Reference:
    """Stands for an array until all of them are read."""

    def __init__(self, index: int) -> None:
        self.index = index


def _resolve(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, _Reference):
        return arrays[value.index]
    if isinstance(value, list):
        return [_resolve(item, arrays) for item in value]
    if isinstance(value, dict):
        return {key: _resolve(item, arrays) for key, item in value.items()}
    return value
