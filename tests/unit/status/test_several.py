"""Reports with several of everything: waits of two workers, files of two groups, colours, the worst first."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from faust_assigner.errors import ConfigError
from faust_assigner.status.build import build
from faust_assigner.status.described import (
    DescribedGroup,
    DescribedMember,
    decode_group,
)
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.members import views_of
from faust_assigner.status.render import condition, render, span
from faust_assigner.status.report import (
    ANSWERED,
    NOT_ASKED,
    SILENT,
    UNREACHABLE,
    Difference,
    MemberReport,
    Report,
    Waiting,
)
from faust_assigner.status.saved import read_saved
from faust_assigner.status.waiting import _largest
from faust_assigner.wire.worker_status import (
    CopyLag,
    Peer,
    Rounds,
    RoundTold,
    Standstill,
    WaitUnderWay,
    WorkerStatus,
    dumps,
    encode_document,
)
from tests.unit.status.test_members import answering, described, view

REBALANCE, SESSION = "broker_rebalance_timeout", "broker_session_timeout"


def moving(statuses: dict[str, WorkerStatus | None], **more: Any) -> Evidence:
    """A group in a rebalance: workers by name at ``http://NAME``; None is a silent one."""
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
    """The group's own wait comes first; places, owners and lags of several are joined."""
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
        (
            "hand-over",
            "x",
            "gets t 1,3; u 8 after their owners have revoked them",
            None,
        ),
        ("hand-over", "y", "gets t 5 after their owners have revoked them", None),
        ("leaving", "x", "stops, and hands its partitions over", None),
        ("step", "x", "A waits for b", 1.0),
        ("step", "x", "C waits for d", 2.0),
        ("step", "y", "E waits for f", 3.0),
    ]


def test_a_rebalance_in_which_all_rejoin_waits_for_the_rest() -> None:
    """No limit is known, and no age."""
    found = build(moving({"x": status(is_rebalancing=True)})).waits
    text = "a rebalance is in progress: the group waits for members to rejoin"
    assert found == (Waiting(kind="rebalance", member=None, text=text, seconds=None),)


@pytest.mark.parametrize(
    ("values", "largest"),
    [
        (("x", "5", "30"), 30.0),
        (("30", "", "7"), 30.0),
        (("0", "2"), 2.0),
        (("0", "x"), None),
    ],
)
def test_the_largest_limit_of_all_workers_counts(values: tuple[str, ...], largest: Any) -> None:
    """Whatever its place."""
    assert _largest([view(), *(answering(t=one) for one in values), view()], "t") == largest


def test_silent_peers_without_a_member_are_all_shown() -> None:
    """A peer that answers, and a peer that is a member's, are not."""
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
    """The last of three workers answers."""
    for last, is_needed in ((status(), False), (None, True)):
        found = build(moving({"x": None, "y": None, "z": last}))
        assert any("--worker" in one for one in found.problems) is is_needed


def test_the_part_of_a_member_in_the_groups_record_is_counted_in_bytes() -> None:
    """Metadata, assignment, twice the id, and the rest of the entry."""
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


# -- text


def member(name: str, **more: Any) -> MemberReport:
    """A member that is ready."""
    evidence = moving({name: status()})
    (found,) = build(evidence).members
    return replace(found, **{"ready": True, **more})


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"answer": NOT_ASKED, "is_leaving": True}, ("unknown", NOT_ASKED)),
        ({"answer": UNREACHABLE, "not_live": ("a",)}, ("bad", UNREACHABLE)),
        ({"is_leaving": True, "not_live": ("a",)}, ("changing", "stops")),
        ({"not_live": ("a", "b"), "not_ready": ("c",)}, ("bad", "not live: a")),
        (
            {"not_ready": ("c", "d"), "restore_remaining_records": 5},
            ("bad", "not ready: c"),
        ),
        (
            {"restore_remaining_records": 5_000, "restore_remaining_s": 90.0},
            ("changing", "ready, restores 5,000 (1 min 30 s)"),
        ),
        ({"restore_remaining_records": 0}, ("good", "ready")),
    ],
)
def test_the_state_of_a_member_is_its_worst_news(more: dict[str, Any], found: Any) -> None:
    """In the order of the cases."""
    assert condition(member("x", **more)) == found


