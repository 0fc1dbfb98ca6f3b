"""When a member may write to changelogs: the fence, the producer's requests and the commit."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import NodeNotReadyError, RequestTimedOutError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from faust.exceptions import ProducerSendError
from faust.streams import _current_event
from faust.types import TP

from faust_assigner.app.membership import changelog_guard
from faust_assigner.app.membership import fence as membership
from faust_assigner.app.membership.changelog_guard import (
    ChangelogGuard,
    MembersClient,
    NoMember,
    send_as_member,
)
from faust_assigner.app.membership.fence import HeartbeatFence, sent, watch
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from tests.support.waiting import PATIENCE_S

CHANGES, OUTPUTS = TP("changes", 0), TP("outputs", 0)


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock at 100 s."""
    return Clock()


@pytest.fixture
def fence(clock: Clock) -> HeartbeatFence:
    """A fence of a 10 s session that has just begun."""
    return HeartbeatFence(10.0, clock)


def test_an_answer_that_was_asked_for_earlier_shortens_no_session(
    fence: HeartbeatFence, clock: Clock
) -> None:
    """Two answers may arrive in reverse order."""
    clock.now = 108.0
    fence.note_renewal(107.0)
    fence.note_renewal(101.0)
    assert fence.silent_s() == 1.0
    assert fence.is_sure()


def test_a_session_is_over_when_its_time_is(fence: HeartbeatFence, clock: Clock) -> None:
    """From then on the group may remove the member."""
    clock.now = 109.9
    assert fence.is_sure()
    clock.now = 110.0
    assert not fence.is_sure()


def test_changes_made_before_a_membership_was_lost_are_stale_after_the_next_join(
    fence: HeartbeatFence, clock: Clock
) -> None:
    """Until the join all changes are stale; the join of an intact member makes none stale."""
    clock.now = 105.0
    fence.join()
    assert not fence.is_stale(101.0)
    fence.lose()
    assert fence.is_stale(105.0)
    clock.now = 107.0
    fence.join()
    assert [fence.is_stale(made_at) for made_at in (106.9, 107.0, 108.0)] == [True, False, False]


def test_each_lost_membership_counts(fence: HeartbeatFence) -> None:
    """A waiting request compares the number of losses."""
    fence.lose()
    fence.join()
    fence.lose()
    assert (fence.losses, fence.lost) == (2, True)


