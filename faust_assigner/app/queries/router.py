"""Routing of a request for a key to a worker that can answer, within a bounded time."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable
from mode import get_logger
from yarl import URL

from faust_assigner.app.queries.decide import Asked, Step, steps
from faust_assigner.app.queries.forwarding import HOP, READS, UNREACHABLE, Forwarding
from faust_assigner.app.queries.places import partition_of
from faust_assigner.app.queries.reading import KEY, ROLE, Reading, unavailable
from faust_assigner.app.queries.replica_status import ReplicaStatus
from faust_assigner.app.tables.scope import NotHere

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from faust.web.base import Request, Response, Web

    from faust_assigner.app.host.bases import RouterBase as Router
else:
    from faust.app.router import Router

logger = get_logger(__name__)

MARK = "_faust_assigner_standing"
#: Seconds for which a worker that did not answer is asked last.
SHUNNED_S = 2.0


def _group(app: AppT, topic: str) -> int | None:
    try:
        return int(app.assignor.group_for_topic(topic))
    except KeyError:
        return None


class KeyRouter(Router):
    """The app's router for keys; ``standing`` is this worker's state of its partitions."""

    def __init__(self, app: AppT) -> None:
        super().__init__(app)
        self.forwarding = Forwarding(app)
        self.standing: ReplicaStatus = getattr(app, MARK)
        #: URL of a worker -> the time until which the worker is asked last.
        self._shunned: dict[URL, float] = {}

    async def route_req(self, table_name: str, key: object, web: Web, request: Request) -> Response:
        """Return a different worker's answer, or a 503.

        Raises SameNode if this worker must answer; the request then contains a :class:`Reading`.
        """
        try:
            table = self.app.tables[table_name]
            changelog = table.changelog_topic.get_topic_name()
            tp = partition_of(self.app, changelog, self._get_serialized_key(table, key))
        except KeyError:
            return unavailable(web, "this worker has not joined its group yet")
        asked = Asked(request.method in READS, HOP in request.headers)
        why = "its partition is being moved or restored"
        for step in sorted(self._steps(tp, asked), key=self._is_shunned):
            if step.at is not None:
                answer = await self._ask(step.at, web, request)
                if answer is not None:
                    return answer
                why = "the worker with its partition does not answer, or has not started yet"
                continue
            try:
                request[KEY] = Reading(self.standing, table, key, tp, step.who)
            except NotHere:  # the copy has become too old meanwhile
                continue
            raise SameNode
        return unavailable(web, why)

    @classmethod
    def _get_serialized_key(cls, table: CollectionT, key: object) -> bytes:
        """Serialize the key as the source topics do: the key's bytes determine its partition.

        Stock Faust uses the changelog's serializer, which is JSON by default. If a source topic
        uses a different serializer, stock Faust computes a wrong partition for most keys. The
        changelog's serializer is used if the topics of the table's group disagree, or if there is
        no such topic.
        """
        app, changelog = table.app, table.changelog_topic.get_topic_name()
        own: bytes = table.changelog_topic.prepare_key(key, None)[0]
        try:
            group = app.assignor.group_for_topic(changelog)
        except KeyError:
            return own
        if table.use_partitioner:  # the table's rows are partitioned by the changelog's serializer
            return own
        said = set()
        for topic in tuple(app.topics):
            names = set(getattr(topic, "topics", None) or ()) - app.tables.changelog_topics
            if any(_group(app, name) == group for name in names):
                with suppress(Exception):  # the topic has keys of a different type
                    said.add(topic.prepare_key(key, None)[0])
        return said.pop() if len(said) == 1 else own

    def _steps(self, tp: TP, asked: Asked) -> tuple[Step[URL], ...]:
        try:
            owner = self.app.assignor.owner_of(tp)
        except KeyError:
            owner = None
        return steps(
            self.standing.here(tp),
            asked,
            self.standing.bound_s,
            owner=owner,
            own=URL(str(self.app.conf.canonical_url)),
            copies=self.app.assignor.standbys_of(tp),
        )

    def _is_shunned(self, step: Step[URL]) -> bool:
        """Return whether the worker is asked last, because it did not answer an earlier request."""
        return step.at is not None and self._shunned.get(step.at, 0.0) > monotonic()

    async def _ask(self, url: URL, web: Web, request: Request) -> Response | None:
        """Return the answer of the worker at ``url``; None if the worker cannot answer now."""
        try:
            answer = await self.forwarding.forward(url, web, request)
        except (*UNREACHABLE, SameNode, ServiceUnavailable) as error:
            logger.info("Worker %s did not answer a request for a key: %r", url, error)
            self._shunned[url] = monotonic() + SHUNNED_S
            return None
        return None if answer.status == 503 and answer.headers.get(ROLE) == "none" else answer

    async def _route_req(self, dest_url: URL, web: Web, request: Request) -> Response:
        return await self.forwarding.forward(dest_url, web, request)

    async def route_topic_req(
        self, topic: object, key: object, web: Web, request: Request
    ) -> Response:
        """Route a request for a key of a topic to the worker that reads the key's partition.

        Returns a 503 if that worker is unknown or does not answer.
        """
        try:
            return await super().route_topic_req(topic, key, web, request)
        except (*UNREACHABLE, ServiceUnavailable) as error:
            logger.info("No worker answers requests for a key of topic %s: %r", topic, error)
            return unavailable(web, "the worker with its partition does not answer, or is unknown")
