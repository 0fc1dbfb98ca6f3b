"""The steps of a cooperative member's round, over an aiokafka that notes its calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokafka.structs import TopicPartition

from faust_assigner.app.membership import beside_round
from faust_assigner.app.membership import coordinator as ours
from faust_assigner.app.membership.cooperative_member import CooperativeMember
from faust_assigner.app.membership.coordinator import CooperativeCoordinator
from faust_assigner.wire.join import COOPERATIVE, EAGER
from tests.support.waiting import PATIENCE_S

A, B, C = (TopicPartition("orders", number) for number in range(3))


class Listener:
    """Stand in for the app; list each call in ``acts``."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts, self.flows, self.error = acts, True, list[Exception]()
        self.waits: list[str] = []

    def waiting(self, step: str) -> Any:
        """Note the wait's step."""
        self.waits.append(step)
        return nullcontext()

    def is_flowing(self) -> bool:
        """Return whether partitions are processed."""
        return self.flows

    def round_started(self) -> None:
        """Note the begin of a round."""
        self.acts.append("joins")

    async def prepare_full_revocation(self) -> None:
        """Note the revocation of all partitions."""
        self.acts.append("gives up")

    async def revoke(self, revoked: Collection[Any]) -> None:
        """Note the revoked partitions."""
        self.acts.append(("let go", set(revoked)))
        if self.error:
            raise self.error.pop()

    async def assigned(
        self, tps: Any, revoked: Any, gained: Any, roles: Any, generation: int
    ) -> None:
        """Note the assignment."""
        await asyncio.sleep(0.01 if generation == 7 else 0)
        self.acts.append(("assigned", set(tps), set(revoked), set(gained), roles, generation))
        if self.error:
            raise self.error.pop()

    def note_hand_over(self, everything: bool) -> None:
        """Note the end of a leaving member's hand-over."""
        self.acts.append(("gave away", everything))

    async def stand_still(self) -> None:
        """Note the stop of the streams."""
        self.acts.append("stand still")


class Assignor:
    """Stand in for the assignor with the last round's result."""

    holds = stops_nobody = leaves = False

    def __init__(self, acts: list[Any]) -> None:
        self.acts = acts
        self.follows, self.changed_ids = False, frozenset[TopicPartition]()
        self.actives, self.standbys = {A, B}, {C}

    def is_followed(self, assignment: Any) -> bool:
        """Return whether a second round follows."""
        return self.follows

    def partitions_to_restart(self, assignment: Any) -> frozenset[TopicPartition]:
        """Return the partitions whose transactions end."""
        return self.changed_ids

    def on_assignment(self, assignment: Any) -> None:
        """Note the call."""
        self.acts.append("on assignment")

    def assigned_actives(self) -> set[TopicPartition]:
        """Return the owned partitions."""
        return self.actives

    def assigned_standbys(self) -> set[TopicPartition]:
        """Return the standbys."""
        return self.standbys

    def cache_file_offsets(self, topics: Any) -> None:
        """Note the look at the files."""
        assert topics == {"orders"}
        self.acts.append("look at files")


class Fence:
    """A fence, open while ``sure``."""

    sure, lost = True, False

    def is_sure(self) -> bool:
        """Return whether the fence is open."""
        return self.sure

    def silent_s(self) -> float:
        """Return the seconds of silence."""
        return 12.0

    def note_renewal(self, asked_at: float) -> None:
        """Ignore the answer."""


def answer(*tps: TopicPartition) -> bytes:
    """Return the group's answer with these partitions."""
    partitions = sorted(tp.partition for tp in tps)
    packed: bytes = ConsumerProtocolMemberAssignment(0, [("orders", partitions)], b"").encode()
    return packed


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for the condition; raise TimeoutError after 10 s."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.001)


