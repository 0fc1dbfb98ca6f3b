"""The router's table, the client's answers, and the connections to etcd, compared as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service.client import (
    Access,
    AssignerClient,
    Grant,
    Release,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client import router as room
from faust_assigner.service.client.registration import Retry
from faust_assigner.service.client.router import Route, Router
from faust_assigner.service.errors import NotFound, Replaced, WrongCaller, WrongPhase
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.store.access import LOOK_S, RETIRED_S, Connections, EtcdAccess
from tests.support.assigning.consumers import virtually
from tests.support.certificates import Authority

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def place(partition: TopicPartition) -> pb.TopicPartition:
    """A partition as a message."""
    return pb.TopicPartition(topic=partition.topic, partition=partition.partition)


def route(partition: TopicPartition, owner: str, epoch: int) -> pb.Route:
    """A route as a message."""
    return pb.Route(partition=place(partition), owner=owner, epoch=epoch, endpoint=f"{owner}:1")


def update(revision: int, *routes: pb.Route, **more: Any) -> pb.AssignmentsUpdate:
    """An update of the table."""
    return pb.AssignmentsUpdate(revision=revision, routes=routes, pulse_ms=1_000, **more)


def read(partition: TopicPartition, owner: str, epoch: int) -> Route:
    """The same route as the table stores it."""
    return Route(partition, owner, epoch, f"{owner}:1")


def test_a_table_in_parts_takes_effect_with_its_last_part() -> None:
    """A complete table replaces the previous one; updates change it; an empty update is a sign of life."""
    now = [50.0]
    router = Router("x:1", clock=lambda: now[0])
    router._take(update(7, route(T0, "a", 5), route(U0, "a", 5), snapshot=True))
    assert dict(router.routes) == {T0: read(T0, "a", 5), U0: read(U0, "a", 5)}
    router._take(update(8, route(T1, "b", 6), snapshot=True, more=True))
    assert (dict(router.routes), router.revision) == (
        {T0: read(T0, "a", 5), U0: read(U0, "a", 5)},
        7,
    )
    router._take(update(8, route(T0, "c", 6)))
    assert dict(router.routes) == {T1: read(T1, "b", 6), T0: read(T0, "c", 6)}
    router._take(update(9, route(T1, "c", 9), unowned=[place(T0), place(U0)]))
    assert dict(router.routes) == {T1: read(T1, "c", 9)}
    assert (router.owner(("t", 1)), router.owner(T0), router.revision) == (
        read(T1, "c", 9),
        None,
        9,
    )
    now[0] = 53.0
    assert router.age_s == 3.0
    router._take(update(11))
    assert (router.age_s, router.revision, len(router.routes)) == (0.0, 11, 1)


class Waits(Retry):
    """Records the attempts, and waits a second."""

    def wait(self, attempt: int, chance: Any) -> float:
        """Record the attempt."""
        TRIES.append(attempt)
        return 1.0


TRIES: list[int] = []


def followed(*outcomes: Any) -> tuple[list[tuple[str, int]], Router]:
    """Play these streams in turn; return the targets with the requested revisions, and the router."""
    TRIES.clear()
    asked: list[tuple[str, int]] = []
    router = Router(("x:1", "y:1"), retry=Waits(), clock=lambda: asyncio.get_running_loop().time())
    left = list(outcomes)

    async def hold_one(target: str, least: int) -> None:
        asked.append((target, least))
        outcome = left.pop(0) if left else WrongCaller("end")
        if isinstance(outcome, Exception):
            raise outcome
        for message in outcome:
            await asyncio.sleep(1.0)
            router._take(message)

    router._hold_one = hold_one  # type: ignore[method-assign]

    async def story() -> None:
        with pytest.raises(WrongCaller):
            async with router:
                await router.until(1_000)

    virtually(story)
    return asked, router


def lost(code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> grpc.aio.AioRpcError:
    """The error of a broken stream."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, "x")


