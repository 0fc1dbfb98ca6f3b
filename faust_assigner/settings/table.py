"""All settings. docs/reference/settings.md is made from this table, see ``page.py``."""

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

#: Kafka's limit for one record is 1,048,588 bytes unless configured; the group's own fields need some of it.
_RECORD_BYTES = 1_000_000
_MIB = 1024 * 1024

RACK: Final = Setting[str | None](
    "FAUST_ASSIGNER_RACK",
    LABEL,
    None,
    "",
    "where this worker stands; standbys go to other racks",
    "app/rebalance/member.py",
    "none",
    of_worker=True,
)
CAPACITY: Final = Setting(
    "FAUST_ASSIGNER_CAPACITY",
    number("a number from 0.000001 to 1000000", least=1e-6, most=1e6),
    1.0,
    "shares",
    "how much load this worker takes beside the others",
    "app/rebalance/member.py",
    of_worker=True,
)
GROUP_RECORD_BYTES: Final = Setting(
    "FAUST_ASSIGNER_GROUP_RECORD_BYTES",
    whole("0 or more bytes", least=0),
    _RECORD_BYTES,
    "bytes",
    "what the brokers take as one group's record; beyond it the directory of owners is left out",
    "app/assignor.py",
)
FOLLOW_UP_S: Final = Setting[float | None](
    "FAUST_ASSIGNER_FOLLOW_UP_S",
    number("0 or more seconds", least=0.0),
    None,
    "seconds",
    "least time between a round and one that a worker asks for to bring tasks to where their state is warm; "
    "0 asks for none",
    "app/rebalance/follow_up.py",
    "5 after a cooperative round, 30 after one that stopped all",
)
WARMUPS: Final = Setting(
    "FAUST_ASSIGNER_WARMUPS",
    SWITCH,
    True,
    "",
    "whether a living owner keeps a table's partition until the worker it belongs to has caught up; as the "
    "leader has it, and to and from a worker where it is off, or without follow-up rounds, all moves at once",
    "app/rebalance/warming.py",
)
ACCEPTABLE_RECOVERY_LAG: Final = Setting(
    "FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG",
    whole("0 or more records", least=0),
    10_000,
    "records",
    "a worker with a copy no further behind has caught up: so much is replayed while a partition moves. "
    "Partitions to which more is written within a heartbeat interval never move: what came since the copy "
    "was asked counts",
    "app/rebalance/warming.py",
)
ACCEPTABLE_FROM_NOTHING: Final = Setting[int | None](
    "FAUST_ASSIGNER_ACCEPTABLE_FROM_NOTHING",
    whole("0 or more records", least=0),
    None,
    "records",
    "the same for a worker that holds nothing of the table: less, and newcomers wait for a follow-up round "
    "rather than open and fill short tables while their partitions stand still",
    "app/rebalance/warming.py",
    "100 in a cooperative round, else the acceptable recovery lag",
)
MAX_WARMUPS: Final = Setting(
    "FAUST_ASSIGNER_MAX_WARMUPS",
    whole("a number above 0", least=1),
    32,
    "replicas",
    "warm-ups that one worker restores at a time, beyond its standbys",
    "app/rebalance/warming.py",
)
MAX_GROUP_WARMUPS: Final = Setting(
    "FAUST_ASSIGNER_MAX_GROUP_WARMUPS",
    whole("a number above 0", least=1),
    256,
    "replicas",
    "warm-ups of all workers together",
    "app/rebalance/warming.py",
)
WARMUP_DEADLINE_S: Final = Setting(
    "FAUST_ASSIGNER_WARMUP_DEADLINE_S",
    number("seconds above 0"),
    900.0,
    "seconds",
    "after so long a worker gives up on a partition that has not caught up, and another one is tried",
    "app/rebalance/follow_up.py",
)
URLS: Final = Setting[tuple[str, ...]](
    "FAUST_ASSIGNER_URLS",
    PLACES,
    (),
    "",
    "workers that requests for keys may be forwarded to: `host`, `host:port`, `*.domain`, `10.0.0.0/8`",
    "app/queries/forwarding.py",
    "any but link-local ones; loopback only from loopback",
)
CREDENTIALS_TO: Final = Setting[tuple[str, ...]](
    "FAUST_ASSIGNER_CREDENTIALS_TO",
    PLACES,
    (),
    "",
    "those of them that get the caller's `Authorization` and `Cookie`, too; named alike",
    "app/queries/forwarding.py",
    "nobody",
)
STALE_READS: Final = Setting(
    "FAUST_ASSIGNER_STALE_READS",
    number("0 or more seconds", least=0.0),
    0.0,
    "seconds",
    "while its owner cannot answer a request for a key, a copy may that lacks nothing older than this; 0 "
    "answers 503 instead. The leader's word counts for whether workers know of others' copies",
    "app/queries/install.py",
)
WINDOW_RETENTION_S: Final = Setting(
    "FAUST_ASSIGNER_WINDOW_RETENTION_S",
    number("0 or more seconds", least=0.0),
    86_400.0,
    "seconds",
    "so much longer than `expires` the changelog of a windowed table keeps its rows, counted from their last "
    "change: a group that stands still for longer loses open windows. For topics that Faust creates",
    "app/tables/window_closing.py",
)
FORWARD_S: Final = Setting(
    "FAUST_ASSIGNER_FORWARD_S",
    number("seconds above 0"),
    10.0,
    "seconds",
    "how long another worker may take to answer a GET or HEAD for a key before the next one is asked",
    "app/queries/router.py",
)
REPAIRS: Final = Setting(
    "FAUST_ASSIGNER_REPAIRS",
    SWITCH,
    True,
    "",
    "whether Faust's faults at a rebalance are repaired; without it rebalances are eager, and a part that "
    "does not fit the host is left out instead of keeping the app from starting",
    "app/fixup.py, app/compose.py",
)
COOPERATIVE: Final = Setting(
    "FAUST_ASSIGNER_COOPERATIVE",
    SWITCH,
    True,
    "",
    "whether workers go on processing what they keep while a rebalance goes on; where one worker of the "
    "group does not, each rebalance stops all of them",
    "app/rebalance/install.py",
)
OVERLAY: Final = Setting(
    "FAUST_ASSIGNER_OVERLAY",
    SWITCH,
    True,
    "",
    "whether a change of a table in RocksDB is written when its changelog has it, so that a row is never "
    "ahead of its log; under `exactly_once` it always is",
    "app/tables/write_behind.py",
)
OVERLAY_BYTES: Final = Setting(
    "FAUST_ASSIGNER_OVERLAY_BYTES",
    whole("a number of bytes above 0", least=1),
    64 * _MIB,
    "bytes",
    "what the changes of this worker that wait for their changelog may take; beyond it the next record waits",
    "app/tables/write_behind.py",
    "16777216, 16 MiB",
)
LEAVE_S: Final = Setting(
    "FAUST_ASSIGNER_LEAVE_S",
    number("0 or more seconds", least=0.0),
    8.0,
    "seconds",
    "how long a worker that is stopped waits for others to take over what it has, while it goes on "
    "processing it; 0 leaves at once. A static member hands nothing over: it is expected back",
    "app/membership/leave.py",
)
RETIRE_FILE: Final = Setting[Path | None](
    "FAUST_ASSIGNER_RETIRE_FILE",
    FILE,
    None,
    "",
    "if this file exists when a static member is stopped, the member hands its partitions over and leaves "
    "the group for good, as a dynamic member does; the file is removed",
    "app/membership/leave.py",
    "`retire` in the app's data directory (`DATADIR/v1/retire`)",
    of_worker=True,
)
SNAPSHOTS: Final = Setting[str | None](
    "FAUST_ASSIGNER_SNAPSHOTS",
    TEXT,
    None,
    "",
    "folder or URL of changelog snapshots to restore tables from",
    "app/recovery/restoring.py",
    "none",
)
BATCHED_REPLAY: Final = Setting(
    "FAUST_ASSIGNER_BATCHED_REPLAY",
    SWITCH,
    True,
    "",
    "whether changelogs are replayed in batches; if not, by Faust's own loop",
    "app/recovery/restoring.py",
)
RESTORE_SHARE: Final = Setting(
    "FAUST_ASSIGNER_RESTORE_SHARE",
    number("a number from 0.01 to 1", least=0.01, most=1.0),
    0.5,
    "of a core",
    "how much of its thread's time a restore takes while the worker's streams get records; "
    "without any it takes all",
    "app/recovery/restoring.py",
)
WEIGHTS: Final = Setting[str | None](
    "FAUST_ASSIGNER_WEIGHTS",
    TEXT,
    None,
    "",
    "where the weights of partitions are: a file, `topic:NAME` or `kafka://host:port/NAME`",
    "app/weights/provider.py",
    "none: every partition weighs 1.0",
)
WEIGHTS_MODE: Final = Setting(
    "FAUST_ASSIGNER_WEIGHTS_MODE",
    one_of("on", "shadow", "off"),
    "on",
    "",
    "`on` uses the weights, `shadow` scores decisions with them, `off` does not read them",
    "app/weights/provider.py",
)
WEIGHTS_MAX_AGE: Final = Setting(
    "FAUST_ASSIGNER_WEIGHTS_MAX_AGE",
    number("seconds above 0"),
    7 * 86_400.0,
    "seconds",
    "after so long a version of the weights is stale",
    "app/weights/provider.py",
    "604800, 7 days",
)
WEIGHTS_CLAMP: Final = Setting(
    "FAUST_ASSIGNER_WEIGHTS_CLAMP",
    SPAN,
    (0.25, 4.0),
    "medians",
    "the least and the most that a weight may be",
    "app/weights/provider.py",
    "0.25:4",
)
LEDGER: Final = Setting[Path | str | None](
    "FAUST_ASSIGNER_LEDGER",
    FOLDER_TOPIC_OR_OFF,
    Path("ledger"),
    "",
    "folder of the ledger; each process writes a file of its own there; `topic:NAME`: a Kafka topic of the "
    "app's own cluster, which is created where it is missing; `off`: none",
    "app/ledger/install.py",
    "`ledger` in the app's data directory (Faust's `datadir`)",
    of_worker=True,
)
LEDGER_FILE_BYTES: Final = Setting(
    "FAUST_ASSIGNER_LEDGER_FILE_BYTES",
    whole("a number of bytes above 0", least=1),
    16 * _MIB,
    "bytes",
    "a file of the ledger is rotated at this size; `.1` is the oldest, and a number is never given twice; of "
    "a topic that is created the size of a segment",
    "app/ledger/install.py",
    "16777216, 16 MiB",
)
LEDGER_BYTES: Final = Setting(
    "FAUST_ASSIGNER_LEDGER_BYTES",
    whole("a number of bytes above 0", least=1),
    256 * _MIB,
    "bytes",
    "all ledger files of the folder together; the oldest rotated ones, and files of workers that ended, "
    "go first; of a topic that is created all partitions together",
    "app/ledger/install.py",
    "268435456, 256 MiB",
)
LEDGER_SAMPLE_S: Final = Setting(
    "FAUST_ASSIGNER_LEDGER_SAMPLE_S",
    number("seconds above 0"),
    30.0,
    "seconds",
    "time between two samples of a partition",
    "app/ledger/install.py",
)
DEPLOY: Final = Setting[str | None](
    "FAUST_ASSIGNER_DEPLOY",
    TEXT,
    None,
    "",
    "a name for this release; the history compares releases by it",
    "app/ledger/install.py",
    "none",
)
PAGE: Final = Setting(
    "FAUST_ASSIGNER_PAGE",
    SWITCH,
    True,
    "",
    "whether the worker's web server has a page about the group at `/assignor/`",
    "page/mount.py",
    of_worker=True,
)
CACHE: Final = Setting(
    "FAUST_ASSIGNER_CACHE",
    FOLDER,
    Path("~/.cache/faust-assigner"),
    "",
    "where jars, a Kafka and Faust's own tests are kept once fetched",
    "maven.py",
    is_keyword=False,
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    RACK,
    CAPACITY,
    GROUP_RECORD_BYTES,
    FOLLOW_UP_S,
    WARMUPS,
    ACCEPTABLE_RECOVERY_LAG,
    ACCEPTABLE_FROM_NOTHING,
    MAX_WARMUPS,
    MAX_GROUP_WARMUPS,
    WARMUP_DEADLINE_S,
    URLS,
    CREDENTIALS_TO,
    STALE_READS,
    WINDOW_RETENTION_S,
    FORWARD_S,
    REPAIRS,
    COOPERATIVE,
    OVERLAY,
    OVERLAY_BYTES,
    LEAVE_S,
    RETIRE_FILE,
    SNAPSHOTS,
    BATCHED_REPLAY,
    RESTORE_SHARE,
    WEIGHTS,
    WEIGHTS_MODE,
    WEIGHTS_MAX_AGE,
    WEIGHTS_CLAMP,
    LEDGER,
    LEDGER_FILE_BYTES,
    LEDGER_BYTES,
    LEDGER_SAMPLE_S,
    DEPLOY,
    PAGE,
    CACHE,
)
