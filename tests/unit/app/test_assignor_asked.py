"""PartitionAssignor's queries: before the first assignment, by producers and by the router."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.exceptions import NotReady
from faust.types import TP

import faust_assigner
from faust_assigner.app import assignor as module
from faust_assigner.app.assignor import PartitionAssignor
from faust_assigner.app.queries.places import partition_of
from faust_assigner.app.rebalance import member
from faust_assigner.app.rebalance.awaited import Awaited
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.runs import Runs
from tests.support.faust_group import make_app
from tests.support.shop import LOG, TOPICS, assignor_of, group


def test_before_its_first_round_a_member_claims_nothing() -> None:
    """Its flags are unset, and it has no generation."""
    app = make_app("http://w")
    assignor = faust_assigner.PartitionAssignor(app)
    assert assignor.replicas == 0
    flags = ("holds", "leaves", "cooperative", "stops_nobody", "is_unheard", "is_uniform")
    assert [name for name in flags if getattr(assignor, name)] == []
    assert (assignor.generation, assignor.decision_id) == (-1, "")
    assert (assignor.awaited.tps, assignor.awaited.follows) == (frozenset(), False)
    assert assignor.last_round is None


def producing(key_partition: Any, of_consumer: Any = None) -> Any:
    """Return an app whose producer and consumer use these partitioners."""
    app = make_app("http://w")
    app.producer = Mock(key_partition=Mock(side_effect=key_partition))
    app._consumer = Mock(key_partition=Mock(side_effect=of_consumer))
    return app


def test_a_key_is_where_the_producer_puts_it() -> None:
    """The result is Faust's TP."""
    found = partition_of(producing(lambda topic, key: (topic, len(key))), "orders", b"abc")
    assert found == TP("orders", 3)
    assert isinstance(found, TP)


@pytest.mark.parametrize("number", [5, 0])
def test_the_consumer_places_a_key_of_a_topic_that_the_producer_has_not_asked_about(
    number: int,
) -> None:
    """aiokafka's producer raises a TypeError for such a topic."""
    app = producing(TypeError, lambda topic, key: number)
    assert partition_of(app, "orders", b"k") == TP("orders", number)


@pytest.mark.parametrize(
    ("of_producer", "of_consumer"),
    [(NotReady, AssertionError), (lambda *_: None, AssertionError), (TypeError, lambda *_: None)],
)
def test_a_key_whose_place_is_not_known_is_a_key_error(of_producer: Any, of_consumer: Any) -> None:
    """The router then answers 503."""
    with pytest.raises(KeyError, match="orders"):
        partition_of(producing(of_producer, of_consumer), "orders", b"k")


# -- answers and rounds that fail in part


def answered(**fields: Any) -> Any:
    """Return a decoder that returns this answer."""
    return lambda user_data: Answer(**{"actives": {}, "standbys": {}, **fields})


@pytest.mark.parametrize("among", [0, 1, 3])
def test_a_second_round_follows_an_answer_that_says_among_how_many(
    monkeypatch: pytest.MonkeyPatch, among: int
) -> None:
    """The second answer names the remaining standbys, and the member waits for them."""
    assignor = assignor_of(group(1))
    awaited = {LOG: Runs.of([1, 2])}
    answering = answered(among=among, awaited=awaited, standbys=awaited)
    for one in (module, member):
        monkeypatch.setattr(one, "decode_answer", answering)
    answer = ConsumerProtocolMemberAssignment(4, [(LOG, [1, 2])], b"")
    assert assignor.is_followed(answer) == (among > 0)
    assignor.on_assignment(answer)
    assert assignor.awaited.follows == (among > 0)
    assert assignor.awaited.tps == {TP(LOG, 1), TP(LOG, 2)}


def test_an_answer_that_cannot_be_read_is_followed_by_no_round() -> None:
    """Else the member would join again at once, for ever."""
    assignor = assignor_of(group(1))
    assert not assignor.is_followed(ConsumerProtocolMemberAssignment(4, [], b"noise"))