def test_a_router_asks_one_instance_after_another_for_its_revision_at_least() -> None:
    """If no instance has the revision, the store was reset, so the router accepts any revision."""
    table, behind = update(7, route(T0, "a", 5), snapshot=True), grpc.StatusCode.OUT_OF_RANGE
    asked, router = followed(
        [table], lost(behind), lost(behind), lost(behind), [update(2, snapshot=True)], lost()
    )
    assert asked == [
        ("x:1", 0), ("y:1", 7), ("x:1", 7), ("y:1", 7), ("x:1", 0), ("y:1", 2), ("x:1", 2),
    ]  # fmt: skip
    assert (TRIES, router.revision) == ([0, 1, 2, 3, 0, 1], 2)


def test_a_router_accepts_no_older_table_after_an_outage() -> None:
    """Instances that do not answer do not prove that the store was reset."""
    table, behind = update(7, route(T0, "a", 5), snapshot=True), grpc.StatusCode.OUT_OF_RANGE
    outage = [lost(), [], TimeoutError(), lost(), lost(), lost(behind), lost(behind)]
    asked, router = followed([table], *outage, [update(8, snapshot=True)])
    assert [least for _, least in asked] == [0, 7, 7, 7, 7, 7, 7, 7, 7, 8]
    assert router.revision == 8


def test_a_router_with_a_table_survives_a_missing_file_of_its_access() -> None:
    """A token's or a certificate's file may be missing while it is replaced."""
    table = update(7, route(T0, "a", 5), snapshot=True)
    missing = FileNotFoundError(2, "No such file or directory", "token")
    asked, router = followed([table], missing, missing, [update(8, route(T0, "b", 8))])
    assert asked == [("x:1", 0), ("y:1", 7), ("x:1", 7), ("y:1", 7), ("x:1", 8)]
    assert (TRIES, dict(router.routes)) == ([0, 1, 2, 0], {T0: read(T0, "b", 8)})


async def test_a_router_without_a_table_raises_for_a_missing_file_of_its_access(
    tmp_path: Path,
) -> None:
    """The path is probably wrong."""
    with pytest.raises(FileNotFoundError, match="no-token"):
        async with Router("x:1", access=Access(token_file=tmp_path / "no-token")) as router:
            await router.ready()


