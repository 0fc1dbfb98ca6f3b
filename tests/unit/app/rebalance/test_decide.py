"""A decided round as a whole: the plan's inputs, each answer, and the record for the next round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner.app.rebalance import answers as answering
from faust_assigner.app.rebalance import leader, member_claims
from faust_assigner.app.rebalance.doubts import MOST_HELD_UP
from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.answer import Answer, decode_answer, read_directory
from faust_assigner.wire.bounded import LARGEST_INT
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import STOCK, VERSION, JoinData, encode_join
from faust_assigner.wire.outcome import Outcome

LOG, RATES, LEADER = "shop-totals-changelog", "shop-rates-changelog", "shop-__assignor-__leader"
COUNTS = {"orders": 4, LOG: 4, RATES: 2, LEADER: 1}
TOPICS = (*COUNTS, "gone")
LOGS = frozenset({LOG, RATES})
TABLES = TableFacts(LOGS, {RATES: False})
POLICY = WarmupPolicy(
    acceptable_recovery_lag=7, acceptable_from_nothing=5, max_per_member=2, max_per_group=3
)


def said(url: str, *, version: int = 4, noise: bool = False, **data: Any) -> Any:
    """Return a member's metadata as aiokafka decodes it."""
    told = JoinData(url, changelogs=LOGS, globals_={RATES: False}, **{"cooperative": True, **data})
    packed = b"noise" if noise else encode_join(told, TOPICS)
    return SimpleNamespace(version=version, subscription=list(TOPICS), user_data=packed)


def owns(*numbers: int) -> dict[str, Any]:
    """Return claims on the task topics."""
    return {"orders": list(numbers), LOG: list(numbers)}


#: ``a`` leads, ``b`` leaves, ``c`` is new, and ``d``'s metadata does not decode.
GROUP = {
    "a": said(
        "http://a",
        version=3,
        actives={**owns(0, 1), RATES: [0], LEADER: [0]},
        generation=7,
        instance_id="one",
        group_ids={"orders": 4},
    ),
    "b": said("http://b", actives=owns(2, 3), generation=7, leaves=True, software="0.9"),
    "c": said("http://c", software="1.1", cooperative=False),
    "d": said("http://d", noise=True),
}


def view(**more: Any) -> LeaderView:
    """Return the leader's view of generation 8."""
    settled: dict[str, Any] = {
        "generation": 8,
        "last": Directory(("http://a", "http://b", "http://x"), {}),
        "last_generation": 7,
        "weights": None,
        "member_id": "a",
        "now": 1_000.0,
    }
    return LeaderView("shop", TABLES, 1, **settled | more)


def decided(group: Mapping[str, Any] = GROUP, **more: Any) -> Round:
    """Decide the round of ``group``."""
    return decide(view(**more), lambda topic: range(COUNTS.get(topic, 0)), group)


def answers(found: Round) -> dict[str, Answer]:
    """Return the answers by member."""
    return {m: decode_answer(answer.user_data) for m, answer in found.answers.items()}


def test_the_inputs_of_a_decision_are_those_of_all_members() -> None:
    """A leaving member gets no partitions and stays known; a refused member is stateless."""
    asked: list[bool] = []

    def warmups(is_cooperative: bool) -> WarmupPolicy:
        asked.append(is_cooperative)
        return POLICY

    found = decided(warmups=warmups)
    inputs = found.inputs
    assert asked == [False]
    assert [m.member_id for m in inputs.members] == ["a", "c", "d"]
    solve_ms, refused = inputs.solve_ms, dict(inputs.refused)
    assert 0.0 < solve_ms < 60_000.0
    assert list(refused) == ["d"]
    assert refused["d"].endswith("it counts as stateless")
    assert replace(inputs, members=(), solve_ms=0.0, refused={}) == DecisionInputs(
        "shop",
        8,
        (),
        COUNTS,
        1,
        frozenset({LOG}),
        previous_ids={"orders": 4},
        software={"a": "", "b": "0.9", "c": "1.1", "d": ""},
        weightless=frozenset({LEADER}),
        warmups=POLICY,
        joined=frozenset({"http://c", ""}),
        left=frozenset({"http://x"}),
        trigger="join+leave",
        urls={"a": "http://a", "b": "http://b", "c": "http://c", "d": ""},
        leaving=frozenset({"b"}),
        last=view().last,
        last_generation=7,
    )
    assert found.missing == ("gone",)
    assert found.refused == refused


