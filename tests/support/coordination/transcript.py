"""The transcript of a group: each event with its effects, the next deadline, and views.

A transcript shows every field that differs from its default, so that one comparison checks the
whole answer, the saved records, the order of the effects and the times of all timers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.assignors import GroupSpec, compute
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Event, Saved, TargetComputed
from faust_assigner.coordinator.records import Key, Kind, Record, Value
from faust_assigner.coordinator.restore import restore
from faust_assigner.coordinator.timers import Purpose

#: The wall clock's lead over the monotonic clock, in ms.
WALL_LEAD_MS = 1_700_000_000_000
#: A request for the group's views, the outcomes of the last save, and the last computation's
#: result.
VIEWS, SAVED, NOT_SAVED, COMPUTED = "views", "saved", "not saved", "computed"
#: A second life from the saved records, as after a restart of the broker.
RESTART: Final = "restart"
#: An epoch or generation that stands for the member's current one.
NOW: Final = 99
#: A pause in ms, an event, or one of the words above.
Step = int | Event | str


def shown(value: Any) -> str:
    """Return a value as text; a dataclass without fields that have their default."""
    if isinstance(value, fx.ReplaceMachine):
        return f"ReplaceMachine({value.group.group_type})"
    if isinstance(value, Catalogue):
        return shown(tuple(value.by_name.values()))
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if is_dataclass(value) and not isinstance(value, type):
        found = [(one, getattr(value, one.name)) for one in fields(value)]
        said = [f"{one.name}={shown(has)}" for one, has in found if has not in (one.default, {})]
        return f"{type(value).__name__}({', '.join(said)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(shown, value))) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(shown, value)) + ")"
    return repr(value)


def transcript(
    group: Group,
    steps: Iterable[Step],
    now_ms: int,
    look: Callable[[Group], None] = lambda group: None,
) -> Iterator[str]:
    """Yield the lines of a story; a new machine continues it. A number advances the clock by ms.

    ``look`` sees the group after each event.
    """
    saves, asked = Saves(), fx.ComputeTarget(0, GroupSpec("uniform", {}, {}))
    left, timed = deque(steps), ""
    while left:
        step = left.popleft()
        if isinstance(step, int):
            now_ms += step
            continue
        if step == VIEWS:
            yield f"{now_ms} views"
            yield from (f"    {line}" for line in views(group))
            continue
        if step == RESTART:
            group = restarted(group, saves.disk, now_ms)
            yield f"{now_ms} restart"
            yield f"    due {group.next_deadline_ms}"
            timed = timers(group)
            yield f"    timers {timed}"
            continue
        event: Any = step
        if step in (SAVED, NOT_SAVED):
            event = saves.end(is_saved=step == SAVED)
        elif step == COMPUTED:
            event = TargetComputed(asked.request_id, compute(asked.spec))
        event = dated(group, event)
        yield f"{now_ms} {shown(event)}"
        for effect in group.step(event, now_ms, now_ms + WALL_LEAD_MS):
            if isinstance(effect, fx.SaveGroup | fx.SaveRecords):
                saves.begin(effect)
            if isinstance(effect, fx.SaveRecords) and (not left or left[0] != NOT_SAVED):
                left.appendleft(SAVED)  # before any other event
            if isinstance(effect, fx.ComputeTarget):
                asked = effect
            if isinstance(effect, fx.ReplaceMachine):
                group = effect.group
            yield f"    {shown(effect)}"
        look(group)
        yield f"    due {group.next_deadline_ms}"
        if timed != (timed := timers(group)):
            yield f"    timers {timed}"


def timers(group: Group) -> str:
    """Return every timer with its deadline: a later one is hidden behind the next."""
    known: Any = group
    found = [f"{Purpose(p).name} {m} {at}" for (p, m), at in known.timers._deadlines.items()]
    if isinstance(group, ClassicGroup):
        found += [
            f"join phase {group.join_phase.deadline_ms}, sync phase {group.sync_phase.deadline_ms}"
        ]
    return ", ".join(sorted(found))


def written(save: fx.SaveGroup | fx.SaveRecords) -> list[Record]:
    """Return the records of a save."""
    if isinstance(save, fx.SaveRecords):
        return list(save.records)
    return [Record(Key(Kind.CLASSIC, save.record.group_id), save.record)]


@dataclass
class Saves:
    """The group's records on disk, and the save that is under way."""

    disk: dict[Key, Value] = field(default_factory=dict)
    writes: list[Record] = field(default_factory=list)
    save_id: int = 0

    def begin(self, effect: fx.SaveGroup | fx.SaveRecords) -> None:
        """Begin the save of an effect; a save without an id has no outcome and is on disk at once."""
        self.save_id = effect.save_id or self.save_id
        self.writes = written(effect)
        if isinstance(effect, fx.SaveGroup) and effect.save_id is None:
            self._write()

    def end(self, *, is_saved: bool) -> Saved:
        """End the save; return its outcome."""
        if is_saved:
            self._write()
        self.writes = []
        return Saved(self.save_id, Code.NONE if is_saved else Code.NOT_COORDINATOR)

    def _write(self) -> None:
        """Write the records; a record without a value removes its key."""
        for record in self.writes:
            self.disk.pop(record.key, None)
            if record.value is not None:
                self.disk[record.key] = record.value


def restarted(group: Group, disk: Mapping[Key, Value], now_ms: int) -> Group:
    """Return the group of the saved records, with the limits and the topics of the former life."""
    one: Any = group
    is_classic = isinstance(group, ClassicGroup)
    return restore(
        group.group_id,
        [Record(key, value) for key, value in disk.items()],
        classic=one.limits if is_classic else one.classic_limits,
        consumer=one.consumer_limits if is_classic else one.limits,
        catalogue=one.catalogue,
        now_ms=now_ms,
    )


def dated(group: Group, event: Any) -> Any:
    """Replace ``NOW`` in an event by the member's epoch."""
    epochs = {member.member_id: member.epoch for member in group.describe().members}
    for name in ("member_epoch", "generation"):
        if getattr(event, name, None) == NOW:
            return replace(event, **{name: epochs.get(event.member_id, NOW)})
    return event


def views(group: Group) -> Iterator[str]:
    """Yield the answers of a group to the broker's questions."""
    yield shown(group.describe())
    topics = group.subscribed_topics()
    late = 2 * WALL_LEAD_MS
    starts = {topic: [group.retention()(topic, at) for at in (77, late)] for topic in ("a", "z")}
    yield (
        f"{group.group_type} {group.state_name} {group.protocol_type}, "
        f"empty {group.is_empty}, unproven {group.is_unproven}, "
        f"topics {None if topics is None else sorted(topics)}, retention from {starts}"
    )
