"""The members of a group, each with its URL, its answer and a unique name. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from yarl import URL

from faust_assigner.status.described import COOPERATIVE, EAGER, UNKNOWN, DescribedMember, numbers_of
from faust_assigner.status.evidence import Evidence, Heard, Place
from faust_assigner.status.report import ANSWERED, NOT_ASKED, OTHER, SILENT, UNREACHABLE, Numbers
from faust_assigner.wire.worker_status import Peer, TableStatus, WorkerStatus

#: The most names in a list; further names are only counted.
MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class View:
    """A member with the data about it from the coordinator, its own worker, and other workers.

    The coordinator's data has priority over the worker's answer, and the worker's answer over the
    list of members from a different worker (``peer``).
    """

    member: DescribedMember
    heard: Heard
    url: str = ""
    peer: Peer | None = None
    name: str = ""

    @property
    def status(self) -> WorkerStatus | None:
        """The worker's status, if the worker answered."""
        return self.heard.status

    @property
    def settings(self) -> Mapping[str, str]:
        """The worker's settings by name; empty without an answer."""
        return {} if self.status is None else self.status.settings

    @property
    def tables(self) -> Sequence[TableStatus]:
        """The worker's tables; empty without an answer."""
        return () if self.status is None else self.status.tables

    @property
    def counters(self) -> Mapping[str, int]:
        """The worker's counters by name; empty without an answer."""
        return {} if self.status is None else self.status.counters

    @property
    def does_answer(self) -> bool:
        """Whether this worker answered, and not another process at its URL."""
        return self.heard.answer == ANSWERED

    @property
    def is_lost(self) -> bool:
        """Whether an expected answer is missing."""
        return self.heard.answer in (SILENT, UNREACHABLE)

    @property
    def kind(self) -> str:
        """The member's kind; from the worker's answer if the coordinator hides the metadata."""
        if self.member.kind == UNKNOWN and self.status is not None:
            return COOPERATIVE if self.status.is_cooperative else EAGER
        return self.member.kind

    @property
    def instance_id(self) -> str | None:
        """The instance id of a static member, else None."""
        return self.member.instance_id or (self.peer.instance_id if self.peer else None)

    @cached_property
    def actives(self) -> Numbers:
        """The partitions that the member owns."""
        if self.member.given is not None:
            return numbers_of(self.member.actives)
        if self.status is not None:
            everywhere = self.status.global_changelogs
            return {t: n for t, n in self.status.actives.items() if t not in everywhere}
        return {} if self.peer is None else self.peer.actives

    @cached_property
    def warmups(self) -> Numbers:
        """The copies whose tasks move to this member once the copies have caught up."""
        if self.member.given is not None:
            return numbers_of(self.member.given.awaited)
        return {} if self.status is None else self.status.awaited

    @cached_property
    def standbys(self) -> Numbers:
        """The member's copies without the warm-ups."""
        copies: Numbers = {}
        if self.member.given is not None:
            copies = numbers_of(self.member.copies)
        elif self.status is not None:
            everywhere = self.status.global_changelogs
            copies = {t: n for t, n in self.status.standbys.items() if t not in everywhere}
        found = {
            topic: tuple(sorted(set(numbers) - set(self.warmups.get(topic, ()))))
            for topic, numbers in copies.items()
        }
        return {topic: numbers for topic, numbers in found.items() if numbers}


def views_of(evidence: Evidence) -> tuple[View, ...]:
    """Return every member of the group with its URL, its answer and its name, by name."""
    members = evidence.group.members
    by_id = {
        heard.status.member_id: url
        for url, heard in sorted(evidence.heard.items())
        if heard.status is not None and heard.status.member_id
    }
    peers = {peer.url: peer for peer in evidence.peers}
    urls = {
        member.member_id: member.url
        or by_id.get(member.member_id)
        or evidence.urls.get(member.member_id, "")
        for member in members
    }
    if not evidence.group.is_settled:
        urls = _guess_urls(members, urls, evidence)
    views = [
        View(
            member=member,
            heard=_reply_of_member(evidence, member, urls[member.member_id], by_id),
            url=urls[member.member_id],
            peer=peers.get(urls[member.member_id]),
        )
        for member in members
    ]
    views += _unidentified_members(evidence, {view.url for view in views})
    return tuple(sorted(_give_unique_names(views), key=lambda view: view.name))


