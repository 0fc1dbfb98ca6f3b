"""Each code of a running group: a group with the fault, and the nearest group without the fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.doctor.codes import CODES, GROUP, Finding
from faust_assigner.doctor.facts import GroupFacts
from faust_assigner.doctor.group_checks import check_group, check_group_grace, unchecked
from faust_assigner.doctor.topics import TopicFacts
from faust_assigner.status.described import decode_group
from faust_assigner.status.evidence import Heard
from faust_assigner.status.report import ANSWERED
from faust_assigner.wire.worker_status import TableStatus
from tests.support.status import LOG, MadeGroup, group
from tests.unit.status.test_build import STOCK_METADATA, heard, rebalancing

GIB = 2**30
TOPICS = {
    "orders": TopicFacts(partitions=6, cleanup_policy="delete", retention_ms=604_800_000),
    LOG: TopicFacts(partitions=6, cleanup_policy="compact"),
}
SETTINGS = {
    "FAUST_ASSIGNER_LEDGER": "/var/lib/ledger",
    "FAUST_ASSIGNER_COOPERATIVE": "1",
    "FAUST_ASSIGNER_GROUP_RECORD_BYTES": "1000000",
    "broker_heartbeat_interval": "3",
    "broker_session_timeout": "60",
    "broker_max_poll_interval": "1000",
    "broker_rebalance_timeout": "60",
    "table_standby_replicas": "1",
}


def table(**changes: Any) -> TableStatus:
    """The group's one table, with 1 GiB in each of two partitions."""
    base: dict[str, Any] = {
        "name": "totals",
        "changelog": LOG,
        "store": "rocksdb",
        "bytes": {"0": GIB, "1": GIB},
    }
    return TableStatus(**base | changes)


def facts(
    made: MadeGroup | None = None, odd: dict[str, dict[str, Any]] | None = None, **more: Any
) -> GroupFacts:
    """Return a group without findings, except for the changes ``odd`` of workers' answers."""
    made = made or group(3)
    answers: dict[str, Heard] = {}
    for pid, name in enumerate(made.claims):
        base: dict[str, Any] = {
            "settings": SETTINGS,
            "tables": (table(),),
            "disk_free_bytes": 10 * GIB,
            "faust": "0.15.3",
            "aiokafka": "0.14.0",
            "pid": pid,
        }
        answers |= heard(made, name, **base | (odd or {}).get(name, {}))
    evidence = more.pop("evidence", None) or made.evidence(heard=answers)
    return GroupFacts(**{"evidence": evidence, "topics": TOPICS} | more)


def codes(found: GroupFacts) -> list[str]:
    """Return the codes of the findings, each with its level."""
    return [f"{one.code} {one.level}" for one in check_group(found)]


def of(code: str, found: GroupFacts) -> list[Finding]:
    """Return the findings of a code."""
    return [one for one in check_group(found) if one.code == code]


def settings(**changes: str) -> dict[str, Any]:
    """Return a worker's settings with changes."""
    return {"settings": SETTINGS | changes}


@pytest.mark.parametrize(
    ("bytes_of", "enough"),
    [
        ([{"0": GIB, "1": GIB}] * 3, GIB),  # half of the lost worker's two GiB
        ([{"0": GIB, "1": GIB, "2": GIB, "3": GIB}] * 3, 2 * GIB),
        ([{"0": 3 * GIB}, {"0": 0}, {"0": 0}], 3 * GIB),  # the partition goes to a single worker
    ],
)
def test_a_worker_needs_room_for_its_share_of_the_largest_one(
    bytes_of: list[dict[str, int]], enough: int
) -> None:
    """A worker also needs room for the largest single partition."""

    def found(free: int) -> list[Finding]:
        odd = {
            f"m{n}": {"tables": (table(bytes=held),), "disk_free_bytes": free}
            for n, held in enumerate(bytes_of)
        }
        return of("FA016", facts(odd=odd))

    assert found(enough) == []
    assert [one.subject for one in found(enough - 1)] == ["w0", "w1", "w2"]


