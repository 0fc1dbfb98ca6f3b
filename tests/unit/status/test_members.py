"""The members of a group: each rule about addresses, answers, kinds and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.status import members as members_module
from faust_assigner.status.build import build, changelogs_of
from faust_assigner.status.described import (
    COOPERATIVE,
    EAGER,
    STRANGER,
    UNKNOWN,
    DescribedGroup,
    DescribedMember,
    decode_group,
)
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.members import View, _give_unique_names, _guess_urls, views_of
from faust_assigner.status.report import ANSWERED, OTHER, SILENT
from faust_assigner.status.waiting import _largest_setting, waits_of
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.worker_status import Peer, TableStatus, WorkerStatus
from tests.support.status import LOG, MadeGroup, group
from tests.unit.status.test_build import heard, member, partition, rebalancing

QUIET = Heard(answer=SILENT, detail="no answer")


def described(member_id: str, **more: Any) -> DescribedMember:
    """A member without metadata, as the coordinator shows it during a rebalance."""
    return DescribedMember(**{"member_id": member_id, "client_id": "c", "address": "a", **more})


def status(**more: Any) -> WorkerStatus:
    """A worker's answer."""
    return WorkerStatus(**{"app": "shop", "member_id": "m", "host": "pod", **more})


def view(found: DescribedMember | None = None, **more: Any) -> View:
    """The view of a silent member."""
    return View(**{"member": found or described("m"), "heard": QUIET, **more})


def test_the_kind_of_a_hidden_member_is_its_own_word() -> None:
    """The coordinator's data has priority over the worker's answer."""
    for is_cooperative, kind in ((True, COOPERATIVE), (False, EAGER)):
        answer = Heard(answer=ANSWERED, status=status(is_cooperative=is_cooperative))
        assert view(heard=answer).kind == kind
        shown = described("m", said=JoinData(cooperative=not is_cooperative))
        assert view(shown, heard=answer).kind != kind
    assert view().kind == UNKNOWN
    assert view(described("m", problem="unreadable")).kind == STRANGER


def test_a_silent_static_member_has_the_instance_id_of_its_peer() -> None:
    """The coordinator's value has priority."""
    peer = Peer(url="http://x", instance_id="shop-1", actives={"orders": (1,)})
    assert view(peer=peer).instance_id == "shop-1"
    assert view(described("m", instance_id="shop-2"), peer=peer).instance_id == "shop-2"
    assert view(peer=peer).actives == {"orders": (1,)}
    assert (view().instance_id, view().actives) == (None, {})


def test_a_workers_copies_of_global_tables_are_no_standbys() -> None:
    """Every member has these copies. Warm-ups are listed separately."""
    answer = Heard(
        answer=ANSWERED,
        status=status(
            actives={"orders": (0,), "rates": (0,)},
            standbys={"log": (1, 2), "rates": (0, 1)},
            awaited={"log": (2,)},
            global_changelogs=("rates",),
        ),
    )
    found = view(heard=answer)
    assert found.actives == {"orders": (0,)}
    assert found.standbys == {"log": (1,)}
    assert found.warmups == {"log": (2,)}


def test_an_advertised_url_goes_before_the_url_of_an_answer() -> None:
    """A worker that answers at two addresses is named by its advertised URL."""
    made = group(2)
    evidence = made.evidence()
    alias = {"http://alias:1": evidence.heard[made.claims["m1"].url]}
    found = {one.member.member_id: one for one in views_of(replace(evidence, heard=alias))}
    assert found["m1"].url == "http://w1:6066"
    assert found["m1"].does_answer


def test_a_settled_group_guesses_no_url() -> None:
    """Members of a settled group advertise their URLs, or have none."""
    silent = described("m9")
    base = DescribedGroup(group_id="shop", state="Stable", members=(silent,))
    peers = (Peer(url="http://w9"),)
    assert views_of(Evidence(group=base, peers=peers))[0].url == ""
    moving = replace(base, state="PreparingRebalance")
    assert views_of(Evidence(group=moving, peers=peers))[0].url == "http://w9"


def guessed(
    members: Mapping[str, tuple[str | None, str]], *peers: tuple[str, str | None]
) -> dict[str, str]:
    """Map member ids to guessed URLs, from members' instance ids and addresses and from peers."""
    found = [described(m, instance_id=i, address=a) for m, (i, a) in members.items()]
    evidence = Evidence(
        group=DescribedGroup(group_id="shop", state="x"),
        peers=[Peer(url=url, instance_id=i) for url, i in peers],
    )
    return _guess_urls(found, dict.fromkeys(members, ""), evidence)


