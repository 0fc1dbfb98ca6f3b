"""Whole stories of the scaler: each different answer with its figures, the memory, calls and log lines.

``python -m tests.unit.scaler.test_transcripts`` writes the transcripts of today, to be read before
they are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.scaler import servicer as servicer_module
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.recommender import Recommender
from faust_assigner.scaler.render import as_json, as_text
from faust_assigner.scaler.servicer import ExternalScaler
from faust_assigner.status.evidence import Evidence
from tests.property.service_sim.loop import VirtualLoop
from tests.support.status import LOG, MadeGroup
from tests.support.status import group as made_group
from tests.unit.scaler.made import EVERY_S, Group, group
from tests.unit.scaler.test_look import heard

FOLDER: Final = Path(__file__).with_name("transcripts")

# -- decisions over time ---------------------------------------------------------------------------


@dataclass
class Told:
    """The answers of a made-up group as lines. An answer with the last answer's words is left out."""

    made: Group
    lines: list[str] = field(default_factory=list)
    _last: object = None

    def passes(self, seconds: float, heading: str = "", **changes: Any) -> None:
        """Change the group; then ask every 15 seconds for this time."""
        if heading:
            self.lines.append(f"-- {heading}")
        for name, value in changes.items():
            setattr(self.made, name, value)
        for _ in range(max(1, int(seconds / EVERY_S))):
            self._ask()
            arrived = self.made.arrival * EVERY_S
            done = arrived if self.made.processed is None else self.made.processed * EVERY_S
            self.made.now += EVERY_S
            self.made.end += arrived
            self.made.committed = min(self.made.end, self.made.committed + done)

    def _ask(self) -> None:
        members = self.made.members
        found = self.made.ask()
        words = (
            found.size,
            found.decision,
            found.useful,
            found.notes,
            *map(_unnumbered, found.reasons),
        )
        if words == self._last:
            return
        self._last = words
        memory = self.made.memory
        self.lines += [
            f"{self.made.now - 1000:6.0f} s, {members} members",
            as_text("g", found),
            f"  memory       size {memory.size}, changed {_ago(self, memory.changed_at)}, "
            f"parted {_ago(self, memory.parted_at)}, busy {_ago(self, memory.busy_at)}, "
            f"{memory.tasks} tasks, {memory.standbys} standbys, {len(memory.samples)} samples, "
            f"rates {[round(rate, 2) for rate in memory.rates[-3:]]}"
            f"{'' if found.is_active else ', not active'}",
        ]


def _unnumbered(reason: str) -> str:
    return "".join("0" if one.isdigit() else one for one in reason)


def _ago(told: Told, at: float | None) -> str:
    return "never" if at is None else f"{told.made.now - at:g} s ago"


def growing() -> Told:
    """The load rises in steps, until no larger size helps; then it falls."""
    told = Told(group(members=2))
    told.passes(180, "two workers carry the load", arrival=100.0)
    told.passes(300, "the load exceeds their rate", arrival=200.0, processed=120.0)
    told.passes(300, "the new size suffices", processed=260.0)
    told.passes(400, "more than all sizes process", arrival=4_000.0, processed=1_000.0)
    told.passes(600, "the load is low", arrival=30.0, processed=None)
    told.passes(2_700)
    return told


def waiting() -> Told:
    """Workers come late or not at all; rebalances and restores hold the size."""
    told = Told(group(members=2, worker_rate=50.0, most=6, follows=False))
    told.passes(120, "too much for two", arrival=150.0, processed=100.0)
    told.passes(60, "a rebalance", busy=("a rebalance is in progress (joining)",))
    told.passes(150, "at rest, but no third worker", busy=())
    told.passes(330)
    told.passes(45, "the workers have come", members=4)
    told.passes(150, "one worker too many", members=5, processed=None, arrival=20.0)
    told.passes(1_300)
    told.passes(60, "all workers are lost", members=0)
    told.passes(60, "they are back", members=4)
    return told


def asleep() -> Told:
    """With min 0 an idle group sleeps, and wakes up for a record."""
    told = Told(group(members=1, least=0, down_s=60.0))
    told.passes(60, "a little work", arrival=1.0)
    told.passes(150, "no work", arrival=0.0)
    told.passes(45, "some records", arrival=2.0)
    told.passes(45, "it is processed, and the worker leaves too early", processed=None, members=0)
    told.passes(90, "the group sleeps again", arrival=0.0, members=0)
    told.passes(400, "no worker comes", arrival=3.0, processed=0.0, follows=False, members=0)
    return told


def bounded() -> Told:
    """Limits, standbys, spare workers, and a target in records."""
    told = Told(group(members=3, standbys=2, least=1, most=5, target_lag=100.0, spare=1, up_s=30.0))
    told.passes(60, "two standbys need three workers", arrival=10.0, members=2)
    told.passes(120, "restless owners", restless=True, arrival=40.0, processed=39.0)
    told.passes(120, "a backlog of some records", restless=False, processed=30.0)
    told.passes(180, "more than max", arrival=100.0, processed=60.0)
    told.passes(60, "nine workers were started", members=9, processed=None)
    told.passes(900, "one standby, no answer about standbys", standbys=None)
    told.passes(60, "no topics", tasks=0)
    told.passes(60, "tasks again, more of them", tasks=24, standbys=1)
    return told


