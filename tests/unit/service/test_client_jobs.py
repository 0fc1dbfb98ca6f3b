"""The tasks of the client's handlers: their order, their answers and their ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from faust_assigner.service.client import (
    AbortWarm,
    Assigned,
    AssignerClient,
    Grant,
    Lost,
    Release,
    Retry,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client import client as client_module
from faust_assigner.service.client.commands import Command
from faust_assigner.service.client.handlers import MISSED_S, Jobs
from faust_assigner.service.errors import NotFound
from tests.support.assigning.consumers import virtually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WARM, RELEASE = Warm(T0, "b", 3), Release(T0, "b", 7)


class Stage:
    """Handlers and a client that record each call with its time; warm-ups and releases take seconds."""

    def __init__(self) -> None:
        self.acts: list[tuple[Any, ...]] = []
        self.warm_s = self.release_s = self.drop_s = 0.0
        self.error: BaseException | None = None
        self.refusal: Exception | None = None
        self.is_open = True
        handlers: Any = self
        client: Any = Client(self)
        self.jobs = Jobs(client, handlers)

    def note(self, *act: Any) -> None:
        """Record an act with its time."""
        self.acts.append((asyncio.get_running_loop().time() - 1_000.0, *act))

    async def assigned(self, command: Assigned) -> None:
        """Record the call."""
        self.note("assigned", *(grant.partition for grant in command.added))

    async def warm(self, command: Warm) -> None:
        """Warm up for some seconds."""
        self.note("warm", command.partition, command.handoff_id)
        try:
            await asyncio.sleep(self.warm_s)
        except asyncio.CancelledError:
            self.note("warm cancelled", command.partition)
            raise
        if self.error is not None:
            raise self.error
        self.note("warmed", command.partition)

    async def release(self, command: Release) -> int | None:
        """Release for some seconds, at offset 41."""
        self.note("release", command.partition, command.new_owner)
        try:
            await asyncio.sleep(self.release_s)
        except asyncio.CancelledError:
            self.note("release cancelled", command.partition)
            raise
        if self.error is not None:
            raise self.error
        return 41

    async def abort(self, command: AbortWarm) -> None:
        """Drop the state for some seconds."""
        self.note("abort", command.partition, command.handoff_id)
        await asyncio.sleep(self.drop_s)
        if self.error is not None:
            raise self.error
        self.note("dropped", command.partition)

    async def standbys(self, command: Standbys) -> None:
        """Record the call."""
        self.note("standbys", *command.partitions)

    async def lost(self, command: Lost) -> None:
        """Record the call."""
        self.note("lost", *command.partitions)


class Client:
    """Answers to the service; each is refused with the stage's refusal, if set."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def _say(self, *said: Any) -> bool:
        self.stage.note(*said)
        if self.stage.refusal is not None:
            raise self.stage.refusal
        return self.stage.is_open

    async def ready(self, command: Warm) -> bool:
        """Record the call."""
        return await self._say("ready", command.handoff_id)

    async def released(self, command: Release, final_offset: int | None = None) -> bool:
        """Record the call."""
        return await self._say("released", command.handoff_id, final_offset)

    async def release_failed(self, command: Release, reason: str) -> bool:
        """Record the call."""
        return await self._say("release_failed", command.handoff_id, reason)

    async def failed(self, command: Warm, reason: str) -> bool:
        """Record the call."""
        return await self._say("failed", command.handoff_id, reason)


def staged(story: Callable[[Stage], Awaitable[None]]) -> list[tuple[Any, ...]]:
    """Run a scenario, and return the recorded acts."""
    stage: list[Stage] = []

    async def whole() -> None:
        stage.append(Stage())
        await story(stage[0])
        await stage[0].jobs.close()

    virtually(whole)
    return stage[0].acts


def given(*partitions: TopicPartition) -> Assigned:
    """An assignment with these partitions."""
    grants = tuple(Grant(partition, 5) for partition in partitions)
    return Assigned({grant.partition: grant for grant in grants}, grants)