@pytest.mark.parametrize(
    ("known", "last", "is_kept"), [(None, 7, True), (6, 7, True), (7, 7, False), (8, 7, True)]
)
def test_the_last_directory_is_an_input_where_another_member_led_the_last_round(
    known: int | None, last: int, is_kept: bool
) -> None:
    """Else the ledger already has the leader's own last decision."""
    before = None
    if known is not None:
        before = replace(decided().inputs, generation=known)
    inputs = decided(before=before, last_generation=last).inputs
    assert (inputs.last.urls, inputs.last_generation) == (
        (("http://a", "http://b", "http://x"), 7) if is_kept else ((), -1)
    )


@pytest.mark.parametrize(
    ("last", "generations", "former", "formed"),
    [
        (-1, (-1, -1), (-1, -1), 0),
        (4, (2, -1), (-1, -1), 5),
        (4, (9, 3), (-1, 5), 10),
        (4, (3, 9), (-1, -1), 10),
        (4, (3, -1), (-1, 12), 13),
        (LARGEST_INT - 1, (3, -1), (-1, -1), LARGEST_INT - 1),
    ],
)
def test_without_kafkas_number_a_round_is_later_than_all_that_is_known(
    last: int, generations: tuple[int, int], former: tuple[int, int], formed: int
) -> None:
    """The round follows the leader's last round, all claims and all claims of former processes."""
    group = {
        name: said(
            f"http://{name}",
            generation=generation,
            former_actives=owns(0) if old >= 0 else {},
            former_generation=old,
        )
        for name, generation, old in zip("ab", generations, former, strict=True)
    }
    assert decided(group, generation=-1, last_generation=last).inputs.generation == formed


def test_every_member_has_its_own_answer_and_the_protocol_of_the_oldest() -> None:
    """All partitions of a global table are active; ``writes`` has the member's own."""
    found = decided(
        {m: GROUP[m] for m in "abc"}, names_standbys=True, first=Outcome(trigger="subscription")
    )
    told = answers(found)
    assert {m: answer.version for m, answer in found.answers.items()} == dict.fromkeys("abc", 3)
    assert {m: sorted(told[m].actives) for m in told} == {
        "a": sorted(COUNTS),
        "b": [],
        "c": sorted({"orders", LOG, RATES}),
    }
    for topic in ("orders", LOG):
        held = sorted([*told["a"].actives[topic], *told["c"].actives[topic]])
        assert held == [0, 1, 2, 3]
    assert {m: {t: list(n) for t, n in told[m].writes.items()} for m in told} == {
        "a": {RATES: [0]},
        "b": {},
        "c": {RATES: [1]},
    }
    for m, other in (("a", [1]), ("c", [0])):
        assert list(told[m].actives[RATES]) == [0, 1]
        assert list(told[m].standbys[RATES]) == other
        assert list(told[m].standbys[LOG]) == [p for p in range(4) if p not in told[m].actives[LOG]]
    for m, answer in told.items():
        assert (answer.url, answer.generation, answer.is_uniform) == (f"http://{m}", 8, True)
        assert (answer.among, answer.promised, answer.group_ids["orders"]) == (0, {}, 4)
        assert answer.outcome is not None
        assert (answer.outcome.leads, answer.outcome.members) == (m == "a", 2)
        assert (answer.outcome.trigger, answer.outcome.completes) == ("join+leave", "subscription")
        assert answer.decision_id == told["a"].decision_id != ""
    directory = read_directory(told["b"].directory)
    assert (set(directory.urls), directory.globals_) == ({"http://a", "http://c"}, {RATES})
    assert directory.changelogs == LOGS
    assert dict(zip(directory.urls, directory.instances, strict=True)) == {
        "http://a": "one",
        "http://c": "",
    }
    assert [directory.standby_urls(LOG, p) for p in range(4)] == [
        ("http://c" if p in told["a"].actives[LOG] else "http://a",) for p in range(4)
    ]
    assert found.inputs.completes == "subscription"


@pytest.mark.parametrize(("versions", "lowest"), [((5, 9), 4), ((-1, 3), 0), ((2, 1), 1)])
def test_an_answers_protocol_version_is_the_lowest_between_none_and_ours(
    versions: tuple[int, int], lowest: int
) -> None:
    """A member may send any number."""
    group = {
        name: said(f"http://{name}", version=version)
        for name, version in zip("ab", versions, strict=True)
    }
    assert {answer.version for answer in decided(group).answers.values()} == {lowest}


