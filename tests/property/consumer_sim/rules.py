"""The right answer to each request, written from the protocol and not from the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import re2  # type: ignore[import-untyped]

from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    Leaver,
    SyncGroup,
)
from faust_assigner.coordinator.protocol import read_subscription
from faust_assigner.coordinator.settings import MigrationPolicy
from tests.property.consumer_sim.acts import Setting
from tests.property.consumer_sim.model import Known, Model, Pair, pairs
from tests.property.consumer_sim.seen import Seen, SeenMember

ASSIGNORS = ("uniform", "range", "copartition")
Views = Mapping[str, SeenMember]


def is_malformed(event: ConsumerGroupHeartbeat) -> Code:
    """Return the error of a request that is invalid by itself, or NONE."""
    joins = event.member_epoch == 0
    wrong = (
        event.member_epoch < -2
        or not event.member_id
        or event.instance_id == ""
        or event.rack_id == ""
        or (
            joins
            and (event.rebalance_timeout_ms == -1 or event.owned is None or len(event.owned) > 0)
        )
        or (joins and event.subscribed_topic_names is None and event.subscribed_topic_regex is None)
        or (event.member_epoch == -2 and event.instance_id is None)
    )
    if wrong:
        return Code.INVALID_REQUEST
    unknown = event.server_assignor is not None and event.server_assignor not in ASSIGNORS
    return Code.UNSUPPORTED_ASSIGNOR if unknown else Code.NONE


def heartbeat(event: ConsumerGroupHeartbeat, model: Model, views: Views, setting: Setting) -> Code:
    """Return the error of a ConsumerGroupHeartbeat to a consumer group."""
    error = is_malformed(event)
    if error is Code.NONE:
        error = _may_speak(event, model, views, setting)
    stays = error is Code.NONE and event.member_epoch >= 0
    return (
        Code.INVALID_REGULAR_EXPRESSION if stays and event.subscribed_topic_regex == "(" else error
    )


def _may_speak(event: ConsumerGroupHeartbeat, model: Model, views: Views, setting: Setting) -> Code:
    holder = model.instances().get(event.instance_id) if event.instance_id is not None else None
    known = event.member_id in model.members
    if event.member_epoch in (-1, -2):
        if event.instance_id is not None:
            return _static(holder, event.member_id)
        return Code.NONE if known else Code.UNKNOWN_MEMBER_ID
    if len(model.members) >= setting.max_size and not known and holder is None:
        return Code.GROUP_MAX_SIZE_REACHED
    if event.member_epoch == 0:
        if holder is None or model.members[holder].classic or views[holder].epoch == -2:
            return Code.NONE
        return Code.UNRELEASED_INSTANCE_ID
    if event.instance_id is not None and _static(holder, event.member_id) is not Code.NONE:
        return _static(holder, event.member_id)
    if not known:
        return Code.UNKNOWN_MEMBER_ID
    view = views[event.member_id]
    return Code.NONE if _is_current(event, view) else Code.FENCED_MEMBER_EPOCH


def _is_current(event: ConsumerGroupHeartbeat, view: SeenMember) -> bool:
    if event.member_epoch == view.epoch:
        return True
    knows_no_more = event.owned is not None and pairs(event.owned) <= view.assigned
    return (
        event.member_epoch == view.previous_epoch
        and event.member_epoch < view.epoch
        and knows_no_more
    )


def _static(holder: str | None, member_id: str) -> Code:
    if holder is None:
        return Code.UNKNOWN_MEMBER_ID
    return Code.NONE if holder == member_id else Code.FENCED_INSTANCE_ID


def join(event: JoinGroup, model: Model, setting: Setting) -> Code:
    """Return the error of a JoinGroup to a consumer group with members."""
    if not 6_000 <= event.session_timeout_ms <= 1_800_000:
        return Code.INVALID_SESSION_TIMEOUT
    known, instances = event.member_id in model.members, model.instances()
    if setting.policy in (MigrationPolicy.DISABLED, MigrationPolicy.UNTIL_EMPTY):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if len(model.members) >= setting.max_size and not known and event.instance_id not in instances:
        return Code.GROUP_MAX_SIZE_REACHED
    if event.protocol_type != "consumer":
        return Code.INCONSISTENT_GROUP_PROTOCOL
    classic = [set(k.protocols) for k in model.members.values() if k.classic]
    if not any(all(p.name in offered for offered in classic) for p in event.protocols):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if event.instance_id is not None and event.member_id:
        error = _static(instances.get(event.instance_id), event.member_id)
        if error is not Code.NONE:
            return error
    if event.instance_id is None and not event.member_id and event.needs_known_id:
        return Code.MEMBER_ID_REQUIRED
    unread = read_subscription(event.protocols[0].metadata) is None
    return Code.INCONSISTENT_GROUP_PROTOCOL if unread else Code.NONE


def of_classic_member(event: SyncGroup | Heartbeat, model: Model, views: Views) -> Code:
    """Check the classic member's id and generation."""
    if event.instance_id is not None:
        error = _static(model.instances().get(event.instance_id), event.member_id)
        if error is not Code.NONE:
            return error
    known = model.members.get(event.member_id)
    if known is None or not known.classic:
        return Code.UNKNOWN_MEMBER_ID
    return (
        Code.NONE if views[event.member_id].epoch == event.generation else Code.ILLEGAL_GENERATION
    )


