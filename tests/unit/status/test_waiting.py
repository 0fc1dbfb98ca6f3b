"""The waits of a group: each names the waiting member, the reason and the duration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.status.build import build
from faust_assigner.status.report import Report, WaitReport
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.worker_status import Standstill, WaitUnderWay
from tests.support.status import LOG, MadeGroup, group
from tests.unit.status.test_build import heard, rebalancing


def waits(report: Report, kind: str) -> list[WaitReport]:
    """The waits of this kind."""
    return [wait for wait in report.waits if wait.kind == kind]


def test_a_group_at_rest_waits_for_nothing() -> None:
    """The report has no waits."""
    assert build(group(3).evidence()).waits == ()


def test_a_warm_up_waits_for_its_copy_and_names_the_owner() -> None:
    """The new member lacks the complete changelog of each partition that it will take over."""
    made = group(2)
    made.end = 100_000
    made.round()
    made.join("m2").round(warmups=WarmupPolicy())
    report = build(made.evidence(heard=heard(made, "m2", lag=50_000)))
    found = waits(report, "warm-up")
    assert {wait.member for wait in found} == {"w2"}
    numbers = made.answer_of("m2").awaited[LOG]
    assert numbers.size == 2
    texts = " ".join(wait.text for wait in found)
    assert "50,000 records behind" in texts or "100,000 records behind" in texts
    for wait in found:
        assert wait.text.startswith(f"catches up on {LOG} ")
        assert "to take over from w" in wait.text
    assert report.totals.warmup_partitions == 2
    assert report.totals.off_target == 2


def test_a_silent_member_may_have_the_longest_session_of_those_that_answer() -> None:
    """Its session timeout is unknown; a shorter value would be too optimistic."""
    made = group(3)
    said = {
        url: one
        for name, session in (("m0", "20"), ("m1", "60"))
        for url, one in heard(made, name, settings={"broker_session_timeout": session}).items()
    }
    (wait,) = waits(build(made.evidence(silent=["m2"], heard=said)), "answer")
    assert wait.text.endswith("after its session timeout (60 s)")


def test_a_promise_waits_for_the_owners_to_let_go() -> None:
    """The owners have not yet revoked, as after the first of two cooperative rounds."""
    made = group(2)
    for name in made.claims:
        made.claims[name] = replace(made.claims[name], holds=True)
    made.join("m2").round()
    (wait,) = waits(build(made.evidence()), "hand-over")
    assert wait.member == "w2"
    assert "orders" in wait.text
    assert wait.text.endswith("after their owners have revoked them")


def test_a_partition_that_stands_still_says_why() -> None:
    """The text has the reason; for a restore also the remaining records and time."""
    made = group(2)
    still = tuple(
        Standstill(topic="orders", partition=p, reason="restoring", seconds=12.0 + p)
        for p in (0, 1)
    )
    more: dict[str, Any] = {"restore_remaining_records": 12_000, "restore_remaining_s": 30.0}
    report = build(made.evidence(heard=heard(made, "m0", standing=still, **more)))
    (wait,) = waits(report, "standing")
    assert wait.member == "w0"
    assert wait.text == (
        "orders 0-1 not processed: its tables are being restored "
        "(12,000 records remain, about 30 s left)"
    )
    assert wait.seconds == 13.0
    more["restore_remaining_s"] = None
    report = build(made.evidence(heard=heard(made, "m0", standing=still, **more)))
    assert "no progress in the last 10 s" in waits(report, "standing")[0].text


def test_a_rebalance_waits_for_the_members_that_do_not_answer() -> None:
    """Silent members are listed; the limit is the largest rebalance timeout of a worker."""
    made = group(3)
    busy = heard(made, "m0", is_rebalancing=True, round_age_s=20.0)
    busy |= heard(made, "m2", is_rebalancing=True, round_age_s=12.0)
    evidence = rebalancing(made, silent=["m1"], heard=busy, urls={"m1": made.claims["m1"].url})
    report = build(evidence)
    assert report.waits[0] == WaitReport(
        kind="rebalance",
        member=None,
        text="a rebalance is in progress: the group waits for w1 (does not answer), "
        "at most 90 s (broker_rebalance_timeout)",
        seconds=20.0,
    )
    assert waits(report, "answer") == []


def test_a_rebalance_names_a_worker_that_has_not_begun_to_rejoin() -> None:
    """The worker answers but is busy."""
    made = group(2)
    busy = heard(made, "m0", is_rebalancing=True, round_age_s=20.0)
    (wait,) = waits(build(rebalancing(made, heard=busy)), "rebalance")
    assert "waits for w1 (answers, but has not begun to rejoin)" in wait.text


def test_the_second_half_of_a_rebalance_waits_for_the_leader() -> None:
    """All members have joined."""
    made = group(2)
    evidence = rebalancing(made)
    evidence = replace(evidence, group=replace(evidence.group, state="CompletingRebalance"))
    (wait,) = waits(build(evidence), "rebalance")
    assert "wait for the leader's assignment" in wait.text


@pytest.mark.parametrize("settled", [True, False])
def test_a_silent_worker_is_awaited_by_the_group(settled: bool) -> None:
    """The wait ends with the session; during a rebalance the rebalance's line covers it."""
    made = group(2)
    evidence = made.evidence(silent=["m1"]) if settled else rebalancing(made, silent=["m1"])
    found = waits(build(evidence), "answer")
    assert len(found) == settled
    if settled:
        assert found[0].member == "w1"
        assert "removes it after its session timeout (60 s)" in found[0].text


def test_a_worker_says_what_it_waits_for_and_that_it_stops() -> None:
    """The waits: a commit, and a hand-over of all partitions."""
    made = group(2)
    wait = WaitUnderWay(what="The commit", step="the delivery of sent records", seconds=4.0)
    report = build(made.evidence(heard=heard(made, "m0", waits=(wait,), is_leaving=True)))
    assert [w.text for w in waits(report, "step")] == [
        "The commit waits for the delivery of sent records"
    ]
    assert waits(report, "step")[0].seconds == 4.0
    assert [w.member for w in waits(report, "leaving")] == ["w0"]


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    """A later version may have further reasons."""
    made: MadeGroup = group(2)
    still = Standstill(topic="orders", partition=0, reason="new word", seconds=1.0)
    report = build(made.evidence(heard=heard(made, "m0", standing=(still,))))
    assert waits(report, "standing")[0].text == "orders 0 not processed: new word"
