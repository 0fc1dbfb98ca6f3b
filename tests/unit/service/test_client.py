"""The client against a fake service: repeated commands, repeated answers, and the choice of targets."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service.client import (
    Access,
    Assigned,
    AssignerClient,
    Grant,
    Lost,
    Registration,
    Release,
    Retry,
    TopicPartition,
    Warm,
)
from faust_assigner.service.digest import digest_of
from faust_assigner.service.errors import Expelled, Replaced
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import add_KafkaAssignerServicer_to_server
from tests.support.assigning.instances import calls_ended, until
from tests.support.waiting import PATIENCE_S

AT = TopicPartition("orders", 1)
QUICK = Retry(first_s=0.01, most_s=0.05)


class Part:
    """A fake service that sends each stream the same, and records requests; ``lives_ms`` of a session."""

    def __init__(
        self, *commands: pb.AssignmentCommand, lives_ms: int = 60_000, pulse_ms: int = 0
    ) -> None:
        self.commands = commands
        self.lives_ms = lives_ms
        self.pulse_ms = pulse_ms
        self.answers = True
        self.heard: list[Any] = []
        self.asked = self.streams = 0
        self.end = asyncio.Event()

    async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
        """Send the full assignment, then the commands; after :attr:`end`, UNAVAILABLE."""
        self.asked += 1
        while not self.answers:
            await asyncio.sleep(0.01)
        self.streams += 1
        yield pb.AssignmentCommand(
            assignment=pb.AssignmentUpdate(
                assigned=[pb.TopicPartition(topic="orders", partition=1)],
                snapshot=True,
                session_id=f"s{self.streams}",
                lives_ms=self.lives_ms,
                pulse_ms=self.pulse_ms,
            )
        )
        for command in self.commands:
            yield command
        await self.end.wait()
        self.end.clear()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:  # noqa: N802
        """Confirm the session, or never answer."""
        while not self.answers:
            await asyncio.sleep(0.01)
        return pb.HeartbeatResponse(known=True, lives_ms=self.lives_ms)

    def __getattr__(self, name: str) -> Any:
        async def hear(request: Any, context: Any) -> Any:
            self.heard.append(request)
            return getattr(pb, f"{name}Response")()

        return hear


@contextlib.asynccontextmanager
async def serving(part: Part) -> AsyncIterator[str]:
    """Serve the fake on a loopback port."""
    server = grpc.aio.server()
    add_KafkaAssignerServicer_to_server(part, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
        await calls_ended()


@contextlib.asynccontextmanager
async def told_by(client: AssignerClient) -> AsyncIterator[list[Any]]:
    """Collect the client's commands."""
    others, told = asyncio.all_tasks(), list[Any]()

    async def listen() -> None:
        async with contextlib.aclosing(client.commands()) as commands:
            async for command in commands:
                told.append(command)

    task = asyncio.create_task(listen())
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await calls_ended(others)


def release() -> pb.AssignmentCommand:
    """A release of the owned partition."""
    return pb.AssignmentCommand(
        release=pb.ReleasePartition(
            partition=pb.TopicPartition(topic="orders", partition=1),
            new_owner="b",
            handoff_id=7,
            strict=True,
        )
    )


def warm() -> pb.AssignmentCommand:
    """A warm-up of a second partition."""
    return pb.AssignmentCommand(
        warm=pb.WarmPartition(
            partition=pb.TopicPartition(topic="orders", partition=2),
            current_owner="b",
            handoff_id=8,
        )
    )


async def test_a_release_that_was_cut_off_by_the_sessions_end_is_told_again() -> None:
    """The consumer lost the partition with its session, but the service still waits for the answer."""
    part = Part(release(), lives_ms=300)
    async with serving(part) as target, told_by(AssignerClient(target, "a", retry=QUICK)) as told:
        await until(lambda: any(isinstance(one, Release) for one in told))
        part.answers = False
        await until(lambda: any(isinstance(one, Lost) for one in told))
        part.answers = True
        await until(lambda: sum(isinstance(one, Release) for one in told) >= 2)
        assert [type(one) for one in told[:5]] == [Assigned, Release, Lost, Assigned, Release]