def test_a_silent_worker_takes_its_part_of_a_lost_workers_share() -> None:
    """Two of three workers answer: each of the two that stay gets half of the lost state."""
    made = group(3)
    found = facts(made, {name: {"disk_free_bytes": GIB} for name in made.claims})
    heard_ = {url: one for url, one in found.evidence.heard.items() if url != made.claims["m2"].url}
    assert len(heard_) == 2
    assert of("FA016", replace(found, evidence=replace(found.evidence, heard=heard_))) == []


@pytest.mark.parametrize(("free", "subjects"), [(0, ["w1"]), (None, [])])
def test_a_full_disk_has_no_room_and_an_unknown_disk_is_left_out(
    free: int | None, subjects: list[str]
) -> None:
    """The number 0 is a report of the worker; None is no report."""
    found = facts(odd={"m1": {"disk_free_bytes": free}})
    assert [one.subject for one in of("FA016", found)] == subjects


def test_a_single_worker_needs_no_room_for_others() -> None:
    """The group has no second worker whose state could move here."""
    assert of("FA016", facts(group(1), {"m0": {"disk_free_bytes": 0}})) == []


def test_a_good_group_has_no_findings() -> None:
    """No check is skipped."""
    assert codes(facts()) == []
    assert unchecked(facts()) == ()


def test_a_member_that_is_stock_faust_is_named() -> None:
    """A member that is not a Faust worker is named as well."""
    made = group(3)
    entity = made.entity()
    entity.members[1].member_metadata = STOCK_METADATA
    entity.members[2].member_metadata = b"\xff"
    good = facts(made)
    found = replace(good, evidence=replace(good.evidence, group=decode_group(entity)))
    assert {one.text for one in of("FA001", found)} == {
        "this member is stock Faust",
        "this member is not Faust",
    }


def static(*ids: str) -> MadeGroup:
    """Return a group of static members."""
    made = group(len(ids))
    for name, instance_id in zip(list(made.claims), ids, strict=True):
        made.offers[name] = {"instance_id": instance_id}
    return made.round()


def test_two_processes_with_one_instance_id_are_found() -> None:
    """Each process has its own URL; a process that answers at two URLs counts once."""
    made = static("a", "b")
    good = facts(made)
    assert of("FA002", good) == []
    rival = made.status_of("m0", pid=4711, member_id="m9", settings=SETTINGS)
    both = {**good.evidence.heard, "http://rival": Heard(answer=ANSWERED, status=rival)}
    (found,) = of("FA002", replace(good, evidence=replace(good.evidence, heard=both)))
    assert found.subject == "a"
    assert "process 4711 on pod-0" in found.text
    again = {**good.evidence.heard, "http://alias": good.evidence.heard[made.claims["m0"].url]}
    assert of("FA002", replace(good, evidence=replace(good.evidence, heard=again))) == []
    other_app = Heard(answer=ANSWERED, status=replace(rival, app="bank"))
    both = {**good.evidence.heard, "http://rival": other_app}
    assert of("FA002", replace(good, evidence=replace(good.evidence, heard=both))) == []


def test_an_instance_id_that_changes_hands_between_two_looks_is_found() -> None:
    """Two workers with a shared id replace each other; an unchanged member is no finding."""
    made = static("a", "b")
    good = facts(made)
    assert of("FA002", replace(good, later=good.evidence)) == []
    entity = made.entity()
    entity.members[0].member_id = "m0-new"
    later = replace(good.evidence, group=decode_group(entity), heard={})
    (found,) = of("FA002", replace(good, later=later))
    assert (found.subject, found.level) == ("a", "warning")
    assert "joined with this id between the two queries" in found.text


def test_two_processes_that_answer_in_different_looks_are_found() -> None:
    """The two processes replace each other, so only a single process answers at a time."""
    made = static("a", "b")
    good = facts(made)
    url = made.claims["m0"].url
    rival = Heard(answer=ANSWERED, status=made.status_of("m0", pid=4711, settings=SETTINGS))
    later = replace(good.evidence, heard={**good.evidence.heard, url: rival})
    (found,) = of("FA002", replace(good, later=later))
    assert found.subject == "a"
    assert "process 4711 on pod-0" in found.text


def test_a_member_without_an_id_in_the_first_look_was_not_replaced() -> None:
    """The coordinator may not know the member's instance id yet."""
    made = static("a", "b")
    good = facts(made)
    entity = made.entity()
    entity.members[0].member_id = ""
    first = replace(good.evidence, group=decode_group(entity), heard={})
    assert of("FA002", replace(good, evidence=first, later=good.evidence)) == []


