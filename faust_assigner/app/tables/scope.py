"""The scope of a view that answers for one key: it reads from the key's partition only.

Faust searches all open databases for the key, also the databases of standbys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from faust.streams import current_event
from faust.web.exceptions import ServiceUnavailable

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import CollectionBase as Table
    from faust_assigner.app.tables.store import WriteBehindStore as Store
else:
    Store = Table = object


class NotHere(ServiceUnavailable):  # type: ignore[misc]
    """This worker cannot answer for the row, or no longer."""


class Scope(Protocol):
    """The current request."""

    def partitions_for(self, store: Any, key: bytes) -> Sequence[int] | None:
        """The partitions to search for ``key``, in order; None: as Faust does. Raises NotHere."""

    def may_read_all(self, table: Any) -> None:
        """Raise NotHere if the request may not read several keys."""


#: Set while a view answers a request for a key.
SCOPE: ContextVar[Scope | None] = ContextVar("faust_assigner_scope", default=None)


class ScopedStore(Store):
    """A RocksDB store that within a scope reads a key from its own partition."""

    def _get(self, key: bytes) -> bytes | None:
        partitions = self._scoped(key)
        if partitions is None:
            return super()._get(key)
        return next((row for p in partitions if (row := self.row_of(p, key)) is not None), None)

    def _contains(self, key: bytes) -> bool:
        partitions = self._scoped(key)
        if partitions is None:
            return bool(super()._contains(key))
        return any(self.row_of(partition, key) is not None for partition in partitions)

    def _dbs_for_actives(self) -> Iterator[Any]:
        scope = SCOPE.get()
        if scope is not None and current_event() is None:
            scope.may_read_all(self.table)
        return super()._dbs_for_actives()

    def _scoped(self, key: bytes) -> Sequence[int] | None:
        """The partitions to read, all of them open; None outside of a scope."""
        scope = SCOPE.get()
        if scope is None or current_event() is not None or self.table.is_global:
            return None
        partitions = scope.partitions_for(self, key)
        if partitions is None:
            return None
        if not all(partition in self._dbs for partition in partitions):
            raise NotHere("the key's partition is not open here")
        return partitions


class ScopedTable(Table):
    """A table: within a scope the ``data`` of a set, or in a different store, may raise NotHere."""

    @property
    def data(self) -> Any:
        """The store."""
        scope, store = SCOPE.get(), super().data
        if scope is not None and current_event() is None and not isinstance(store, ScopedStore):
            scope.may_read_all(self)
        return store