def test_an_instance_id_goes_before_a_host() -> None:
    """Two static members have swapped their hosts."""
    members = {"x": ("shop-1", "h2"), "y": ("shop-2", "h1")}
    found = guessed(members, ("http://h1:1", "shop-1"), ("http://h2:1", "shop-2"))
    assert found == {"x": "http://h1:1", "y": "http://h2:1"}


def test_two_members_without_an_instance_id_are_not_alike() -> None:
    """Members that no rule distinguishes get no URL, and each URL is assigned once."""
    both = {"x": (None, "a"), "y": (None, "a")}
    assert guessed(both, ("http://h1:1", None)) == {"x": "", "y": ""}
    assert guessed(both, ("http://h1:1", None), ("http://h2:1", None)) == {"x": "", "y": ""}
    apart = {"x": (None, "h1"), "y": (None, "b")}
    assert guessed(apart, ("http://h1:1", None), ("http://h2:1", None)) == {
        "x": "http://h1:1",
        "y": "http://h2:1",
    }


def test_the_cost_of_guesses_grows_with_the_members_and_not_with_their_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousand silent members are named within a second, with few reads of each URL."""
    read: list[str] = []
    monkeypatch.setattr(members_module, "host_of", lambda url: read.append(url) or url[7:])
    hosts = [f"10.0.0.{n}" for n in range(50)]
    found = guessed(
        {host: (None, host) for host in hosts}, *((f"http://{host}", None) for host in hosts)
    )
    assert found == {host: f"http://{host}" for host in hosts}
    assert len(read) <= 2 * len(hosts)


def test_a_peer_that_answers_elsewhere_has_no_row_of_its_own() -> None:
    """Only silent peers without a member are listed, and none in a settled group."""
    made = group(2)
    peer = Peer(url="http://w9:6066")
    answer = {peer.url: Heard(answer=ANSWERED, status=made.status_of("m1"))}
    moving = build(rebalancing(made, peers=(peer,), heard=answer))
    assert [one.member_id for one in moving.members] == ["m0", "m1"]
    made.state = "Stable"
    quiet = made.evidence(peers=(peer,), heard={peer.url: QUIET})
    assert len(build(quiet).members) == 2


def test_a_worker_that_has_just_begun_to_rejoin_has_answered() -> None:
    """The worker has no member id for a moment; a worker of a different app still counts as such."""
    made = group(2)
    report = build(made.evidence(heard=heard(made, "m1", member_id="")))
    assert member(report, "w1").answer == ANSWERED
    other = build(made.evidence(heard=heard(made, "m1", member_id="", app="bank")))
    assert member(other, "w1").answer == OTHER


def test_a_name_is_given_once() -> None:
    """If an instance id equals a second member's host, the static member gets the name."""
    static = view(described("a", instance_id="box"), url="http://h1:1")
    plain = view(described("b"), url="http://box:2")
    assert {one.name for one in _give_unique_names([plain, static])} == {"box", "box:2"}
    named = {one.member.member_id: one.name for one in _give_unique_names([plain, static])}
    assert named == {"a": "box", "b": "box:2"}
    twins = [view(described(m), url="http://box:2/") for m in "cd"]
    assert sorted(one.name for one in _give_unique_names(twins)) == ["c", "d"]


# -- the report


def test_the_topics_of_a_hidden_group_are_seen_in_the_workers_answers() -> None:
    """A stock member's changelogs are recognized by Faust's names, for this app only."""
    for name, is_changelog in (("shop-x-changelog", True), ("bank-x-changelog", False)):
        for more in ({"actives": {name: (0,)}}, {"standbys": {name: (0,)}}):
            answer = {"http://a": Heard(answer=ANSWERED, status=status(**more))}
            evidence = Evidence(
                group=DescribedGroup(group_id="shop", state="x", members=(described("m"),)),
                heard=answer,
            )
            assert (name in changelogs_of(evidence, views_of(evidence))) is is_changelog
    stock = described("m", topics=frozenset({"shop-y-changelog", "shop-y"}))
    evidence = Evidence(group=DescribedGroup(group_id="shop", state="x", members=(stock,)))
    assert changelogs_of(evidence, views_of(evidence)) == {"shop-y-changelog"}


def test_the_tables_of_a_described_member_are_those_of_its_metadata() -> None:
    """A newer worker may report different tables, but the group plans with the metadata."""
    made = group(2)
    table = TableStatus(name="x", changelog="odd-name", store="rocksdb")
    evidence = made.evidence(heard=heard(made, "m0", tables=(table,)))
    assert changelogs_of(evidence, views_of(evidence)) == {LOG}


