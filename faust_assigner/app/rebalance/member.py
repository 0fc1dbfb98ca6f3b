"""This member's metadata when it joins, and its memory of the last assignment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from faust.types.tuples import TP
from mode import get_logger
from yarl import URL

import faust_assigner
from faust_assigner.app import settings
from faust_assigner.app.rebalance.memory_file import FormerPartitions
from faust_assigner.app.rebalance.positions import positions_of
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.warming import uses_warmups
from faust_assigner.app.tables.disk import partitions_on_disk
from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.settings import table
from faust_assigner.wire.answer import Answer, actives_to_claim, decode_answer, read_directory
from faust_assigner.wire.bounded import USER_DATA_BYTES, ByUrl
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData, encode_join
from faust_assigner.wire.runs import Runs

if TYPE_CHECKING:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
    from faust.types.app import AppT

logger = get_logger(__name__)

#: The metadata repeat the claims in the format of stock Faust. Metadata above this size in bytes repeat
#: them only in a group with stock members.
STOCK_PART_BYTES = 16 * 1024


@dataclass(frozen=True)
class Memory:
    """A member's last assignment, immutable because the router reads it on a different thread.

    ``answer`` is the leader's answer, None before the first assignment. ``group_ids`` keeps the ids of
    topics that are no longer assigned: transactions of revoked partitions still need them.
    """

    answer: Answer | None = None
    generation: int = -1
    actives: Mapping[str, Runs] = field(default_factory=dict)
    standbys: Mapping[str, Runs] = field(default_factory=dict)
    group_ids: Mapping[str, int] = field(default_factory=dict)

    def owned(self, tables: TableFacts) -> Mapping[str, Runs]:
        """Return the actives without the global tables' partitions that each worker restores."""
        if self.answer is None:
            return {}
        return actives_to_claim(tables.globals_.keys(), replace(self.answer, actives=self.actives))

    @cached_property
    def active_tps(self) -> frozenset[TP]:
        """Return the partitions that the member owns, with all partitions of global tables."""
        return tps_of(self.actives)

    @cached_property
    def standby_tps(self) -> frozenset[TP]:
        """Return the changelog partitions that the member follows as a standby."""
        return tps_of(self.standbys)

    @cached_property
    def directory(self) -> Directory:
        """Return the owners of all partitions; empty without an answer or under a stock leader."""
        if self.answer is None:
            return Directory()
        try:
            return read_directory(self.answer.directory)
        except MetadataRefused as exc:
            logger.warning(
                "Could not decode the directory of owners; requests for keys cannot be routed: %s",
                exc,
            )
            return Directory()

    @cached_property
    def changelog_distribution(self) -> ByUrl:
        """Return URL -> changelog topic -> partitions."""
        if self.answer is None or self.answer.changelog_distribution:
            return dict(self.answer.changelog_distribution) if self.answer else {}
        return self.directory.by_url(self.directory.changelogs)

    @cached_property
    def external_topic_distribution(self) -> ByUrl:
        """Return URL -> other topic -> partitions."""
        if self.answer is None or self.answer.external_topic_distribution:
            return dict(self.answer.external_topic_distribution) if self.answer else {}
        return self.directory.by_url(self.directory.owners.keys() - self.directory.changelogs)

    def owner_of(self, tp: TP, *, of_tables: bool) -> URL:
        """Return the worker that owns ``tp``, a table's changelog or another topic. Raises KeyError."""
        directory = self.directory
        if directory.urls and (tp.topic in directory.changelogs) == of_tables:
            return URL(directory.url_of(tp.topic, tp.partition))
        by_url = self.changelog_distribution if of_tables else self.external_topic_distribution
        for url, topics in by_url.items():
            if tp.partition in topics.get(tp.topic, ()):
                return URL(url)
        raise KeyError(tp)

    def standbys_of(self, tp: TP) -> tuple[URL, ...]:
        """Return the workers that keep a copy of ``tp``; empty if the answer does not contain them."""
        urls = self.directory.standby_urls(tp.topic, tp.partition)
        return tuple(URL(url) for url in urls if url)


def tps_of(claims: Mapping[str, Runs]) -> frozenset[TP]:
    """Convert claims (topic -> partition numbers) to partitions."""
    return frozenset(TP(topic, partition) for topic, runs in claims.items() for partition in runs)


def collect_join_data(
    app: AppT,
    memory: Memory,
    tables: TableFacts,
    topics: Collection[str],
    former: Callable[[], FormerPartitions] = FormerPartitions,
    overdue: Claims | None = None,
    *,
    holds: bool = False,
    leaves: bool = False,
    cooperative: bool = False,
) -> JoinData:
    """Collect this member's metadata for the next round.

    Before the first assignment the member reports all its files on disk. Later it reports only files of
    promised partitions: files of partitions that moved away long ago would count as standbys. The
    partitions of a ``former`` process are reported for the whole life of this process, because a
    different member may restart much later. The leader then knows the last owner of each partition.
    ``holds``: this member keeps processing its partitions. ``leaves``: it gives them away.
    """
    before, answer = former(), memory.answer
    on_disk = _partitions_on_disk(app, answer, tables)
    actives = {} if answer is None else memory.owned(tables)
    standbys = {t: runs for t, runs in memory.standbys.items() if t in tables.stateful}
    return JoinData(
        str(app.conf.canonical_url),
        actives,
        standbys,
        on_disk,
        former_actives=before.actives,
        former_generation=before.generation,
        holds=holds,
        leaves=leaves,
        cooperative=cooperative,
        promised={} if answer is None else answer.promised,
        among=0 if answer is None else answer.among,
        generation=memory.generation,
        instance_id=settings.or_default(settings.instance_id, app, None),
        rack_id=settings.read_or_default(app, table.RACK),
        capacity=settings.read_or_default(app, table.CAPACITY),
        group_ids=memory.group_ids,
        changelogs=tables.changelogs & set(topics),
        globals_={t: full for t, full in tables.globals_.items() if t in topics},
        software=faust_assigner.__version__,
        # Without positions the leader does not wait for this member's copies. If this member
        # requests no follow-up rounds, the wait would never end.
        positions=_table_positions(app, (actives, standbys, on_disk), tables.stateful & set(topics))
        if uses_warmups(app)
        else None,
        awaited={} if answer is None else answer.awaited,
        overdue=overdue or {},
    )


