"""Facts about topics in the cluster, and the checks of a table's changelog. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faust_assigner.doctor.codes import ERROR, WARNING, Finding, finding


@dataclass(frozen=True, kw_only=True)
class TopicFacts:
    """A topic. ``cleanup_policy`` is "" and ``retention_ms`` None if the cluster did not report them.

    ``retention_ms`` below 0 keeps records for ever.
    """

    partitions: int
    cleanup_policy: str = ""
    retention_ms: int | None = None


def check_changelog(
    name: str,
    topic: TopicFacts,
    *,
    is_windowed: bool,
    expires_s: float | None,
    is_set: bool = False,
) -> Iterator[Finding]:
    """Check that the broker keeps a table's rows, and only the last value of each.

    Of a table of sets the broker must keep all records: each record is an operation on a set.
    """
    policies = {policy.strip() for policy in topic.cleanup_policy.split(",") if policy.strip()}
    if not policies:
        return
    keeps_for_ever = topic.retention_ms is None or topic.retention_ms < 0
    if "delete" in policies and not keeps_for_ever:
        if is_windowed:
            yield from _check_windows_stay(name, topic, expires_s)
        else:
            yield finding(
                "FA008",
                f"cleanup.policy is {topic.cleanup_policy}: rows older than {_span(topic.retention_ms)} are "
                "deleted",
                subject=name,
            )
    if is_set:
        if "compact" in policies:
            yield finding(
                "FA008",
                f"cleanup.policy is {topic.cleanup_policy}, and the table has sets: the broker keeps "
                "only the last added and the last removed element of each set",
                subject=name,
            )
    elif "compact" not in policies and (is_windowed or keeps_for_ever):
        yield finding(
            "FA008",
            f"cleanup.policy is {topic.cleanup_policy}, without compact: the changelog keeps every change "
            "of a row, and a restore reads all changes",
            subject=name,
            level=WARNING,
        )


def _check_windows_stay(name: str, topic: TopicFacts, expires_s: float | None) -> Iterator[Finding]:
    """Check that rows of windows are not deleted before their windows expire."""
    if expires_s is None:
        yield finding(
            "FA008",
            "the table's windows never expire, and rows older than "
            f"{_span(topic.retention_ms)} are deleted",
            subject=name,
            level=WARNING,
        )
    elif topic.retention_ms is not None and topic.retention_ms < expires_s * 1000:
        yield finding(
            "FA008",
            f"retention.ms is {_span(topic.retention_ms)}, and windows expire after {expires_s:g} s",
            subject=name,
        )


def _span(retention_ms: int | None) -> str:
    seconds = (retention_ms or 0) / 1000
    return f"{seconds / 86400:g} days" if seconds >= 86400 else f"{seconds:g} s"


def check_partitions(changelog: str, count: int, sources: Mapping[str, int]) -> Iterator[Finding]:
    """Check that at least one source topic has as many partitions as the changelog."""
    if sources and count not in sources.values():
        told = ", ".join(f"{name}: {number}" for name, number in sorted(sources.items()))
        yield finding(
            "FA009",
            f"{count} partitions, and no consumed topic has as many ({told})",
            subject=changelog,
            level=ERROR,
        )