def test_warm_ups_and_releases_run_beside_each_other_and_are_answered() -> None:
    """The answers have the hand-offs' ids and the released offset."""

    async def story(s: Stage) -> None:
        s.warm_s, s.release_s = 3.0, 2.0
        await s.jobs.take(WARM)
        await s.jobs.take(Release(T1, "c", 9))
        await s.jobs.take(Standbys((T1, T0)))
        await asyncio.sleep(5.0)

    assert staged(story) == [
        (0.0, "standbys", T1, T0),
        (0.0, "warm", T0, 3),
        (0.0, "release", T1, "c"),
        (2.0, "released", 9, 41),
        (3.0, "warmed", T0),
        (3.0, "ready", 3),
    ]


@pytest.mark.parametrize("refusal", [None, NotFound("over")])
def test_an_error_of_a_handler_is_reported_as_the_failure_of_its_hand_off(
    refusal: Exception | None,
) -> None:
    """The report has the error's type and text; a refused report has no further effect."""

    async def story(s: Stage) -> None:
        s.error, s.refusal = ValueError("no disk"), refusal
        await s.jobs.take(WARM)
        await s.jobs.take(RELEASE)
        await asyncio.sleep(1.0)
        s.error = None
        await s.jobs.take(Release(T1, "c", 9))
        await asyncio.sleep(1.0)

    assert sorted(act[1:] for act in staged(story)) == [
        ("failed", 3, "ValueError: no disk"),
        ("release", T0, "b"),
        ("release", T1, "c"),
        ("release_failed", 7, "ValueError: no disk"),
        ("released", 9, 41),
        ("warm", T0, 3),
    ]


def test_a_handler_that_the_app_itself_cancels_fails() -> None:
    """The app awaits a task that it has cancelled; the service would wait for the answer in vain."""

    async def story(s: Stage) -> None:
        s.error = asyncio.CancelledError()
        await s.jobs.take(WARM)
        await s.jobs.take(RELEASE)
        await asyncio.sleep(1.0)
        await s.jobs.finish((T1,), 5.0)

    why = "RuntimeError: the app's own code cancelled this call"
    assert sorted(act[1:] for act in staged(story)) == [
        ("failed", 3, why),
        ("release", T0, "b"),
        ("release", T1, ""),
        ("release_failed", 7, why),
        ("warm", T0, 3),
    ]


@pytest.mark.parametrize("kind", ["again", "abort", "grant"])
def test_a_new_command_ends_the_warm_up_of_its_partition_alone(kind: str) -> None:
    """The warm-up ends before the handler of the later hand-off, the abort or the grant is called."""

    async def story(s: Stage) -> None:
        s.warm_s = 5.0
        await s.jobs.take(WARM)
        await s.jobs.take(Warm(T1, "b", 4))
        await asyncio.sleep(1.0)
        if kind == "again":
            await s.jobs.take(Warm(T0, "c", 8))
        elif kind == "abort":
            await s.jobs.take(AbortWarm(T0, 3))
        else:
            await s.jobs.take(given(T0))
        await asyncio.sleep(9.0)

    acts = staged(story)
    rest = {
        "again": [(1.0, "warm", T0, 8), (6.0, "warmed", T0), (6.0, "ready", 8)],
        "abort": [(1.0, "abort", T0, 3), (1.0, "dropped", T0)],
        "grant": [(1.0, "assigned", T0)],
    }[kind]
    assert [act for act in acts if T1 not in act and act[2:] != (4,)] == [
        (0.0, "warm", T0, 3),
        (1.0, "warm cancelled", T0),
        *rest,
    ]
    assert (5.0, "ready", 4) in acts