HOLDING = {
    "a": said("http://a", actives=owns(0, 1, 2, 3), generation=7, holds=True),
    "b": said("http://b", actives={RATES: [1]}, generation=7, holds=True, leaves=True),
    "c": said("http://c", standbys={LOG: [2, 3]}, generation=7),
}


def test_a_round_that_waits_for_owners_is_recorded_with_its_promises() -> None:
    """Truthful members claim the record in the next round; ``among`` counts the staying members."""
    found = decided(HOLDING)
    told = answers(found)
    assert found.follows
    assert {m: answer.among for m, answer in told.items()} == {"a": 2, "b": 2, "c": 2}
    promised = {t: list(n) for t, n in told["c"].promised.items()}
    assert promised["orders"] == promised[LOG]
    assert len(promised[LOG]) == 2
    assert (told["a"].promised, told["b"].promised) == ({}, {})
    assert found.record.generation == 8
    for m, given in found.record.given.items():
        assert given.promised == (promised if m == "c" else {})
        assert (given.among, given.generation, given.awaited) == (2, 8, {})
        assert {t: list(n) for t, n in given.actives.items()} == {
            t: list(n) for t, n in found.placement.actives.get(m, {}).items()
        }
        assert {t: list(n) for t, n in given.standbys.items()} == {
            t: list(n) for t, n in found.placement.standbys.get(m, {}).items()
        }
    assert found.record.given.keys() == {"a", "b", "c"}
    assert found.inputs.follows


def test_a_round_without_a_second_one_is_recorded_among_none() -> None:
    """The next round makes a new plan."""
    found = decided({m: GROUP[m] for m in "ac"})
    assert not found.follows
    assert {given.among for given in found.record.given.values()} == {0}


def test_the_awaited_standbys_are_in_the_answers_and_in_the_record() -> None:
    """A member that claims its awaited standbys is truthful."""
    group = {
        "a": said(
            "http://a",
            actives=owns(0, 1, 2, 3),
            generation=7,
            positions={LOG: dict.fromkeys(range(4), 900)},
        ),
        "c": said("http://c", positions={}),
    }
    found = decided(group, warmups=lambda _: POLICY)
    told = answers(found)
    awaited = {t: list(n) for t, n in told["c"].awaited.items()}
    assert {m: dict(topics) for m, topics in found.awaited.items()} == {"c": awaited}
    assert len(awaited[LOG]) == 2
    assert told["a"].awaited == {}
    assert {m: given.awaited for m, given in found.record.given.items()} == {
        "a": {},
        "c": found.awaited["c"],
    }


@pytest.mark.parametrize(
    ("versions", "is_uniform", "version"),
    [
        ({"a": VERSION + 2, "b": VERSION + 1, "c": VERSION + 3}, True, VERSION + 1),
        ({"a": VERSION + 2, "b": STOCK, "c": VERSION + 1}, False, VERSION + 1),
        (dict.fromkeys("abc", STOCK), False, VERSION),
    ],
)
def test_a_group_with_a_stock_member_is_not_uniform_and_has_the_oldest_of_our_versions(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, int], is_uniform: bool, version: int
) -> None:
    """A leaving member with our assignor reads its answer as well."""
    made: list[dict[str, Any]] = []
    read = leader.read_members

    class Writer(answering.AnswerWriter):
        """Note the options."""

        def __init__(self, *args: Any, **options: Any) -> None:
            made.append(options)
            super().__init__(*args, **options)

    def dated(metadata: Any) -> Any:
        return tuple(
            replace(one, data=replace(one.data, version=versions[one.member_id]))
            for one in read(metadata)
        )

    monkeypatch.setattr(answering, "AnswerWriter", Writer)
    monkeypatch.setattr(leader, "read_members", dated)
    decided({m: GROUP[m] for m in "abc"})
    assert [(one["is_uniform"], one["version"]) for one in made] == [(is_uniform, version)]


def test_a_record_of_exactly_the_limit_keeps_the_directory() -> None:
    """A lower limit drops first the standbys' holders, then the owners, and reports the size."""

    def size_of(found: Round) -> int:
        return sum(
            answering.record_bytes(one, found.answers[one.member_id]) for one in found.member_claims
        )

    full = size_of(decided(names_standbys=True))
    plain = size_of(decided())
    assert plain < full
    for limit, has_standbys, has_owners in (
        (full, True, True),
        (full - 1, False, True),
        (plain, False, True),
        (plain - 1, False, False),
        (10, False, False),
    ):
        found = decided(names_standbys=True, record_bytes=limit)
        directory = read_directory(answers(found)["a"].directory)
        assert (bool(directory.standbys), bool(directory.owners)) == (has_standbys, has_owners)
        assert (found.oversize > limit) is not has_owners
        assert (found.oversize == 0) is has_owners


