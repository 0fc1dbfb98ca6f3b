"""The settings of workers, from which docs/generate generates docs/reference/settings.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from faust_assigner.settings.schema import (
    FILE,
    FOLDER,
    FOLDER_TOPIC_OR_OFF,
    LABEL,
    PLACES,
    SPAN,
    SWITCH,
    TEXT,
    Setting,
    number,
    one_of,
    whole,
)

#: Below Kafka's default limit of 1,048,588 bytes, because the record has further fields of the
#: group.
_RECORD_BYTES = 1_000_000
_MIB = 1024 * 1024

RACK: Final = Setting[str | None](
    "FAUST_ASSIGNER_RACK",
    LABEL,
    None,
    "the rack of this worker; standbys go to other racks",
    "none",
    of_worker=True,
)
CAPACITY: Final = Setting(
    "FAUST_ASSIGNER_CAPACITY",
    number("a number from 0.000001 to 1000000", least=1e-6, most=1e6),
    1.0,
    "the share of load of this worker, relative to the other workers",
    of_worker=True,
    unit="shares",
)
GROUP_RECORD_BYTES: Final = Setting(
    "FAUST_ASSIGNER_GROUP_RECORD_BYTES",
    whole("0 or more bytes", least=0),
    _RECORD_BYTES,
    "the brokers' size limit for a group's record; above the limit the directory of owners is left out",
)
FOLLOW_UP_S: Final = Setting[float | None](
    "FAUST_ASSIGNER_FOLLOW_UP_S",
    number("0 or more seconds", least=0.0),
    None,
    "the minimum time between a round and a follow-up round, which a worker requests "
    "to move tasks to caught-up "
    "copies; with 0 the worker requests no follow-up rounds",
    "5 after a cooperative round, 30 after an eager round",
)
WARMUPS: Final = Setting(
    "FAUST_ASSIGNER_WARMUPS",
    SWITCH,
    True,
    "whether a living owner keeps a table's partition until its target worker has caught up. The leader's "
    "value applies. Without follow-up rounds, or with `off` on either worker, partitions move immediately",
)
ACCEPTABLE_RECOVERY_LAG: Final = Setting(
    "FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG",
    whole("0 or more records", least=0),
    10_000,
    "a worker within this lag has caught up; the rest is replayed while a partition moves. "
    "A partition that receives more records within a heartbeat interval never moves, because the "
    "records since the last report count as lag",
)
ACCEPTABLE_FROM_NOTHING: Final = Setting[int | None](
    "FAUST_ASSIGNER_ACCEPTABLE_FROM_NOTHING",
    whole("0 or more records", least=0),
    None,
    "the acceptable lag of a worker without any state of the table. With a lower value, new workers wait "
    "for a follow-up round instead of filling short tables while the partitions stand still",
    "100 in a cooperative round, else the acceptable recovery lag",
)
MAX_WARMUPS: Final = Setting(
    "FAUST_ASSIGNER_MAX_WARMUPS",
    whole("a number above 0", least=1),
    32,
    "the number of concurrent warm-ups on a worker, beyond its standbys",
    unit="replicas",
)
MAX_GROUP_WARMUPS: Final = Setting(
    "FAUST_ASSIGNER_MAX_GROUP_WARMUPS",
    whole("a number above 0", least=1),
    256,
    "the number of concurrent warm-ups in the group",
    unit="replicas",
)
WARMUP_DEADLINE_S: Final = Setting(
    "FAUST_ASSIGNER_WARMUP_DEADLINE_S",
    number("seconds above 0"),
    900.0,
    "the time without progress of any copy after which a worker gives up on a partition and tries another",
)
URLS: Final = Setting[tuple[str, ...]](
    "FAUST_ASSIGNER_URLS",
    PLACES,
    (),
    "workers to which requests for keys may be forwarded: `host`, `host:port`, `*.domain`, `10.0.0.0/8`",
    "all except link-local addresses; loopback only from loopback",
)
CREDENTIALS_TO: Final = Setting[tuple[str, ...]](
    "FAUST_ASSIGNER_CREDENTIALS_TO",
    PLACES,
    (),
    "the workers that also receive the caller's `Authorization` and `Cookie`; the same patterns",
    "no worker",
)
STALE_READS_S: Final = Setting(
    "FAUST_ASSIGNER_STALE_READS_S",
    number("0 or more seconds", least=0.0),
    0.0,
    "while the owner of a key cannot answer, a copy may answer if it has every "
    "record that is older than this; with 0 "
    "the answer is 503. The leader's value decides whether workers know the copies",
)
WINDOW_RETENTION_S: Final = Setting(
    "FAUST_ASSIGNER_WINDOW_RETENTION_S",
    number("0 or more seconds", least=0.0),
    86_400.0,
    "the time beyond `expires` for which the changelog of a windowed table keeps its rows, from their last "
    "change; a longer stop of the group loses open windows. The setting applies to "
    "topics that Faust creates",
)
FORWARD_S: Final = Setting(
    "FAUST_ASSIGNER_FORWARD_S",
    number("seconds above 0"),
    10.0,
    "the time limit of a GET or HEAD that is forwarded to another worker; for a table's key the next "
    "worker is asked then",
)
REPAIRS: Final = Setting(
    "FAUST_ASSIGNER_REPAIRS",
    SWITCH,
    True,
    "whether Faust's faults in rebalances are repaired. Without repairs, rebalances are eager, tables are "
    "restored by Faust alone, and a part that does not fit the installed Faust is "
    "left out instead of failing the "
    "app's start",
)
COOPERATIVE: Final = Setting(
    "FAUST_ASSIGNER_COOPERATIVE",
    SWITCH,
    True,
    "whether workers keep processing their retained partitions during a rebalance; a single worker of the "
    "group without this makes every rebalance eager",
)
OVERLAY: Final = Setting(
    "FAUST_ASSIGNER_OVERLAY",
    SWITCH,
    True,
    "whether a change of a RocksDB table is written after its changelog record is acknowledged, so that "
    "a row on disk is never newer than its changelog; always on under `exactly_once`",
)
OVERLAY_BYTES: Final = Setting(
    "FAUST_ASSIGNER_OVERLAY_BYTES",
    whole("a number of bytes above 0", least=1),
    64 * _MIB,
    "the memory limit for changes that wait for their changelog; above the limit the next record waits",
)
LEAVE_S: Final = Setting(
    "FAUST_ASSIGNER_LEAVE_S",
    number("0 or more seconds", least=0.0),
    8.0,
    "the time for which a stopping worker keeps processing while other workers take over its partitions; "
    "with 0 the worker leaves immediately. A static member hands no partitions over, "
    "because the group waits for its return",
)
RETIRE_FILE: Final = Setting[Path | None](
    "FAUST_ASSIGNER_RETIRE_FILE",
    FILE,
    None,
    "if this file exists at the stop of a static member, the member hands its partitions over and leaves "
    "the group for good, as a dynamic member does; the file is removed",
    "`retire` in the app's data directory (`DATADIR/v1/retire`)",
    of_worker=True,
)
SNAPSHOTS: Final = Setting[str | None](
    "FAUST_ASSIGNER_SNAPSHOTS",
    TEXT,
    None,
    "the folder or URL of the changelog snapshots from which tables are restored",
    "none",
)
BATCHED_REPLAY: Final = Setting(
    "FAUST_ASSIGNER_BATCHED_REPLAY",
    SWITCH,
    True,
    "whether changelogs are replayed in batches; otherwise by Faust's own loop",
)
RESTORE_SHARE: Final = Setting(
    "FAUST_ASSIGNER_RESTORE_SHARE",
    number("a number from 0.01 to 1", least=0.01, most=1.0),
    0.5,
    "the share of its thread's time that a restore uses while the worker's streams receive records; "
    "without records a restore uses all the time",
    unit="of a core",
)
WEIGHTS: Final = Setting[str | None](
    "FAUST_ASSIGNER_WEIGHTS",
    TEXT,
    None,
    "the source of partition weights: a file, `topic:NAME` or `kafka://host:port/NAME`",
    "none: every partition weighs 1.0",
)
WEIGHTS_MODE: Final = Setting(
    "FAUST_ASSIGNER_WEIGHTS_MODE",
    one_of("on", "shadow", "off"),
    "on",
    "`on` uses the weights, `shadow` scores decisions with them, `off` does not read them",
)
WEIGHTS_MAX_AGE_S: Final = Setting(
    "FAUST_ASSIGNER_WEIGHTS_MAX_AGE_S",
    number("seconds above 0"),
    7 * 86_400.0,
    "the age after which a version of the weights is stale",
    "604800, 7 days",
)
WEIGHTS_CLAMP: Final = Setting(
    "FAUST_ASSIGNER_WEIGHTS_CLAMP",
    SPAN,
    (0.25, 4.0),
    "the lowest and the highest weight",
    "0.25:4",
    unit="medians",
)
LEDGER: Final = Setting[Path | str | None](
    "FAUST_ASSIGNER_LEDGER",
    FOLDER_TOPIC_OR_OFF,
    Path("ledger"),
    "the folder of the ledger, in which each process writes a separate file; or `topic:NAME`: a topic "
    "of the app's own cluster, created if missing; or `off`",
    "`ledger` in Faust's `datadir` (`DATADIR/ledger`)",
    of_worker=True,
)
LEDGER_FILE_BYTES: Final = Setting(
    "FAUST_ASSIGNER_LEDGER_FILE_BYTES",
    whole("a number of bytes above 0", least=1),
    16 * _MIB,
    "the size at which a ledger file is rotated; `.1` is the oldest, and numbers are never reused. For a "
    "created topic: the segment size",
)
LEDGER_BYTES: Final = Setting(
    "FAUST_ASSIGNER_LEDGER_BYTES",
    whole("a number of bytes above 0", least=1),
    256 * _MIB,
    "the size limit of all ledger files of the folder; the oldest rotated files, and "
    "files of ended workers, "
    "are removed first. For a created topic: the size limit of all partitions together",
)
LEDGER_SAMPLE_S: Final = Setting(
    "FAUST_ASSIGNER_LEDGER_SAMPLE_S",
    number("seconds above 0"),
    30.0,
    "the time between two samples of a partition",
)
DEPLOY: Final = Setting[str | None](
    "FAUST_ASSIGNER_DEPLOY",
    TEXT,
    None,
    "the name of this release; the history compares releases by name",
    "none",
)
PAGE: Final = Setting(
    "FAUST_ASSIGNER_PAGE",
    SWITCH,
    True,
    "whether the worker's web server serves a page about the group at `/assignor/`",
    of_worker=True,
)
CACHE: Final = Setting(
    "FAUST_ASSIGNER_CACHE",
    FOLDER,
    Path("~/.cache/faust-assigner"),
    "the cache folder for jars, a Kafka and Faust's own tests",
    is_keyword=False,
)

#: Every setting of this module, in the order of the generated page.
SETTINGS: Final[tuple[Setting[Any], ...]] = tuple(
    made for made in tuple(globals().values()) if isinstance(made, Setting)
)
