"""All metrics of a worker, one row each.

docs/generate makes docs/reference/metrics.md from this table. The conventions are
prometheus-client's: base units, ``_total`` for counters, and no number that means "unknown". A
gauge without a value is absent. Every other series exists with 0 from the start, for all known
values of its labels. The series of a partition are removed when the worker gives the partition up.
"""

from __future__ import annotations

from typing import Final

from faust_assigner.app.metrics.figure import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Figure,
    counter,
    gauge,
    gauge_or_absent,
)
from faust_assigner.wire.worker_status import REASONS

#: Causes of a round; SEVERAL stands for more than one cause.
SEVERAL: Final = "several"
TRIGGERS: Final = ("first", "join", "leave", "subscription", "partitions", "rejoin", SEVERAL)

#: The upper bounds of the buckets, in seconds.
ROUND_BUCKETS: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
PLAN_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)

TP_LABELS: Final = ("topic", "partition")


_COPIES = (
    gauge("owned_partitions", "partitions", "the number of partitions that this worker owns"),
    gauge(
        "standby_partitions",
        "partitions",
        "the number of changelog partitions of which this worker keeps a copy",
    ),
    gauge(
        "warmup_partitions",
        "partitions",
        "the number of copies whose task moves to this worker in a follow-up round after they have caught up",
    ),
    gauge(
        "owned_changelog_partition",
        "",
        "1 for each changelog partition that this worker owns",
        labels=TP_LABELS,
    ),
    gauge(
        "standby_lag_records",
        "records",
        "the number of offsets that a copy lacks, from the broker's end offsets of the last seconds; a "
        "warm-up counts as a copy",
        labels=TP_LABELS,
    ),
    gauge(
        "standby_lag_seconds",
        "seconds",
        "the age of the oldest record that a copy lacks; for a copy that never caught up, the "
        "time since this worker began to follow the changelog",
        labels=TP_LABELS,
    ),
)
_STANDING = (
    Figure(
        name="standing_partitions",
        kind=GAUGE,
        unit="partitions",
        meaning="the number of owned source partitions that are not processed, by reason",
        labels=("reason",),
        starts=tuple((reason,) for reason in REASONS),
    ),
    gauge(
        "standing_seconds",
        "seconds",
        "the time for which a source partition has not been processed for this reason",
        labels=(*TP_LABELS, "reason"),
    ),
    gauge("ready", "", "1 while /assignor/ready answers 200, otherwise 0"),
    counter(
        "fences",
        "the number of memberships that ended because the group did not know this worker any longer",
    ),
    gauge_or_absent(
        "group_silent_seconds",
        "seconds",
        "the time since this worker sent the last answered heartbeat",
    ),
    gauge(
        "unreadable_partitions",
        "partitions",
        "the number of partitions whose records cannot be read now",
    ),
    counter(
        "unreadable_fetches",
        "the number of attempts to read a partition whose records cannot be read",
    ),
    counter(
        "unreadable_records", "the number of changelog records that did not decode and were skipped"
    ),
)
_ROUNDS = (
    counter("rounds", "the number of rebalances that this worker joined"),
    Figure(
        name="round_answer_seconds",
        kind=HISTOGRAM,
        unit="seconds",
        meaning="the time from the start of a rebalance until this worker received the leader's "
        "answer",
        buckets=ROUND_BUCKETS,
    ),
    Figure(
        name="round_seconds",
        kind=HISTOGRAM,
        unit="seconds",
        meaning="the time from the start of a rebalance until all owned partitions were restored",
        buckets=ROUND_BUCKETS,
    ),
    gauge_or_absent("round_age_seconds", "seconds", "the age of the rebalance in progress"),
    gauge_or_absent("commit_age_seconds", "seconds", "the age of the oldest commit in progress"),
    gauge_or_absent(
        "revocation_age_seconds", "seconds", "the age of the revocation or hand-over in progress"
    ),
    counter(
        "follow_ups",
        "the number of rounds that this worker requested, to move tasks to copies that have caught up",
    ),
    Figure(
        name="rounds_led",
        kind=COUNTER,
        unit="",
        meaning="the number of rounds decided by this worker, by the change since the last round",
        labels=("trigger",),
        starts=tuple((trigger,) for trigger in TRIGGERS),
        leader_only=True,
    ),
    Figure(
        name="plan_seconds",
        kind=HISTOGRAM,
        unit="seconds",
        meaning="the time that the planner took",
        buckets=PLAN_BUCKETS,
        leader_only=True,
    ),
    counter("moves", "the number of tasks whose owner changed", leader_only=True),
    counter(
        "cold_moves",
        "the number of stateful tasks given to a member without their state",
        leader_only=True,
    ),
)
_RESTORES = (
    gauge(
        "restore_remaining_records",
        "records",
        "the number of changelog records that remain to be restored, including the records of standbys and "
        "warm-ups",
    ),
    gauge_or_absent(
        "restore_remaining_seconds",
        "seconds",
        "the time until these records are restored, at the rate of the last ten seconds; absent "
        "without progress",
    ),
    counter("restored_records", "the number of restored changelog records", unit="records"),
    counter(
        "corrupt_folders",
        "the number of corrupt table folders, which the worker renamed",
        unit="folders",
    ),
    gauge_or_absent("disk_free_bytes", "bytes", "the free bytes of the tables' file system"),
    gauge_or_absent("disk_size_bytes", "bytes", "the size of the tables' file system"),
)
_LEADERS = (
    gauge("leads", "", "1 on the member that decided the group's last round"),
    gauge_or_absent(
        "members", "members", "the number of members of the last round", leader_only=True
    ),
    gauge_or_absent("tasks", "tasks", "the number of tasks of the last round", leader_only=True),
    gauge_or_absent(
        "off_target_tasks",
        "tasks",
        "the number of tasks that are not yet at their target",
        leader_only=True,
    ),
    gauge_or_absent(
        "warming_tasks", "tasks", "the number of tasks with a warm-up", leader_only=True
    ),
    gauge_or_absent(
        "uncovered_tasks",
        "tasks",
        "the number of stateful tasks without a caught-up copy on another member, by the members' reports of "
        "the last round",
        leader_only=True,
    ),
)

