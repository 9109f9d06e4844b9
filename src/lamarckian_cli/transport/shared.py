"""Weights inside one machine: written once into shared memory, read in place by any number of processes.

Every version is a file of its own that nobody writes to again once it has its name:

    FOLDER/weights-POLICY    the newest complete version, by rename: never torn, on any processor
    FOLDER/draft-POLICY      the one that is being written

A reader maps the file and gets arrays that lie in it; the pages live until the last reader
lets them go, and a version that nobody reads any more is freed. A small socket in the same
folder tells readers that there are news, one at a time for each policy and reader.

What else lies under one of these names is not read, followed or waited for, and is put out of
the way of the next version: counted under `foreign`, and logged.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import mmap
import os
import stat
import struct
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgpack
import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address
from lamarckian_cli.transport.codec import (
    Buffer,
    Limits,
    Message,
    MessageError,
    check_limits,
    decode,
    encode,
    no_extensions,
)
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.service import Service
from lamarckian_cli.transport.stream import label
from lamarckian_cli.transport.weights import NOTHING, Subscribing, check_grows, confirm, seen_by, taken

_log = logging.getLogger(__name__)
_CONTROL_BYTES = 1 << 20
NO_ROOM = "has no room for"
"""How the message begins where a version does not fit into shared memory."""
_FULL = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG)
FOREIGN = "foreign"
"""Why a file is dropped that is not one, but a pipe, a folder or a link."""

_MAGIC = b"lamarck1"
_ALIGNMENT = 64
_PREFIX = struct.Struct("<8sQ")  # magic, then the size of the head


class Draft:
    """A version being written; it has no name yet. Arrays that are here already are written at once."""

    def __init__(
        self,
        folder: Path,
        policy: str,
        head: Buffer,
        sizes: Sequence[int],
        arrays: Sequence[memoryview] = (),
        dropped: Counter[str] | None = None,
    ) -> None:
        """What lies in its way is counted in `dropped`. TransportError where it cannot be written."""
        self._dropped: Counter[str] = Counter() if dropped is None else dropped
        self._path, self._draft = path_of(folder, policy), path_of(folder, policy, draft=True)
        index: bytes = msgpack.packb([bytes(head), list(sizes)])
        starts, total = _places(len(index), sizes)
        file = -1
        try:
            _make_way(self._draft, self._dropped)
            self._draft.unlink(missing_ok=True)
            file = os.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            # Reserved now: writing to a page that cannot be had would end the process.
            os.posix_fallocate(file, 0, total)
            # Not through memory: the kernel would clear every page first, and find it by a fault.
            for start, array in zip(starts, arrays, strict=False):
                _write(file, array, start)
            whole = memoryview(mmap.mmap(file, total))
        except OSError as error:
            _remove(self._draft)
            raise TransportError(_not_written(self._draft, total, error)) from error
        finally:
            if file >= 0:
                os.close(file)
        _PREFIX.pack_into(whole, 0, _MAGIC, len(index))
        whole[_PREFIX.size : _PREFIX.size + len(index)] = index
        self.targets = [whole[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    def commit(self) -> None:
        """Make it the newest version; whoever reads the last one keeps it."""
        self.targets = []
        try:
            _make_way(self._path, self._dropped)
            os.rename(self._draft, self._path)
        except OSError as error:
            raise TransportError(_not_written(self._path, 0, error)) from error

    def abandon(self) -> None:
        self.targets = []
        _remove(self._draft)


def read(folder: Path, policy: str, limits: Limits) -> Message | None:
    """The newest complete version, its arrays lying in shared memory; None if there is none.

    Raises MessageError if the file is not one of ours; never waits for what is no file.
    """
    path = path_of(folder, policy)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:  # a link, a socket
        raise MessageError(FOREIGN, f"{path} is no file of weights: {error.strerror}") from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise MessageError(FOREIGN, f"{path} is no file of weights, but a {_kind(status.st_mode)}")
        size = status.st_size
        if size < _PREFIX.size:
            raise MessageError("truncated", f"{path} has {size} bytes")
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        whole = memoryview(mmap.mmap(file, size, flags=flags, prot=mmap.PROT_READ))
    except OSError as error:
        raise MessageError("truncated", f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(file)
    magic, index_bytes = _PREFIX.unpack_from(whole)
    if magic != _MAGIC:
        raise MessageError("garbled", f"{path} is no file of weights")
    head, sizes = _unpack_index(whole[_PREFIX.size : _PREFIX.size + index_bytes])
    starts, total = _places(index_bytes, sizes)
    if total != size:
        raise MessageError("truncated", f"{path} has {size} bytes, not {total}")
    return decode([head, *(whole[s : s + n] for s, n in zip(starts, sizes, strict=True))], limits)


def path_of(folder: Path, policy: str, *, draft: bool = False) -> Path:
    """A policy's file; what its name may hold is no danger."""
    return folder / (("draft-" if draft else "weights-") + quote(policy, safe=""))


