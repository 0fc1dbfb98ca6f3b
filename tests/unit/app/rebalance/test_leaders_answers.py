"""Rounds of whole groups: the causes, group ids, global tables and sizes of the leader's answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.types import TP

from faust_assigner.app.rebalance import answers
from tests.support.faust_group import WireGroup, cluster_of, make_app
from tests.support.shop import LOG, TOPICS, assignor_of, group, said


@pytest.mark.parametrize("follows", [True, False])
def test_the_cause_of_a_round_is_kept_for_its_second_round_alone(follows: bool) -> None:
    """A later round has its own cause."""
    assignor = assignor_of(group(), "m0")
    assert assignor.last_round is not None
    last = assignor.last_round
    assignor.leading.last_round = replace(last, inputs=replace(last.inputs, follows=follows))
    view = assignor.leading._view()
    assert view.first == (assignor.last_round.outcome if follows else None)
    assert view.before is assignor.last_round.inputs
    assert view.record == assignor.last_round.record


def test_the_directory_of_dynamic_members_has_no_instances() -> None:
    """A dynamic member id ends with its process, so a restarted member would not find it."""
    assert assignor_of(group(2))._memory.directory.instances == ()


def test_members_that_share_a_url_keep_their_partitions(caplog: pytest.LogCaptureFixture) -> None:
    """Stock keeps a single member per URL; we merge them, log the URL and count it."""
    found = WireGroup(TOPICS)
    for m in ("m0", "m1"):
        found.add(m, make_app("http://same:6066", tables=["totals"]), found.partitions)
    found.rebalance()
    assert assignor_of(found).tables_metadata() == {"http://same:6066": {LOG: [0, 1, 2, 3, 4, 5]}}
    assert assignor_of(found).counters["duplicate_urls"] == 1
    assert "http://same:6066" in caplog.text


def test_group_ids_stay_when_topics_come(caplog: pytest.LogCaptureFixture) -> None:
    """Transactional ids depend on group ids; a new topic or leader changes none."""
    found = group()
    before = {t: assignor_of(found).group_for_topic(t) for t in TOPICS}
    assert before["orders"] == before[LOG] != before["shop-__assignor-__leader"]
    found.partitions["a-first-one"] = 3
    for m in found.topics:
        found.topics[m].add("a-first-one")
    found.rebalance("m2")
    assert {t: assignor_of(found).group_for_topic(t) for t in TOPICS} == before
    assert assignor_of(found).group_for_topic("a-first-one") not in before.values()


@pytest.mark.parametrize("flags", [{}, {"use_partitioner": True}])
def test_a_global_table_moves_nothing(flags: dict[str, bool]) -> None:
    """Synthetic actives are no claims, so a rebalance without a change moves no partition."""
    found = WireGroup({"orders": 9, "shop-rates-changelog": 9, "shop-names-changelog": 2})
    for i in range(3):
        app = make_app(f"http://w{i}", global_tables={"rates": flags, "names": flags})
        found.add(f"m{i}", app, found.partitions)
    found.rebalance()
    before = found.actives("orders")
    for leader_id in ("m2", "m1", "m0"):
        found.rebalance(leader_id)
        assert found.actives("orders") == before
        assert list(said(found, "m0").actives["shop-rates-changelog"]) == sorted(
            p for p, m in before.items() if m == "m0"
        )


def test_a_global_table_whose_changelog_is_missing_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stock raises KeyError here, and the group hangs."""
    found = WireGroup({"orders": 4})
    app = make_app("http://w", global_tables={"rates": {}})
    found.add("m0", app, ["orders", "shop-rates-changelog"])
    found.rebalance()
    assert len(found.actives("orders")) == 4
    assert app.assignor.counters["missing_topics"] == 1
    assert "shop-rates-changelog" in caplog.text


def test_missing_and_shrunk_topics_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """A missing topic is left out; claims beyond a recreated, smaller topic are cut."""
    found = group()
    found.partitions = {"orders": 3, LOG: 3, "shop-__assignor-__leader": 1}
    for m in found.topics:
        found.topics[m].add("nowhere")
    caplog.clear()
    found.rebalance()
    assert sorted(found.actives("orders")) == [0, 1, 2]
    counters = assignor_of(found).counters
    assert (counters["missing_topics"], counters["shrunk_topics"]) == (1, 2)
    assert "nowhere" in caplog.text
    assert f"{LOG} (" in caplog.text


