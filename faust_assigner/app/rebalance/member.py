"""What this member says when it joins, and what it remembers of its last assignment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mode import get_logger

import faust_assigner
from faust_assigner.app import settings
from faust_assigner.app.rebalance.memory_file import Former
from faust_assigner.app.rebalance.positions import positions_of
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.warming import takes_part
from faust_assigner.app.tables.disk import partitions_on_disk
from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.settings import table
from faust_assigner.wire.answer import Answer, own_topics, read_directory
from faust_assigner.wire.bounded import USER_DATA_BYTES
from faust_assigner.wire.directory import ByUrl, Directory
from faust_assigner.wire.join import JoinData, encode_join
from faust_assigner.wire.runs import Runs

logger = get_logger(__name__)

#: Stock's part of the metadata repeats the claims up to this size; beyond it, only a group that has
#: stock members is worth the bytes.
STOCK_PART_BYTES = 16 * 1024


@dataclass(frozen=True)
class Memory:
    """A member's last assignment, immutable: the router reads it on another thread.

    ``answer`` is None before the first one. ``generation`` dates it. ``group_ids`` keeps the ids of topics
    that are gone: producers still end transactions on what was revoked.
    """

    answer: Answer | None = None
    generation: int = -1
    actives: Mapping[str, Runs] = field(default_factory=dict)
    standbys: Mapping[str, Runs] = field(default_factory=dict)
    group_ids: Mapping[str, int] = field(default_factory=dict)

    def owned(self, tables: TableFacts) -> Mapping[str, Runs]:
        """The actives without the synthetic ones of global tables."""
        if self.answer is None:
            return {}
        return own_topics(tables.globals_.keys(), replace(self.answer, actives=self.actives))

    @cached_property
    def directory(self) -> Directory:
        """Who owns what; empty where a stock leader, or none, has told."""
        if self.answer is None:
            return Directory()
        try:
            return read_directory(self.answer.directory)
        except MetadataRefused as exc:
            logger.warning(
                "The directory of owners cannot be read, requests cannot be routed: %s", exc
            )
            return Directory()

    @cached_property
    def changelog_distribution(self) -> ByUrl:
        """URL -> changelog topic -> partitions."""
        if self.answer is None or self.answer.changelog_distribution:
            return dict(self.answer.changelog_distribution) if self.answer else {}
        return self.directory.by_url(self.directory.changelogs)

    @cached_property
    def external_topic_distribution(self) -> ByUrl:
        """URL -> other topic -> partitions."""
        if self.answer is None or self.answer.external_topic_distribution:
            return dict(self.answer.external_topic_distribution) if self.answer else {}
        return self.directory.by_url(self.directory.owners.keys() - self.directory.changelogs)


def said_by(
    app: Any,
    memory: Memory,
    tables: TableFacts,
    topics: Collection[str],
    former: Callable[[], Former] = Former,
    overdue: Claims | None = None,
    *,
    holds: bool = False,
    leaves: bool = False,
    cooperative: bool = False,
) -> JoinData:
    """This member's word for the next round.

    Files on disk are named until the first assignment, those of promised partitions until the next one; from
    then on the assignment says what is owned and warm, and files of partitions that left long ago would be
    taken for standbys. What a ``former`` process
    owned is named as long as this one lives: another may start much later, and then it tells which of
    what was taken in for that one is to go, and what to stay. ``holds``: what is owned goes on being
    processed. ``leaves``: it is to be given away.
    """
    on_disk: dict[str, list[int]] = {}
    actives: Mapping[str, Runs] = {}
    standbys: Mapping[str, Runs] = {}
    before = former()
    stores = {t: table for t, table in app.tables._changelogs.items() if t not in tables.globals_}
    if memory.answer is None:
        on_disk = partitions_on_disk(app, stores)
    else:
        # What others let go of for this worker comes with the second round: its files count until then.
        promised = memory.answer.promised
        on_disk = {
            t: here
            for t, numbers in partitions_on_disk(
                app, {t: stores[t] for t in stores.keys() & promised.keys()}
            ).items()
            if (here := [p for p in numbers if p in promised[t]])
        }
        actives = memory.owned(tables)
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
        promised=memory.answer.promised if memory.answer is not None else {},
        among=memory.answer.among if memory.answer is not None else 0,
        generation=memory.generation,
        instance_id=settings.or_default(settings.instance_id, app, None),
        rack_id=settings.read_or_default(app, table.RACK),
        capacity=settings.read_or_default(app, table.CAPACITY),
        group_ids=memory.group_ids,
        changelogs=tables.changelogs & set(topics),
        globals_={t: full for t, full in tables.globals_.items() if t in topics},
        software=faust_assigner.__version__,
        # A leader that is set otherwise would wait for ever for one that asks for no round.
        positions=_positions(app, (actives, standbys, on_disk), tables.stateful & set(topics))
        if takes_part(app)
        else None,
        awaited=memory.answer.awaited if memory.answer is not None else {},
        overdue=overdue or {},
    )


def _positions(app: Any, claims: tuple[Claims, ...], changelogs: Collection[str]) -> Any:
    """How far the state has come; None where that cannot be told, and then nothing waits for it.

    The first of ``claims`` is what is owned.
    """
    try:
        held = {t: {p for side in claims for p in side.get(t, ())} for t in changelogs}
        return positions_of(app, held, {t: set(claims[0].get(t, ())) for t in changelogs})
    except Exception:
        logger.exception(
            "Could not read the positions of the tables; their partitions move without warm-ups"
        )
        return None


#: Claims in the order in which they are left out.
_LEAVE_OUT: tuple[tuple[str, Callable[[JoinData], JoinData]], ...] = (
    ("how far it has come", lambda data: replace(data, positions=None, awaited={}, overdue={})),
    ("what it owned", lambda data: replace(data, former_actives={})),
    ("files", lambda data: replace(data, on_disk={})),
    ("standbys", lambda data: replace(data, standbys={})),
    ("actives", lambda data: replace(data, actives={})),
)


def user_data(data: JoinData, topics: Collection[str], *, is_uniform: bool) -> bytes:
    """The bytes to join with, always within what a leader takes.

    A member with so many scattered partitions that they do not fit leaves claims out: first the copy
    for stock leaders, then how far its state has come, then what its former process owned, then files, then
    standbys, then all.
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
        logger.warning("The metadata would be too large, claims left out: %s", ", ".join(without))
    return packed


