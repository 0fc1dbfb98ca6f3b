"""Metrics page, board and alert rules use existing metrics; each alert fires at its fault."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import promql_parser
import pytest
import yaml
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.types import TP

from faust_assigner.app.consumer.set_aside import SetAside
from faust_assigner.app.consumer.waits import COMMIT, Wait, waits_of
from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.app.metrics import readings
from faust_assigner.app.metrics.figure import HISTOGRAM, PREFIX
from faust_assigner.app.metrics.figures import FIGURES
from faust_assigner.app.rebalance import copy_offsets, leader
from tests.support.promql import Scrape, evaluate
from tests.unit.app.metrics.test_metrics import Scraped, Shop, consumer

DOCS = Path(__file__).resolve().parents[4] / "docs"
(GROUP,) = yaml.safe_load((DOCS / "operations/alerts.yml").read_text())["groups"]
RULES = {rule["alert"]: rule for rule in GROUP["rules"]}
NAMES = {
    name
    for figure in FIGURES
    for name in (
        [figure.exported + end for end in ("_bucket", "_sum", "_count")]
        if figure.kind == HISTOGRAM
        else [figure.exported]
    )
}
SOURCE = TP("orders", 0)


def panels() -> list[dict[str, Any]]:
    """Return the board's panels, as Grafana reads them."""
    found: list[dict[str, Any]] = json.loads((DOCS / "operations/board.json").read_text())["panels"]
    return found


def test_each_panel_has_an_id_and_a_place_of_its_own() -> None:
    """Grafana draws panels with the same place over each other, and confuses equal ids."""
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    ids = [panel["id"] for panel in panels()]
    assert len(set(places)) == len(set(ids)) == len(panels())
    assert {(panel["gridPos"]["w"], panel["gridPos"]["h"]) for panel in panels()} == {(8, 8)}
    for panel in panels():
        lines = [target["refId"] for target in panel["targets"]]
        assert len(set(lines)) == len(lines)


def expressions() -> list[str]:
    """Return the expressions of the rules and the board."""
    lines = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in RULES.values()] + lines


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_parses_and_names_metrics_that_there_are(expression: str) -> None:
    """A PromQL parser checks the expression."""
    promql_parser.parse(expression.replace("$__rate_interval", "5m"))
    named = set(re.findall(rf"\b{PREFIX}\w+", expression))
    assert named
    assert named <= NAMES


def test_rules_have_a_severity_and_say_what_to_do() -> None:
    """Durations and texts have Prometheus's format."""
    assert len(RULES) == len(GROUP["rules"])
    for rule in RULES.values():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0m"))
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"runbook", "summary", "description"}


# -- faults


class Bench(NamedTuple):
    """Two members of a group; the first is scraped. ``patch`` is undone after the test."""

    shop: Shop
    a: Scraped
    patch: pytest.MonkeyPatch


async def frozen(bench: Bench) -> None:
    """Make the member's scrapes fail."""
    bench.a.is_frozen = True


async def cut_off(bench: Bench) -> None:
    """Let the group answer no heartbeat."""
    bench.a.app._consumer.is_surely_member = lambda: False


async def stuck(bench: Bench) -> None:
    """Let an agent hold a record without finishing."""
    owned = min(tp for tp in bench.a.app.assignor.assigned_actives() if tp.topic == "orders")
    bench.a.app._consumer._unacked_messages = (SimpleNamespace(tp=owned, offset=7, acked=False),)
    bench.a.of("standing_seconds")
    bench.a.clock.now += 130


async def hanging_round(bench: Bench) -> None:
    """Start a rebalance that does not end."""
    bench.a.sensor.on_rebalance_start(bench.a.app)
    bench.a.app.rebalancing = True
    bench.a.clock.now += 601


async def hanging_commit(bench: Bench) -> None:
    """Let a commit wait for the group's answer."""
    waits = waits_of(bench.a.app)
    waits._waits.append(Wait(COMMIT, "the group", 90.0))
    waits.advance(61.0, group_answers=True)


async def slow_copy(bench: Bench) -> None:
    """Let the changelog grow faster than its standbys catch up."""
    ends = [0]

    async def ends_of(app: Any, tps: list[TP]) -> dict[TP, int]:
        ends[0] += 20_000
        return dict.fromkeys(tps, ends[0])

    async def read_to(app: Any, of: dict[TP, int]) -> dict[TP, int]:
        return dict.fromkeys(of, 500)

    bench.patch.setattr(copy_offsets, "ends_of", ends_of)
    bench.patch.setattr(copy_offsets, "read_to", read_to)
    for _ in range(2):
        await bench.a.sensor._copies.request_ends()
        bench.a.clock.now += 301


async def full_disk(bench: Bench) -> None:
    """Leave a twentieth of the disk free."""
    usage = SimpleNamespace(total=1000, used=950, free=50)
    bench.patch.setattr(shutil, "disk_usage", lambda path: usage)
    bench.a.sensor._disk = readings.disk(Path("/nowhere/tables"))


