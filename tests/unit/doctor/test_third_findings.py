"""Groups in which only some members answer, share URLs or run other versions, and the edges of the text."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from faust_assigner.doctor import group_facts
from faust_assigner.doctor.app_checks import Deployment, check_app
from faust_assigner.doctor.codes import BY_CODE, NOTE, WARNING, finding
from faust_assigner.doctor.facts import AppFacts
from faust_assigner.doctor.group_checks import check_group, unchecked
from faust_assigner.doctor.render import MOST, render
from faust_assigner.doctor.result import Result
from faust_assigner.doctor.table_checks import check_tables
from faust_assigner.doctor.topics import TopicFacts, check_changelog
from faust_assigner.status.described import decode_group
from faust_assigner.status.evidence import Heard
from faust_assigner.status.members import views_of
from faust_assigner.status.report import OTHER, UNREADABLE
from tests.support.status import LOG, group
from tests.unit.doctor.test_group_checks import facts, of, settings, table
from tests.unit.status.test_build import STOCK_METADATA, rebalancing


def test_each_member_without_an_answer_of_its_own_was_not_checked() -> None:
    """A wrong document and another app at its URL are no answers of the member."""
    found = facts()
    urls = sorted(found.evidence.heard)
    answers = {
        **found.evidence.heard,
        urls[0]: Heard(answer=UNREADABLE, detail="a wrong document"),
        urls[1]: Heard(answer=OTHER, detail="another app"),
    }
    told = unchecked(replace(found, evidence=replace(found.evidence, heard=answers)))
    assert told == ("w0 was not checked: a wrong document", "w1 was not checked: another app")


def test_a_member_whose_kind_is_hidden_is_no_stranger() -> None:
    """During a rebalance the coordinator shows no metadata."""
    hidden = facts(evidence=replace(rebalancing(group(3)), heard={}))
    assert of("FA001", hidden) == []
    assert of("FA014", hidden) == []


def test_stock_faust_is_a_finding_of_its_own_code_alone() -> None:
    """It has no setting of this package that could be off."""
    made = group(3)
    entity = made.entity()
    entity.members[1].member_metadata = STOCK_METADATA
    good = facts(made)
    found = replace(good, evidence=replace(good.evidence, group=decode_group(entity)))
    assert [one.text for one in of("FA001", found)] == ["this member is stock Faust"]
    assert of("FA014", found) == []


def test_shared_urls_are_listed_by_url() -> None:
    """The order of the members' names is another order."""
    made = group(4)
    found = facts(made)
    urls = ("http://z:1", "http://z:1", "http://a:1", "http://a:1")
    said = [
        replace(member, said=replace(member.said, url=url))
        for member, url in zip(found.evidence.group.members, urls, strict=True)
        if member.said is not None
    ]
    evidence = replace(
        found.evidence, group=replace(found.evidence.group, members=tuple(said)), heard={}
    )
    shared = of("FA003", replace(found, evidence=evidence))
    assert [one.subject for one in shared] == ["http://a:1", "http://z:1"]


def test_a_loopback_url_that_is_known_from_an_earlier_look_counts() -> None:
    """The coordinator hides it during a rebalance."""
    evidence = rebalancing(group(2))
    first = evidence.group.members[0]
    urls = {first.member_id: "http://127.0.0.1:6066"}
    found = facts(evidence=replace(evidence, urls=urls, heard={}, peers=()))
    assert [one.code for one in of("FA004", found)] == ["FA004"]


def test_versions_of_one_package_are_listed_from_the_lowest() -> None:
    """The order of the members has no effect."""
    odd = {"m0": {"aiokafka": "0.9.0"}, "m1": {"aiokafka": "0.8.0"}}
    told = [one.text.partition(":")[0] for one in of("FA013", facts(odd=odd)) if one.level != NOTE]
    assert told == ["aiokafka 0.8.0", "aiokafka 0.9.0"]


def test_only_tables_in_memory_lose_their_rows() -> None:
    """Another store that keeps files is no finding."""
    tables = (table(store="aerospike"),)
    found = facts(odd={name: {"tables": tables} for name in ("m0", "m1", "m2")})
    assert of("FA005", found) == []


