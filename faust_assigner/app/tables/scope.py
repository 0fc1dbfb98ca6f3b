"""What a view may read while it answers for one key: of that key's partition, from no other database.

Stock looks through all databases that are open for the key, a standby's among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from faust.streams import current_event
from faust.web.exceptions import ServiceUnavailable

if TYPE_CHECKING:
    from faust_assigner.app.tables.store import WriteBehindStore as Store
else:
    Store = object


class NotHere(ServiceUnavailable):  # type: ignore[misc]
    """This worker cannot tell the row, or not any more."""


class Scope(Protocol):
    """The request under way."""

    def partitions_for(self, store: Any, key: bytes) -> Sequence[int] | None:
        """Where ``key`` is to be looked for, in this order; None: as ever. Raises NotHere."""

    def may_read_all(self, table: Any) -> None:
        """Raise NotHere where more than one key is not to be read."""


#: Set while a view answers a request for a key.
SCOPE: ContextVar[Scope | None] = ContextVar("faust_assigner_scope", default=None)


class ScopedStore(Store):
    """Of a RocksDB store: within a scope a key is read from its own partition."""

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


class ScopedTable:
    """Mixed over a table that is kept elsewhere: read as a whole or not at all."""

    @property
    def data(self) -> Any:
        """The store."""
        scope = SCOPE.get()
        if scope is not None and current_event() is None:
            scope.may_read_all(self)
        return super().data  # type: ignore[misc]
