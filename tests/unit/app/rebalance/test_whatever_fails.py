"""A round survives failures of planner, sensors, observers and members, and reports them."""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

import faust_assigner
from faust_assigner.app.rebalance import answers, leader
from faust_assigner.planner import Plan
from tests.support.faust_group import cluster_of
from tests.support.shop import LOG, TOPICS, assignor_of, group
from tests.support.waiting import PATIENCE_S


def test_sensors_see_every_round() -> None:
    """Start and completion share a state; a failing planner causes an error."""
    found = group(2)
    sensor = MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    found.rebalance("m0")
    sensor.on_assignment_start.assert_called_once_with(assignor_of(found))
    state = sensor.on_assignment_start.return_value
    sensor.on_assignment_completed.assert_called_once_with(assignor_of(found), state)
    sensor.on_assignment_error.assert_not_called()


def test_a_tracer_gets_a_span_like_stocks() -> None:
    """The span has operation, host name, default tags and the assignment."""
    found = group(2)
    tracer = MagicMock(name="tracer")
    found.apps["m0"].tracer = tracer
    found.rebalance("m0")
    (call,) = tracer.get_tracer.return_value.start_span.call_args_list
    assert call.kwargs["operation_name"] == "coordinator_assignment"
    span = tracer.get_tracer.return_value.start_span.return_value
    tags = [call.args[0] for call in span.set_tag.call_args_list]
    assert tags == ["faust_app", "faust_id", "assignment"]


def broken(*_: Any, **__: Any) -> Any:
    """Raise an unexpected error."""
    raise ZeroDivisionError("broken on purpose")


def test_a_failing_planner_costs_stickiness_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Partitions are dealt out with standbys; the error is logged, counted and sent to sensors."""
    found = group(3)
    monkeypatch.setattr(leader, "plan", broken)
    sensor = MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))
    assert found.actives("orders") == found.actives(LOG)
    assert all(len(m) == 1 for m in found.standbys(LOG).values())
    assert assignor_of(found).counters["fallbacks"] == 1
    assert "broken on purpose" in caplog.text
    assert isinstance(sensor.on_assignment_error.call_args.args[2], ZeroDivisionError)
    sensor.on_assignment_completed.assert_not_called()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (leader, "read_members"),
        (leader, "agreed"),
        (leader, "claims_of"),
        (answers, "directory_of"),
        (answers, "AnswerWriter"),
    ],
)
def test_whatever_breaks_in_the_leader_the_group_has_an_answer(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """assign() never raises, else no worker would get partitions; sensors get the error."""
    found = group(3)
    monkeypatch.setattr(module, name, broken)
    sensor = MagicMock(name="sensor")
    found.apps["m0"].sensors.add(sensor)
    found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))
    assert assignor_of(found).counters["fallbacks"] == 1
    assert isinstance(sensor.on_assignment_error.call_args.args[2], ZeroDivisionError)
    sensor.on_assignment_completed.assert_not_called()
    monkeypatch.undo()
    found.rebalance("m0")
    assert sorted(found.actives("orders")) == list(range(6))


def test_failing_sensors_tracer_weights_and_observers_stop_nothing() -> None:
    """Plugins cannot prevent the group's assignment."""
    found = group(2)
    app = found.apps["m0"]
    app.sensors.add(MagicMock(on_assignment_start=broken, on_assignment_completed=broken))
    app.tracer = MagicMock(get_tracer=broken)
    app.assignor.weights_provider = broken
    app.assignor.on_decision(broken)
    found.rebalance("m0")
    app.assignor.decisions.join()
    assert len(found.actives("orders")) == 6
    counters = app.assignor.counters
    assert (counters["sensor_failures"], counters["weights_failures"]) == (2, 1)
    assert app.assignor.decisions.failed == 1


def test_observers_are_told_inputs_and_plan() -> None:
    """The inputs suffice to compute the same plan again."""
    found = group(3)
    told: list[tuple[Any, Plan]] = []
    assignor_of(found).on_decision(lambda inputs, made: told.append((inputs, made)))
    found.rebalance("m0")
    assignor_of(found).decisions.join()
    ((inputs, made),) = told
    again = faust_assigner.plan(
        inputs.members,
        inputs.partitions,
        replicas=inputs.replicas,
        changelogs=inputs.changelogs,
        weights=inputs.weights,
        previous_ids=inputs.previous_ids,
    )
    assert {m: again.actives(m) for m in again.member_ids} == {
        m: made.actives(m) for m in made.member_ids
    }
    assert (inputs.group_id, inputs.generation) == ("shop", 1)
    assert inputs.software == dict.fromkeys(found.apps, faust_assigner.__version__)
    assert inputs.solve_ms > 0


def test_slow_observers_lose_decisions_instead_of_holding_the_group() -> None:
    """Decisions beyond the short queue are dropped and counted."""
    import threading

    found = group(1)
    gate = threading.Event()
    assignor_of(found).on_decision(lambda *_: gate.wait(PATIENCE_S))
    for _ in range(15):
        found.rebalance("m0")
    dropped = assignor_of(found).decisions.dropped
    gate.set()
    assignor_of(found).decisions.join()
    assert dropped >= 6


def test_weights_are_asked_for_at_every_round() -> None:
    """The provider's weights reach the planner."""
    found = group(2)
    assignor_of(found).weights_provider = lambda: {("orders", 0): 3.0}
    found.rebalance("m0")
    assert assignor_of(found).last_round.inputs.weights == {("orders", 0): 3.0}  # type: ignore[union-attr]


def test_a_bad_member_is_named_once_per_round_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the reason without the bytes; the member counts as stateless."""
    found = group(2)
    metadata = {
        m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in found.join_bytes().items()
    }
    metadata["bad"] = ConsumerProtocolMemberMetadata(4, list(TOPICS), b"canary-secret" * 3)
    caplog.clear()
    answers = assignor_of(found).assign(cluster_of(TOPICS), metadata)
    lines = [r.getMessage() for r in caplog.records if "bad" in r.getMessage()]
    assert len(lines) == 1
    assert "stateless" in lines[0]
    assert "not JSON" in lines[0]
    assert "canary" not in caplog.text
    assert assignor_of(found).counters["refused_members"] == 1
    assert len(dict(answers["bad"].assignment)["orders"]) == 2


def test_a_crowd_of_bad_members_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The first twenty members are named, the rest are counted."""
    found = group(1)
    metadata = {
        f"bad{i:03}": ConsumerProtocolMemberMetadata(4, ["orders"], b"x") for i in range(300)
    }
    caplog.clear()
    assignor_of(found).assign(cluster_of(TOPICS), metadata)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 21
    assert assignor_of(found).counters["refused_members"] == 300