async def test_a_stream_begins_with_an_empty_table_and_asks_for_its_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An incomplete table of the previous stream is discarded."""
    streams = [
        [update(7, route(T0, "a", 5), snapshot=True, more=True), grpc.aio.EOF],
        [update(8, route(T1, "b", 6), snapshot=True), grpc.aio.EOF],
    ]
    asked: list[tuple[Any, Any]] = []

    class Opened:
        """A fake channel and its stub."""

        def __init__(self, *_: Any) -> None:
            pass

        async def __aenter__(self) -> Opened:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        def WatchAssignments(self, request: Any, *, metadata: Any) -> Any:  # noqa: N802
            """Return the next stream."""
            asked.append((request, metadata))
            left = streams.pop(0)

            async def read() -> Any:
                return left.pop(0)

            return SimpleNamespace(read=read, cancel=lambda: asked.append(("cancelled", "")))

    monkeypatch.setattr(room, "KafkaAssignerStub", Opened)
    access: Any = SimpleNamespace(open=lambda target: Opened(), metadata=lambda: "token")
    router = Router("x:1", topics=("u", "t"), group="g", access=access)
    await router._hold_one("x:1", 5)
    assert (router.revision, len(router.routes)) == (0, 0)
    await router._hold_one("x:1", 6)
    assert dict(router.routes) == {T1: read(T1, "b", 6)}
    requests = [
        pb.WatchAssignmentsRequest(topics=["t", "u"], least_revision=n, group="g") for n in (5, 6)
    ]
    assert asked == [
        (requests[0], "token"), ("cancelled", ""), (requests[1], "token"), ("cancelled", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pulses_ms", "silent_s"),
    [((), 10.0), ((0,), 1.0), ((200,), 1.0), ((500,), 2.0), ((500, 300), 1.2), ((300, 500), 2.0)],
)
def test_a_stream_is_left_after_four_pulses_of_silence_but_not_within_a_second(
    monkeypatch: pytest.MonkeyPatch, pulses_ms: tuple[int, ...], silent_s: float
) -> None:
    """The last pulse counts; the first message has ten seconds."""

    async def story() -> None:
        left = [pb.AssignmentsUpdate(revision=5, pulse_ms=pulse_ms) for pulse_ms in pulses_ms]
        ends: list[str] = []

        class Opened:
            """A channel and its stub, whose stream becomes silent."""

            async def __aenter__(self) -> Opened:
                return self

            async def __aexit__(self, *_: object) -> None:
                ends.append("closed")

            def WatchAssignments(self, request: Any, *, metadata: Any) -> Any:  # noqa: N802
                """Return the stream."""

                async def read() -> Any:
                    await asyncio.sleep(0.5 if left else 60.0)
                    return left.pop(0)

                return SimpleNamespace(read=read, cancel=lambda: ends.append("cancelled"))

        monkeypatch.setattr(room, "KafkaAssignerStub", lambda channel: channel)
        access: Any = SimpleNamespace(open=lambda target: Opened(), metadata=lambda: "token")
        router, loop = Router("x:1", access=access), asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            await router._hold_one("x:1", 0)
        took_s = loop.time() - began - 0.5 * len(pulses_ms)
        assert (took_s, ends) == (pytest.approx(silent_s), ["cancelled", "closed"])

    virtually(story)


async def test_a_router_outside_its_context_waits_for_nothing() -> None:
    """Otherwise the call would wait forever."""
    with pytest.raises(RuntimeError, match="async with"):
        await Router("x:1").ready()


# -- the client's answers ------------------------------------------------------------------------------


class Asked:
    """Replaces the client's calls, and answers or fails."""

    def __init__(self, client: AssignerClient, answer: Any = None) -> None:
        self.client, self.answer = client, answer
        self.calls: list[tuple[str, Any, bool]] = []
        calls: Any = client._calls
        calls.retried = self._retried

    async def _retried(self, method: str, request: Any) -> Any:
        self.calls.append((method, request, T0 in self.client.holdings.owned))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [None, NotFound("x"), WrongPhase("x"), Replaced("x")])
async def test_each_answer_of_a_consumer_is_sent_after_its_own_state_has_changed(
    answer: Any,
) -> None:
    """Only an ended hand-off is no error. A failed release has the grant's epoch."""
    warm, release = Warm(T1, "b", 3), Release(T0, "b", 7, strict=True)
    who: dict[str, Any] = {"consumer_name": "c", "incarnation": "i"}
    of_release = {**who, "partition": place(T0), "handoff_id": 7}
    of_warm = {**who, "partition": place(T1), "handoff_id": 3}
    cases: list[tuple[Any, str, Any, bool]] = [
        (lambda c: c.ready(warm), "PartitionReady", pb.PartitionReadyRequest(**of_warm), True),
        (lambda c: c.failed(warm, "w"), "WarmFailed",
            pb.WarmFailedRequest(**of_warm, reason="w"), True),
        (lambda c: c.released(release, 9), "PartitionReleased",
            pb.PartitionReleasedRequest(**of_release, final_offset=9), False),
        (lambda c: c.release_failed(release, "w"), "ReleaseFailed",
            pb.ReleaseFailedRequest(**of_release, epoch=5, reason="w"), False),
    ]  # fmt: skip
    for call, method, request, is_owned in cases:
        client = AssignerClient("x:1", "c", incarnation="i")
        asked = Asked(client, answer)
        client.holdings.update([Grant(T0, 5)], ())
        client.holdings.release(release)
        if isinstance(answer, Replaced):
            with pytest.raises(Replaced):
                await call(client)
        else:
            assert await call(client) is (answer is None)
        assert asked.calls == [(method, request, is_owned)]


