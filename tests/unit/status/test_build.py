"""The report of a group, built from the answers of its coordinator and workers, without any process."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.status.build import build
from faust_assigner.status.described import EAGER, STOCK, STRANGER, decode_group
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.render import _lag
from faust_assigner.status.report import (
    ANSWERED,
    NOT_ASKED,
    OTHER,
    SILENT,
    MemberReport,
    Partition,
    Report,
)
from faust_assigner.status.words import leader_topic
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.outcome import for_others
from faust_assigner.wire.worker_status import Peer, Standstill, TableStatus
from tests.support.status import LOG, TOPICS, MadeGroup, group

LEADER = leader_topic("shop")


def member(report: Report, name: str) -> MemberReport:
    """Return the member with this name."""
    (found,) = [one for one in report.members if one.name == name]
    return found


def partition(report: Report, topic: str, number: int) -> Partition:
    """Return this partition of the topic."""
    (found,) = [one for one in report.partitions if (one.topic, one.partition) == (topic, number)]
    return found


def heard(made: MadeGroup, name: str, **more: Any) -> dict[str, Heard]:
    """A worker's answer with changed fields, by its URL."""
    return {made.claims[name].url: Heard(answer=ANSWERED, status=made.status_of(name, **more))}


def test_each_partition_is_owned_and_copied_once() -> None:
    """The report has the leader's placement, with members named by their pods."""
    made = group(3)
    report = build(made.evidence())
    assert [one.name for one in report.members] == ["w0", "w1", "w2"]
    for number in range(6):
        found = partition(report, LOG, number)
        owner = partition(report, "orders", number).owner
        assert owner == found.owner
        assert len(found.copies) == 1
        assert found.copies[0].member != owner
    owned = [n for one in report.members for n in one.actives["orders"]]
    copied = [n for one in report.members for n in one.standbys[LOG]]
    assert sorted(owned) == sorted(copied) == list(range(6))
    assert (report.totals.active_partitions, report.totals.standby_partitions) == (12, 6)


def test_lags_are_of_partitions_and_of_members() -> None:
    """Sources are 100 records behind; lags of standbys are those measured by the workers."""
    made = group(3)
    report = build(made.evidence(heard=heard(made, "m1", lag=7)))
    assert partition(report, "orders", 0).lag == 100
    assert partition(report, LOG, 0).lag is None
    one = member(report, "w1")
    assert one.lag == 200
    assert one.standby_lag == 14
    assert member(report, "w2").standby_lag == 0
    assert (report.totals.lag, report.totals.standby_lag) == (600, 14)


def test_a_member_is_as_far_behind_in_time_as_its_oldest_standby() -> None:
    """Of two standbys the older lag counts; warm-ups have a column of their own."""
    made = group(2)
    status = made.status_of("m0")
    ages = (7.0, 3.0, *[0.0] * 10)
    copies = tuple(
        replace(copy, records=3, seconds=age)
        for copy, age in zip(status.copies, ages, strict=False)
    )
    answer = Heard(answer=ANSWERED, status=replace(status, copies=copies))
    report = build(made.evidence(heard={status.url: answer}))
    assert (member(report, "w0").standby_lag_s, member(report, "w1").standby_lag_s) == (7.0, 0.0)


def test_a_silent_workers_copies_are_at_most_as_far_behind_as_when_it_joined() -> None:
    """The worker joined at offset 1,000, and 300 records followed; its partitions come from the group."""
    made = group(3)
    evidence = made.evidence(silent=["m1"])
    evidence = replace(evidence, ends=dict.fromkeys(evidence.ends, 1300))
    report = build(evidence)
    one = member(report, "w1")
    assert (one.answer, one.detail, one.ready) == (SILENT, "it did not answer within 3 s", None)
    assert one.actives["orders"]
    copies = [c for p in report.partitions for c in p.copies if c.member == "w1"]
    assert [(copy.lag, copy.is_measured) for copy in copies] == [(300, False)] * len(copies) != []
    assert report.totals.answered == 2


def test_a_copy_that_is_ahead_of_a_log_made_anew_is_not_behind() -> None:
    """The changelog was deleted and created again after the silent worker had read to 1,000."""
    made = group(3)
    evidence = made.evidence(silent=["m1"])
    report = build(replace(evidence, ends=dict.fromkeys(evidence.ends, 900)))
    copies = [c for p in report.partitions for c in p.copies if c.member == "w1"]
    assert {copy.lag for copy in copies} == {0}


