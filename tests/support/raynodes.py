"""Ray nodes on the hosts of `lamarckian_cli.bench.hosts`, with Ray's token and TLS as a cluster of ours has.

with Hosts(4, mbit_per_s=1000, keep=[folder]) as hosts, RayNodes(hosts, folder) as nodes:
    print(nodes.run(script, timeout_s=60).stdout)   # a driver on the first host, the head
    nodes.kill(2)
    nodes.restart(2)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

from lamarckian_cli.bench.hosts import Host, Hosts
from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.secrets import (
    TOKEN,
    Authority,
    new_secrets,
    ray_environment,
    write_private,
)

PORT = 6379
STORE_BYTES = 80 * 2**20  # Ray takes no less than 75 MiB
START_S = 90.0  # a node alone takes 3 to 8 s of one core, and four of them share two
STOP_S = 30.0
# Ray gives up on a head that does not answer after 14 minutes; these make it 5 s.
IMPATIENT = {
    "RAY_gcs_server_port_wait_time_s": "1",  # how many tries
    "RAY_py_gcs_connect_timeout_s": "2",  # and what each waits for
    "RAY_gcs_rpc_server_connect_timeout_s": "1",
}
# Ray takes a node for dead 13 s after its processes died, and 60 s after it fell silent. With these
# it takes 1.5 and 4.5 s. The head's environment decides.
WATCHFUL = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
# What a driver starts with: `ray`, and `machines(*addresses)`, their node ids once these and no others live.
PRELUDE = """
import logging, time, ray
ray.init(address="{address}", log_to_driver=False, logging_level=logging.ERROR)

def machines(*addresses, timeout_s={timeout_s}):
    deadline = time.monotonic() + timeout_s
    while True:
        # Of an address there may be two for a while, one of them dead and not yet known to be.
        alive = [(node["NodeManagerAddress"], node["NodeID"]) for node in ray.nodes() if node["Alive"]]
        if sorted(address for address, _ in alive) == sorted(addresses):
            return [dict(alive)[address] for address in addresses]
        if time.monotonic() > deadline:
            raise SystemExit(f"after {{timeout_s}} s there are {{sorted(alive)}}, not {{sorted(addresses)}}")
        time.sleep(0.1)
"""


class RayNodes:
    """A node on each host, the head on the first, for as long as a `with` block lasts.

    `folder` is one that the hosts keep; the secrets go there, each host's apart. `token` and
    `tls` say what is switched on. `environment` is added to every node's and driver's.
    """

    def __init__(
        self,
        hosts: Hosts,
        folder: Path,
        *,
        cpus: int = 2,
        token: bool = True,
        tls: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.hosts = list(hosts)
        self.addresses = [host.address for host in self.hosts]
        self.address = f"{self.addresses[0]}:{PORT}"
        self._cpus = cpus
        self._folder = folder
        self._left_out = ("RAY_AUTH",) * (not token) + ("RAY_USE_TLS", "RAY_TLS") * (not tls)
        self._given = {"RAY_AUTH_MODE": "token" if token else "disabled", **(environment or {})}

    def __enter__(self) -> RayNodes:
        """Raises ClusterError with what Ray said where a node does not start."""
        secrets = new_secrets("test")
        authority = Authority(certificate=secrets["ca.pem"], key=secrets["ca-key.pem"])
        for host in self.hosts:
            files = authority.issue([host.address, host.name])
            write_private(self._folder / host.name, {**files, TOKEN: secrets[TOKEN]})
        self.start(0)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.start, range(1, len(self.hosts))))
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Host.restart, self.hosts))  # nothing on it, but up, as it came

    def environment(self, number: int) -> dict[str, str]:
        """What a process on that host needs to be let in; nothing of Ray's from our own environment."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        secrets = ray_environment(self._folder / self.hosts[number].name)
        shown = {name: value for name, value in secrets.items() if not name.startswith(self._left_out)}
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        home = {"HOME": "/tmp"}  # or Ray would find a token of ours
        return {**ours, **home, **quiet, **shown, **self._given}

    def start(self, number: int) -> None:
        """Start Ray on that host, which runs; it joins the head where it is not the first."""
        host = self.hosts[number]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false", "--no-monitor"]
        done = host.run(
            [
                *(ray_program(), "start", f"--node-ip-address={host.address}"),
                *(head if number == 0 else [f"--address={self.address}"]),
                *(f"--num-cpus={self._cpus}", f"--object-store-memory={STORE_BYTES}"),
                *("--disable-usage-stats", "--include-log-monitor=false", "--log-style=record"),
            ],
            timeout_s=START_S,
            env=self.environment(number),
        )
        if done.returncode:
            raise ClusterError(f"ray start on {host.name}: {(done.stdout + done.stderr).strip()}")

    def stop(self, number: int, *, force: bool = False) -> None:
        """End Ray on that host: it takes its leave, or with `force` is killed. The host stays."""
        force_option = ["--force"] if force else []
        done = self.hosts[number].run(
            [ray_program(), "stop", *force_option], timeout_s=STOP_S, env=self.environment(number)
        )
        if done.returncode:
            raise ClusterError(f"ray stop on {self.hosts[number].name}: {done.stderr.strip()}")

    def kill(self, number: int) -> None:
        """The whole host is gone, from one moment to the next."""
        self.hosts[number].cut()
        self.hosts[number].kill()

    def restart(self, number: int) -> None:
        """The host anew, at the same address, and a node on it: for Ray a new one."""
        self.hosts[number].restart()
        self.start(number)

    def run(
        self, script: str, *, timeout_s: float, number: int = 0, environment: Mapping[str, str] | None = None
    ) -> CompletedProcess[str]:
        """A Python driver on that host, by default the head; `PRELUDE` comes before `script`."""
        prelude = PRELUDE.format(address=self.address, timeout_s=timeout_s / 2)
        return self.hosts[number].run(
            [sys.executable, "-c", prelude + script],
            timeout_s=timeout_s,
            env={**self.environment(number), **(environment or {})},
        )


def ray_program() -> str:
    return str(Path(sys.executable).with_name("ray"))