# -- connections to etcd -------------------------------------------------------------------------------


async def test_changed_files_are_looked_for_every_two_seconds_and_by_tls_alone(
    tmp_path: Path,
) -> None:
    """Each endpoint has one connection; endpoint numbers wrap around."""
    authority = Authority(tmp_path)
    now = [10.0]
    for ca, looks in ((authority.ca, 2), (None, 0)):
        access = EtcdAccess(endpoints=("h0:1", "h1:1"), ca=ca)
        connections = Connections(access, clock=lambda: now[0])
        looked: list[float] = []
        files: Any = SimpleNamespace(changed=lambda looked=looked: looked.append(now[0]))
        connections._files = files
        first = connections.of(0)
        for _ in range(4):
            now[0] += LOOK_S - 0.5
            assert connections.of(2) is first
            assert connections.of(3) is connections.of(1) is not first
        assert len(looked) == looks
        assert len(connections._open) == 2
        await connections.close()


async def test_files_are_looked_for_at_the_exact_time(tmp_path: Path) -> None:
    """The time counts from the last look, not from the last call."""
    now = [10.0]
    access = EtcdAccess(endpoints=("h0:1",), ca=Authority(tmp_path).ca)
    connections = Connections(access, clock=lambda: now[0])
    looked: list[float] = []
    connections._files = SimpleNamespace(changed=lambda: looked.append(now[0]))  # type: ignore[assignment]
    for now[0] in (10.0, 11.875, 12.0, 13.875, 14.0, 17.0, 18.875, 19.0):
        connections.of(0)
    assert looked == [12.0, 14.0, 17.0, 19.0]
    await connections.close()


async def test_all_connections_retire_when_a_file_has_changed(tmp_path: Path) -> None:
    """Each endpoint gets a new one at its next call; the end closes the retired ones, too."""
    now = [10.0]
    access = EtcdAccess(endpoints=("h0:1", "h1:1"), ca=Authority(tmp_path).ca)
    connections = Connections(access, clock=lambda: now[0])
    first = [connections.of(0), connections.of(1)]
    closed: list[tuple[int, object]] = []
    for number, channel in enumerate(first):
        kept: Any = channel.close

        async def close(grace: object = None, number: int = number, kept: Any = kept) -> None:
            closed.append((number, grace))
            if grace is None:
                await kept()
            else:
                await asyncio.Event().wait()

        channel.close = close  # type: ignore[method-assign]
    pem = connections._pem
    changed = pem._replace(authorities=(pem.authorities or b"") + b"\n")
    connections._files = SimpleNamespace(changed=lambda: changed)  # type: ignore[assignment]
    now[0] = 12.0
    assert connections.of(1) is not first[1]
    assert (connections._pem, list(connections._open)) == (changed, [1])
    await asyncio.sleep(0)
    assert closed == [(0, RETIRED_S), (1, RETIRED_S)]
    assert set(connections._retired) == set(first)
    await connections.close()
    assert closed[2:] == [(0, None), (1, None)]
    assert connections._open == {}


@pytest.mark.parametrize(
    ("endpoints", "ca", "secure", "second"),
    [
        (("h0:1", "h1:2"), None, False, "h1:2"),
        (("http://h0:1", "h1:2"), None, False, "h1:2"),
        (("https://h0:1", "h1:2"), None, True, "h1:2"),
        (("h0:1", "http://h1:2"), Path("x"), True, "h1:2"),
    ],
)
def test_https_or_an_authority_turns_tls_on(
    endpoints: tuple[str, ...], ca: Path | None, secure: bool, second: str
) -> None:
    """The address is the endpoint without its scheme."""
    access = EtcdAccess(endpoints=endpoints, ca=ca)
    assert (access.secure, access.address(1), access.address(3)) == (secure, second, second)
