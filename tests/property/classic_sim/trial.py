"""The broker's groups under test: takes acts, returns answers, and checks every promise.

The real group service and handlers run on a store in memory, with virtual time. No value is random.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api import group_admin, group_offsets, offset_commit
from faust_assigner.broker.groups import GroupService
from faust_assigner.broker.housekeeping import expire_offsets
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import DeleteGroup, Event, TimersDue
from tests.property.classic_sim import acts, rules
from tests.property.classic_sim.acts import Act
from tests.property.classic_sim.book import slowest
from tests.property.classic_sim.offsets import Offsets, is_there
from tests.property.classic_sim.promises import Promises
from tests.property.classic_sim.seen import GroupSeen, look
from tests.property.lives import Violation, must
from tests.support.broker_groups import group_service_of
from tests.support.stores import WeakStore

GROUP = "g"
TOPICS = {"a": 2, "b": 2}
LONGEST_NOTE = 16
MOST_RINGS = 100  # maximum in one wait; a timer that fires more often is set to the past


async def _no_turn(size: int = 0) -> None:
    """Let no other task run."""


def _at_once(handler: Coroutine[Any, Any, Any]) -> Any:
    """Return a handler's answer; the handler must not wait."""
    try:
        handler.send(None)
    except StopIteration as done:
        return done.value
    handler.close()
    raise Violation("a request that is never parked was not answered at once")


class Service(GroupService):
    """A group service with a check against second answers."""

    def _answer(self, reply: fx.Reply) -> None:
        must(reply.token in self._parked, "an answer to nobody, or the second one", reply)
        super()._answer(reply)


