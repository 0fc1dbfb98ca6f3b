"""Reports with several entries of each kind: waits of two workers, silent peers, files of two groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.status.build import build
from faust_assigner.status.described import DescribedGroup, DescribedMember, decode_group
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.members import views_of
from faust_assigner.status.report import ANSWERED, NOT_ASKED, SILENT, UNREACHABLE, WaitReport
from faust_assigner.status.saved import read_saved
from faust_assigner.status.waiting import _largest_setting
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import (
    CopyLag,
    Peer,
    Rounds,
    RoundTold,
    Standstill,
    WaitUnderWay,
    WorkerStatus,
    encode_document,
)
from tests.unit.status.test_members import answering, described, view

REBALANCE, SESSION = "broker_rebalance_timeout", "broker_session_timeout"


def moving(statuses: dict[str, WorkerStatus | None], **more: Any) -> Evidence:
    """A group in a rebalance, with workers by name at ``http://NAME``; None stands for a silent worker."""
    members = tuple(described(f"m-{name}", instance_id=name) for name in statuses)
    return Evidence(
        group=DescribedGroup(group_id="shop", state="PreparingRebalance", members=members),
        heard={
            f"http://{name}": Heard(answer=SILENT, detail=f"{name} is silent")
            if one is None
            else Heard(answer=ANSWERED, status=replace(one, member_id=f"m-{name}"))
            for name, one in statuses.items()
        },
        urls={f"m-{name}": f"http://{name}" for name in statuses},
        **more,
    )


def status(**more: Any) -> WorkerStatus:
    """A worker's answer."""
    return WorkerStatus(**{"app": "shop", "is_cooperative": True, **more})


def test_every_wait_of_every_worker_is_listed_by_kind_then_by_worker_then_by_reason() -> None:
    """The group's wait comes first; topics, owners and lags are joined."""
    x = status(
        round_age_s=4.0,
        is_rebalancing=True,
        settings={REBALANCE: "80", SESSION: "50"},
        actives={"log": (1, 2)},
        awaited={"log": (3, 5), "log2": (0, 7)},
        standbys={"log": (3, 5), "log2": (0, 7)},
        promised={"t": (1, 3), "u": (8,)},
        copies=(
            CopyLag(topic="log", partition=3, records=1_000),
            CopyLag(topic="log", partition=5, records=20),
            CopyLag(topic="log2", partition=7, records=5),
        ),
        standing=(
            Standstill(topic="t", partition=4, reason="restoring", seconds=9.0),
            Standstill(topic="t", partition=2, reason="group", seconds=8.0),
            Standstill(topic="u", partition=2, reason="group", seconds=11.0),
            Standstill(topic="t", partition=3, reason="group", seconds=10.0),
        ),
        is_leaving=True,
        waits=(
            WaitUnderWay(what="A", step="b", seconds=1.0),
            WaitUnderWay(what="C", step="d", seconds=2.0),
        ),
    )
    y = status(
        round_age_s=6.0,
        settings={REBALANCE: "90", SESSION: "40"},
        actives={"log": (3,), "log2": (7,)},
        standing=(Standstill(topic="v", partition=0, reason="round", seconds=3.0),),
        promised={"t": (5,)},
        waits=(WaitUnderWay(what="E", step="f", seconds=3.0),),
    )
    whom = "z, zz (do not answer) and y (answers, but has not begun to rejoin)"
    found = build(moving({"x": x, "y": y, "z": None, "zz": None}))
    told = [(one.kind, one.member, one.text, one.seconds) for one in found.waits]
    assert told == [
        (
            "rebalance",
            None,
            f"a rebalance is in progress: the group waits for {whom}, at most 90 s ({REBALANCE})",
            6.0,
        ),
        (
            "standing",
            "x",
            "t 2-3; u 2 not processed: the group coordinator has answered no heartbeat for a session",
            11.0,
        ),
        ("standing", "x", "t 4 not processed: its tables are being restored", 9.0),
        (
            "standing",
            "y",
            "v 0 not processed: an eager rebalance is in progress, which stops all partitions",
            3.0,
        ),
        (
            "warm-up",
            "x",
            "catches up on log 5; log2 0 (20 records behind) to become the owner",
            None,
        ),
        (
            "warm-up",
            "x",
            "catches up on log 3; log2 7 (1,005 records behind) to take over from y",
            None,
        ),
        ("hand-over", "x", "gets t 1,3; u 8 after their owners have revoked them", None),
        ("hand-over", "y", "gets t 5 after their owners have revoked them", None),
        ("leaving", "x", "stops, and hands its partitions over", None),
        ("step", "x", "A waits for b", 1.0),
        ("step", "x", "C waits for d", 2.0),
        ("step", "y", "E waits for f", 3.0),
    ]


def test_a_rebalance_in_which_all_rejoin_waits_for_the_rest() -> None:
    """The limit and the age are unknown."""
    found = build(moving({"x": status(is_rebalancing=True)})).waits
    text = "a rebalance is in progress: the group waits for members to rejoin"
    assert found == (WaitReport(kind="rebalance", member=None, text=text, seconds=None),)


@pytest.mark.parametrize(
    ("values", "largest"),
    [(("x", "5", "30"), 30.0), (("30", "", "7"), 30.0), (("0", "2"), 2.0), (("0", "x"), None)],
)
def test_the_largest_limit_of_all_workers_counts(values: tuple[str, ...], largest: Any) -> None:
    """The position of the value does not matter."""
    assert _largest_setting([view(), *(answering(t=one) for one in values), view()], "t") == largest