class Coordinator:
    """aiokafka's coordinator, without cooperative rounds."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.is_known, self.member_id = is_known, "m-1"
        self.answers = asyncio.Event()

    async def _do_heartbeat(self) -> bool:
        await self.answers.wait()
        return self.is_known

    async def _send_req(self, request: Any) -> Any:
        return SimpleNamespace(error_code=0)

    def reset_generation(self) -> None:
        """Drop the member id, as for an unknown member."""
        self.member_id = ""


@pytest.mark.parametrize(("is_known", "heard"), [(True, True), (False, False)])
async def test_a_heartbeat_counts_from_when_it_was_sent_and_where_it_is_answered_well(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, is_known: bool, heard: bool
) -> None:
    """A refusal shows that the group continues without this worker."""
    monkeypatch.setattr(membership, "monotonic", clock)
    coordinator, fence = Coordinator(is_known=is_known), HeartbeatFence(10.0, clock)
    assert watch(coordinator, fence)
    clock.now = 105.0
    beat = asyncio.ensure_future(coordinator._do_heartbeat())
    await asyncio.sleep(0)
    clock.now = 109.0
    coordinator.answers.set()
    assert await beat is is_known
    assert fence.silent_s() == (4.0 if heard else 9.0)


@pytest.mark.parametrize(("rounds", "silent_s"), [({}, 0.0), ({"membership": "watched"}, 9.0)])
async def test_a_coordinator_without_rounds_of_ours_has_its_syncs_watched(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, rounds: dict[str, Any], silent_s: float
) -> None:
    """Our coordinator watches its own rounds and reports to the fence itself."""
    monkeypatch.setattr(membership, "monotonic", clock)
    coordinator, fence = Coordinator(), HeartbeatFence(10.0, clock)
    vars(coordinator).update(rounds)
    assert watch(coordinator, fence)
    clock.now += 9.0
    await coordinator._send_req(SyncGroupRequest("shop", 1, "m-1", None, []))
    assert fence.silent_s() == silent_s


@pytest.mark.parametrize(("rounds", "silent_s"), [({}, 0.0), ({"membership": "watched"}, 7.0)])
def test_a_coordinator_that_has_joined_begins_the_session_as_it_is_watched(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, rounds: dict[str, Any], silent_s: float
) -> None:
    """The app has just got its first assignment; our coordinator has watched its own rounds."""
    monkeypatch.setattr(membership, "monotonic", clock)
    coordinator, fence = Coordinator(), HeartbeatFence(10.0, clock)
    vars(coordinator).update(rounds)
    clock.now += 7.0
    assert watch(coordinator, fence)
    assert fence.silent_s() == silent_s


def test_a_generation_that_is_reset_while_the_member_is_known_loses_nothing() -> None:
    """Cooperative rounds keep a member id which the group still knows."""
    coordinator, fence = Coordinator(), HeartbeatFence(10.0)
    coordinator.reset_generation = lambda: None  # type: ignore[method-assign]
    watch(coordinator, fence)
    coordinator.reset_generation()
    assert not fence.lost


def test_a_member_that_the_group_does_not_know_has_lost_its_membership() -> None:
    """The loss counts once, although the coordinator is watched twice."""
    coordinator, fence = Coordinator(), HeartbeatFence(10.0)
    assert watch(coordinator, fence)
    assert watch(coordinator, fence)
    coordinator.reset_generation()
    assert (fence.lost, fence.losses) == (True, 1)


def test_a_consumer_without_a_group_is_not_watched() -> None:
    """Such a consumer has no heartbeats and owns its assigned partitions."""
    assert not watch(SimpleNamespace(), HeartbeatFence(10.0))


@pytest.mark.parametrize(
    ("kind", "code", "heard"),
    [
        (SyncGroupRequest, 0, True),
        (SyncGroupRequest, 27, False),
        (JoinGroupRequest, 0, False),
        (HeartbeatRequest, 0, False),
    ],
)
async def test_the_answer_to_sync_group_alone_begins_a_session(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, kind: type[Any], code: int, heard: bool
) -> None:
    """The answer admits the member to the group; heartbeats are noted at their send time."""
    monkeypatch.setattr(membership, "monotonic", clock)
    fence = HeartbeatFence(10.0, clock)
    clock.now = 105.0

    async def answer(request: Any) -> Any:
        clock.now = 106.0
        return SimpleNamespace(error_code=code)

    await sent(answer, fence, kind.__new__(kind))
    assert fence.silent_s() == (1.0 if heard else 6.0)


class Batch:
    """An aiokafka batch with a record."""

    def __init__(self, made_at: float = 100.0) -> None:
        self._ctime, self._msg_futures = made_at, ["of a record"]
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def failure(self, *, exception: BaseException) -> None:
        """Set the error, as aiokafka does for each record."""
        assert not self._msg_futures
        self.future.set_exception(exception)


class Sender:
    """Stand in for aiokafka's sender."""

    def __init__(self) -> None:
        self._muted_partitions, self._in_flight = {CHANGES, OUTPUTS}, {1}
        self.sent: list[TP] = []

    async def send(self, node: int, batches: Mapping[TP, Batch]) -> None:
        """Note the batches."""
        self.sent += batches


async def attempt(fence: HeartbeatFence, batches: Mapping[TP, Batch]) -> tuple[Sender, int]:
    """Send a produce request; return the sender and the number of reports of dropped changes."""
    sender, dropped = Sender(), list[bool]()
    await asyncio.wait_for(
        send_as_member(
            sender,
            sender.send,
            fence,
            lambda topic: topic == "changes",
            lambda: dropped.append(True),
            1,
            batches,
        ),
        PATIENCE_S,
    )
    return sender, len(dropped)


