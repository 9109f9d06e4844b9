"""Hosts out of namespaces: apart from each other and from us, as fast as asked for, and gone when we are."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lamarckian_cli.bench.hosts import Hosts, available
from lamarckian_cli.errors import ClusterError

pytestmark = [
    pytest.mark.skipif(bool(available()), reason=f"no hosts can be made here: {available()}"),
    pytest.mark.usefixtures("no_children_left"),
]

MBIT_PER_S = 50
TRANSFER_BYTES = 2_000_000
DEADLINE_S = 10.0

# Arguments: send or take, how many peers, how many bytes each. Prints the seconds that it took.
SERVER = """
import socket, sys, threading, time
way, peers, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listener = socket.create_server(("0.0.0.0", 5000))
print("listening", flush=True)
connections = [listener.accept()[0] for _ in range(peers)]
def serve(connection):
    if way == "send":
        connection.sendall(bytes(size))
        connection.shutdown(socket.SHUT_WR)
    while connection.recv(1 << 20):
        pass
threads = [threading.Thread(target=serve, args=(one,)) for one in connections]
began = time.perf_counter()
for one in connections:
    one.sendall(b"!")
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(time.perf_counter() - began)
"""
CLIENT = """
import socket, sys
address, way, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = socket.create_connection((address, 5000), timeout=10)
connection.recv(1)
if way == "send":
    connection.sendall(bytes(size))
else:
    while connection.recv(1 << 20):
        pass
