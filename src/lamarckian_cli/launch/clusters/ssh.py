"""Asks machines to do their part: over the real `ssh`, or as a child process on this machine."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.node import MARK
from lamarckian_cli.launch.clusters.record import Node

CONNECT_TIMEOUT_S = 10
QUERY_TIMEOUT_S = 30.0  # of an answer that takes no work
AT_ONCE = 32  # machines that are asked at a time
NOT_FOUND = (126, 127)  # what a shell answers where there is no such program
SSH_FAILED = 255  # what ssh answers where it is ssh that failed
BACKTRACE = re.compile(r"\[0x[0-9a-f]+\]")  # a line of what native code says when it is ended


def ask(
    node: Node,
    action: str,
    request: Mapping[str, Any] | None = None,
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The machine's answer to `action`. A ClusterError names the machine, what it said and the remedy.

    The `environment` is for this machine alone; over SSH none is passed on.
    """
    # -P: nothing in the folder where it happens to start hides a package.
    command = [node.python, "-P", "-m", "lamarckian_cli.launch.clusters.node", action]
    if not node.is_head:
        command = [*_ssh(node), shlex.join(["exec", *command])]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request or {}),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise ClusterError(f"{node.label}: {command[0]} cannot be run; install it, or give --ssh") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(
            f"{node.label}: no answer to {action} within {timeout_s:g} s; raise --timeout where the machine "
            "is only slow"
        ) from error
    answer = _answer(done.stdout)
    if answer is None:
        raise ClusterError(f"{node.label}: {_why(node, done)}")
    if "error" in answer:
        raise ClusterError(f"{node.label}: {answer['error']}")
    return answer


def ask_all(
    nodes: Sequence[Node], question: Callable[[Node], dict[str, Any]]
) -> tuple[dict[str, dict[str, Any]], dict[str, ClusterError]]:
    """Put `question` to all machines at a time: answers, and errors, by the machines' labels."""
    answers: dict[str, dict[str, Any]] = {}
    errors: dict[str, ClusterError] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for node, future in [(node, pool.submit(question, node)) for node in nodes]:
            try:
                answers[node.label] = future.result()
            except ClusterError as error:
                errors[node.label] = error
    return answers, errors


def first_of(errors: Mapping[str, ClusterError]) -> ClusterError:
    """The first error, with the names of the other machines that failed."""
    first, *others = errors
    more = f" ({len(others)} more failed: {', '.join(others)})" if others else ""
    return ClusterError(f"{errors[first]}{more}")


def _ssh(node: Node) -> list[str]:
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"]
    return [*node.ssh, *options, *(["-l", node.user] if node.user else []), node.host]


def _answer(output: str) -> dict[str, Any] | None:
    for line in reversed(output.splitlines()):
        if line.startswith(MARK):
            try:
                answer = json.loads(line.removeprefix(MARK))
            except ValueError:
                return None  # cut short
            return answer if isinstance(answer, dict) else None
    return None


def _why(node: Node, done: subprocess.CompletedProcess[str]) -> str:
    """Why a machine gave no answer, and what to do about it."""
    lines = [line.strip() for line in done.stderr.splitlines()]
    said = [line for line in lines if line and not BACKTRACE.search(line)]
    last = said[-1] if said else "it said nothing"
    python = node.python
    if "No module named" in done.stderr:
        return (
            f"{python} there has no lamarckian-cli of this version ({last}); install it there, or give the "
            "Python that has it with --python"
        )
    if done.returncode in NOT_FOUND:
        return f"{python} cannot be run there ({last}); give the path of Python there with --python"
    if done.returncode == SSH_FAILED and not node.is_head:
        by_hand = shlex.join([*node.ssh, *(["-l", node.user] if node.user else []), node.host])
        return f"SSH does not get there ({last}); `{by_hand} true` must work without a question"
    return f"it ended with status {done.returncode}: {last}"