def beat(event: Heartbeat, model: Model, seen: Seen) -> Code:
    """Return the error of a classic heartbeat to a consumer group."""
    error = of_classic_member(event, model, seen.members)
    if error is not Code.NONE:
        return error
    me = seen.members[event.member_id]
    free = me.state == "unreleased_partitions" and not me.target & seen.taken(event.member_id)
    behind = me.epoch < seen.target_epoch or me.state == "unrevoked_partitions" or free
    return Code.REBALANCE_IN_PROGRESS if behind else Code.NONE


def sync(event: SyncGroup, model: Model, seen: Seen) -> Code:
    """Return the error of a SyncGroup to a consumer group."""
    error = of_classic_member(event, model, seen.members)
    if error is not Code.NONE:
        return error
    spoken = model.members[event.member_id].protocols[0]
    if event.protocol_type not in (None, "consumer") or event.protocol_name not in (None, spoken):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    me = seen.members[event.member_id]
    behind = me.epoch < seen.target_epoch and me.state != "unrevoked_partitions"
    return Code.REBALANCE_IN_PROGRESS if behind else Code.NONE


def leaver(who: Leaver, model: Model) -> tuple[str, Code]:
    """Return the member meant by a line of a LeaveGroup, and its answer."""
    if who.instance_id is None:
        return (
            who.member_id,
            Code.NONE if who.member_id in model.members else Code.UNKNOWN_MEMBER_ID,
        )
    current = model.instances().get(who.instance_id)
    if current is None:
        return "", Code.UNKNOWN_MEMBER_ID
    return current, Code.NONE if who.member_id in ("", current) else Code.FENCED_INSTANCE_ID


def commit(event: CommitOffsets, model: Model, views: Views, catalogue: Catalogue) -> Code:
    """Return the error of an OffsetCommit to a consumer group."""
    if not model.members and event.generation < 0:
        return Code.NONE
    if event.transactional and (event.member_id, event.generation, event.instance_id) == (
        "",
        -1,
        None,
    ):
        return Code.NONE
    known = model.members.get(event.member_id)
    if known is None:
        return Code.UNKNOWN_MEMBER_ID
    view = views[event.member_id]
    if not known.classic and event.api_version < 9 and not event.transactional:
        return Code.UNSUPPORTED_VERSION
    names = {topic_id: topic.name for topic_id, topic in catalogue.by_id.items()}
    since = {(names[t], p): epoch for (t, p), epoch in view.since.items() if t in names}
    old = all(since.get(x, 1 << 40) <= event.generation for x in event.partitions)
    if event.generation == view.epoch or (event.generation < view.epoch and old):
        return Code.NONE
    return Code.ILLEGAL_GENERATION if known.classic else Code.STALE_MEMBER_EPOCH


def fetch(event: FetchOffsets, model: Model, views: Views) -> Code:
    """Return the error of an OffsetFetch to a consumer group."""
    if event.member_id is None and event.epoch < 0:
        return Code.NONE
    known = model.members.get(event.member_id or "")
    if known is None:
        return Code.UNKNOWN_MEMBER_ID
    if event.epoch == views[event.member_id or ""].epoch:
        return Code.NONE
    return Code.ILLEGAL_GENERATION if known.classic else Code.STALE_MEMBER_EPOCH


def reads(known: Known, catalogue: Catalogue) -> frozenset[bytes]:
    """Return the ids of the member's existing subscribed topics."""
    found = {
        n
        for n in catalogue.by_name
        if n in known.names or (known.regex and re2.fullmatch(known.regex, n))
    }
    return frozenset(catalogue.by_name[n].topic_id for n in found)


def assignor(model: Model) -> str:
    """Return the assignor with the most votes."""
    votes = Counter(k.assignor for k in model.members.values() if k.assignor is not None)
    return (
        min(votes, key=lambda name: (-votes[str(name)], str(name)), default="uniform") or "uniform"
    )


def next_step(
    before: SeenMember,
    target: frozenset[Pair],
    target_epoch: int,
    readable: frozenset[bytes],
    taken: frozenset[Pair],
    owned: frozenset[Pair] | None,
    reads_anew: bool,
) -> tuple[int, str, frozenset[Pair], frozenset[Pair]]:
    """Return epoch, state, assigned and revoking after a heartbeat; others hold ``taken``."""
    has, revoking = before.assigned, before.revoking
    unread = frozenset(x for x in has if x[0] not in readable)
    wanted = frozenset(x for x in target if x[0] in readable)
    waiting = before.state == "unrevoked_partitions" and (owned is None or bool(owned & revoking))
    there = before.state == "stable" and before.epoch == target_epoch
    if waiting or there:
        if not unread or not reads_anew:
            return before.epoch, before.state, has, revoking
        asked = revoking | unread
        if owned is None or owned & asked:
            return before.epoch, "unrevoked_partitions", has - unread, asked
        return before.epoch, before.state, has - unread, revoking
    extra = has - wanted
    if extra and (owned is None or owned & extra):
        return before.epoch, "unrevoked_partitions", has & wanted, extra
    blocked = (wanted - has) & taken
    state = "unreleased_partitions" if blocked else "stable"
    return target_epoch, state, wanted - blocked, frozenset()