class SharedPublisher:
    """The writing end: a node agent's, or the learner's on its own machine."""

    def __init__(self, address: Address, keys: JobKeys | None, *, limits: Limits) -> None:
        self.sent_bytes = 0  # nothing travels
        self._limits = limits
        self._folder = Path(address.name).parent
        self._lock = threading.Lock()  # over the newest versions
        self._newest: dict[str, int] = {}
        self._peers: dict[bytes, dict[str, tuple[int, bool]]] = {}  # version told last, and not yet taken
        self._service = Service(
            address, keys, handshake.WEIGHTS, max_frame_bytes=_CONTROL_BYTES, handler=self
        )
        self.uri = self._service.uri
        self.dropped = self._service.dropped
        self._service.start()

    def publish(self, message: Message) -> None:
        """Write it and make it the newest of its policy; never waits for a reader."""
        policy, version = label(message.header)
        frames = encode(message)
        check_limits(frames, self._limits)
        self._service.check()
        with self._lock:
            newest = self._newest.get(policy, NOTHING)
        if version == newest:
            self.dropped["replayed"] += 1
            return
        check_grows(policy, version, newest)
        arrays = [memoryview(frame) for frame in frames[1:]]
        sizes = [array.nbytes for array in arrays]
        self.commit(self.draft(policy, frames[0], sizes, arrays), policy, version)

    def draft(
        self, policy: str, head: Buffer, sizes: Sequence[int], arrays: Sequence[memoryview] = ()
    ) -> Draft:
        """A version to be written piece by piece, then handed to `commit`."""
        return Draft(self._folder, policy, head, sizes, arrays, self.dropped)

    def commit(self, draft: Draft, policy: str, version: int) -> None:
        draft.commit()
        with self._lock:
            self._newest[policy] = version
        self._service.wake()

    def close(self) -> None:
        """Free the memory too, as soon as the last reader lets it go."""
        self._service.close()
        for policy in self._newest:
            _remove(path_of(self._folder, policy))

    # ------------------------------------------------------------------ in the service's thread

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        self._peers[peer] = {policy: (version, False) for policy, version in seen_by(hello).items()}
        return {}

    def joined(self, peer: bytes) -> None:
        self._tell(peer)

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        policy, version = taken(command, frames)
        slots = self._peers.get(peer, {})
        if policy not in slots or version is None:
            self.dropped["garbled"] += 1
            return
        slots[policy] = max(version, slots[policy][0]), False
        self._tell(peer)

    def left(self, peer: bytes) -> None:
        self._peers.pop(peer, None)

    def woken(self) -> None:
        for peer in list(self._peers):
            self._tell(peer)

    def ended(self) -> None:
        self._peers.clear()

    def _tell(self, peer: bytes) -> None:
        with self._lock:
            newest = dict(self._newest)
        slots = self._peers.get(peer, {})
        for policy, version in newest.items():
            told, under_way = slots.get(policy, (NOTHING, False))
            if under_way or version <= told:
                continue
            if not self._service.send(peer, [handshake.NEWS, policy.encode(), msgpack.packb(version)]):
                self.left(peer)
                return
            slots[policy] = version, True


