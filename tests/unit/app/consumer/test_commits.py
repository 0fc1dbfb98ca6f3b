"""Which offsets a commit may include, and the last commit at a revocation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from faust_assigner.app.consumer import commits
from faust_assigner.app.consumer.commits import notify_and_commit
from faust_assigner.app.rebalance.consumer import RepairedConsumer

SOURCE, OTHER = TP("orders", 0), TP("orders", 1)


class Stock(driver.Consumer):  # type: ignore[misc]
    """Stand in for Faust's consumer: the offset after the last acknowledged record."""

    def _filter_committable_offsets(self, tps: Iterable[Any]) -> dict[Any, int]:
        return {tp: max(self._acked[tp]) + 1 for tp in tps if self._acked[tp]}  # type: ignore[attr-defined]


class Consumer(RepairedConsumer, Stock):  # type: ignore[misc]
    """Record 4 is in progress; records 3 and 5 are acknowledged."""

    def __init__(self) -> None:
        self.app = SimpleNamespace(consumer_generation_id=1)
        self._acked = {SOURCE: [3, 5]}
        self.under_way = SimpleNamespace(tp=SOURCE, offset=4, acked=False, generation_id=1)
        self._unacked_messages = [self.under_way]


def test_what_was_done_beyond_a_record_under_way_is_committed_once_that_is_done() -> None:
    """The filter hides offsets 5 and 6 from the first commit and keeps them for the next."""
    consumer = Consumer()
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 4}
    consumer.under_way.acked = True
    consumer._acked[SOURCE].append(4)
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 6}


def test_a_record_of_the_generation_before_holds_back_no_commit() -> None:
    """The partition's current owner processes the record again."""
    consumer = Consumer()
    consumer.under_way.generation_id = 0
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 6}


def test_the_first_of_several_records_under_way_is_the_bound() -> None:
    """The order of the unacknowledged records does not matter."""
    consumer = Consumer()
    later = SimpleNamespace(tp=SOURCE, offset=6, acked=False, generation_id=1)
    for under_way in ([consumer.under_way, later], [later, consumer.under_way]):
        consumer._unacked_messages = under_way
        assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 4}
        assert sorted(consumer._acked[SOURCE]) == [3, 5]


class Revoking(RepairedConsumer):
    """A consumer that notes each call with the state of the offset books."""

    def __init__(self, *, waits: bool) -> None:
        span = contextlib.nullcontext()
        self.acts: list[Any] = []
        self.app: Any = SimpleNamespace(
            _start_span_from_rebalancing=lambda name: span,
            conf=SimpleNamespace(stream_wait_empty=waits),
        )
        self.diag = SimpleNamespace(set_flag=lambda flag: None, unset_flag=lambda flag: None)
        self._active_partitions, self._paused_partitions = {SOURCE, OTHER}, {SOURCE}
        for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
            setattr(self, book, {SOURCE: 1, OTHER: 2})
        self.first_read = {SOURCE: 1, OTHER: 8}

    async def notify(self, revoked: Any) -> None:
        """Note the call of the app."""
        self.acts.append(("app", set(self._active_partitions), dict(self._acked)))

    async def commit_and_end_transactions(self) -> None:
        """Note the last commit."""
        self.acts.append(("commit", dict(self._acked)))


