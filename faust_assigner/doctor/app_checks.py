"""Checks an app's setup: returns the findings for its facts. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faust_assigner.doctor.codes import ERROR, WARNING, Finding, finding
from faust_assigner.doctor.facts import AppFacts
from faust_assigner.doctor.times import Times, check_grace, check_times
from faust_assigner.doctor.topics import TopicFacts, check_changelog, check_partitions
from faust_assigner.settings.places import is_loopback, is_loopback_url
from faust_assigner.settings.table import COOPERATIVE, REPAIRS
from faust_assigner.status.words import size


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The planned numbers of workers and racks, and the supervisor's grace; None if not given."""

    workers: int | None = None
    racks: int | None = None
    grace_s: float | None = None


def check_app(
    facts: AppFacts, deployment: Deployment, topics: Mapping[str, TopicFacts] | None = None
) -> tuple[Finding, ...]:
    """Return all findings about an app.

    ``topics`` are the app's topics in the cluster; None without a cluster.
    """
    return (
        *_check_assignor(facts),
        *_check_instance_id(facts, deployment),
        *_url(facts),
        *_check_memory_tables(facts),
        *_settings(facts),
        *_times(facts, deployment),
        *_topics(facts, topics or {}),
        *_check_idle_workers(facts, deployment, topics or {}),
        *_check_versions(facts),
        *_check_eager(facts),
        *_check_racks(facts, deployment),
        *_check_disk(facts),
        *_check_ledger(facts),
    )


def _check_assignor(facts: AppFacts) -> Iterator[Finding]:
    if not facts.is_ours:
        yield finding("FA001", f"PartitionAssignor is {facts.assignor}", subject=facts.app_id)
    elif not facts.has_fixup:
        yield finding(
            "FA001",
            "the package's entry point `faust.fixups` is not installed: the app runs without the repairs",
            subject=facts.app_id,
        )
    if not facts.is_our_driver:
        yield finding(
            "FA001",
            "the broker's driver is not Faust's aiokafka driver, and does not use the app's assignor",
            subject=facts.app_id,
        )


def _check_instance_id(facts: AppFacts, deployment: Deployment) -> Iterator[Finding]:
    """Find an instance id that several workers would share.

    Such an id contains neither a value of the environment nor the host's name.
    """
    instance_id = facts.instance_id
    if instance_id is None or (deployment.workers or 1) < 2:
        return
    told = any(value and value in instance_id for value in (*facts.environment, facts.host))
    if not told:
        yield finding(
            "FA002",
            f"consumer_group_instance_id is {instance_id!r}, which comes neither from this environment nor "
            f"from the host's name: {deployment.workers} workers would share it",
            subject=facts.app_id,
            level=WARNING,
        )


def _url(facts: AppFacts) -> Iterator[Finding]:
    is_local = all(is_loopback(broker) for broker in facts.brokers)
    if is_loopback_url(facts.url) and not is_local:
        yield finding("FA004", f"canonical_url is {facts.url}", subject=facts.app_id)


def _check_memory_tables(facts: AppFacts) -> Iterator[Finding]:
    names = [table.name for table in facts.tables if table.in_memory]
    if names:
        yield finding("FA005", f"tables {', '.join(names)}", subject=facts.app_id)


def _settings(facts: AppFacts) -> Iterator[Finding]:
    for wrong in facts.wrong_settings:
        yield finding("FA006", wrong, subject=facts.app_id)


def _times(facts: AppFacts, deployment: Deployment) -> Iterator[Finding]:
    times = Times(
        heartbeat_s=facts.heartbeat_s,
        session_s=facts.session_s,
        poll_s=facts.poll_s,
        rebalance_s=facts.rebalance_s,
    )
    yield from check_times(times, subject=facts.app_id)
    hands_over = facts.is_cooperative and facts.has_repairs and facts.instance_id is None
    if deployment.grace_s is not None:
        leave_s = facts.leave_s if hands_over else 0.0
        yield from check_grace(deployment.grace_s, leave_s, subject=facts.app_id)


def _topics(facts: AppFacts, topics: Mapping[str, TopicFacts]) -> Iterator[Finding]:
    sources = {
        name: topics[name].partitions if name in topics else declared
        for name, declared in facts.sources.items()
    }
    for table in facts.tables:
        there = topics.get(table.changelog)
        if there is not None:
            yield from check_changelog(
                table.changelog,
                there,
                is_windowed=table.is_windowed,
                is_set=table.is_set,
                expires_s=table.expires_s,
            )
        if not (table.is_global or table.uses_partitioner):
            count = there.partitions if there is not None else table.partitions
            known = {name: number for name, number in sources.items() if number}
            if count and len(known) == len(sources):
                yield from check_partitions(table.changelog, count, known)


def _check_idle_workers(
    facts: AppFacts, deployment: Deployment, topics: Mapping[str, TopicFacts]
) -> Iterator[Finding]:
    if deployment.workers is None or not facts.sources:
        return
    counts = {
        topics[name].partitions if name in topics else declared or facts.default_partitions
        for name, declared in facts.sources.items()
    }
    tasks = sum(counts)
    if deployment.workers > tasks:
        yield finding(
            "FA010",
            f"{deployment.workers} workers for {tasks} tasks: {deployment.workers - tasks} own no task",
            subject=facts.app_id,
        )


def _check_versions(facts: AppFacts) -> Iterator[Finding]:
    for misfit in facts.misfits:
        yield finding("FA013", misfit, subject=facts.app_id)


def _check_eager(facts: AppFacts) -> Iterator[Finding]:
    if not facts.is_ours:
        return
    off = {COOPERATIVE.name: facts.is_cooperative, REPAIRS.name: facts.has_repairs}
    named = [name for name, is_on in off.items() if not is_on]
    if named:
        yield finding("FA014", f"off: {', '.join(named)}", subject=facts.app_id)


def _check_racks(facts: AppFacts, deployment: Deployment) -> Iterator[Finding]:
    racks, copies = deployment.racks, facts.replicas + 1
    if racks is None or not facts.tables or facts.replicas == 0:
        return
    if racks > 1 and facts.rack is None:
        yield finding("FA015", "FAUST_ASSIGNER_RACK is not set here", subject=facts.app_id)
    elif racks < copies:
        yield finding(
            "FA015", f"{racks} racks for {copies} copies of each table", subject=facts.app_id
        )


def _check_disk(facts: AppFacts) -> Iterator[Finding]:
    if facts.disk_free_bytes is None or not facts.stores_bytes:
        return
    largest = max(facts.stores_bytes)
    if facts.disk_free_bytes < largest:
        yield finding(
            "FA016",
            f"{size(facts.disk_free_bytes)} free, the largest table partition here has {size(largest)}",
            subject=facts.app_id,
            level=ERROR,
        )


def _check_ledger(facts: AppFacts) -> Iterator[Finding]:
    if facts.is_ours and facts.ledger is None:
        yield finding("FA017", "FAUST_ASSIGNER_LEDGER is off", subject=facts.app_id)