#: Key in ``PartitionAssignor.counters`` -> its figure; a round's log lines report the same counts.
COUNTED: Final = {
    "refused_members": counter(
        "refused_members", "the number of members whose claims were refused", leader_only=True
    ),
    "disbelieved_positions": counter(
        "disbelieved_positions",
        "the number of copies whose reported position is beyond the end of their changelog; such a "
        "copy counts as empty",
        leader_only=True,
    ),
    "fallbacks": counter(
        "fallbacks",
        "the number of rounds in which the planner failed; partitions were assigned without regard to their "
        "former owners",
        leader_only=True,
    ),
    "missing_topics": counter(
        "missing_topics", "the number of subscribed topics without partitions", leader_only=True
    ),
    "shrunk_topics": counter(
        "shrunk_topics",
        "the number of topics with fewer partitions than members claim",
        leader_only=True,
    ),
    "duplicate_urls": counter(
        "duplicate_urls", "the number of URLs that several members reported", leader_only=True
    ),
    "unknown_tables": counter(
        "unknown_tables",
        "the number of changelogs that the leader's app does not declare",
        leader_only=True,
    ),
    "directories_left_out": counter(
        "directories_left_out",
        "the number of rounds whose directory of owners was too large for the group's record",
        leader_only=True,
    ),
    "weights_failures": counter(
        "weights_failures",
        "the number of rounds without weights because the weights could not be read",
        leader_only=True,
    ),
    "follow_ups": next(figure for figure in _ROUNDS if figure.name == "follow_ups"),
    "unreadable_partitions": next(f for f in _STANDING if f.name == "unreadable_fetches"),
    "unreadable_answers": counter(
        "unreadable_answers", "the number of leader's answers that this worker could not decode"
    ),
    "foreign_urls": counter(
        "foreign_urls", "the number of leader's answers with a wrong URL for this worker"
    ),
    "metadata_failures": counter(
        "metadata_failures", "the number of joins without claims because they could not be encoded"
    ),
    "memory_failures": counter(
        "memory_failures", "the number of failed writes of the list of owned partitions to disk"
    ),
    "memories_ignored": counter(
        "memories_ignored", "the number of failed reads of the list of owned partitions from disk"
    ),
    "sensor_failures": counter("sensor_failures", "the number of failed calls of a Faust sensor"),
}

FIGURES: Final = (
    *_COPIES,
    *_STANDING,
    *_ROUNDS,
    *_RESTORES,
    *_LEADERS,
    *(f for f in COUNTED.values() if f not in _ROUNDS + _STANDING),
    gauge("info", "", "1, with the version of this package", labels=("version",)),
)
BY_NAME: Final = {figure.name: figure for figure in FIGURES}
