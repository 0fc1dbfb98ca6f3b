"""A former member writes to no changelog; real workers are frozen for longer than a session."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest

from faust_assigner.app.membership.changelog_guard import MembersClient, NoMember, send_as_member
from faust_assigner.app.membership.fence import HeartbeatFence, watch
from faust_assigner.testing.broker import broker_process
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load, judge
from tests.support.workers.virtual import Worker, running
from tests.support.workers.virtual_kafka import VirtualProducer

CHANGES, OUTPUTS = ("changes", 0), ("outputs", 0)


class Batch:
    """A batch of records that waits to be sent, created at ``_ctime``."""

    def __init__(self, made_at: float) -> None:
        self._ctime = made_at
        self._msg_futures = ["of a record"]
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def failure(self, exception: BaseException) -> None:
        """Fail the batch with ``exception``."""
        assert not self._msg_futures, "each record would have its line in the log"
        self.future.set_exception(exception)

    @property
    def error(self) -> BaseException | None:
        """The reason why the batch was dropped; None if the batch was sent."""
        return self.future.exception() if self.future.done() else None


class TP(tuple[str, int]):
    """A topic and a partition number."""

    topic = property(lambda self: self[0])
    partition = property(lambda self: self[1])


class Sender:
    """aiokafka's sender, which records the batches that reached the broker."""

    def __init__(self) -> None:
        self._in_flight, self._muted_partitions = {1}, {TP(CHANGES), TP(OUTPUTS)}
        self.sent: list[TP] = []

    async def send(self, node: int, batches: Mapping[TP, Batch]) -> None:
        """Send."""
        self.sent += batches
        self._in_flight.discard(node)
        self._muted_partitions -= set(batches)


async def attempt(fence: HeartbeatFence, batches: Mapping[TP, Batch]) -> Sender:
    """Send one produce request and return its sender."""
    sender, dropped = Sender(), list[bool]()
    await send_as_member(
        sender,
        sender.send,
        fence,
        lambda topic: topic == "changes",
        lambda: dropped.append(True),
        1,
        batches,
    )
    assert not sender._in_flight
    assert len(dropped) == (set(sender.sent) != set(batches))
    assert not sender._muted_partitions & set(batches)
    return sender


@pytest.mark.timeout(150)
async def test_changes_wait_while_nobody_knows_and_go_when_the_group_answers() -> None:
    """The broker is silent, so the session may or may not be over."""
    now = [0.0]
    fence, batch = HeartbeatFence(6.0, lambda: now[0]), Batch(1.0)
    now[0] = 6.0
    sending = asyncio.create_task(attempt(fence, {TP(CHANGES): batch}))
    await asyncio.sleep(0.2)
    assert not sending.done()
    fence.note_renewal(1.0)
    assert (await sending).sent == [CHANGES]
    assert batch.error is None


@pytest.mark.timeout(150)
async def test_changes_of_a_former_member_are_dropped_and_the_rest_is_sent() -> None:
    """Changes from before the worker joined again are dropped, too; later changes are sent."""
    now = [0.0]
    fence = HeartbeatFence(6.0, lambda: now[0])
    now[0] = 40.0
    old, output = Batch(1.0), Batch(1.0)
    sending = asyncio.create_task(attempt(fence, {TP(CHANGES): old, TP(OUTPUTS): output}))
    await asyncio.sleep(0.1)
    fence.lose()
    assert (await sending).sent == [OUTPUTS]
    assert isinstance(old.error, NoMember)
    assert output.error is None
    now[0] = 41.0
    fence.note_renewal(41.0)
    fence.join()
    late, fresh = Batch(40.5), Batch(41.5)
    assert (await attempt(fence, {TP(CHANGES): late})).sent == []
    assert (await attempt(fence, {TP(CHANGES): fresh})).sent == [CHANGES]