def _unidentified_members(evidence: Evidence, shown: Collection[str]) -> Iterator[View]:
    """Yield silent workers of the last round whose member ids are unknown.

    During a rebalance the coordinator does not show which member runs at which URL.
    """
    for peer in () if evidence.group.is_settled else evidence.peers:
        heard = evidence.heard.get(peer.url)
        if peer.url not in shown and heard is not None and heard.status is None:
            nameless = DescribedMember(member_id="", client_id="", address=host_of(peer.url))
            yield View(member=nameless, heard=heard, url=peer.url, peer=peer)


def _reply_of_member(
    evidence: Evidence, member: DescribedMember, url: str, by_id: Mapping[str, str]
) -> Heard:
    """Return the answer of this member.

    If several members have this URL, the answer comes from only one of them.
    """
    if member.member_id in by_id:
        return evidence.heard[by_id[member.member_id]]
    heard = evidence.heard.get(url)
    if heard is None:
        where = "its URL is not known" if not url else f"{url} was not queried"
        return Heard(answer=NOT_ASKED, detail=where)
    if heard.status is None:
        return heard
    if heard.status.app != evidence.group.group_id:
        return Heard(answer=OTHER, detail=f"{url} serves a different app, {heard.status.app}")
    if not heard.status.member_id:  # the member has just begun to rejoin
        return heard
    return Heard(answer=OTHER, detail=f"{url} is served by the member {heard.status.member_id}")


def _guess_urls(
    members: Sequence[DescribedMember], urls: Mapping[str, str], evidence: Evidence
) -> dict[str, str]:
    """Guess the URLs of silent members while the coordinator hides the URLs. Cost: O(members).

    A peer belongs to the member with the same instance id, else to the member on the same host,
    else to the only remaining member.
    """
    found, known = dict(urls), {*urls.values()}
    free = {peer.url: peer for peer in evidence.peers if peer.url not in known}
    keys: tuple[tuple[_MemberKey, _PeerKey], ...] = (
        (lambda member: member.instance_id or "", lambda peer: peer.instance_id or ""),
        (lambda member: member.address, lambda peer: host_of(peer.url)),
        (lambda member: "any", lambda peer: "any"),
    )
    for of_member, of_peer in keys:
        open_ = [member for member in members if not found[member.member_id]]
        rivals = Counter(map(of_member, open_))
        counted = Counter(map(of_peer, free.values()))
        fitting = {of_peer(peer): peer.url for peer in free.values()}
        for member in open_:
            key = of_member(member)
            if key and rivals[key] == counted[key] == 1:
                found[member.member_id] = fitting[key]
                del free[fitting[key]]
    return found


_MemberKey: TypeAlias = Callable[[DescribedMember], str]
_PeerKey: TypeAlias = Callable[[Peer], str]


def join_sorted(names: Iterable[str]) -> str:
    """Join at most five names, with a count of the omitted names.

    >>> join_sorted(["b", "a"]), join_sorted("abcdefg")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    ordered = sorted(names)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(ordered[:MOST_NAMED]) + more


def host_of(url: str) -> str:
    """Return the host of a URL, or ""."""
    try:
        return URL(url).host or ""
    except ValueError:
        return ""


def _give_unique_names(views: Sequence[View]) -> list[View]:
    """Give each member a unique name.

    The name is the first of these that is unique: the instance id, the URL's host, the URL's host
    and port, the member id. The name does not depend on the worker's answer.
    """
    found: dict[str, View] = {}
    open_ = list(views)
    for name_of in (_name_by_instance, _name_by_host, _name_by_url):
        counted = Counter(map(name_of, open_))
        left = []
        for view in open_:
            name = name_of(view)
            if name and counted[name] == 1 and name not in found:
                found[name] = replace(view, name=name)
            else:
                left.append(view)
        open_ = left
    rest = [replace(view, name=view.member.member_id or view.url) for view in open_]
    return [*found.values(), *rest]


def _name_by_instance(view: View) -> str:
    return view.instance_id or ""


def _name_by_host(view: View) -> str:
    return host_of(view.url)


def _name_by_url(view: View) -> str:
    return view.url.removeprefix("http://").removeprefix("https://").rstrip("/")


def owners_of(views: Iterable[View]) -> dict[Place, str]:
    """Return partition -> the name of its owner."""
    return {
        (topic, number): view.name
        for view in views
        for topic, numbers in view.actives.items()
        for number in numbers
    }