def test_a_tables_topic_that_is_no_changelog_of_the_group_is_not_checked() -> None:
    """Its own app checks it."""
    other = "other-totals-changelog"
    found = facts(odd={"m0": {"tables": (table(changelog=other),)}})
    topics = {
        **found.topics,
        other: TopicFacts(partitions=3, cleanup_policy="delete", retention_ms=5),
    }
    views = views_of(found.evidence)
    assert list(check_tables(replace(found, topics=topics), views)) == []


async def test_the_brokers_limits_are_of_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request for a broker's settings must go to this broker itself."""
    asked: list[Any] = []

    class Client:
        cluster = type(
            "Cluster",
            (),
            {"brokers": lambda self: [type("Broker", (), {"nodeId": node})() for node in (7, 8)]},
        )()

        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

    async def read(client: Any, wanted: Any, *, node: int | None = None) -> Any:
        asked.append((wanted, node))
        return {
            (2, "__consumer_offsets"): {"max.message.bytes": "9"},
            (4, "7"): {
                "group.min.session.timeout.ms": "1500",
                "group.max.session.timeout.ms": "2500",
            },
        }

    monkeypatch.setattr(group_facts, "client_of", lambda connection: Client())
    monkeypatch.setattr(group_facts, "_read_configs", read)
    assert await group_facts._broker_limits({}) == (9, (1.5, 2.5))
    assert asked == [([(2, "__consumer_offsets"), (4, "7")], 7)]


def test_an_app_with_another_assignor_has_one_finding_about_it() -> None:
    """The missing fixup of an app that does not use the package is no second finding."""
    app = AppFacts(app_id="shop", assignor="x:y", is_ours=False, has_fixup=False, ledger="/l")
    found = [one for one in check_app(app, Deployment()) if one.code == "FA001"]
    assert [one.text for one in found] == ["PartitionAssignor is x:y"]


def test_no_grace_at_all_is_a_grace() -> None:
    """Such a supervisor kills at once."""
    app = AppFacts(app_id="shop", ledger="/l")
    assert [one.code for one in check_app(app, Deployment(grace_s=0.0))] == ["FA007"]
    assert check_app(app, Deployment()) == ()


def test_windows_that_expire_at_once_are_not_windows_for_ever() -> None:
    """Rows older than the retention have expired."""
    topic = TopicFacts(partitions=1, cleanup_policy="compact,delete", retention_ms=5)
    assert list(check_changelog("c", topic, is_windowed=True, expires_s=0.0)) == []
    (found,) = check_changelog("c", topic, is_windowed=True, expires_s=None)
    assert (found.level, "never expire" in found.text) == (WARNING, True)


def shown(result: Result) -> list[str]:
    """Return the lines of the rendered result."""
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(render(result))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("more", [0, 1])
def test_up_to_ten_subjects_of_a_code_are_shown(more: int) -> None:
    """The last line counts the others; one note is counted in the singular."""
    many = tuple(finding("FA005", "t", subject=f"s{n:02}") for n in range(MOST + more))
    note = finding("FA013", "v", level=NOTE)
    entry, last = BY_CODE["FA005"], BY_CODE["FA013"]
    counted = f"{len(many)} {entry.level}s, 1 note"
    assert shown(Result(looked_at=("a", "b"), findings=(*many, note))) == [
        f"FA005 {entry.level}: {entry.title}",
        *(f"  s{n:02}: t" for n in range(MOST)),
        *(["  and 1 more (--json has all)"] * more),
        f"  fix: {entry.fix}",
        "",
        f"FA013 note: {last.title}",
        "  v",
        f"  fix: {last.fix}",
        "",
        f"a and b: {counted}. faust-assigner doctor --explain CODE explains a code",
    ]


def test_a_result_without_findings_says_so_after_the_impossible_checks() -> None:
    """An empty line separates both."""
    result = Result(looked_at=("a",), findings=(), unchecked=("one", "two"))
    assert shown(result) == ["not checked: one", "not checked: two", "", "a: nothing found"]
    note = finding("FA013", "v", level=NOTE)
    assert shown(Result(looked_at=("a",), findings=(note,)))[-1].startswith("a: 1 note. ")


def test_a_check_of_the_whole_group_has_no_finding_for_good_settings() -> None:
    """The made-up group of these tests is a good one."""
    assert check_group(facts(odd={"m0": settings()})) == ()
    assert LOG in facts().topics