@pytest.mark.parametrize("kind", ["again", "grant", "lost"])
def test_a_grant_a_loss_and_a_new_release_end_the_release_under_way(kind: str) -> None:
    """The release ends before the next call; a loss ends the releases of all partitions."""

    async def story(s: Stage) -> None:
        s.release_s = 5.0
        await s.jobs.take(RELEASE)
        await s.jobs.take(Release(T1, "b", 9))
        await asyncio.sleep(1.0)
        if kind == "again":
            await s.jobs.take(Release(T0, "c", 8))
        elif kind == "grant":
            await s.jobs.take(given(T0))
        else:
            await s.jobs.take(Lost((T0, T1)))
        await asyncio.sleep(9.0)

    acts = staged(story)
    begun = [(0.0, "release", T0, "b"), (0.0, "release", T1, "b")]
    cancelled = (1.0, "release cancelled", T0)
    if kind == "lost":
        assert acts == [*begun, cancelled, (1.0, "release cancelled", T1), (1.0, "lost", T0, T1)]
    elif kind == "grant":
        assert acts == [*begun, cancelled, (1.0, "assigned", T0), (5.0, "released", 9, 41)]
    else:
        assert acts == [
            *begun,
            cancelled,
            (1.0, "release", T0, "c"),
            (5.0, "released", 9, 41),
            (6.0, "released", 8, 41),
        ]


def test_a_warm_up_waits_for_the_release_of_its_partition() -> None:
    """The release still writes the state; releases of different partitions do not matter."""

    async def story(s: Stage) -> None:
        s.release_s = 4.0
        await s.jobs.take(RELEASE)
        await s.jobs.take(WARM)
        await s.jobs.take(Warm(T1, "b", 4))
        await asyncio.sleep(6.0)

    acts = staged(story)
    assert (0.0, "warm", T1, 4) in acts
    assert acts[-4:] == [
        (4.0, "released", 7, 41),
        (4.0, "warm", T0, 3),
        (4.0, "warmed", T0),
        (4.0, "ready", 3),
    ]


@pytest.mark.parametrize("news", ["none", "abort", "grant"])
def test_the_state_of_a_hand_off_that_is_over_is_dropped_after_ten_seconds(news: str) -> None:
    """An abort or a grant before then cancels the drop."""

    async def story(s: Stage) -> None:
        s.is_open = False
        await s.jobs.take(WARM)
        await asyncio.sleep(MISSED_S - 0.5)
        if news == "abort":
            await s.jobs.take(AbortWarm(T0, 3))
        elif news == "grant":
            await s.jobs.take(given(T0))
        await asyncio.sleep(5.0)

    begun = [(0.0, "warm", T0, 3), (0.0, "warmed", T0), (0.0, "ready", 3)]
    rest: dict[str, list[tuple[Any, ...]]] = {
        "none": [(10.0, "abort", T0, 3), (10.0, "dropped", T0)],
        "abort": [(9.5, "abort", T0, 3), (9.5, "dropped", T0)],
        "grant": [(9.5, "assigned", T0)],
    }
    assert staged(story) == [*begun, *rest[news]]


def test_a_grant_waits_for_a_drop_that_has_begun() -> None:
    """The drop may be half done; an error of the drop has no further effect."""

    async def story(s: Stage) -> None:
        s.is_open, s.drop_s = False, 3.0
        await s.jobs.take(WARM)
        await asyncio.sleep(MISSED_S + 1.0)
        await s.jobs.take(given(T0))
        await s.jobs.take(Warm(T1, "b", 4))
        await asyncio.sleep(MISSED_S + 1.0)
        s.error = ValueError("no")
        await s.jobs.take(given(T1))

    assert [act for act in staged(story) if act[1] in ("abort", "dropped", "assigned")] == [
        (10.0, "abort", T0, 3),
        (13.0, "dropped", T0),
        (13.0, "assigned", T0),
        (23.0, "abort", T1, 4),
        (26.0, "assigned", T1),
    ]


def test_a_refused_answer_ends_in_silence() -> None:
    """No error is raised, and the state of a refused warm-up is kept."""

    async def story(s: Stage) -> None:
        s.refusal = NotFound("over")
        await s.jobs.take(WARM)
        await s.jobs.take(RELEASE)
        await asyncio.sleep(MISSED_S + 1.0)

    assert "abort" not in [act[1] for act in staged(story)]


