"""Queries a group: its coordinator, then all its workers and the brokers concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import KafkaError
from yarl import URL

from faust_assigner.clients.group_views import CONSUMER_TYPE
from faust_assigner.clients.groups import (
    GroupNotFound,
    NoBrokerAnswers,
    committed_offsets,
    connected,
    described,
)
from faust_assigner.errors import FaustAssignerError, TryAgain
from faust_assigner.settings.places import allowed
from faust_assigner.status.described import DescribedGroup, decode_group, replaced_urls
from faust_assigner.status.end_offsets import EndOffsets
from faust_assigner.status.evidence import Evidence, Heard, Place
from faust_assigner.status.ledgers import LEDGER_PAGES, read_ledgers
from faust_assigner.status.report import NOT_ASKED
from faust_assigner.status.worker_requests import ask_peers, ask_rounds, ask_status
from faust_assigner.wire.worker_status import Peer, RoundTold

#: The number of attempts while the coordinator loads or moves, and the seconds between two attempts.
TRIES, BETWEEN_S = 5, 0.3
#: The number of threads that resolve host names.
MOST_LOOKUPS = 128
#: The time limit for the answers of the group's coordinator, all retries included, in seconds.
GROUP_S = 20.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Where:
    """The group to look at, and the ways to its workers.

    ``connection`` has aiokafka's keywords. ``workers`` are further URLs to query. While the
    coordinator hides URLs, ``web_port`` is tried on the members' hosts; None for no attempt.
    ``patterns`` are the allowed URLs (``FAUST_ASSIGNER_URLS``); ``deadline_s`` applies to each
    worker.
    """

    connection: Mapping[str, object]
    group_id: str
    workers: tuple[str, ...] = ()
    web_port: int | None = 6066
    patterns: tuple[str, ...] = ()
    deadline_s: float = 3.0


class _Lookups(ThreadPoolExecutor):
    """Threads that resolve host names; the end of the event loop does not wait for a name server."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the idle threads, and begin no further lookup."""
        super().shutdown(wait=False, cancel_futures=True)