def behind() -> Told:
    """The workers seem fast enough, and the backlog stays."""
    told = Told(group(members=4, worker_rate=1_000.0, target_lag_s=10.0, catch_up_s=600.0))
    told.passes(120, "fast enough", arrival=200.0)
    told.passes(60, "slower", processed=150.0)
    told.passes(300, "as many arrive as are processed", processed=200.0)
    told.passes(300, "they catch up", processed=400.0)
    return told


def spiky() -> Told:
    """A load that is high for less than up_s, then for longer; sizes with just the needed rate."""
    told = Told(group(members=4, worker_rate=50.0, up_s=45.0, down_s=120.0))
    told.passes(150, "a low load", arrival=100.0)
    told.passes(15, "a spike", arrival=900.0)
    told.passes(150, "low again", arrival=100.0)
    told.passes(15, "two spikes", arrival=900.0)
    told.passes(15, arrival=100.0)
    told.passes(15, arrival=900.0)
    told.passes(150, "a load of exactly the limit", arrival=180.0)
    told.passes(150, "a little more", arrival=181.0)
    told.passes(300, "low", arrival=10.0)
    return told


# -- calls -----------------------------------------------------------------------------------------


class Ended(Exception):
    """The status of a call."""


class Context:
    """The context of a call."""

    async def abort(self, code: Any, details: str) -> None:
        """End the call."""
        raise Ended(f"{code.name}: {details}")


class Desk(logging.Handler):
    """A scaler over a group in virtual time, its callers, and the lines of their calls."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.group: MadeGroup = made_group(3)
        self.error: Exception | None = None
        self.slow_s = 0.2
        self.committed = 900
        self.changes: dict[str, Any] = {}
        self.recommender = Recommender("shop", self.look, lambda: self.now)
        self.scaler = ExternalScaler(self.recommender, {"upSeconds": "15", "downSeconds": "60"})

    @property
    def now(self) -> float:
        """The loop's time, in seconds."""
        return asyncio.get_running_loop().time()

    def note(self, line: str) -> None:
        """Add a line with its time."""
        self.lines.append(f"{self.now - 1000:8.3f} {line}")

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line of the log."""
        self.note(f"log {record.levelname} {record.getMessage()}")

    async def look(self) -> Evidence:
        """Query the group."""
        self.note("a query")
        await asyncio.sleep(self.slow_s)
        if self.error is not None:
            raise self.error
        found = self.group.evidence(heard=heard(self.group), committed=self.committed)
        return replace(found, taken_at=self.now, **self.changes)

    async def call(self, method: str, name: str = "shop", *, metric: str = "", **said: str) -> None:
        """Make a call about a ScaledObject."""
        ref = pb.ScaledObjectRef(
            name=name, namespace="prod", scalerMetadata={"group": "shop", **said}
        )
        request: Any = ref
        if method == "GetMetrics":
            request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=metric)
        self.note(f"{name} {method} {metric} {said}")
        try:
            answer = getattr(self.scaler, method)(request, Context())
            if isinstance(answer, Awaitable):
                self.note(f"{name} {method} -> {_shown(await answer)}")
                return
            async for one in answer:
                self.note(f"{name} {method} -> {_shown(one)}")
        except Ended as end:
            self.note(f"{name} {method} -> {end}")
        except Exception as error:
            self.note(f"{name} {method} -> {error!r}")


def _shown(message: Any) -> str:
    return " ".join(str(message).split()) or "{}"


async def served(desk: Desk) -> None:
    """KEDA's calls of two ScaledObjects, with good and bad metadata; a stream."""
    await asyncio.gather(
        desk.call("GetMetrics"), desk.call("IsActive"), desk.call("GetMetrics", "other", min="5")
    )
    await desk.call("GetMetricSpec")
    for said in ({"min": "x"}, {"max": "0"}, {"min": "3", "max": "2"}, {"wrong": "1"},
                 {"growAt": "0.5", "shrinkAt": "0.5"}, {"group": "other"}, {"group": ""},
                 {"scalerAddress": "x:1", "targetLag": " 5 "}):  # fmt: skip
        await desk.call("GetMetrics", "bad", **said)
    await desk.call("GetMetrics", metric="lag")
    await desk.call("GetMetrics", metric="workers")
    await desk.call("GetMetricSpec", group="other")
    streams = [asyncio.create_task(desk.call("StreamIsActive", f"s{n}")) for n in range(2)]
    await asyncio.sleep(11.0)
    await desk.call("StreamIsActive", "third")
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    third = asyncio.create_task(desk.call("StreamIsActive", "third"))
    await asyncio.sleep(1.0)
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)


