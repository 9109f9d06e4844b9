"""A real sshd for a test: its own keys, port and configuration, on loopback addresses alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SSHD = shutil.which("sshd") or next((p for p in ("/usr/sbin/sshd",) if Path(p).exists()), None)
START_S = 20.0


@contextlib.contextmanager
def ssh_server(folder: Path, addresses: Sequence[str]) -> Iterator[str]:
    """The `--ssh` command that reaches the server, which has the home folder `folder/home`."""
    assert SSHD is not None
    folder.chmod(0o755)
    (folder / "home").mkdir()
    for key in ("host", "client"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True, timeout=60
        )
    with socket.socket() as free:
        free.bind((addresses[0], 0))
        port = free.getsockname()[1]
    configuration = [
        f"Port {port}",
        *(f"ListenAddress {address}" for address in addresses),
        f"HostKey {folder / 'host'}",
        f"AuthorizedKeysFile {folder / 'client.pub'}",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        f"SetEnv HOME={folder / 'home'}",
    ]
    (folder / "sshd_config").write_text("\n".join(configuration) + "\n", encoding="utf-8")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # which a packaged service would make
    with (folder / "sshd.log").open("w") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        _await_port(process, addresses[0], port, folder / "sshd.log")
        known = f"-o UserKnownHostsFile={folder / 'known_hosts'} -o StrictHostKeyChecking=accept-new"
        yield f"ssh -F none -p {port} -i {folder / 'client'} {known}"
    finally:
        process.terminate()
        process.wait(10)


def _await_port(process: subprocess.Popen[bytes], address: str, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    pause = threading.Event()
    while True:
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        pause.wait(0.1)
