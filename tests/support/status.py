"""A made-up group of Faust workers: its coordinator's description and its workers' answers.

The bytes are those on the wire: members' metadata is encoded, and the leader's own code decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView, Round
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.errors import MetadataRefused
from faust_assigner.status.described import DescribedGroup, decode_group
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.report import ANSWERED
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.answer import Answer, decode_answer, read_directory
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import COOPERATIVE, JoinData, encode_join
from faust_assigner.wire.worker_status import CopyLag, TableStatus, WorkerStatus

LOG = "shop-totals-changelog"
TOPICS: Mapping[str, int] = {"orders": 6, LOG: 6}
AT = 1_795_232_422.0


@dataclass
class MadeGroup:
    """Members ``m0``, ``m1``, ...; ``m0`` leads. The URL of ``m0`` is ``http://w0:6066``, and so on."""

    topics: Mapping[str, int] = field(default_factory=lambda: dict(TOPICS))
    replicas: int = 1
    global_changelogs: tuple[str, ...] = ()
    #: Member -> fields that differ in its metadata.
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    generation: int = 0
    state: str = "Stable"
    end: int = 1000
    claims: dict[str, JoinData] = field(default_factory=dict)
    metadata: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    last: Round | None = None
    #: Leader -> its last decision.
    led: dict[str, DecisionInputs] = field(default_factory=dict)

    def join(self, *names: str, **offer: Any) -> MadeGroup:
        """Add members that take part from the next round on."""
        for name in names:
            self.claims[name] = JoinData(
                f"http://w{name.lstrip('m')}:6066",
                cooperative=True,
                software="0.1.0",
                changelogs=self.changelogs,
                globals_=dict.fromkeys(self.global_changelogs, True),
                positions={},
            )
            self.offers[name] = offer
        return self

    def leave(self, name: str) -> MadeGroup:
        """Remove a member before the next round."""
        del self.claims[name], self.offers[name]
        return self

    @property
    def changelogs(self) -> frozenset[str]:
        """The topics behind tables."""
        return frozenset(t for t in self.topics if t.endswith("-changelog"))

    def round(self, *, leader: str = "m0", warmups: WarmupPolicy | None = None) -> MadeGroup:
        """Run one whole round."""
        said = {
            name: replace(data, **self.offers[name]) for name, data in sorted(self.claims.items())
        }
        members = {
            name: ConsumerProtocolMemberMetadata(
                0, sorted(self.topics), encode_join(data, self.topics)
            )
            for name, data in said.items()
        }
        self.generation += 1
        view = LeaderView(
            "shop",
            TableFacts(self.changelogs, dict.fromkeys(self.global_changelogs, True)),
            self.replicas,
            self.generation,
            warmups=lambda _: warmups,
            before=self.led.get(leader),
            member_id=leader,
            last=self.memory_of(leader),
            last_generation=self.claims[leader].generation,
            now=AT - 60,
        )
        self.last = decide(view, lambda topic: range(self.topics.get(topic, 0)), members)
        self.led[leader] = self.last.inputs
        self.metadata = {name: one.encode() for name, one in members.items()}
        self.answers = {name: one.encode() for name, one in self.last.answers.items()}
        self._follow_answers()
        return self

    def _follow_answers(self) -> None:
        """Let each member hold what its answer gives it, up to the end of each changelog."""
        for name, data in self.claims.items():
            answer = self.answer_of(name)
            held = {
                t: {*answer.actives.get(t, ()), *answer.standbys.get(t, ())}
                for t in self.changelogs
            }
            self.claims[name] = replace(
                data,
                actives=answer.actives,
                standbys=answer.standbys,
                awaited=answer.awaited,
                promised=answer.promised,
                among=answer.among,
                generation=self.generation,
                positions={t: dict.fromkeys(numbers, self.end) for t, numbers in held.items()},
            )

    def memory_of(self, name: str) -> Directory:
        """The owners after the last round, as the leader sent them to a participant."""
        if self.claims[name].generation < 0:
            return Directory()
        try:
            return read_directory(self.answer_of(name).directory)
        except MetadataRefused:  # a worker continues without it, too
            return Directory()

    def answer_of(self, name: str) -> Answer:
        """Return the leader's answer to a member."""
        raw = ConsumerProtocolMemberAssignment.decode(self.answers[name])
        return decode_answer(raw.user_data)

    def entity(self) -> Any:
        """The answer of DescribeGroups; during a rebalance it has no members' data."""
        settled = self.state == "Stable"
        return SimpleNamespace(
            group_id="shop",
            group_state=self.state,
            protocol_type="consumer",
            protocol_data=COOPERATIVE if settled else "",
            members=[
                SimpleNamespace(
                    member_id=name,
                    group_instance_id=self.offers[name].get("instance_id"),
                    client_id="faust-0.15.3",
                    client_host=f"/10.0.0.{name.lstrip('m')}",
                    member_metadata=self.metadata[name] if settled else b"",
                    member_assignment=self.answers[name] if settled else b"",
                )
                for name in self.metadata
            ],
        )

    def described(self) -> DescribedGroup:
        """Return the decoded description."""
        return decode_group(self.entity(), coordinator="127.0.0.1:9092")

    def status_of(self, name: str, *, lag: int = 0, **more: Any) -> WorkerStatus:
        """The worker's answer."""
        answer, said = self.answer_of(name), self.claims[name]
        base: dict[str, Any] = {
            "app": "shop",
            "member_id": name,
            "url": said.url,
            "instance_id": self.offers[name].get("instance_id"),
            "host": f"pod-{name.lstrip('m')}",
            "software": "0.1.0",
            "python": "3.11.4",
            "generation": self.generation,
            "decision_id": answer.decision_id,
            "outcome": answer.outcome,
            "is_cooperative": True,
            "actives": {t: tuple(runs) for t, runs in answer.actives.items()},
            "standbys": {t: tuple(runs) for t, runs in answer.standbys.items()},
            "awaited": {t: tuple(runs) for t, runs in answer.awaited.items()},
            "copies": tuple(
                CopyLag(topic=t, partition=p, records=lag, seconds=0.0)
                for t, runs in answer.standbys.items()
                for p in runs
            ),
            "tables": tuple(
                TableStatus(
                    name=t.removeprefix("shop-").removesuffix("-changelog"),
                    changelog=t,
                    store="rocksdb",
                )
                for t in sorted(self.changelogs)
            ),
            "settings": {
                "FAUST_ASSIGNER_STALE_READS_S": "0",
                "broker_session_timeout": "60",
                "broker_rebalance_timeout": "90",
            },
        }
        return WorkerStatus(**base | more)

    def evidence(
        self,
        *,
        heard: Mapping[str, Heard] | None = None,
        silent: Collection[str] = (),
        committed: int = 900,
        **more: Any,
    ) -> Evidence:
        """A look at the group: all workers answer except ``silent`` ones; ``heard`` overrides, by URL."""
        answers = {
            self.claims[name].url: Heard(answer=ANSWERED, status=self.status_of(name))
            for name in self.claims
            if name not in silent
        }
        quiet = {
            self.claims[name].url: Heard(answer="silent", detail="it did not answer within 3 s")
            for name in silent
        }
        sources = {t for t in self.topics if t not in self.changelogs}
        places = [(t, p) for t, count in self.topics.items() for p in range(count)]
        given: dict[str, Any] = {
            "group": self.described(),
            "heard": answers | quiet | dict(heard or {}),
            "committed": {place: committed for place in places if place[0] in sources},
            "ends": dict.fromkeys(places, self.end),
            "taken_at": AT,
        }
        return Evidence(**given | more)


def group(members: int = 3, rounds: int = 2, **options: Any) -> MadeGroup:
    """Return a group of ``members`` members after ``rounds`` rounds."""
    found = MadeGroup(**options).join(*(f"m{n}" for n in range(members)))
    for _ in range(rounds):
        found.round()
    return found