async def test_dropped_changes_leave_their_partition_and_their_node_free(
    fence: HeartbeatFence,
) -> None:
    """Else neither is used again; a flush reads the batch's error."""
    fence.lose()
    batch = Batch()
    sender, dropped = await attempt(fence, {CHANGES: batch})
    assert (sender.sent, sender._muted_partitions, sender._in_flight) == ([], {OUTPUTS}, set())
    assert not batch.future._log_traceback, "only a flush reads it, and asyncio would log it"
    assert isinstance(batch.future.exception(), NoMember)
    assert dropped == 1


async def test_what_goes_to_other_topics_is_sent_by_a_former_member(
    fence: HeartbeatFence, clock: Clock
) -> None:
    """Outputs are sent at least once, and a closed fence does not delay them."""
    clock.now = 150.0
    sender, dropped = await attempt(fence, {OUTPUTS: Batch()})
    assert (sender.sent, dropped) == ([OUTPUTS], 0)
    fence.lose()
    sender, dropped = await attempt(fence, {OUTPUTS: Batch(), CHANGES: Batch()})
    assert (sender.sent, dropped, sender._in_flight) == ([OUTPUTS], 1, {1})


class Client:
    """aiokafka's client; ``meanwhile`` runs while the client connects."""

    def __init__(self, meanwhile: Any = None, *, is_ready: bool = True) -> None:
        self.meanwhile, self.is_ready, self.sent = meanwhile, is_ready, 0

    async def ready(self, node: int) -> bool:
        """Connect."""
        if self.meanwhile is not None:
            self.meanwhile()
        return self.is_ready

    async def send(self, node: int, request: Any) -> str:
        """Count the request."""
        self.sent += 1
        return "answer"


def request(topic: str = "changes") -> Any:
    """Return a produce request."""
    return SimpleNamespace(_topics=[(topic, [])])


async def test_a_membership_lost_and_won_again_while_a_request_waited_sends_nothing(
    fence: HeartbeatFence,
) -> None:
    """Its batches may belong to the old membership, so the sender checks them again."""

    def meanwhile() -> None:
        fence.lose()
        fence.join()

    client = Client(meanwhile)
    with pytest.raises(RequestTimedOutError):
        await MembersClient(client, fence, lambda topic: True).send(1, request())
    assert client.sent == 0


async def test_changes_are_not_written_to_a_node_without_a_connection(
    fence: HeartbeatFence,
) -> None:
    """Else the client would connect between the check and the write."""
    client = Client(is_ready=False)
    with pytest.raises(NodeNotReadyError):
        await MembersClient(client, fence, lambda topic: True).send(1, request())
    assert client.sent == 0


async def test_a_request_without_changes_is_not_held_up(fence: HeartbeatFence) -> None:
    """A lost membership does not delay the request."""
    fence.lose()
    members = MembersClient(Client(is_ready=False), fence, lambda topic: topic == "changes")
    assert await members.send(1, request("outputs")) == "answer"


class Consumer(RepairedConsumer):
    """A consumer with its fence and the guard of its changes alone."""

    def __init__(self, *, in_transaction: bool = False) -> None:
        sender = SimpleNamespace(client="client", _send_produce_req="send")
        self.sender = sender
        self.soon: list[Any] = []
        self.discarded = 0

        def send_soon(change: Any) -> str:
            self.soon.append(change)
            return "sent soon"

        self.send_soon = send_soon
        producer = SimpleNamespace(
            send_soon=send_soon,
            _producer=SimpleNamespace(_sender=sender, _txn_manager=None),
            threaded_producer=None,
        )
        self.app: Any = SimpleNamespace(
            in_transaction=in_transaction,
            producer=producer,
            tables=SimpleNamespace(changelog_topics={"changes"}),
            consumer=self,
        )
        self.committed: list[Any] = []
        client = SimpleNamespace(_coordinator=Coordinator())
        self._thread = SimpleNamespace(_consumer=client, commit=self._note_commit)
        self.fence = HeartbeatFence(10.0)
        self.changes = ChangelogGuard(self.app, self.fence)

    async def _note_commit(self, offsets: Any) -> bool:
        self.committed.append(offsets)
        return True

    def change(self, topic: str = "changes") -> asyncio.Future[None]:
        """Send a change as a table does."""
        future: Any = asyncio.get_running_loop().create_future()
        channel = SimpleNamespace(get_topic_name=lambda: topic)
        future.message = SimpleNamespace(channel=channel)
        assert self.app.producer.send_soon(future) == "sent soon"
        return future  # type: ignore[no-any-return]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """A consumer before its first assignment."""
    consumer = Consumer()

    def discard(app: Any) -> None:
        consumer.discarded += 1

    monkeypatch.setattr(changelog_guard, "discard", discard)
    return consumer


