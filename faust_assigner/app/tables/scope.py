"""The scope of a request for one key: within it a view reads from the key's partition only.

Without a scope Faust searches all open databases for the key, also the databases of standbys.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from faust.streams import current_event
from faust.web.exceptions import ServiceUnavailable

from faust_assigner.app.tables.store import WriteBehindStore

if TYPE_CHECKING:
    from faust.types.tables import CollectionT

    from faust_assigner.app.host.table_bases import CollectionBase as Table
else:
    Table = object


class NotHere(ServiceUnavailable):  # type: ignore[misc]
    """This worker cannot answer for the row, or can no longer do so."""


class Scope(Protocol):
    """The current request, and the partitions that it may read."""

    def partitions_for(self, store: WriteBehindStore, key: bytes) -> Sequence[int] | None:
        """Return the partitions to search for ``key``, in order; None to search as Faust does.

        Raises NotHere.
        """

    def may_read_all(self, table: CollectionT) -> None:
        """Raise NotHere if the request may not read several keys."""


#: The scope of the current request; None unless a view answers a request for a key.
SCOPE: ContextVar[Scope | None] = ContextVar("faust_assigner_scope", default=None)


def partitions_in_scope(store: WriteBehindStore, key: bytes) -> Sequence[int] | None:
    """Return the open partitions of ``store`` to read for the current request; None without a
    scope.

    Raises NotHere if a partition is not open.
    """
    scope = _current_scope()
    if scope is None or store.table.is_global:
        return None
    partitions = scope.partitions_for(store, key)
    if partitions is not None and not all(partition in store._dbs for partition in partitions):
        raise NotHere("this worker has not opened the key's partition")
    return partitions


def check_whole(table: Any) -> None:
    """Raise NotHere if the current request may not read several keys of ``table``."""
    if (scope := _current_scope()) is not None:
        scope.may_read_all(table)


def _current_scope() -> Scope | None:
    """Return the scope of the current request; None in an agent, and without a request."""
    scope = SCOPE.get()
    return scope if scope is not None and current_event() is None else None


class ScopedTable(Table):
    """A table whose ``data`` raises NotHere if the current request may not read several keys.

    This class checks only sets and stores other than WriteBehindStore.
    """

    @property
    def data(self) -> Any:
        """The store."""
        store = super().data
        if not isinstance(store, WriteBehindStore):
            check_whole(self)
        return store