class Made:
    """A coordinator that owns ``A`` and ``B`` since a cooperative round of generation 6."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.acts: list[Any] = []
        self.refusals: list[Any] = []
        #: Method of aiokafka -> the arguments of its last call.
        self.given: dict[str, Any] = {}
        self.meanwhile: Any = lambda: None
        #: The number of heartbeats before the round is answered.
        self.beats = 0
        acts = self.acts
        fetcher = SimpleNamespace(_records={}, wake=lambda: None)
        self.listener, self.assignor, self.fence = Listener(acts), Assignor(acts), Fence()
        self.own = Assignment({A, B})
        subscription: Any = SimpleNamespace(
            subscription=SimpleNamespace(topics={"orders"}, assignment=self.own),
            _notify_assignment_waiters=lambda: None,
        )
        self.member = CooperativeMember(
            subscription,
            fetcher,  # type: ignore[arg-type]
            self.assignor,
            self.listener,
            self.fence,  # type: ignore[arg-type]
        )
        self.member.chosen = COOPERATIVE
        made: Any = CooperativeCoordinator.__new__(CooperativeCoordinator)
        made.membership = self.member
        made.generation, made.member_id, made.coordinator_id = 6, "m-1", 1
        made.heartbeat_s = 0.01
        made._closing = asyncio.get_running_loop().create_future()
        made._performed_join_prepare, made._group_subscription = True, "subscription"
        made._client = SimpleNamespace(send=self._send)
        self.it = made
        for name in (
            "ensure_active_group",
            "_stop_heartbeat_task",
            "_on_join_prepare",
            "_on_join_complete",
            "close",
        ):
            monkeypatch.setattr(GroupCoordinator, name, self._noting_async(name))
        for name in ("reset_generation", "request_rejoin", "_start_heartbeat_task"):
            monkeypatch.setattr(GroupCoordinator, name, self._noting(name))
        monkeypatch.setattr(GroupCoordinator, "coordinator_dead", self._noting("dead"))
        monkeypatch.setattr(GroupCoordinator, "ensure_coordinator_known", self._known)
        monkeypatch.setattr(GroupCoordinator, "_do_heartbeat", self._beat)
        monkeypatch.setattr(GroupCoordinator, "_do_commit_offsets", self._commit)
        monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", self._rejoin)

    def _noting(self, name: str) -> Any:
        return lambda *_: self.acts.append(name)

    def _noting_async(self, name: str) -> Any:
        async def note(_: Any, *given: Any) -> None:
            self.acts.append(name)
            self.given[name] = given

        return note

    async def _known(self, *_: Any) -> None:
        await asyncio.sleep(0)

    async def _beat(self, *_: Any) -> bool:
        self.acts.append("heartbeat")
        if self.refusals:
            raise self.refusals.pop(0)
        return True

    async def _send(self, node: int, request: Any, *, group: Any = None) -> Any:
        assert node == 1
        self.acts.append(("send", type(request).__name__, group))
        await until(lambda: self.acts.count("heartbeat") >= self.beats)
        if self.refusals:
            raise self.refusals.pop(0)
        return SimpleNamespace(error_code=0)

    async def _commit(self, assignment: Any, offsets: Any) -> None:
        assert assignment is self.own
        self.acts.append(("commit", dict(offsets)))
        self.meanwhile()
        if self.refusals:
            raise self.refusals.pop(0)

    async def _rejoin(self, *given: Any) -> bool:
        assert given[-1].topics == {"orders"}
        self.acts.append(("round", self.member.round is not None))
        if self.refusals:
            raise self.refusals.pop(0)
        return True

    async def complete(self, *tps: TopicPartition, protocol: str = COOPERATIVE) -> None:
        """Answer the round and wait until the app has the assignment."""
        await self.it._on_join_complete(7, "m-1", protocol, answer(*tps))
        if self.member.telling is not None:
            await self.member.telling

    @property
    def told(self) -> Any:
        """Return the app's last assignment."""
        return next(act for act in reversed(self.acts) if act[0] == "assigned")


@pytest.fixture
async def made(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Made]:
    """A coordinator whose tasks end with the test."""
    monkeypatch.setattr(ours, "SECOND_ROUND_DELAY_S", 0.0)
    it = Made(monkeypatch)
    yield it
    for task in (it.member.telling, it.member.standing):
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)


# -- joining


async def test_a_member_that_flows_keeps_everything_while_it_joins(made: Made) -> None:
    """The app is notified of the round; aiokafka rebuilds its request."""
    await made.it._on_join_prepare(made.own)
    assert made.acts == ["joins"]
    assert made.assignor.holds
    assert made.it._group_subscription is None


@pytest.mark.parametrize("reason", ["lost", "eager", "standing", "another subscription", "first"])
async def test_a_member_that_cannot_keep_anything_gives_everything_up(
    made: Made, reason: str
) -> None:
    """The app revokes first; then aiokafka revokes."""
    previous: Any = made.own
    if reason == "lost":
        made.member.lost = True
    elif reason == "eager":
        made.member.chosen = EAGER
    elif reason == "standing":
        made.listener.flows = False
    elif reason == "another subscription":
        previous = Assignment({A})
    else:
        previous = None
    await made.it._on_join_prepare(previous)
    told = [] if reason == "first" else ["gives up"]
    assert made.acts == [*told, "_on_join_prepare"]
    assert made.given["_on_join_prepare"] == (previous,)
    assert not made.assignor.holds
    assert made.member.gave_up


async def test_what_was_given_up_is_not_revoked_again_at_the_next_try(made: Made) -> None:
    """The join does not claim the revoked partitions."""
    made.member.gave_up = True
    await made.it._on_join_prepare(made.own)
    assert made.acts == []
    assert not made.assignor.holds


async def test_nothing_is_revoked_before_the_app_knows_the_last_round(made: Made) -> None:
    """The app handles the rounds in their order."""
    await made.it._on_join_complete(7, "m-1", COOPERATIVE, answer(A, B, C))
    made.member.lost = True
    await made.it._on_join_prepare(made.own)
    assert [act if isinstance(act, str) else act[0] for act in made.acts][-3:] == [
        "assigned",
        "gives up",
        "_on_join_prepare",
    ]