async def test_a_commit_waits_for_the_changes_before_it_and_for_no_later_ones(
    made: Consumer,
) -> None:
    """Under load a later change is always in flight."""
    first = made.change()
    committing = asyncio.ensure_future(made._commit({CHANGES: 1}))
    await asyncio.sleep(0.02)
    made.change()
    assert made.committed == []
    first.set_result(None)
    assert await asyncio.wait_for(committing, PATIENCE_S)
    assert made.committed == [{CHANGES: 1}]


async def test_a_commit_waits_for_no_record_of_another_topic(made: Consumer) -> None:
    """Faust flushes the other topics."""
    made.change("outputs")
    assert await asyncio.wait_for(made._commit({}), PATIENCE_S)


async def test_a_record_of_a_revoked_partition_changes_no_table(made: Consumer) -> None:
    """The change would follow the next owner's changes in the changelog; other records go on."""

    class Held(SimpleNamespace):
        __hash__ = object.__hash__

    def record(offset: int) -> Any:
        return Held(message=Held(topic="orders", partition=3, offset=offset))

    late, other = record(7), record(8)
    made.kept_back.given_up.add(late.message)
    for event in (late, other):
        token = _current_event.set(weakref.ref(event))
        try:
            made.change("outputs")
            if event is other:
                made.change()
                continue
            with pytest.raises(ProducerSendError, match=r"orders-3 was revoked .* offset 7"):
                made.change()
        finally:
            _current_event.reset(token)
    assert len(made.soon) == 3
    assert len(made.changes._under_way) == 1, "no commit waits for a refused change"


@pytest.mark.parametrize("how", ["cancelled", "failed", "dropped"])
async def test_nothing_is_committed_once_a_change_is_in_no_changelog(
    made: Consumer, how: str
) -> None:
    """The commit fails at once, and the record is processed again."""
    lost = made.change()
    made.change()
    if how == "cancelled":
        lost.cancel()
    elif how == "failed":
        lost.set_exception(RuntimeError("no broker"))
    else:
        made.changes._change_missing()
    await asyncio.sleep(0)
    assert not await asyncio.wait_for(made._commit({CHANGES: 1}), PATIENCE_S)
    assert made.committed == []
    assert made.changes._unwritten_problem() is not None
    made.fence.lose()
    assert made.changes._unwritten_problem() is None, (
        "it joins again, and begins at what is committed"
    )


@pytest.mark.parametrize("unwritten", [True, False])
async def test_a_new_generation_begins_without_the_changes_of_the_last(
    made: Consumer, unwritten: bool
) -> None:
    """The store discards rows behind a change that never arrives."""
    made.change()
    made.changes._unwritten = unwritten
    made._begin_generation()
    assert await asyncio.wait_for(made._commit({}), PATIENCE_S)
    assert made.discarded == unwritten