class SharedSubscriber(Subscribing):
    """A reading end: an actor's. The arrays that it hands out lie in shared memory."""

    def __init__(
        self, address: Address, keys: JobKeys | None, *, name: str, timeout_s: float, limits: Limits
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._folder = Path(address.name).parent
        self._limits = limits
        self._seen: dict[str, int] = {}
        super().__init__(address, keys, name=name, timeout_s=timeout_s, max_frame_bytes=_CONTROL_BYTES)

    def _hello(self) -> Mapping[str, Any]:
        return {"seen": self._seen}

    def _collect(self) -> list[Message]:
        policies: dict[str, None] = {}
        while (frames := self._link.receive()) is not None:
            if frames[0].bytes == handshake.NEWS and len(frames) == 3:
                policies[frames[1].bytes.decode(errors="replace")] = None
        news = []
        for policy in policies:
            message = self._read(policy)
            if message is not None:
                news.append(message)
            confirm(self._link, policy, self._seen.get(policy, 0))
        return news

    def _read(self, policy: str) -> Message | None:
        """The newest version, unless it is known already: it may be newer than the news that led here."""
        try:
            message = read(self._folder, policy, self._limits)
            if message is None:
                return None
            _, version = label(message.header)
        except MessageError as error:
            self.dropped[error.reason] += 1
            if self.dropped[error.reason] == 1:  # news come with every version
                _log.warning("weights are not taken: %s", error)
            return None
        if version <= self._seen.get(policy, NOTHING):
            return None
        self._seen[policy] = version
        return message


def _write(file: int, array: memoryview, at: int) -> None:
    while array:
        written = os.pwrite(file, array, at)
        array, at = array[written:], at + written


def _places(index_bytes: int, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each array begins in the file, and the size of the whole."""
    at, starts = _PREFIX.size + index_bytes, []
    for size in sizes:
        at = -(-at // _ALIGNMENT) * _ALIGNMENT
        starts.append(at)
        at += size
    return starts, at


def _unpack_index(frame: Buffer) -> tuple[bytes, list[int]]:
    """The message's own header frame, and the bytes of every array."""
    try:
        head, sizes = msgpack.unpackb(frame, ext_hook=no_extensions)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MessageError("garbled", f"weights in shared memory that are not msgpack: {error}") from error
    if not isinstance(head, bytes) or not isinstance(sizes, list):
        raise MessageError("header", "weights in shared memory whose index has the wrong type")
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise MessageError("header", f"weights in shared memory with arrays of {sizes!r:.80} bytes")
    return head, sizes


def _make_way(path: Path, dropped: Counter[str]) -> None:
    """Put what is no file out of a file's way, beside it: nothing in it is lost."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        return
    dropped[FOREIGN] += 1
    beside = next(
        p for n in itertools.count(1) if not os.path.lexists(p := path.with_name(f"foreign-{n}-{path.name}"))
    )
    os.rename(path, beside)
    _log.warning("%s was a %s, and is %s now", path, _kind(mode), beside.name)


def _remove(path: Path) -> None:
    """A file that may be gone; what else lies there stays, until the whole folder goes."""
    with contextlib.suppress(OSError):
        path.unlink()


def _kind(mode: int) -> str:
    """What a thing in a file's place is, from `st_mode`."""
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFSOCK: "socket"}
    return kinds.get(stat.S_IFMT(mode), "device")


def _not_written(path: Path, size: int, error: OSError) -> str:
    if error.errno not in _FULL:
        return f"{path} cannot be written: {error.strerror}; that folder is the job's own: leave it to it"
    return (
        f"{path.parent} {NO_ROOM} {size / 1e6:.1f} MB of weights: {error.strerror}; "
        "give the machine more shared memory (in a container: docker run --shm-size=1g)"
    )