def test_members_with_one_url_are_found() -> None:
    """The finding names the members' shared URL."""
    made = group(3)
    made.claims["m2"] = replace(made.claims["m2"], url=made.claims["m1"].url)
    found = of("FA003", facts(made.round()))
    assert [one.subject for one in found] == ["http://w1:6066"]


def test_a_loopback_url_is_found_where_the_member_is_elsewhere() -> None:
    """On the developer's own machine a loopback URL is right."""
    made = group(2)
    made.claims["m1"] = replace(made.claims["m1"], url="http://127.0.0.1:6066")
    made.round()
    good = facts(made)
    assert [one.text for one in of("FA004", good)] == [
        "http://127.0.0.1:6066, but its broker connection comes from 10.0.0.1"
    ]
    entity = made.entity()
    for member in entity.members:
        member.client_host = "/127.0.0.1"
    here = replace(good, evidence=replace(good.evidence, group=decode_group(entity)))
    assert of("FA004", here) == []


#: The change in a worker's answer; the expected code; the nearest change without the fault.
ODD: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("memory", {"tables": (table(store="memory"),)}, "FA005 warning", {}),
    ("another faust", {"faust": "0.16.0"}, "FA013 error", {"faust": "0.15.4"}),
    ("another aiokafka", {"aiokafka": "0.13.9"}, "FA013 error", {"aiokafka": "0.14.7"}),
    ("another version", {"software": "0.0.9"}, "FA013 note", {"software": "0.1.0"}),
    ("full disk", {"disk_free_bytes": GIB - 1}, "FA016 error", {"disk_free_bytes": GIB}),
    (
        "no ledger",
        settings(FAUST_ASSIGNER_LEDGER=""),
        "FA017 note",
        settings(FAUST_ASSIGNER_LEDGER="topic:shop-ledger"),
    ),
    (
        "corrupt folder",
        {"counters": {"corrupt_folders": 1}},
        "FA018 warning",
        {"counters": {"corrupt_folders": 0}},
    ),
    (
        "left the directory out",
        {"counters": {"directories_left_out": 2}},
        "FA011 warning",
        {"counters": {"directories_left_out": 0}},
    ),
]


@pytest.mark.parametrize(
    ("bad", "code", "good"), [case[1:] for case in ODD], ids=[c[0] for c in ODD]
)
def test_a_worker_s_fault_is_found_and_its_neighbour_is_not(
    bad: dict[str, Any], code: str, good: dict[str, Any]
) -> None:
    """Only the expected code is reported, and only for the faulty worker."""
    assert codes(facts(odd={"m1": bad})) == [code]
    assert codes(facts(odd={"m1": good})) == []


def test_a_setting_that_differs_is_found_with_its_values() -> None:
    """A setting missing in an older worker's answer is no difference."""
    one, two = settings(FAUST_ASSIGNER_MAX_WARMUPS="8"), settings(FAUST_ASSIGNER_MAX_WARMUPS="32")
    (found,) = of("FA012", facts(odd={"m0": one, "m1": two, "m2": two}))
    assert found.subject == "FAUST_ASSIGNER_MAX_WARMUPS"
    assert found.text == "32 on w1, w2; 8 on w0"
    assert of("FA012", facts(odd={"m1": one})) == []
    assert of("FA012", facts(odd={"m1": settings(FAUST_ASSIGNER_RACK="az-b")})) == [], "its own"
    differing = facts(odd={"m0": one, "m1": two, "m2": two})
    assert len(of("FA012", replace(differing, later=facts().evidence))) == 1, "by the first look"
    assert of("FA012", replace(facts(), later=differing.evidence)) == []


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"broker_heartbeat_interval": "60"}, "error"),
        ({"broker_heartbeat_interval": "25"}, "warning"),
        ({"broker_max_poll_interval": "30"}, "warning"),
        ({"broker_max_poll_interval": ""}, None),
        ({"broker_heartbeat_interval": "?"}, None),
    ],
)
def test_times_of_a_worker_must_work_together(changes: dict[str, str], level: str | None) -> None:
    """Each worker's own settings are compared with each other."""
    odd = {name: settings(**changes) for name in ("m0", "m1", "m2")}
    assert [one.level for one in of("FA007", facts(odd=odd))] == ([] if level is None else [level])