def test_silent_peers_without_a_member_are_all_shown() -> None:
    """Peers that answer and peers of members are not listed."""
    evidence = moving(
        {"x": status()},
        peers=[Peer(url=f"http://{name}:1") for name in ("q", "p", "x2")] + [Peer(url="http://x")],
    )
    quiet = {f"http://{name}:1": Heard(answer=SILENT) for name in ("p", "q")}
    lively = {"http://x2:1": Heard(answer=ANSWERED, status=status(member_id="elsewhere"))}
    views = views_of(replace(evidence, heard={**evidence.heard, **quiet, **lively}))
    assert [(one.name, one.member.member_id) for one in views] == [
        ("p", ""),
        ("q", ""),
        ("x", "m-x"),
    ]
    problems = build(replace(evidence, heard={**evidence.heard, **quiet})).problems
    assert [one.split(" ")[0] for one in problems] == ["p", "q"]


def test_only_without_any_answer_a_worker_has_to_be_named() -> None:
    """The last of three workers answers, so --worker is not suggested."""
    for last, is_needed in ((status(), False), (None, True)):
        found = build(moving({"x": None, "y": None, "z": last}))
        assert any("--worker" in one for one in found.problems) is is_needed


def test_the_part_of_a_member_in_the_groups_record_is_counted_in_bytes() -> None:
    """The size counts metadata, assignment, the id twice, and the remaining fields."""
    member = SimpleNamespace(
        member_id="m" * 9,
        client_id="c",
        client_host="/h",
        member_metadata=b"x" * 10,
        member_assignment=b"y" * 7,
    )
    made = SimpleNamespace(
        group_id="g",
        group_state="CompletingRebalance",
        protocol_type="consumer",
        protocol_data="p",
        members=[
            member,
            SimpleNamespace(**{**vars(member), "member_id": "a", "member_metadata": None}),
        ],
    )
    found = decode_group(made, coordinator="k:1")
    assert [(one.member_id, one.record_bytes) for one in found.members] == [
        ("a", 7 + 2 + 150),
        ("m" * 9, 10 + 7 + 18 + 150),
    ]


# -- files


def test_a_file_keeps_all_rounds_of_all_its_lines(tmp_path: Path) -> None:
    """Two documents with two rounds each keep their order."""
    told = [RoundTold(generation=n, at=1.0) for n in range(4)]
    file = tmp_path / "looks.jsonl"
    lines = [
        encode_document(Rounds(app="shop", rounds=tuple(told[:2]))).decode(),
        dumps(build(moving({"x": status()}))),
        encode_document(Rounds(app="shop", rounds=tuple(told[2:]))).decode(),
    ]
    file.write_text("\n".join(lines) + "\n")
    assert read_saved(file).rounds == tuple(told)


@pytest.mark.parametrize("other", ["a look", "rounds"])
def test_a_later_line_of_another_group_is_refused(tmp_path: Path, other: str) -> None:
    """The line may be a look or a list of rounds."""
    first = build(moving({"x": status()}))
    lines = [dumps(first), encode_document(Rounds(app="shop")).decode()]
    lines.append(
        dumps(replace(first, group="bank"))
        if other == "a look"
        else encode_document(Rounds(app="bank")).decode()
    )
    file = tmp_path / "looks.jsonl"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match="several groups: bank, shop"):
        read_saved(file)


def test_a_described_member_without_an_answer_has_nothing() -> None:
    """The member has no partitions, no copies and no URL."""
    found = DescribedMember(member_id="m", client_id="c", address="a")
    assert (found.actives, found.copies, found.url, found.kind) == ({}, {}, "", "unknown")


def test_a_member_is_at_the_url_that_answers_for_it_and_not_at_a_remembered_one() -> None:
    """The member restarted at a new address, and the coordinator hides its URL."""
    base = moving({"x": None, "y": None})
    found = views_of(
        replace(
            base,
            heard={"http://new": Heard(answer=ANSWERED, status=status(member_id="m-x"))},
            urls={"m-x": "http://old", "m-y": "http://kept"},
        )
    )
    told = [(one.member.member_id, one.url, one.heard.answer) for one in found]
    assert told == [("m-x", "http://new", ANSWERED), ("m-y", "http://kept", NOT_ASKED)]


def test_what_no_member_has_told_is_unknown_in_the_totals() -> None:
    """Without a decision the number of tasks off their target is unknown, not zero."""
    found = build(moving({"x": status(), "y": None}))
    assert (found.decision, found.totals.off_target) == (None, None)
    assert (found.totals.members, found.totals.answered, found.totals.ready) == (2, 1, 1)


def test_a_worker_that_cannot_be_reached_is_as_lost_as_a_silent_one() -> None:
    """A rebalancing group waits for the worker; a settled group waits for its session timeout."""
    gone = Heard(answer=UNREACHABLE, detail="refused")
    base = moving({"x": status(is_rebalancing=True), "y": None})
    found = replace(base, heard={**base.heard, "http://y": gone})
    (wait,) = build(found).waits
    assert wait.text.endswith("the group waits for y (does not answer)")
    rest = build(replace(found, group=replace(found.group, state="Stable"))).waits
    assert [(one.kind, one.member) for one in rest] == [("answer", "y")]
    assert "does not answer: refused." in rest[0].text
