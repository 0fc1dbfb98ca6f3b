"""Stories of the pipeline's commands on small ledgers and changelogs."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from faust_assigner.pipeline.snapshots import run as run_module
from faust_assigner.pipeline.snapshots import writer
from faust_assigner.pipeline.weights import drift as drift_module
from faust_assigner.pipeline.weights import publish
from faust_assigner.snapshots import changelog
from faust_assigner.snapshots.changelog import Changelog, Extent, UnknownTopicError
from faust_assigner.weights.document import decode
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    RECOVERY,
    SAMPLE,
    Ledger,
    Line,
    bad,
    good,
    random_rows,
    stamp,
)
from tests.unit.pipeline.commands.desk import NOW, Desk, run_now

DAY = dt.timedelta(days=1)


def _decision(name: str, at: dt.datetime, members: Sequence[str], **more: Any) -> list[Line]:
    """Return a decision of group g, with an owner and a standby of each of four partitions."""
    said = {
        **DECISION,
        "decision_id": name,
        "ts": stamp(at),
        "members": [
            {"member_id": m, "rack": f"r{n % 2}", "capacity": 1.0 + n, "epoch": 1}
            for n, m in enumerate(members)
        ],
        **more,
    }
    lines = [good(said)]
    for number in range(4):
        for role, shift in (("active", 0), ("standby", 1)):
            lines.append(
                good(
                    {
                        **ASSIGNMENT,
                        "decision_id": name,
                        "partition": number,
                        "role": role,
                        "member_id": members[(number + shift) % len(members)],
                        "moved": number % 2 == 0,
                        "cold": number == 2,
                        "standby_hit": number == 0,
                    }
                )
            )
    return lines


def _recovery(name: str, at: dt.datetime, seconds: float, **more: Any) -> Line:
    ended = at + dt.timedelta(seconds=seconds)
    said = {"decision_id": name, "started": stamp(at), "ended": stamp(ended)}
    return good({**RECOVERY, **said, "records": int(seconds * 1000), "bytes": 7, **more})


def _samples(at: dt.datetime, count: int, factors: Sequence[float], **more: Any) -> list[Line]:
    lines = []
    for number in range(count):
        for partition, factor in enumerate(factors):
            said = {
                **SAMPLE,
                "ts": stamp(at + dt.timedelta(minutes=20 * number)),
                "partition": partition,
                "records_in": int(100 * factor),
                "bytes_in": int(5_000 * factor),
                "cpu_ms": 10.0 * factor,
                "state_bytes": 1000 * partition,
                "end_offset": int(1_000 + 120 * factor * number),
                "committed_offset": int(900 + 100 * factor * number),
                **more,
            }
            lines.append(good(said))
    return lines


def history(desk: Desk) -> None:
    """Runs over a growing ledger: whole, from the position, of a period, with limits, damaged."""
    ledger = Ledger(desk.folder / "ledger")
    first = [
        *_decision("d1", NOW - 2 * DAY, "abc"),
        _recovery("d1", NOW - 2 * DAY, 2.5),
        _recovery("d1", NOW - 2 * DAY, 61.0, source="snapshot", partition=3),
        *_samples(NOW - 2 * DAY, 3, (1.0, 2.0, 0.5)),
        *_decision("d2", NOW - 2 * DAY + dt.timedelta(hours=3), "ab", trigger="leave"),
        bad(b"{oops", "JSON"),
        bad({**DECISION, "generation": True}, "generation"),
    ]
    ledger.write("a.jsonl", first)
    desk.files(())
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "out")
    desk.later(minutes=5)
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "out")
    late = [
        _recovery("d3", NOW - DAY, 4.0, source="standby"),
        *_decision("d3", NOW - DAY, "abcd", config={"deploy": "v2"}, policy="q"),
        *_decision("d0", NOW + 2 * DAY, "a", group_id="h"),
        good({**ASSIGNMENT, "decision_id": "unknown", "partition": 9}),
    ]
    ledger.write("b.jsonl", late)
    desk.files(())
    desk.run(
        "history", "--no-spark", "--ledger", "ledger", "--out", "out", shows=("out/_", "out/m")
    )
    desk.run(
        "history", "--no-spark", "--ledger", "ledger", "--out", "s", "--stream", shows=("s/m",)
    )
    ledger.write("b.jsonl", [*late, *_decision("d4", NOW, "bc"), bad(b"1", "object")])
    desk.files(())
    desk.later(hours=1)
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "s", "--stream", "--json",
             shows=("s/m",))  # fmt: skip
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "s", "--stream", shows=())
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "p", "--since", "2d",
             "--until", "2026-11-24", shows=("p/r", "p/decisions", "p/movement"))  # fmt: skip
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "e", "--since",
             "2026-11-22T06:30:00Z", "--until", "2026-11-23T06:30:00Z", shows=("e/decisions",))  # fmt: skip
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "g", "--min-days", "9",
             "--max-age", "1h", "--max-refused", "50%", shows=("g/report.json",))  # fmt: skip
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "n", "--max-refused", "1")
    desk.run("history", "--no-spark", "--ledger", "nothing", "--out", "n")
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "n", "--format", "delta")
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "n", "--every", "5")
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "n", "--since", "x")
    (desk.folder / "empty").mkdir()
    desk.run("history", "--no-spark", "--ledger", "empty", "--out", "n", "--fail-if-empty")
    desk.run("history", "--no-spark", "--ledger", "empty", "--out", "out", shows=())
    (desk.folder / "p/manifest.json").write_text('{"format": 9}')
    desk.run("history", "--no-spark", "--ledger", "ledger", "--out", "p", shows=())


def groups(desk: Desk) -> None:
    """A drawn ledger of two groups: all rows of all tables, and the page."""
    ledger = Ledger(desk.folder / "ledger")
    lines = [*random_rows("g", 4, 5), *random_rows("h", 5, 3)]
    ledger.write("a.jsonl.gz", lines)
    desk.files(())
    desk.later(days=-1)
    desk.run("history", "--no-spark", "--ledger", "ledger/*.gz", "--out", "out")
    ledger.write(
        "many.jsonl",
        [
            good({**DECISION, "decision_id": f"d{number}", "ts": stamp(NOW - number * DAY)})
            for number in (-400, *range(33))
        ],
    )
    desk.files(())
    desk.run("history", "--no-spark", "--ledger", "ledger/many.jsonl", "--out", "many", shows=())


def simulations(desk: Desk) -> None:
    """Generated fleets, a replayed ledger, and single changes."""
    small = ("simulate", "--no-spark", "--jobs", "1", "--members", "3", "--partitions", "12")
    arms = ("--policies", "ours, ours+static,stock,ours", "--replicas", "0,1", "--scenarios", "2")
    desk.run(*small, *arms, "--seed", "3", "--out", "sim")
    desk.run(*small, *arms, "--seed", "3", "--out", "sim", "--json", "--racks", "3",
             "--session-timeout", "20")  # fmt: skip
    ledger = Ledger(desk.folder / "ledger")
    ledger.write("a.jsonl", [
        *_decision("d1", NOW - 3 * DAY, "abc", session_timeout_s=33.0),
        _recovery("d1", NOW - 3 * DAY, 5.0),
        *_samples(NOW - 3 * DAY, 4, (1.0, 3.0, 1.0, 1.0)),
        *_decision("d2", NOW - 2 * DAY, "ab", trigger="leave"),
        *_decision("d3", NOW - 2 * DAY + dt.timedelta(minutes=9), "abd", trigger="join"),
    ])  # fmt: skip
    desk.files(())
    replay = ("--ledger", "ledger", "--out", "replay", "--policies", "ours,ours+weights,stock",
              "--replicas", "1", "--scenarios", "2")  # fmt: skip
    desk.run("simulate", "--no-spark", "--jobs", "1", *replay)
    for change in (("--add", "2"), ("--remove", "a"), ("--lose-rack", "r1"), ("--remove", "nobody"),
                   ("--add", "1", "--json")):  # fmt: skip
        desk.run("simulate", "--no-spark", "--ledger", "ledger", *change)
    desk.run(*small, "--add", "1", "--seed", "2")
    for wrong in (("--policies", "best"), ("--replicas", "x"), ("--members", "5:3"), ("--racks", "0"),
                  ("--group", "other", "--ledger", "ledger"), ("--policies", "")):  # fmt: skip
        desk.run("simulate", "--no-spark", "--jobs", "1", "--out", "no", *wrong)
    desk.run("simulate", "--no-spark")


def weights(desk: Desk) -> None:
    """Weights to a file and a topic, their drift, their trial, and too little to learn."""
    ledger = Ledger(desk.folder / "ledger")
    ledger.write("a.jsonl", [
        *_decision("d1", NOW - DAY, "abc"),
        *_samples(NOW - DAY, 6, (1.0, 9.0, 0.1, 1.5)),
        *_samples(NOW - DAY, 2, (1.0, 2.0), group_id="h", topic="u"),
        *_samples(NOW - 9 * DAY, 2, (50.0,), topic="old-changelog"),
        bad(b"{oops", "JSON"),
    ])  # fmt: skip
    desk.files(())
    learn = ("weights", "--no-spark", "--ledger", "ledger")
    desk.run(*learn, "--out", "w.json")
    desk.run(*learn, "--out", "w.json", "--shadow", "--replicas", "0", "--decisions", "2")
    desk.run(*learn, "--out", "w2.json", "--by", "cpu", "--clamp", "0.5:2", "--half-life", "1h",
             "--json")  # fmt: skip
    ledger.write("b.jsonl", _samples(NOW - dt.timedelta(hours=1), 3, (90.0, 1.0, 1.0, 1.0)))
    desk.files(())
    desk.run(*learn, "--out", "w.json", "--max-drift", "20%")
    desk.run(*learn, "--out", "w.json", "--max-drift", "100%", "--by", "records")
    desk.run(*learn, "--out", "w3.json", "--since", "2026-11-24", "--by", "bytes")
    desk.later(days=9)
    desk.run(*learn, "--out", "w3.json")
    for wrong in ((), ("--out", "x", "--since", "1h"), ("--out", "x", "--half-life", "0s"),
                  ("--out", "x", "--clamp", "2:1"), ("--out", "x", "--max-drift", "x"),
                  ("--bootstrap", "k:1"), ("--out", "x", "--max-refused", "0")):  # fmt: skip
        desk.run(*learn, *wrong)
    _published(desk, (*learn, "--bootstrap", "k:9092", "--topic", "weights"))


def _published(desk: Desk, learn: Sequence[str]) -> None:
    """Publish to a made-up topic, twice; the second time after a group's weights have changed."""
    topic: dict[bytes, bytes] = {}

    async def send(connection: Any, name: str, records: Mapping[str, bytes], copies: Any) -> None:
        desk.note(f"sends to {name} of {connection['bootstrap_servers']}, replication {copies}")
        for group, value in records.items():
            topic[group.encode()] = value
            desk.note(f"    {group}: {decode(value)}")

    async def read(connection: Any, name: str) -> dict[bytes, bytes]:
        desk.note(f"reads {name} of {connection['bootstrap_servers']}")
        return topic

    desk.patch.setattr(publish, "_send", send)
    desk.patch.setattr(publish, "_read", read)
    desk.patch.setattr(publish, "run_request", run_now)
    desk.run(*learn)
    desk.run(*learn, "--by", "cpu", "--max-drift", "1%")
    assert drift_module.MAX_DRIFT


