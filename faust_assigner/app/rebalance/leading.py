"""The leader's side of an assignor: it decides each round, and reports the round to observers."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mode import get_logger

from faust_assigner.app import settings
from faust_assigner.app.host import group_member
from faust_assigner.app.rebalance import fallback, findings
from faust_assigner.app.rebalance.answers import Answers
from faust_assigner.app.rebalance.doubts import Record
from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.member import Memory
from faust_assigner.app.rebalance.observers import Decisions
from faust_assigner.app.rebalance.table_facts import TableFacts, facts_of
from faust_assigner.app.rebalance.warming import policy_of
from faust_assigner.app.recovery.spans import add_default_tags
from faust_assigner.settings import table

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
    from faust.types.app import AppT

logger = get_logger(__name__)


class Leader(Protocol):
    """The assignor of the leading member: the attributes that :class:`Leading` needs."""

    app: AppT
    replicas: int
    counters: Counter[str]
    decisions: Decisions
    weights_provider: Callable[[], object] | None
    stops_nobody: bool
    _memory: Memory


class Leading:
    """Decides the rounds in which the member of ``assignor`` leads.

    Sensors and the tracer are called with the assignor, as by stock Faust. ``last_round`` is the last
    round that this member has led, None before the first.
    """

    def __init__(self, assignor: Leader) -> None:
        self._assignor, self._app = assignor, assignor.app
        self.last_round: Round | None = None
        self._held_up: Mapping[str, int] = {}  # member -> number of rounds that it delayed

    def lead(
        self, cluster: ClusterMetadata, metadata: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> Answers:
        """Return each member's assignment; partition counts are read from ``cluster``.

        Never raises for a failure of the planner: the partitions are then dealt round-robin.
        """
        span = self._start_span()
        state = self._sense("on_assignment_start")
        try:
            view = self._view()
            found = decide(view, cluster.partitions_for_topic, metadata)
            answers, self._held_up = dict(found.answers), found.held_up
        except Exception as exc:
            logger.exception(
                "Planning failed; partitions are assigned without regard to their former owners"
            )
            self._assignor.counters["fallbacks"] += 1
            self._sense("on_assignment_error", state, exc)
            logger.info(
                "%d members, partitions assigned without regard to their former owners",
                len(metadata),
            )
            answers = fallback.deal(cluster, metadata, self._assignor.replicas)
        else:
            self._conclude(found, view.tables, state)
        self._finish_span(span, answers)
        return answers

    def _view(self) -> LeaderView:
        memory, last = self._assignor._memory, self.last_round
        return LeaderView(
            str(self._app.conf.id),
            facts_of(self._app),
            self._assignor.replicas,
            group_member.kafka_generation(self._app),
            memory.directory,
            memory.generation,
            self._weights(),
            settings.read_or_default(self._app, table.GROUP_RECORD_BYTES),
            partial(policy_of, self._app),
            settings.read_or_default(self._app, table.STALE_READS_S) > 0,
            self._held_up,
            Record() if last is None else last.record,
            before=None if last is None else last.inputs,
            first=last.outcome if last is not None and last.follows else None,
            member_id=group_member.kafka_member_id(self._app),
            now=time.time(),
            is_cooperative=self._assignor.stops_nobody,
        )

    def _weights(self) -> Any:
        if self._assignor.weights_provider is None:
            return None
        try:
            return self._assignor.weights_provider()
        except Exception:
            self._assignor.counters["weights_failures"] += 1
            logger.exception(
                "Could not read the weights; all partitions weigh the same in this round"
            )
            return None

    def _conclude(self, found: Round, tables: TableFacts, state: Any) -> None:
        try:
            self.last_round = found
            findings.log_round(found, self._assignor.counters, tables)
            if found.plan is not None:
                self._assignor.decisions.tell(found.inputs, found.plan)
        except Exception:
            logger.exception("Could not report the round to its observers")
        if found.failure is None:
            self._sense("on_assignment_completed", state)
        else:
            self._sense("on_assignment_error", state, found.failure)

    def _sense(self, name: str, *args: object) -> Any:
        try:
            return getattr(self._app.sensors, name)(self._assignor, *args)
        except Exception:
            self._assignor.counters["sensor_failures"] += 1
            logger.exception("A sensor failed in %s", name)
            return None

    def _start_span(self) -> Any:
        try:
            if not self._app.tracer:
                return None
            return self._app.tracer.get_tracer("_faust").start_span(
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
                add_default_tags(self._app, span)
                span.set_tag("assignment", {m: a.assignment for m, a in answers.items()})
        except Exception:
            logger.exception("The tracer failed")