connection.close()
"""
REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.5)"
MAKER = """
import sys
from lamarckian_cli.bench.hosts import Hosts
with Hosts(2, mbit_per_s=10) as hosts:
    # One that ignores what it can, and one that nobody waits for.
    script = 'trap "" TERM HUP INT; (trap "" TERM HUP; sleep 1000) & readlink /proc/self/ns/net; sleep 1000'
    lines = [host.popen(["sh", "-c", script], stdout=-1, text=True).stdout.readline() for host in hosts]
    print(*map(str.strip, lines), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hosts():
    with Hosts(3, mbit_per_s=MBIT_PER_S) as made:
        yield made


def test_hosts_reach_each_other_and_nothing_else(hosts):
    assert [host.name for host in hosts] == ["host1", "host2", "host3"]
    listening = listen(hosts[1])
    assert reaches(hosts[0], hosts[1].address)
    assert reaches(hosts[2], "host2")  # by name, too
    with contextlib.closing(local_server()) as server:
        port = server.getsockname()[1]
        for elsewhere in ("127.0.0.1", "192.0.2.1"):
            assert not reaches(hosts[0], elsewhere, port)
    assert text(hosts[0], "hostname") == "host1"
    links = [line.partition(" ")[0] for line in text(hosts[0], "ip -br link").splitlines()]
    assert [link.partition("@")[0] for link in links] == ["lo", "eth0"]
    end(listening)


def test_each_has_its_own_memory_and_processes_and_our_program(hosts, tmp_path):
    for folder in ("/tmp", "/dev/shm"):
        assert text(hosts[0], f"echo mine > {folder}/it; cat {folder}/it") == "mine"
        assert not Path(folder, "it").exists()
        assert "it" not in text(hosts[1], f"ls {folder}").split()
    assert not str(tmp_path).startswith("/tmp") or text(hosts[0], f"ls -d {tmp_path} || echo no") == "no"
    assert len(text(hosts[0], "ls -d /proc/[0-9]*").split()) < 6
    script = "import lamarckian_cli, os; print(os.getcwd(), lamarckian_cli.__file__)"
    assert str(Path.cwd()) in hosts[0].run([sys.executable, "-c", script], timeout_s=DEADLINE_S).stdout


def test_a_folder_is_kept(tmp_path):
    kept, other = tmp_path / "kept", tmp_path / "other"
    kept.mkdir()
    other.mkdir()
    with Hosts(1, mbit_per_s=None, keep=[kept], shm_bytes=2**20) as [host]:
        assert text(host, f"echo seen > {kept}/by; pwd", cwd=kept) == str(kept)
        assert (kept / "by").read_text() == "seen\n"
        assert host.run(["true"], timeout_s=DEADLINE_S, cwd="/not/there").returncode == 126
        assert host.run(["no-such-program"], timeout_s=DEADLINE_S).returncode == 127
        assert "No space" in host.run(["fallocate", "-l2M", "/dev/shm/it"], timeout_s=DEADLINE_S).stderr


@pytest.mark.parametrize("way", ["send", "take"])
def test_a_link_is_as_fast_as_asked_for(hosts, way):
    """One host with two others, so that its own link is the narrow one, out and in."""
    rate = max(mbit_per_s_measured(hosts, way) for _ in range(2))  # others may use the machine
    assert MBIT_PER_S * 0.85 < rate < MBIT_PER_S * 1.05


def test_a_popen_is_the_process_itself(hosts):
    process = hosts[0].popen(["sleep", "1000"])
    process.terminate()
    assert process.wait(DEADLINE_S) == -signal.SIGTERM
    with pytest.raises(ClusterError, match=r"host1: sleep 1000 took more than 0\.1 s"):
        hosts[0].run(["sleep", "1000"], timeout_s=0.1)
    assert "sleep" not in text(hosts[0], "cat /proc/[0-9]*/comm")


def test_a_link_is_cut_and_mended(hosts):
    listening = listen(hosts[1])
    before = text(hosts[1], "ip -br address show eth0; ip route").replace(" linkdown", "").split()[2:]
    hosts[1].cut()
    hosts[1].cut()
    assert not reaches(hosts[0], hosts[1].address)
    assert text(hosts[1], "ip -br address show eth0; ip route").replace(" linkdown", "").split()[2:] == before
    hosts[1].mend()
    assert eventually_reaches(hosts[0], hosts[1].address)
    end(listening)


def test_a_port_is_blocked_and_others_are_not(hosts):
    first, second = listen(hosts[1], 5000), listen(hosts[1], 5001)
    hosts[1].block(5000)
    hosts[1].block(5002)
    assert not reaches(hosts[0], hosts[1].address, 5000)
    assert reaches(hosts[0], hosts[1].address, 5001)
    end(first, second)


def test_a_host_is_killed_and_starts_again_as_it_was_but_empty(hosts):
    listening = listen(hosts[1])
    assert reaches(hosts[0], hosts[1].address)
    text(hosts[1], "touch /tmp/it")
    hosts[1].kill()
    hosts[1].kill()
    assert listening.returncode == -signal.SIGKILL
    end(listening)
    assert not reaches(hosts[0], hosts[1].address)
    with pytest.raises(ClusterError, match="host2 is down; restart it first"):
        hosts[1].popen(["true"])
    hosts[1].restart()
    listening = listen(hosts[1])
    assert eventually_reaches(hosts[0], hosts[1].address)
    assert "it" not in text(hosts[1], "ls /tmp").split()
    end(listening)


def test_nothing_is_left_when_the_maker_is_killed():
    interfaces = os.listdir("/sys/class/net")
    maker = subprocess.Popen([sys.executable, "-c", MAKER], stdin=-1, stdout=-1, text=True)
    networks = set(maker.stdout.readline().split())
    assert len(networks) == 2
    assert len(inhabitants(networks)) >= 8  # holder's first process, two shells, sleep
    maker.kill()
    maker.communicate()
    deadline = time.monotonic() + DEADLINE_S
    while (left := inhabitants(networks)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []
    assert os.listdir("/sys/class/net") == interfaces


def test_a_bad_speed_is_refused():
    with pytest.raises(ClusterError, match=r"mbit_per_s is -1; it must be above 0"):
        Hosts(1, mbit_per_s=-1)


def text(host, script, **keywords):
    return host.run(["sh", "-c", script], timeout_s=DEADLINE_S, **keywords).stdout.strip()


def listen(host, port=5000):
    script = f'import socket; s = socket.create_server(("", {port})); print("listening", flush=True)'
    process = host.popen([sys.executable, "-c", script + "\nwhile True: s.accept()"], stdout=-1, text=True)
    assert process.stdout.readline() == "listening\n"
    return process


def local_server():
    return socket.create_server(("127.0.0.1", 0))


def end(*processes):
    for process in processes:
        process.kill()
        process.communicate()


def reaches(host, address, port=5000):
    return host.run([sys.executable, "-c", REACH, address, str(port)], timeout_s=DEADLINE_S).returncode == 0


def eventually_reaches(host, address):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if reaches(host, address):
            return True
    return False


def mbit_per_s_measured(hosts, way):
    """What goes through the first host's link while it sends to, or takes from, the two others."""
    half = str(TRANSFER_BYTES // 2)
    server = hosts[0].popen([sys.executable, "-c", SERVER, way, "2", half], stdout=-1, text=True)
    assert server.stdout.readline() == "listening\n"
    other = {"send": "take", "take": "send"}[way]
    command = [sys.executable, "-c", CLIENT, hosts[0].address, other, half]
    clients = [host.popen(command) for host in list(hosts)[1:]]
    seconds = float(server.communicate(timeout=DEADLINE_S)[0])
    assert [client.wait(DEADLINE_S) for client in clients] == [0, 0]
    return TRANSFER_BYTES * 8 / 1e6 / seconds


def inhabitants(networks):
    """Processes in any of these network namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "ns/net") in networks:
                found.append(int(entry.name))
    return found
