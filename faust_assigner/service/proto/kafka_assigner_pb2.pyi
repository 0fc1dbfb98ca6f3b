from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeregisterAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHUTDOWN_NOW: _ClassVar[DeregisterAction]
    WAIT_FOR_DRAIN: _ClassVar[DeregisterAction]

class ConsumerStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSUMER_STATUS_UNSPECIFIED: _ClassVar[ConsumerStatus]
    CONSUMER_STATUS_READY: _ClassVar[ConsumerStatus]
    CONSUMER_STATUS_DRAINING: _ClassVar[ConsumerStatus]

class HandoffPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HANDOFF_PHASE_UNSPECIFIED: _ClassVar[HandoffPhase]
    HANDOFF_PHASE_WARMING: _ClassVar[HandoffPhase]
    HANDOFF_PHASE_READY: _ClassVar[HandoffPhase]
    HANDOFF_PHASE_COMPLETE: _ClassVar[HandoffPhase]
SHUTDOWN_NOW: DeregisterAction
WAIT_FOR_DRAIN: DeregisterAction
CONSUMER_STATUS_UNSPECIFIED: ConsumerStatus
CONSUMER_STATUS_READY: ConsumerStatus
CONSUMER_STATUS_DRAINING: ConsumerStatus
HANDOFF_PHASE_UNSPECIFIED: HandoffPhase
HANDOFF_PHASE_WARMING: HandoffPhase
HANDOFF_PHASE_READY: HandoffPhase
HANDOFF_PHASE_COMPLETE: HandoffPhase

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class TopicPartitions(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class TopicGroup(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class PartitionWeight(_message.Message):
    __slots__ = ("partition", "weight")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    weight: float
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class TopicWeights(_message.Message):
    __slots__ = ("topic", "partitions", "weights")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("consumer_name", "topic", "topics", "copartitioned", "rack", "capacity", "weights", "replicas", "heartbeats", "keeps_replicas", "incarnation", "returns", "former", "replicas_by_topic", "weights_by_topic", "endpoint", "group", "epoch")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    COPARTITIONED_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_BY_TOPIC_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_BY_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    topic: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    copartitioned: _containers.RepeatedCompositeFieldContainer[TopicGroup]
    rack: str
    capacity: float
    weights: _containers.RepeatedCompositeFieldContainer[PartitionWeight]
    replicas: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    heartbeats: bool
    keeps_replicas: bool
    incarnation: str
    returns: bool
    former: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    replicas_by_topic: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    weights_by_topic: _containers.RepeatedCompositeFieldContainer[TopicWeights]
    endpoint: str
    group: str
    epoch: int
    def __init__(self, consumer_name: _Optional[str] = ..., topic: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., copartitioned: _Optional[_Iterable[_Union[TopicGroup, _Mapping]]] = ..., rack: _Optional[str] = ..., capacity: _Optional[float] = ..., weights: _Optional[_Iterable[_Union[PartitionWeight, _Mapping]]] = ..., replicas: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., heartbeats: _Optional[bool] = ..., keeps_replicas: _Optional[bool] = ..., incarnation: _Optional[str] = ..., returns: _Optional[bool] = ..., former: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., replicas_by_topic: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., weights_by_topic: _Optional[_Iterable[_Union[TopicWeights, _Mapping]]] = ..., endpoint: _Optional[str] = ..., group: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class AssignmentCommand(_message.Message):
    __slots__ = ("assignment", "warm", "release", "abort_warm", "standby", "pulse", "revision")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ABORT_WARM_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    PULSE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    assignment: AssignmentUpdate
    warm: WarmPartition
    release: ReleasePartition
    abort_warm: AbortWarm
    standby: StandbyUpdate
    pulse: Pulse
    revision: int
    def __init__(self, assignment: _Optional[_Union[AssignmentUpdate, _Mapping]] = ..., warm: _Optional[_Union[WarmPartition, _Mapping]] = ..., release: _Optional[_Union[ReleasePartition, _Mapping]] = ..., abort_warm: _Optional[_Union[AbortWarm, _Mapping]] = ..., standby: _Optional[_Union[StandbyUpdate, _Mapping]] = ..., pulse: _Optional[_Union[Pulse, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class Pulse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Grant(_message.Message):
    __slots__ = ("partition", "epoch", "start_offset", "keep")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    epoch: int
    start_offset: int
    keep: bool
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., keep: _Optional[bool] = ...) -> None: ...

class AssignmentUpdate(_message.Message):
    __slots__ = ("assigned", "unassigned", "snapshot", "grants", "more", "session_id", "lives_ms", "pulse_ms", "releasing")
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    UNASSIGNED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LIVES_MS_FIELD_NUMBER: _ClassVar[int]
    PULSE_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASING_FIELD_NUMBER: _ClassVar[int]
    assigned: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    unassigned: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    snapshot: bool
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    more: bool
    session_id: str
    lives_ms: int
    pulse_ms: int
    releasing: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, assigned: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., unassigned: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., snapshot: _Optional[bool] = ..., grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., more: _Optional[bool] = ..., session_id: _Optional[str] = ..., lives_ms: _Optional[int] = ..., pulse_ms: _Optional[int] = ..., releasing: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ...) -> None: ...

class WarmPartition(_message.Message):
    __slots__ = ("partition", "current_owner", "handoff_id", "strict")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_OWNER_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    current_owner: str
    handoff_id: int
    strict: bool
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., current_owner: _Optional[str] = ..., handoff_id: _Optional[int] = ..., strict: _Optional[bool] = ...) -> None: ...

class ReleasePartition(_message.Message):
    __slots__ = ("partition", "new_owner", "handoff_id", "strict")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEW_OWNER_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    new_owner: str
    handoff_id: int
    strict: bool
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., new_owner: _Optional[str] = ..., handoff_id: _Optional[int] = ..., strict: _Optional[bool] = ...) -> None: ...

class AbortWarm(_message.Message):
    __slots__ = ("partition", "handoff_id")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    handoff_id: int
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ...) -> None: ...

class StandbyUpdate(_message.Message):
    __slots__ = ("standbys", "more")
    STANDBYS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    standbys: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    more: bool
    def __init__(self, standbys: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class PartitionReadyRequest(_message.Message):
    __slots__ = ("consumer_name", "partition", "handoff_id", "incarnation", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    partition: TopicPartition
    handoff_id: int
    incarnation: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ..., incarnation: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class PartitionReadyResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class PartitionReleasedRequest(_message.Message):
    __slots__ = ("consumer_name", "partition", "handoff_id", "final_offset", "incarnation", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    FINAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    partition: TopicPartition
    handoff_id: int
    final_offset: int
    incarnation: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ..., final_offset: _Optional[int] = ..., incarnation: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class PartitionReleasedResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class DeregisterRequest(_message.Message):
    __slots__ = ("consumer_name", "incarnation", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    incarnation: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., incarnation: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DeregisterResponse(_message.Message):
    __slots__ = ("action", "revision")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    action: DeregisterAction
    revision: int
    def __init__(self, action: _Optional[_Union[DeregisterAction, str]] = ..., revision: _Optional[int] = ...) -> None: ...

class WarmFailedRequest(_message.Message):
    __slots__ = ("consumer_name", "partition", "handoff_id", "reason", "incarnation", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    partition: TopicPartition
    handoff_id: int
    reason: str
    incarnation: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ..., reason: _Optional[str] = ..., incarnation: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class WarmFailedResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ReleaseFailedRequest(_message.Message):
    __slots__ = ("consumer_name", "partition", "handoff_id", "reason", "incarnation", "epoch", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    partition: TopicPartition
    handoff_id: int
    reason: str
    incarnation: str
    epoch: int
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ..., reason: _Optional[str] = ..., incarnation: _Optional[str] = ..., epoch: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class ReleaseFailedResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("consumer_name", "partition", "handoff_id", "progress", "incarnation", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    partition: TopicPartition
    handoff_id: int
    progress: float
    incarnation: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ..., progress: _Optional[float] = ..., incarnation: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("consumer_name", "session_id", "incarnation", "held", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    session_id: str
    incarnation: str
    held: Held
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., session_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("count", "digest")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    count: int
    digest: int
    def __init__(self, count: _Optional[int] = ..., digest: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("known", "lives_ms", "revision")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    LIVES_MS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    known: bool
    lives_ms: int
    revision: int
    def __init__(self, known: _Optional[bool] = ..., lives_ms: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class ReportReplicasRequest(_message.Message):
    __slots__ = ("consumer_name", "replicas", "incarnation", "replicas_by_topic", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_BY_TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    replicas: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    incarnation: str
    replicas_by_topic: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., incarnation: _Optional[str] = ..., replicas_by_topic: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., group: _Optional[str] = ...) -> None: ...

class ReportReplicasResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class WatchAssignmentsRequest(_message.Message):
    __slots__ = ("topics", "least_revision", "group")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LEAST_REVISION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    least_revision: int
    group: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., least_revision: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class AssignmentsUpdate(_message.Message):
    __slots__ = ("snapshot", "more", "revision", "routes", "unowned", "pulse_ms")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    UNOWNED_FIELD_NUMBER: _ClassVar[int]
    PULSE_MS_FIELD_NUMBER: _ClassVar[int]
    snapshot: bool
    more: bool
    revision: int
    routes: _containers.RepeatedCompositeFieldContainer[Route]
    unowned: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    pulse_ms: int
    def __init__(self, snapshot: _Optional[bool] = ..., more: _Optional[bool] = ..., revision: _Optional[int] = ..., routes: _Optional[_Iterable[_Union[Route, _Mapping]]] = ..., unowned: _Optional[_Iterable[_Union[TopicPartition, _Mapping]]] = ..., pulse_ms: _Optional[int] = ...) -> None: ...

class Route(_message.Message):
    __slots__ = ("partition", "owner", "epoch", "endpoint")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    owner: str
    epoch: int
    endpoint: str
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., endpoint: _Optional[str] = ...) -> None: ...

class GetStateRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("consumer_name", "topics", "rack", "capacity", "registered_at", "incarnation", "status", "replicas", "endpoint")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    rack: str
    capacity: float
    registered_at: float
    incarnation: str
    status: ConsumerStatus
    replicas: _containers.RepeatedCompositeFieldContainer[TopicPartitions]
    endpoint: str
    def __init__(self, consumer_name: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., rack: _Optional[str] = ..., capacity: _Optional[float] = ..., registered_at: _Optional[float] = ..., incarnation: _Optional[str] = ..., status: _Optional[_Union[ConsumerStatus, str]] = ..., replicas: _Optional[_Iterable[_Union[TopicPartitions, _Mapping]]] = ..., endpoint: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("partition", "owner", "epoch", "start_offset", "incarnation", "absent")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    owner: str
    epoch: int
    start_offset: int
    incarnation: str
    absent: bool
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., incarnation: _Optional[str] = ..., absent: _Optional[bool] = ...) -> None: ...

class Handoff(_message.Message):
    __slots__ = ("partition", "old_owner", "new_owner", "handoff_id", "age_s", "progress", "strict", "released", "unreleased", "phase")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OLD_OWNER_FIELD_NUMBER: _ClassVar[int]
    NEW_OWNER_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    UNRELEASED_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    old_owner: str
    new_owner: str
    handoff_id: int
    age_s: float
    progress: float
    strict: bool
    released: bool
    unreleased: str
    phase: HandoffPhase
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., old_owner: _Optional[str] = ..., new_owner: _Optional[str] = ..., handoff_id: _Optional[int] = ..., age_s: _Optional[float] = ..., progress: _Optional[float] = ..., strict: _Optional[bool] = ..., released: _Optional[bool] = ..., unreleased: _Optional[str] = ..., phase: _Optional[_Union[HandoffPhase, str]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic", "partition_count", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_count: int
    group: str
    def __init__(self, topic: _Optional[str] = ..., partition_count: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("leader", "topics", "consumers", "assignments", "handoffs", "more", "revision", "paused", "pins", "group", "age_s")
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    HANDOFFS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    leader: str
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    consumers: _containers.RepeatedCompositeFieldContainer[Consumer]
    assignments: _containers.RepeatedCompositeFieldContainer[Assignment]
    handoffs: _containers.RepeatedCompositeFieldContainer[Handoff]
    more: bool
    revision: int
    paused: Paused
    pins: _containers.RepeatedCompositeFieldContainer[Pinned]
    group: str
    age_s: float
    def __init__(self, leader: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., consumers: _Optional[_Iterable[_Union[Consumer, _Mapping]]] = ..., assignments: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., handoffs: _Optional[_Iterable[_Union[Handoff, _Mapping]]] = ..., more: _Optional[bool] = ..., revision: _Optional[int] = ..., paused: _Optional[_Union[Paused, _Mapping]] = ..., pins: _Optional[_Iterable[_Union[Pinned, _Mapping]]] = ..., group: _Optional[str] = ..., age_s: _Optional[float] = ...) -> None: ...

class Paused(_message.Message):
    __slots__ = ("reason", "since")
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    since: float
    def __init__(self, reason: _Optional[str] = ..., since: _Optional[float] = ...) -> None: ...

class Pinned(_message.Message):
    __slots__ = ("partition", "consumer_name", "once")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    consumer_name: str
    once: bool
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., consumer_name: _Optional[str] = ..., once: _Optional[bool] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("consumer_name", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("action", "revision")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    action: DeregisterAction
    revision: int
    def __init__(self, action: _Optional[_Union[DeregisterAction, str]] = ..., revision: _Optional[int] = ...) -> None: ...

class OrderResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class UndrainRequest(_message.Message):
    __slots__ = ("consumer_name", "group")
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_name: str
    group: str
    def __init__(self, consumer_name: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("reason", "group")
    REASON_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    reason: str
    group: str
    def __init__(self, reason: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("partition", "consumer_name", "group")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    consumer_name: str
    group: str
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., consumer_name: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class UnpinRequest(_message.Message):
    __slots__ = ("partition", "group")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    group: str
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class AbortHandoffRequest(_message.Message):
    __slots__ = ("partition", "handoff_id", "group")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    handoff_id: int
    group: str
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., handoff_id: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class AbortHandoffResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class SetTopicResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class RemoveTopicRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class RemoveTopicResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("without", "extra", "group")
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    without: _containers.RepeatedScalarFieldContainer[str]
    extra: _containers.RepeatedCompositeFieldContainer[RegisterRequest]
    group: str
    def __init__(self, without: _Optional[_Iterable[str]] = ..., extra: _Optional[_Iterable[_Union[RegisterRequest, _Mapping]]] = ..., group: _Optional[str] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("partition", "from_owner", "to_owner")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_OWNER_FIELD_NUMBER: _ClassVar[int]
    TO_OWNER_FIELD_NUMBER: _ClassVar[int]
    partition: TopicPartition
    from_owner: str
    to_owner: str
    def __init__(self, partition: _Optional[_Union[TopicPartition, _Mapping]] = ..., from_owner: _Optional[str] = ..., to_owner: _Optional[str] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("moves", "revision")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    revision: int
    def __init__(self, moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...