def test_a_join_that_cannot_be_encoded_is_one_of_a_new_member(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is counted; an earlier look at the files neither raises nor counts."""
    assignor = assignor_of(group(1))
    monkeypatch.setattr(module, "collect_join_data", Mock(side_effect=ZeroDivisionError))
    assignor.cache_file_offsets(TOPICS)
    assert assignor.counters["metadata_failures"] == 0
    for _ in range(2):
        joins = assignor.metadata(sorted(TOPICS, reverse=True))
        assert (joins.version, joins.subscription) == (4, sorted(TOPICS))
    assert assignor.counters["metadata_failures"] == 2
    assert "joining as a new member" in caplog.text


# -- a whole view, a whole assignment and a whole decision


def test_an_assignment_is_taken_over_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This covers roles, groups, awaited copies and the file; a topic may come in two parts."""
    app = make_app("http://w", tables=["totals"], datadir=str(tmp_path))
    Path(app.conf.appdir).mkdir(parents=True)
    assignor = app.assignor
    assignor.read_to, assignor.is_unheard = {TP(LOG, 1): 5}, True
    answer = answered(
        actives={"orders": Runs.of([0, 3]), LOG: Runs.of([0])},
        standbys={LOG: Runs.of([1, 2])},
        awaited={LOG: Runs.of([2, 4])},
        group_ids={"orders": 7, LOG: 9},
        generation=6,
        is_uniform=True,
        decision_id="d-1",
        url="http://w",
    )
    monkeypatch.setattr(member, "decode_answer", answer)
    assignor.on_assignment(
        ConsumerProtocolMemberAssignment(
            4, [("orders", [0]), (LOG, [0, 1, 2]), ("orders", [3])], b""
        )
    )
    actives = {TP("orders", 0), TP("orders", 3), TP(LOG, 0)}
    assert (assignor.assigned_actives(), assignor.assigned_standbys()) == (
        actives,
        {TP(LOG, 1), TP(LOG, 2)},
    )
    assert assignor.awaited == Awaited(6, frozenset({TP(LOG, 2)}), {"orders": 7, LOG: 9})
    assert (assignor.generation, assignor.is_uniform, assignor.decision_id) == (6, True, "d-1")
    assert (assignor.group_for_topic("orders"), assignor.group_for_topic(LOG)) == (7, 9)
    assert (assignor.read_to, assignor.is_unheard, dict(assignor.counters)) == ({}, False, {})
    former = PartitionAssignor(app)._memory_file.former()
    assert (former.generation, former.offers) == (6, {})
    assert {t: list(n) for t, n in former.actives.items()} == {"orders": [0, 3], LOG: [0]}
    for taken in (assignor.assigned_actives(), assignor.assigned_standbys()):
        taken.clear()
    assert assignor.assigned_actives() == actives, "a caller gets a set of its own"


def test_a_worker_that_stops_remembers_no_further_assignment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a joint stop the worker has these partitions for a moment only."""
    app = make_app("http://w", datadir=str(tmp_path))
    Path(app.conf.appdir).mkdir(parents=True)
    for generation in (6, 7):
        answer = answered(actives={"orders": Runs.of([generation])}, generation=generation)
        monkeypatch.setattr(member, "decode_answer", answer)
        app.assignor.on_assignment(
            ConsumerProtocolMemberAssignment(4, [("orders", [generation])], b"")
        )
        app._stopped.set()
    assert app.assignor.assigned_actives() == {TP("orders", 7)}
    former = PartitionAssignor(app)._memory_file.former()
    assert (former.generation, list(former.actives["orders"])) == (6, [6])


def test_the_rows_of_one_table_are_found_by_worker() -> None:
    """A worker without partitions of the table is listed without any; other tables are left out."""
    assignor = make_app("http://w").assignor
    by_url = {"http://a": {LOG: [0], "other": [1]}, "http://b": {"other": [0]}}
    assignor._memory = Mock(changelog_distribution=by_url)
    assert assignor.table_metadata(LOG) == {"http://a": {LOG: [0]}, "http://b": {}}
    assert assignor.tables_metadata() is by_url


def test_a_member_says_what_it_does_and_what_took_too_long() -> None:
    """Overdue copies are listed by topic; ``joined_with`` lasts until a failed encoding."""
    assignor = assignor_of(group(2))
    assignor.overdue = frozenset({TP(LOG, 3), TP(LOG, 1)})
    assignor.cooperative = True
    assignor.metadata(TOPICS)
    said = assignor.joined_with
    assert said is not None
    assert (said.overdue, said.cooperative, said.holds) == ({LOG: [1, 3]}, True, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "collect_join_data", Mock(side_effect=ZeroDivisionError))
        assignor.metadata(TOPICS)
    assert assignor.joined_with is None


def test_a_member_without_partitions_joins_the_second_round_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second round may give it those that others revoke meanwhile."""
    assignor = make_app("http://w").assignor
    for among in (2, 0):
        monkeypatch.setattr(module, "decode_answer", answered(among=among))
        for parts in ([], None, [("orders", [])]):
            answer = ConsumerProtocolMemberAssignment(4, parts, b"")
            assert assignor.is_followed(answer) is (among > 0)


def test_a_look_at_the_files_is_no_join() -> None:
    """Only the metadata of a join count as claimed, and its subscription is sorted."""
    assignor = assignor_of(group(1))
    before, wanted = assignor.joined_with, list(assignor._wanted)
    assert before is not None
    assignor.cache_file_offsets(["orders", "more"])
    assert assignor.joined_with is before
    assert assignor._wanted == wanted
    new = make_app("http://w").assignor
    new.cache_file_offsets(TOPICS)
    assert (new.joined_with, new._wanted) == (None, [])
    new.metadata(["b", "a"])
    assert (new.joined_with is None, new._wanted) == (False, ["a", "b"])