@pytest.mark.parametrize(("lost", "gave_up"), [(True, False), (True, True), (False, False)])
async def test_a_member_lost_within_a_round_prepares_again(
    made: Made, lost: bool, gave_up: bool
) -> None:
    """After a complete revocation the member does not prepare again."""
    made.member.lost, made.member.gave_up = lost, gave_up
    await made.it.ensure_active_group("subscription", "assignment")
    assert made.given["ensure_active_group"] == ("subscription", "assignment")
    assert made.it._performed_join_prepare == (not lost or gave_up)


@pytest.mark.parametrize("fails", [True, False])
async def test_a_round_is_under_way_until_it_is_answered_or_fails(made: Made, fails: bool) -> None:
    """Waiters continue in both cases; the member reads its table files before the join."""
    rounds: list[Any] = []
    made.refusals = [errors.RebalanceInProgressError()] if fails else []
    rejoin = GroupCoordinator._do_rejoin_group

    async def note(*args: Any) -> Any:
        rounds.append(made.member.round)
        return await rejoin(*args)

    GroupCoordinator._do_rejoin_group = note  # monkeypatch restores the original
    subscription = SimpleNamespace(topics={"orders"})
    if fails:
        with pytest.raises(errors.RebalanceInProgressError):
            await made.it._do_rejoin_group(subscription)
    else:
        assert await made.it._do_rejoin_group(subscription)
    assert made.acts == ["look at files", ("round", True)]
    assert made.listener.waits == ["the positions of local table files"]
    assert rounds[0].done()
    assert made.member.round is None


def request_of(kind: type[Any]) -> Any:
    """Return a request of aiokafka with two group protocols."""
    request = kind.__new__(kind)
    request._group_protocols = [(COOPERATIVE, b"old"), (EAGER, b"said")]
    return request


async def test_rounds_have_a_connection_of_their_own_and_heartbeats_beside_it(made: Made) -> None:
    """Both protocols carry the same metadata; other requests keep their connection."""
    made.beats, request = 2, request_of(JoinGroupRequest)
    await made.it._send_req(request)
    assert len(asyncio.all_tasks()) == 1, (
        "a heartbeat on its way has ended before the answer counts"
    )
    assert request._group_protocols == [(COOPERATIVE, b"said"), (EAGER, b"said")]
    assert made.acts[0] == ("send", "JoinGroupRequest", "rounds")
    assert made.listener.waits == ["the answer to JoinGroup"]
    beats = made.acts.count("heartbeat")
    await asyncio.sleep(0.03)
    assert made.acts.count("heartbeat") == beats, "they end with the answer"


async def test_a_member_of_eager_rounds_offers_no_cooperative_protocol(made: Made) -> None:
    """Such a member makes the rounds of the whole group eager."""
    made.member.offers, request = False, request_of(JoinGroupRequest)
    await made.it._send_req(request)
    assert request._group_protocols == [(EAGER, b"said")]


async def test_an_assignor_with_a_name_of_its_own_joins_by_this_name(made: Made) -> None:
    """An error here would end the coordinator's task for good."""
    request = request_of(JoinGroupRequest)
    request._group_protocols = [("shop", b"said")]
    await made.it._send_req(request)
    assert request._group_protocols == [("shop", b"said")]


async def test_heartbeats_beside_a_round_go_on_after_one_that_was_refused(made: Made) -> None:
    """The answer to the round shows whether the member is still known."""
    made.beats, made.refusals = 2, [errors.GroupCoordinatorNotAvailableError()]
    await made.it._send_req(request_of(SyncGroupRequest))
    assert made.refusals == []


async def test_a_member_that_gave_up_sends_no_heartbeats_beside_its_round(made: Made) -> None:
    """The member has no partitions to keep."""
    made.member.gave_up = True
    made.it._client.send = lambda *_, **__: asyncio.sleep(0.05)
    await made.it._send_req(request_of(JoinGroupRequest))
    assert made.acts == []