async def silent(desk: Desk) -> None:
    """The group is slow, unreachable, unknown, and back; errors of our own are raised."""
    desk.error = ConnectionError("no broker")
    await desk.call("GetMetrics")
    await desk.call("GetMetrics")
    desk.error = None
    await desk.call("GetMetrics", holdSeconds="60")
    await asyncio.sleep(4.0)
    desk.slow_s = 12.0
    await desk.call("GetMetrics", holdSeconds="60")
    await asyncio.sleep(3.0)
    await desk.call("GetMetrics", holdSeconds="60")
    desk.slow_s, desk.error = 0.2, ConnectionError("no broker")
    for _ in range(3):
        await asyncio.sleep(25.0)
        await desk.call("GetMetrics", holdSeconds="60")
        await desk.call("IsActive", holdSeconds="60")
    desk.error = GroupNotFound("the cluster knows no group shop")
    await desk.call("GetMetrics", holdSeconds="60")
    await desk.call("GetMetrics", holdSeconds="60", min="0")
    await desk.call("IsActive", holdSeconds="60", min="0", max="1")
    await desk.call("GetMetrics", "new", holdSeconds="60", min="0")
    desk.error = None
    await desk.call("GetMetrics", holdSeconds="60", min="0")
    desk.error = KeyError("a fault of ours")
    await asyncio.sleep(4.0)
    await desk.call("GetMetrics", holdSeconds="60")


async def held(desk: Desk) -> None:
    """An answer of exactly hold_s, and an older one; queries of exactly their greatest age."""
    desk.slow_s = 0.25
    await desk.call("GetMetrics", holdSeconds="60")
    await asyncio.sleep(2.75)
    await desk.call("GetMetrics", "other")
    await asyncio.sleep(0.25)
    await desk.call("GetMetrics", "other")
    desk.error = ConnectionError("no broker")
    await asyncio.sleep(56.25)
    await desk.call("GetMetrics", holdSeconds="60")
    await desk.call("GetMetrics", holdSeconds="60")


async def loaded(desk: Desk) -> None:
    """A group over time: a backlog, a rebalance, partitions without a leader, missing offsets."""
    for _ in range(4):
        await _told(desk)
        desk.group.end += 3_000
        desk.committed += 1_000
    desk.group.state = "PreparingRebalance"
    await _told(desk)
    desk.group.state = "Stable"
    desk.changes = {"leaderless": frozenset({("orders", 2), ("orders", 3), (LOG, 0)})}
    await _told(desk)
    desk.changes = {"ends": {}}
    await _told(desk)
    desk.changes = {"committed": {("orders", 0): 5}, "problems": ("a topic is missing",)}
    await _told(desk)
    await _told(desk, min="4")
    desk.changes = {}
    desk.group.leave("m1").round()
    await _told(desk)
    await asyncio.sleep(400.0)
    await _told(desk)
    desk.group = MadeGroup(state="Empty")
    await _told(desk)
    await _told(desk, min="0")


async def _told(desk: Desk, **said: str) -> None:
    """Make a call, note the whole recommendation, and let 15 seconds pass."""
    await desk.call("GetMetrics", **said)
    one = desk.recommender._askers["prod/shop"].told
    assert one is not None
    desk.lines += [as_text("shop", one), as_json("shop", one)]
    await asyncio.sleep(15.0)


TOLD: dict[str, Callable[[], Told]] = {
    "growing": growing,
    "waiting": waiting,
    "asleep": asleep,
    "bounded": bounded,
    "behind": behind,
    "spiky": spiky,
}
CALLED: dict[str, Callable[[Desk], Awaitable[None]]] = {
    "served": served,
    "silent": silent,
    "held": held,
    "loaded": loaded,
}


@contextlib.contextmanager
def _logged(desk: Desk) -> Iterator[None]:
    logger = logging.getLogger("faust_assigner.scaler")
    level, logger.propagate = logger.level, False
    logger.addHandler(desk)
    logger.setLevel(logging.INFO)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(servicer_module, "MOST_STREAMS", 2)
            yield
    finally:
        logger.removeHandler(desk)
        logger.setLevel(level)
        logger.propagate = True


def transcript(name: str) -> str:
    """Return the lines of a story."""
    if name in TOLD:
        return "\n".join(TOLD[name]().lines) + "\n"
    desk, loop = Desk(), VirtualLoop()

    async def played() -> None:
        await CALLED[name](desk)
        await desk.recommender.close()

    try:
        with _logged(desk):
            loop.run_until_complete(played())
    finally:
        loop.close()
    return "\n".join(desk.lines) + "\n"


@pytest.mark.parametrize("name", [*TOLD, *CALLED])
def test_a_story_has_the_answers_of_its_transcript(name: str) -> None:
    """The file beside this test has the transcript as text."""
    assert transcript(name) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for story in (*TOLD, *CALLED):
        (FOLDER / f"{story}.txt").write_text(transcript(story))
