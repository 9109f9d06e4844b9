"""What else may lie where weights in shared memory do: nobody waits for it, follows it or ends of it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian_cli import transport
from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import Message
from lamarckian_cli.transport.codec import LIMITS, MessageError
from lamarckian_cli.transport.shared import Draft, path_of, read

KINDS = ["pipe", "folder", "link", "dangling link", "socket"]
DEADLINE_S = 20.0


def put(kind: str, path: Path) -> None:
    """Make one of these, with something in it where it can have that."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        (path / "mine").write_text("kept")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        target = path.parent.parent / "elsewhere"
        if kind == "link":
            target.write_text("kept")
        path.symlink_to(target)


def version(number: int) -> Message:
    return Message("weights", {"policy": "main", "version": number}, (np.full(100, number, np.float32),))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lamarck-") as above:  # short: a socket's path is limited
        path = Path(above) / "job"
        path.mkdir(mode=0o700)
        yield path


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_neither_read_nor_waited_for(folder: Path, kind: str) -> None:
    put(kind, path_of(folder, "main"))
    with pytest.raises(MessageError, match="is no file of weights") as caught:
        read(folder, "main", LIMITS)
    assert caught.value.reason == "foreign"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("draft", [False, True])
def test_a_publisher_puts_it_out_of_the_way_and_counts_it(
    folder: Path, kind: str, draft: bool, caplog: Any
) -> None:
    """What a folder or a link had in it is still there after it, as are the weights."""
    publisher = transport.bind_weights(f"shm://{folder}/weights")
    try:
        publisher.publish(version(1))
        at = path_of(folder, "main", draft=draft)
        at.unlink(missing_ok=True)
        put(kind, at)
        publisher.publish(version(2))
        message = read(folder, "main", LIMITS)
        assert message is not None
        assert message.arrays[0][0] == 2
        assert publisher.dropped == {"foreign": 1}
        (beside,) = folder.glob("foreign-*")
        assert beside.name in caplog.text
        if kind == "folder":
            assert (beside / "mine").read_text() == "kept"
        if kind == "link":
            assert (folder.parent / "elsewhere").read_text() == "kept"
    finally:
        publisher.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscriber_counts_it_and_takes_the_next_version(folder: Path, kind: str, caplog: Any) -> None:
    publisher = transport.bind_weights(f"shm://{folder}/weights")
    subscriber = transport.connect_weights(publisher.uri, timeout_s=DEADLINE_S)
    try:
        publisher.publish(version(1))
        path = path_of(folder, "main")
        path.unlink()
        put(kind, path)  # before the news of it are taken
        assert subscriber.wait(0.2) == []
        assert subscriber.dropped == {"foreign": 1}
        assert "is no file of weights" in caplog.text
        publisher.publish(version(2))
        (message,) = subscriber.wait(DEADLINE_S)
        assert message.header["version"] == 2
    finally:
        subscriber.close()
        publisher.close()


def test_a_folder_that_is_gone_is_a_transport_error(folder: Path) -> None:
    """It does not pass for a machine that has no room."""
    draft = Draft(folder, "main", b"head", [8])
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    with pytest.raises(TransportError, match=r"cannot be written: No such file"):
        draft.commit()
    draft.abandon()
    with pytest.raises(TransportError, match=r"cannot be written: No such file"):
        Draft(folder, "main", b"head", [8])


def test_closing_leaves_what_is_not_its_own(folder: Path) -> None:
    publisher = transport.bind_weights(f"shm://{folder}/weights")
    publisher.publish(version(1))
    path = path_of(folder, "main")
    path.unlink()
    put("folder", path)
    publisher.close()
    assert (path / "mine").read_text() == "kept"
