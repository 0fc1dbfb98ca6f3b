"""Play requests to a broker without sockets, and write each whole answer with its effects as text.

A line that begins with ``did`` has, in order: the bytes that the handler counts at each turn of the event
loop, the puts and deletes of each write, the timers, the work in other threads, and the changed counters.
The end of the text is the content of the store.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import itertools
import random
import uuid
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode
from kio.serial.errors import OutOfBoundValue

from faust_assigner.broker import node
from faust_assigner.broker.api import APIS
from faust_assigner.broker.groups.timers import GroupTimers
from faust_assigner.broker.scheduler import Scheduler
from faust_assigner.broker.security.listeners import PLAINTEXT
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.throttle import Throttle
from tests.support.asking import read
from tests.support.hall import Hall, frames, ticking

NOW: Final = 1_700_000_000_000
JOIN_GROUP: Final = 11
#: The calls of a node's parts that a line of effects names.
NAMED: Final = (
    ("space", "freed"),
    ("space", "reclaim_if_low"),
    ("", "crunch"),
    ("", "aside"),
    ("groups", "limits_changed"),
    ("transactions", "flushed"),
    ("flushing", "flushed"),
)
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Ask:
    """One request: the key of its API, its version, its fields, and the peer that sends it.

    A function of the broker returns the fields that depend on the story so far.
    """

    key: int
    version: int
    values: Values | Callable[[Hall], Values] = dataclasses.field(default_factory=dict)
    peer: str = "peer"


@dataclass(frozen=True)
class Do:
    """A change beside the requests; ``what`` is its line in the text."""

    what: str
    change: Callable[[Hall], object]


@dataclass(frozen=True)
class Restart:
    """A second life of the broker on the same store; its settings stay, its connections end."""


Story = Sequence[Ask | Do | Restart]


def rendered(value: object, name: str, indent: str, ids: Mapping[uuid.UUID, str]) -> Iterator[str]:
    """Yield the lines of a value; the plain fields of one structure share a line."""
    if dataclasses.is_dataclass(value):
        plain, lists = [], []
        for one in dataclasses.fields(value):
            found = getattr(value, one.name)
            is_list = isinstance(found, tuple) and any(map(dataclasses.is_dataclass, found))
            if is_list or dataclasses.is_dataclass(found):
                lists.append((one.name, found))
            else:
                plain.append(f"{one.name}={_short(found, ids)}")
        yield f"{indent}{name} {' '.join(plain)}".rstrip()
        for inner, found in lists:
            for item in found if isinstance(found, tuple) else (found,):
                yield from rendered(item, inner, indent + "  ", ids)


def _short(value: object, ids: Mapping[uuid.UUID, str]) -> str:
    match value:
        case ErrorCode():
            return value.name
        case enum.Enum():
            return value.name
        case uuid.UUID():
            return ids.get(value, f"#{value.int}")
        case datetime.timedelta():
            return f"{value / datetime.timedelta(milliseconds=1):g}ms"
        case datetime.datetime():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            return repr(data) if len(data) <= 40 else f"{len(data)} bytes"
        case tuple():
            return f"({','.join(_short(one, ids) for one in value)})"
        case str() if len(value) > 99:
            return f"{value[:9]!r} and so on, {len(value)} characters"
    return repr(value)


class Player:
    """The text of one story."""

    def __init__(self, hall: Hall, effects: list[str]) -> None:
        self.hall, self.effects = hall, effects
        self.lines: list[str] = []
        self._peers: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._record()

    def _record(self) -> None:
        made = self.hall.node
        for part, name in NAMED:
            label = "wait for the disk" if part == "flushing" else name
            self._note(getattr(made, part) if part else made, name, label)
        write = type(made.store).write

        def noting(puts: Any, deletes: Any = (), **more: Any) -> None:
            puts, deletes = list(puts), list(deletes)
            ranges = list(more.pop("ranges", ()))
            gone = f" -{len(ranges)} ranges" if ranges else ""
            self.effects.append(f"write +{len(puts)} -{len(deletes)}{gone}")
            write(made.store, puts, deletes, ranges=ranges, **more)

        made.store.write = noting  # type: ignore[method-assign]

    def _restart(self) -> None:
        old = self.hall.node
        old.close()
        store: Any = old.store
        del store.write
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(node, "MemoryStore", lambda: store)
            self.hall.node = node.Node(old.settings)
        self.hall.server = BrokerServer(self.hall.node)
        self.hall.server.scheduler = Scheduler(ticking())
        self._peers.clear()
        self._record()
        self.lines += ["", "* a restart", f"  did: {', '.join(self.effects) or 'nothing'}"]
        self.effects.clear()

    def _note(self, part: Any, name: str, label: str) -> None:
        usual = getattr(part, name)

        def noting(*arguments: Any) -> Any:
            self.effects.append(label)
            return usual(*arguments)

        setattr(part, name, noting)

    async def play(self, story: Story) -> str:
        """Play each step, and return the text."""
        for step in story:
            if isinstance(step, Restart):
                self._restart()
            elif isinstance(step, Do):
                self.lines.append(f"* {step.what}")
                step.change(self.hall)
                self.effects.clear()
            else:
                await self._ask(step)
        self.lines += ["", "* the store", *map(_stored, self.hall.node.store.scan(b""))]
        return "\n".join(self.lines) + "\n"

    async def _ask(self, step: Ask) -> None:
        values = step.values(self.hall) if callable(step.values) else step.values
        ids = {topic.topic_id: f"id:{topic.name}" for topic in self.hall.node.catalogue}
        before = dict(self.hall.node.counters)
        frame = await self._answer(step, values)
        ids |= {topic.topic_id: f"id:{topic.name}" for topic in self.hall.node.catalogue}
        if self.lines:
            self.lines.append("")
        self.lines.append(f"> {APIS[step.key].name} v{step.version}{_by(step.peer)}")
        self.lines += [f"    {name}: {_said(one, ids)}" for name, one in values.items()]
        counters = {
            name: count - before.get(name, 0)
            for name, count in sorted(self.hall.node.counters.items())
            if count != before.get(name, 0)
        }
        did = [*self.effects, *(f"{name} +{more}" for name, more in counters.items())]
        self.effects.clear()
        self.lines.append(f"  did: {', '.join(did)}" if did else "  did: nothing")
        if frame is None:
            self.lines.append("  no answer, and the connection is closed")
        else:
            self.lines += _read(step, frame, ids)

    async def _answer(self, step: Ask, values: Values) -> bytes | None:
        if step.peer not in self._peers:
            protocol = "SASL_PLAINTEXT" if step.peer.startswith("sasl") else PLAINTEXT
            self._peers[step.peer] = self.hall.connect(step.peer, protocol)
        peer, wire = self._peers[step.peer]
        mine: list[tuple[str, bytes]] = []
        wire.written = mine
        number = next(self._numbers)
        (frame,) = frames(step.key, 1, step.version, **values)
        peer.data_received(frame[:8] + number.to_bytes(4, "big") + frame[12:])
        for round_ in itertools.count():
            await asyncio.sleep(0)
            if mine or wire.closed:
                break
            if round_ == 30 and step.key == JOIN_GROUP:
                for group in list(self.hall.node.groups):
                    self.hall.node.groups.tick(group.group_id)  # end the join phase
        return b"".join(data for _, data in mine) if mine else None


def _stored(pair: tuple[bytes, bytes]) -> str:
    key, value = pair
    if key[:1] == b"b":  # a batch
        return f"  {key!r}: {len(value)} bytes, checksum {crc32(value):08x}"
    return f"  {key!r}: {value!r}"


def _read(step: Ask, frame: bytes, ids: Mapping[uuid.UUID, str]) -> Iterable[str]:
    try:
        return list(rendered(read(step.key, step.version, frame), "answer", "  ", ids))
    except OutOfBoundValue:  # kio cannot read the time -1, which stands for no time
        return [f"  answer {frame[8:]!r}"]


def _by(peer: str) -> str:
    return "" if peer == "peer" else f" by {peer}"


def _said(value: object, ids: Mapping[uuid.UUID, str]) -> str:
    if isinstance(value, dict):
        return "{" + " ".join(f"{k}={_said(v, ids)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_said(one, ids) for one in value) + "]"
    return _short(value, ids)


def played(story: Story) -> str:
    """Return the text of a story; ids, clocks and sessions are the same in each run."""
    effects: list[str] = []
    numbers, sessions = itertools.count(1), itertools.count(1)

    async def checkpoint(throttle: Throttle, size: int = 0) -> None:
        effects.append(f"turn {size}" if size else "turn")

    async def give_way(throttle: Throttle) -> None:
        effects.append("way")

    usual = GroupTimers.set

    def set_timer(timers: GroupTimers, key: Any, when_ms: int) -> None:
        effects.append(f"timer {key if isinstance(key, str) else ' '.join(key)} {when_ms}")
        usual(timers, key, when_ms)

    async def told() -> str:
        hall = Hall()
        effects.clear()
        try:
            return await Player(hall, effects).play(story)
        finally:
            hall.node.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Throttle, "checkpoint", checkpoint)
        patched.setattr(Throttle, "give_way", give_way)
        patched.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers)))
        patched.setattr(random, "randrange", lambda low, high: 1_000 * low + next(sessions))
        patched.setattr(GroupTimers, "set", set_timer)
        patched.setattr(node, "wall_ms", lambda: NOW)
        patched.setattr(node, "timer_ms", lambda: 5_000)
        return asyncio.run(told())
