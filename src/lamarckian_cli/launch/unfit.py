"""Machines that cannot take part, or could not: why, and when each is tried again.

What keeps a machine out is mended while the job runs: memory is freed, a port opened, a package
installed. So it is tried again, after pauses that grow from 30 s to 10 minutes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_calls
from lamarckian_cli.launch.placement import Machine

CLOCKS_DIFFER_S = 60.0  # beyond which certificates and logs become a nuisance
FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 600.0


@dataclass(slots=True)
class Case:
    """One machine's."""

    machine: Machine
    why: str
    pause_s: float  # from its last failure to the next try
    again_at: float


class Unfit:
    """The machines that an attempt failed on, by node id: a machine that Ray reports anew is a new one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cases: dict[str, Case] = {}

    def add(self, machine: Machine, why: str, worked_s: float | None) -> str:
        """It failed; what to tell the user, empty where that is known already.

        `worked_s` is for how long it was of use; None: not at all. What worked is tried again at
        once, but not twice in a row unless it worked for longer than it was kept waiting.
        """
        before = self._cases.get(machine.node_id)
        if worked_s is not None and (before is None or worked_s >= max(before.pause_s, FIRST_PAUSE_S)):
            before, pause_s = None, 0.0
        elif before is None or before.pause_s == 0.0:
            pause_s = FIRST_PAUSE_S
        else:
            pause_s = min(2 * before.pause_s, LONGEST_PAUSE_S)
        self._cases[machine.node_id] = Case(machine, why, pause_s, self._clock() + pause_s)
        if before is not None and _without_numbers(before.why) == _without_numbers(why):
            return ""
        again = f"it is tried again in {pause_s:g} s" if pause_s else "it is tried again now"
        return f"{named(machine)} is not used: {why.rstrip('.')}; {again}"

    def waits(self, machine: Machine) -> bool:
        """Whether it is not yet to be tried again."""
        case = self._cases.get(machine.node_id)
        return case is not None and self._clock() < case.again_at

    def is_new_to_use(self, machine: Machine) -> bool:
        """Whether a machine that works now was kept waiting before; said once."""
        case = self._cases.get(machine.node_id)
        if case is None or not case.why:
            return False
        case.why = ""  # should it fail again, that is news
        return case.pause_s > 0

    def keep(self, alive: Iterable[str]) -> None:
        """Forget all whose node id is not in `alive`."""
        alive = set(alive)
        self._cases = {node: case for node, case in self._cases.items() if node in alive}

    def reasons(self) -> dict[str, str]:
        """Those that are kept waiting: node id to a sentence that names the machine and why."""
        return {
            node: f"{named(case.machine)} is not used: {case.why.rstrip('.')}"
            for node, case in self._cases.items()
            if self.waits(case.machine)
        }


def named(machine: Machine) -> str:
    """A machine in a message."""
    return f"{machine.name} ({machine.address})"


def check_fit(facts: Mapping[str, Any], vector_bytes: int) -> None:
    """Raise a ClusterError where a machine, as its node agent describes it, cannot have actors."""
    ours, theirs = metadata.version("lamarckian-cli"), facts["version"]
    if ours != theirs:
        raise ClusterError(
            f"it runs lamarckian-cli {theirs}, this machine {ours}; install the same version on both"
        )
    need = 3 * vector_bytes  # two versions, and the one that is read while they change
    if facts["shm_free_bytes"] < need:
        raise ClusterError(
            f"it has {facts['shm_free_bytes'] / 1e6:.0f} MB of shared memory left, weights take "
            f"{need / 1e6:.0f} MB; give it more (in a container: docker run --shm-size=1g)"
        )


def clock_note(machine: Machine, its_time: float) -> str:
    """What to say of a clock that differs, in seconds since 1970; empty where it does not."""
    ahead_s = its_time - time.time()
    if abs(ahead_s) <= CLOCKS_DIFFER_S:
        return ""
    return (
        f"the clock of {named(machine)} is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}; "
        "training does not mind, certificates and logs do: set it (chrony, systemd-timesyncd)"
    )


def why_ended(error: Exception) -> str:
    """Why a machine has no node agent, of what Ray raised."""
    if "No module named" in str(error):
        return (
            "the Python that Ray runs there has no lamarckian-cli; install the same version as here "
            "(docker/install.sh does it)"
        )
    if isinstance(error, ray_calls.ray().exceptions.RayActorError):
        return "its node agent has ended, or Ray cannot reach it"
    return f"Ray cannot run a node agent there: {ray_calls.first_line(error)}"


def _without_numbers(why: str) -> str:
    """The same reason in other numbers is no news."""
    return re.sub(r"\d+", "", why)