@pytest.mark.parametrize("warmups", [None, POLICY])
def test_a_second_round_with_warm_ups_adds_those_of_the_next_round(
    monkeypatch: pytest.MonkeyPatch, warmups: WarmupPolicy | None
) -> None:
    """This needs the first round's target; a failure keeps the plan unchanged."""
    calls: list[int] = []
    made: Any = SimpleNamespace(landed=True)

    def with_next_warmups(found: Any, members: Any, plan: Any) -> Any:
        calls.append(len(members))
        if made.fails:
            raise ZeroDivisionError
        return found

    monkeypatch.setattr(leader, "with_next_warmups", with_next_warmups)
    monkeypatch.setattr(leader, "landed", lambda anew, said: replace(anew) if made.landed else anew)
    for made.landed, made.fails in ((True, False), (True, True), (False, False)):
        calls.clear()
        found = decided({m: GROUP[m] for m in "ac"}, warmups=lambda _: warmups)
        assert calls == ([2] if made.landed and warmups else [])
        assert found.failure is None
        assert np.unique(found.placement.owners["orders"]).tolist() == [0, 1]


def test_a_failing_planner_deals_with_the_ids_and_tables_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Transactional ids stay, and only changelogs have copies; the outcome has no plan."""
    error = ZeroDivisionError("a bug")

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(leader, "plan", broken)
    found = decided({m: GROUP[m] for m in "ac"})
    assert (found.plan, found.failure) == (None, error)
    assert found.placement.group_ids == {"orders": 4, LOG: 4, RATES: 6, LEADER: 5}
    assert {t for topics in found.placement.standbys.values() for t in topics} == {LOG}
    assert (found.outcome.is_planned, found.outcome.members) == (False, 2)


@pytest.mark.parametrize(
    ("forming", "claimed", "dated"), [(0, 3, -1), (1, 0, 0), (5, 4, 4), (-1, 3, 3)]
)
def test_claims_are_dated_before_kafkas_number_of_the_round(
    forming: int, claimed: int, dated: int
) -> None:
    """This includes Kafka's first generation; without a number a claim keeps its own date."""
    group = {"a": said("http://a", actives=owns(0), generation=claimed)}
    found = decided(group, generation=forming, last_generation=forming - 1 if forming > 0 else -1)
    assert [member.generation for member in found.inputs.members] == [dated]


def test_members_beyond_the_rounds_budget_are_refused_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The budget counts with and without other refusals; each refusal has its own reason."""
    monkeypatch.setattr(member_claims, "LEAST_BUDGET", 0)
    many = {t: list(range(n)) for t, n in COUNTS.items()}
    # Each claim has its own runs: seven kinds of four topics exceed eight times the total.
    greedy = said(
        "http://g",
        actives=many,
        standbys=many,
        on_disk=many,
        former_actives=many,
        former_generation=3,
        awaited=many,
        overdue=many,
        promised=many,
        among=9,
        generation=7,
    )
    group = {"a": GROUP["a"], "g": greedy, "h": greedy}
    found = decided(group)
    assert list(found.inputs.refused) == ["h"]
    assert "exceeds the round's limit" in found.inputs.refused["h"]
    found = decided({**group, "d": GROUP["d"]})
    assert sorted(found.inputs.refused) == ["d", "h"]
    assert "exceeds" not in found.inputs.refused["d"]


@pytest.mark.parametrize(
    ("offers", "leaves", "is_cooperative"),
    [
        ((True, True), False, True),
        ((True, False), False, False),
        ((True, False), True, False),
        ((False, True), True, False),
        ((True, True), True, True),
    ],
)
def test_the_warm_up_policy_is_asked_whether_all_members_are_cooperative(
    offers: tuple[bool, bool], leaves: bool, is_cooperative: bool
) -> None:
    """A leaving member joins the round as well and may make the round eager."""
    asked: list[bool] = []
    group = {
        "a": said("http://a", cooperative=offers[0]),
        "b": said("http://b", cooperative=offers[1], leaves=leaves),
    }
    decided(group, warmups=asked.append)
    assert asked == [is_cooperative]


@pytest.mark.parametrize(
    ("generation", "url", "last", "is_new"),
    [
        (-1, "http://n", ("http://a",), True),
        (-1, "http://a", ("http://a",), True),
        (7, "http://n", ("http://a",), True),
        (7, "http://a", ("http://a",), False),
        (7, "http://n", (), False),
        (0, "http://n", (), False),
        (-1, "http://n", (), True),
    ],
)
def test_a_member_is_new_without_an_assignment_or_outside_of_the_last_directory(
    generation: int, url: str, last: tuple[str, ...], is_new: bool
) -> None:
    """Without a directory only the missing assignment shows a new member."""
    group = {"n": said(url, actives=owns(0) if generation >= 0 else {}, generation=generation)}
    inputs = decided(group, last=Directory(last, {})).inputs
    assert inputs.joined == ({url} if is_new else set())
    assert inputs.left == set(last) - {url}


def test_the_time_of_the_planner_is_told_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time covers the plan and the step."""
    times = iter([10.0, 10.25])
    monkeypatch.setattr(leader, "perf_counter", lambda: next(times))
    assert decided({"a": GROUP["a"]}).inputs.solve_ms == 250.0


