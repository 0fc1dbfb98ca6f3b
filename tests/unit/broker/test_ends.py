"""The ends of a broker: the order in a node's close, a start that hangs, and the last repeated byte."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import answering, serve
from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from tests.support.clients.raw_client import request_frame
from tests.support.hall import Hall, in_hall
from tests.support.waiting import PATIENCE_S

HEARTBEAT = 12


class Part:
    """A part of a node that records its end, and whether the node takes writes then."""

    def __init__(self, name: str, acts: list[tuple[Any, ...]], node: Any) -> None:
        self.name, self.acts, self.node = name, acts, node

    def close(self) -> None:
        """Record the call."""
        self.acts.append((self.name, self.node.space.is_open))

    def cancel(self) -> None:
        """Record the call."""
        self.acts.append((self.name, self.node.space.is_open))

    def shutdown(self, **how: Any) -> None:
        """Record the call."""
        self.acts.append((self.name, how))


def test_a_node_ends_its_timers_before_its_threads_and_its_store_last() -> None:
    """Work that waits for a thread is dropped; running work still has the store."""
    node: Any = Node(Settings())
    node.space.is_open = True
    real = [node._crunching, node._reading, node._targets, node.store, node._topic_notifier]
    acts: list[tuple[Any, ...]] = []
    for name in ("_crunching", "_reading", "_targets", "_topic_notifier", "store", "group_timers"):
        setattr(node, name, Part(name, acts, node))
    node._chores = [Part("chore 1", acts, node), Part("chore 2", acts, node)]
    node.close()
    assert acts == [
        ("chore 1", True),
        ("chore 2", True),
        ("group_timers", True),
        ("_topic_notifier", False),
        ("_targets", False),
        ("_crunching", {"cancel_futures": True}),
        ("_reading", {"cancel_futures": True}),
        ("store", False),
    ]
    for part in real[:2]:
        part.shutdown()
    for part in real[2:]:
        part.close()


@pytest.mark.parametrize(("grace_s", "exits"), [(0.005, [0]), (30.0, [])])
async def test_a_start_that_hears_no_signal_is_ended_after_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace_s: float, exits: list[int]
) -> None:
    """A start that ends in time is asked to stop, and has nothing to close."""
    monkeypatch.setattr(serve, "STOP_GRACE_S", grace_s)
    codes: list[int] = []
    goes_on = threading.Event()

    class Exited(BaseException):
        """Ends the test in place of the process."""

    def ended(code: int) -> None:
        codes.append(code)
        goes_on.set()
        raise Exited

    def hanging(settings: Settings, folder: Path, *, progress: Any) -> Any:
        assert folder == tmp_path
        loop.call_soon_threadsafe(stop.set)
        while not exits:
            progress()
        assert goes_on.wait(PATIENCE_S)

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    monkeypatch.setattr(serve, "Node", hanging)
    monkeypatch.setattr(serve, "os", SimpleNamespace(_exit=ended))
    opening = serve._open(Settings(), tmp_path, stop)
    if exits:
        with pytest.raises(Exited):
            await opening
    else:
        assert await opening is None
    assert codes == exits
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def test_a_start_without_a_signal_returns_the_open_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task is left that waits for the signal; the errors of a start are its own."""
    opened: list[Any] = []

    def node(settings: Settings, folder: Path, *, progress: Any) -> Any:
        progress()
        if opened:
            raise OSError("locked")
        opened.append(SimpleNamespace(close=lambda: opened.append("closed")))
        return opened[0]

    monkeypatch.setattr(serve, "Node", node)
    stop = asyncio.Event()
    assert await serve._open(Settings(), tmp_path, stop) is opened[0]
    with pytest.raises(OSError, match="locked"):
        await serve._open(Settings(), tmp_path, stop)
    await asyncio.sleep(0)
    assert (len(opened), len(asyncio.all_tasks())) == (1, 1)


@pytest.mark.parametrize(("size", "is_kept"), [(4_096, True), (4_097, False)])
def test_a_request_of_four_kib_is_the_longest_that_is_answered_unread(
    monkeypatch: pytest.MonkeyPatch, size: int, is_kept: bool
) -> None:
    """Its frame counts without the four bytes of its size."""
    seen: Counter[int] = Counter()
    read = answering.read_header

    def read_header(frame: bytes) -> Any:
        seen[len(frame)] += 1
        return read(frame)

    monkeypatch.setattr(answering, "read_header", read_header)

    def beat(number: int, group_id: str) -> bytes:
        return request_frame(
            HEARTBEAT, 3, number, {"group_id": group_id, "generation_id": 1, "member_id": "m"}
        )

    name = "g" * (size - len(beat(0, "")) + 4)

    async def story(hall: Hall) -> int:
        member, _ = hall.connect("m")
        for number in range(3):
            member.data_received(beat(number, name))
            await hall.answers(number + 1)
        return len({data[8:] for _, data in hall.written})

    assert (in_hall(story), seen) == (1, {size: 1 if is_kept else 3})
