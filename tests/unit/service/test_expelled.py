"""An old owner without a release: its session ends, and the new owner starts after its lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from faust_assigner.service.commands import AbortWarm, Release, Warm
from faust_assigner.service.errors import Expelled, WrongPhase
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Consumer, Ended
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.store.base import Batch
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, Helper, eventually, virtually
from tests.unit.service.stories import store

#: A lease that is renewed every 5 s always has 25 to 30 s left.
TIMES: dict[str, Any] = {
    "strict": True,
    "consumer_ttl_s": 30.0,
    "consumer_keepalive_s": 5.0,
    "handoff_timeout_s": 100.0,
    "release_timeout_s": 10.0,
    "cooldown_s": 1_000.0,
}


def staged(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with its own store, in virtual time."""

    async def play() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b)
        await kept.close()

    virtually(play)


async def begin(b: Bench, node: AssignerNode, name: str, incarnation: str, **does: Any) -> Helper:
    """Start and connect a process."""
    wishes = Consumer(name=name, incarnation=incarnation)
    return await b.consumer(node, name, consumer=wishes, **does)


async def expelled(b: Bench, node: AssignerNode, partitions: int = 2) -> tuple[Helper, Helper]:
    """Return an old owner ``a`` that has just been expelled, and the new owner ``b``."""
    old = await begin(b, node, "a", "one", releases=False)
    await b.settles(partitions)
    new = await begin(b, node, "b", "x")
    await eventually(lambda: old.ended is not None)
    assert old.ended is Ended.EXPELLED
    return old, new


def test_an_old_owner_that_does_not_release_in_time_is_expelled() -> None:
    """The session lasts until the release timeout."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        await begin(b, node, "b", "x")
        await eventually(lambda: old.of(Release))
        await asyncio.sleep(9.0)
        assert old.ended is None
        await asyncio.sleep(2.0)
        assert old.ended is Ended.EXPELLED

    staged(story)


def test_the_warm_new_owner_gets_the_partition_when_the_lease_is_over() -> None:
    """The new owner is asked once, without a cooldown, and starts after the old owner's lease."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        _, new = await expelled(b, node)
        await asyncio.sleep(24.0)
        assert not new.owned
        await asyncio.sleep(8.0)
        assert len(new.owned) == 2, "what it did not hand over, too"
        assert (len(new.of(Warm)), new.of(AbortWarm)) == (1, [])
        assert not node._mirror.view.cooldowns

    staged(story)


def test_a_release_that_fails_is_not_waited_for() -> None:
    """The old owner reports the failure, and its session ends before the release timeout."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES | {"release_timeout_s": 90.0})
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        new = await begin(b, node, "b", "x")
        await eventually(lambda: old.of(Release))
        asked = old.of(Release)[0]
        await node.acks.release_failed(
            Answer("a", asked.at, handoff_id=asked.handoff_id, incarnation="one"),
            "disk full",
            old.owned[asked.at],
        )
        await asyncio.sleep(1.0)
        assert old.ended is Ended.EXPELLED
        [handoff] = await node.overview.handoffs()
        assert handoff.handoff.unreleased == "disk full"
        await asyncio.sleep(31.0)
        assert len(new.owned) == 2

    staged(story)


def test_a_release_that_failed_under_an_older_epoch_is_refused() -> None:
    """The owner has got the partition again under a newer epoch."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        await begin(b, node, "b", "x")
        await eventually(lambda: old.of(Release))
        at = old.of(Release)[0].at
        with pytest.raises(WrongPhase, match="epoch"):
            await node.acks.release_failed(
                Answer("a", at, incarnation="one"), "no", old.owned[at] - 1
            )
        await asyncio.sleep(1.0)
        assert old.ended is None

    staged(story)


def test_the_time_for_a_release_begins_when_it_is_asked_for() -> None:
    """A long warm-up of the new owner does not shorten the old owner's release timeout."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        await begin(b, node, "b", "x", warm_s=98.0)
        await eventually(lambda: old.of(Warm) == [] and b.open_handoffs() == 1)
        await asyncio.sleep(98.0 + 8.0)
        assert old.of(Release)
        assert old.ended is None
        await asyncio.sleep(4.0)
        assert old.ended is Ended.EXPELLED

    staged(story)


def test_several_releases_that_are_late_at_once_end_the_session_once() -> None:
    """Each expulsion would write the same keys, which a store refuses."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 8}, **TIMES)
        old, new = await expelled(b, node, partitions=8)
        await asyncio.sleep(32.0)
        assert len(new.owned) == 8
        assert len(old.of(Release)) == 4

    staged(story)