class Topic:
    """A changelog in a made-up cluster: partition -> its (offset, key, value) records."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.records: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {
            0: [],
            1: [],
            2: [],
        }
        self.starts = dict.fromkeys(self.records, 0)
        self.ends = dict.fromkeys(self.records, 0)
        self.topic_id = "id-1"
        self.gone = False
        desk.patch.setattr(run_module, "look_at", self.look)
        desk.patch.setattr(changelog, "look_at", self.look)
        desk.patch.setattr(writer, "read", self.read)
        desk.patch.setattr(writer, "run_request", run_now)

    def write(self, partition: int, **rows: str | None) -> None:
        """Append records with JSON keys and values."""
        for key, value in rows.items():
            said = None if value is None else value.encode()
            self.records[partition].append((self.ends[partition], b'"%s"' % key.encode(), said))
            self.ends[partition] += 1

    def look(self, connection: Any, topic: str) -> Changelog:
        """Return the topic's state."""
        if self.gone or topic != "shop-totals-changelog":
            raise UnknownTopicError(f"the cluster has no topic {topic}")
        extents = {n: Extent(self.starts[n], self.ends[n]) for n in self.records}
        return Changelog(topic, extents, 3_600_000, self.topic_id)

    async def read(self, connection: Any, spans: Mapping[Any, Extent], sink: Any) -> None:
        """Feed the records of spans, two at a time."""
        for tp, span in spans.items():
            leases = [path.name for path in self._desk.folder.glob("snap/*/*") if path.is_file()]
            self._desk.note(f"holds {leases}")
            self._desk.note(f"reads {tp.topic}-{tp.partition} from {span.start} to {span.end}")
            rows = [
                SimpleNamespace(offset=o, key=k, value=v)
                for o, k, v in self.records[tp.partition]
                if span.start <= o < span.end
            ]
            for first in range(0, len(rows), 2):
                some = rows[first : first + 2]
                sink(tp, some, some[-1].offset + 1)