def test_a_lag_that_nobody_can_tell_is_unknown_and_not_zero() -> None:
    """The cases: no committed offset, and an unknown end offset."""
    made = group(2)
    report = build(replace(made.evidence(silent=["m1"]), committed={}, ends={}))
    assert partition(report, "orders", 0).lag is None
    assert {member(report, name).lag for name in ("w0", "w1")} == {None}
    assert member(report, "w1").standby_lag is None


def test_the_leader_topic_hides_no_unknown_lag() -> None:
    """Before the first commits the topic is the only partition whose end, 0, is processed."""
    made = group(2, topics={**TOPICS, LEADER: 1})
    evidence = made.evidence()
    ends = {place: 0 if place[0] == LEADER else end for place, end in evidence.ends.items()}
    report = build(replace(evidence, committed={}, ends=ends))
    assert {member(report, name).lag for name in ("w0", "w1")} == {None}
    assert partition(report, LEADER, 0).lag is None
    assert _lag(report) == "lag not known"
    known = {("orders", number): 1000 for number in range(6)}
    assert _lag(build(replace(evidence, committed=known, ends=ends))) == "lag 0 records"


def test_an_empty_partition_has_no_lag_before_its_first_commit() -> None:
    """An empty partition has no lag; with a record, the committed offset is needed."""
    for end, lag in ((0, 0), (1, None)):
        report = build(replace(group(2, end=end).evidence(), committed={}))
        assert partition(report, "orders", 0).lag == lag
        assert member(report, "w0").lag == lag
    ahead = build(replace(group(2, end=0).evidence(), committed={("orders", 0): 5}))
    assert partition(ahead, "orders", 0).lag == 0


def test_the_last_decision_is_told_by_the_leaders_own_answer() -> None:
    """The report has the joined members, and marks the leader."""
    made = group(2)
    made.join("m2").round()
    report = build(made.evidence())
    assert report.decision is not None
    assert (report.decision.trigger, report.decision.generation) == ("join", 3)
    assert report.decision.leader == "w0"
    assert report.decision.joined == ("http://w2:6066",)
    assert [one.name for one in report.members if one.is_leader] == ["w0"]


def test_the_decision_outlives_its_leader() -> None:
    """The leader left and is silent; the remaining members have the trigger and the counts."""
    made = group(3)
    made.join("m3").round()
    entity = made.entity()
    entity.members = [one for one in entity.members if one.member_id != "m0"]
    report = build(made.evidence(group=decode_group(entity), silent=["m0"]))
    assert report.decision is not None
    assert (report.decision.trigger, report.decision.leader) == ("join", None)
    assert (report.decision.members, report.decision.tasks) == (4, 6)


def test_of_two_decisions_the_newer_counts() -> None:
    """A member that missed the last round still returns the previous decision."""
    made = group(2)
    former = made.answers["m1"]
    made.round()
    made.answers["m1"] = former
    report = build(made.evidence(silent=["m1"]))
    assert report.decision is not None
    assert report.decision.generation == 3


def rebalancing(made: MadeGroup, **options: Any) -> Evidence:
    """Evidence during a rebalance: the coordinator returns only the members' ids."""
    made.state = "PreparingRebalance"
    return made.evidence(**options)


def test_during_a_rebalance_the_workers_say_what_the_group_does_not() -> None:
    """Partitions, copies, lags, the last decision and the leader come from the workers."""
    made = group(3)
    settled = build(made.evidence())
    report = build(rebalancing(made))
    assert not report.is_settled
    for one, before in zip(report.members, settled.members, strict=True):
        assert (one.name, one.actives, one.standbys) == (
            before.name,
            before.actives,
            before.standbys,
        )
    assert report.decision == settled.decision
    assert report.totals.lag == settled.totals.lag


@pytest.mark.parametrize("by", ["instance id", "host", "what is left"])
def test_during_a_rebalance_a_silent_member_is_found_among_its_peers(by: str) -> None:
    """The member is found by instance id, by host, or as the last candidate."""
    made = group(3)
    url = made.claims["m1"].url
    if by == "instance id":
        made.offers["m1"] = made.offers["m2"] = {}
        made.offers["m1"] = {"instance_id": "shop-1"}
        made.offers["m2"] = {"instance_id": "shop-2"}
    instances = {name: made.offers[name].get("instance_id") for name in made.claims}
    urls = {name: data.url for name, data in made.claims.items()}
    if by == "host":
        urls |= {"m1": "http://10.0.0.1:6066", "m2": "http://10.0.0.2:6066"}
    silent = ["m1"] if by == "what is left" else ["m1", "m2"]
    peers = [
        Peer(
            url=urls[name],
            instance_id=instances[name],
            actives={"orders": tuple(made.answer_of(name).actives["orders"])},
        )
        for name in made.claims
    ]
    evidence = rebalancing(made, silent=[], peers=peers)
    quiet = {urls[name]: Heard(answer=SILENT, detail="no answer") for name in silent}
    answers = {
        u: one for u, one in evidence.heard.items() if u not in {made.claims[n].url for n in silent}
    }
    report = build(replace(evidence, heard=answers | quiet))
    (one,) = [one for one in report.members if one.member_id == "m1"]
    assert one.url == urls["m1"] == (url if by != "host" else "http://10.0.0.1:6066")
    assert one.answer == SILENT
    assert one.actives["orders"] == peers[1].actives["orders"]


