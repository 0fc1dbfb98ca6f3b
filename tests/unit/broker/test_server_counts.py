"""Counts over all connections: connections by address, held frames and unread answers."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.broker import server, throttle
from faust_assigner.broker.api import offset_commit
from faust_assigner.broker.connection import Connection
from faust_assigner.broker.frames import HeldBytes
from faust_assigner.broker.security.listeners import Listener
from faust_assigner.errors import ConfigError
from tests.support.hall import Hall, Wire, frames, in_hall


def connect(hall: Hall, address: str) -> tuple[Connection, Wire]:
    """Connect a peer from this address."""
    peer, wire = Connection(hall.server), Wire(address, hall.written)
    wire.get_extra_info = lambda name, default=None: (  # type: ignore[method-assign]
        None if name == "peercert" else (address, 1)
    )
    peer.connection_made(wire)
    return peer, wire


def test_connections_are_counted_by_address_and_in_all_until_each_of_them_ends() -> None:
    """The limits are two of an address and three in all; a refused connection counts, too."""

    async def story(hall: Hall) -> tuple[list[bool], dict[str, int], int]:
        hall.node.settings = replace(
            hall.node.settings, max_connections=3, max_connections_per_ip=2
        )
        peers: dict[str, Connection] = {}
        admitted = []
        for step in (
            "a1",
            "a2",
            "a3",
            "-a3",
            "-a1",
            "a4",
            "a5",
            "-a5",
            "b1",
            "b2",
            "-b2",
            "-a2",
            "b3",
        ):
            if step.startswith("-"):
                peers.pop(step[1:]).connection_lost(None)
                continue
            peers[step], wire = connect(hall, step[0])
            admitted.append(not wire.closed)
        return admitted, dict(hall.server._per_address), hall.server.connections

    admitted = [True, True, False, True, False, True, False, True]
    assert in_hall(story) == (admitted, {"a": 1, "b": 2}, 3)


def test_unread_answers_beyond_the_limit_cost_as_few_peers_as_cover_the_surplus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longest stalled connections are closed first; a closing connection counts once."""

    async def story(hall: Hall) -> list[list[str]]:
        found = []
        for limit in (1_500, 1_001, 1_000, 999, 899, 700):
            peers = {}
            for name, stalled, unsent in (
                ("late", 9.0, 500), ("reads", None, 400), ("closing", 0.0, 1), ("first", 1.0, 100),
                ("second", 2.0, 200),
            ):  # fmt: skip
                peers[name], wire = connect(hall, name)
                peers[name].stalled_since = stalled
                peers[name].unsent = unsent
                hall.node.unsent_bytes += unsent
                if name == "closing":
                    peers[name].is_closing = True
                wire.aborted = False
            monkeypatch.setattr(server, "DISCONNECT_UNSENT_BYTES", limit)
            hall.node.unsent_bytes = 1_201
            hall.server._drop_stalled()
            found.append([n for n, peer in peers.items() if peer.is_closing and n != "closing"])
            for peer in peers.values():
                peer.connection_lost(None)
            hall.node.unsent_bytes = 0
        return found

    two, three = ["first", "second"], ["late", "first", "second"]
    assert in_hall(story) == [[], two, two, two, three, three]


def test_frames_beyond_the_budget_cost_the_peers_that_hold_them_for_longest() -> None:
    """Several peers may be dropped at once, even the newest; served frames are free."""
    held: HeldBytes[str] = HeldBytes(100)
    steps: list[tuple[str, int, list[str]]] = [
        ("a", 40, []), ("b", 60, []), ("a", 40, []), ("c", 1, ["a"]), ("b", 0, []), ("d", 99, []),
        ("c", 2, ["c"]), ("d", 100, []), ("e", 5, ["d"]), ("f", 101, ["e", "f"]), ("g", 100, []),
        ("x", 0, []),
    ]  # fmt: skip
    assert [(peer, size, held.hold(peer, size)) for peer, size, _ in steps] == steps


async def test_a_stop_waits_a_moment_for_the_last_answers_and_drops_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reading peer ends in time, a stalled peer is dropped, and the store is closed last."""
    monkeypatch.setattr(server, "STOP_GRACE_S", 0.05)
    hall = Hall()
    steps: list[Any] = []
    peers = {name: connect(hall, name) for name in ("reads", "stalls")}
    for name, (peer, wire) in peers.items():
        wire.close = lambda name=name: steps.append(f"{name} closed")  # type: ignore[method-assign, misc]
        wire.abort = lambda name=name: steps.append(f"{name} dropped")  # type: ignore[method-assign, misc]
        if name == "reads":
            asyncio.get_running_loop().call_later(0.01, peer.connection_lost, None)
    close = hall.node.close
    hall.node.close = lambda: (steps.append("store"), close())[1]  # type: ignore[method-assign, func-returns-value]
    await hall.server.stop()
    assert sorted(steps[:2]) == ["reads closed", "stalls closed"]
    assert steps[2:] == ["stalls dropped", "store"]


@pytest.mark.parametrize("error", [OSError("taken"), ConfigError("unusable TLS files")])
async def test_a_listener_that_cannot_be_opened_closes_those_before_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ports are free for the next start; no timer and no sweep runs."""
    hall = Hall()
    ports = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"
    hall.node.settings = replace(hall.node.settings, listeners=ports)
    opened: list[str] = []
    closed: list[str] = []

    async def listen(self: server.BrokerServer, wanted: Listener) -> None:
        if wanted.has_tls:
            raise error
        opened.append(wanted.protocol)
        name = wanted.protocol
        self._listening.append(
            cast(Any, SimpleNamespace(close=lambda name=name: closed.append(name)))
        )

    monkeypatch.setattr(server.BrokerServer, "_listen", listen)
    with pytest.raises(type(error)):
        await hall.server.start()
    assert closed == opened == ["PLAINTEXT", "SASL_PLAINTEXT"]
    assert (hall.server._listening, hall.server._sweeper, hall.node._chores) == ([], None, [])
    hall.node.close()


def test_a_request_in_progress_writes_nothing_after_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit writes an offset in each turn of the loop; the server waits for no peer."""
    count = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(count) * 2 * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)
    monkeypatch.setattr(server, "STOP_GRACE_S", 0)
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 1)

    async def story(hall: Hall) -> tuple[bool, int]:
        hall.node.catalogue.create("t", 1_000, {})
        parts = [
            {"partition_index": n, "committed_offset": 5, "committed_metadata": ""}
            for n in range(1_000)
        ]
        values = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        peer, wire = hall.connect("peer")
        loop, store, late = asyncio.get_running_loop(), hall.node.store, 0
        wire.abort = lambda: loop.call_soon(peer.connection_lost, None)  # type: ignore[assignment, return-value, method-assign]
        peer.data_received(
            next(frames(8, 1, 2, topics=[{"name": "t", "partitions": parts}], **values))
        )
        while len(hall.node.groups.books.offsets("g")) < 9:
            await asyncio.sleep(0)

        def write(*pairs: object, **more: object) -> None:
            nonlocal late
            late += 1

        def close() -> None:
            store.write = write  # type: ignore[method-assign]

        store.close = close  # type: ignore[method-assign]
        await hall.server.stop()
        for _ in range(9):
            await asyncio.sleep(0)
        return len(hall.node.groups.books.offsets("g")) < 999, late

    assert in_hall(story) == (True, 0)
