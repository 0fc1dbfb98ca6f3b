"""The problems of a round: each is logged with its extent and counted in its own unit."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance import findings
from faust_assigner.app.rebalance.findings import MOST_NAMED, log_round, own_assignment_line
from faust_assigner.app.rebalance.leader_round import Round
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs

OWN = TableFacts(frozenset({"log"}))
COUNTERS = (
    "fallbacks",
    "missing_topics",
    "shrunk_topics",
    "disbelieved_positions",
    "duplicate_urls",
    "unknown_tables",
    "directories_left_out",
    "refused_members",
)


@pytest.fixture(autouse=True)
def _one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the leader's line of the round, which has its own test."""
    monkeypatch.setattr(findings, "round_line", lambda found: "a round")
    monkeypatch.setattr(findings, "eager_members_line", lambda found: None)


def said(caplog: Any, **problems: Any) -> tuple[dict[str, int], list[str]]:
    """Return the counters and warnings of a round with these problems."""
    quiet = {
        "failure": None,
        "refused": {},
        "missing": (),
        "claimed": SimpleNamespace(beyond={}),
        "plan": SimpleNamespace(warmup_plan=None),
        "shared_urls": {},
        "tables": OWN,
        "oversize": 0,
        "inputs": SimpleNamespace(generation=3),
    }
    before = Counter(dict.fromkeys((*COUNTERS, "assignments"), 100))
    counters = before.copy()
    caplog.set_level("INFO")
    log_round(SimpleNamespace(**{**quiet, **problems}), counters, OWN)  # type: ignore[arg-type]
    assert caplog.messages[0] == "a round"
    counters.subtract(before)
    assert counters.pop("assignments") == 1
    return dict(+counters), caplog.messages[1:]


def test_a_round_without_a_problem_is_one_line(caplog: Any) -> None:
    """Only the counter of rounds increases."""
    assert said(caplog) == ({}, [])


@pytest.mark.parametrize(
    ("problems", "counter", "count", "text"),
    [
        ({"failure": ValueError("a bug")}, "fallbacks", 1, "The planner failed"),
        (
            {"missing": ("a", "b")},
            "missing_topics",
            2,
            "Topics without partitions are left out: a, b",
        ),
        (
            {"claimed": SimpleNamespace(beyond={"b": 3, "a": 1})},
            "shrunk_topics",
            2,
            "created again: a (1), b (3)",
        ),
        (
            {"plan": SimpleNamespace(warmup_plan=SimpleNamespace(disbelieved={"b": 3, "a": 1}))},
            "disbelieved_positions",
            4,
            "created again: a (1), b (3)",
        ),
        (
            {"shared_urls": {"http://w": ["m1", "m2"]}},
            "duplicate_urls",
            1,
            "2 members report the same URL http://w",
        ),
        (
            {"tables": TableFacts(frozenset({"log", "new", "newer"}))},
            "unknown_tables",
            2,
            "for example during a rolling deploy: new, newer",
        ),
        ({"oversize": 70_000}, "directories_left_out", 1, "would have 70000 bytes or more"),
        ({"refused": {"m1": "a lie"}}, "refused_members", 1, "of member m1 are refused: a lie"),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value else "",
)
def test_each_problem_is_counted_in_its_unit(
    caplog: Any, problems: dict[str, Any], counter: str, count: int, text: str
) -> None:
    """The units are topics, positions, URLs, changelogs, rounds and members."""
    counters, lines = said(caplog, **problems)
    assert counters == {counter: count}
    assert len(lines) == 1
    assert text in lines[0]


def test_urls_beyond_the_first_are_counted_and_not_named(caplog: Any) -> None:
    """A thousand members behind a proxy make a single line; a thousand pairs make twenty."""
    shared = {f"http://{number:03}": ["a", "b"] for number in reversed(range(MOST_NAMED + 5))}
    counters, lines = said(caplog, shared_urls=shared)
    assert (counters, len(lines)) == ({"duplicate_urls": MOST_NAMED + 5}, MOST_NAMED)
    assert [f"URL http://{n:03};" in line for n, line in enumerate(lines)] == [True] * MOST_NAMED


def test_members_without_a_url_share_none() -> None:
    """A member with undecodable metadata has no URL and gets no requests."""
    claims = [
        SimpleNamespace(member_id=name, data=JoinData(url))
        for name, url in (
            ("a", "http://w"),
            ("b", ""),
            ("c", "http://w"),
            ("d", ""),
            ("e", "http://x"),
        )
    ]
    found: Any = Round.shared_urls
    assert found.fget(SimpleNamespace(member_claims=claims)) == {"http://w": ["a", "c"]}


def test_a_global_table_is_neither_warm_nor_cold() -> None:
    """Each member has the whole table and restores it before any flow starts."""
    memory = Memory(None, 3, {"log": Runs.of([0]), "prices": Runs.of(range(5))})
    own = TableFacts(frozenset({"log", "prices"}), {"prices": True})
    line = own_assignment_line(memory, JoinData("http://w", {"log": Runs.of([0])}), own)
    assert line == (
        "Generation 3: 6 active and 0 standby partitions; of the active changelogs 1 warm, 0 cold"
    )


def test_a_changelog_is_warm_where_any_claim_has_it() -> None:
    """An owned, copied or stored partition is warm; two kinds of claims count once."""
    memory = Memory(None, 5, {"log": Runs.of(range(6))}, {"log": Runs.of([7, 8])})
    claimed = JoinData(
        "http://w", {"log": Runs.of([0, 1])}, {"log": Runs.of([1, 2])}, {"log": Runs.of([2, 3, 9])}
    )
    assert own_assignment_line(memory, claimed, OWN) == (
        "Generation 5: 6 active and 2 standby partitions; of the active changelogs 4 warm, 2 cold"
    )