async def test_a_release_that_failed_ends_the_work_on_its_partition() -> None:
    """The report has the epoch of the work, and afterwards the client owns no partition."""
    part = Part(release())
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: any(isinstance(one, Release) for one in told))
            epoch = client.holdings.epoch(AT)
            asked = next(one for one in told if isinstance(one, Release))
            assert client.holdings.may_work(AT, 0.0)
            await client.release_failed(asked, "the disk is full")
            assert not client.holdings.may_work(AT, 0.0)
            assert [request.epoch for request in part.heard] == [epoch]


async def test_what_is_told_by_a_new_stream_again_is_told_once() -> None:
    """A warm-up continues across a reconnect."""
    part = Part(warm())
    async with serving(part) as target, told_by(AssignerClient(target, "a", retry=QUICK)) as told:
        await until(lambda: any(isinstance(one, Warm) for one in told))
        part.end.set()
        await until(lambda: part.streams == 2)
        await asyncio.sleep(0.1)
        assert sum(isinstance(one, Warm) for one in told) == 1


async def test_an_acknowledgement_that_was_lost_is_sent_again() -> None:
    """The client itself answers the repeated command, without the consumer."""
    part = Part(warm())
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: any(isinstance(one, Warm) for one in told))
            await client.ready(next(one for one in told if isinstance(one, Warm)))
            assert len(part.heard) == 1
            part.end.set()
            await until(lambda: len(part.heard) == 2)
            assert part.heard[0] == part.heard[1]
            assert sum(isinstance(one, Warm) for one in told) == 1


async def test_one_target_down_the_next_is_tried() -> None:
    """The client tries targets until one answers, and again after the end of a session."""
    part = Part()
    async with serving(part) as target:
        client = AssignerClient(["127.0.0.1:1", target], "a", retry=QUICK)
        async with told_by(client):
            await until(lambda: part.streams == 1)
            part.end.set()
            await until(lambda: part.streams == client.streams == 2)


async def test_a_target_that_takes_the_call_and_never_answers_is_left_for_the_next() -> None:
    """A stopped process still accepts connections, and would block the client."""
    stopped, part = Part(), Part()
    stopped.answers = False
    patience = replace(QUICK, answer_s=0.2)
    async with (
        serving(stopped) as first,
        serving(part) as second,
        told_by(AssignerClient([first, second], "a", retry=patience)),
    ):
        await until(lambda: part.streams == 1, seconds=PATIENCE_S)
        assert stopped.asked > stopped.streams == 0
        stopped.answers = True


async def test_a_service_that_is_slower_than_the_patience_is_reached_all_the_same() -> None:
    """The patience grows; otherwise a busy service would get request after request."""

    tried = []

    class Slow(Part):
        async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
            tried.append(request)
            await asyncio.sleep(0.4)
            async for command in super().Register(request, context):
                yield command

    part = Slow()
    async with (
        serving(part) as target,
        told_by(AssignerClient(target, "a", retry=replace(QUICK, answer_s=0.05))) as told,
    ):
        await until(lambda: bool(told), seconds=PATIENCE_S)
        assert len(tried) > 1


async def test_an_answer_that_comes_after_the_sessions_time_begins_a_session_all_the_same() -> None:
    """Otherwise a busy service would get request after request, and no consumer a partition."""

    class Slow(Part):
        async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
            await asyncio.sleep(0.7)
            async for command in super().Register(request, context):
                yield command

    part = Slow(lives_ms=600)
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: client.may_work(AT), seconds=PATIENCE_S)
            assert part.streams == 1
            assert not any(isinstance(one, Lost) for one in told)


async def test_where_a_session_has_ended_the_next_target_is_tried_first() -> None:
    """The target that ended the session may be stopping, or may have lost its store."""
    one, other = Part(), Part()
    async with (
        serving(one) as first,
        serving(other) as second,
        told_by(AssignerClient([first, second], "a", retry=QUICK)),
    ):
        await until(lambda: one.streams == 1)
        one.end.set()
        await until(lambda: other.streams == 1, seconds=PATIENCE_S)
        assert one.streams == 1


