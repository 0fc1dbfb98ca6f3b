"""The warnings of an app that cannot use the app's assignor, or cannot use it well."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.membership.driver_assignor import IgnoresAppAssignor, warn_of_memory


class Driver:
    """The consumer of a different driver."""

    transport = SimpleNamespace(url=["confluent://b:2", "confluent://a:1"])

    def _new_consumer_thread(self) -> str:
        return "the driver's thread"


class Consumer(IgnoresAppAssignor, Driver):  # type: ignore[misc]
    """Our part over the driver's consumer."""


def test_a_driver_that_assigns_by_itself_is_logged_with_its_urls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The driver makes its own thread."""
    made: Any = Consumer()
    assert made._new_consumer_thread() == "the driver's thread"
    assert caplog.messages == [
        "The app's partition assignor is not used: the driver of confluent://b:2, confluent://a:1 "
        "assigns by itself; use kafka:// or aiokafka://"
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_all_tables_in_memory_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """A table's own store counts before the app's; an app without such a table has no line."""

    def table(name: str, store: str | None) -> Any:
        return SimpleNamespace(name=name, _store=store)

    stored = [table("files", "rocksdb://"), table("by-app", None)]
    kept = [table("views", "memory://"), table("counts", "memory://x"), table("by-app-2", None)]

    def app(store: str, *tables: Any) -> Any:
        changelogs = {f"log-{number}": one for number, one in enumerate(tables)}
        return SimpleNamespace(
            conf=SimpleNamespace(store=store), tables=SimpleNamespace(_changelogs=changelogs)
        )

    warn_of_memory(app("rocksdb://", *stored))
    assert caplog.messages == []
    warn_of_memory(app("memory://", stored[0], *kept))
    assert caplog.messages == [
        "Tables kept in memory: by-app-2, counts, views. Each of their partitions is replayed from its "
        "changelog after each move and each restart; set store='rocksdb://' to keep files and to move "
        "partitions warm"
    ]