@pytest.mark.parametrize(
    ("is_transactional", "is_idempotent", "is_guarded"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
async def test_a_producer_with_a_fence_of_its_own_is_left_as_it_is(
    made: Consumer, is_transactional: bool, is_idempotent: bool, is_guarded: bool
) -> None:
    """An idempotent producer would miss a batch in its sequence."""
    made.app.in_transaction = is_transactional
    made.app.producer._producer._txn_manager = "manager" if is_idempotent else None
    for _ in range(2):
        made._begin_generation()
    assert isinstance(made.sender.client, MembersClient) == is_guarded
    if is_guarded:
        assert made.sender.client._client == "client", "guarded once"


async def test_the_producer_of_fausts_thread_is_guarded_too(made: Consumer) -> None:
    """With the setting ``producer_threaded`` it sends the changes of tables."""
    sender = SimpleNamespace(client="threads", _send_produce_req="send")
    inner = SimpleNamespace(_sender=sender, _txn_manager=None)
    made.app.producer.threaded_producer = SimpleNamespace(_producer=inner)
    made._begin_generation()
    assert [one.client._client for one in (made.sender, sender)] == ["client", "threads"]
    assert sender._send_produce_req.args[:3] == (sender, "send", made.fence)


async def test_before_the_first_assignment_and_without_a_group_nobody_else_owns_anything(
    made: Consumer,
) -> None:
    """After the first assignment the group's answers decide."""
    made.fence.lose()
    assert made.is_surely_member()
    made._begin_generation()
    made.fence.lose()
    assert not made.is_surely_member()


async def test_a_lost_membership_is_left_once_the_group_does_not_know_this_member(
    made: Consumer,
) -> None:
    """A silent group may still know the member; without a coordinator the broker may be away."""
    coordinator = made._thread._consumer._coordinator
    coordinator.coordinator_id = 1
    made._begin_generation()
    assert (made.group_answers(), made.has_left_group()) == (True, False)
    made.fence.lose()
    assert (made.group_answers(), made.has_left_group()) == (True, False)
    coordinator.member_id = ""
    assert made.has_left_group()
    coordinator.coordinator_id = None
    assert not made.has_left_group()


async def test_a_group_that_is_silent_for_a_session_does_not_answer(
    made: Consumer, clock: Clock
) -> None:
    """Other members may own the partitions already if this member is refused."""
    made.fence = HeartbeatFence(10.0, clock)
    made._thread._consumer._coordinator.coordinator_id = 1
    made._begin_generation()
    made.fence._heard_at = clock.now
    clock.now += 9.9
    assert made.group_answers()
    clock.now += 0.1
    assert (made.group_answers(), made.has_left_group()) == (False, False)


async def test_changes_wait_until_the_membership_is_sure_and_all_are_sent(
    fence: HeartbeatFence, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender repeats the check; batches of other topics wait in the same request."""
    clock.now, slept = 111.0, list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            fence.note_renewal(110.5)

    monkeypatch.setattr(changelog_guard.asyncio, "sleep", sleep)
    batches = {CHANGES: Batch(), OUTPUTS: Batch()}
    sender, dropped = await attempt(fence, batches)
    assert slept == [changelog_guard.LOOK_S] * 3
    assert (sender.sent, dropped, sender._in_flight) == ([CHANGES, OUTPUTS], 0, {1})
    assert sender._muted_partitions == {CHANGES, OUTPUTS}
    assert not any(batch.future.done() for batch in batches.values())


async def test_of_two_memberships_the_changes_of_the_last_are_sent(
    fence: HeartbeatFence, clock: Clock, caplog: Any
) -> None:
    """Each batch's creation time decides; the log has the number of dropped partitions once."""
    fence.lose()
    clock.now = 105.0
    fence.join()
    fence.note_renewal(105.0)
    stale, fresh, other = TP("changes", 1), TP("changes", 2), TP("changes", 3)
    batches = {stale: Batch(104.0), fresh: Batch(105.0), other: Batch(103.0), OUTPUTS: Batch(1.0)}
    sender, dropped = await attempt(fence, batches)
    assert (sender.sent, dropped) == ([fresh, OUTPUTS], 1)
    assert [tp.partition for tp, batch in batches.items() if batch.future.done()] == [1, 3]
    assert [str(batches[tp].future.exception()) for tp in (stale, other)] == [
        "NoMember: changes-1",
        "NoMember: changes-3",
    ]
    assert "Changes of 2 changelog partitions were not sent" in caplog.text


async def test_a_request_with_changes_waits_for_the_connection_and_for_the_membership(
    fence: HeartbeatFence, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are checked again after each wait; then the node gets the request with its options."""
    asked: list[Any] = []
    clock.now = 111.0

    class Connected(Client):
        """Note the nodes and requests."""

        async def ready(self, node: int) -> bool:
            """Note the node."""
            asked.append(("ready", node))
            return True

        async def send(self, node: int, request: Any, **options: Any) -> str:
            """Note the request."""
            asked.append(("send", node, request, options))
            return "answer"

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        if asked.count(seconds) == 2:
            fence.note_renewal(110.5)

    monkeypatch.setattr(changelog_guard.asyncio, "sleep", sleep)
    both = SimpleNamespace(_topics=[("outputs", []), ("changes", [])])
    client = MembersClient(Connected(), fence, lambda topic: topic == "changes")
    assert await client.send(5, both, group="g") == "answer"
    pause = changelog_guard.LOOK_S
    assert asked == [("ready", 5), pause] * 2 + [("ready", 5), ("send", 5, both, {"group": "g"})]
    assert client.sent == 0, "everything else is the client's own"


async def test_a_request_of_a_member_that_is_lost_already_is_given_back(
    fence: HeartbeatFence,
) -> None:
    """The loss precedes the request's wait."""
    fence.lose()
    client = Client()
    with pytest.raises(RequestTimedOutError):
        await MembersClient(client, fence, lambda topic: True).send(1, request())
    assert client.sent == 0


def test_a_lost_member_has_joined_once_its_producer_is_guarded(made: Consumer) -> None:
    """The guard knows the sender, the fence and the changelogs."""
    made.fence.lose()
    made._begin_generation()
    assert not made.fence.lost
    assert type(made.sender.client) is MembersClient
    guard = made.sender._send_produce_req
    assert guard.func is send_as_member  # type: ignore[attr-defined]
    assert guard.args == (  # type: ignore[attr-defined]
        made.sender,
        "send",
        made.fence,
        made.changes._is_changelog,
        made.changes._change_missing,
    )


@pytest.mark.parametrize("missing", ["sender", "producer", "client"])
async def test_what_has_not_started_yet_is_guarded_at_a_later_assignment(
    made: Consumer, missing: str
) -> None:
    """A client without a group keeps its fence unchanged."""
    if missing == "sender":
        made.app.producer._producer._sender = None
    elif missing == "producer":
        made.app.producer._producer = None
    else:
        made._thread._consumer = None
        made.fence.lose()
    made._begin_generation()
    assert made.sender.client == "client"
    assert made.fence.lost is (missing == "client")
    assert made.is_surely_member() is True


async def test_a_change_is_sent_as_ever_and_counts_until_it_has_arrived(made: Consumer) -> None:
    """A failed change ends the commit's wait; the watchdog reads the problem."""
    first, second = made.change(), made.change()
    other = made.change("outputs")
    assert made.soon == [first, second, other]
    assert made.changes._under_way == {first, second}
    first.set_result(None)
    other.set_exception(ValueError("not a change"))
    await asyncio.sleep(0)
    assert other.exception() is not None  # seen here: no later test gets it in its log
    assert (made.changes._under_way, made.changes._unwritten_problem()) == ({second}, None)
    problems = vars(made.app)["_faust_assigner_must_run"]
    assert problems == {"changelogs": made.changes._unwritten_problem}
    second.set_exception(ValueError("no broker"))
    await asyncio.sleep(0)
    assert made.changes._under_way == set()
    assert made.changes._unwritten_problem() == "a change of a table did not reach its changelog"


def test_a_producer_of_transactions_sends_changes_as_ever() -> None:
    """Kafka itself fences the producer."""

    consumer = Consumer(in_transaction=True)
    assert consumer.app.producer.send_soon == consumer.send_soon
    assert "_faust_assigner_must_run" not in vars(consumer.app)


def test_an_admission_alone_makes_no_membership_sure(fence: HeartbeatFence, clock: Clock) -> None:
    """It may be old, if the process was suspended meanwhile; the next answer makes it sure."""
    clock.now = 150.0
    fence.lose()
    fence.join()
    assert (fence.lost, fence.silent_s(), fence.is_sure()) == (False, 50.0, False)
    assert fence.is_stale(149.9)
    assert not fence.is_stale(150.0)
    fence.note_renewal(148.0)
    assert (fence.silent_s(), fence.is_sure()) == (2.0, True)
    clock.now = 155.0
    fence.join()
    assert not fence.is_stale(150.0), "a round without a loss makes no change stale"
