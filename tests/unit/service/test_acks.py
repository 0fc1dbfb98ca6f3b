"""Answers to hand-offs: accepted callers, repeated answers, and the stored results."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import NotFound, Replaced, ServiceRefused, WrongPhase
from faust_assigner.service.handoff import Handoff, Phase
from faust_assigner.service.records import Assigned, Consumer
from faust_assigner.service.serving.acks import PROGRESS_EVERY_S, Acks, Answer
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, acks_of, put, store

READY = replace(HANDOFF, phase=Phase.READY)
RELEASING = replace(READY, strict=True)
RELEASED = replace(RELEASING, released=True)
HANDED = replace(RELEASED, phase=Phase.COMPLETE)


async def kept_with(handoff: Handoff | None, owner: str = "old") -> tuple[MemoryStore, Acks]:
    """A store with this hand-off and owner, and the handler of answers."""
    kept = store()
    await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, owner)))
    if handoff is not None:
        await put(kept, ALL.handoff(AT), codec.dump_handoff(handoff))
    return kept, acks_of(kept)


async def written(kept: MemoryStore) -> Handoff:
    """Return the stored hand-off."""
    kv = await kept.get(ALL.handoff(AT))
    assert kv is not None
    return codec.load_handoff(kv.value)


@pytest.mark.parametrize("offset", [0, 7, None])
def test_an_owner_lets_go_at_any_offset_from_0_or_at_none(offset: int | None) -> None:
    """The owner of an empty partition is at offset 0."""

    async def story() -> None:
        kept, acks = await kept_with(RELEASING)
        await acks.released(Answer("old", AT), offset)
        assert await written(kept) == replace(RELEASED, offset=offset)

    virtually(story)


@pytest.mark.parametrize("handoff", [RELEASED, HANDED])
def test_a_release_that_is_said_again_changes_nothing(handoff: Handoff) -> None:
    """The first answer was lost, and the leader may have advanced the hand-off."""

    async def story() -> None:
        kept, acks = await kept_with(handoff)
        await acks.released(Answer("old", AT), 9)
        assert await written(kept) == handoff

    virtually(story)


@pytest.mark.parametrize(
    "handoff", [READY, RELEASING, RELEASED, replace(READY, phase=Phase.COMPLETE), HANDED]
)
def test_readiness_that_is_said_again_changes_nothing(handoff: Handoff) -> None:
    """The later states ignore the repeated answer."""

    async def story() -> None:
        kept, acks = await kept_with(handoff)
        await acks.ready(Answer("new", AT))
        assert await written(kept) == handoff

    virtually(story)


def test_a_failure_that_is_said_again_keeps_its_first_reason() -> None:
    """An empty reason is stored as "no reason given"."""

    async def story() -> None:
        kept, acks = await kept_with(HANDOFF)
        await acks.warm_failed(Answer("new", AT), "")
        await acks.warm_failed(Answer("new", AT), "no space")
        assert (await written(kept)).failed == "no reason given"

    virtually(story)


@pytest.mark.parametrize(
    ("wanted", "said", "is_taken"),
    [("p1", "p1", True), ("p1", "p2", False), ("p1", "", False), ("~made", "", True)],
)
def test_only_the_process_that_is_meant_may_answer(wanted: str, said: str, is_taken: bool) -> None:
    """A process without an incarnation may answer only if the service invented its incarnation."""

    async def story() -> None:
        kept, acks = await kept_with(replace(HANDOFF, new_incarnation=wanted))
        try:
            await acks.ready(Answer("new", AT, incarnation=said))
        except Replaced:
            assert (await written(kept)).phase is Phase.WARMING
            assert not is_taken
        else:
            assert (await written(kept)).phase is Phase.READY
            assert is_taken

    virtually(story)


def test_the_successor_of_the_process_that_is_meant_is_not_replaced() -> None:
    """As replaced the successor would stop for good, but it only answered for its predecessor."""

    async def story() -> None:
        kept, acks = await kept_with(replace(HANDOFF, new_incarnation="p1"))
        successor = Consumer(name="new", session="s", incarnation="p2", replaced=("p1",))
        await kept.txn([], [Put(ALL.consumer("new"), codec.dump_consumer(successor))])
        with pytest.raises(WrongPhase, match="an earlier process of new"):
            await acks.ready(Answer("new", AT, incarnation="p2"))
        with pytest.raises(Replaced, match="p0"):
            await acks.ready(Answer("new", AT, incarnation="p0"))
        assert (await written(kept)).phase is Phase.WARMING

    virtually(story)


@pytest.mark.parametrize(
    ("caller", "what", "is_taken"),
    [("old", "ready", True), ("new", "ready", False),
     ("new", "released", True), ("old", "released", False)],
)  # fmt: skip
def test_an_answer_after_the_end_is_taken_where_it_came_true(
    caller: str, what: str, is_taken: bool
) -> None:
    """Without a hand-off, the owner may repeat ready, and a former owner may repeat released."""

    async def story() -> None:
        _, acks = await kept_with(None, owner="old")
        try:
            if what == "ready":
                await acks.ready(Answer(caller, AT))
            else:
                await acks.released(Answer(caller, AT))
        except NotFound:
            assert not is_taken
        else:
            assert is_taken

    virtually(story)


def test_the_revision_of_a_progress_has_the_base_after_the_write() -> None:
    """The store was restored during the write; a caller waits for the returned revision."""

    async def story() -> None:
        _, acks = await kept_with(HANDOFF)
        take = acks._taken

        async def restored(*given: Any, **more: Any) -> int:
            revision = await take(*given, **more)
            acks.mirror.view.bases["base"] = SimpleNamespace(value=1_000)  # type: ignore[assignment]
            return revision

        acks._taken = restored  # type: ignore[method-assign]
        assert await acks.progress(Answer("new", AT), 0.25) > 1_000

    virtually(story)


def test_progress_of_two_consumers_is_timed_apart() -> None:
    """A refused report must not delay the first report of the right consumer by five seconds."""

    async def story() -> None:
        kept, acks = await kept_with(HANDOFF)
        await acks.progress(Answer("new", AT), 0.25)
        with pytest.raises(ServiceRefused):
            await acks.progress(Answer("old", AT), 0.5)
        assert (await written(kept)).progress == 0.25

    virtually(story)


@pytest.mark.parametrize(("fraction", "progress"), [(-1.0, 0.0), (2.0, 1.0), (float("nan"), 0.0)])
def test_progress_is_from_0_to_1(fraction: float, progress: float) -> None:
    """NaN is ignored."""

    async def story() -> None:
        kept, acks = await kept_with(replace(HANDOFF, progress=0.5))
        await acks.progress(Answer("new", AT), fraction)
        assert (await written(kept)).progress == progress

    virtually(story)


def test_progress_is_written_every_few_seconds_also_after_the_others_were_tidied() -> None:
    """The clean-up of old reports keeps the report that was just written."""

    async def story() -> None:
        kept, acks = await kept_with(HANDOFF)
        clock = LoopClock()
        await acks.progress(Answer("new", AT), 0.1)
        await acks.progress(Answer("new", AT), 0.2)
        assert (await written(kept)).progress == 0.1
        await clock.sleep(PROGRESS_EVERY_S)
        await acks.progress(Answer("new", AT), 0.3)
        await acks.progress(Answer("new", AT), 0.4)
        assert (await written(kept)).progress == 0.3

    virtually(story)