@pytest.mark.parametrize("waits", [True, False])
async def test_books_are_closed_after_the_final_commit(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """With stream_wait_empty the app makes the last commit, else the consumer does."""
    monkeypatch.setattr(commits, "traced_from_parent_span", lambda span: traced)
    consumer = Revoking(waits=waits)
    await notify_and_commit(consumer, consumer.notify, {SOURCE})
    consumer._forget({SOURCE})
    told = ("app", {OTHER}, {SOURCE: 1, OTHER: 2})
    assert consumer.acts == [told, *([] if waits else [("commit", {SOURCE: 1, OTHER: 2})])]
    assert consumer._paused_partitions == set()
    for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        assert getattr(consumer, book) == {OTHER: 2}
    assert consumer.first_read == {OTHER: 8}


def test_all_partitions_that_go_are_forgotten() -> None:
    """Each book drops the partitions, including partitions it never had."""
    consumer = Revoking(waits=True)
    del consumer._gap[OTHER]  # type: ignore[attr-defined]
    consumer._forget({SOURCE, OTHER, TP("bills", 0)})
    for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        assert getattr(consumer, book) == {}
    assert consumer.first_read == {}


def traced(function: Any, **told: Any) -> Any:
    """Check the partitions and return the function without a span, in place of Faust's helper."""
    assert told == {"partitions": {SOURCE}}
    return function


async def test_the_last_commit_comes_after_one_that_is_under_way() -> None:
    """Else the last commit does nothing, and records acknowledged meanwhile are processed twice."""
    acts: list[str] = []

    class Faust(driver.Consumer):  # type: ignore[misc]
        async def commit_and_end_transactions(self) -> None:
            acts.append("committed")

    class Ending(RepairedConsumer, Faust):  # type: ignore[misc]
        """The repaired consumer over the stand-in."""

        def __init__(self) -> None:
            """Set no attributes."""

        async def maybe_wait_for_commit_to_finish(self) -> bool:
            acts.append("waited")
            return False

    await Ending().commit_and_end_transactions()
    assert acts == ["waited", "committed"]


def test_each_partition_is_bounded_by_its_own_records() -> None:
    """The bound holds for a generator, for a subset, and for a partition without open records."""
    third = TP("bills", 0)

    def made() -> Consumer:
        consumer = Consumer()
        consumer._acked = {SOURCE: [3, 5], OTHER: [7, 9, 8], third: [1]}
        consumer._unacked_messages = [
            consumer.under_way,
            SimpleNamespace(tp=OTHER, offset=9, acked=False, generation_id=1),
            SimpleNamespace(tp=OTHER, offset=2, acked=True, generation_id=1),
        ]
        return consumer

    consumer = made()
    found = consumer._filter_committable_offsets(tp for tp in (SOURCE, OTHER, third))
    assert found == {SOURCE: 4, OTHER: 9, third: 2}
    assert {tp: sorted(acked) for tp, acked in consumer._acked.items()} == {
        SOURCE: [3, 5],
        OTHER: [7, 8],
        third: [1],
    }
    consumer = made()
    assert consumer._filter_committable_offsets([third]) == {third: 2}
    assert consumer._acked == made()._acked


def test_what_was_hidden_comes_back_though_the_commit_fails() -> None:
    """The next commit includes the hidden offsets."""

    class Failing(driver.Consumer):  # type: ignore[misc]
        def _filter_committable_offsets(self, tps: Any) -> dict[Any, int]:
            assert self._acked == {SOURCE: [3]}
            raise RuntimeError("a bug")

    class Committing(RepairedConsumer, Failing):  # type: ignore[misc]
        def __init__(self) -> None:
            vars(self).update(vars(Consumer()))

    consumer: Any = Committing()
    with pytest.raises(RuntimeError):
        consumer._filter_committable_offsets([SOURCE])
    assert consumer._acked == {SOURCE: [3, 5]}


async def test_the_last_commit_is_within_the_span_and_the_state_of_a_revocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tracer shows the app's part and the commit; mode shows the state until both are done."""
    consumer, acts = Revoking(waits=False), list[Any]()

    class Span:
        """A span of the tracer."""

        def __enter__(self) -> None:
            acts.append("span begins")

        def __exit__(self, *_: object) -> None:
            acts.append("span ends")

    span = Span()

    def start(name: str) -> Span:
        acts.append(("start", name))
        return span

    def trace(parent: Any) -> Any:
        assert parent is span

        def wrap(notify: Any, **tags: Any) -> Any:
            acts.append((notify.__name__, tags))
            return notify

        return wrap

    consumer.acts = acts
    consumer.app._start_span_from_rebalancing = start
    consumer.diag.set_flag = lambda flag: acts.append(("set", flag))
    consumer.diag.unset_flag = lambda flag: acts.append(("unset", flag))
    monkeypatch.setattr(commits, "traced_from_parent_span", trace)
    await notify_and_commit(consumer, consumer.notify, {SOURCE})
    books = {SOURCE: 1, OTHER: 2}
    assert acts == [
        ("set", "PARTITIONS_REVOKED"),
        ("start", "on_partitions_revoked"),
        ("notify", {"partitions": {SOURCE}}),
        "span begins",
        ("app", {OTHER}, books),
        ("commit", books),
        "span ends",
        ("unset", "PARTITIONS_REVOKED"),
    ]
