"""Brings a request for a key to whoever can answer it, within a bounded time."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

import aiohttp
from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable
from mode import get_logger
from yarl import URL

from faust_assigner.app import settings
from faust_assigner.app.queries.decide import Asked, Step, steps
from faust_assigner.app.queries.forwarding import AllowlistRouter
from faust_assigner.app.queries.reading import KEY, ROLE, Reading, unavailable
from faust_assigner.app.queries.replica_status import ReplicaStatus
from faust_assigner.app.tables.scope import NotHere
from faust_assigner.settings import table as settings_table

logger = get_logger(__name__)

MARK = "_faust_assigner_standing"
#: A request that has this was forwarded: it goes no further.
HOP = "X-Faust-Assigner-Hop"
#: Seconds that a connection to another worker may take to come about.
CONNECT_S = 1.0
#: And the answer to what may change something: nobody else can give it. aiohttp's own limit.
PATIENT_S = 300.0
#: Seconds for which a worker that did not answer is asked last.
SHUNNED_S = 2.0
#: The last one is said by the HTTP client of a worker that stops.
UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError, RuntimeError)


def _group(app: Any, topic: str) -> int | None:
    try:
        return int(app.assignor.group_for_topic(topic))
    except KeyError:
        return None


class KeyRouter(AllowlistRouter):
    """Of the app's router: ``standing`` tells what this worker knows of a partition."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self.standing: ReplicaStatus = getattr(app, MARK)
        #: Worker -> until when it is asked last.
        self._shunned: dict[URL, float] = {}
        self._forward_s = settings.read(app, settings_table.FORWARD_S)

    async def route_req(self, table_name: str, key: Any, web: Any, request: Any) -> Any:
        """The answer of another worker, or 503; raises SameNode where this one is to answer.

        The request then carries a :class:`Reading`.
        """
        try:
            table = self._get_table(table_name)
            tp = self.app.assignor.partition_of(
                self._get_table_topic(table), self._get_serialized_key(table, key)
            )
        except KeyError:
            return unavailable(web, "this worker has not joined its group yet")
        asked = Asked(request.method in ("GET", "HEAD"), HOP in request.headers)
        why = "its partition is being moved or restored"
        for step in sorted(self._steps(tp, asked), key=self._is_shunned):
            if step.at is not None:
                answer = await self._ask(step.at, asked, web, request)
                if answer is not None:
                    return answer
                why = "the worker that has it does not answer, or not yet"
                continue
            try:
                request[KEY] = Reading(self.standing, table, key, tp, step.who)
            except NotHere:  # it has grown old while others were asked
                continue
            raise SameNode
        return unavailable(web, why)

    @classmethod
    def _get_serialized_key(cls, table: Any, key: Any) -> bytes:
        """The key as the streams' topics have it: that is what its partition goes by.

        Stock takes the changelog's, which is JSON where theirs is not, unless it was told otherwise: another
        partition, for most keys. Where the topics beside the table do not agree, or there is none, so do we.
        """
        app, changelog = table.app, cls._get_table_topic(table)
        own: bytes = table.changelog_topic.prepare_key(key, None)[0]
        try:
            group = app.assignor.group_for_topic(changelog)
        except KeyError:
            return own
        if table.use_partitioner:  # its rows are placed by the changelog's form
            return own
        said = set()
        for topic in tuple(app.topics):
            names = set(getattr(topic, "topics", None) or ()) - app.tables.changelog_topics
            if any(_group(app, name) == group for name in names):
                with suppress(Exception):  # keys of another kind
                    said.add(topic.prepare_key(key, None)[0])
        return said.pop() if len(said) == 1 else own

    def _steps(self, tp: Any, asked: Asked) -> tuple[Step[URL], ...]:
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
        """So that not every request waits for a worker that is frozen, as long as a copy can stand in."""
        return step.at is not None and self._shunned.get(step.at, 0.0) > monotonic()

    async def _ask(self, url: URL, asked: Asked, web: Any, request: Any) -> Any:
        """The answer of the worker at ``url``; None where it has none."""
        total = self._forward_s if asked.changes_nothing else PATIENT_S
        try:
            answer = await self.forward(
                url,
                web,
                request,
                also={HOP: "1"},
                timeout=aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_S),
            )
        except (*UNREACHABLE, SameNode, ServiceUnavailable) as error:
            logger.info("%s does not answer for a key: %r", url, error)
            self._shunned[url] = monotonic() + SHUNNED_S
            return None
        return None if answer.status == 503 and answer.headers.get(ROLE) == "none" else answer

    async def route_topic_req(self, topic: Any, key: Any, web: Any, request: Any) -> Any:
        """As :meth:`route_req`, of a topic: only its reader can answer."""
        try:
            return await super().route_topic_req(topic, key, web, request)
        except (*UNREACHABLE, ServiceUnavailable) as error:
            logger.info("No worker answers for a key of topic %s: %r", topic, error)
            return unavailable(web, "the worker that reads it does not answer, or is not known")