def test_a_session_must_be_within_the_brokers_own_limits() -> None:
    """The brokers' limits are known, so the finding is an error."""
    assert of("FA007", facts(session_bounds_s=(6.0, 60.0))) == []
    (found,) = of("FA007", facts(session_bounds_s=(6.0, 59.0)))
    assert (found.level, found.subject) == ("error", "w0, w1, w2")
    assert "the brokers allow (6 to 59 s)" in found.text


def with_log(**changes: Any) -> dict[str, TopicFacts]:
    """Return the topics with the changelog's facts changed."""
    return {**TOPICS, LOG: replace(TOPICS[LOG], **changes)}


def test_a_changelog_that_loses_rows_is_found() -> None:
    """The workers report whether the table is windowed, and until which age it needs its rows."""
    losing = with_log(cleanup_policy="compact,delete", retention_ms=60_000)
    assert codes(facts(topics=losing)) == ["FA008 error"]
    windowed = {"tables": (table(is_windowed=True, expires_s=60.0),)}
    everywhere = dict.fromkeys(("m0", "m1", "m2"), windowed)
    assert codes(facts(odd=everywhere, topics=losing)) == []
    longer = {"tables": (table(is_windowed=True, expires_s=61.0),)}
    everywhere = dict.fromkeys(("m0", "m1", "m2"), longer)
    assert codes(facts(odd=everywhere, topics=losing)) == ["FA008 error"]
    sets = {"tables": (table(is_set=True),)}
    everywhere = dict.fromkeys(("m0", "m1", "m2"), sets)
    compacted = with_log(cleanup_policy="compact", retention_ms=None)
    assert codes(facts(topics=compacted)) == []
    assert codes(facts(odd=everywhere, topics=compacted)) == ["FA008 error"]


def test_a_changelog_of_another_width_is_found() -> None:
    """The changelog's count is no consumed topic's count; some tables may have any count."""
    assert codes(facts(topics=with_log(partitions=8))) == ["FA009 error"]
    for free in (table(is_global=True), table(uses_partitioner=True)):
        everywhere = {name: {"tables": (free,)} for name in ("m0", "m1", "m2")}
        assert codes(facts(odd=everywhere, topics=with_log(partitions=8))) == []


def test_members_beyond_the_tasks_are_found() -> None:
    """The group has six tasks, so a seventh member owns no task."""
    assert of("FA010", facts(group(6))) == []
    (found,) = of("FA010", facts(group(7)))
    assert "7 members for 6 tasks: 1 own no task" in found.text
    more = {**TOPICS, "rates": TopicFacts(partitions=2)}
    assert of("FA010", facts(group(8), topics=more)) == [], (
        "two topics of their own make eight tasks"
    )
    wider = {**TOPICS, "shop-__assignor-__leader": TopicFacts(partitions=1)}
    assert of("FA010", facts(group(7), topics=wider)) != [], "the leader topic is no work"


def test_a_group_s_record_near_its_limit_is_found() -> None:
    """The limit is four fifths of the brokers' limit, or of the smallest one in the settings."""
    good = facts()
    taken = sum(member.record_bytes for member in good.evidence.group.members)
    assert of("FA011", replace(good, record_bytes=int(taken / 0.8) + 1)) == []
    assert len(of("FA011", replace(good, record_bytes=int(taken / 0.8) - 1))) == 1
    small = settings(FAUST_ASSIGNER_GROUP_RECORD_BYTES=str(taken))
    assert len(of("FA011", facts(odd={"m1": small}))) == 1


@pytest.mark.parametrize("off", ["FAUST_ASSIGNER_COOPERATIVE", "FAUST_ASSIGNER_REPAIRS", ""])
def test_a_worker_that_makes_rebalances_eager_is_found(off: str) -> None:
    """The finding names the setting if a setting is the cause."""
    made = group(3)
    made.offers["m1"] = {"cooperative": False}
    made.round()
    odd = {"m1": settings(**({off: "0"} if off else {}))}
    (found,) = of("FA014", facts(made, odd))
    assert found.subject == "w1"
    assert found.text == (f"off: {off}" if off else "its log says why, at its start")
    assert of("FA014", facts()) == []


