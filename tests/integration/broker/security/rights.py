"""Requests that need rights, the rights of some users, and the verdicts in answers.

Each request is harmless if it is permitted, so that all users may send all of them in any order.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from faust_assigner.broker.security import acls as a
from tests.support.clients.raw_client import RawClient, batch

AUTHORIZATION: Final = frozenset((29, 30, 31, 53))  # topic, group, cluster, transactional id
NAMES: Final = ("name", "topic", "group_id", "resource_name", "transactional_id", "key", "user")
NUMBERS: Final = ("partition_index", "index", "partition", "partition_id")
ERRORS: Final = ("error_code", "partition_error_code", "topic_config_error_code")
MINUTE: Final = datetime.timedelta(minutes=1)
WAIT: Final = {"timeout": MINUTE}
PASSWORD: Final = "secret"
READER, WRITER = "reader", "writer"

Rule = tuple[int, str, int, int, int, str]  # type, name, pattern, operation, permission, host


def _rule(
    kind: int,
    name: str,
    operation: int,
    *,
    pattern: int = a.LITERAL,
    permission: int = a.ALLOW,
    host: str = "*",
) -> Rule:
    return kind, name, pattern, operation, permission, host


def _on_cluster(operation: int) -> list[Rule]:
    return [_rule(a.CLUSTER, a.THE_CLUSTER, operation)]


USERS: Final[Mapping[str, Sequence[Rule]]] = {
    "nobody": (),
    READER: [_rule(a.TOPIC, "t", a.READ), _rule(a.GROUP, "g", a.READ)],
    WRITER: [_rule(a.TOPIC, "t", a.WRITE), _rule(a.TRANSACTIONAL_ID, "x", a.WRITE)],
    "describer": [
        _rule(a.TOPIC, "*", a.DESCRIBE),
        _rule(a.GROUP, "*", a.DESCRIBE),
        _rule(a.TRANSACTIONAL_ID, "*", a.DESCRIBE),
    ],
    "owner": [
        _rule(a.TOPIC, "*", a.ALL),
        _rule(a.GROUP, "*", a.ALL),
        _rule(a.TRANSACTIONAL_ID, "*", a.ALL),
        *_on_cluster(a.ALL),
    ],
    "denied": [
        _rule(a.TOPIC, "*", a.ALL),
        _rule(a.GROUP, "*", a.ALL),
        _rule(a.TRANSACTIONAL_ID, "*", a.ALL),
        _rule(a.TOPIC, "t", a.READ, permission=a.DENY),
        _rule(a.TOPIC, "u", a.DESCRIBE, permission=a.DENY),
        _rule(a.GROUP, "g", a.ALL, pattern=a.PREFIXED, permission=a.DENY),
        _rule(a.TRANSACTIONAL_ID, "x", a.WRITE, permission=a.DENY),
    ],
    "prefixed": [
        _rule(a.TOPIC, "t", a.ALL, pattern=a.PREFIXED),
        _rule(a.TOPIC, "new", a.CREATE, pattern=a.PREFIXED),
        _rule(a.GROUP, "g", a.DELETE, pattern=a.PREFIXED),
    ],
    "local": [_rule(a.TOPIC, "t", a.ALL, host="127.0.0.1")],
    "remote": [_rule(a.TOPIC, "t", a.ALL, host="10.0.0.1")],
    "hidden": [
        _rule(a.TOPIC, "tt", a.WRITE),
        _rule(a.TOPIC, "t", a.WRITE, pattern=a.PREFIXED, permission=a.DENY),
        _rule(a.TOPIC, "t", a.ALTER, pattern=a.PREFIXED),
    ],
    "configurer": [
        _rule(a.TOPIC, "t", a.ALTER_CONFIGS),
        _rule(a.GROUP, "g", a.DESCRIBE_CONFIGS),
        _rule(a.TOPIC, "new", a.CREATE),
        _rule(a.TOPIC, "new", a.DESCRIBE_CONFIGS),
    ],
    "deleter": [_rule(a.TOPIC, "t", a.DELETE), _rule(a.GROUP, "g", a.DELETE)],
    "creator": _on_cluster(a.CREATE),
    "alterer": _on_cluster(a.ALTER),
    "inspector": _on_cluster(a.DESCRIBE),
    "config-reader": _on_cluster(a.DESCRIBE_CONFIGS),
    "config-writer": _on_cluster(a.ALTER_CONFIGS),
    "idempotent": _on_cluster(a.IDEMPOTENT_WRITE),
    "cluster-deleter": _on_cluster(a.DELETE),
    "actor": _on_cluster(a.CLUSTER_ACTION),
}


def acl_values(user: str, rule: Rule) -> dict[str, Any]:
    """The rule as an element of a CreateAcls request."""
    kind, name, pattern, operation, permission, host = rule
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:{user}",
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


ALL_ACLS: Final = [acl_values(user, rule) for user, rules in USERS.items() for rule in rules]


def log_in(client: RawClient, user: str) -> None:
    """Log in with PLAIN."""
    assert client.call(17, 1, mechanism="PLAIN").error_code == 0
    token = f"\0{user}\0{PASSWORD}".encode()
    assert client.call(36, 2, auth_bytes=token).error_code == 0


def requests(topic_id: uuid.UUID) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Return each request by label: API key, version and values. ``topic_id`` is that of ``t``."""
    record, transactional = batch(), batch(attributes=0x10, producer_id=999, epoch=0, sequence=0)
    both = ("t", "u", "none")
    ask: dict[str, tuple[int, int, dict[str, Any]]] = {}

    def produced(data: bytes) -> list[dict[str, Any]]:
        return [{"name": n, "partition_data": [{"index": 0, "records": data}]} for n in both[:2]]

    def numbered(number: str, **more: Any) -> list[dict[str, Any]]:
        return [{"name": name, "partitions": [{number: 0, **more}]} for name in both]

    by_id = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": record}]}]
    ask["produce 9"] = 0, 9, {"acks": -1, "topic_data": produced(record)}
    ask["produce 13"] = 0, 13, {"acks": -1, "topic_data": by_id}
    more = {"acks": -1, "transactional_id": "x", "topic_data": produced(transactional)}
    ask["produce in a transaction"] = 0, 9, more
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    common: dict[str, Any] = {"replica_id": -1, "max_bytes": 1, "session_epoch": -1}
    of_names = [{"topic": name, "partitions": [fetched]} for name in both]
    of_ids = [{"topic_id": topic_id, "partitions": [fetched]}]
    ask["fetch 12"] = 1, 12, {**common, "topics": of_names}
    ask["fetch 13"] = 1, 13, {**common, "topics": of_ids}
    listed = numbered("partition_index", timestamp=-1, current_leader_epoch=-1)
    ask["list offsets"] = 2, 7, {"replica_id": -1, "topics": listed}
    named = [{"name": name, "topic_id": None} for name in both]
    operations = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    ask["metadata"] = 3, 10, {"topics": named, "allow_auto_topic_creation": False, **operations}
    ask["metadata by id"] = 3, 12, {"topics": [{"name": None, "topic_id": topic_id}]}
    ask["metadata of all"] = 3, 12, {"topics": None, "allow_auto_topic_creation": False}
    made = [{"name": f"bad name {name}", "topic_id": None} for name in ("a",)]
    ask["metadata with creation"] = 3, 12, {"topics": made, "allow_auto_topic_creation": True}
    committed = numbered("partition_index", committed_offset=1, committed_metadata="")
    as_nobody = {"generation_id_or_member_epoch": -1, "member_id": ""}
    ask["offset commit"] = 8, 8, {"group_id": "g", **as_nobody, "topics": committed}
    ask["offset commit 10"] = (
        8,
        10,
        {
            "group_id": "g",
            **as_nobody,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                    ],
                }
            ],
        },
    )
    indexes = [{"name": name, "partition_indexes": (0,)} for name in both]
    for version in (1, 5, 7):
        ask[f"offset fetch {version}"] = 9, version, {"group_id": "g", "topics": indexes}
    groups = [{"group_id": "g", "topics": indexes}, {"group_id": "h", "topics": indexes}]
    ask["offset fetch 8"] = 9, 8, {"groups": groups}
    ask["offset fetch of all"] = 9, 8, {"groups": [{"group_id": "g", "topics": None}]}
    for kind, name in ((0, "g"), (1, "x")):
        ask[f"find coordinator 3 of {kind}"] = 10, 3, {"key": name, "key_type": kind}
        keys = {"coordinator_keys": (name, "other"), "key_type": kind}
        ask[f"find coordinator 4 of {kind}"] = 10, 4, keys
    protocol = {"name": "range", "metadata": b""}
    ask["join"] = (
        11,
        5,
        {
            "group_id": "g",
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [protocol],
            "session_timeout": MINUTE / 6,
            "rebalance_timeout": MINUTE / 6,
        },
    )
    member = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    ask["heartbeat"] = 12, 4, member
    ask["leave"] = 13, 5, {"group_id": "g", "members": [{"member_id": "m"}]}
    protocols = {"protocol_type": "consumer", "protocol_name": "range"}
    ask["sync"] = 14, 5, {**member, **protocols}
    included = {"include_authorized_operations": True}
    ask["describe groups"] = 15, 5, {"groups": ("g", "h"), **included}
    ask["list groups"] = 16, 4, {}
    new = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    new_too = {"name": "fresh", "num_partitions": 1, "replication_factor": 1}
    ask["create topics"] = 19, 7, {"topics": [new, new_too], "validate_only": True, **WAIT}
    ask["delete topics 5"] = 20, 5, {"topic_names": ("none", "t-none", "new-none"), **WAIT}
    gone = [{"name": "none", "topic_id": None}, {"name": None, "topic_id": uuid.UUID(int=7)}]
    ask["delete topics 6"] = 20, 6, {"topics": gone, **WAIT}
    ask["delete records"] = 21, 2, {"topics": numbered("partition_index", offset=0), **WAIT}
    ask["idempotent producer"] = 22, 4, {"transactional_id": None, "transaction_timeout": MINUTE}
    ask["transactional producer"] = 22, 4, {"transactional_id": "x", "transaction_timeout": MINUTE}
    epochs = [
        {
            "topic": n,
            "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}],
        }
        for n in both
    ]
    ask["leader epochs"] = 23, 4, {"replica_id": -1, "topics": epochs}
    stranger = {"producer_id": 999, "producer_epoch": 0}
    added = {
        "v3_and_below_transactional_id": "x",
        "v3_and_below_producer_id": 999,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": n, "partitions": (0,)} for n in ("t", "u")],
    }
    ask["add partitions"] = 24, 3, added
    ask["add offsets"] = 25, 3, {"transactional_id": "x", **stranger, "group_id": "g"}
    ask["end transaction"] = 26, 3, {"transactional_id": "x", **stranger, "committed": True}
    kept = {"transactional_id": "x", "group_id": "g", **stranger, "topics": committed}
    ask["commit offsets in a transaction"] = 28, 3, kept
    none = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": "User:stranger",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    ask["describe acls"] = 29, 3, none
    ask["create acls"] = 30, 3, {"creations": ALL_ACLS[:2]}
    ask["delete acls"] = 31, 3, {"filters": [none]}
    kinds = ((2, "t"), (2, "none"), (4, "1"), (32, "g"))
    shown = [{"resource_type": k, "resource_name": n, "configuration_keys": ()} for k, n in kinds]
    ask["describe configs"] = 32, 4, {"resources": shown}
    changed = [{"resource_type": k, "resource_name": n, "configs": ()} for k, n in kinds]
    ask["alter configs"] = 33, 2, {"resources": changed, "validate_only": True}
    ask["edit configs"] = 44, 1, {"resources": changed, "validate_only": True}
    ask["log dirs 2"] = 35, 2, {"topics": [{"topic": "t", "partitions": (0,)}]}
    ask["log dirs 4"] = 35, 4, {"topics": [{"topic": "t", "partitions": (0,)}]}
    grown = [{"name": name, "count": 9, "assignments": None} for name in both]
    ask["create partitions"] = 37, 3, {"topics": grown, "validate_only": True, **WAIT}
    ask["delete groups"] = 42, 2, {"groups_names": ("g-none", "h-none")}
    elected = [{"topic": "t", "partitions": (0,)}]
    ask["elect leaders"] = 43, 2, {"election_type": 0, "topic_partitions": elected, **WAIT}
    moved = [{"name": "t", "partitions": [{"partition_index": 9, "replicas": None}]}]
    ask["reassign"] = 45, 0, {"topics": moved, **WAIT}
    ask["reassignments"] = 46, 0, {"topics": None, **WAIT}
    ask["delete offsets"] = 47, 0, {"group_id": "g", "topics": numbered("partition_index")}
    component = {"entity_type": "user", "match_type": 2, "match": None}
    ask["quotas"] = 48, 1, {"components": [component], "strict": False}
    entity = {"entity": [{"entity_type": "user", "entity_name": "stranger"}], "ops": ()}
    ask["change quotas"] = 49, 1, {"entries": [entity], "validate_only": True}
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    ask["quorum"] = 55, 1, {"topics": quorum}
    ask["users"] = 50, 0, {"users": [{"name": "stranger"}]}
    ask["change users"] = 51, 0, {"deletions": [{"name": "stranger", "mechanism": 1}]}
    whole = {"include_cluster_authorized_operations": True, "endpoint_type": 1}
    ask["describe cluster"] = 60, 1, whole
    producers = [{"name": name, "partition_indexes": (0,)} for name in both]
    ask["producers"] = 61, 0, {"topics": producers}
    ask["transactions"] = 65, 0, {"transactional_ids": ("y", "other")}
    ask["list transactions"] = 66, 0, {}
    ask["consumer heartbeat"] = (
        68,
        0,
        {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 5,
            "rebalance_timeout": MINUTE,
            "subscribed_topic_names": ("t", "u"),
            "topic_partitions": None,
        },
    )
    ask["describe consumer groups"] = 69, 0, {"group_ids": ("g", "h"), **included}
    ask["config resources"] = 74, 1, {"resource_types": ()}
    pages = {"topics": [{"name": name} for name in both], "response_partition_limit": 10}
    ask["topic pages"] = 75, 0, pages
    ask["all topic pages"] = 75, 0, {"topics": (), "response_partition_limit": 10}
    return ask


def verdicts(message: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each place of an answer with its authorization error (0: any other) and its operations.

    Internal topics and the rules of other tests' resources are no part of the comparison.
    """
    names = {f.name: getattr(message, f.name) for f in fields(message)}
    label = next((names[n] for n in NAMES if isinstance(names.get(n), str)), None)
    number = next((names[n] for n in NUMBERS if isinstance(names.get(n), int)), "")
    if isinstance(label, str) and label.startswith("__"):
        return
    here = f"{path}/{label if label is not None else ''}{number}"
    found = [int(names[n]) for n in ERRORS if n in names and int(names[n]) in AUTHORIZATION]
    told = [v for n, v in names.items() if n.endswith("authorized_operations")]
    yield here, repr((found, told))
    for name, value in names.items():
        if isinstance(value, tuple) and name not in ("brokers", "nodes", "configs"):
            for one in value:
                if is_dataclass(one):
                    yield from verdicts(one, f"{here}.{name}")
