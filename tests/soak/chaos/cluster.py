"""Three members of etcd on loopback; each can be killed, stopped and cut from the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

from faust_assigner.service.store.etcd import loses_leases
from faust_assigner.testing.ports import free_port
from tests.support.clients.tcp_proxy import Proxy
from tests.support.etcd import EtcdUnavailable, binary

MEMBERS = 3
START_S = 60.0


class _PeerProxy(Proxy):
    """The other members' connections to a member; bytes wait while either end is cut off."""

    def __init__(self, cluster: Cluster, number: int, port: int) -> None:
        self._cluster = cluster
        self._number = number
        self._sources: WeakKeyDictionary[socket.socket, int | None] = WeakKeyDictionary()
        super().__init__("127.0.0.1", port)

    def _wait(self, near: socket.socket) -> None:
        while not self._ended.is_set() and self._cluster.cut_off is not None:
            if near not in self._sources:
                self._sources[near] = self._cluster.member_of(near)
            ends = (self._number, self._sources[near])
            if self._cluster.cut_off not in ends:
                return
            time.sleep(0.05)


class Cluster:
    """The members by number; ``cut_off`` is the member without connections to its peers."""

    def __init__(self, folder: Path) -> None:
        self.cut_off: int | None = None
        self._folder = folder
        self._ports = [free_port() for _ in range(2 * MEMBERS)]
        self.endpoints = [f"127.0.0.1:{port}" for port in self._ports[:MEMBERS]]
        self._proxies = [_PeerProxy(self, n, self._ports[MEMBERS + n]) for n in range(MEMBERS)]
        self.members: list[subprocess.Popen[bytes] | None] = [None] * MEMBERS

    def start(self, number: int) -> None:
        """Start a member with its existing data."""
        peers = ",".join(f"m{n}=http://{proxy.endpoint}" for n, proxy in enumerate(self._proxies))
        client = f"http://{self.endpoints[number]}"
        options = {
            "name": f"m{number}",
            "data-dir": str(self._folder / f"etcd-{number}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": f"http://127.0.0.1:{self._ports[MEMBERS + number]}",
            "initial-advertise-peer-urls": f"http://{self._proxies[number].endpoint}",
            "initial-cluster": peers,
            "heartbeat-interval": "100",
            "election-timeout": "1000",
        }
        command = [str(binary()), *(f"--{name}={value}" for name, value in options.items())]
        with (self._folder / f"etcd-{number}.log").open("ab") as log:
            self.members[number] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def is_well(self) -> bool:
        """Whether each member answers with a quorum."""
        asked = [str(binary("etcdctl")), "--endpoints", ",".join(self.endpoints)]
        done = subprocess.run(
            [*asked, "endpoint", "health"], capture_output=True, timeout=30, check=False
        )
        return done.returncode == 0

    def wait(self) -> None:
        """Wait until all members are healthy. Raises EtcdUnavailable."""
        deadline = time.monotonic() + START_S
        while not self.is_well():
            if time.monotonic() > deadline:
                raise EtcdUnavailable(f"the cluster is not well after {START_S:g} s")
            time.sleep(0.2)

    def send(self, number: int, what: signal.Signals) -> None:
        """Send a signal to a member."""
        member = self.members[number]
        if member is not None:
            member.send_signal(what)

    def is_leader(self, number: int) -> bool:
        """Whether the member leads; True also without an answer, since the member may lead."""
        asked = [str(binary("etcdctl")), "--endpoints", self.endpoints[number]]
        done = subprocess.run(
            [*asked, "endpoint", "status", "-w", "json"],
            capture_output=True,
            timeout=30,
            check=False,
        )
        if done.returncode:
            return True
        [member] = json.loads(done.stdout)
        status = member["Status"]
        return bool(status["leader"] == status["header"]["member_id"])

    def loses_leases(self) -> bool:
        """Whether a leader of this release, once stopped, ends leases renewed meanwhile."""
        told = subprocess.run(
            [str(binary()), "--version"], capture_output=True, text=True, check=True
        )
        return loses_leases(told.stdout.partition(": ")[2])

    def kill(self, number: int) -> None:
        """Kill a member."""
        member, self.members[number] = self.members[number], None
        if member is not None:
            member.kill()
            member.wait()

    def close(self) -> None:
        """End all members."""
        for number in range(MEMBERS):
            self.kill(number)
        for proxy in self._proxies:
            proxy.close()

    def member_of(self, near: socket.socket) -> int | None:
        """Return the member at the other end of a connection, by the sockets of its process."""
        with contextlib.suppress(OSError):
            port = near.getpeername()[1]
            for number, member in enumerate(self.members):
                if member is not None and _inodes(port) & _sockets(member.pid):
                    return number
        return None


def _inodes(port: int) -> set[str]:
    """Return the sockets on the loopback port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = map(str.split, lines)
    return {of[9] for of in fields if int(of[1].rpartition(":")[2], 16) == port}


def _sockets(process_id: int) -> set[str]:
    """Return the open sockets of a process."""
    found = set()
    for link in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
    return found


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a healthy cluster, and end the cluster at the exit."""
    made = Cluster(folder)
    try:
        for number in range(MEMBERS):
            made.start(number)
        made.wait()
        yield made
    finally:
        made.close()