async def liar(bench: Bench) -> None:
    """Spoil a member's claims."""
    join_bytes = bench.shop.join_bytes

    def spoiled() -> dict[str, bytes]:
        said = join_bytes()
        data = ConsumerProtocolMemberMetadata.decode(said["b"])
        data.user_data = data.user_data[: len(data.user_data) // 2]
        return {**said, "b": data.encode()}

    bench.patch.setattr(bench.shop, "join_bytes", spoiled)
    bench.shop.rebalance()


async def flapping(bench: Bench) -> None:
    """Let a member join and leave repeatedly."""
    for turn in range(6):
        bench.shop.remove("b" if turn == 0 else f"b{turn - 1}")
        bench.shop.rebalance()
        bench.shop.start(f"b{turn}")
        bench.shop.rebalance()
        bench.a.app.assignor.decisions.join()


async def fenced(bench: Bench) -> None:
    """Let the group continue without this member."""
    bench.a.app._consumer.fence.lose()


async def corrupt(bench: Bench) -> None:
    """Let a batch be unreadable."""
    fetcher = bench.a.app._consumer.fetcher
    fetcher.aside.unreadable(SOURCE, STATE, ValueError("corrupt"), 0.0)


async def failing_planner(bench: Bench) -> None:
    """Let the planner raise an error."""

    def fails(*_: Any, **__: Any) -> Any:
        raise ArithmeticError("on purpose")

    bench.patch.setattr(leader, "plan", fails)
    bench.shop.rebalance()


class State:
    """A stub of aiokafka's partition state."""

    position = 7


STATE = State()


FAULTS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "WorkerSilent": frozen,
    "WorkerNotReady": cut_off,
    "PartitionStandsStill": stuck,
    "RoundHangs": hanging_round,
    "CommitHangs": hanging_commit,
    "StandbyBehind": slow_copy,
    "NoCaughtUpCopy": slow_copy,
    "DiskNearlyFull": full_disk,
    "MemberRefused": liar,
    "MemberFlaps": flapping,
    "WorkerFenced": fenced,
    "Unreadable": corrupt,
    "PlannerFailed": failing_planner,
}


def test_each_alert_has_a_fault() -> None:
    """Each fault has an alert, too."""
    assert {f"FaustAssigner{name}" for name in FAULTS} == set(RULES)


async def healthy(shop: Shop, patch: pytest.MonkeyPatch) -> Bench:
    """Start two members with caught-up standbys of each other's tables."""

    async def ends_of(app: Any, tps: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(tps, 500)

    patch.setattr(copy_offsets, "ends_of", ends_of)
    patch.setattr(copy_offsets, "read_to", ends_of)
    a, b = shop.start("a"), shop.start("b")
    for one in (a, b):
        one.app._consumer = consumer(
            fence=HeartbeatFence(10.0),
            fetcher=SimpleNamespace(aside=SetAside(), refused=SetAside()),
        )
    for _ in range(3):
        shop.rebalance(leader="a")
    for one in (a, b):
        await one.sensor._copies.request_ends()
    bench = Bench(shop, a, patch)
    usage = SimpleNamespace(total=1000, used=100, free=900)
    with pytest.MonkeyPatch.context() as only:
        only.setattr(shutil, "disk_usage", lambda path: usage)
        a.sensor._disk = readings.disk(Path("/"))
    return bench


def scrape(bench: Bench, at: float) -> Scrape:
    """Return the samples that Prometheus would have of both members."""
    found: dict[Any, float] = {}
    for name, one in (("a", bench.a), ("b", bench.shop.scraped["b"])):
        target = {("job", "shop"), ("instance", name)}
        series = one.series()
        found["up", frozenset(target)] = float(bool(series))
        for (metric, labels), value in series.items():
            found[metric, frozenset({*labels, *target})] = value
    return at, found


@pytest.mark.parametrize("alert", list(FAULTS))
async def test_an_alert_fires_at_its_fault_and_not_before(
    alert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expression is evaluated over scrapes a minute apart, without its duration."""
    bench = await healthy(Shop(), monkeypatch)
    expression = RULES[f"FaustAssigner{alert}"]["expr"]
    before = [scrape(bench, 0.0), scrape(bench, 60.0)]
    assert evaluate(expression, before) == {}
    await FAULTS[alert](bench)
    assert evaluate(expression, [*before, scrape(bench, 120.0)])


async def test_a_worker_that_was_never_measured_is_no_silent_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other jobs may be down before any worker was measured."""
    other: Scrape = (60.0, {("up", frozenset({("job", "else"), ("instance", "x")})): 0.0})
    assert evaluate(RULES["FaustAssignerWorkerSilent"]["expr"], [other]) == {}