async def test_heartbeats_have_begun_before_a_round_ends_them(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task cancelled before its first step would cancel its waiter."""
    begun: list[str] = []

    async def beat() -> None:
        begun.append("beat")

    async def stop(_: Any) -> None:
        begun.append("stop")

    monkeypatch.setattr(GroupCoordinator, "_stop_heartbeat_task", stop)
    task = asyncio.ensure_future(beat())
    await made.it._stop_heartbeat_task()
    assert begun == ["beat", "stop"]
    await task


@pytest.mark.parametrize(
    "error", [errors.NodeNotReadyError, errors.RequestTimedOutError, errors.KafkaConnectionError]
)
async def test_a_round_that_could_not_be_sent_has_the_coordinator_looked_for_again(
    made: Made, error: type[errors.KafkaError]
) -> None:
    """aiokafka does the same."""
    made.member.gave_up = True
    made.refusals = [error()]
    with pytest.raises(error):
        await made.it._send_req(request_of(SyncGroupRequest))
    assert made.acts[-1] == "dead"
    made.it.coordinator_id = None
    with pytest.raises(errors.GroupCoordinatorNotAvailableError):
        await made.it._send_req(request_of(SyncGroupRequest))


async def test_other_requests_go_on_the_connection_they_always_went(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection returns answers in the order of its requests."""
    sent: list[Any] = []

    async def send(_: Any, request: Any) -> None:
        sent.append(request)

    monkeypatch.setattr(GroupCoordinator, "_send_req", send)
    request = HeartbeatRequest.__new__(HeartbeatRequest)
    await made.it._send_req(request)
    assert sent == [request]
    assert made.acts == []


# -- the answer


async def test_what_stays_is_not_told_as_gone_or_come(made: Made, caplog: Any) -> None:
    """Revoked partitions are finished before the assignment changes; heartbeats begin at once."""
    caplog.set_level("INFO")
    await made.complete(A, C)
    assert caplog.messages == ["Generation 7: 1 partitions kept, 1 revoked, 1 assigned"]
    assert made.acts[:3] == ["_start_heartbeat_task", ("let go", {B}), "on assignment"]
    assert made.told == ("assigned", {A, C}, {B}, {C}, ({A, B}, {C}), 7)
    assert made.own.tps == {A, C}
    assert made.assignor.stops_nobody
    assert "request_rejoin" not in made.acts


async def test_a_second_round_is_asked_for_where_it_follows(made: Made, caplog: Any) -> None:
    """The request precedes the app's notification of the first round."""
    caplog.set_level("INFO")
    made.assignor.follows = True
    await made.complete(A)
    assert caplog.messages[0].endswith("1 revoked, 0 assigned, a second round follows")
    assert made.acts.index("request_rejoin") < made.acts.index(made.told)


async def test_nothing_is_let_go_before_the_app_knows_what_it_has(made: Made) -> None:
    """Else the app would revoke partitions before their assignment."""
    await made.it._on_join_complete(7, "m-1", COOPERATIVE, answer(A, B, C))
    await made.it._on_join_complete(8, "m-1", COOPERATIVE, answer(A, B))
    assert [act[0] for act in made.acts if act[0] in ("assigned", "let go")][:2] == [
        "assigned",
        "let go",
    ]
    assert made.member.telling is not None
    await made.member.telling


async def test_the_app_hears_of_rounds_in_their_order(made: Made) -> None:
    """The order holds although the app handles the first round slowly."""
    await made.it._on_join_complete(7, "m-1", COOPERATIVE, answer(A, B, C))
    await made.complete(A, B, C)  # the app needs 10 ms for generation 7
    generations = [act[5] for act in made.acts if act[0] == "assigned"]
    assert generations == [7, 7]
    made.acts.clear()
    await made.it._on_join_complete(7, "m-1", COOPERATIVE, answer(A, B, C))
    await made.it._on_join_complete(8, "m-1", COOPERATIVE, answer(A, B, C))
    assert made.member.telling is not None
    await made.member.telling
    assert [act[5] for act in made.acts if act[0] == "assigned"] == [7, 8]


async def test_a_partition_whose_transaction_ends_goes_and_comes_in_one_round(made: Made) -> None:
    """The partition is revoked and assigned again, under its new transactional id."""
    made.assignor.changed_ids = frozenset({A, C})
    await made.complete(A, B)
    assert ("let go", {A}) in made.acts
    assert made.told == ("assigned", {A, B}, {A}, {A}, ({A, B}, {C}), 7)


async def test_a_partition_whose_new_id_another_member_may_hold_comes_in_the_second_round(
    made: Made,
) -> None:
    """Until the second round this member does not own the partition."""
    made.assignor.follows, made.assignor.changed_ids = True, frozenset({A})
    await made.complete(A, B)
    assert made.told == ("assigned", {B}, {A}, set(), ({B}, {C}), 7)
    assert made.own.tps == {B}


@pytest.mark.parametrize("error", [RuntimeError, KeyError, OSError])
async def test_a_partition_that_could_not_be_finished_goes_nevertheless(
    made: Made, caplog: Any, error: type[Exception]
) -> None:
    """The next owner does not wait; the app gets the rest, and both failures are logged."""
    made.listener.error = [error("second"), error("first")]
    await made.complete(A)
    assert made.own.tps == {A}
    assert "processed twice" in caplog.text
    assert "callbacks for its new assignment failed" in caplog.text


async def test_an_answer_to_a_subscription_that_is_over_changes_nothing(made: Made) -> None:
    """The subscription changed during the revocation."""

    async def revoke(revoked: Any) -> None:
        made.member.subscription.subscription.assignment = Assignment({C})

    made.listener.revoke = revoke  # type: ignore[method-assign]
    await made.complete(A)
    assert made.own.tps == {A, B}
    assert "on assignment" not in made.acts


@pytest.mark.parametrize("actives", [set(), {A}])
async def test_a_member_that_leaves_is_told_whether_it_has_given_everything_away(
    made: Made, actives: set[TopicPartition]
) -> None:
    """A leaving member gets no partitions; a second round would make the group wait for it."""
    made.assignor.leaves, made.assignor.follows, made.assignor.actives = True, True, actives
    await made.complete(*actives)
    assert made.acts[-1] == ("gave away", not actives)
    assert "request_rejoin" not in made.acts
    assert made.member.telling is None


async def test_a_member_that_was_lost_gives_up_before_it_takes_its_answer(made: Made) -> None:
    """The coordinator was silent too long: all flows stop, and aiokafka assigns all anew."""
    made.member.lost = made.member.stood = True
    await made.complete(A, B)
    assert made.acts == ["gives up", "_on_join_prepare", "_on_join_complete"]
    assert made.given["_on_join_complete"] == (7, "m-1", COOPERATIVE, answer(A, B))
    assert made.given["_on_join_prepare"] == (made.own,)
    member = made.member
    assert (member.lost, member.stood, member.gave_up) == (False, False, False)


async def test_a_member_without_anything_takes_only_the_second_of_two_rounds(made: Made) -> None:
    """The first round's answer is incomplete; the member no longer counts as lost."""
    made.member.gave_up = made.member.lost = made.member.stood = made.assignor.follows = True
    await made.complete(A)
    assert made.acts == ["on assignment", "request_rejoin"]
    member = made.member
    assert (member.lost, member.stood, member.gave_up) == (False, False, True)


async def test_an_eager_answer_is_remembered_as_one(made: Made) -> None:
    """The next round revokes all partitions."""
    made.member.gave_up = made.assignor.stops_nobody = True
    await made.complete(A, protocol=EAGER)
    assert made.member.chosen == EAGER
    assert not made.assignor.stops_nobody


# -- commits


async def commit(made: Made, **offsets: int) -> None:
    """Commit offsets of ``A`` and ``B``."""
    tps = {"a": A, "b": B}
    await asyncio.wait_for(
        made.it.commit_offsets(made.own, {tps[name]: at for name, at in offsets.items()}),
        PATIENCE_S,
    )


@pytest.mark.parametrize("how", ["lost", "overdue", "stood"])
async def test_a_former_member_commits_nothing(made: Made, how: str) -> None:
    """The new owners may have committed later offsets."""
    if how == "lost":
        made.member.lost = True
    else:
        made.fence.sure = how == "stood"
        made.member.stood = how == "stood"
    with pytest.raises(errors.CommitFailedError):
        await commit(made, a=5)
    assert made.acts == []


async def test_a_commit_that_meets_a_round_is_sent_again_after_it(made: Made) -> None:
    """The repeated commit has the kept partitions only; a cancelled waiter ends no round."""
    made.member.round = asyncio.get_running_loop().create_future()
    made.refusals = [errors.RebalanceInProgressError()]
    first = asyncio.ensure_future(commit(made, a=5, b=6))
    for _ in range(50):  # turns of the loop, regardless of their duration
        await asyncio.sleep(0)
    assert made.acts == [("commit", {A: 5, B: 6})]
    ours.change_assignment(made.own, {A}, made.member.subscription, made.member.fetcher)
    made.member.end_round()
    await first
    assert made.acts == [("commit", {A: 5, B: 6}), ("commit", {A: 5})]


async def test_a_commit_that_is_cancelled_cancels_no_round(made: Made) -> None:
    """Other commits wait for the same round."""
    made.member.round = asyncio.get_running_loop().create_future()
    made.refusals = [errors.RebalanceInProgressError()]
    waiting = asyncio.ensure_future(commit(made, a=5))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not made.member.round.cancelled()


async def test_a_commit_of_the_generation_before_is_sent_again(made: Made) -> None:
    """The group answered the round during the commit."""

    def next_generation() -> None:
        made.it.generation = 7

    made.meanwhile, made.refusals = next_generation, [errors.IllegalGenerationError()]
    await commit(made, a=5)
    assert made.acts == [("commit", {A: 5})] * 2


async def test_a_commit_that_the_group_refuses_without_a_round_is_dropped(made: Made) -> None:
    """The group continues without this worker."""
    made.refusals = [errors.UnknownMemberIdError()]
    with pytest.raises(errors.CommitFailedError):
        await commit(made, a=5)
    assert made.acts == [("commit", {A: 5})]


@pytest.mark.parametrize(
    ("error", "again"),
    [(errors.RequestTimedOutError, True), (errors.GroupAuthorizationFailedError, False)],
)
async def test_an_error_of_a_commit_that_passes_is_tried_again(
    made: Made, error: type[errors.KafkaError], again: bool
) -> None:
    """The commit raises any other error."""
    made.refusals = [error()]
    if again:
        await commit(made, a=5)
    else:
        with pytest.raises(error):
            await commit(made, a=5)
    assert len(made.acts) == 1 + again


async def test_a_commit_that_is_sent_is_not_cancelled_with_whoever_waits(made: Made) -> None:
    """The next answer on the connection would be taken for the answer to a half-sent request."""
    gate, done = asyncio.Event(), list[bool]()

    async def slow(*_: Any) -> None:
        await gate.wait()
        done.append(True)

    GroupCoordinator._do_commit_offsets = slow
    waiting = asyncio.ensure_future(commit(made, a=5))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.set()
    await asyncio.sleep(0.01)
    assert done == [True]


async def beside(made: Made, what: str, *, generation: int = 6) -> None:
    """Call aiokafka's reaction to a refusal, within a commit of ``generation``."""
    token = beside_round.BESIDE.set(generation)
    try:
        getattr(made.it, what)()
    finally:
        beside_round.BESIDE.reset(token)


@pytest.mark.parametrize(
    ("generation", "in_round", "is_reset"), [(6, False, True), (5, False, False), (6, True, False)]
)
async def test_a_refused_commit_resets_the_generation_it_was_of_alone(
    made: Made, generation: int, in_round: bool, is_reset: bool
) -> None:
    """During a round the round's own answer decides."""
    if in_round:
        made.member.round = asyncio.get_running_loop().create_future()
    await beside(made, "reset_generation", generation=generation)
    assert made.acts == (["reset_generation"] if is_reset else [])
    assert made.member.lost == is_reset


async def test_a_round_that_is_refused_resets_the_generation(made: Made) -> None:
    """The reset happens regardless of commits beside the round."""
    made.member.round = asyncio.get_running_loop().create_future()
    made.it.reset_generation()
    assert made.acts == ["reset_generation"]
    assert made.member.lost


@pytest.mark.parametrize(
    ("is_beside", "in_round", "rejoins"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
async def test_a_commit_that_meets_a_round_asks_for_no_other(
    made: Made, is_beside: bool, in_round: bool, rejoins: bool
) -> None:
    """A second round would be useless; requests from elsewhere pass."""
    if in_round:
        made.member.round = asyncio.get_running_loop().create_future()
    if is_beside:
        await beside(made, "request_rejoin")
    else:
        made.it.request_rejoin()
    assert made.acts == (["request_rejoin"] if rejoins else [])


# -- a silent coordinator


async def test_what_stood_still_once_stands_until_all_is_given_up(made: Made) -> None:
    """The streams skipped records meanwhile; a later answer does not restore the records."""
    assert not made.member.must_skip_records()
    made.fence.sure = False
    assert made.member.must_skip_records()
    made.fence.sure = True
    assert made.member.must_skip_records()


@pytest.mark.parametrize("reason", ["gave up", "nothing"])
async def test_a_member_that_owns_nothing_is_not_overdue(made: Made, reason: str) -> None:
    """A member without partitions cannot have lost any."""
    made.fence.sure = False
    if reason == "gave up":
        made.member.gave_up = True
    else:
        made.member.subscription.subscription = None
    assert not made.member.is_overdue()


async def test_a_silent_coordinator_is_noted_once_and_joined_anew(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Streams stop before the member requests the next round."""
    monkeypatch.setattr(ours, "LOOK_S", 0.005)
    watching = asyncio.ensure_future(made.it._watch())
    await asyncio.sleep(0.02)
    assert made.acts == []
    made.fence.sure = False
    await until(lambda: len(made.acts) == 2)
    await asyncio.sleep(0.02)
    assert made.acts == ["stand still", "request_rejoin"]
    assert caplog.text.count("has been silent for 12.0 s") == 1
    made.it._closing.set_result(None)
    await asyncio.wait_for(watching, PATIENCE_S)


@pytest.mark.parametrize("reason", [None, "lost", "closing"])
async def test_everything_is_given_up_once(made: Made, reason: str | None) -> None:
    """A lost member and a leaving member do not repeat the revocation."""
    made.member.lost = reason == "lost"
    if reason == "closing":
        made.it._closing.set_result(None)
    made.it.revoke_all_and_rejoin()
    if made.member.standing is not None:
        await made.member.standing
    assert made.acts == (["stand still", "request_rejoin"] if reason is None else [])


async def test_no_task_outlives_the_coordinator(made: Made) -> None:
    """``close`` leaves the group and then cancels each task."""
    tasks = [asyncio.ensure_future(asyncio.sleep(60)) for _ in range(3)]
    made.member.watching, made.member.telling, made.member.standing = tasks  # type: ignore[assignment]
    await made.it.close()
    assert made.acts == ["close"]
    assert all(task.cancelled() for task in tasks)


# -- the order of a member's state and of its steps


async def test_a_member_without_a_subscription_sends_no_heartbeats_beside_its_round(
    made: Made,
) -> None:
    """Such a member processes no partitions."""
    made.member.subscription.subscription = None
    made.it._client.send = lambda *_, **__: asyncio.sleep(0.05)
    await made.it._send_req(request_of(JoinGroupRequest))
    assert made.acts == []


async def test_a_member_has_given_up_before_it_waits_for_its_app(made: Made) -> None:
    """From then on a silent coordinator is no loss."""
    await made.it._on_join_complete(7, "m-1", COOPERATIVE, answer(A, B, C))
    made.member.lost, made.fence.sure = True, False
    preparing = asyncio.ensure_future(made.it._on_join_prepare(made.own))
    await asyncio.sleep(0)
    assert ("gives up" in made.acts, made.member.is_overdue()) == (False, False)
    await preparing
    assert made.acts[-2:] == ["gives up", "_on_join_prepare"]


async def test_a_round_is_over_for_commits_once_it_is_answered(made: Made) -> None:
    """Else the last commit of a revoked partition would wait for its own round."""
    made.member.round = under_way = asyncio.get_running_loop().create_future()
    states: list[Any] = []

    async def revoke(revoked: Any) -> None:
        states.append((under_way.done(), made.member.round))

    made.listener.revoke = revoke  # type: ignore[method-assign]
    await made.complete(A)
    assert states == [(True, None)]


async def test_a_member_without_anything_waits_a_moment_before_its_second_round(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other members revoke their partitions meanwhile; the member no longer counts as lost."""
    member, sleep = made.member, asyncio.sleep

    async def moment(seconds: float) -> None:
        made.acts.append((seconds, member.lost, member.stood))
        await sleep(0)

    monkeypatch.setattr(ours, "SECOND_ROUND_DELAY_S", 0.5)
    monkeypatch.setattr(ours.asyncio, "sleep", moment)
    member.gave_up = member.lost = member.stood = made.assignor.follows = True
    await made.complete(A)
    assert made.acts == ["on assignment", (0.5, False, False), "request_rejoin"]


async def test_a_member_counts_as_one_while_its_app_takes_all_anew(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app may commit and process at once; ``gave_up`` holds until all is assigned."""
    states: list[Any] = []

    async def complete(*_: Any) -> None:
        states.append((made.member.lost, made.member.stood, made.member.gave_up))

    monkeypatch.setattr(GroupCoordinator, "_on_join_complete", complete)
    made.member.gave_up = made.member.lost = made.member.stood = True
    await made.complete(A)
    assert states == [(False, False, True)]
    assert not made.member.gave_up


@pytest.mark.parametrize("name", [COOPERATIVE, EAGER, "shop"])
def test_both_protocols_are_of_the_apps_assignor(
    made: Made, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """aiokafka looks up any other name."""
    monkeypatch.setattr(
        GroupCoordinator, "_lookup_assignor", lambda self, name: f"{name} of aiokafka"
    )
    expected = "shop of aiokafka" if name == "shop" else made.assignor
    assert made.it._lookup_assignor(name) == expected
    assert made.assignor.stops_nobody == (name == COOPERATIVE), "before the leader plans the round"


@pytest.mark.parametrize(
    ("text", "in_round", "is_logged"),
    [
        ("Heartbeat failed: %s will rejoin", True, False),
        ("OffsetCommit failed, because it is rebalancing", True, False),
        ("Heartbeat failed: %s will rejoin", False, True),
        ("will rejoin soon", True, True),
    ],
)
def test_a_line_about_a_round_is_dropped_beside_a_round_alone(
    text: str, in_round: bool, is_logged: bool
) -> None:
    """During a round the line is false; other lines inform the operator."""
    token = beside_round.BESIDE.set(6 if in_round else None)
    try:
        record = logging.LogRecord("aiokafka", logging.INFO, "", 1, text, ("g",), None)
        assert beside_round._is_worth_logging(record) is is_logged
    finally:
        beside_round.BESIDE.reset(token)


async def test_kept_torn_lost_and_new_partitions_are_told_apart(made: Made, caplog: Any) -> None:
    """Unsubscribed topics are ignored; a second round assigns partitions with changed ids."""
    caplog.set_level("INFO")
    d, e = (TopicPartition("orders", number) for number in (3, 4))
    other = TopicPartition("bills", 0)
    for follows, log, told, own in (
        (
            False,
            "1 partitions kept, 3 revoked, 3 assigned",
            ({A, B, d, e}, {B, C, d}, {B, d, e}, ({A, B, d, e}, {C}), 7),
            {A, B, d, e},
        ),
        (
            True,
            "1 partitions kept, 3 revoked, 1 assigned, a second round follows",
            ({A, e}, {B, C, d}, {e}, ({A, e}, {C}), 7),
            {A, e},
        ),
    ):
        caplog.clear()
        made.member.subscription.subscription.assignment = made.own = Assignment({A, B, C, d})
        made.assignor.follows, made.assignor.actives = follows, {A, B, d, e}
        made.assignor.changed_ids = frozenset({B, C, d, other})
        packed = ConsumerProtocolMemberAssignment(
            0, [("orders", [0, 1, 3, 4]), ("bills", [0])], b""
        ).encode()
        await made.it._on_join_complete(7, "m-1", COOPERATIVE, packed)
        assert made.member.telling is not None
        await made.member.telling
        assert caplog.messages == [f"Generation 7: {log}"]
        assert made.told == ("assigned", *told)
        assert made.own.tps == own


async def test_a_consumer_that_has_started_gets_our_fetcher_and_coordinator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both get the app's assignor, listener and fence; the watch begins."""
    acts: list[Any] = []

    class Coordinator:
        """Note the membership."""

        def __init__(self, client: Any, *, member: Any) -> None:
            self.client, self.membership = client, member("subscription")

        async def _watch(self) -> None:
            acts.append("watching")

    async def replace_fetcher(consumer: Any, make: Any) -> str:
        acts.append((consumer, make))
        return "fetcher"

    async def replace_coordinator(consumer: Any, make: Any) -> Any:
        return make(consumer)

    monkeypatch.setattr(ours, "replace_fetcher", replace_fetcher)
    monkeypatch.setattr(ours, "replace_coordinator", replace_coordinator)
    monkeypatch.setattr(ours, "CooperativeCoordinator", Coordinator)
    monkeypatch.setattr(ours, "watch", lambda *watched: acts.append(watched))
    for offers in (True, False):
        acts.clear()
        assignor, listener, fence = SimpleNamespace(), object(), object()
        made: Any = await ours.take_over(
            "consumer",
            assignor,
            listener,  # type: ignore[arg-type]
            fence,  # type: ignore[arg-type]
            offers=offers,
        )
        member = made.membership
        assert made.client == "consumer"
        assert (member.subscription, member.fetcher) == ("subscription", "fetcher")
        assert member.assignor == assignor
        assert (member.listener, member.fence) == (listener, fence)
        assert (member.offers, assignor.cooperative, member.chosen) == (offers, offers, EAGER)
        await member.watching
        assert acts == [("consumer", ours.FairFetcher), (made, fence), "watching"]


async def test_a_commit_that_passes_waits_between_its_tries_and_is_repeated_whole(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member lost meanwhile commits no further."""
    slept, sleep = list[float](), asyncio.sleep

    async def note(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(ours.asyncio, "sleep", note)
    made.refusals = [errors.RequestTimedOutError(), errors.NodeNotReadyError()]
    await commit(made, a=5, b=6)
    assert made.acts == [("commit", {A: 5, B: 6})] * 3
    assert slept == [beside_round.RETRY_S] * 2
    made.refusals = [errors.RequestTimedOutError()]
    made.meanwhile = lambda: setattr(made.member, "lost", True)
    with pytest.raises(errors.CommitFailedError):
        await commit(made, a=7)
    assert made.acts[3:] == [("commit", {A: 7})]


async def test_a_commit_of_partitions_that_all_went_in_the_round_is_over(made: Made) -> None:
    """No partition remains for a second commit."""
    made.member.round = asyncio.get_running_loop().create_future()
    made.refusals = [errors.UnknownMemberIdError()]
    waiting = asyncio.ensure_future(commit(made, a=5))
    await until(lambda: bool(made.acts))
    ours.change_assignment(made.own, {B}, made.member.subscription, made.member.fetcher)
    # The commit may learn of its refusal before or after the end of the round.
    made.it.generation += 1
    made.member.end_round()
    await waiting
    assert made.acts == [("commit", {A: 5})]


@pytest.mark.parametrize("what", ["reset_generation", "request_rejoin"])
async def test_the_first_generation_of_a_group_is_one(made: Made, what: str) -> None:
    """A commit beside the round neither resets the generation nor requests a round."""
    made.it.generation = 0
    made.member.round = asyncio.get_running_loop().create_future()
    await beside(made, what, generation=0)
    assert made.acts == []


async def test_a_commit_is_marked_with_its_generation_for_its_own_task_alone(made: Made) -> None:
    """Heartbeats beside a round are marked as well; the round itself is not."""
    marks: list[int | None] = []
    made.meanwhile = lambda: marks.append(beside_round.BESIDE.get())
    await commit(made, a=5)
    assert marks == [6]
    assert beside_round.BESIDE.get() is None
    made.beats = 1
    beat = GroupCoordinator._do_heartbeat

    async def noted(coordinator: Any) -> Any:
        marks.append(beside_round.BESIDE.get())
        return await beat(coordinator)

    GroupCoordinator._do_heartbeat = noted  # monkeypatch restores the original
    await made.it._send_req(request_of(SyncGroupRequest))
    assert set(marks) == {6}
    assert len(marks) >= 2
    assert beside_round.BESIDE.get() is None