def test_a_member_without_a_url_is_not_asked_and_that_is_said() -> None:
    """The problem suggests --worker if a rebalance hides all URLs."""
    made = group(2)
    report = build(replace(rebalancing(made), heard={}))
    assert {one.answer for one in report.members} == {NOT_ASKED}
    assert "Name a worker with --worker" in report.problems[0]


def test_a_peer_that_was_not_asked_has_no_row_of_its_own() -> None:
    """The peer was in the last round and may have left."""
    evidence = rebalancing(group(3))
    gone = Peer(url="http://gone:6066")
    report = build(replace(evidence, peers=(*evidence.peers, gone)))
    assert [one.name for one in report.members] == ["w0", "w1", "w2"]


def test_two_members_with_one_url_are_told_apart() -> None:
    """One member answers at the URL; the second member's detail names the first."""
    made = group(3)
    made.claims["m2"] = replace(made.claims["m2"], url=made.claims["m1"].url)
    made.round()
    report = build(made.evidence(heard=heard(made, "m1")))
    found = {one.member_id: one for one in report.members}
    assert found["m1"].answer == ANSWERED
    assert found["m2"].answer == OTHER
    assert "is served by the member m1" in found["m2"].detail


def test_a_page_of_another_app_is_no_answer() -> None:
    """The port now belongs to a worker of a different group."""
    made = group(2)
    report = build(made.evidence(heard=heard(made, "m1", app="bank", member_id="b1")))
    (one,) = [one for one in report.members if one.member_id == "m1"]
    assert (one.answer, one.ready) == (OTHER, None)
    assert "serves a different app, bank" in one.detail


def test_kinds_of_members_are_told_apart() -> None:
    """The kinds: ours with cooperative rounds, ours without, stock Faust, and no Faust worker."""
    made = group(2)
    made.offers["m1"] = {"cooperative": False}
    made.round()
    entity = made.entity()
    for name, metadata in (("stock", STOCK_METADATA), ("alien", b"\xff\x00")):
        entity.members.append(
            SimpleNamespace(
                member_id=name,
                client_id="c",
                client_host="/10.1.1.1",
                member_metadata=metadata,
                member_assignment=b"",
            )
        )
    report = build(made.evidence(group=decode_group(entity)))
    kinds = {one.member_id: one.kind for one in report.members}
    assert kinds == {"m0": "cooperative", "m1": EAGER, "stock": STOCK, "alien": STRANGER}
    assert any("alien: its metadata is unreadable" in problem for problem in report.problems)


def _stock() -> bytes:
    from tests.support.faust_group import StockAssignor, make_app

    app = make_app("http://stock", assignor=StockAssignor, tables=("totals",))
    raw: bytes = app.assignor.metadata({"orders"}).encode()
    return raw


STOCK_METADATA = _stock()


def test_a_global_table_is_nobodys_standby() -> None:
    """Every member follows a global table; only the writer of a partition owns it."""
    rates = "shop-rates-changelog"
    made = group(2, topics={"orders": 4, LOG: 4, rates: 4}, global_changelogs=(rates,))
    report = build(made.evidence())
    for one in report.members:
        assert rates not in one.standbys
    owned = [n for one in report.members for n in one.actives.get(rates, ())]
    assert sorted(owned) == list(range(4))


@pytest.mark.parametrize(
    ("field", "value", "name", "shown"),
    [
        ("software", "9.9.9", "faust-assigner", "9.9.9"),
        ("faust", "9.9.9", "faust-streaming", "9.9.9"),
        ("aiokafka", "9.9.9", "aiokafka", "9.9.9"),
        ("python", "9.9.9", "Python", "9.9"),
        ("app_version", "9.9.9", "the app", "9.9.9"),
    ],
)
def test_each_version_that_differs_has_its_name(
    field: str, value: str, name: str, shown: str
) -> None:
    """A patch release of Python makes no difference."""
    made = group(2)
    report = build(made.evidence(heard=heard(made, "m1", **{field: value})))
    (found,) = report.differences
    assert found.name == f"version of {name}"
    assert dict(found.values)[shown] == ("w1",)


