"""PartitionAssignor: the methods that Faust and aiokafka call, on top of our planner.

    app = faust.App("shop", PartitionAssignor="faust_assigner:PartitionAssignor")

aiokafka calls ``metadata`` when this member joins, ``assign`` on the leader, and ``on_assignment``
on every member. They run on the consumer's thread. They never raise, because aiokafka would then
leave the worker alive without partitions. Faust's router, tables and producers call the other
methods from the app's thread.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from faust.exceptions import NotReady
from faust.types.assignor import PartitionAssignorT
from faust.types.tuples import TP
from mode import get_logger
from yarl import URL

from faust_assigner.app import settings
from faust_assigner.app.host.mixing import parts_of
from faust_assigner.app.rebalance import fallback, findings
from faust_assigner.app.rebalance.answers import PROTOCOL_VERSION, Answers
from faust_assigner.app.rebalance.doubts import Record
from faust_assigner.app.rebalance.follow_up import Awaited, by_topic
from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.member import Memory, remember, said_by, user_data
from faust_assigner.app.rebalance.memory_file import MemoryFile
from faust_assigner.app.rebalance.observers import Decisions, Observer
from faust_assigner.app.rebalance.table_facts import TableFacts, facts_of
from faust_assigner.app.rebalance.warming import policy_of
from faust_assigner.app.transactions.ids import torn
from faust_assigner.settings import table
from faust_assigner.wire.answer import Answer, decode_answer
from faust_assigner.wire.directory import ByUrl
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
    from faust.types.app import AppT

logger = get_logger(__name__)


class PartitionAssignor(AbstractPartitionAssignor, PartitionAssignorT):  # type: ignore[misc]
    """One app's assignor; Faust creates it as ``PartitionAssignor(app, replicas=N)``.

    ``counters`` counts problems for the operator (see
    :mod:`faust_assigner.app.rebalance.findings`). ``weights_provider`` returns the weights of
    partitions and is called at each round that this member leads. It may be any callable without
    arguments; None means equal weights. ``awaited`` are the standbys that a follow-up round waits
    for, ``overdue`` the standbys that took too long.
    """

    def __init__(self, app: AppT, replicas: int = 0) -> None:
        AbstractPartitionAssignor.__init__(self)
        self.app = app
        self.replicas = replicas
        self.counters: Counter[str] = Counter()
        self.decisions = Decisions()
        self.weights_provider: Callable[[], object] | None = None
        self.last_round: Round | None = None
        self._memory = Memory()
        self._memory_file = MemoryFile(app, self.counters)
        self.awaited = Awaited()
        self.read_to: Mapping[TP, int] = {}  # offsets of caught-up copies
        self.overdue: frozenset[TP] = frozenset()
        self._held_up: Mapping[str, int] = {}  # as leader: member -> delayed rounds in a row
        self._claimed: JoinData | None = None  # the metadata of the last join
        self._wanted: list[str] = []  # the subscription of the last join
        self.holds = False  # whether partitions are processed during the next round
        self.stops_nobody = False  # whether the last round was cooperative
        self.leaves = False  # whether this member gives its partitions away
        self.is_unheard = (
            False  # whether the leader knows an outdated capacity, rack or subscription
        )
        self.cooperative = False  # whether this member offers cooperative rounds
        self._active_tps: set[TP] = set()
        self._standby_tps: set[TP] = set()
        self._topic_groups: dict[str, int] = {}
        if hasattr(app, "_new_consumer"):
            _warn_without_fixup(app)

    @property
    def name(self) -> str:
        """The name of the protocol that all members of a group must share."""
        return "faust"

    @property
    def version(self) -> int:
        """Faust's protocol version."""
        return PROTOCOL_VERSION

    @property
    def is_uniform(self) -> bool:
        """Whether all members of the last round were ours and so understand more than stock."""
        return self._memory.answer is not None and self._memory.answer.is_uniform

    @property
    def generation(self) -> int:
        """The generation of the last assignment, -1 before the first."""
        return self._memory.generation

    @property
    def joined_with(self) -> JoinData | None:
        """The metadata of this member's last join, None if unknown."""
        return self._claimed

    @staticmethod
    def is_followed(assignment: ConsumerProtocolMemberAssignment) -> bool:
        """Return whether a second round follows this answer; every member joins it at once."""
        try:
            return decode_answer(assignment.user_data).among > 0
        except Exception:  # on_assignment() logs the error
            return False

    def on_decision(self, observer: Observer) -> Observer:
        """Call ``observer(inputs, plan)`` after each decision of this member as leader.

        The calls run in order on a separate thread. Decisions are dropped if the observer is slow.
        Errors of the observer are logged. Usable as a decorator.
        """
        return self.decisions.connect(observer)

    # -- as a member

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolMemberMetadata:
        """Return this member's metadata for a join."""
        wanted = self._wanted = sorted(topics)
        try:
            data = self._say(wanted)
            packed = user_data(data, wanted, is_uniform=self.is_uniform)
            self._claimed = data
        except Exception:
            self.counters["metadata_failures"] += 1
            logger.exception(
                "Could not encode this member's current partitions; joining as a new member (its "
                "partitions may move)"
            )
            self._claimed = None
            packed = fallback.plain_metadata(self.app)
        return ConsumerProtocolMemberMetadata(self.version, wanted, packed)

    def look_at_files(self, topics: Collection[str]) -> None:
        """Read the files that ``metadata()`` is about to need; in any thread, without changes."""
        try:
            self._say(sorted(topics))
        except Exception as exc:
            logger.debug(
                "Could not read the positions of local table files; they count as absent: %r", exc
            )  # metadata() logs an error

    def _say(self, topics: Collection[str]) -> JoinData:
        return said_by(
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
        """Take over this member's part of an assignment."""
        answer, memory, error = self._read(assignment)
        if error is not None:
            self.counters["unreadable_answers"] += 1
            logger.error(
                "Could not decode the leader's answer; all %d assigned partitions count as "
                "active: %s",
                sum(1 for numbers in memory.actives.values() for _ in numbers),
                error,
            )
        self.is_unheard = self._came_back_with_other_offers(
            memory, {*answer.actives, *answer.standbys}
        )
        own_url = str(self.app.conf.canonical_url)
        if answer.url and answer.url != own_url:
            self.counters["foreign_urls"] += 1
            logger.warning(
                "This worker's URL is %s, but the leader routes requests to %s", own_url, answer.url
            )
        self._active_tps = _tps(memory.actives)
        self._standby_tps = _tps(memory.standbys)
        self._topic_groups = dict(memory.group_ids)
        self._memory = memory
        taken = memory.answer or answer
        self.awaited = Awaited(
            memory.generation,
            frozenset(_tps(taken.awaited)),
            memory.group_ids,
            follows=taken.among > 0,
        )
        self.read_to = {}
        self._keep(memory)
        try:
            logger.info("%s", findings.taken(memory, self._claimed, facts_of(self.app)))
        except Exception:
            logger.exception("Could not report the assignment to its observers")

    def _offers(self) -> dict[str, object]:
        said = self._claimed
        if said is None:
            return {}
        topics = hashlib.sha256("\n".join(self._wanted).encode()).hexdigest()
        return {"capacity": said.capacity, "rack": said.rack_id, "topics": topics}

    def _came_back_with_other_offers(self, memory: Memory, given: set[str]) -> bool:
        """Return whether a static member rejoined without a round (KIP-345) and with new metadata.

        No leader has read the new metadata. The memory file has the metadata that the leader knew.
        Without a file, there are two signs. The leader named no group for a topic to which this
        member subscribes, or it has ``given`` a topic to which this member does not subscribe.
        """
        if self._memory.answer is not None or self._claimed is None:
            return False
        former = self._memory_file.former()
        if memory.generation == former.generation:
            return any(former.offers.get(name, of) != of for name, of in self._offers().items())
        is_static, wanted = self._claimed.instance_id is not None, {*self._wanted}
        planned = memory.group_ids.keys() or wanted  # a stock leader may name no groups
        return is_static and not given <= wanted <= planned

    def torn(self, assignment: ConsumerProtocolMemberAssignment) -> frozenset[TP]:
        """Return the partitions that stay here and whose transaction ends nevertheless.

        The changelogs of global tables are never included. Their offsets are in no transaction, and
        streams that keep running read the table.
        """
        if not self.app.in_transaction:
            return frozenset()
        _, memory, _ = self._read(assignment)
        shared = facts_of(self.app).globals_.keys()
        own = {tp for tp in self._active_tps if tp.topic not in shared}
        return torn(own, _tps(memory.actives), self._topic_groups, memory.group_ids)

    def _read(
        self, assignment: ConsumerProtocolMemberAssignment
    ) -> tuple[Answer, Memory, Exception | None]:
        """Return the leader's answer, the memory after it, and the error if it is unreadable."""
        given: dict[str, list[int]] = {}
        for topic, numbers in assignment.assignment or ():
            given.setdefault(topic, []).extend(numbers)
        try:
            answer = decode_answer(assignment.user_data)
            return answer, self._remember(answer, given), None
        except Exception as exc:
            answer = Answer({t: Runs.of(numbers) for t, numbers in given.items()}, {})
            return answer, self._remember(answer, given), exc

    def _keep(self, memory: Memory) -> None:
        # A stopping worker may join one more round while other workers stop too. The partitions of
        # such a round are not remembered, because the worker gets them only for a moment.
        if not self.app.should_stop:
            known = self._memory_file.former().offers if self.is_unheard else self._offers()
            self._memory_file.keep(memory.generation, memory.owned(facts_of(self.app)), known)

    def _remember(self, answer: Answer, given: Mapping[str, list[int]]) -> Memory:
        return remember(answer, given, kafkas=kafka_generation(self.app), before=self._memory)

    # -- as the leader

    def assign(
        self,
        cluster: ClusterMetadata,
        member_metadata: Mapping[str, ConsumerProtocolMemberMetadata],
    ) -> Answers:
        """Return every member's assignment; partition counts are read from ``cluster``."""
        span = self._start_span()
        state = self._sense("on_assignment_start")
        try:
            view = self._view()
            found = decide(view, cluster.partitions_for_topic, member_metadata)
            answers, self._held_up = dict(found.answers), found.held_up
        except Exception as exc:
            logger.exception(
                "Planning failed; partitions are assigned without regard to their former owners"
            )
            self.counters["fallbacks"] += 1
            self._sense("on_assignment_error", state, exc)
            logger.info(
                "%d members, partitions assigned without regard to their former owners",
                len(member_metadata),
            )
            answers = fallback.deal(cluster, member_metadata, self.replicas)
        else:
            self._conclude(found, view.tables, state)
        self._finish_span(span, answers)
        return answers

    def _view(self) -> LeaderView:
        memory, last = self._memory, self.last_round
        return LeaderView(
            str(self.app.conf.id),
            facts_of(self.app),
            self.replicas,
            kafka_generation(self.app),
            memory.directory,
            memory.generation,
            self._weights(),
            settings.read_or_default(self.app, table.GROUP_RECORD_BYTES),
            partial(policy_of, self.app),
            settings.read_or_default(self.app, table.STALE_READS_S) > 0,
            self._held_up,
            Record() if last is None else last.record,
            before=None if last is None else last.inputs,
            first=last.outcome if last is not None and last.follows else None,
            member_id=kafka_member_id(self.app),
            now=time.time(),
        )

    def _weights(self) -> Any:
        if self.weights_provider is None:
            return None
        try:
            return self.weights_provider()
        except Exception:
            self.counters["weights_failures"] += 1
            logger.exception(
                "Could not read the weights; all partitions weigh the same in this round"
            )
            return None

    def _conclude(self, found: Round, tables: TableFacts, state: Any) -> None:
        try:
            self.last_round = found
            findings.say(found, self.counters, tables)
            if found.plan is not None:
                self.decisions.tell(found.inputs, found.plan)
        except Exception:
            logger.exception("Could not report the round to its observers")
        if found.failure is None:
            self._sense("on_assignment_completed", state)
        else:
            self._sense("on_assignment_error", state, found.failure)

    def _sense(self, name: str, *args: object) -> Any:
        try:
            return getattr(self.app.sensors, name)(self, *args)
        except Exception:
            self.counters["sensor_failures"] += 1
            logger.exception("A sensor failed in %s", name)
            return None

    def _start_span(self) -> Any:
        try:
            if not self.app.tracer:
                return None
            return self.app.tracer.get_tracer("_faust").start_span(
                operation_name="coordinator_assignment", tags={"hostname": socket.gethostname()}
            )
        except Exception:
            logger.exception("The tracer failed")
            return None

    def _finish_span(self, span: Any, answers: Answers) -> None:
        if span is None:
            return
        try:
            with span:
                self.app._span_add_default_tags(span)
                span.set_tag("assignment", {m: a.assignment for m, a in answers.items()})
        except Exception:
            logger.exception("The tracer failed")

    # -- called by tables, producers and the router

    def assigned_actives(self) -> set[TP]:
        """Return the partitions that this member owns; for a global table's changelog, all."""
        return set(self._active_tps)

    def assigned_standbys(self) -> set[TP]:
        """Return the changelog partitions that this member follows as a standby."""
        return set(self._standby_tps)

    def is_active(self, tp: TP) -> bool:
        """Return whether this member owns ``tp``."""
        return tp in self._active_tps

    def is_standby(self, tp: TP) -> bool:
        """Return whether this member is a standby of ``tp``."""
        return tp in self._standby_tps

    @property
    def decision_id(self) -> str:
        """The id of the decision on this member's assignment, as in the ledger; "" if unknown."""
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
        return self._owner(topic, key, self.changelog_distribution, of_tables=True)

    def external_key_store(self, topic: str, key: bytes) -> URL:
        """Return the worker that reads ``key`` from ``topic``. Raises KeyError if unknown."""
        return self._owner(topic, key, self.external_topic_distribution, of_tables=False)

    def _owner(self, topic: str, key: bytes, by_url: ByUrl, *, of_tables: bool) -> URL:
        return self._owner_of(self.partition_of(topic, key), by_url, of_tables=of_tables)

    def _owner_of(self, tp: TP, by_url: ByUrl, *, of_tables: bool) -> URL:
        directory = self._memory.directory
        if directory.urls and (tp.topic in directory.changelogs) == of_tables:
            return URL(directory.url_of(tp.topic, tp.partition))
        for url, topics in by_url.items():
            if tp.partition in topics.get(tp.topic, ()):
                return URL(url)
        raise KeyError(tp)

    def partition_of(self, topic: str, key: bytes) -> TP:
        """Return the partition in which producers put ``key``. Raises KeyError if unknown."""
        try:
            tp: TP | None = self.app.producer.key_partition(topic, key)
        except NotReady:
            raise KeyError(topic) from None
        except TypeError:  # the producer has no metadata of the topic before its first write there
            number = self.app.consumer.key_partition(topic, key)
            tp = None if number is None else TP(topic, number)
        if tp is None:
            raise KeyError(topic)
        return TP(*tp)

    def owner_of(self, tp: TP) -> URL:
        """Return the worker that owns this changelog partition. Raises KeyError if unknown."""
        return self._owner_of(tp, self.changelog_distribution, of_tables=True)

    def standbys_of(self, tp: TP) -> tuple[URL, ...]:
        """Return the workers that keep a copy of ``tp``, as far as the leader named them."""
        return tuple(
            URL(url) for url in self._memory.directory.standby_urls(tp.topic, tp.partition) if url
        )


def _warn_without_fixup(app: AppT) -> None:
    """Log that no part was installed in ``app``, because the package's entry point is missing."""
    if settings.read_or_default(app, table.REPAIRS) and not parts_of(app):
        parts_of(app).add("assignor")
        logger.warning(
            "Records may be lost or repeated at a rebalance: the app was not repaired; install "
            "faust_assigner with pip, so that Faust finds its fixup"
        )


def kafka_generation(app: AppT) -> int:
    """Return Kafka's number of the consumer's current or forming generation; -1 without one."""
    at = _of_coordinator(app, "generation")
    return at if type(at) is int and at > 0 else -1


def kafka_member_id(app: AppT) -> str:
    """Return the id that the group gave this member; "" before its first join."""
    return str(_of_coordinator(app, "member_id") or "")


def _of_coordinator(app: AppT, name: str) -> Any:
    at = app._consumer
    for part in ("_thread", "_consumer", "_coordinator", name):
        at = getattr(at, part, None)
    return at


def _tps(claims: Mapping[str, Runs]) -> set[TP]:
    return {TP(topic, partition) for topic, runs in claims.items() for partition in runs}