def test_of_partitions_that_travel_together_none_is_given_up() -> None:
    """One of the pair was released, the second was not; the new owner gets both."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2, "u": 2}, **TIMES)
        together = (("t", "u"),)
        old = Helper(
            node,
            "a",
            Consumer(name="a", incarnation="one", co_partitioned=together),
            releases=False,
        )
        b.helpers.append(old)
        await old.connect()
        await b.settles(4)
        new = await begin(b, node, "b", "x")
        await eventually(lambda: len(old.of(Release)) == 2)
        first = old.of(Release)[0]
        await node.acks.released(
            Answer("a", first.at, handoff_id=first.handoff_id, incarnation="one"), 7
        )
        await eventually(lambda: old.ended is Ended.EXPELLED)
        await asyncio.sleep(32.0)
        assert len(new.owned) == 4
        assert new.of(AbortWarm) == []

    staged(story)


def _says(node: AssignerNode, old: Helper) -> dict[str, Callable[[], Any]]:
    asked, second = old.of(Release)
    who: dict[str, Any] = {"incarnation": "one"}
    at = {**who, "handoff_id": asked.handoff_id}
    other = next(at for at in old.owned if at not in (asked.at, second.at))
    return {
        "released": lambda: node.acks.released(Answer("a", asked.at, **at)),
        "released another": lambda: node.acks.released(
            Answer("a", second.at, handoff_id=second.handoff_id, **who)
        ),
        "release failed": lambda: node.acks.release_failed(Answer("a", asked.at, **at), "no"),
        "ready": lambda: node.acks.ready(Answer("a", other, **who)),
        "failed": lambda: node.acks.warm_failed(Answer("a", other, **who), "no"),
        "progress": lambda: node.acks.progress(Answer("a", other, **who), 0.5),
        "replicas": lambda: node.record_replicas("a", {"t": [0]}, **who),
        "heartbeat": lambda: node.heartbeat("a", old.stream.session, **who),  # type: ignore[union-attr]
        "deregister": lambda: node.deregister("a", **who),
        "register": lambda: node.register(Consumer(name="a", incarnation="one")),
        "register again": lambda: node.register(
            Consumer(name="a", incarnation="one", returns=True)
        ),
    }


CALLS = [
    "released",
    "released another",
    "release failed",
    "ready",
    "failed",
    "progress",
    "replicas",
    "heartbeat",
    "deregister",
    "register",
    "register again",
]


class _Late:
    """The store of an instance that receives events an hour late."""

    def __init__(self, kept: MemoryStore) -> None:
        self._kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)

    async def watch(self, prefix: str, start_revision: int) -> AsyncIterator[Batch]:
        """Watch the store with a delay."""
        async for batch in self._kept.watch(prefix, start_revision):
            await asyncio.sleep(3_600.0)
            yield batch


#: A late instance still renews the lease on a heartbeat, so the lease ends later.
WHEN = ["at once", "by a late instance", "replaced", "much later"]
ASKED = [
    (call, when)
    for call in CALLS
    for when in WHEN
    if (call, when) != ("heartbeat", "by a late instance")
]


@pytest.mark.parametrize(("call", "when"), ASKED)
def test_an_expelled_process_is_refused_whatever_it_asks_for(call: str, when: str) -> None:
    """The error is the same with a new process under the name, and long after the lease."""

    async def story(b: Bench) -> None:
        node = asked_at = await b.node({"t": 4}, **TIMES)
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(4)
        if when == "by a late instance":
            late: Any = _Late(b.open_store())  # type: ignore[arg-type]
            asked_at = await b.node(store=late, **TIMES | {"reconcile_s": 3_600.0})
        await begin(b, node, "b", "x")
        await eventually(lambda: old.ended is Ended.EXPELLED)
        if when == "replaced":
            await begin(b, node, "a", "two")
        elif when == "much later":
            await asyncio.sleep(150.0)
        with pytest.raises(Expelled, match="a: incarnation one is expelled"):
            await _says(asked_at, old)[call]()

    staged(story)


def test_a_new_process_of_the_name_is_let_in() -> None:
    """A restart is the way back; the old partitions are blocked while the old lease runs."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        await expelled(b, node)
        again = await begin(b, node, "a", "two")
        await asyncio.sleep(20.0)
        assert (again.ended, again.owned) == (None, {})
        await asyncio.sleep(14.0)
        assert len(again.owned) == 1

    staged(story)


def test_a_client_without_an_incarnation_is_refused_until_its_lease_is_over() -> None:
    """The service cannot distinguish it from a new process until the lease ends."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        old = await begin(b, node, "a", "", releases=False)
        await b.settles(2)
        new = await begin(b, node, "b", "x")
        await eventually(lambda: old.ended is Ended.EXPELLED)
        with pytest.raises(Expelled):
            await node.register(Consumer(name="a"))
        await eventually(lambda: len(new.owned) == 2)
        again = await begin(b, node, "a", "")
        await eventually(lambda: len(again.owned) == 1)

    staged(story)


def test_a_draining_owner_that_does_not_release_is_not_told_that_it_is_drained() -> None:
    """The end of a drained stream would suggest a complete hand-over."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        new = await begin(b, node, "b", "x", warm_s=2.0)
        await node.deregister("a", incarnation="one")
        await eventually(lambda: old.ended is not None)
        assert old.ended is Ended.EXPELLED
        await asyncio.sleep(32.0)
        assert len(new.owned) == 2

    staged(story)


def test_an_owner_that_reconnects_as_it_is_expelled_is_expelled_by_its_new_session() -> None:
    """The compare of the old session's key fails; the leader's next decision succeeds."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES)
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        new = await begin(b, node, "b", "x")
        await eventually(lambda: old.of(Release))
        await asyncio.sleep(9.9)
        again = await begin(b, node, "a", "one", releases=False)
        await eventually(lambda: again.ended is Ended.EXPELLED)
        await asyncio.sleep(32.0)
        assert len(new.owned) == 2

    staged(story)


def test_without_strict_mode_a_release_that_fails_expels_nobody() -> None:
    """The new owner already works under its own epoch."""

    async def story(b: Bench) -> None:
        node = await b.node({"t": 2}, **TIMES | {"strict": False})
        old = await begin(b, node, "a", "one", releases=False)
        await b.settles(2)
        new = await begin(b, node, "b", "x")
        await eventually(lambda: old.of(Release))
        asked = old.of(Release)[0]
        await node.acks.release_failed(Answer("a", asked.at, incarnation="one"), "no")
        await asyncio.sleep(20.0)
        assert (old.ended, len(new.owned), b.open_handoffs()) == (None, 1, 0)

    staged(story)
