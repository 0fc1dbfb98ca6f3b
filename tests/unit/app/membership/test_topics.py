"""Mismatched topics and tables: the time of the check, and its reports."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import ImproperlyConfigured, PartitionsMismatch
from faust.types.enums import ProcessingGuarantee as Guarantee

from faust_assigner.app.membership.topics import mismatches, refuse_patterns, sources_of
from faust_assigner.app.membership.watchdog import RepairedTables
from faust_assigner.app.recovery.table_manager import RecoveringTables


class Stock(RecoveringTables):  # type: ignore[misc]
    """Stand in for Faust's table manager."""

    def __init__(self, app: Any) -> None:
        self.app, self.rounds, self.data = app, 0, {}

    def add(self, table: Any) -> Any:
        """Add the table."""
        self.data[table.name] = table
        return table

    async def on_start(self) -> None:
        """Note the start."""
        self.rounds = -1

    async def on_rebalance(self, *round_: Any) -> None:
        """Note the round."""
        self.rounds += 1
        self.last_round = round_


class Tables(RepairedTables, Stock):  # type: ignore[misc]
    """Our table manager over the stand-in; ``waits`` counts the waits for restores."""

    waits = 0

    @property
    def recovery(self) -> Any:
        """The recovery, of which only the wait is used."""
        return SimpleNamespace(stop_and_wait=self._wait)

    async def _wait(self) -> None:
        self.waits += 1


class Made:
    """A manager of an app with a topic and a table; ``counts`` has the known partitions."""

    def __init__(self) -> None:
        self.counts: dict[str, int | None] = {"orders": 4, "log": 4}
        self.crashes: list[Exception] = []
        consumer = SimpleNamespace(topic_partitions=self.counts.get)
        self.app = SimpleNamespace(
            consumer=consumer,
            topics=[SimpleNamespace(topics=["orders", "log"])],
            tables=SimpleNamespace(changelog_topics={"log"}),
            crash=self._crash,
            agents={},
            conf=SimpleNamespace(id="shop", processing_guarantee=Guarantee.AT_LEAST_ONCE),
            in_transaction=False,
        )
        self.tables = Tables(self.app)
        self.table = SimpleNamespace(
            name="counts",
            is_global=False,
            use_partitioner=False,
            changelog_topic=SimpleNamespace(get_topic_name=lambda: "log"),
            _verify_source_topic_partitions=self._verify,
        )
        self.tables.add(self.table)

    async def _crash(self, error: Exception) -> None:
        self.crashes.append(error)

    def _verify(self, topic: str) -> None:
        if self.counts["orders"] != self.counts["log"]:
            raise PartitionsMismatch(topic)


@pytest.fixture
def made() -> Made:
    """A manager whose topics fit."""
    return Made()


async def test_a_changelog_unlike_its_source_ends_the_worker_at_its_first_partitions(
    made: Made,
) -> None:
    """A worker without partitions does not check yet."""
    made.counts["log"] = 5
    await made.tables.on_rebalance(set(), {1}, {2}, 7)
    assert made.tables.last_round == (set(), {1}, {2}, 7)
    with pytest.raises(PartitionsMismatch, match=r"log has 5 partitions.*orders: 4"):
        await made.tables.on_rebalance({1}, set(), set())
    assert made.tables.rounds == 1
    assert made.tables.waits == 2, "restores are awaited before the check"


@pytest.mark.parametrize("kind", ["is_global", "use_partitioner"])
def test_a_table_that_any_partition_may_write_needs_no_source_like_it(
    made: Made, kind: str
) -> None:
    """The table's keys choose the partition."""
    made.counts["log"] = 5
    setattr(made.table, kind, True)
    assert made.tables.watchdog.topic_problem() is None


@pytest.mark.parametrize("unknown", ["orders", "log"])
def test_topics_are_looked_at_until_all_counts_are_known(made: Made, unknown: str) -> None:
    """An unknown count passes the check meanwhile."""
    known, made.counts[unknown] = made.counts[unknown], None
    assert made.tables.watchdog.topic_problem() is None
    made.counts[unknown] = 5
    assert made.tables.watchdog.topic_problem() is not None
    assert made.tables.watchdog.topic_problem() is not None, "a mismatch stays one"
    made.counts[unknown] = known
    assert made.tables.watchdog.topic_problem() is None
    made.counts[unknown] = 5
    assert made.tables.watchdog.topic_problem() is None, (
        "a topic that grows later is left to the write"
    )