def _partitions_on_disk(
    app: AppT, answer: Answer | None, tables: TableFacts
) -> dict[str, list[int]]:
    """Return the partitions with files: before the first answer all, then only promised partitions."""
    stores = {t: table for t, table in app.tables._changelogs.items() if t not in tables.globals_}
    if answer is None:
        return partitions_on_disk(app, stores)
    # The second round assigns the promised partitions; until then the member reports their files.
    promised = answer.promised
    found = partitions_on_disk(app, {t: stores[t] for t in stores.keys() & promised.keys()})
    return {
        t: here
        for t, numbers in found.items()
        if (here := [p for p in numbers if p in promised[t]])
    }


def _table_positions(app: AppT, claims: tuple[Claims, ...], changelogs: Collection[str]) -> Any:
    """Return this member's table positions; None if they cannot be read, so that no task waits.

    The first entry of ``claims`` contains the owned partitions.
    """
    try:
        held = {t: {p for side in claims for p in side.get(t, ())} for t in changelogs}
        return positions_of(app, held, {t: set(claims[0].get(t, ())) for t in changelogs})
    except Exception:
        logger.exception(
            "Could not read the positions of the tables; their partitions move without warm-ups"
        )
        return None


#: The claims that are omitted from metadata that are too large, in this order.
_LEAVE_OUT: tuple[tuple[str, Callable[[JoinData], JoinData]], ...] = (
    ("its position", lambda data: replace(data, positions=None, awaited={}, overdue={})),
    ("what it owned", lambda data: replace(data, former_actives={})),
    ("files", lambda data: replace(data, on_disk={})),
    ("standbys", lambda data: replace(data, standbys={})),
    ("actives", lambda data: replace(data, actives={})),
)


def user_data(data: JoinData, topics: Collection[str], *, is_uniform: bool) -> bytes:
    """Encode the member's metadata for JoinGroup, within the size that a leader accepts.

    A member with too many scattered partitions omits claims in this order: the copy for stock
    leaders, the positions, the partitions of its former process, the files, the standbys, the
    actives.
    """
    packed = encode_join(data, topics)
    if len(packed) <= STOCK_PART_BYTES or (not is_uniform and len(packed) <= USER_DATA_BYTES):
        return packed
    packed = encode_join(data, topics, for_stock=False)
    without: list[str] = []
    for what, less in _LEAVE_OUT:
        if len(packed) <= USER_DATA_BYTES:
            break
        without.append(what)
        data = less(data)
        packed = encode_join(data, topics, for_stock=False)
    if without:
        logger.warning(
            "The member's metadata would be too large; it joins without these claims: %s",
            ", ".join(without),
        )
    return packed


def read_answer(
    assignment: ConsumerProtocolMemberAssignment, *, kafkas: int, before: Memory
) -> tuple[Answer, Memory, Exception | None]:
    """Return the leader's answer, the new memory, and the error of an answer that cannot be decoded."""
    given: dict[str, list[int]] = {}
    for topic, numbers in assignment.assignment or ():
        given.setdefault(topic, []).extend(numbers)
    try:
        answer = decode_answer(assignment.user_data)
        return answer, remember(answer, given, kafkas=kafkas, before=before), None
    except Exception as exc:
        answer = Answer({t: Runs.of(numbers) for t, numbers in given.items()}, {})
        return answer, remember(answer, given, kafkas=kafkas, before=before), exc


def remember(
    answer: Answer, given: Mapping[str, Collection[int]], *, kafkas: int, before: Memory
) -> Memory:
    """Return the memory after ``answer``, limited to the partitions ``given`` to the consumer.

    Stock leaders also assign standbys of source topics, which no member reads. A given partition
    without a role in the answer counts as active: a needless recovery is better than the use of an
    empty table. ``kafkas`` is Kafka's generation if known, else -1.
    """
    actives = _limit_to_given(answer.actives, given)
    standbys = _limit_to_given(answer.standbys, given)
    spare = {topic: list(runs) for topic, runs in standbys.items()}
    answer = replace(
        answer,
        writes=_limit_to_given(answer.writes, given),
        awaited=_limit_to_given(answer.awaited, spare),
    )
    for topic, numbers in given.items():
        named = {*actives.get(topic, ()), *standbys.get(topic, ())}
        if unnamed := set(numbers) - named:
            logger.error(
                "%s: partitions %s were assigned without a role; they count as active",
                topic,
                sorted(unnamed)[:20],
            )
            actives[topic] = Runs.of([*actives.get(topic, ()), *unnamed])
    clock = kafkas if kafkas >= 0 else before.generation + 1
    generation = answer.generation if answer.generation >= 0 else clock
    return Memory(answer, generation, actives, standbys, {**before.group_ids, **answer.group_ids})


def _limit_to_given(
    claims: Mapping[str, Runs], given: Mapping[str, Collection[int]]
) -> dict[str, Runs]:
    found = {}
    for topic, runs in claims.items():
        # Do not loop over ``runs``: a faulty answer may contain two billion partitions.
        kept = [p for p in given.get(topic, ()) if p in runs]
        if kept:
            found[topic] = Runs.of(kept)
    return found