def test_settings_and_versions_that_differ_are_named() -> None:
    """The report lists the workers of each value; settings that always differ are left out."""
    made = group(3)
    odd = made.status_of("m2").settings | {
        "FAUST_ASSIGNER_STALE_READS_S": "5",
        "FAUST_ASSIGNER_RACK": "b",
    }
    report = build(made.evidence(heard=heard(made, "m2", settings=odd, software="0.2.0")))
    differences = {one.name: dict(one.values) for one in report.differences}
    assert differences == {
        "FAUST_ASSIGNER_STALE_READS_S": {"0": ("w0", "w1"), "5": ("w2",)},
        "version of faust-assigner": {"0.1.0": ("w0", "w1"), "0.2.0": ("w2",)},
    }
    assert member(report, "w2").settings == {
        "FAUST_ASSIGNER_STALE_READS_S": "5",
        "version of faust-assigner": "0.2.0",
    }
    assert member(report, "w0").settings == {}


def test_a_members_offer_is_in_the_group_and_needs_no_answer() -> None:
    """The metadata has the rack, the capacity, the instance id and the version."""
    made = group(2)
    made.offers["m1"] = {"rack_id": "az-b", "capacity": 2.0, "instance_id": "shop-1"}
    made.round()
    one = member(build(made.evidence(silent=["m1"])), "shop-1")
    assert (one.rack, one.capacity, one.instance_id, one.version) == (
        "az-b",
        2.0,
        "shop-1",
        "0.1.0",
    )
    assert one.address == "10.0.0.1"


def test_a_name_does_not_reach_the_terminal_as_a_command_to_it() -> None:
    """Brokers accept any instance id: an escape sequence could clear the reader's screen."""
    made = group(2)
    made.offers["m1"] = {"instance_id": "shop\x1b[2J"}
    shown = [one for one in made.described().members if one.instance_id]
    assert [one.instance_id for one in shown] == ["shop?[2J"]
    assert all(one.problem.isprintable() for one in shown)


def test_names_are_unique() -> None:
    """Workers on the same host are named by their URLs, and without URLs by their ids."""
    made = group(3)
    same = {url: one for n in made.claims for url, one in heard(made, n, host="box").items()}
    names = [one.name for one in build(made.evidence(heard=same)).members]
    assert names == ["w0", "w1", "w2"], "the host that a worker tells is not its name"
    box = MadeGroup().join("m0", "m1")
    for port, name in enumerate(box.claims, 6066):
        box.claims[name] = replace(box.claims[name], url=f"http://box:{port}")
    names = [one.name for one in build(box.round().evidence()).members]
    assert names == ["box:6066", "box:6067"]
    nobody = build(replace(rebalancing(made), heard={}))
    assert [one.name for one in nobody.members] == ["m0", "m1", "m2"]


def test_a_partition_that_stands_still_is_marked_with_its_reason() -> None:
    """The reason is the owner's."""
    made = group(2)
    (number, *_) = made.answer_of("m0").actives["orders"]
    still = Standstill(topic="orders", partition=number, reason="unreadable", seconds=75.0)
    report = build(made.evidence(heard=heard(made, "m0", standing=(still,))))
    found = partition(report, "orders", number).standing
    assert found is not None
    assert (found.reason, found.seconds) == ("unreadable", 75.0)
    assert report.totals.standing_partitions == 1


def test_rounds_are_cooperative_by_the_groups_protocol_and_else_by_what_workers_offer() -> None:
    """One eager worker makes the rounds eager; without any answer they are unknown."""
    made = group(2)
    assert build(made.evidence()).rounds == "cooperative"
    assert build(rebalancing(made)).rounds == "cooperative"
    eager = rebalancing(made, heard=heard(made, "m1", is_cooperative=False))
    assert build(eager).rounds == "eager"
    assert build(replace(eager, heard={})).rounds == "unknown"


def test_an_empty_group_has_a_report() -> None:
    """All workers are down, but the offsets exist."""
    made = group(2)
    evidence = made.evidence(heard={})
    evidence = replace(evidence, group=replace(evidence.group, state="Empty", members=()), heard={})
    report = build(evidence)
    assert (report.members, report.totals.members) == ((), 0)
    assert partition(report, "orders", 0).owner is None
    assert report.decision is None


