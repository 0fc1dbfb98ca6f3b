"""The bounds of the service's settings, and the offsets and commits of a partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from faust_assigner.errors import ConfigError
from faust_assigner.service.client.commands import Grant, TopicPartition
from faust_assigner.service.client.offsets import left_at
from faust_assigner.service.client.partitions import Partitions
from faust_assigner.settings.service import ServiceSettings

AT, KAFKA = TopicPartition("t", 3), KafkaPartition("t", 3)


@pytest.mark.parametrize(
    ("name", "least", "is_allowed"),
    [
        *(
            (f"{name}_s", 0.0, False)
            for name in (
                *("election_retry", "handoff_timeout", "release_timeout", "reconcile"),
                "topic_refresh",
            )
        ),
        *(
            (name, 0, True)
            for name in ("debounce_s", "cooldown_s", "rebalance_delay_s", "replicas")
        ),
        *((name, 1, True) for name in ("max_handoffs", "max_handoffs_per_consumer", "channel")),
    ],
)
def test_each_setting_has_its_own_least_value(name: str, least: float, is_allowed: bool) -> None:
    """NaN is refused as well."""
    if is_allowed:
        ServiceSettings(**{name: least})
    else:
        ServiceSettings(**{name: least + 0.001})
    for wrong in (float("nan"), least - 1, *([] if is_allowed else [least])):
        with pytest.raises(ConfigError, match=f"^{name} must be "):
            ServiceSettings(**{name: wrong})


@pytest.mark.parametrize("name", ["consumer", "leader"])
def test_a_failed_renewal_leaves_time_for_a_second_one(name: str) -> None:
    """The second renewal comes before the fence at two thirds of the time to live."""
    ServiceSettings(**{f"{name}_ttl_s": 9.0, f"{name}_keepalive_s": 5.999})
    for every, wrong in ((6.0, f"below two thirds of {name}_ttl_s"), (0.0, "seconds above 0")):
        with pytest.raises(ConfigError, match=wrong):
            ServiceSettings(**{f"{name}_ttl_s": 9.0, f"{name}_keepalive_s": every})


@pytest.mark.parametrize("prefix", ["/", "/a/"])
def test_a_prefix_begins_and_ends_with_a_slash(prefix: str) -> None:
    """Without the final slash, the prefix could be the start of a longer prefix."""
    assert ServiceSettings(prefix=prefix).prefix == prefix
    for wrong in (f"x{prefix}", f"{prefix}x", ""):
        with pytest.raises(
            ConfigError, match="prefix must be a text that begins and ends with a slash"
        ):
            ServiceSettings(prefix=wrong)


@pytest.mark.parametrize(
    ("committed", "granted", "start", "found"),
    [
        (None, 5, 7, 7),
        (None, 5, None, None),
        ((-1, ""), 5, 7, 7),
        ((-1, ""), 5, None, None),
        ((9, "epoch=5"), 5, 7, 9),
        ((0, "epoch=5"), 5, 7, 0),
        ((9, "epoch=4"), 5, 7, 7),
        ((9, "epoch=4"), 5, None, 9),
        ((9, ""), 5, 7, 7),
        ((9, None), 5, None, 9),
        ((9, "epoch=10"), 10, 7, 9),
        ((9, "epoch=9"), 10, 7, 7),
    ],
)
async def test_a_partition_goes_on_where_its_own_grant_committed_last(
    committed: tuple[int, str | None] | None, granted: int, start: int | None, found: int | None
) -> None:
    """Otherwise it starts at the previous owner's end, or at its commit."""
    offsets = {} if committed is None else {KAFKA: OffsetAndMetadata(*committed)}

    async def fetch(asked: Any) -> Any:
        assert asked == [KAFKA]
        return offsets

    coordinator = SimpleNamespace(fetch_committed_offsets=fetch)
    fake: Any = SimpleNamespace(_coordinator=coordinator)
    assert await left_at(fake, Grant(AT, granted, start)) == found


@pytest.mark.parametrize(("later", "granted"), [(6, 5), (10, 9)])
async def test_a_grant_that_a_later_owner_has_committed_after_is_outdated(
    later: int, granted: int
) -> None:
    """The error has both epochs, which are compared as numbers."""

    async def fetch(asked: Any) -> Any:
        return {KAFKA: OffsetAndMetadata(9, f"epoch={later}")}

    coordinator = SimpleNamespace(fetch_committed_offsets=fetch)
    fake: Any = SimpleNamespace(_coordinator=coordinator)
    with pytest.raises(RuntimeError, match=f"epoch {later} has committed, this is {granted}"):
        await left_at(fake, Grant(AT, granted, 7))


@pytest.mark.parametrize(
    ("offset", "committed", "may_work", "is_sent"),
    [
        (None, None, True, False),
        (0, None, True, True),
        (7, 7, True, False),
        (8, 7, True, True),
        (8, 7, False, False),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
async def test_a_commit_has_the_epoch_of_the_grant(
    caplog: pytest.LogCaptureFixture,
    offset: int | None,
    committed: int | None,
    may_work: bool,
    is_sent: bool,
    fails: bool,
) -> None:
    """Only a new offset is committed, with the right to work; a failed commit is retried."""
    sent: list[Any] = []

    async def commit(offsets: Any) -> None:
        sent.append(offsets)
        if fails:
            raise KafkaError("no")

    fake: Any = SimpleNamespace(
        _consumer=SimpleNamespace(commit=commit), may_work=lambda partition: may_work
    )
    owned: Any = SimpleNamespace(grant=Grant(AT, 5), next_offset=offset, committed=committed)
    await Partitions.commit(fake, owned)
    assert sent == ([{KAFKA: OffsetAndMetadata(offset, "epoch=5")}] if is_sent else [])
    assert owned.committed == (offset if is_sent and not fails else committed)
    assert len(caplog.records) == (is_sent and fails)


def test_only_partitions_with_full_queues_are_held_back() -> None:
    """An unopened partition is left alone, and no partition is paused twice."""
    told: list[Any] = []
    facts = {
        "full": (5, True, False),
        "full and paused": (5, True, True),
        "free": (5, False, False),
        "free again": (5, False, True),
        "unopened": (None, False, True),
        "opened at 0": (0, True, False),
    }
    owned = {
        TopicPartition(name, 0): SimpleNamespace(fetched=fetched, is_full=is_full)
        for name, (fetched, is_full, _) in facts.items()
    }
    consumer = SimpleNamespace(
        paused=lambda: {KafkaPartition(name, 0) for name, fact in facts.items() if fact[2]},
        pause=lambda one: told.append(("pause", one.topic)),
        resume=lambda one: told.append(("resume", one.topic)),
    )
    fake: Any = SimpleNamespace(_consumer=consumer, _owned=owned)
    Partitions._hold_back(fake)
    assert told == [("pause", "full"), ("resume", "free again"), ("pause", "opened at 0")]
