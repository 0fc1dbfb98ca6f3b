"""The requests of one process to the service, as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from faust_assigner.service.client.commands import Release, Warm
from faust_assigner.service.client.messages import by_topic, to_message
from faust_assigner.service.client.registration import Registration
from faust_assigner.service.digest import Held
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

#: Maximum number of former partitions in a registration: they are only a hint, and the request
#: must stay short.
MOST_FORMER: Final = 50_000
#: Maximum number of characters of a reason.
MOST_SAID = 1_000


class Requests:
    """Makes requests with the consumer's name, the process's incarnation, and the group."""

    def __init__(self, name: str, incarnation: str, group: str = "") -> None:
        self._who: dict[str, Any] = {
            "consumer_name": name,
            "incarnation": incarnation,
            "group": group,
        }

    def register(
        self,
        registration: Registration,
        *,
        returns: bool,
        former: Iterable[tuple[str, int]],
        epoch: int,
    ) -> pb.RegisterRequest:
        """Make the request of a registration, with the replicas held now.

        ``returns``: the incarnation was registered before. ``former``: the partitions that the
        consumer owns, or owned last; if empty, ``registration.former()`` is used. ``epoch``: the
        highest epoch of any grant to this process; 0 without a grant.
        """
        owned = islice(sorted(set(former) or set(registration.former())), MOST_FORMER)
        return pb.RegisterRequest(
            **self._who,
            returns=returns,
            epoch=epoch,
            topics=sorted(registration.topics),
            rack=registration.rack,
            endpoint=registration.endpoint,
            capacity=registration.capacity,
            copartitioned=[
                pb.TopicGroup(topics=sorted(some)) for some in registration.copartitioned
            ],
            weights_by_topic=_weights(registration.weights),
            replicas_by_topic=by_topic(sorted(registration.replicas())),
            keeps_replicas=registration.keeps_replicas,
            heartbeats=True,
            former=by_topic(owned),
        )

    def _handoff_fields(self, command: Warm | Release) -> dict[str, Any]:
        return {
            **self._who,
            "partition": to_message(command.partition),
            "handoff_id": command.handoff_id,
        }

    def ready(self, command: Warm) -> pb.PartitionReadyRequest:
        """Acknowledge the partition as warm."""
        return pb.PartitionReadyRequest(**self._handoff_fields(command))

    def released(self, command: Release, final_offset: int | None) -> pb.PartitionReleasedRequest:
        """Acknowledge that work on the partition has stopped."""
        return pb.PartitionReleasedRequest(
            **self._handoff_fields(command), final_offset=final_offset
        )

    def release_failed(self, command: Release, epoch: int, reason: str) -> pb.ReleaseFailedRequest:
        """Report that work on the partition has stopped without a flush."""
        return pb.ReleaseFailedRequest(
            **self._handoff_fields(command), epoch=epoch, reason=_clean_reason(reason)
        )

    def failed(self, command: Warm, reason: str) -> pb.WarmFailedRequest:
        """Report that the consumer cannot warm the partition."""
        return pb.WarmFailedRequest(**self._handoff_fields(command), reason=_clean_reason(reason))

    def progress(self, command: Warm, progress: float) -> pb.ReportProgressRequest:
        """Report the progress of a warm-up, from 0 to 1."""
        return pb.ReportProgressRequest(**self._handoff_fields(command), progress=progress)

    def replicas(self, partitions: Iterable[tuple[str, int]]) -> pb.ReportReplicasRequest:
        """Report all held replicas."""
        held = by_topic(sorted(partitions))
        return pb.ReportReplicasRequest(**self._who, replicas_by_topic=held)

    def heartbeat(self, session: str, held: Held | None) -> pb.HeartbeatRequest:
        """Make a heartbeat, with the digest of the held partitions."""
        said = None if held is None else pb.Held(count=held.count, digest=held.digest)
        return pb.HeartbeatRequest(**self._who, session_id=session, held=said)

    def farewell(self) -> pb.DeregisterRequest:
        """Make the request of a leave."""
        return pb.DeregisterRequest(**self._who)


def _clean_reason(reason: str) -> str:
    """Shorten a reason, and replace characters that UTF-8 has no bytes for."""
    return reason[:MOST_SAID].encode(errors="replace").decode()


def _weights(said: Mapping[TopicPartition, float]) -> list[pb.TopicWeights]:
    found: dict[str, pb.TopicWeights] = {}
    for (topic, number), weight in sorted(said.items()):
        mine = found.setdefault(topic, pb.TopicWeights(topic=topic))
        mine.partitions.append(number)
        mine.weights.append(weight)
    return list(found.values())