class _Crowded(Part):
    """An instance with queued registrations that answers heartbeats while ``beats`` is true."""

    beats = True

    async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
        """Never answer, like a registration in a queue."""
        self.asked += 1
        await asyncio.Event().wait()
        yield pb.AssignmentCommand()

    async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:  # noqa: N802
        """Confirm the session that a different instance began."""
        if not self.beats:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the store is silent")
        return pb.HeartbeatResponse(known=request.session_id == "s1", lives_ms=self.lives_ms)


async def test_a_session_lives_on_while_the_next_registration_waits_for_its_turn() -> None:
    """After an instance stops, many consumers register at once; waiting must not cost partitions."""
    first, crowded = Part(lives_ms=600), _Crowded(lives_ms=600)
    now = [100.0]
    async with serving(first) as a, serving(crowded) as b:
        patient = replace(QUICK, answer_s=600.0)
        client = AssignerClient([a, b], "c", retry=patient, clock=lambda: now[0])
        async with told_by(client) as told:
            await until(lambda: client.may_work(AT))
            first.end.set()
            await until(lambda: crowded.asked == 1)
            # the clock advances by half a life after each heartbeat that renewed the session
            for _ in range(5):
                until_then = client.holdings.until
                now[0] += 0.3
                await until(lambda before=until_then: client.holdings.until > before)
                assert client.may_work(AT)
            assert not any(isinstance(one, Lost) for one in told)
            assert (first.streams, crowded.asked) == (1, 1)


async def test_a_registration_that_waits_for_its_turn_keeps_it_when_the_session_is_over() -> None:
    """A second attempt would be the last in the queue."""
    first, crowded = Part(lives_ms=300), _Crowded(lives_ms=300)
    crowded.beats = False
    async with serving(first) as a, serving(crowded) as b:
        client = AssignerClient([a, b], "c", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: client.may_work(AT))
            first.end.set()
            await until(lambda: any(isinstance(one, Lost) for one in told))
            await asyncio.sleep(0.5)
            assert (first.streams, crowded.asked) == (1, 1)


async def test_a_service_that_says_nothing_of_sessions_is_believed_as_long_as_the_stream_lives() -> (
    None
):
    """The first assigner has no heartbeats; only the stream's end ends a session."""
    part = Part(lives_ms=0)
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: bool(told))
            part.answers = False
            await asyncio.sleep(0.3)
            assert client.may_work(AT)
            assert not any(isinstance(one, Lost) for one in told)


@pytest.mark.parametrize("pulse_ms", [0, 100])
async def test_a_stream_that_falls_silent_is_left_where_it_says_that_it_lives(
    pulse_ms: int,
) -> None:
    """A second instance may answer heartbeats; a service without pulses may be silent for long."""
    part = Part(lives_ms=600, pulse_ms=pulse_ms)
    async with serving(part) as target, told_by(AssignerClient(target, "a", retry=QUICK)) as told:
        await until(lambda: part.streams == 1)
        await asyncio.sleep(1.2)
        assert (part.streams > 1) is (pulse_ms > 0)
        assert not any(isinstance(one, Lost) for one in told)


async def test_a_stream_that_says_that_it_lives_is_not_left() -> None:
    """The stream has no other messages for long."""

    class Pulsing(Part):
        async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
            async with contextlib.aclosing(super().Register(request, context)) as commands:
                yield await anext(commands)
            while True:
                await asyncio.sleep(0.1)
                yield pb.AssignmentCommand(pulse=pb.Pulse())

    part = Pulsing(lives_ms=2_000, pulse_ms=100)
    async with serving(part) as target, told_by(AssignerClient(target, "a", retry=QUICK)) as told:
        await until(lambda: part.streams == 1)
        await asyncio.sleep(3.0)
        assert part.streams == 1
        assert [type(one) for one in told] == [Assigned], "a pulse is nothing to be told"


