"""PartitionAssignor at a join and at an answer: what it passes on, and what its parts share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.types import TP

from faust_assigner.app import assignor as module
from faust_assigner.app.assignor import PartitionAssignor
from faust_assigner.app.rebalance import member
from faust_assigner.app.rebalance.memory_file import NAME, FormerPartitions
from faust_assigner.wire.answer import Answer
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs
from tests.support.faust_group import make_app
from tests.support.shop import LOG, TOPICS, assignor_of, group


def test_an_app_without_our_fixup_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of a test, which creates no consumers, is not."""
    warned: list[Any] = []
    monkeypatch.setattr(module, "warn_without_fixup", warned.append)
    app = make_app("http://w")
    PartitionAssignor(app)
    PartitionAssignor(SimpleNamespace())  # type: ignore[arg-type]
    assert warned == [app]


def test_a_memory_that_cannot_be_read_is_counted_with_the_assignors_problems(
    tmp_path: Path,
) -> None:
    """The metrics of the worker read these counters."""
    app = make_app("http://w", datadir=str(tmp_path))
    Path(app.conf.appdir).mkdir(parents=True)
    (Path(app.conf.appdir) / NAME).write_text("noise")
    app.assignor.metadata(TOPICS)
    assert dict(app.assignor.counters) == {"memories_ignored": 1}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, TypeError])
def test_no_error_of_an_answer_is_raised(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """After one, aiokafka would leave the worker alive without partitions."""
    assignor = assignor_of(group(1))
    for one in (module, member):
        monkeypatch.setattr(one, "decode_answer", Mock(side_effect=error))
    answer = ConsumerProtocolMemberAssignment(4, [("orders", [2])], b"")
    assert assignor.is_followed(answer) is False
    assignor.on_assignment(answer)
    assert assignor.assigned_actives() == {TP("orders", 2)}
    assert assignor.counters["unreadable_answers"] == 1


def test_metadata_repeat_the_stock_format_only_for_a_group_with_stock_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first answer it is not known who the members are."""
    said: list[Any] = []

    def user_data(data: JoinData, topics: Any, *, is_uniform: bool) -> bytes:
        said.append((data, topics, is_uniform))
        return b"packed"

    monkeypatch.setattr(module, "user_data", user_data)
    assignor = make_app("http://w").assignor
    for is_uniform in (None, True, False):
        if is_uniform is not None:
            answer = Answer({}, {}, is_uniform=is_uniform)
            assignor._memory = member.Memory(answer, 3)
        made = assignor.metadata({"b", "a"})
        assert said.pop() == (assignor.joined_with, ["a", "b"], is_uniform is True)
        assert (made.version, made.subscription, made.user_data) == (4, ["a", "b"], b"packed")


def test_the_files_are_looked_at_for_the_sorted_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The look reads what the join will say, with all flags of the member."""
    said: list[Any] = []
    monkeypatch.setattr(
        module, "collect_join_data", lambda *given, **flags: said.append((given, flags))
    )
    assignor = make_app("http://w").assignor
    assignor.overdue = frozenset({TP(LOG, 3), TP(LOG, 1)})
    for name in ("holds", "leaves", "cooperative"):
        setattr(assignor, name, True)
        assignor.cache_file_offsets({"b", "c", "a"})
        given, flags = said.pop()
        assert given[:2] == (assignor.app, assignor._memory)
        assert given[3] == ["a", "b", "c"]
        assert given[4:] == (assignor._memory_file.former, {LOG: [1, 3]})
        assert flags == {
            name: getattr(assignor, name) for name in ("holds", "leaves", "cooperative")
        }


@pytest.mark.parametrize("is_other", [True, False])
def test_a_first_answer_is_compared_with_what_this_member_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_other: bool
) -> None:
    """Its given topics are those of actives and standbys; a second answer is not compared.

    The file keeps the offers that the leader knows.
    """
    app = make_app("http://w", datadir=str(tmp_path))
    Path(app.conf.appdir).mkdir(parents=True)
    assignor, asked = app.assignor, list[Any]()

    def has_other_offers(*given: Any, **more: Any) -> bool:
        asked.append(
            (
                given,
                {
                    name: value if name == "generation" else set(value)
                    for name, value in more.items()
                },
            )
        )
        return is_other

    monkeypatch.setattr(module, "has_other_offers", has_other_offers)
    assignor._memory_file._former = FormerPartitions(4, {}, {"capacity": 7.5})
    assignor.metadata(["orders", LOG])
    claimed = assignor.joined_with
    answer = Answer(
        {"orders": Runs.of([0])},
        {LOG: Runs.of([1])},
        group_ids={"orders": 7, "more": 9},
        generation=6,
    )
    monkeypatch.setattr(member, "decode_answer", lambda _: answer)
    given = ConsumerProtocolMemberAssignment(4, [("orders", [0]), (LOG, [1])], b"")
    assignor.on_assignment(given)
    assert asked == [
        (
            (claimed, sorted(["orders", LOG]), assignor._memory_file.former()),
            {"generation": 6, "planned": {"orders", "more"}, "given": {"orders", LOG}},
        )
    ]
    assert assignor.is_unheard is is_other
    kept = PartitionAssignor(app)._memory_file.former()
    assert kept.offers["capacity"] == (7.5 if is_other else 1.0)
    assignor.on_assignment(given)
    assert (len(asked), assignor.is_unheard) == (1, False)
