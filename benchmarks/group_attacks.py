"""Attacks on a broker through its groups, and their effect on other clients; for broker_attacks."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from benchmarks.broker_target import LIMIT_S, Bystander, Target
from tests.support.coordination.raw_consumer_group import span

BEAT, DESCRIBE_CONSUMERS, COMMIT, FETCH, LIST, DESCRIBE, DELETE = 68, 69, 8, 9, 16, 15, 42
Request = tuple[int, int, Mapping[str, Any]]
WINDOW: Final = 100
NOTHING, STRANGE = uuid.UUID(int=0), uuid.UUID(int=2**127 + 7)
TIGHT: Final = ("(a+)+$", "(a|aa)+$", "(.*a){20}b", "(a?){500}a{500}", "([a-z]+)*[0-9]", "(x+x+)+y")


def join(group: str, member: str, **more: Any) -> Request:
    """Return a heartbeat that joins a group."""
    values = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout": span(60_000),
    }
    wanted = {
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": None,
        "topic_partitions": (),
    }
    return BEAT, 1, {**values, **wanted, "server_assignor": None, **more}


def owned(topic_id: uuid.UUID | None, count: int) -> list[dict[str, Any]]:
    """Return partitions 0 to ``count`` of a topic."""
    return [{"topic_id": topic_id, "partitions": tuple(range(count))}]


def flood(target: Target, requests: Iterable[Request]) -> str:
    """Pipeline requests beside a bystander until they end or time is up."""
    before, bystander, began = target.memory_mib(), Bystander(target), time.monotonic()
    errors: Counter[str] = Counter()
    waiting: list[tuple[int, int]] = []
    with target.client() as client, contextlib.suppress(TimeoutError, ConnectionError):
        for api_key, version, values in requests:
            client.send(api_key, version, **values)
            waiting.append((api_key, version))
            if len(waiting) > WINDOW:
                errors[_error(client.receive(*waiting.pop(0)))] += 1
            if time.monotonic() - began > LIMIT_S:
                break
        for asked in waiting:
            errors[_error(client.receive(*asked))] += 1
    took, worst = time.monotonic() - began, bystander.end()
    told = ", ".join(f"{count} {name}" for name, count in errors.most_common(2))
    return (
        f"{told} in {took:.1f} s; others {worst:.2f} s; +{max(target.memory_mib() - before, 0)} MiB"
    )


def _error(answer: Any) -> str:
    if hasattr(answer, "error_code"):
        return str(getattr(answer.error_code, "name", answer.error_code))
    return "answers"


# -- subscriptions ---------------------------------------------------------------------------


def same_name(target: Target) -> str:
    """Subscribe to a topic, with its name repeated 100,000 times."""
    _prepare(target)
    return flood(target, [join("g", "m", subscribed_topic_names=("t",) * 100_000)])


def many_names(target: Target) -> str:
    """Subscribe a member, in each of 100 heartbeats, to 20,000 other unknown topics."""
    _prepare(target)
    names = tuple(f"n{number:05d}" for number in range(40_000))
    return flood(
        target, (join("g", "m", subscribed_topic_names=names[n : n + 20_000]) for n in range(100))
    )


def many_regexes(target: Target) -> str:
    """Send 10,000 heartbeats of a member, each with a new regular expression."""
    _prepare(target)
    return flood(target, (_by_regex("g", "m", f"t{number}.*") for number in range(10_000)))


def regex_members(target: Target) -> str:
    """Join 2,000 members, each with its own regular expression, on 1,000 topics."""
    _prepare(target, topics=1_000)
    return flood(target, (_by_regex("g", f"m{number}", f"t.*{number}?") for number in range(2_000)))


def tight_regexes(target: Target) -> str:
    """Subscribe with patterns of endless backtracking, on names of 249 equal letters."""
    _prepare(target)
    for letter in "ax":
        target.topic(letter * 249)
    return flood(target, (_by_regex(f"g{n}", "m", TIGHT[n % len(TIGHT)]) for n in range(600)))


def long_regex(target: Target) -> str:
    """Send 20 heartbeats with a pattern of 1,000,000 characters."""
    _prepare(target)
    return flood(target, (_by_regex(f"g{n}", "m", "(a|b)" * 200_000) for n in range(20)))


def _by_regex(group: str, member: str, regex: str) -> Request:
    return join(group, member, subscribed_topic_names=None, subscribed_topic_regex=regex)


# -- partitions, epochs, ids -----------------------------------------------------------------


def many_owned(target: Target) -> str:
    """Send 20 joins that claim 200,000 partitions of an unknown topic."""
    _prepare(target)
    return flood(
        target, (join("g", "m", topic_partitions=owned(STRANGE, 200_000)) for _ in range(20))
    )


def epochs(target: Target) -> str:
    """Send extreme epochs in every request with an epoch; count the answers by error."""
    _prepare(target)
    with target.client() as client:
        first = _ask(client, join("g", "m"))
        topic_id = _topic_id(client)
        said: Counter[str] = Counter()
        for epoch in (-(2**31), -3, 2**31 - 1, first.member_epoch + 1):
            said[_error(_ask(client, join("g", "m", member_epoch=epoch)))] += 1
            said[_error(_commit(client, topic_id, epoch))] += 1
            said[_error(_fetch(client, topic_id, epoch))] += 1
    return ", ".join(f"{count} {name}" for name, count in sorted(said.items()))


def topic_ids(target: Target) -> str:
    """Send commits, fetches and claims with null and unknown topic ids."""
    _prepare(target)
    said: list[str] = []
    with target.client() as client:
        epoch = _ask(client, join("g", "m")).member_epoch
        for topic_id in (NOTHING, STRANGE):
            said.append(_error(_commit(client, topic_id, epoch)))
            said.append(_error(_fetch(client, topic_id, epoch)))
            claims = join("g", "m", member_epoch=epoch, topic_partitions=owned(topic_id, 3))
            said.append(_error(_ask(client, claims)))
    return ", ".join(said)


def _commit(client: Any, topic_id: uuid.UUID, epoch: int) -> Any:
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}]
    topics = [{"topic_id": topic_id, "partitions": parts}]
    whose = {"group_id": "g", "generation_id_or_member_epoch": epoch, "member_id": "m"}
    return client.call(COMMIT, 10, **whose, topics=topics).topics[0].partitions[0]


def _fetch(client: Any, topic_id: uuid.UUID, epoch: int) -> Any:
    topics = [{"topic_id": topic_id, "partition_indexes": (0,)}]
    groups = [{"group_id": "g", "member_id": "m", "member_epoch": epoch, "topics": topics}]
    group = client.call(FETCH, 10, groups=groups).groups[0]
    return group if group.error_code else group.topics[0].partitions[0]


def _topic_id(client: Any) -> uuid.UUID:
    found: uuid.UUID = client.call(3, 12, topics=[{"name": "t"}]).topics[0].topic_id
    return found


# -- floods ----------------------------------------------------------------------------------


def member_ids(target: Target) -> str:
    """Join 5,000 members to a group, each from a client that then stops."""
    _prepare(target)
    return flood(target, (join("g", f"m{number}") for number in range(5_000)))


def instance_ids(target: Target) -> str:
    """Join 2,500 static members to a group; each leaves temporarily (epoch -2) at once."""
    _prepare(target)

    def requests() -> Iterable[Request]:
        for number in range(2_500):
            who = {"instance_id": f"i{number}"}
            yield join("g", f"m{number}", **who)
            yield join("g", f"m{number}", **who, member_epoch=-2)

    return flood(target, requests())


def lone_groups(target: Target) -> str:
    """Create 10,000 groups with a member each."""
    _prepare(target)
    return flood(target, (join(f"g{number}", "m") for number in range(10_000)))


def described(target: Target) -> str:
    """Describe, list and delete a group of 2,000 members in 200 requests that name it 10,000 times."""
    _prepare(target)
    flood(target, (join("g", f"m{number}", rack_id="r" * 200) for number in range(2_000)))
    one: list[Request] = [
        (DESCRIBE_CONSUMERS, 1, {"group_ids": ("g",) * 10_000}),
        (DESCRIBE, 6, {"groups": ("g",) * 10_000}),
        (LIST, 5, {}),
        (DELETE, 2, {"groups_names": ("g",) * 10_000}),
    ]
    return flood(target, one * 50)


def _prepare(target: Target, topics: int = 1) -> None:
    target.start()
    target.topic("t", 12)
    if topics > 1:
        with target.client() as client:
            wanted = [
                {"name": f"t{number}", "num_partitions": 1, "replication_factor": 1}
                for number in range(topics)
            ]
            client.call(19, 5, topics=wanted, timeout=span(20_000))


def _ask(client: Any, request: Request) -> Any:
    api_key, version, values = request
    return client.call(api_key, version, **values)


ATTACKS: Final[Mapping[str, Callable[[Target], str]]] = {
    "KIP-848: one topic 100,000 times": same_name,
    "KIP-848: 100 x 20,000 strange topics": many_names,
    "KIP-848: 10,000 regexes of a member": many_regexes,
    "KIP-848: 2,000 members with regexes": regex_members,
    "KIP-848: 600 catastrophic regexes": tight_regexes,
    "KIP-848: 20 regexes of 1 MB": long_regex,
    "KIP-848: 20 x 200,000 owned partitions": many_owned,
    "KIP-848: epochs at the extremes": epochs,
    "KIP-848: null and strange topic ids": topic_ids,
    "KIP-848: 5,000 members of a group": member_ids,
    "KIP-848: 2,500 static ids": instance_ids,
    "KIP-848: 10,000 groups of one": lone_groups,
    "KIP-848: 200 descriptions of 2,000": described,
}