class Looks:
    """Queries a group repeatedly, over one connection, and remembers the workers' URLs."""

    def __init__(self, where: Where, clock: Callable[[], float]) -> None:
        self._where, self._clock = where, clock
        self._urls: dict[str, str] = {}
        self._client: AIOKafkaClient | None = None
        self._ends = EndOffsets(where.connection, deadline_s=max(where.deadline_s, 1.0) * 2)

    async def __aenter__(self) -> Looks:
        # All workers' hosts are resolved concurrently; threads are created on demand.
        lookups = _Lookups(MOST_LOOKUPS, thread_name_prefix="lookup")
        asyncio.get_running_loop().set_default_executor(lookups)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        await self._ends.close()

    async def look(self) -> Evidence:
        """Collect the current data of the group.

        Raises :class:`GroupNotFound` if the cluster has no such group, and :class:`TryAgain` if the
        coordinator or every broker is silent.
        """
        group, committed = await _in_time(self._group(), GROUP_S, "the group's coordinator")
        evidence = Evidence(
            group=group, committed=committed, urls=dict(self._urls), taken_at=self._clock()
        )
        if group.is_settled:
            wanted = {*self._where.workers, *(m.url for m in group.members if m.url)}
            heard, (ends, problems) = await asyncio.gather(
                self._ask(group, wanted | replaced_urls(group)), self._ends.of(_topics(evidence))
            )
            # A replaced process should have ended, so its silence is not reported.
            shown = {u: one for u, one in heard.items() if u in wanted or one.status is not None}
            evidence = replace(evidence, heard=shown)
        else:
            evidence = await self._search(evidence)
            ends, problems = await self._ends.of(_topics(evidence))
        self._remember(evidence)
        return replace(evidence, ends=ends, leaderless=self._ends.leaderless, problems=problems)

    async def rounds(self, evidence: Evidence) -> tuple[RoundTold, ...]:
        """Return the last rounds from the workers that answered."""
        urls = [url for url, one in evidence.heard.items() if one.status is not None]
        told = await ask_rounds(urls, deadline_s=self._where.deadline_s)
        return tuple(
            found
            for url in sorted(told)
            if told[url].app == self._where.group_id
            for found in told[url].rounds
        )

    async def ledgers(
        self, evidence: Evidence, *, most_pages: int = LEDGER_PAGES
    ) -> tuple[list[bytes], tuple[str, ...]]:
        """Return :func:`~faust_assigner.status.ledgers.read_ledgers` of the group."""
        return await read_ledgers(
            evidence,
            self._where.connection,
            deadline_s=self._where.deadline_s,
            most_pages=most_pages,
        )

    # -- the group

    async def _group(self) -> tuple[DescribedGroup, dict[Place, int]]:
        for attempt in range(TRIES):
            try:
                return await self._describe()
            except NoBrokerAnswers:
                raise
            except (TryAgain, KafkaError):
                if attempt == TRIES - 1:
                    raise
                await asyncio.sleep(BETWEEN_S)
        raise AssertionError("not reached")

    async def _describe(self) -> tuple[DescribedGroup, dict[Place, int]]:
        if self._client is None:
            self._client = await connected(self._where.connection)
        client, group_id = self._client, self._where.group_id
        node = await client.coordinator_lookup(CoordinationType.GROUP, group_id)
        answer, offsets = await asyncio.gather(
            described(client, node, group_id), committed_offsets(client, node, group_id)
        )
        broker = client.cluster.broker_metadata(node)
        group = decode_group(
            answer, coordinator="" if broker is None else f"{broker.host}:{broker.port}"
        )
        _check(group)
        return group, {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}

    # -- the workers

    async def _ask(self, group: DescribedGroup, urls: Iterable[str]) -> dict[str, Heard]:
        """Query the workers at ``urls``. The URLs of ``Where.workers`` are always allowed."""
        own = URL(_url_at(group.coordinator.rpartition(":")[0]) or "http://localhost")
        found: dict[str, Heard] = {}
        wanted = set[str]()
        for url in urls:
            if url in self._where.workers or _allowed(url, own, self._where.patterns):
                wanted.add(url)
            else:
                why = "link-local, loopback of another machine, or not in FAUST_ASSIGNER_URLS"
                found[url] = Heard(answer=NOT_ASKED, detail=f"{url} was not queried: {why}")
        return found | await ask_status(wanted, deadline_s=self._where.deadline_s)

    async def _search(self, evidence: Evidence) -> Evidence:
        """Search for workers during a rebalance.

        Each worker has the URLs of all members. Tries the workers of ``Where`` and of earlier
        queries, and the members' hosts.
        """
        group, deadline_s = evidence.group, self._where.deadline_s
        guesses = {
            url
            for member in group.members
            if self._where.web_port is not None
            and (url := _url_at(member.address, self._where.web_port))
        }
        known = {*self._where.workers, *evidence.urls.values()}
        heard, answers = await asyncio.gather(
            self._ask(group, known | guesses), ask_peers(known | guesses, deadline_s=deadline_s)
        )
        peers: Sequence[Peer] = ()
        ours = [one for one in answers.values() if one.app == group.group_id]
        if ours:
            peers = max(ours, key=lambda one: one.generation).peers
        heard |= await self._ask(group, {peer.url for peer in peers} - heard.keys())
        # The silence of a guessed URL is not reported: possibly no worker has this URL.
        shown = known | {peer.url for peer in peers}
        return replace(
            evidence,
            heard={u: one for u, one in heard.items() if u in shown or one.status is not None},
            peers=tuple(peers),
        )

    def _remember(self, evidence: Evidence) -> None:
        for member in evidence.group.members:
            if member.url:
                self._urls[member.member_id] = member.url
        for url, heard in evidence.heard.items():
            if heard.status is not None and heard.status.member_id:
                self._urls[heard.status.member_id] = url
        present = {member.member_id for member in evidence.group.members}
        self._urls = {m: url for m, url in self._urls.items() if m in present}


def _check(group: DescribedGroup) -> None:
    if group.state == "Dead":
        raise GroupNotFound(
            f"no classic group {group.group_id!r}: Faust workers form one named after the app's id; "
            "faust-assigner groups list shows all groups"
        )
    if group.protocol_type not in (CONSUMER_TYPE, ""):
        raise FaustAssignerError(
            f"{group.group_id!r} is a group of {group.protocol_type}, not of consumers"
        )


def _url_at(host: str, port: int | None = None) -> str:
    """Return the URL of a host; "" if ``host`` is not a valid host."""
    try:
        return str(URL.build(scheme="http", host=host, port=port)) if host else ""
    except ValueError:
        return ""


def _allowed(url: str, own: URL, patterns: Sequence[str]) -> bool:
    try:
        return allowed(URL(url), own, patterns)
    except ValueError:
        return True  # the query of this URL then reports the problem


def _topics(evidence: Evidence) -> frozenset[str]:
    """Return the topics in subscriptions, in committed offsets and in workers' answers."""
    found = {topic for topic, _ in evidence.committed}
    for member in evidence.group.members:
        found |= member.topics
    for heard in evidence.heard.values():
        if heard.status is not None:
            found |= {*heard.status.actives, *heard.status.standbys}
    return frozenset(found)


async def _in_time(work: Awaitable[T], seconds: float, who: str) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise TryAgain(f"{who} did not answer within {seconds:g} s") from None