async def test_a_consumer_hears_by_a_heartbeat_that_it_is_replaced() -> None:
    """The stream's instance may be stopped, and the consumer would process for a time to live."""

    class Other(Part):
        async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:  # noqa: N802
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "a: incarnation one is replaced")

    part = Other(lives_ms=1_200)
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        told: list[Any] = []

        async def listen() -> None:
            async for command in client.commands():
                told.append(command)

        with pytest.raises(Replaced):
            await asyncio.wait_for(listen(), PATIENCE_S)
        assert told[-1] == Lost((AT,))
    await calls_ended()


async def test_a_consumer_whose_registration_is_over_stops_before_it_registers_again() -> None:
    """Other consumers may own its partitions, so it stops before the next registration is answered."""

    class Over(Part):
        async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
            self.answers = self.asked == 0
            async with contextlib.aclosing(super().Register(request, context)) as commands:
                async for command in commands:
                    yield command

        async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:  # noqa: N802
            return pb.HeartbeatResponse(known=False)

    part = Over(lives_ms=1_200)
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK, clock=lambda: 100.0)
        async with told_by(client) as told:
            await until(lambda: part.asked == 2)
            assert (told[-1], client.may_work(AT)) == (Lost((AT,)), False)


async def test_a_session_is_confirmed_from_when_its_heartbeat_was_sent() -> None:
    """The answer may be delayed, but the service counts from the heartbeat's arrival."""
    now = [100.0]

    async def slow(method: str, request: Any, *, timeout: float) -> pb.HeartbeatResponse:
        now[0] += 3.0
        return pb.HeartbeatResponse(known=True, lives_ms=6_000)

    client = AssignerClient("nowhere:1", "a", clock=lambda: now[0])
    client._session.begin(pb.AssignmentUpdate(session_id="s", lives_ms=6_000), until=104.0)
    client._calls.once = slow  # type: ignore[method-assign]
    assert await client._heart._renew("s", 1.0)
    assert client.holdings.until == 106.0


async def test_a_heartbeat_says_what_is_held() -> None:
    """The service thereby finds consumers with a wrong assignment."""
    heard: list[Any] = []

    class Hearing(Part):
        async def Heartbeat(self, request: Any, context: Any) -> pb.HeartbeatResponse:  # noqa: N802
            heard.append(request)
            return await super().Heartbeat(request, context)

    part = Hearing(lives_ms=600)
    async with serving(part) as target, told_by(AssignerClient(target, "a", retry=QUICK)):
        # A busy machine may lose the session before the first heartbeat, whose digest is then
        # empty.
        await until(lambda: any(one.held.count for one in heard))
    said = next(one.held for one in heard if one.held.count)
    assert (said.count, said.digest) == (1, digest_of([("orders", 1, 0)]).digest)


async def test_many_consumers_of_one_process_have_connections_of_their_own() -> None:
    """A connection has at most 128 streams, so the 129th consumer would wait forever."""
    part = Part()
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", 2)])
    add_KafkaAssignerServicer_to_server(part, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with contextlib.AsyncExitStack() as told:
        for number in range(4):
            await told.enter_async_context(
                told_by(AssignerClient(target, f"c{number}", retry=QUICK))
            )
            await until(lambda: part.streams > number, seconds=PATIENCE_S)  # noqa: B023
    await server.stop(None)
    await calls_ended()


class _Draining(Part):
    """A service in which a leaving consumer has to wait for its drain."""

    async def Deregister(self, request: Any, context: Any) -> pb.DeregisterResponse:  # noqa: N802
        """Record the request."""
        self.heard.append(request)
        return pb.DeregisterResponse(action=pb.WAIT_FOR_DRAIN)


async def test_who_leaves_says_so_to_the_next_session_too() -> None:
    """The service may have forgotten the leave with the expired registration."""
    part = _Draining()
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: bool(told))
            assert await client.leave()
            part.end.set()
            await until(lambda: len(part.heard) == 2)


