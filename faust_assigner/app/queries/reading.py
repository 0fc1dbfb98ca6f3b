"""A request for a key that this worker answers: the rows that a view may read, and the headers."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from aiohttp import web as aiohttp_web
from mode import get_logger

from faust_assigner.app.queries.decide import Here, Who
from faust_assigner.app.queries.replica_status import ReplicaStatus
from faust_assigner.app.tables.scope import SCOPE, NotHere, ScopedTable
from faust_assigner.app.tables.store import WriteBehindStore

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from faust.web.base import Response, Web

    from faust_assigner.app.tables.store import WriteBehindStore

logger = get_logger(__name__)

#: The router stores a request's :class:`Reading` in the request, under this key; the view reads it
#: there.
KEY: Any = getattr(aiohttp_web, "RequestKey", lambda name, _: name)(
    "faust_assigner_reading", object
)
#: The header of each answer with the answering worker's role: `owner`, `standby`, or `none` with a
#: 503.
ROLE = "X-Faust-Assigner-Role"
#: Headers of an answer from a copy: the known number of records that the copy lacks, and the copy's
#: age in seconds. The copy contains every changelog record that is older than
#: this age.
LAG, AGE = "X-Faust-Assigner-Lag", "X-Faust-Assigner-Age"
#: Seconds after which the client may send the request again.
RETRY_AFTER_S = 1


class Reading:
    """The scope of one request: its key, its partition, and the role in which this worker answers.

    Raises NotHere if this worker's copy may not answer.
    """

    def __init__(
        self, standing: ReplicaStatus, table: CollectionT, key: object, tp: TP, who: Who
    ) -> None:
        self.standing, self.table, self.key, self.tp, self.who = standing, table, key, tp, who
        #: The largest lag and age of the partitions read.
        self.lag, self.age_s = 0, 0.0
        if who is Who.COPY_HERE:
            _refuse_unscoped(standing.app)
            self._require_fresh(tp)

    def partitions_for(self, store: WriteBehindStore, key: bytes) -> Sequence[int] | None:
        """Return the partitions to search for ``key``, the requested key's partition first.

        An owner's other partitions follow, because the key's producer may have its own partitioner.
        If ``key`` is not the requested key, an owner searches all its partitions (the result is
        None). Raises NotHere if this worker's copy is too old, if ``key`` is not the requested key
        of a copy, or if this worker has just lost the partition.
        """
        if not self._is_key(store, key):
            if self.who is Who.COPY_HERE:
                raise NotHere("a copy answers only for the row of the requested key")
            return None
        if self.who is Who.COPY_HERE:
            self._require_fresh(self._same_partition_of(store.table))
            return [self.tp.partition]
        if store.table is not self.table:
            return None
        if not self.standing.is_owner(self.tp):
            raise NotHere("the key's partition has just left this worker")
        others = (
            self.tp._replace(partition=p) for p in sorted(store._dbs) if p != self.tp.partition
        )
        return [self.tp.partition, *(tp.partition for tp in others if self.standing.is_owner(tp))]

    def may_read_all(self, table: CollectionT) -> None:
        """Raise NotHere if this worker has only a copy of ``table``, unless the table is global."""
        if self.who is Who.COPY_HERE and not table.is_global:
            raise NotHere("a copy answers only for the row of the requested key")

    def check_rows_stayed(self) -> None:
        """Raise NotHere if rows in memory, or sets, may have been dropped during the request."""
        if (
            self.who is Who.OWNER_HERE
            and not self.standing.is_owner(self.tp)
            and not isinstance(self.table.data, WriteBehindStore)
        ):
            raise NotHere("the key's partition has just left this worker")

    def _is_key(self, store: WriteBehindStore, key: bytes) -> bool:
        """Return whether ``key`` is the requested key or a window of it.

        Keys are compared as text, because the key in a URL is text.
        """
        try:
            said = store.key_of(key)
            return str(said if store.table.window is None else said[0]) == str(self.key)
        except Exception:  # the key cannot be decoded, so it is not the requested key
            return False

    def _same_partition_of(self, table: CollectionT) -> TP:
        """Return the requested partition number of a second table.

        Tables of one co-partitioned group have the same keys in the same partition numbers. Raises
        NotHere for a table of a different group.
        """
        topic = table.changelog_topic.get_topic_name()
        ids = self.standing.app.assignor.group_for_topic
        if topic != self.tp.topic and ids(topic) != ids(self.tp.topic):
            raise NotHere(f"table {table.name} is not partitioned like the table of the route")
        return self.tp._replace(topic=topic)

    def _require_fresh(self, tp: TP) -> None:
        here: Here = self.standing.here(tp)
        if here.is_owner:
            return
        if not here.is_fresh(self.standing.bound_s):
            raise NotHere("this worker's copy is too old")
        self.lag, self.age_s = max(self.lag, here.lag or 0), max(self.age_s, here.age_s or 0.0)

    def headers(self) -> dict[str, str]:
        """Return the headers that describe the answer."""
        if self.who is Who.OWNER_HERE:
            return {ROLE: "owner"}
        return {ROLE: "standby", LAG: str(self.lag), AGE: f"{self.age_s:.3f}"}


def _refuse_unscoped(app: AppT) -> None:
    """Raise NotHere if the view could read a table that ``ScopedTable`` does not guard.

    Tables outside RocksDB, and sets, cannot answer as copies. ``ScopedTable`` refuses reads of such
    a table if a method of the app, such as ``app.Table()``, has created it.
    """
    for table in app.tables.values():
        if not isinstance(table.data, WriteBehindStore) and not isinstance(table, ScopedTable):
            raise NotHere(
                f"table {table.name} was not created by app.Table(), so its copies cannot answer"
            )


def table_route(declare: Callable[..., Any], table: CollectionT, *args: Any, **options: Any) -> Any:
    """Declare a route with ``app.table_route``; its view reads within the scope of the request."""
    route = declare(table, *args, **options)
    return lambda view: route(scoped(view))


def scoped(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a view: it reads within the request's :class:`Reading`, and its answer gets headers."""

    @wraps(answer)
    async def scoped_answer(view: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        # A view may also be called directly, or with a request of a different web server.
        reading = request.get(KEY) if hasattr(request, "get") else None
        if not isinstance(reading, Reading):
            return await answer(view, request, *args, **kwargs)
        token = SCOPE.set(reading)
        try:
            response = await answer(view, request, *args, **kwargs)
            reading.check_rows_stayed()
        except NotHere as error:
            return unavailable(view.web, str(error))
        finally:
            SCOPE.reset(token)
        if isinstance(headers := getattr(response, "headers", None), MutableMapping):
            headers.update(reading.headers())
        return response

    return scoped_answer


def unavailable(web: Web, why: str) -> Response:
    """Return a 503 with the reason and a ``Retry-After`` header."""
    return web.json(
        {"error": f"Cannot answer for this key right now: {why}"},
        status=503,
        headers={"Retry-After": str(RETRY_AFTER_S), ROLE: "none"},
    )