def remember(
    answer: Answer, given: Mapping[str, Collection[int]], *, kafkas: int, before: Memory
) -> Memory:
    """The memory after ``answer``, cut to what the consumer was really ``given``.

    Stock leaders name standbys of source topics that nobody reads. What was given and not named counts
    as active: a table must rather recover than be used empty. ``kafkas`` is Kafka's generation where
    known, else -1.
    """
    actives = _within(answer.actives, given)
    standbys = _within(answer.standbys, given)
    spare = {topic: list(runs) for topic, runs in standbys.items()}
    answer = replace(
        answer, writes=_within(answer.writes, given), awaited=_within(answer.awaited, spare)
    )
    for topic, numbers in given.items():
        named = {*actives.get(topic, ()), *standbys.get(topic, ())}
        if unnamed := set(numbers) - named:
            logger.error(
                "%s: partitions %s were given without a role; taken for active",
                topic,
                sorted(unnamed)[:20],
            )
            actives[topic] = Runs.of([*actives.get(topic, ()), *unnamed])
    clock = kafkas if kafkas >= 0 else before.generation + 1
    generation = answer.generation if answer.generation >= 0 else clock
    return Memory(answer, generation, actives, standbys, {**before.group_ids, **answer.group_ids})


def _within(claims: Mapping[str, Runs], given: Mapping[str, Collection[int]]) -> dict[str, Runs]:
    found = {}
    for topic, runs in claims.items():
        # The other way round a leader could have us walk through two billion numbers.
        kept = [p for p in given.get(topic, ()) if p in runs]
        if kept:
            found[topic] = Runs.of(kept)
    return found
