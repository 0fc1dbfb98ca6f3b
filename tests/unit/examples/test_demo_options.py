"""What the demo refuses before it starts anything."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner
from click.testing import CliRunner

from examples.orders import PARTITIONS, demo
from examples.orders.demo import LOST_AFTER_S, Result, Script, is_right, main, patience
from examples.orders.fleet import Fleet, Worker
from examples.orders.load import MOST_WAITING, Load, Verdict, by_partition
from examples.orders.screen import EACH_EVENT, INTRODUCTION, LEGEND
from tests.support.waiting import until


def test_two_assignors_are_not_played_on_one_broker() -> None:
    """The second would have found none: an IndexError, after the first was through."""
    said = CliRunner().invoke(main, ["--bootstrap", "127.0.0.1:1"])
    assert said.exit_code == 2
    assert "one for each of stock, ours" in said.output


def test_a_repeated_order_fails_the_demo_under_exactly_once_alone() -> None:
    """Under at_least_once the orders in progress at a kill are repeated."""
    repeated, right = Verdict(9, (), 0, 1), Verdict(9, (), 0, 0)
    assert is_right(repeated, exactly_once=False)
    assert not is_right(repeated, exactly_once=True)
    assert is_right(right, exactly_once=True)
    assert not is_right(Verdict(9, ("customer-1",), 0, 0), exactly_once=False)
    assert not is_right(None, exactly_once=False)


def test_orders_wait_for_workers_that_are_ten_seconds_behind() -> None:
    """A busy machine gets fewer orders; nobody counts where the load runs alone."""
    load = Load("nowhere:1", orders_per_s=240)
    assert load.due(100.0) == 24_000
    load.processed = 1_000
    assert (load.due(10.0), load.due(100.0)) == (2_400, 1_000 + MOST_WAITING)


async def test_orders_do_not_wait_while_partitions_change_their_owners() -> None:
    """A load that waits for an old count would look like partitions that stand still."""
    load, looks = Load("nowhere:1"), itertools.count(1)

    def done(topic: str) -> list[tuple[float, int, int]]:
        return [(0.0, 0, n) for n in range(100 * next(looks))]

    def living() -> list[Any]:
        owned = frozenset({next(looks)})  # another partition at each look
        return [SimpleNamespace(name="a", actives=owned, standbys=frozenset())]

    fleet: Any = SimpleNamespace(workers={"a": None}, living=living, done=done)
    screen: Any = SimpleNamespace(show=lambda *told: None)
    script = Script(fleet, load, screen, Result("ours"))
    settling = asyncio.ensure_future(script._settle("join"))
    await until(lambda: settling.done() or (load.processed or 0) > 200)
    assert not settling.done()
    settling.cancel()
    await asyncio.gather(settling, return_exceptions=True)


def test_a_broker_that_is_not_there_is_one_line() -> None:
    """Not a traceback."""
    said = CliRunner().invoke(main, ["--assignor", "ours", "--bootstrap", "127.0.0.1:1"])
    assert said.exit_code == 1
    assert "Error: KafkaConnectionError: Unable to bootstrap from" in said.output


def test_the_legend_leaves_its_lines_to_the_terminal() -> None:
    """Its own were broken once more at 80 columns."""
    assert not any("\n" in line for line in (INTRODUCTION, EACH_EVENT, *LEGEND))


def test_a_busy_machine_is_waited_for_longer() -> None:
    """In proportion to the work that waits for its cores, and not for ever."""
    assert [patience(load, 2) for load in (0.0, 2.0, 5.0, 200.0)] == [1.0, 1.0, 2.5, 5.0]


def test_orders_come_to_each_partition_in_turn() -> None:
    """Else the longest pause between two orders is that of the dice."""
    customers = by_partition(f"customer-{i:04}" for i in range(600))
    assert len(customers) == PARTITIONS
    assert sum(map(len, customers)) == 600
    partition = DefaultPartitioner()
    for number, names in enumerate(customers):
        found = {
            partition(name.encode(), list(range(PARTITIONS)), list(range(PARTITIONS)))
            for name in names
        }
        assert found == {number}


def test_last_words_are_log_lines_and_no_banners(tmp_path: Path) -> None:
    """Faust's banner is a screen for each worker."""
    folder = tmp_path / "worker-1"
    folder.mkdir()
    (folder / "log").write_text(
        "+ShOp+ v0.15.3 +----+\n| log | -stderr- |\n[2026] one\n[2026] two\n"
    )
    process: Any = SimpleNamespace(poll=lambda: 0)
    fleet = Fleet("shop", "127.0.0.1:1", "stock", tmp_path, 6.0)
    fleet.workers["worker-1"] = Worker("worker-1", folder, process, 0.0)
    assert fleet.last_words(lines=1) == "worker-1, ended:\n  [2026] two"


@pytest.mark.parametrize(
    ("processed_s", "load_average", "ends_s"),
    [
        ((1.0, 5.0, 10.0), 0.0, 10.0 + LOST_AFTER_S),
        ((1.0, 5.0, 10.0), 4.0, 10.0 + 2 * LOST_AFTER_S),
        ((1.0, 5.0, 10.0, 20.0), 0.0, 20.0),
        ((1.0, 17.0, 33.0, 49.0), 0.0, 49.0),
    ],
)
async def test_orders_are_lost_once_the_settled_group_processes_no_more(
    monkeypatch: pytest.MonkeyPatch,
    processed_s: tuple[float, ...],
    load_average: float,
    ends_s: float,
) -> None:
    """A slow group that still processes orders is waited for."""
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def done(topic: str) -> list[tuple[float, int, int]]:
        return [(at, 0, number) for number, at in enumerate(processed_s) if at <= now]

    monkeypatch.setattr(demo.time, "time", lambda: now)
    monkeypatch.setattr(demo.asyncio, "sleep", sleep)
    monkeypatch.setattr(demo.os, "getloadavg", lambda: (load_average, 0.0, 0.0))
    monkeypatch.setattr(demo.os, "cpu_count", lambda: 2)
    fleet: Any = SimpleNamespace(living=list, done=done)
    screen: Any = SimpleNamespace(
        show=lambda *told: None, console=SimpleNamespace(print=lambda *told, **how: None)
    )
    await Script(fleet, Load("nowhere:1"), screen, Result("stock"))._drain(
        "orders", 4, LOST_AFTER_S
    )
    assert now == pytest.approx(ends_s, abs=0.5)