async def test_a_leave_that_takes_too_long_ends_with_what_is_left_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No consumer takes the partitions over, but the process may still end."""
    part = _Draining()
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=replace(QUICK, leave_s=0.3))
        told: list[Any] = []

        async def listen() -> None:
            async for command in client.commands():
                told.append(command)

        listening = asyncio.create_task(listen())
        await until(lambda: bool(told))
        assert await client.leave()
        await asyncio.wait_for(listening, PATIENCE_S)
        assert told[-1] == Lost((AT,))
        assert not client.may_work(AT)
    assert (
        "a: could not hand over all partitions within 0.3 s: 1 partitions (orders/1)" in caplog.text
    )


async def test_a_leave_that_nobody_answers_ends(caplog: pytest.LogCaptureFixture) -> None:
    """All instances are down; the registration ends with its time to live."""
    client = AssignerClient("127.0.0.1:1", "a", retry=replace(QUICK, leave_s=0.3))

    async def listen() -> None:
        async for _ in client.commands():
            pass

    listening = asyncio.create_task(listen())
    assert await asyncio.wait_for(client.leave(), PATIENCE_S) is False
    await asyncio.wait_for(listening, PATIENCE_S)
    await calls_ended()


async def test_a_process_that_never_registered_leaves_before_leave_s(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The process has nothing to hand over; a pod before the service would wait to be killed."""
    client = AssignerClient(
        "127.0.0.1:1", "a", retry=replace(QUICK, answer_s=0.2, leave_s=10 * PATIENCE_S)
    )

    async def listen() -> None:
        async for _ in client.commands():
            pass

    listening = asyncio.create_task(listen())
    assert await asyncio.wait_for(client.leave(), PATIENCE_S) is False
    await asyncio.wait_for(listening, PATIENCE_S)
    assert "a: leaves without an answer: its registration has expired" in caplog.text
    await calls_ended()


async def test_a_registered_process_waits_longer_than_answer_s_for_its_handover() -> None:
    """Only the end of its registration shortens its leave."""
    part = _Draining()
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=replace(QUICK, answer_s=0.1, leave_s=60.0))
        async with told_by(client) as told:
            await until(lambda: bool(told))
            assert await client.leave()
            await asyncio.sleep(0.5)
            assert client.may_work(AT)


