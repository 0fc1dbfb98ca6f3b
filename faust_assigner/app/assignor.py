"""PartitionAssignor: the assignor with the methods that Faust and aiokafka call.

    app = faust.App("shop", PartitionAssignor="faust_assigner:PartitionAssignor")

aiokafka calls ``metadata`` when this member joins, ``assign`` on the leader, and ``on_assignment`` on
each member. These methods run on the consumer's thread. They never raise: after an error aiokafka would
leave the worker alive without partitions. Other parts call the other methods from the app's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from faust.types.assignor import PartitionAssignorT
from faust.types.tuples import TP
from mode import get_logger
from yarl import URL

from faust_assigner.app.host import group_member
from faust_assigner.app.host.mixing import warn_without_fixup
from faust_assigner.app.queries.places import partition_of
from faust_assigner.app.rebalance import fallback, findings
from faust_assigner.app.rebalance.answers import PROTOCOL_VERSION, Answers
from faust_assigner.app.rebalance.awaited import Awaited, by_topic
from faust_assigner.app.rebalance.leader_round import Round
from faust_assigner.app.rebalance.leading import Leading
from faust_assigner.app.rebalance.member import (
    Memory,
    collect_join_data,
    read_answer,
    tps_of,
    user_data,
)
from faust_assigner.app.rebalance.memory_file import MemoryFile, has_other_offers, offers_of
from faust_assigner.app.rebalance.observers import Decisions, Observer
from faust_assigner.app.rebalance.table_facts import facts_of
from faust_assigner.app.transactions.ids import partitions_to_restart
from faust_assigner.wire.answer import Answer, decode_answer
from faust_assigner.wire.bounded import ByUrl
from faust_assigner.wire.join import JoinData

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
    from faust.types.app import AppT

logger = get_logger(__name__)


class PartitionAssignor(AbstractPartitionAssignor, PartitionAssignorT):  # type: ignore[misc]
    """One app's assignor; Faust creates it as ``PartitionAssignor(app, replicas=N)``.

    ``counters`` counts problems for the operator (see
    :mod:`faust_assigner.app.rebalance.findings`). ``weights_provider`` is called without arguments
    in each round that this member leads, and returns the weights of partitions. If it is None, all
    partitions weigh the same.
    """

    #: The assignor's protocol name, which all members of a group must share.
    name = "faust"
    #: Faust's protocol version.
    version = PROTOCOL_VERSION

    def __init__(self, app: AppT, replicas: int = 0) -> None:
        AbstractPartitionAssignor.__init__(self)
        self.app = app
        self.replicas = replicas
        self.counters: Counter[str] = Counter()
        self.decisions = Decisions()
        self.weights_provider: Callable[[], object] | None = None
        self.leading = Leading(self)
        self._memory = Memory()
        #: Topic -> the id of its co-partitioned group. The name is that of Faust's assignor.
        self._topic_groups: dict[str, int] = {}
        self._memory_file = MemoryFile(app, self.counters)
        self.awaited = Awaited()  # the standbys for which a follow-up round waits
        self.read_to: Mapping[TP, int] = {}  # standby -> its next offset when it caught up
        self.overdue: frozenset[TP] = frozenset()  # the standbys that took too long
        self.joined_with: JoinData | None = None  # this member's last metadata, None if unknown
        self._wanted: list[str] = []  # the subscription of the last join
        self.holds = False  # whether partitions are processed during the next round
        self.stops_nobody = False  # whether this round, or else the last one, is cooperative
        self.leaves = False  # whether this member hands over its partitions, because it stops
        self.is_unheard = False  # whether the leader has not read this member's new metadata
        self.cooperative = False  # whether this member offers cooperative rounds
        if hasattr(app, "_new_consumer"):
            warn_without_fixup(app)

    @property
    def is_uniform(self) -> bool:
        """Whether all members of the last round used this assignor, not stock Faust's."""
        return bool(self._memory.answer and self._memory.answer.is_uniform)

    @property
    def generation(self) -> int:
        """The generation of the last assignment, -1 before the first."""
        return self._memory.generation

    @staticmethod
    def is_followed(assignment: ConsumerProtocolMemberAssignment) -> bool:
        """Return whether a second round follows this answer; every member joins it at once."""
        try:
            return decode_answer(assignment.user_data).among > 0
        except Exception:  # on_assignment() logs the error
            return False

    def on_decision(self, observer: Observer) -> Observer:
        """Call ``observer(inputs, plan)`` after each decision of this member as the leader.

        The calls run in order on a separate thread. Decisions are dropped if the observer is slow.
        Errors of the observer are logged. The method may be used as a decorator.
        """
        return self.decisions.connect(observer)

    # -- as a member

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolMemberMetadata:
        """Return this member's metadata for a join."""
        wanted = self._wanted = sorted(topics)
        try:
            data = self._join_data(wanted)
            packed = user_data(data, wanted, is_uniform=self.is_uniform)
            self.joined_with = data
        except Exception:
            self.counters["metadata_failures"] += 1
            logger.exception(
                "Could not encode this member's partitions; joining as a new member (they may move)"
            )
            self.joined_with = None
            packed = fallback.plain_metadata(self.app)
        return ConsumerProtocolMemberMetadata(self.version, wanted, packed)

    def cache_file_offsets(self, topics: Collection[str]) -> None:
        """Read the files that ``metadata()`` needs and cache their offsets; in any thread."""
        try:
            self._join_data(sorted(topics))
        except Exception as exc:  # metadata() logs an error
            logger.debug(
                "Could not read the positions of local table files; they count as absent: %r", exc
            )

    def _join_data(self, topics: Collection[str]) -> JoinData:
        return collect_join_data(
            self.app,
            self._memory,
            facts_of(self.app),
            topics,
            self._memory_file.former,
            by_topic(self.overdue),
            holds=self.holds,
            leaves=self.leaves,
            cooperative=self.cooperative,
        )

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Store this member's part of the leader's assignment, and log it."""
        answer, memory, error = self._read(assignment)
        url = str(self.app.conf.canonical_url)
        findings.log_answer_problems(answer, memory, error, url, self.counters)
        self.is_unheard = self._memory.answer is None and has_other_offers(
            self.joined_with,
            self._wanted,
            self._memory_file.former(),
            generation=memory.generation,
            planned=memory.group_ids.keys(),
            given={*answer.actives, *answer.standbys},
        )
        self._memory = memory
        self._topic_groups = dict(memory.group_ids)
        taken = memory.answer or answer
        self.awaited = Awaited(
            memory.generation, tps_of(taken.awaited), memory.group_ids, follows=taken.among > 0
        )
        self.read_to = {}
        # While all workers stop, a stopping worker may join one more round. Do not store the
        # partitions of this round, because the worker owns them only for a moment.
        if not self.app.should_stop:
            said = offers_of(self.joined_with, self._wanted)
            known = self._memory_file.former().offers if self.is_unheard else said
            self._memory_file.keep(memory.generation, memory.owned(facts_of(self.app)), known)
        findings.log_own_assignment(memory, self.joined_with, self.app)

    def partitions_to_restart(self, assignment: ConsumerProtocolMemberAssignment) -> frozenset[TP]:
        """Return the kept partitions whose transaction ends, because other partitions of it move.

        The changelogs of global tables are never included. The offsets of these changelogs are in
        no transaction, and streams that keep running read the table.
        """
        if not self.app.in_transaction:
            return frozenset()
        before, (_, after, _) = self._memory, self._read(assignment)
        shared = facts_of(self.app).globals_.keys()
        own = {tp for tp in before.active_tps if tp.topic not in shared}
        return partitions_to_restart(own, after.active_tps, before.group_ids, after.group_ids)

    def _read(
        self, assignment: ConsumerProtocolMemberAssignment
    ) -> tuple[Answer, Memory, Exception | None]:
        kafkas = group_member.kafka_generation(self.app)
        return read_answer(assignment, kafkas=kafkas, before=self._memory)

    # -- as the leader

    def assign(
        self,
        cluster: ClusterMetadata,
        member_metadata: Mapping[str, ConsumerProtocolMemberMetadata],
    ) -> Answers:
        """Return each member's assignment; partition counts are read from ``cluster``."""
        return self.leading.lead(cluster, member_metadata)

    @property
    def last_round(self) -> Round | None:
        """The last round that this member has led; None before the first."""
        return self.leading.last_round

    # -- called by tables, producers and the router

    def assigned_actives(self) -> set[TP]:
        """Return the partitions that this member owns, with all partitions of global tables."""
        return set(self._memory.active_tps)

    def assigned_standbys(self) -> set[TP]:
        """Return the changelog partitions of which this member has a standby."""
        return set(self._memory.standby_tps)

    def is_active(self, tp: TP) -> bool:
        """Return whether this member owns ``tp``."""
        return tp in self._memory.active_tps

    def is_standby(self, tp: TP) -> bool:
        """Return whether this member is a standby of ``tp``."""
        return tp in self._memory.standby_tps

    def planned_counts(self) -> dict[str, int]:
        """Return topic -> its number of partitions in the last answer; empty if unknown.

        The number is 0 for a subscribed topic that had no partitions.
        """
        counts = {topic: owner.size for topic, owner in self._memory.directory.owners.items()}
        return dict.fromkeys(self._wanted, 0) | counts if counts else {}

    @property
    def decision_id(self) -> str:
        """The ledger's id of the decision that made this member's assignment; "" if unknown."""
        return self._memory.answer.decision_id if self._memory.answer is not None else ""

    def group_for_topic(self, topic: str) -> int:
        """Return the id of the topic's co-partitioned group.

        Raises KeyError for a topic that the consumer group does not consume.
        """
        return self._topic_groups[topic]

    @property
    def changelog_distribution(self) -> ByUrl:
        """URL -> changelog topic -> partitions, over all members."""
        return self._memory.changelog_distribution

    @property
    def external_topic_distribution(self) -> ByUrl:
        """URL -> any other topic -> partitions, over all members."""
        return self._memory.external_topic_distribution

    def table_metadata(self, topic: str) -> ByUrl:  # type: ignore[override]
        """Return URL -> ``topic`` -> partitions."""
        return {
            url: {t: numbers for t, numbers in topics.items() if t == topic}
            for url, topics in self.changelog_distribution.items()
        }

    def tables_metadata(self) -> ByUrl:  # type: ignore[override]
        """Return URL -> changelog topic -> partitions."""
        return self.changelog_distribution

    def external_topics_metadata(self) -> ByUrl:
        """Return URL -> any other topic -> partitions."""
        return self.external_topic_distribution

    def key_store(self, topic: str, key: bytes) -> URL:
        """Return the worker whose table holds ``key``. Raises KeyError if unknown."""
        return self._memory.owner_of(partition_of(self.app, topic, key), of_tables=True)

    def external_key_store(self, topic: str, key: bytes) -> URL:
        """Return the worker that reads ``key`` from ``topic``. Raises KeyError if unknown."""
        return self._memory.owner_of(partition_of(self.app, topic, key), of_tables=False)

    def owner_of(self, tp: TP) -> URL:
        """Return the worker that owns this changelog partition. Raises KeyError if unknown."""
        return self._memory.owner_of(tp, of_tables=True)

    def standbys_of(self, tp: TP) -> tuple[URL, ...]:
        """Return the workers that keep a copy of ``tp``; empty if the leader did not list them."""
        return self._memory.standbys_of(tp)