def test_a_table_the_leader_does_not_know_keeps_its_standbys() -> None:
    """In a rolling deploy the old leader accepts the changelog that the new members report."""
    found = WireGroup({**TOPICS, "shop-new-changelog": 6})
    for i in range(2):
        found.add(f"old{i}", make_app(f"http://old{i}", tables=["totals"]), TOPICS)
    for i in range(2):
        app = make_app(f"http://new{i}", tables=["totals", "new"])
        found.add(f"new{i}", app, found.partitions)
    found.rebalance("old0")
    assert set(found.actives("shop-new-changelog").values()) == {"new0", "new1"}
    assert all(len(m) == 1 for m in found.standbys("shop-new-changelog").values())
    assert assignor_of(found, "old0").counters["unknown_tables"] == 1
    found.rebalance("new0")
    assert assignor_of(found, "new0").counters["unknown_tables"] == 0


def test_one_member_cannot_turn_anothers_source_into_a_changelog() -> None:
    """A topic is a changelog if all its subscribers report it."""
    found = WireGroup(TOPICS)
    found.add("m0", make_app("http://w0", tables=["totals"]), TOPICS)
    liar = make_app("http://w1", tables=["totals"])
    liar.Table("lie", changelog_topic=liar.topic("orders"))
    found.add("m1", liar, TOPICS)
    found.rebalance("m0")
    assert all(not members for members in found.standbys("orders").values())


def test_the_protocol_version_is_the_lowest_members() -> None:
    """An older member can decode its answer."""
    found = group(2)
    metadata = {
        m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in found.join_bytes().items()
    }
    metadata["m1"].version = 3
    assert {
        a.version for a in assignor_of(found).assign(cluster_of(TOPICS), metadata).values()
    } == {3}
    metadata["m1"].version = -9
    assert {
        a.version for a in assignor_of(found).assign(cluster_of(TOPICS), metadata).values()
    } == {0}


def test_the_directory_is_left_out_before_kafka_refuses_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Owners and standbys are still sent; the log reports that requests cannot be routed."""
    found = group(2, faust_assigner_group_record_bytes=500)
    assert len(found.actives("orders")) == 6
    assert assignor_of(found).tables_metadata() == {}
    assert assignor_of(found).counters["directories_left_out"] == 1
    assert "FAUST_ASSIGNER_GROUP_RECORD_BYTES" in caplog.text
    found.rebalance()
    assert sorted(found.actives("orders")) == list(range(6))


@pytest.mark.parametrize(("limit", "is_named"), [(200_000, True), (199_999, False)])
def test_a_group_record_may_have_exactly_as_many_bytes_as_the_setting_says(
    limit: int, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes of all members add up; a further byte removes the directory."""
    monkeypatch.setattr(answers, "record_bytes", lambda *_: 100_000)
    found = group(2, faust_assigner_group_record_bytes=limit)
    assert bool(assignor_of(found).tables_metadata()) is is_named


def urls_of_copies(member: Any) -> list[tuple[str, ...]]:
    """Return the URLs of the copies of each partition of the table."""
    return [tuple(map(str, member.standbys_of(TP(LOG, p)))) for p in range(6)]


def test_copies_are_named_where_the_leader_may_answer_from_them() -> None:
    """To every member alike: whoever is not the owner, of two."""
    found = group(2, faust_assigner_stale_reads_s=5)
    member = assignor_of(found)
    owners = [str(member.owner_of(TP(LOG, p))) for p in range(6)]
    everybody = {str(app.conf.canonical_url) for app in found.apps.values()}
    assert [
        {owner, *copies} for owner, copies in zip(owners, urls_of_copies(member), strict=True)
    ] == [everybody] * 6
    assert urls_of_copies(assignor_of(group(2))) == [()] * 6


@pytest.mark.slow
def test_copies_are_left_out_before_owners_are() -> None:
    """A group whose record would be too large continues without the copies."""
    least = next(
        size
        for size in range(500, 5000, 10)
        if assignor_of(group(2, faust_assigner_group_record_bytes=size)).tables_metadata()
    )
    member = assignor_of(
        group(2, faust_assigner_group_record_bytes=least, faust_assigner_stale_reads_s=5)
    )
    assert member.tables_metadata()
    assert urls_of_copies(member) == [()] * 6
