"""The worker's generation and member id in its group, and the warning of an app without a fixup."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor

import faust_assigner
from faust_assigner.app.host.group_member import coordinator_of, kafka_generation, kafka_member_id
from faust_assigner.app.host.mixing import parts_of, warn_without_fixup
from faust_assigner.settings.table import REPAIRS
from tests.support.faust_group import make_app


def consumer_at(**coordinator: Any) -> Any:
    """Return an app whose consumer has a coordinator with these attributes."""
    at = SimpleNamespace(_coordinator=SimpleNamespace(**coordinator))
    return SimpleNamespace(_consumer=SimpleNamespace(_thread=SimpleNamespace(_consumer=at)))


@pytest.mark.parametrize(
    ("generation", "known"), [(7, 7), (1, 1), (0, -1), (-1, -1), (None, -1), (True, -1)]
)
def test_the_generation_is_kafkas_from_the_first_round_on(generation: Any, known: int) -> None:
    """Any other value counts as no generation."""
    assert kafka_generation(consumer_at(generation=generation)) == known


def test_the_member_id_is_the_one_that_the_group_gave() -> None:
    """The id is empty before the join and without a consumer."""
    assert kafka_member_id(consumer_at(member_id="w1-abc")) == "w1-abc"
    assert kafka_member_id(consumer_at(member_id=None)) == ""
    without = SimpleNamespace(_consumer=None)
    assert (kafka_member_id(without), kafka_generation(without)) == ("", -1)


@pytest.mark.parametrize(("repairs", "lines"), [("1", 1), ("0", 0)])
def test_a_missing_fixup_is_a_warning_unless_the_repairs_are_switched_off(
    repairs: str, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The app chose Faust's assignor, so it has no fixup; two assignors log a single line."""
    monkeypatch.setenv(REPAIRS.name, repairs)
    app = make_app("http://w", assignor=StockAssignor, broker="kafka://127.0.0.1:1")
    for _ in range(2):
        faust_assigner.PartitionAssignor(app)
    assert (
        caplog.text.count(
            "rebalance were not installed in this app; install faust_assigner with pip"
        )
        == lines
    )


def test_a_consumer_whose_thread_has_not_started_has_no_coordinator() -> None:
    """Faust's consumer, its thread and the client each come later than the one before."""
    coordinator = object()
    client = SimpleNamespace(_coordinator=coordinator)
    for consumer, found in (
        (None, None),
        (SimpleNamespace(), None),
        (SimpleNamespace(_thread=None), None),
        (SimpleNamespace(_thread=SimpleNamespace()), None),
        (SimpleNamespace(_thread=SimpleNamespace(_consumer=None)), None),
        (SimpleNamespace(_thread=SimpleNamespace(_consumer=SimpleNamespace())), None),
        (SimpleNamespace(_thread=SimpleNamespace(_consumer=client)), coordinator),
    ):
        assert coordinator_of(consumer) is found
    assert (kafka_generation(SimpleNamespace()), kafka_member_id(SimpleNamespace())) == (-1, "")


def test_an_app_with_any_part_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    """The warning comes once for each app, and counts as its part."""
    for number, parts in enumerate(({"metrics"}, {"repairs came late"}, set())):
        app = make_app(f"http://w{number}")
        app.finalize()
        parts_of(app).clear()
        parts_of(app).update(parts)
        for _ in range(2):
            warn_without_fixup(app)
        assert caplog.text.count("were not installed in this app") == (not parts)
        assert parts_of(app) == (parts or {"assignor"})