async def test_a_service_that_does_not_answer_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a log configuration, a program shows only warnings."""
    client = AssignerClient("127.0.0.1:1", "a", retry=QUICK)
    async with told_by(client):
        await until(lambda: any(record.levelname == "WARNING" for record in caplog.records))
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"][:1]
    assert warning.getMessage().startswith("a: not registered at 127.0.0.1:1: UNAVAILABLE: ")


class _Dismissing(Part):
    """A service in which a leaving consumer may stop at once, as no consumer can take its partitions."""

    async def Deregister(self, request: Any, context: Any) -> pb.DeregisterResponse:  # noqa: N802
        """Let the consumer stop."""
        self.heard.append(request)
        return pb.DeregisterResponse(action=pb.SHUTDOWN_NOW)


class _Releases:
    """Handlers that record releases, and whether the consumer may still work."""

    def __init__(self, client: AssignerClient) -> None:
        self.client = client
        self.done: list[tuple[Release, bool]] = []
        self.owned = asyncio.Event()

    async def assigned(self, command: Assigned) -> None:
        """Note the assignment."""
        self.owned.set()

    async def release(self, command: Release) -> int | None:
        """Record the release."""
        self.done.append((command, self.client.may_work(command.partition)))
        return None


async def test_the_last_process_releases_before_run_ends() -> None:
    """Earlier, the job continued after run(), as it received neither Release nor Lost."""
    async with serving(_Dismissing()) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        handlers = _Releases(client)
        running = asyncio.create_task(client.run(handlers))  # type: ignore[arg-type]
        await asyncio.wait_for(handlers.owned.wait(), PATIENCE_S)
        assert not await client.leave()
        await asyncio.wait_for(running, PATIENCE_S)
        assert handlers.done == [(Release(AT, ""), True)]
        assert not client.may_work(AT)


class _Stuck(_Releases):
    """Handlers whose release never ends."""

    def __init__(self, client: AssignerClient) -> None:
        super().__init__(client)
        self.lost_: list[TopicPartition] = []

    async def release(self, command: Release) -> int | None:
        """Block forever."""
        await asyncio.Event().wait()
        return None

    async def lost(self, command: Lost) -> None:
        """Record the partitions."""
        self.lost_ += command.partitions


async def test_a_release_at_the_end_is_given_up_after_leave_s_without_heartbeats() -> None:
    """Such a registration has no time to live that could end the wait."""
    async with serving(_Dismissing()) as target:
        client = AssignerClient(target, "a", retry=replace(QUICK, leave_s=0.3))
        handlers = _Stuck(client)
        running = asyncio.create_task(client.run(handlers))  # type: ignore[arg-type]
        await asyncio.wait_for(handlers.owned.wait(), PATIENCE_S)
        client.holdings.confirm(math.inf)
        assert not await client.leave()
        await asyncio.wait_for(running, PATIENCE_S)
        assert handlers.lost_ == [AT]


class _Loses(_Releases):
    """Handlers that block in their first call until :attr:`go`, and record lost partitions."""

    def __init__(self, client: AssignerClient) -> None:
        super().__init__(client)
        self.go = asyncio.Event()
        self.lost_: list[TopicPartition] = []

    async def assigned(self, command: Assigned) -> None:
        """Record, then block."""
        self.owned.set()
        self.lost_ += command.removed
        await self.go.wait()

    async def lost(self, command: Lost) -> None:
        """Record the partitions."""
        self.lost_ += command.partitions


@pytest.mark.parametrize("is_lost", [False, True], ids=["another owns it", "the session is over"])
async def test_a_partition_that_goes_after_the_end_of_a_leave_is_taken_away(is_lost: bool) -> None:
    """A slow handler reads the end late; earlier, a message behind the end was dropped."""
    part = _Dismissing()
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        handlers = _Loses(client)
        running = asyncio.create_task(client.run(handlers))  # type: ignore[arg-type]
        await asyncio.wait_for(handlers.owned.wait(), PATIENCE_S)
        assert not await client.leave()
        if is_lost:
            client._session.give_up()
        else:
            gone = pb.AssignmentUpdate(unassigned=[pb.TopicPartition(topic=AT[0], partition=AT[1])])
            client._inbox.take(pb.AssignmentCommand(assignment=gone), is_first=False)
        handlers.go.set()
        await asyncio.wait_for(running, PATIENCE_S)
        assert (handlers.lost_, handlers.done) == ([AT], [])


class _Forgetful(_Draining):
    """A service that forgot the leave by the second registration, and is busy at that moment."""

    async def Deregister(self, request: Any, context: Any) -> pb.DeregisterResponse:  # noqa: N802
        """Fail the second call."""
        answer = await super().Deregister(request, context)
        if len(self.heard) == 2:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return answer


async def test_a_leave_is_repeated_until_the_next_session_has_heard_it() -> None:
    """Earlier, one failed call left the consumer registered for ten minutes, with partitions."""
    part = _Forgetful()
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client) as told:
            await until(lambda: bool(told))
            assert await client.leave()
            part.end.set()
            await until(lambda: len(part.heard) == 3)


async def test_a_leave_beside_a_registration_ends_that_registration_too() -> None:
    """Earlier, the late registration succeeded, and an ended process got partitions."""
    part = _Dismissing()
    part.answers = False
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        async with told_by(client):
            await until(lambda: part.asked == 1)
            assert not await client.leave()
            part.answers = True
            await until(lambda: len(part.heard) == 2)
            assert part.streams == 1


class _Expelling(Part):
    """A service that ends a stream as expelled after :attr:`end`."""

    async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
        """Send the assignment, then abort."""
        async with contextlib.aclosing(super().Register(request, context)) as commands:
            yield await anext(commands)
            await self.end.wait()
            await context.abort(grpc.StatusCode.ABORTED, "a: incarnation one is expelled")


async def test_an_expelled_consumer_stops_and_does_not_register_again() -> None:
    """Its partitions are lost before the error is raised."""
    part = _Expelling()
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK)
        told: list[Any] = []

        async def listen() -> None:
            async for command in client.commands():
                told.append(command)

        listening = asyncio.create_task(listen())
        await until(lambda: bool(told))
        part.end.set()
        with pytest.raises(Expelled, match="is expelled"):
            await asyncio.wait_for(listening, PATIENCE_S)
        assert told[-1] == Lost((AT,))
        assert part.streams == 1
    await calls_ended()


async def test_a_fault_of_the_client_itself_is_raised_where_its_commands_are_read() -> None:
    """Otherwise the reader would wait for commands of an ended task."""

    def broken() -> list[tuple[str, int]]:
        raise RuntimeError("no such file")

    client = AssignerClient("127.0.0.1:1", "a", registration=Registration(replicas=broken))
    with pytest.raises(RuntimeError, match="no such file"):
        await asyncio.wait_for(anext(client.commands()), PATIENCE_S)
    await calls_ended()


async def test_a_registration_says_what_was_owned_last() -> None:
    """A service that has lost its state can then return the partitions."""
    heard: list[Any] = []

    class Hearing(Part):
        async def Register(self, request: Any, context: Any) -> AsyncIterator[pb.AssignmentCommand]:  # noqa: N802
            heard.append(request)
            async with contextlib.aclosing(super().Register(request, context)) as commands:
                yield await anext(commands)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "stopping")

    registration = Registration(former=lambda: [("orders", 7), ("orders", 5)])
    part = Hearing()
    async with (
        serving(part) as target,
        told_by(AssignerClient(target, "a", registration=registration, retry=QUICK)),
    ):
        await until(lambda: len(heard) > 1)
    former = [[(one.topic, list(one.partitions)) for one in said.former] for said in heard[:2]]
    assert former == [[("orders", [5, 7])], [("orders", [1])]]


def test_a_process_knows_its_highest_epoch_after_it_has_lost_the_partition() -> None:
    """Sinks keep that epoch, so a service with a new store must not grant lower epochs."""
    client = AssignerClient("nowhere:1", "a", clock=lambda: 0.0)
    client.holdings.begin(10.0)
    client.holdings.update([Grant(AT, 70)], (), snapshot=True)
    client.holdings.update([Grant(TopicPartition("orders", 2), 9)], [AT])
    client.holdings.expire(10.0)
    request = client._streams.request()
    assert (request.epoch, client.holdings.owned) == (70, {})


async def test_who_speaks_when_its_commands_have_ended_waits_for_no_connection() -> None:
    """No connection follows; earlier, a leave waited for ten minutes and an answer forever."""
    warm = Warm(TopicPartition("orders", 0), "h")
    async with AssignerClient("127.0.0.1:1", "a") as client:
        client._inbox.put(None)
        assert [said async for said in client.commands()] == []
        async with asyncio.timeout(PATIENCE_S):
            assert not await client.leave()
            assert not await client.ready(warm)
            await client.progress(warm, 0.5)


async def test_a_token_whose_file_is_away_for_a_moment_ends_no_consumer(tmp_path: Path) -> None:
    """While the file is replaced, heartbeats and registrations pause."""
    path = tmp_path / "token"
    path.write_text("one")
    part = Part(lives_ms=60_000)
    async with serving(part) as target:
        client = AssignerClient(target, "a", retry=QUICK, access=Access(token_file=path))
        async with told_by(client):
            await until(lambda: part.streams == 1)
            path.unlink()
            part.end.set()
            await asyncio.sleep(0.3)
            assert part.streams == 1
            path.write_text("two")
            await until(lambda: part.streams == 2)


async def test_a_token_without_a_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    """At the start, a missing file means a wrong path."""
    client = AssignerClient("127.0.0.1:1", "a", access=Access(token_file=tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        await anext(client.commands())
    await client.close()
