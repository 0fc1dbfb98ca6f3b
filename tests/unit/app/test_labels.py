"""A repaired app has stock labels: operators search and alert on ``[^--Consumer]``."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mode.utils.trees import Node

from faust_assigner.app.ledger.sensor import LedgerSensor
from faust_assigner.app.metrics.sensor import MetricsSensor
from tests.support.faust_group import PartitionAssignor, StockAssignor, make_app


def services(assignor: Any, **options: Any) -> list[tuple[int, str, str, str]]:
    """Return depth, label, short label and logger of an app's services, parents first."""
    app = make_app(
        "http://w", assignor=assignor, tables=("totals",), broker="kafka://127.0.0.1:1", **options
    )
    app.finalize()
    touched = (
        app.consumer,
        app.consumer.transactions,
        app.tables.recovery,
        app.router,
        app.producer,
    )
    assert all(touched)
    found: list[Any] = []

    def walk(node: Node) -> None:
        service = node.data
        if isinstance(service, LedgerSensor | MetricsSensor):  # stock has neither sensor
            return
        found.append(
            (
                node.depth,
                *(
                    re.sub("@0x[0-9a-f]+", "", label)
                    for label in (service.label, service.shortlabel)
                ),
                service.logger.name,
            )
        )
        for child in node.children:
            walk(child)

    walk(app.beacon)
    return found


@pytest.mark.parametrize(
    "options",
    [{}, {"faust_assigner_batched_replay": "0"}, {"store": "rocksdb://"}],
    ids=["all parts", "no part of the recovery's own", "on disk"],
)
async def test_the_labels_of_a_repaired_app_are_the_stock_apps(options: dict[str, Any]) -> None:
    """The loggers and the order of the tree are the same as well."""
    repaired, stock = services(PartitionAssignor, **options), services(StockAssignor, **options)
    assert repaired == stock
    labels = {label for _, _, label, _ in repaired}
    assert {
        "Consumer",
        "AIOKafkaConsumerThread",
        "TransactionManager",
        "TableManager",
        "Recovery",
    } <= labels


async def test_each_mixed_class_keeps_tasks_of_its_own() -> None:
    """Mode finds tasks by qualified name; with equal names the stock tasks would run twice."""
    ours, stock = (
        make_app("http://w", assignor=a, tables=("totals",), store="rocksdb://")
        for a in (PartitionAssignor, StockAssignor)
    )
    kinds = [type(app.tables.recovery) for app in (ours, stock)]
    tasks = [
        {task.fun.__name__ for task in app.tables.recovery._get_tasks()} for app in (ours, stock)
    ]
    assert kinds[0].__name__ == kinds[1].__name__
    assert kinds[0].__qualname__ != kinds[1].__qualname__
    assert tasks[0] - tasks[1] == {
        "_begin_again",
        "_compare_beside_streams",
        "_keep_standbys_on_disk",
        "_tell_progress",
    }
    assert tasks[1] < tasks[0]