class Client:
    """aiokafka's client, whose connection waits until ``connected`` is set."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.sent: list[Any] = []

    async def ready(self, node_id: int) -> bool:
        """Connect."""
        await self.connected.wait()
        return True

    async def send(self, node_id: int, request: Any) -> str:
        """Write."""
        self.sent.append(request)
        return "answer"


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("topic", "again", "sent"),
    [("changes", False, False), ("changes", True, False), ("outputs", False, True)],
)
async def test_a_request_that_waited_for_its_connection_is_looked_at_again(
    topic: str, again: bool, sent: bool
) -> None:
    """The request was made by a member and is sent by a former or by a re-joined member."""
    now, client = [0.0], Client()
    fence = HeartbeatFence(6.0, lambda: now[0])
    request = SimpleNamespace(_topics=[(topic, [])])
    guarded = MembersClient(client, fence, lambda name: name == "changes")
    sending = asyncio.create_task(guarded.send(1, request))
    await asyncio.sleep(0.05)
    now[0] = 12.0  # the process was frozen meanwhile
    client.connected.set()
    await asyncio.sleep(0.05)
    assert bool(client.sent) == sent
    fence.lose()
    if again:
        fence.join()
    if sent:
        assert await sending == "answer"
    else:
        with pytest.raises(RequestTimedOutError):
            await sending
        assert not client.sent


@pytest.mark.timeout(150)
async def test_a_request_goes_on_once_the_group_has_answered() -> None:
    """The session had not expired."""
    now, client = [0.0], Client()
    fence = HeartbeatFence(6.0, lambda: now[0])
    client.connected.set()
    now[0] = 12.0
    guarded = MembersClient(client, fence, lambda name: name == "changes")
    sending = asyncio.create_task(guarded.send(1, SimpleNamespace(_topics=[("changes", [])])))
    await asyncio.sleep(0.1)
    assert not client.sent
    fence.note_renewal(11.0)
    assert await sending == "answer"


def test_an_assignment_after_a_freeze_proves_no_membership() -> None:
    """The group admitted the member at 1.0; the app learns this at 40.0, after the session."""
    now = [0.0]
    fence = HeartbeatFence(6.0, lambda: now[0])
    fence.lose()
    fence.note_renewal(1.0)
    now[0] = 40.0
    fence.join()
    assert (fence.lost, fence.is_sure()) == (False, False)
    fence.note_renewal(39.0)
    assert fence.is_sure()


@pytest.mark.parametrize(("error", "heard"), [(0, True), (27, False)])
async def test_a_round_that_admits_an_eager_member_renews_the_fence(
    error: int, heard: bool
) -> None:
    """Kafka starts the session anew with each answered SyncGroup; a refused one proves nothing."""
    answers = [SimpleNamespace(error_code=error)]

    async def send(request: Any) -> Any:
        return answers[0]

    coordinator = SimpleNamespace(_do_heartbeat=None, reset_generation=None, _send_req=send)
    fence = HeartbeatFence(3600.0)
    assert watch(coordinator, fence)
    fence._heard_at -= 3600.0
    assert await coordinator._send_req(SyncGroupRequest("g", 1, "m", None, [])) is answers[0]
    assert fence.is_sure() is heard
    fence._heard_at -= 7200.0
    await coordinator._send_req(HeartbeatRequest("g", 1, "m"))
    assert not fence.is_sure()


async def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    """A refused heartbeat ends the membership at once."""
    heard: list[str] = []

    async def beat() -> bool:
        return True

    coordinator = SimpleNamespace(
        _do_heartbeat=beat, reset_generation=lambda: heard.append("reset"), _send_req=None
    )
    fence = HeartbeatFence(3600.0)
    assert watch(coordinator, fence)
    assert await coordinator._do_heartbeat()
    assert fence.is_sure()
    coordinator.reset_generation()
    assert (fence.lost, fence.is_sure()) == (True, False)
    fence.join()
    assert fence.is_sure()
    assert heard == ["reset"]
    assert not watch(SimpleNamespace(), fence)


@pytest.mark.slow
@pytest.mark.timeout(150)
async def test_a_record_whose_change_did_not_arrive_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stock logs the error and commits; the row then lacks the change after the next failure."""
    refuses, send = False, VirtualProducer.send

    async def maybe_refused(self: VirtualProducer, topic: str, *args: Any, **kwargs: Any) -> Any:
        if not refuses or topic != worker.changelog().topic:
            return await send(self, topic, *args, **kwargs)
        await asyncio.sleep(0.3)  # stock's flush gives the send 0.1 s, and commits
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(NoMember("given up"))
        return failed

    monkeypatch.setattr(VirtualProducer, "send", maybe_refused)
    worker = Worker(repaired=True, broker_commit_interval=0.05)
    async with running(worker):
        await worker.rebalance([0])
        worker.send_orders(5)
        assert await worker.until(lambda: worker.logs.committed.get(worker.source()) == 5)
        refuses = True
        worker.send_orders(5)
        assert await worker.until(lambda: len(worker.offsets) == 10)
        assert await worker.until(lambda: worker.app.crash_reason is not None)
        assert worker.logs.committed[worker.source()] == 5


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_worker_frozen_for_longer_than_its_session_spoils_no_row(tmp_path: Path) -> None:
    """Stock's worker overwrites rows of the new owner and trusts its own outdated files."""
    app_id = f"frozen-{time.time_ns()}"
    with broker_process() as broker:
        fleet = Fleet(app_id, broker.bootstrap, 4, tmp_path, session_s=3.0, work_s=0.025)
        load = Load(broker.bootstrap, app_id, 4, orders_per_s=15.0)
        try:
            load.prepare(20)
            for name in ("worker-1", "worker-2"):
                fleet.start(name)
            load.start()
            fleet.settle(workers=2, quiet_s=1.0)
            for name in ("worker-1", "worker-2", "worker-1"):
                generation = fleet.generation()
                fleet.workers[name].process.send_signal(signal.SIGSTOP)
                time.sleep(7.0)
                fleet.workers[name].process.send_signal(signal.SIGCONT)
                fleet.settle(workers=2, after=generation + 1, quiet_s=1.0)
            load.stop()
            fleet.drain(sum(load.sent))
            verdict = judge(load, fleet.orders(), fleet.totals())
            assert (verdict.lost, verdict.wrong_rows) == (0, ())
        finally:
            load.stop()
            fleet.stop()