async def test_a_mismatch_at_a_write_ends_worker_and_agent(made: Made) -> None:
    """The agent's error alone would leave an idle worker; a matching topic passes."""
    made.app.loop = asyncio.get_running_loop()
    made.table._verify_source_topic_partitions("orders")
    made.counts["log"] = 5
    with pytest.raises(PartitionsMismatch):
        made.table._verify_source_topic_partitions("orders")
    await asyncio.sleep(0)
    assert [type(error) for error in made.crashes] == [PartitionsMismatch]


def agent(pattern: str | None) -> Any:
    """Return an agent with a topic pattern, or with topic names."""
    return SimpleNamespace(
        channel=SimpleNamespace(pattern=pattern and SimpleNamespace(pattern=pattern))
    )


async def test_with_an_agent_that_reads_a_pattern_no_table_starts(made: Made) -> None:
    """The error precedes Faust's own start."""
    made.app.agents["a"] = agent("orders-.*")
    with pytest.raises(ImproperlyConfigured, match="Agent a"):
        await made.tables.on_start()
    assert made.tables.rounds == 0
    made.app.agents.clear()
    await made.tables.on_start()
    assert made.tables.rounds == -1


@pytest.mark.parametrize(
    ("guarantee", "in_transaction", "warns"),
    [
        (Guarantee.EXACTLY_ONCE, False, True),
        (Guarantee.EXACTLY_ONCE, True, False),
        (Guarantee.AT_LEAST_ONCE, False, False),
    ],
)
async def test_a_guarantee_that_has_no_effect_is_named_in_the_log(
    made: Made,
    caplog: pytest.LogCaptureFixture,
    guarantee: Guarantee,
    in_transaction: bool,
    warns: bool,
) -> None:
    """Faust uses transactions only in the app of a worker, and logs nothing for other apps."""
    made.app.conf.processing_guarantee, made.app.in_transaction = guarantee, in_transaction
    await made.tables.on_start()
    assert ("App shop has processing_guarantee='exactly_once'" in caplog.text) == warns


def test_the_first_agent_by_name_with_a_pattern_is_named() -> None:
    """Agents with topic names and channels pass."""
    refuse_patterns([("a", agent(None)), ("b", SimpleNamespace(channel=SimpleNamespace()))])
    with pytest.raises(ImproperlyConfigured, match=r"Agent c: its topic is the pattern 'y', and"):
        refuse_patterns([("d", agent("x")), ("c", agent("y")), ("a", agent(None))])


def table(name: str, changelog: str, **more: Any) -> Any:
    """Return a table with its changelog."""
    return SimpleNamespace(
        **{
            "name": name,
            "is_global": False,
            "use_partitioner": False,
            "changelog_topic": SimpleNamespace(get_topic_name=lambda: changelog),
            **more,
        }
    )


def test_each_table_that_fits_no_source_is_described_by_name() -> None:
    """A single equal source is enough; unknown counts are left out."""
    counts = {"orders": 4, "bills": 6, "new": 0, "log-a": 6, "log-b": 5, "log-c": 3, "log-d": 0}
    app = SimpleNamespace(
        topics=[
            SimpleNamespace(topics=["orders", "log-a"]),
            SimpleNamespace(topics=["new", "bills"]),
        ],
        tables=SimpleNamespace(changelog_topics={"log-a", "log-b", "log-c", "log-d"}),
        consumer=SimpleNamespace(topic_partitions=counts.get),
    )
    assert sources_of(app) == ["bills", "new", "orders"]
    tables = [
        table("c", "log-b"),
        table("a", "log-a"),
        table("b", "log-c"),
        table("d", "log-d"),
        table("A", "log-c", is_global=True),
        table("B", "log-c", use_partitioner=True),
    ]
    assert list(mismatches(app, tables)) == [
        f"Table {name}: its changelog {log} has {count} partitions, and no topic the app "
        "consumes has as many (bills: 6, orders: 4); a table has the partitions of its source"
        for name, log, count in (("b", "log-c", 3), ("c", "log-b", 5))
    ]
    app.topics = []
    assert list(mismatches(app, tables)) == []


async def test_a_table_is_managed_as_ever_and_a_round_is_passed_on_whole(made: Made) -> None:
    """The call keeps its generation."""
    other = table("other", "log", _verify_source_topic_partitions=made._verify)
    assert made.tables.add(other) is other
    assert set(made.tables) == {"counts", "other"}
    await made.tables.on_rebalance({1}, {2}, {3}, 9)
    assert made.tables.last_round == ({1}, {2}, {3}, 9)