def test_the_next_round_is_planned_once_where_no_second_round_follows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With warm-ups the plan includes the next round; a failed plan does not affect the round."""
    asked: list[Any] = []

    def awaited(found: Any, members: Any, plan: Any) -> dict[str, Any]:
        asked.append([one.member_id for one in members])
        return {"c": {LOG: [2]}}

    monkeypatch.setattr(leader, "awaited", awaited)
    found = decided({m: GROUP[m] for m in "ac"})
    assert (asked, found.awaited) == ([["a", "c"]], {"c": {LOG: [2]}})
    assert found.record.given["c"].awaited == {LOG: [2]}
    asked.clear()
    assert decided(HOLDING).follows
    decided({m: GROUP[m] for m in "ac"}, warmups=lambda _: POLICY)
    assert asked == []
    monkeypatch.setattr(leader, "awaited", None)
    assert decided({m: GROUP[m] for m in "ac"}).awaited == {}
    assert "no member requests it" in caplog.text


def test_a_static_member_is_in_the_directory_by_its_name_from_its_first_round_on() -> None:
    """The member may restart before the next round."""
    found = decided({"a": GROUP["a"], "n": said("http://n", instance_id="two")})
    directory = read_directory(answers(found)["a"].directory)
    assert dict(zip(directory.urls, directory.instances, strict=True)) == {
        "http://a": "one",
        "http://n": "two",
    }


OLD = {
    "a": said("http://a", actives=owns(0, 1, 2, 3), generation=6, holds=True),
    "c": said("http://c", standbys={LOG: [0]}, generation=7),
}


def test_the_members_that_delay_a_round_are_counted_in_a_row() -> None:
    """After ten rounds the member's claims are refused, and the refusal names the member."""
    found = decided(OLD, held_up={"a": 3, "z": 2})
    assert (found.follows, found.held_up, dict(found.refused)) == (True, {"a": 4}, {})
    found = decided(OLD, held_up={"a": MOST_HELD_UP})
    assert (found.follows, found.held_up, list(found.refused)) == (False, {}, ["a"])
    assert decided({m: GROUP[m] for m in "ac"}, held_up={"a": 3}).held_up == {}


def test_where_all_members_leave_their_partitions_stay() -> None:
    """No member remains to take over the partitions."""
    group = {
        m: said(f"http://{m}", actives=owns(*n), generation=7, leaves=True)
        for m, n in (("a", (0, 1)), ("b", (2, 3)))
    }
    found = decided(group)
    assert [m.member_id for m in found.inputs.members] == ["a", "b"]
    assert found.inputs.leaving == frozenset()
    assert {m: topics["orders"] for m, topics in found.placement.actives.items()} == {
        "a": [0, 1],
        "b": [2, 3],
    }


def test_a_group_without_the_leader_topic_has_none_without_weight() -> None:
    """Topics unknown to the cluster are left out and listed in order."""
    found = decide(view(), lambda t: range(4 if t == "orders" else 0), {"a": GROUP["a"]})
    assert found.inputs.weightless == frozenset()
    assert found.inputs.partitions == {"orders": 4}
    assert found.missing == ("gone", LEADER, RATES, LOG)