def test_an_answer_of_a_version_that_tells_no_outcome_leaves_the_decision_unknown() -> None:
    """A leader of an older release sends no outcome."""
    made = group(2)
    evidence = made.evidence()
    members = tuple(
        replace(one, given=replace(one.given, outcome=None)) if one.given else one
        for one in evidence.group.members
    )
    mute = {
        url: replace(one, status=replace(one.status, outcome=None)) if one.status else one
        for url, one in evidence.heard.items()
    }
    found = build(replace(evidence, group=replace(evidence.group, members=members), heard=mute))
    assert found.decision is None


def test_for_others_says_less_than_the_leader_knows() -> None:
    """The leader's own answer has priority at any position."""
    made = group(3)
    made.join("m3").round(leader="m2")
    report = build(made.evidence())
    assert report.decision is not None
    assert (report.decision.leader, report.decision.joined) == ("w2", ("http://w3:6066",))
    told = made.answer_of("m0").outcome
    assert told is not None
    assert told == for_others(told)


def test_tables_of_workers_are_changelogs_during_a_rebalance() -> None:
    """Changelogs may have any name."""
    made = group(2)
    table = TableStatus(name="x", changelog="odd-name", store="rocksdb")
    answer = heard(made, "m0", tables=(table,), actives={"odd-name": (0,), "orders": (0,)})
    report = build(rebalancing(made, heard=answer))
    assert partition(report, "odd-name", 0).is_changelog
    assert not partition(report, "orders", 0).is_changelog


def test_a_silent_worker_that_may_be_either_of_two_members_has_a_row_of_its_own() -> None:
    """The group lists a new and a frozen member without URLs, and the peers one URL."""
    made = group(2)
    frozen = Peer(url="http://w9:6066", actives={"orders": (5,)})
    made.metadata |= {"new-1": b"", "new-2": b""}
    made.offers |= {"new-1": {}, "new-2": {}}
    quiet = {frozen.url: Heard(answer=SILENT, detail="no answer")}
    report = build(rebalancing(made, peers=(frozen,), heard=quiet))
    one = member(report, "w9")
    assert (one.member_id, one.answer, one.actives) == ("", SILENT, {"orders": (5,)})
    assert report.totals.members == 4
    assert len(report.members) == 5
    assert "w9 (does not answer)" in report.waits[0].text
    assert any(problem.startswith("w9 was in the last round") for problem in report.problems)


def test_an_empty_group_is_not_in_a_rebalance() -> None:
    """Its report has no problem, as no assignment is hidden."""
    made = group(2)
    evidence = made.evidence(heard={})
    evidence = replace(evidence, group=replace(evidence.group, state="Empty", members=()), heard={})
    assert build(evidence).problems == ()


@pytest.mark.parametrize("capacity", ["nan", "inf", "much"])
def test_a_capacity_that_is_no_finite_number_is_unknown(capacity: str) -> None:
    """JSON has neither NaN nor Infinity, and the worker's text may be anything."""
    made = group(1)
    answer = heard(made, "m0", settings={"FAUST_ASSIGNER_CAPACITY": capacity})
    (member,) = build(rebalancing(made, heard=answer)).members
    assert member.capacity is None


def test_a_topic_without_a_name_is_left_out() -> None:
    """Kafka accepts any bytes as metadata, and its format allows a null in a list of names."""
    made = group(2)
    said = ConsumerProtocolMemberMetadata.decode(made.metadata["m1"])
    made.metadata["m1"] = ConsumerProtocolMemberMetadata(
        0, [*said.subscription, None], said.user_data
    ).encode()
    evidence = made.evidence()
    assert evidence.group.members[1].topics == frozenset(made.topics)
    assert evidence.group.members[1].problem == ""
    assert build(evidence).problems == ()


@pytest.mark.parametrize("claims", ["promised", "awaited", "writes"])
def test_an_assignment_of_millions_of_partitions_is_refused(claims: str) -> None:
    """A few bytes can claim a run of millions of partitions, and any leader can send them."""
    made = group(2)
    writer = AnswerWriter(Directory(), {"orders": 0}, generation=3, is_uniform=True, among=2)
    held = {"orders": range(1)}
    for count, problem in ((200_000, ""), (2**31 - 1, "2147483647 partitions")):
        claimed: Any = {claims: {"orders": range(count - 2)}}
        answer = writer.for_ours(held, held, "http://w1:6066", **claimed)
        made.answers["m1"] = ConsumerProtocolMemberAssignment(0, [], answer).encode()
        described = made.described().members[1]
        assert problem in described.problem
        assert bool(described.problem) == (described.given is None) == bool(problem)