def test_an_eager_protocol_makes_eager_rounds() -> None:
    """The protocol counts, not the workers' offers for the next round."""
    made = group(2)
    evidence = made.evidence()
    eager = replace(evidence, group=replace(evidence.group, protocol="faust"))
    assert build(eager).rounds == "eager"


def test_only_source_partitions_have_a_lag_of_commits() -> None:
    """The committed offset of a changelog belongs to a different reader."""
    made = group(2)
    evidence = made.evidence()
    committed = {**evidence.committed, (LOG, 0): 900}
    report = build(replace(evidence, committed=committed))
    assert partition(report, LOG, 0).lag is None
    assert partition(report, LOG, 0).committed == 900
    assert report.totals.lag == 600


def test_a_partition_without_an_owner_is_shown_with_its_lag() -> None:
    """The partition has a committed offset but no owner."""
    made = group(2)
    evidence = made.evidence()
    lost = replace(evidence, committed={**evidence.committed, ("gone", 3): 10})
    found = partition(build(replace(lost, ends={**lost.ends, ("gone", 3): 25})), "gone", 3)
    assert (found.owner, found.lag) == (None, 15)


def test_the_settings_of_most_workers_are_the_usual_settings() -> None:
    """The rarest value is unusual even if it sorts last; a worker's own settings are left out."""
    made = group(3)
    plain = made.status_of("m0").settings
    common = {**plain, "FAUST_ASSIGNER_STALE_READS_S": "1", "FAUST_ASSIGNER_RACK": "a"}
    odd = {**plain, "FAUST_ASSIGNER_STALE_READS_S": "9", "FAUST_ASSIGNER_RACK": "b"}
    told = {
        url: one
        for name, settings in (("m0", common), ("m1", common), ("m2", odd))
        for url, one in heard(made, name, settings=settings).items()
    }
    report = build(made.evidence(heard=told))
    assert [one.name for one in report.differences] == ["FAUST_ASSIGNER_STALE_READS_S"]
    assert member(report, "w0").settings == {}
    assert member(report, "w2").settings == {"FAUST_ASSIGNER_STALE_READS_S": "9"}


def test_a_decision_without_a_time_has_none() -> None:
    """A worker that answered in a later generation has the newer decision."""
    made = group(2)
    evidence = made.evidence()
    outcome = made.status_of("m1").outcome
    assert outcome is not None
    newer = heard(made, "m1", generation=9, outcome=replace(outcome, decided_at=0, leads=False))
    report = build(replace(evidence, heard={**evidence.heard, **newer}))
    assert report.decision is not None
    assert (report.decision.generation, report.decision.at) == (9, None)
    assert report.decision.leader is None
    assert member(report, "w1").generation == 9
    assert member(report, "w0").generation == 2


def test_a_worker_before_its_first_round_has_no_generation() -> None:
    """Its status has the generation -1."""
    made = group(2)
    report = build(rebalancing(made, heard=heard(made, "m1", generation=-1)))
    assert member(report, "w1").generation is None


def test_a_worker_is_ready_only_if_it_is_live() -> None:
    """A reason against being live or against being ready is enough."""
    made = group(3)
    odd = heard(made, "m0", not_live=("it hangs",)) | heard(made, "m1", not_ready=("restores",))
    report = build(made.evidence(heard=odd))
    assert [one.ready for one in report.members] == [False, False, True]
    assert report.totals.ready == 1


def test_a_silent_member_leaves_if_its_metadata_says_so() -> None:
    """The worker's own answer has priority."""
    made = group(2)
    made.offers["m1"] = {"leaves": True}
    made.round()
    assert member(build(made.evidence(silent=["m1"])), "w1").is_leaving
    assert not member(build(made.evidence()), "w1").is_leaving


def test_warm_ups_count_apart_from_standbys() -> None:
    """The lags of standbys, in records and in seconds, exclude warm-ups."""
    made = group(2)
    evidence = made.evidence(heard=heard(made, "m0", lag=7))
    status_ = evidence.heard[made.claims["m0"].url].status
    assert status_ is not None
    first = status_.standbys[LOG][0]
    copies = tuple(
        replace(copy, seconds=90.0 if copy.partition == first else 5.0) for copy in status_.copies
    )
    told = heard(made, "m0", lag=7, awaited={LOG: (first,)}, copies=copies)
    report = build(rebalancing(made, heard=told, silent=["m1"]))
    one = member(report, "w0")
    assert (one.warmup_lag, one.standby_lag) == (7, 7 * (len(status_.standbys[LOG]) - 1))
    assert one.standby_lag_s == 5.0
    assert report.totals.standby_lag == one.standby_lag
    assert report.totals.warmup_partitions == 1


