"""How long a rebalance or a commit may wait, and the log lines about the wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer.waits import (
    COMMIT,
    HAND_OVER,
    Waits,
    agents_s,
    assigning,
    broker_s,
    committing,
    committing_offsets,
    revoking,
    unsent,
    waits_of,
)
from faust_assigner.app.retry import SAY_EVERY_S


def app_with(poll_s: float | None, request_s: float, rebalance_s: float) -> Any:
    """Return an app with these settings."""
    return SimpleNamespace(
        conf=SimpleNamespace(
            broker_max_poll_interval=poll_s,
            broker_request_timeout=request_s,
            broker_rebalance_timeout=rebalance_s,
        )
    )


@pytest.mark.parametrize(("poll_s", "agents"), [(1_000.0, 1_000.0), (30.0, 150.0), (None, 150.0)])
def test_brokers_have_a_request_and_a_rebalance_agents_as_long_as_a_record(
    poll_s: float | None, agents: float
) -> None:
    """The limit for agents is never below the limit for brokers."""
    app = app_with(poll_s, 90.0, 60.0)
    assert (broker_s(app), agents_s(app)) == (150.0, agents)


def test_a_wait_that_has_ended_is_counted_no_more() -> None:
    """Any of several waits may end, by an error as well."""
    waits = Waits()
    first, second = waits.during("first", "a", 10.0), waits.during("second", "b", 100.0)
    first.__enter__()
    second.__enter__()
    assert not first.__exit__(ValueError, ValueError("a bug"), None)
    waits.advance(50.0, group_answers=True)
    assert waits.problem() is None
    assert waits.age_s("first") is None
    assert waits.age_s("second") == 50.0


def test_the_oldest_of_several_waits_is_shown() -> None:
    """The caller selects waits by the beginning of their names."""
    waits = Waits()
    with waits.during(f"{HAND_OVER} of 3 partitions", "a", 100.0):
        waits.advance(5.0, group_answers=True)
        with waits.during(COMMIT, "b", 100.0):
            waits.advance(1.0, group_answers=True)
            assert waits.age_s(HAND_OVER, COMMIT) == 6.0
            assert waits.age_s(COMMIT) == 1.0


def test_a_next_step_has_its_own_description_and_the_same_deadline() -> None:
    """The log and the problem name the current step."""
    waits = Waits()
    with waits.during(COMMIT, "delivery", 10.0, lambda: "3 batches") as wait:
        waits.advance(4.0, group_answers=True)
        wait.move_to_step("the answer", lambda: "of the group")
        (line,) = waits.advance(2.0, group_answers=True)
        assert "has waited for 6 s for the answer (of the group)" in line
        assert waits.problem() is None
        waits.advance(4.0, group_answers=True)
        assert waits.problem() == "The commit has waited for 10 s for the answer"


def test_seconds_of_silence_count_for_the_log_and_not_for_the_deadline() -> None:
    """The next line comes a minute after the last line, whether the group answers or not."""
    waits = Waits()
    with waits.during(COMMIT, "an answer", 10.0):
        assert len(waits.advance(5.0, group_answers=False)) == 1
        assert waits.advance(SAY_EVERY_S - 1.0, group_answers=False) == []
        (line,) = waits.advance(1.0, group_answers=False)
        assert "the group does not answer, so this worker keeps waiting" in line
        assert waits.advance(SAY_EVERY_S - 1.0, group_answers=False) == []
        assert len(waits.advance(1.0, group_answers=False)) == 1
        assert waits.problem() is None


def test_seconds_after_the_worker_has_left_its_group_count_for_the_deadline() -> None:
    """A group does not answer a worker that is no member: it gives the partitions to others."""
    waits = Waits()
    with waits.during(COMMIT, "an answer", 10.0):
        (line,) = waits.advance(6.0, group_answers=False, has_left=True)
        assert line == (
            "The commit has waited for 6 s for an answer; this worker is no member of its group, which "
            "gives its partitions to others; this worker ends when the wait has taken 10 s"
        )
        waits.advance(4.0, group_answers=False, has_left=True)
        assert waits.problem() == "The commit has waited for 10 s for an answer"


def test_undelivered_batches_are_named_of_all_producers() -> None:
    """The list covers threaded and transactional producers, queued and in-flight batches."""

    def producer(waiting: str, sending: str) -> Any:
        batches = [SimpleNamespace(tp=TP(topic, 0)) for topic in (sending, "all")]
        accumulator = SimpleNamespace(_batches={TP(waiting, 0): []}, _pending_batches=batches)
        return SimpleNamespace(_message_accumulator=accumulator)

    faust = SimpleNamespace(
        _producer=producer("a", "b"),
        threaded_producer=SimpleNamespace(_producer=producer("c", "d")),
        _transaction_producers={"id": producer("e", "f")},
    )
    assert unsent(SimpleNamespace(producer=faust)) == "not delivered yet: a, all, b, c, d, e, f"
    assert unsent(SimpleNamespace(producer=SimpleNamespace())) == ""


def test_a_commit_has_the_brokers_time_and_rebalances_the_agents() -> None:
    """A commit has two steps; afterwards no wait remains."""
    app, seen = app_with(1_000.0, 90.0, 60.0), list[tuple[str, str, float]]()
    app.producer = SimpleNamespace()

    def note() -> None:
        seen.extend((w.what, w.step, w.limit_s) for w in waits_of(app).under_way())

    with committing(app):
        note()
        committing_offsets(app)
        note()
    with revoking(app, {TP("a", 1), TP("a", 2)}):
        note()
    with assigning(app, {TP("a", 1), TP("a", 2), TP("a", 3)}):
        note()
    note()
    assert seen == [
        (COMMIT, "the delivery of sent records", 150.0),
        (COMMIT, "changes of tables, and the group's answer", 150.0),
        ("The revocation of 2 partitions", "agents, callbacks and commits", 1_000.0),
        ("The assignment of 3 partitions", "agents, tables and callbacks", 1_000.0),
    ]


def test_the_first_wait_beyond_its_deadline_is_the_problem() -> None:
    """Earlier waits within their deadline and later overdue waits do not matter."""
    waits = Waits()
    with (
        waits.during("first", "a", 100.0) as first,
        waits.during("second", "b", 10.0),
        waits.during("third", "c", 5.0),
    ):
        assert waits.advance(9.0, group_answers=True) != []
        assert waits.problem() == "third has waited for 5 s for c"
        waits.advance(1.0, group_answers=True)
        assert waits.problem() == "second has waited for 10 s for b"
        assert [wait.is_over for wait in waits.under_way()] == [False, True, True]
        assert waits.under_way()[0] is first
    assert (waits.problem(), waits.under_way()) == (None, ())


def test_a_step_is_noted_in_all_waits_of_that_name_alone() -> None:
    """Two threads may wait at once; each wait keeps its own deadline."""
    waits = Waits()
    with (
        waits.during(COMMIT, "a", 10.0) as first,
        waits.during(f"{COMMIT} of another", "b", 10.0) as other,
        waits.during(COMMIT, "c", 20.0, lambda: "detail") as second,
    ):
        waits.advance(3.0, group_answers=True)
        waits.move_to_step(COMMIT, "the answer")
        assert [(w.step, w.limit_s, w.total_s, w.detail()) for w in (first, other, second)] == [
            ("the answer", 10.0, 3.0, ""),
            ("b", 10.0, 3.0, ""),
            ("the answer", 20.0, 3.0, ""),
        ]


def test_the_line_of_a_wait_has_all_that_an_operator_needs() -> None:
    """The line appears from half of the deadline on, to the second."""
    waits = Waits()
    with waits.during("The commit", "the flush", 40.0, lambda: "orders"):
        assert waits.advance(19.5, group_answers=True) == []
        assert waits.advance(0.5, group_answers=True) == [
            "The commit has waited for 20 s for the flush (orders); this worker ends when the "
            "wait has taken 40 s"
        ]