class Trial:
    """A broker's life. ``do`` raises Violation when a promise is broken."""

    def __init__(self, setting: acts.Setting) -> None:
        self.setting = setting
        self.now = 1_000
        self.store = WeakStore()
        self.limits = GroupLimits(
            initial_rebalance_delay_ms=setting.delay_ms,
            max_size=setting.max_size,
            max_pending=setting.max_pending,
        )
        self.promises = Promises(self.limits)
        self.offsets = Offsets(setting.topics)
        self.tickets: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.stables = 0
        self._open()

    def _open(self) -> None:
        self.alarms: dict[str, int] = {}
        self.service = group_service_of(
            Service,
            self.store,
            group_limits=self.limits,
            clock=lambda: self.now,
            set_timer=self._set_timer,
        )
        catalogue = {
            name: SimpleNamespace(name=name, partitions=[SimpleNamespace(deleted=False)] * n)
            for name, n in TOPICS.items()
        }
        self._node = SimpleNamespace(
            groups=self.service,
            catalogue=catalogue,
            clock=lambda: self.now,
            settings=SimpleNamespace(offset_metadata_max_bytes=LONGEST_NOTE),
        )

    def _set_timer(self, group_id: str, when: int) -> None:
        self.alarms[group_id] = min(when, self.alarms.get(group_id, when))

    def look(self) -> GroupSeen:
        """Return the group's snapshot now."""
        return look(self.service.get(GROUP), self.tickets)

    def patience(self) -> int:
        """The group's rebalance timeout in ms."""
        return slowest(self.look())

    def do(self, act: Act) -> dict[int, fx.Reply]:
        """Carry out an act; return the answers by ticket. Any exception is a violation."""
        try:
            return self._do(act)
        except (
            AssertionError,
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
            StoreFailed,
        ) as error:
            if isinstance(error, Violation):
                raise
            raise Violation(f"raised {error!r}") from error

    def _do(self, act: Act) -> dict[int, fx.Reply]:
        replies: dict[int, fx.Reply] = {}
        match act:
            case acts.Ask(event):
                replies = self._step(event)
            case acts.Commit():
                replies = self._commit(act)
            case acts.Wait(ms):
                replies = self._wait(ms)
            case acts.Stall(ms):
                self.now += ms
            case acts.Restart(max_size):
                self._restart(max_size)
            case acts.DiskFails():
                self.store.armed = True
            case acts.Sweep(retention_ms):
                self._sweep(retention_ms)
            case acts.DeleteOffsets():
                self._delete_offsets(act)
            case acts.DropTopic(topic):
                list(self.service.books.topic_deleted(topic))
                self.offsets.drop_topic(topic)
        self.offsets.check(self.service)
        return replies

    # -- steps
    # ---------------------------------------------------------------------------------------

    def _step(self, event: Event) -> dict[int, fx.Reply]:
        before, replies = self.look(), dict[int, fx.Reply]()
        self.store.failed = False
        match event:
            case TimersDue():
                self._collect = replies
                self.service.tick(GROUP)
            case DeleteGroup(ticket):
                self._collect = replies
                request = SimpleNamespace(groups_names=[GROUP])
                (result,) = _at_once(group_admin.delete_groups(self._call(2), request))["results"]
                replies[ticket] = fx.DeleteReply(ticket, Code(result["error_code"]))
                if result["error_code"] is ErrorCode.none:
                    self.offsets.drop_group(GROUP)
            case _:
                self._ask(event, replies)
        self._judge(event, before, replies)
        return replies

    def _ask(self, event: Any, replies: dict[int, fx.Reply]) -> None:
        ticket = event.token

        def with_token(token: int) -> Any:
            self.tickets[token] = ticket
            return replace(event, token=token)

        def answered(reply: fx.Reply) -> None:
            self.waiting.discard(ticket)
            self._collect[ticket] = replace(reply, token=ticket)

        self._collect = replies
        self.waiting.add(ticket)
        self.service.ask(GROUP, with_token, answered)

    def _judge(self, event: Event, before: GroupSeen, replies: dict[int, fx.Reply]) -> None:
        after = self.look()
        self.promises.check(event, before, after, replies, self.now, self.store.failed)
        must(
            after.held() == self.waiting,
            "a parked request was lost",
            self.waiting ^ after.held(),
            event,
        )
        self.stables += after.state is State.STABLE

    def _wait(self, ms: int) -> dict[int, fx.Reply]:
        end, replies = self.now + ms, dict[int, fx.Reply]()
        for _ in range(MOST_RINGS):
            due = self.alarms.get(GROUP)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            del self.alarms[GROUP]
            replies |= self._step(TimersDue())
        else:
            raise Violation("timers ring without end")
        self.now = max(self.now, end)
        seen = self.look()
        late = self.promises.book.overdue(seen, self.now)
        must(late is None, "B10: a timer did not ring", late, seen)
        self._check_admin(seen)
        return replies

    def _restart(self, max_size: int) -> None:
        self.waiting.clear()
        self.tickets.clear()
        self.limits = GroupLimits(
            initial_rebalance_delay_ms=self.setting.delay_ms,
            max_size=max_size,
            max_pending=self.setting.max_pending,
        )
        self.promises.limits = self.limits
        self._open()
        self.promises.check_restart(self.look(), self.now)

    # -- offsets -------------------------------------------------------------------------------------

    def _call(self, version: int) -> Any:
        throttle = SimpleNamespace(checkpoint=_no_turn)
        return SimpleNamespace(
            node=self._node, version=version, throttle=throttle, peer=None, may=lambda *_: True
        )

    def _commit(self, act: acts.Commit) -> dict[int, fx.Reply]:
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in act.offsets.items():
            part = SimpleNamespace(partition_index=partition, committed_offset=offset,
                                   committed_leader_epoch=3, committed_metadata=act.note)  # fmt: skip
            by_topic.setdefault(topic, []).append(part)
        request = SimpleNamespace(
            group_id=act.group,
            member_id=act.event.member_id,
            generation_id_or_member_epoch=act.event.generation,
            group_instance_id=act.event.instance_id,
            retention_time=timedelta(milliseconds=act.retention_ms),
            topics=[
                SimpleNamespace(name=topic, partitions=parts) for topic, parts in by_topic.items()
            ],
        )
        before = self.look() if act.group == GROUP else None
        self.store.failed = False
        answer = _at_once(offset_commit.offset_commit(self._call(act.version), request))
        codes = {
            (topic["name"], p["partition_index"]): Code(int(p["error_code"]))
            if int(p["error_code"]) in set(Code) else int(p["error_code"])
            for topic in answer["topics"]
            for p in topic["partitions"]
        }  # fmt: skip
        self._judge_commit(act, before, codes)
        return {}

    def _judge_commit(
        self, act: acts.Commit, before: GroupSeen | None, codes: dict[Any, int]
    ) -> None:
        seen = before if before is not None else GroupSeen(State.EMPTY)
        error = rules.commit(act.event, seen)
        shown = error
        if error is Code.ILLEGAL_GENERATION and seen.state is State.DEAD and act.version >= 9:
            shown = Code.GROUP_ID_NOT_FOUND
        self.offsets.committed(act, codes, shown, self.now, self.store.failed)
        if not any(map(is_there, act.offsets)):
            must(
                before is None or self.look() == before, "a group heard of places that are not", act
            )
        elif before is not None:
            after, event = self.look(), act.event
            self.promises.check(
                event,
                before,
                after,
                {event.token: fx.CommitReply(event.token, error)},
                self.now,
                False,
            )

    def _sweep(self, retention_ms: int) -> None:
        seen, book = self.look(), self.promises.book
        expired = self.offsets.expired(seen, book.empty_since, retention_ms, self.now)
        count = sum(expire_offsets(self.service, retention_ms))
        must(count == len(expired), "another number of offsets expired", count, expired)
        self.offsets.forget(expired)
        empty = seen.state is State.EMPTY and not seen.pending and not self.offsets.of(GROUP)
        after = self.look()
        if empty:
            must(after.state is State.DEAD, "an expired group stays", after)
            self.promises.check(
                DeleteGroup(-2), seen, after, {-2: fx.DeleteReply(-2, Code.NONE)}, self.now, False
            )
        else:
            must(after == seen, "a sweep changed the group", seen, after)

    def _delete_offsets(self, act: acts.DeleteOffsets) -> None:
        seen = self.look()
        parts = [SimpleNamespace(partition_index=p) for p in act.partitions]
        request = SimpleNamespace(
            group_id=GROUP, topics=[SimpleNamespace(name=act.topic, partitions=parts)]
        )
        answer = _at_once(group_offsets.offset_delete(self._call(0), request))
        code = answer["error_code"]
        if code is ErrorCode.none:
            code = answer["topics"][0]["partitions"][0]["error_code"]
        expected = self.offsets.may_delete(seen, act.topic)
        must(code == expected, "OffsetDelete", ErrorCode(code), expected.name)
        if expected is Code.NONE:
            self.offsets.forget({(GROUP, (act.topic, p)) for p in act.partitions})

    # -- administrators' views
    # -----------------------------------------------------------------------

    def _check_admin(self, seen: GroupSeen) -> None:
        request = SimpleNamespace(groups=[GROUP])
        (told,) = _at_once(group_admin.describe_groups(self._call(5), request))["groups"]
        must(told["group_state"] == seen.state.value, "DescribeGroups", told, seen)
        settled = seen.state is State.STABLE
        expected = [
            (m.member_id, m.instance_id, *m.client, m.metadata(seen.protocol_name) if settled else b"",
             m.assignment if settled else b"") for m in seen.members.values()
        ]  # fmt: skip
        must(
            [tuple(m.values()) for m in told.get("members", [])] == expected, "DescribeGroups", told
        )
        spoken = told.get("protocol_data", "")
        must(spoken == (seen.protocol_name or "" if settled else ""), "DescribeGroups", told)
        for state in State:
            request = SimpleNamespace(states_filter=[state.value], types_filter=[])
            answer = _at_once(group_admin.list_groups(self._call(5), request))
            listed = {g["group_id"] for g in answer["groups"]}
            here = seen.state is state and state is not State.DEAD
            must((GROUP in listed) == here, "ListGroups", state, listed, seen.state)
