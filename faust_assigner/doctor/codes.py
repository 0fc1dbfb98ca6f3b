"""All findings of ``faust-assigner doctor``, a row each; docs/reference/doctor.md is generated from them.

Codes are stable: a finding keeps its code, and the code of a removed finding is not reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: An error breaks the group now or at the next rebalance; a warning may; a note is informative.
ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS: Final = (ERROR, WARNING, NOTE)
#: The subject of a check: the app's own setup, or a running group.
APP, GROUP = "app", "group"


@dataclass(frozen=True, kw_only=True)
class Code:
    """A finding: a short title, its level, the consequence, and the fix."""

    code: str
    title: str
    level: str
    why: str
    fix: str
    looks_at: tuple[str, ...] = (APP, GROUP)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A found code, on ``subject`` (a member, a setting, a topic; "" for the whole).

    ``level`` may be lower than the code's level in a milder case.
    """

    code: str
    level: str
    subject: str
    text: str


CODES: Final[tuple[Code, ...]] = (
    Code(
        code="FA001",
        title="The assignor is not used",
        level=ERROR,
        why="A different assignor decides: Faust's own, aiokafka's round-robin, or librdkafka's behind "
        "confluent://. Loads are uneven, partitions move without need, and this "
        "package's repairs are not installed. In a group with stock members, every rebalance stops"
        " all workers.",
        fix='Set `PartitionAssignor="faust_assigner:PartitionAssignor"` in `faust.App`, use a '
        "`kafka://` broker, install the package with its entry points in the worker's "
        "environment, and roll the workers that are stock Faust.",
    ),
    Code(
        code="FA002",
        title="Workers share an instance id",
        level=ERROR,
        why="A static member that joins with a used instance id replaces the previous member "
        "(KIP-345). The replaced worker ends with FENCED_INSTANCE_ID, its supervisor starts it "
        "again, and it replaces the first: both restart for ever.",
        fix="Give each worker a stable and unique name: `consumer_group_instance_id` from the pod's "
        "ordinal or the host's name. Or leave it unset: the workers are then dynamic members.",
    ),
    Code(
        code="FA003",
        title="Workers share a URL",
        level=WARNING,
        why="Requests for a key are forwarded to the URL of the key's owner. With one URL for two "
        "workers, half of them reach the wrong worker; status and metrics show one of the two.",
        fix="Set `canonical_url` (or `NODE_CANONICAL_URL`) to the worker's own host and port.",
        looks_at=(GROUP,),
    ),
    Code(
        code="FA004",
        title="A worker advertises a loopback URL",
        level=WARNING,
        why="Other machines that follow http://localhost or http://127.0.0.1 reach themselves, so "
        "requests for keys fail, and `faust-assigner status` does not query the worker.",
        fix="Set `canonical_url` (or `NODE_CANONICAL_URL`) to a name that the other workers can "
        "resolve, such as the pod's DNS name.",
    ),
    Code(
        code="FA005",
        title="Tables are kept in memory",
        level=WARNING,
        why="A table in memory is replayed from its whole changelog whenever its partition moves or "
        "its worker restarts. Warm-ups and snapshots do not help such a table.",
        fix='Set `store="rocksdb://"` in `faust.App`, or per table.',
    ),
    Code(
        code="FA006",
        title="A setting has an unknown name or an impossible value",
        level=ERROR,
        why="A misspelled setting has no effect; a worker refuses to start with a misspelled "
        "name. For an impossible value the worker uses the default and logs a warning.",
        fix="Use the name that the finding proposes, or a name from docs/reference/settings.md.",
        looks_at=(APP,),
    ),
    Code(
        code="FA007",
        title="Times do not work together",
        level=ERROR,
        why="The group removes a member whose heartbeats come later than its session timeout, or that"
        " rejoins later than its rebalance timeout. A broker refuses sessions outside its limits."
        " A supervisor that kills a worker before the end of its hand-over turns a clean stop into"
        " a crash.",
        fix="Heartbeats at most a third of the session; the session within the brokers' "
        "`group.min.session.timeout.ms` and `group.max.session.timeout.ms`; "
        "`broker_max_poll_interval` above `broker_rebalance_timeout`; the supervisor's grace "
        "(`terminationGracePeriodSeconds`, `TimeoutStopSec`) at least `FAUST_ASSIGNER_LEAVE_S` "
        "plus 15 s.",
    ),
    Code(
        code="FA008",
        title="A changelog loses rows by its topic's settings",
        level=ERROR,
        why="With `cleanup.policy=delete` the broker deletes rows by age: a table restored "
        "from such a changelog lacks every row without a recent write. A windowed table "
        "needs its rows until the window expires.",
        fix="`kafka-configs --alter --topic CHANGELOG --add-config cleanup.policy=compact`; for a "
        "windowed table `compact,delete` with `retention.ms` above the window's `expires`.",
    ),
    Code(
        code="FA009",
        title="A changelog and its source differ in partitions",
        level=ERROR,
        why="A row has the partition number of the record that wrote the row. If the counts differ, the "
        "worker that first writes to the table ends with PartitionsMismatch, and so does the next"
        " worker.",
        fix="Give the changelog as many partitions as its source: delete and recreate it empty, or "
        "copy it to a new topic by key. Set `partitions` of the table to the source's.",
    ),
    Code(
        code="FA010",
        title="More workers than tasks",
        level=WARNING,
        why="Equal partition numbers of co-partitioned topics are one task, and one worker "
        "owns a task. Workers beyond the number of tasks own no task; they only keep copies.",
        fix="Run fewer workers, or create the source topics (and changelogs) with more partitions.",
    ),
    Code(
        code="FA011",
        title="The group's record is near its limit",
        level=WARNING,
        why="Kafka keeps all metadata and assignments of a group in one record. Above the limit the "
        "directory of owners is left out, so that requests are not routed by key; a still larger record "
        "is refused, and the group can no longer form.",
        fix="Raise `max.message.bytes` of `__consumer_offsets` and "
        "`FAUST_ASSIGNER_GROUP_RECORD_BYTES` together, or use fewer members or topics per app.",
        looks_at=(GROUP,),
    ),
    Code(
        code="FA012",
        title="Workers differ in a setting",
        level=WARNING,
        why="Any worker may become the leader, and the leader's settings decide: the group behaves "
        "differently after each change of the leader. Different timeouts hide a slow worker.",
        fix="Set it alike on all workers; during a roll the difference disappears with its end.",
        looks_at=(GROUP,),
    ),
    Code(
        code="FA013",
        title="Versions outside of the tested ones",
        level=ERROR,
        why="The repairs replace methods of Faust and aiokafka that have no stable interface. With "
        "another version the worker does not start, or, without repairs, runs without the parts "
        "that do not fit.",
        fix="Install the versions that the finding names; `python -m faust_assigner.app.host.check` "
        "lists all mismatches. Two versions of this package may be mixed during a "
        "roll.",
    ),
    Code(
        code="FA014",
        title="Rebalances stop all workers",
        level=WARNING,
        why="Rebalances are cooperative where every member offers that. One worker with "
        "`FAUST_ASSIGNER_COOPERATIVE=0`, `FAUST_ASSIGNER_REPAIRS=0` or another driver makes each "
        "rebalance stop the whole group.",
        fix="Remove the setting on the workers that the finding names and roll them.",
    ),
    Code(
        code="FA015",
        title="Fewer racks than copies",
        level=WARNING,
        why="A table's owner and its standbys go to different racks as far as possible. With "
        "fewer racks than copies the loss of a rack takes an owner and its standby together.",
        fix="Run workers in at least `table_standby_replicas` + 1 racks and set `FAUST_ASSIGNER_RACK`"
        " on every one, or lower `table_standby_replicas`.",
    ),
    Code(
        code="FA016",
        title="No room on disk for one more copy",
        level=ERROR,
        why="After the loss of a worker, the remaining workers take its tables and make new copies. If a "
        "disk is too small, the restore fails and the partition stands still.",
        fix="Enlarge the volume of the worker's tables, or add workers.",
    ),
    Code(
        code="FA017",
        title="The ledger is off",
        level=NOTE,
        why="Without a ledger a later question about a partition's move has no answer, and `history`, "
        "`weights` and `simulate` have no input.",
        fix="Leave `FAUST_ASSIGNER_LEDGER` out, or set it to a folder on each worker's disk, or to "
        "`topic:NAME` where workers have no disk.",
    ),
    Code(
        code="FA018",
        title="Table files were corrupt",
        level=WARNING,
        why="RocksDB could not read a partition's folder. The folder was renamed with the suffix "
        "`.corrupt`, and the partition was restored from its changelog or from a copy: no row is "
        "lost. But a disk that damages a folder may damage more.",
        fix="Search the worker's log for `are corrupt and were set aside`, and check its disk "
        "(`dmesg`, SMART). Remove the `.corrupt` folders after the analysis. The "
        "finding disappears with the worker's next start.",
        looks_at=(GROUP,),
    ),
)
BY_CODE: Final = {code.code: code for code in CODES}


def finding(code: str, text: str, *, subject: str = "", level: str | None = None) -> Finding:
    """Create a finding of ``code``, with the code's level unless ``level`` is given."""
    return Finding(code=code, level=level or BY_CODE[code].level, subject=subject, text=text)