def test_a_group_in_which_some_worker_answers_needs_no_other_address() -> None:
    """The problem suggests --worker only if no worker answers."""
    made = group(2)
    assert not any("--worker" in one for one in build(rebalancing(made, silent=["m1"])).problems)


def test_the_version_of_a_stock_member_is_unknown() -> None:
    """Its metadata has no version of this package."""
    stock = described("m", said=JoinData(version=0, software="9.9.9"))
    evidence = Evidence(group=DescribedGroup(group_id="shop", state="Stable", members=(stock,)))
    (one,) = build(evidence).members
    assert (one.version, one.capacity, one.rack) == ("", None, None)


def test_the_capacity_and_the_rack_of_a_hidden_member_are_its_settings() -> None:
    """A capacity without a valid number is unknown."""
    made = group(2)
    told = heard(
        made, "m0", settings={"FAUST_ASSIGNER_CAPACITY": "2.5", "FAUST_ASSIGNER_RACK": "a"}
    )
    told |= heard(made, "m1", settings={"FAUST_ASSIGNER_CAPACITY": "?", "FAUST_ASSIGNER_RACK": ""})
    report = build(rebalancing(made, heard=told))
    assert [(one.capacity, one.rack) for one in report.members] == [(2.5, "a"), (None, None)]


# -- waits


def answering(**settings: str) -> View:
    """A worker with these settings."""
    return view(heard=Heard(answer=ANSWERED, status=status(settings=settings)))


def test_the_largest_known_limit_counts() -> None:
    """A missing or invalid setting is ignored; 0 means no limit."""
    views = [answering(t="10"), answering(t="30"), answering(t="x"), answering(), view()]
    assert _largest_setting(views, "t") == 30.0
    assert _largest_setting([answering(t="0"), view()], "t") is None


def test_an_empty_group_waits_for_nobody() -> None:
    """The group is not stable, but no rebalance is in progress."""
    assert waits_of(DescribedGroup(group_id="shop", state="Empty"), (), {}) == ()


def test_a_round_has_lasted_as_long_as_its_oldest_part() -> None:
    """A worker that began later reports a shorter time."""
    made = group(2)
    made.state = "CompletingRebalance"
    told = heard(made, "m0", round_age_s=20.0) | heard(made, "m1", round_age_s=5.0)
    (wait,) = [one for one in build(made.evidence(heard=told)).waits if one.kind == "rebalance"]
    assert wait.seconds == 20.0


def test_a_promise_is_known_from_the_worker_while_the_group_hides_it() -> None:
    """The coordinator hides assignments between the two rounds of a rebalance."""
    made = group(2)
    told = heard(made, "m1", promised={"orders": (3,)})
    waits = build(rebalancing(made, heard=told)).waits
    (wait,) = [one for one in waits if one.kind == "hand-over"]
    assert (wait.member, wait.text) == ("w1", "gets orders 3 after their owners have revoked them")


def test_a_warm_up_is_as_far_behind_as_its_own_copies() -> None:
    """A standby of a different member for the same partition does not count."""
    made = MadeGroup(topics={"orders": 1, LOG: 1}).join("m0", "m1", "m2").round().round()
    holder = next(m for m in ("m0", "m1", "m2") if made.answer_of(m).standbys.get(LOG))
    other = next(
        m for m in ("m0", "m1", "m2") if m != holder and not made.answer_of(m).actives.get("orders")
    )
    told = heard(made, holder, lag=5)
    told |= heard(made, other, awaited={LOG: (0,)}, standbys={LOG: (0,)})
    evidence = rebalancing(made, heard=told)
    waits = [one for one in build(evidence).waits if one.kind == "warm-up"]
    assert [one.member for one in waits] == [f"w{other[1:]}"]
    assert "behind)" not in waits[0].text


def test_a_member_without_an_assignment_has_no_problem() -> None:
    """The member joined after the last round; its address has no slash."""
    made = group(2)
    entity = made.entity()
    entity.members[1].member_assignment = b""
    found = decode_group(entity)
    assert [one.problem for one in found.members] == ["", ""]
    assert [one.address for one in found.members] == ["10.0.0.0", "10.0.0.1"]
    assert found.members[1].given is None


def test_the_version_of_a_member_is_that_of_its_metadata_and_else_its_own_word() -> None:
    """The group plans with the metadata; a worker that replaced the member answers otherwise."""
    made = group(2)
    told = heard(made, "m1", software="9.9.9")
    assert member(build(made.evidence(heard=told)), "w1").version == "0.1.0"
    assert member(build(rebalancing(made, heard=told)), "w1").version == "9.9.9"
    assert member(build(rebalancing(made, silent=["m1"])), "m1").version == ""