def snapshots(desk: Desk) -> None:
    """Whole snapshots, layers upon them, a recreated topic, verify and gc."""
    topic = Topic(desk)
    take = ("snapshot", "--bootstrap", "k:9092", "--topic", "shop-totals-changelog", "--to", "snap",
            "--no-spark")  # fmt: skip
    check = ("snapshot", "verify", "snap")
    topic.write(0, a="1", b="2", c="[3]")
    topic.write(0, b=None, a="4")
    topic.write(1, x='"text"', bad="{oops")
    desk.run(*take)
    desk.run(*check)
    desk.later(minutes=30)
    topic.write(0, d="5", a="6")
    noise = random.Random(1)
    topic.write(1, **{f"k{number:02}": f'"{noise.randbytes(90).hex()}"' for number in range(40)})
    topic.write(2, z="7")
    desk.run(*take, "--previous", "--max-layers", "1")
    desk.later(minutes=30)
    topic.write(0, c=None)
    topic.write(1, k07=None, k08="8")
    desk.run(*take, "--previous", "--max-layers", "1", "--json")
    topic.write(1, k09=None)
    desk.run(*take, "--previous", "--max-layers", "2")
    topic.write(1, x=None, k09='"again"')
    desk.run(*take, "--previous", "--max-layers", "1")
    desk.later(minutes=30)
    desk.run(*take, "--previous", "--key-codec", "raw")
    desk.run(*check, "--bootstrap", "k:9092")
    desk.later(minutes=61)
    desk.run("snapshot", "gc", "snap", "--keep", "2", "--dry-run")
    desk.run("snapshot", "gc", "snap", "--keep", "2")
    desk.run(*check, "--json")
    desk.later(minutes=1)
    topic.starts[0] = 8
    desk.run(*check, "--bootstrap", "k:9092")
    desk.run(*take, "--previous", shows=())
    topic.topic_id, topic.starts[0] = "id-2", 0
    desk.run(*check, "--bootstrap", "k:9092")
    desk.run(*take, "--previous", shows=())
    topic.gone = True
    desk.run(*check, "--bootstrap", "k:9092")
    desk.run(*take)
    file = next((desk.folder / "snap").rglob("*.sst"))
    file.write_bytes(file.read_bytes()[:-1])
    desk.files(())
    desk.run(*check)
    (desk.folder / "snap/shop-totals-changelog/left.tmp").write_text("x")
    desk.files(())
    desk.later(hours=2)
    desk.run("snapshot", "gc", "snap", "--keep", "1", "--max-age", "30m", "--json")
    for wrong in (("snapshot",), ("snapshot", "verify", "none"), ("snapshot", "gc"),
                  ("snapshot", "gc", "snap", "--max-age", "x"), ("snapshot", "gc", "snap", "--keep", "0"),
                  ("snapshot", "verify", "snap", "--topic", "other")):  # fmt: skip
        desk.run(*wrong)


STORIES: dict[str, Callable[[Desk], None]] = {
    "history": history,
    "groups": groups,
    "simulations": simulations,
    "weights": weights,
    "snapshots": snapshots,
}
