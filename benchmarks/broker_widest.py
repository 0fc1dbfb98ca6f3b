"""Send each API its longest list of about a megabyte without repetition; measure other clients' delay."""

from __future__ import annotations

import contextlib
import datetime
import gzip
from typing import Any

from benchmarks.broker_target import Bystander, Target, answer_bytes
from tests.support.clients.raw_client import batch, one_record

TOPICS, WIDE = 10, 10_000
NOBODY = {"group_id": "beating", "generation_id": 1, "member_id": "m"}
OUTSIDER = {"group_id": "beating", "generation_id_or_member_epoch": -1, "member_id": ""}
SECOND = datetime.timedelta(seconds=1)


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    """Return partitions 0, 1, 2, ..."""
    return [{"partition_index": number, **more} for number in range(count)]


def names(count: int) -> tuple[str, ...]:
    """Return names of unknown topics, groups or members."""
    return tuple(f"n{number:05d}" for number in range(count))


def requests() -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Return name -> (API key, version, values) of each request."""
    wide = [f"wide{number}" for number in range(TOPICS)]
    made = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names(15_000)]
    tiny = b"".join(one_record(b"", offset_delta=n) for n in range(100_000))
    each = [{"index": number, "records": batch()} for number in range(WIDE)]
    large = [
        {"index": 0, "records": batch(gzip.compress(tiny), count=100_000, attributes=1)},
        {"index": 1, "records": batch(tiny[: len(tiny) // 2], count=50_000)},
    ]
    wants = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 10**6} for n in range(WIDE)]
    epochs = [
        {"partition": n, "leader_epoch": 0, "current_leader_epoch": -1} for n in range(60_000)
    ]
    change = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
    resources = [{"resource_type": 2, "resource_name": name} for name in names(15_000)]
    join = {
        "session_timeout": 10 * SECOND,
        "rebalance_timeout": SECOND,
        "protocol_type": "consumer",
    }
    protocols = [{"name": name, "metadata": b""} for name in names(60_000)]
    listed = numbered(60_000, timestamp=-1, current_leader_epoch=-1)
    timed = numbered(WIDE, timestamp=5, current_leader_epoch=-1)
    committed = numbered(WIDE, committed_offset=1)
    return {
        "Metadata": (3, 12, {"topics": None}),
        "CreateTopics": (19, 5, {"topics": made}),
        "Produce": (0, 9, {"acks": -1, "topic_data": [{"name": wide[0], "partition_data": each}]}),
        "Produce, tiny records": (
            0,
            9,
            {"acks": -1, "topic_data": [{"name": wide[1], "partition_data": large}]},
        ),
        "Fetch": (1, 11, {"max_bytes": 10**8, "topics": [{"topic": wide[0], "partitions": wants}]}),
        "ListOffsets": (
            2,
            5,
            {"replica_id": -1, "topics": [{"name": wide[2], "partitions": listed}]},
        ),
        "ListOffsets by time": (
            2,
            5,
            {"replica_id": -1, "topics": [{"name": wide[0], "partitions": timed}]},
        ),
        "OffsetCommit": (
            8,
            5,
            {**OUTSIDER, "topics": [{"name": name, "partitions": committed} for name in wide[:4]]},
        ),
        "OffsetFetch": (9, 8, {"groups": [{"group_id": n, "topics": None} for n in names(60_000)]}),
        "FindCoordinator": (10, 4, {"key_type": 0, "coordinator_keys": names(99_000)}),
        "JoinGroup": (11, 5, {"group_id": "j", "member_id": "", **join, "protocols": protocols}),
        "LeaveGroup": (
            13,
            4,
            {"group_id": "beating", "members": [{"member_id": n} for n in names(20_000)]},
        ),
        "SyncGroup": (
            14,
            4,
            {**NOBODY, "assignments": [{"member_id": n, "assignment": b""} for n in names(60_000)]},
        ),
        "DescribeGroups": (15, 4, {"groups": names(99_000)}),
        "DeleteGroups": (42, 2, {"groups_names": names(99_000)}),
        "DescribeConfigs": (32, 4, {"resources": resources}),
        "AlterConfigs": (
            44,
            1,
            {"resources": [{**resource, "configs": change} for resource in resources]},
        ),
        "LeaderEpoch": (
            23,
            4,
            {"replica_id": -1, "topics": [{"topic": wide[0], "partitions": epochs}]},
        ),
        "CreatePartitions": (
            37,
            2,
            {"topics": [{"name": n, "count": 2, "assignments": None} for n in names(15_000)]},
        ),
        "DeleteRecords": (
            21,
            2,
            {
                "topics": [{"name": wide[0], "partitions": numbered(WIDE, offset=-1)}],
                "timeout": SECOND,
            },
        ),
        "OffsetDelete": (
            47,
            0,
            {
                "group_id": "beating",
                "topics": [{"name": n, "partitions": numbered(WIDE)} for n in wide],
            },
        ),
        "DeleteTopics": (20, 5, {"topic_names": (*wide, *names(15_000)), "timeout": SECOND}),
    }


def worst_wait(target: Target) -> str:
    """Return the request with the longest delay of other clients, and this delay."""
    with target.client() as client:
        for number in range(TOPICS):
            topic = {"name": f"wide{number}", "num_partitions": WIDE, "replication_factor": 1}
            client.call(19, 5, topics=[topic])
    felt: dict[str, float] = {}
    for name, (api_key, version, values) in requests().items():
        with target.client() as client:
            bystander = Bystander(target)
            with contextlib.suppress(TimeoutError, ConnectionError):
                client.send(api_key, version, **values)
                answer_bytes(client)
            felt[name] = bystander.end()
    worst = max(felt, key=lambda name: felt[name])
    return f"others {felt[worst]:.2f} s at worst, {worst}"


if __name__ == "__main__":
    from benchmarks.broker_target import HERE

    under_attack = Target(HERE)
    under_attack.start()
    try:
        print(worst_wait(under_attack))
    finally:
        under_attack.kill()