def racks(*names: str | None) -> MadeGroup:
    """Return a group of members in the given racks."""
    made = group(len(names))
    for member, rack in zip(list(made.claims), names, strict=True):
        made.offers[member] = {"rack_id": rack}
    return made.round()


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: racks("a", "b", "b"), None),
        (lambda: racks(None, None, None), None),
        (lambda: racks("a", "a", "a"), "1 racks for 2 copies of each table"),
        (lambda: racks("a", "b", None), "no rack: w2; the other workers have a rack"),
    ],
)
def test_copies_need_as_many_racks(made: Callable[[], MadeGroup], text: str | None) -> None:
    """A member without a rack is reported if the other members have racks."""
    assert [one.text for one in of("FA015", facts(made()))] == ([] if text is None else [text])


def test_what_could_not_be_looked_at_is_told() -> None:
    """Silent workers and a running rebalance are listed as unchecked and cause no findings."""
    made = group(3)
    mute = facts(evidence=made.evidence(silent=["m1"]))
    assert any("w1 was not checked" in sentence for sentence in unchecked(mute))
    moving = facts(evidence=rebalancing(group(3)))
    assert any("A rebalance is in progress" in sentence for sentence in unchecked(moving))
    assert {code.split()[0] for code in codes(moving)} <= {"FA017", "FA007"}


def test_each_code_of_a_group_is_fired_in_this_file() -> None:
    """Each new code needs a case here."""
    fired = {case[2].split()[0] for case in ODD}
    fired |= {"FA001", "FA002", "FA003", "FA004", "FA007", "FA008", "FA009", "FA010", "FA012"}
    fired |= {"FA014", "FA015"}
    assert fired == {code.code for code in CODES if GROUP in code.looks_at}


def test_an_empty_group_is_named_as_such() -> None:
    """The sentence does not blame a rebalance for the missing members."""
    evidence = group(2).evidence(heard={})
    evidence = replace(evidence, group=replace(evidence.group, state="Empty", members=()), heard={})
    (sentence,) = unchecked(facts(evidence=evidence))
    assert sentence.startswith("The group has no members")


@pytest.mark.parametrize(
    ("grace_s", "changes", "found"),
    [
        (35.0, {}, {}),
        (34.0, {}, {"w0, w1, w2": "warning"}),
        (20.0, {}, {"w0, w1, w2": "error"}),
        (20.0, settings(FAUST_ASSIGNER_LEAVE_S="5"), {"w0, w2": "error"}),
        (20.0, settings(FAUST_ASSIGNER_LEAVE_S="60"), {"w0, w2": "error", "w1": "error"}),
        (20.0, settings(FAUST_ASSIGNER_REPAIRS="0"), {"w0, w2": "error"}),
        (20.0, settings(FAUST_ASSIGNER_LEAVE_S="soon"), {"w0, w2": "error"}),
    ],
)
def test_the_grace_of_a_running_group_is_judged_by_its_workers_settings(
    grace_s: float, changes: dict[str, Any], found: dict[str, str]
) -> None:
    """The hand-over takes 20 s and the close 15 s; a worker without a hand-over needs 15 s."""
    base = settings(FAUST_ASSIGNER_LEAVE_S="20")
    odd = {"m0": base, "m1": changes or base, "m2": base}
    findings = check_group_grace(facts(odd=odd), grace_s)
    assert {one.subject: one.level for one in findings} == found
    assert {one.code for one in findings} <= {"FA007"}


def test_static_eager_and_silent_workers_hand_nothing_over() -> None:
    """Static and eager workers only close their tables; a silent worker's settings are unknown."""
    base = settings(FAUST_ASSIGNER_LEAVE_S="20")
    shop = static("a", "b")
    odd = {"m0": base, "m1": base}
    assert check_group_grace(facts(shop, odd=odd), 15.0) == ()
    eager = group(2)
    eager.offers = {name: {"cooperative": False} for name in eager.claims}
    assert check_group_grace(facts(eager.round(), odd=odd), 15.0) == ()
    assert check_group_grace(facts(evidence=group(2).evidence(silent=["m0", "m1"])), 1.0) == ()