def report(*members: MemberReport, **more: Any) -> Report:
    """A report of these members."""
    return replace(build(moving({"x": status()})), **{"members": members, "waits": (), **more})


def printed(found: Report, *, colours: bool = False, **options: Any) -> str:
    """The text, in a pipe or on a terminal."""
    console = Console(
        file=io.StringIO(),
        width=200,
        highlight=False,
        emoji=False,
        force_terminal=colours,
        color_system="standard" if colours else None,
    )
    console.print(render(found, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_short_screen_shows_the_worst_members_by_name_within_a_rank() -> None:
    """Lost, not live or ready, restoring, the rest; as many as there is room for."""
    members = (
        member("a"),
        member("b", answer=NOT_ASKED),
        member("c", restore_remaining_records=5),
        member("d", not_ready=("x",)),
        member("e", not_live=("x",)),
        member("g", answer=SILENT),
        member("f", answer=UNREACHABLE),
    )
    order = ["f", "g", "d", "e", "c", "a", "b"]
    for rows in (1, 4, 6):
        shown = printed(report(*members), rows=rows)
        assert re.findall(r"^([a-g]) ", shown, re.MULTILINE) == order[:rows]
        assert f"and {7 - rows} more members" in shown
    for rows in (7, 8, None):
        shown = printed(report(*members), rows=rows)
        assert re.findall(r"^([a-g]) ", shown, re.MULTILINE) == [one.name for one in members]
        assert "more members" not in shown


@pytest.mark.parametrize(
    ("properties", "alike", "columns"),
    [
        (({}, {}), "protocol cooperative, no rack", []),
        (
            ({"rack": "r", "version": "1"}, {"rack": "r", "version": "1"}),
            "protocol cooperative, version 1, rack r",
            [],
        ),
        (
            ({"rack": "r"}, {"capacity": 2.0}),
            "protocol cooperative",
            ["rack", "capacity"],
        ),
        (({"kind": "eager"}, {"version": "2"}), "no rack", ["protocol", "version"]),
    ],
)
def test_equal_properties_are_told_once_and_others_have_a_column(
    properties: tuple[dict[str, Any], ...], alike: str, columns: list[str]
) -> None:
    """An unknown version or capacity of all members is not told; a missing rack is."""
    shown = printed(report(*(member(f"m{n}", **one) for n, one in enumerate(properties))))
    (line,) = re.findall(r"^all members: (.*)$", shown, re.MULTILINE)
    head = next(line for line in shown.splitlines() if line.startswith("member "))
    assert (line.rstrip(), head.split()[6:]) == (alike, columns)


def test_a_member_is_named_with_its_host_its_address_and_its_instance_id() -> None:
    """As far as its name does not say it."""
    members = (
        member("h1:6066", url="http://h1:6066/", host="h1", instance_id=None),
        member("shop-1", url="", address="10.0.0.9", host="pod", instance_id="shop-1"),
        member("m-7", url="http://h2:1", host="h2", instance_id="twice"),
    )
    lines = [line.split("   ")[0].rstrip() for line in printed(report(*members)).splitlines()]
    at = lines.index("h1:6066")
    assert lines[at : at + 5] == [
        "h1:6066",
        "shop-1",
        "pod, 10.0.0.9",
        "m-7",
        "h2:1, instance twice",
    ]


def test_a_setting_is_shown_with_its_most_common_value_first() -> None:
    """Then by value."""
    values = {"a": ("w1",), "c": ("w3", "w4"), "b": ("w2",)}
    shown = printed(report(member("x"), differences=(Difference(name="S", values=values),)))
    assert "  S: c on w3, w4; a on w1; b on w2" in shown


def colour_of(words: str, shown: str) -> str | None:
    """The colour of words on a terminal."""
    found = re.search(r"\x1b\[([0-9;]*)m" + re.escape(words), shown)
    return None if found is None else found[1].rpartition(";")[2]


GREEN, YELLOW, RED = "32", "33", "31"


def test_what_is_amiss_is_yellow_or_red_on_a_terminal() -> None:
    """What is well is green or has no colour."""
    base = report(
        member("a"), member("b", is_leaving=True), member("c", not_live=("x",)),
        state="Odd", is_settled=False,
    )  # fmt: skip
    base = replace(base, totals=replace(base.totals, answered=3, members=3, standing_partitions=2))
    shown = printed(base, colours=True)
    assert [colour_of(one, shown) for one in ("Odd", "ready", "stops", "not live")] == [
        YELLOW, GREEN, YELLOW, RED,
    ]  # fmt: skip
    assert colour_of("2 partitions not processed", shown) == YELLOW
    well = replace(base, is_settled=True, totals=replace(base.totals, standing_partitions=0))
    shown = printed(well, colours=True)
    assert colour_of("Odd", shown) == GREEN
    assert colour_of("all partitions processed", shown) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (9.94, "9.9 s"),
        (10.4, "10 s"),
        (3_599, "59 min 59 s"),
        (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_time_has_at_most_two_units(seconds: float, words: str) -> None:
    """The smaller one is rounded down."""
    assert span(seconds) == words


# -- files


def test_a_file_keeps_all_rounds_of_all_its_lines(tmp_path: Path) -> None:
    """Of two documents with two rounds each, in their order."""
    told = [RoundTold(generation=n, at=1.0) for n in range(4)]
    file = tmp_path / "looks.jsonl"
    lines = [
        encode_document(Rounds(app="shop", rounds=tuple(told[:2]))).decode(),
        dumps(report(member("x"))),
        encode_document(Rounds(app="shop", rounds=tuple(told[2:]))).decode(),
    ]
    file.write_text("\n".join(lines) + "\n")
    assert read_saved(file).rounds == tuple(told)


@pytest.mark.parametrize("other", ["a look", "rounds"])
def test_a_later_line_of_another_group_is_refused(tmp_path: Path, other: str) -> None:
    """Whatever kind of line it is."""
    first = report(member("x"))
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
    """Neither partitions nor copies, and no URL."""
    found = DescribedMember(member_id="m", client_id="c", address="a")
    assert (found.actives, found.copies, found.url, found.kind) == (
        {},
        {},
        "",
        "unknown",
    )


def test_a_member_is_at_the_url_that_answers_for_it_and_not_at_a_remembered_one() -> None:
    """It was restarted at a different address, and the coordinator hides its URL."""
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
    """Without a decision the number of tasks off their target is unknown, and not zero."""
    found = build(moving({"x": status(), "y": None}))
    assert (found.decision, found.totals.off_target) == (None, None)
    assert (found.totals.members, found.totals.answered, found.totals.ready) == (
        2,
        1,
        1,
    )


def test_a_worker_that_cannot_be_reached_is_as_lost_as_a_silent_one() -> None:
    """A group that moves waits for it; a group at rest waits for its session to end."""
    gone = Heard(answer=UNREACHABLE, detail="refused")
    base = moving({"x": status(is_rebalancing=True), "y": None})
    found = replace(base, heard={**base.heard, "http://y": gone})
    (wait,) = build(found).waits
    assert wait.text.endswith("the group waits for y (does not answer)")
    rest = build(replace(found, group=replace(found.group, state="Stable"))).waits
    assert [(one.kind, one.member) for one in rest] == [("answer", "y")]
    assert "does not answer: refused." in rest[0].text


@pytest.mark.parametrize(
    ("records", "seconds", "shown"),
    [(0, 3.0, "0"), (7, 0.0, "7"), (7, 90.0, "7 (1 min 30 s)"), (None, 3.0, "-")],
)
def test_a_lag_in_time_is_shown_beside_missing_records_only(
    records: int | None, seconds: float, shown: str
) -> None:
    """A copy that lacks nothing is not late, whenever it caught up."""
    one = member("x", standby_lag=records, standby_lag_s=seconds, lag=5)
    line = next(line for line in printed(report(one)).splitlines() if line.startswith("x "))
    assert re.split(r" {2,}", line.strip())[-1] == shown
