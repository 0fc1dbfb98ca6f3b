"""A group's life under test: takes acts, returns answers, checks promises. No value is random."""

from __future__ import annotations

from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.assignors import compute
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CatalogueChanged,
    ConsumerGroupHeartbeat,
    Event,
    JoinGroup,
    Saved,
    TargetComputed,
    TimersDue,
)
from faust_assigner.coordinator.records import Key, Kind, Record, Value
from faust_assigner.coordinator.refusals import refuse_join
from faust_assigner.coordinator.restore import restore
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits
from faust_assigner.coordinator.timers import Purpose
from tests.property.consumer_sim import acts, rules
from tests.property.consumer_sim.acts import GROUP, Act, Setting
from tests.property.consumer_sim.conversions import Conversions
from tests.property.consumer_sim.model import Model
from tests.property.consumer_sim.seen import Seen, check_description, look
from tests.property.lives import Violation, must
from tests.support.coordination.consumer_bench import catalogue

MOST_RINGS = 200  # maximum in one wait; a timer that fires more often is set to the past
LONGEST_PARKED_MS = 310_000


class Trial:
    """A trial; ``do`` raises Violation when a promise is broken."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.now = 1_000_000
        self.limits = _limits(setting)
        self.classic_limits = GroupLimits(initial_rebalance_delay_ms=0)
        self.promises = Conversions(setting)
        self.catalogue: Catalogue = catalogue(**dict(setting.partitions))
        self.group: Group | None = None
        self.disk: dict[Key, Value] = {}
        self.armed = self.failed = self.dirty = False
        self.asked: list[fx.ComputeTarget] = []
        self.parked: dict[int, int] = {}
        self.stables = 0

    @property
    def model(self) -> Model:
        """The model of the members."""
        return self.promises.model

    def do(self, act: Act) -> dict[int, fx.Reply]:
        """Carry out an act; return the answers by ticket. Any exception is a violation."""
        try:
            return self._do(act)
        except (AssertionError, LookupError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, Violation):
                raise
            raise Violation(f"raised {error!r}") from error

    def _do(self, act: Act) -> dict[int, fx.Reply]:
        replies: dict[int, fx.Reply] = {}
        match act:
            case acts.Ask(event):
                replies = self._ask(event)
            case acts.Wait(ms):
                replies = self._wait(ms)
            case acts.Stall(ms):
                self.now += ms
            case acts.Restart():
                self._restart()
            case acts.DiskFails():
                self.armed = True
            case acts.Topics(partitions):
                self._topics(catalogue(**partitions))
            case acts.AnswerTarget(fails):
                self._answer_target(fails)
            case acts.Configs():
                self._configure(act)
        return replies

    # -- the surroundings ------------------------------------------------------------------------

    def _feed(self, event: Event, replies: dict[int, fx.Reply]) -> None:
        assert self.group is not None
        group = self.group
        for effect in group.step(event, self.now):
            match effect:
                case fx.SaveRecords(records, save_id):
                    self._feed(Saved(save_id, self._write(records)), replies)
                case fx.SaveGroup(record, save_id):
                    error = self._write(
                        (Record(Key(Kind.CLASSIC, GROUP), record),), may_fail=save_id is not None
                    )
                    if save_id is not None:
                        self._feed(Saved(save_id, error), replies)
                case fx.ReplaceMachine(successor):
                    self.group = successor
                case fx.ComputeTarget():
                    self.asked.append(effect)
                case fx.DropGroup(_, keys):
                    must(
                        set(keys) == set(self.disk) or not keys,
                        "what is left of a dropped group",
                        keys,
                    )
                    self.disk.clear()
                    self.group = None
                case fx.Happened():
                    pass
                case reply:
                    must(reply.token not in replies, "answered twice", reply)
                    replies[reply.token] = reply
                    self.parked.pop(reply.token, None)

    def _write(self, records: tuple[Record, ...], may_fail: bool = True) -> Code:
        must(records, "a save of nothing")
        if self.armed and may_fail:
            self.armed, self.failed = False, True
            return Code.NOT_COORDINATOR
        for record in records:
            if record.value is None:
                self.disk.pop(record.key, None)
            else:
                self.disk[record.key] = record.value
        return Code.NONE

    def _found(self, event: Any) -> bool:
        """Create the group if the request may create a group; return whether the group exists."""
        if (
            self.group is None
            and isinstance(event, ConsumerGroupHeartbeat)
            and event.member_epoch == 0
        ):
            self.group = ConsumerGroup(
                GROUP,
                self.limits,
                self.catalogue,
                self.now,
                restore_classic=ClassicGroup.restore,
                classic_limits=self.classic_limits,
            )
        newcomer = isinstance(event, JoinGroup) and not event.member_id
        if (
            self.group is None
            and newcomer
            and refuse_join(event, self.classic_limits, GROUP) is Code.NONE
        ):
            self.group = ClassicGroup(
                GROUP, self.classic_limits, self.now, consumer=self.limits, catalogue=self.catalogue
            )
        return self.group is not None

    # -- steps -----------------------------------------------------------------------------------

    def _ask(self, event: Any) -> dict[int, fx.Reply]:
        if not self._found(event):
            return {event.token: answer_absent(event)}
        before, replies, was = look(self.group), dict[int, fx.Reply](), self.group
        snapshot = self.promises.snapshot(was)
        self.failed = False
        self.parked[event.token] = self.now
        self._feed(event, replies)
        after = look(self.group)
        if self.failed:
            self._check_undone(before, after)
            if before is not None:
                must(
                    replies[event.token].error is Code.NOT_COORDINATOR,
                    "a failed save is told",
                    replies,
                )
        elif before is not None and after is not None:
            self.promises.judge_all(event, before, after, replies, self.now, self.catalogue)
        elif before is not None:
            self.promises.downgraded(event, before, self.group, replies)
            self._check_classic(before)
        elif after is not None:
            self.promises.upgraded(event, snapshot, after, replies, self.now, self.catalogue)
            must(not self.parked, "a request parked in the old machine was lost", self.parked)
            self.dirty = True  # the group reads the topics on its first tick
        elif self.group is not None:
            self.promises.in_classic(event, snapshot, replies)
        self._look_around(before, after)
        return replies

    def _tick(self, replies: dict[int, fx.Reply]) -> None:
        before = look(self.group)
        self.failed = False
        self._feed(TimersDue(), replies)
        after = look(self.group)
        if self.failed:
            self._check_undone(before, after)
        elif before is not None and after is None:
            self.promises.downgraded_by_time(before, self.group, self.now)
            self._check_classic(before)
        elif before is not None and after is not None:
            self.promises.expired(before, after, self.now, dirty=self.dirty)
            retries = (
                isinstance(self.group, ConsumerGroup)
                and self.group.timers.get(Purpose.RETRY, "") is not None
            )
            self.dirty = self.dirty and retries  # until the group reads the topics again
        self._look_around(before, after)

    def _check_classic(self, before: Seen) -> None:
        """Each member of the new classic group gets its partitions, even after a restart."""
        if isinstance(self.group, ClassicGroup) and before.members:
            self.promises.all_are_told(before, self.group, self.catalogue)
            again = self._restored()
            must(
                again.describe() == self.group.describe(),
                "B8: a restart changes the classic group",
                again.describe(),
                self.group.describe(),
            )

    def _check_undone(self, before: Seen | None, after: Seen | None) -> None:
        """A failed save changed no record."""
        must((before is None) == (after is None), "a failed save changed the protocol")
        if before is None or after is None:
            return
        must(after.records == before.records, "B4: a failed save changed the group")
        self.model.disk_failed(self.now)
        self.dirty = True

    def _look_around(self, before: Seen | None, after: Seen | None) -> None:
        if after is None:
            if before is not None:
                self.asked.clear()
            kinds = {key.kind for key in self.disk}
            must(kinds <= {Kind.CLASSIC}, "B8: what a consumer group left on disk", kinds)
            return
        self.promises.always(
            before if before is not None else after, after, self.catalogue, self.now
        )
        must(
            self.disk == after.records,
            "B8: the disk is not the group",
            _differences(self.disk, after),
        )
        must(
            not self.parked, "a request that is never parked was not answered at once", self.parked
        )
        self.stables += after.state() == "Stable"

    # -- time and faults -------------------------------------------------------------------------

    def _wait(self, ms: int) -> dict[int, fx.Reply]:
        end, replies = self.now + ms, dict[int, fx.Reply]()
        for _ in range(MOST_RINGS):
            due = self.group.next_deadline_ms if self.group is not None else None
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self._tick(replies)
        else:
            raise Violation("timers ring without end")
        self.now = max(self.now, end)
        late = {
            ticket for ticket, since in self.parked.items() if since + LONGEST_PARKED_MS < self.now
        }
        must(not late, "B10: parked without end", late)
        seen = look(self.group) if self.group is not None else None
        if seen is not None and isinstance(self.group, ConsumerGroup):
            must(
                not self.model.must_expire(self.now),
                "B10: a timer did not ring",
                self.model.must_expire(self.now),
            )
            check_description(self.group, seen)
            voted, told = rules.assignor(self.model), self.group.describe().protocol_name
            must(told == voted or self.dirty, "the assignor with the most votes", told, voted)
            pending = seen.epoch > seen.target_epoch and not self.asked
            must(
                not pending or self.group.next_deadline_ms is not None,
                "B10: no target is on its way",
            )
        return replies

    def _restart(self) -> None:
        before = look(self.group) if self.group is not None else None
        self.asked.clear()
        self.parked.clear()
        if not self.disk:
            self.group = None
            self.model.members.clear()
            return
        self.group = self._restored()
        after = look(self.group)
        must((before is None) == (after is None), "B8: a restart changed the protocol")
        if before is not None and after is not None:
            must(
                after.records == before.records,
                "B8: replaying is not living",
                _differences(before.records, after),
            )
            unrevoked = [
                m
                for m, me in after.members.items()
                if me.state == "unrevoked_partitions" and me.epoch != -2
            ]
            self.model.restarted(self.now, unrevoked)
            self.model.computed_at = None

    def _restored(self) -> Group:
        """Return the group restored from the disk."""
        return restore(
            GROUP,
            [Record(key, value) for key, value in sorted(self.disk.items(), key=repr)],
            classic=self.classic_limits,
            consumer=self.limits,
            catalogue=self.catalogue,
            now_ms=self.now,
        )

    def _topics(self, catalogue: Catalogue) -> None:
        old, self.catalogue = self.catalogue, catalogue
        if self.group is None:
            return
        before = look(self.group)
        self.failed = False
        self._feed(CatalogueChanged(catalogue), {})
        after = look(self.group)
        if self.failed:
            self._check_undone(before, after)
        elif before is not None and after is not None and not self.dirty:
            self.promises.topics_changed(before, after, old, catalogue)
        self._look_around(before, after)

    def _configure(self, configs: acts.Configs) -> None:
        """Give the machine its new limits, as the broker does; they apply from now on."""
        setting = self.setting.with_configs(configs)
        self.limits = _limits(setting)
        self.promises.configured(setting)
        if isinstance(self.group, ConsumerGroup):
            self.group.limits = self.limits
        elif isinstance(self.group, ClassicGroup):
            self.group.consumer_limits = self.limits

    def _answer_target(self, fails: bool) -> None:
        if not self.asked or self.group is None:
            return
        asked = self.asked.pop(0)
        before = look(self.group)
        self.failed = False
        target = None if fails else compute(asked.spec)
        self._feed(TargetComputed(asked.request_id, target, "it broke" if fails else ""), {})
        after = look(self.group)
        if self.failed:
            self._check_undone(before, after)
        self._look_around(before, after)


def _limits(setting: Setting) -> ConsumerLimits:
    return ConsumerLimits(
        session_timeout_ms=setting.session_ms,
        heartbeat_interval_ms=setting.heartbeat_ms,
        max_size=setting.max_size,
        migration_policy=setting.policy,
        assignment_interval_ms=setting.interval_ms,
        inline_size=setting.inline_size,
    )


def _differences(disk: Any, seen: Seen) -> str:
    keys = [k for k in disk.keys() | seen.records.keys() if disk.get(k) != seen.records.get(k)]
    return "; ".join(
        f"{k.kind.value} {k.member_id}: {disk.get(k)} != {seen.records.get(k)}" for k in keys[:3]
    )