def test_a_consumer_that_leaves_releases_its_partitions_within_the_time() -> None:
    """The last releases are not answered; running releases continue; late partitions are lost."""

    async def story(s: Stage) -> None:
        t2, t3 = TopicPartition("t", 2), TopicPartition("t", 3)
        await s.jobs.finish((), 5.0)
        s.release_s = 9.0
        await s.jobs.take(Release(T1, "c", 9))
        await asyncio.sleep(2.0)
        s.release_s = 1.0
        await s.jobs.finish((T1, T0), 8.0)
        s.release_s = 6.0
        await s.jobs.finish((t3, t2), 5.0)

    t2, t3 = TopicPartition("t", 2), TopicPartition("t", 3)
    assert staged(story) == [
        (0.0, "release", T1, "c"),
        (2.0, "release", T0, ""),
        (9.0, "released", 9, 41),
        (9.0, "release", t3, ""),
        (9.0, "release", t2, ""),
        (14.0, "release cancelled", t3),
        (14.0, "release cancelled", t2),
        (14.0, "lost", t2, t3),
    ]


def test_a_last_release_that_fails_is_not_lost() -> None:
    """The error is logged, and the remaining partitions are released."""

    async def story(s: Stage) -> None:
        s.error = ValueError("no")
        await s.jobs.finish((T0, T1), 5.0)

    assert staged(story) == [(0.0, "release", T0, ""), (0.0, "release", T1, "")]


def test_the_end_cancels_all_tasks() -> None:
    """The tasks are warm-ups, releases and drops."""

    async def story(s: Stage) -> None:
        s.is_open, s.drop_s = False, 50.0
        await s.jobs.take(Warm(TopicPartition("t", 2), "b", 5))
        await asyncio.sleep(MISSED_S + 1.0)
        s.warm_s = s.release_s = 50.0
        await s.jobs.take(WARM)
        await s.jobs.take(Release(T1, "c", 9))
        await asyncio.sleep(1.0)
        await s.jobs.close()
        await asyncio.sleep(99.0)

    assert staged(story)[-2:] == [(12.0, "warm cancelled", T0), (12.0, "release cancelled", T1)]


@pytest.mark.parametrize(
    ("left_s", "within_s"), [(5.0, 5.0), (9.0, 8.0), (math.inf, 8.0), (0.0, 0.0), (-3.0, 0.0)]
)
async def test_the_last_releases_have_the_time_of_the_session_and_of_a_leave(
    monkeypatch: pytest.MonkeyPatch, left_s: float, within_s: float
) -> None:
    """The work on all partitions is over when the session is given up."""
    told: list[Any] = []

    class Last:
        """The jobs, which record their calls."""

        def __init__(self, of: Any, handlers: Any) -> None:
            told.append((of, handlers))

        async def take(self, command: Any) -> None:
            """Record the call."""
            told.append(command)

        async def finish(self, at_work: Any, within: float) -> None:
            """Record the call, and whether the consumer may still work."""
            told.append((at_work, within, of_all.may_work(T0)))

        async def close(self) -> None:
            """Record the call."""
            told.append("closed")

    class Leaving(AssignerClient):
        """A client whose commands end at once."""

        async def commands(self) -> AsyncGenerator[Command, None]:
            """Yield one command; another one follows behind the end."""
            self._inbox.put(RELEASE)
            yield WARM

    of_all = Leaving("h:1", "a", retry=Retry(leave_s=8.0), clock=lambda: 100.0)
    of_all.holdings.begin(100.0 + left_s)
    of_all.holdings.update([Grant(T0, 5), Grant(T1, 6)], (), snapshot=True)
    monkeypatch.setattr(client_module, "Jobs", Last)
    handlers: Any = object()
    await of_all.run(handlers)
    end = ((T0, T1), within_s, left_s > 0)
    assert told == [(of_all, handlers), WARM, RELEASE, end, "closed"]
    assert (of_all.may_work(T0), of_all.holdings.at_work()) == (False, ())
