"""Ledgers for the pipeline's tests, and a plain Python model of them without the pipeline's code.

The writer of a line passes the line's meaning to the model, so the model never parses a line.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
SOURCES = ("local", "standby", "snapshot", "replay")


def stamp(moment: datetime) -> str:
    """Return a time in the ledger's format."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


@dataclass
class Line:
    """A line of a ledger: its bytes and its row (None: blank or refused)."""

    data: bytes
    row: dict[str, Any] | None = None
    #: A word of the refusal's reason; None for a line that is accepted.
    refused: str | None = None


def good(row: dict[str, Any], **unknown: Any) -> Line:
    """A line that its table accepts; the ``unknown`` columns in it are ignored."""
    written = {
        key: stamp(value) if isinstance(value, datetime) else value for key, value in row.items()
    }
    return Line(json.dumps({**written, **unknown}).encode(), row)


def bad(data: bytes | dict[str, Any], why: str) -> Line:
    """A line that must be refused, with a reason that mentions ``why``."""
    return Line(data if isinstance(data, bytes) else json.dumps(data).encode(), None, why)


DECISION = {
    "table": "decision",
    "group_id": "g",
    "decision_id": "odd",
    "ts": stamp(START),
    "generation": 1,
    "trigger": "join",
    "policy": "p",
    "config": {"a": "b"},
    "members": [{"member_id": "m", "rack": None, "capacity": 1.0, "epoch": 1}],
    "solve_ms": 1.0,
}
ASSIGNMENT = {
    "table": "assignment",
    "group_id": "g",
    "decision_id": "odd",
    "topic": "t",
    "partition": 0,
    "role": "active",
    "member_id": "m",
    "prev_member_id": None,
    "moved": True,
    "standby_hit": False,
    "cold": True,
}
RECOVERY = {
    "table": "recovery",
    "group_id": "g",
    "decision_id": "odd",
    "topic": "t",
    "partition": 0,
    "member_id": "m",
    "source": "replay",
    "started": stamp(START),
    "ended": stamp(START),
    "start_offset": 0,
    "end_offset": 1,
    "records": 1,
    "bytes": 1,
}
SAMPLE = {
    "table": "partition_sample",
    "group_id": "g",
    "ts": stamp(START),
    "topic": "t",
    "partition": 0,
    "end_offset": 1,
    "committed_offset": 1,
    "bytes_in": 1,
    "records_in": 1,
    "cpu_ms": 0.5,
    "state_bytes": 1,
}


def without(row: dict[str, Any], column: str) -> dict[str, Any]:
    """Return ``row`` without a column."""
    return {key: value for key, value in row.items() if key != column}


def bad_lines() -> list[Line]:
    """Lines for all known reasons of a refusal."""
    members = [{"member_id": "m", "capacity": True, "epoch": 1}]
    return [
        bad(b"{oops", "JSON"),
        bad(b"[1, 2]", "object"),
        bad(b"17", "object"),
        bad(b"null", "object"),
        bad(b'"text"', "object"),
        bad(b"\xff\xfe{}", "UTF-8"),
        bad(b'{"table": NaN}', "JSON"),
        bad(b"[" * 50_000, "JSON"),
        bad(b'{"table": 1' + b"0" * 5000 + b"}", "JSON"),
        bad({}, "table"),
        bad({"table": "weights"}, "weights"),
        bad({"table": ["decision"]}, "table"),
        bad({**DECISION, "group_id": 5}, "group_id"),
        bad(without(DECISION, "policy"), "policy"),
        bad({**DECISION, "policy": None}, "policy"),
        bad({**DECISION, "generation": True}, "generation"),
        bad({**DECISION, "generation": 1.0}, "generation"),
        bad({**DECISION, "generation": 1 << 31}, "generation"),
        bad({**DECISION, "ts": "2026-11-21T03:40:22Z"}, "ts"),
        bad({**DECISION, "ts": 1795232422}, "ts"),
        bad({**DECISION, "ts": "2026-11-21T03:40:22.123+00:00"}, "ts"),
        bad({**DECISION, "ts": "2026-02-30T03:40:22.123Z"}, "ts"),
        bad({**DECISION, "config": []}, "config"),
        bad({**DECISION, "config": {"replicas": 1}}, "config"),
        bad({**DECISION, "members": {}}, "members"),
        bad({**DECISION, "members": members}, "capacity"),
        bad({**DECISION, "members": ["m"]}, "members"),
        bad({**DECISION, "members": [{"capacity": 1.0, "epoch": 1}]}, "member_id"),
        bad({**DECISION, "solve_ms": "1"}, "solve_ms"),
        bad({**DECISION, "solve_ms": True}, "solve_ms"),
        bad({**DECISION, "trigger": "\ud800"}, "trigger"),
        bad(without(ASSIGNMENT, "moved"), "moved"),
        bad({**ASSIGNMENT, "moved": 1}, "moved"),
        bad({**ASSIGNMENT, "cold": "false"}, "cold"),
        bad({**ASSIGNMENT, "role": "leader"}, "role"),
        bad({**ASSIGNMENT, "partition": "0"}, "partition"),
        bad({**ASSIGNMENT, "partition": False}, "partition"),
        bad({**ASSIGNMENT, "prev_member_id": 4}, "prev_member_id"),
        bad(without(RECOVERY, "bytes"), "bytes"),
        bad({**RECOVERY, "source": "disk"}, "source"),
        bad({**RECOVERY, "records": 1.5}, "records"),
        bad({**RECOVERY, "records": 1 << 63}, "records"),
        bad({**RECOVERY, "started": None}, "started"),
        bad({**RECOVERY, "ended": stamp(START - timedelta(milliseconds=1))}, "before"),
        bad({**RECOVERY, "records": -1}, "below zero"),
        bad({**DECISION, "solve_ms": -0.5}, "below zero"),
        bad({**SAMPLE, "cpu_ms": "fast"}, "cpu_ms"),
        bad({**SAMPLE, "bytes_in": True}, "bytes_in"),
        bad(without(SAMPLE, "state_bytes"), "state_bytes"),
        bad(b'{"table": "partition_sample", "cpu_ms": 1e400}', "group_id"),
        bad(json.dumps(SAMPLE).encode().replace(b"0.5", b"1e400"), "cpu_ms"),
    ]


def random_rows(group: str, seed: int, decisions: int = 12) -> list[Line]:
    """Lines of a group over about three days: decisions with placements, recoveries, samples."""
    rng = random.Random(seed)
    lines: list[Line] = []
    at = START
    for number in range(decisions):
        at += timedelta(hours=rng.uniform(0.1, 12), milliseconds=rng.randrange(1000))
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
        members = [f"m{i}" for i in range(rng.randint(0 if number == 3 else 1, 5))]
        name = f"{group}-{number}"
        policy = rng.choice(["sticky", "stock"])
        lines.append(
            good(
                {
                    "table": "decision",
                    "group_id": group,
                    "decision_id": name,
                    "ts": at,
                    "generation": number,
                    "trigger": rng.choice(["join", "leave"]),
                    "policy": policy,
                    "config": {"deploy": f"v{number // 4}"},
                    "members": [
                        {"member_id": m, "capacity": rng.choice([1, 1.5]), "epoch": number}
                        for m in members
                    ],
                    "solve_ms": rng.choice([1, 0.25]),
                },
                note={"any": ["thing"]},
                dt="1999-01-01",
            )
        )
        lines += _placements(rng, group, name, members)
        lines += _recoveries(rng, group, name, at)
        lines += _samples(rng, group, at)
    return lines


def _placements(rng: random.Random, group: str, decision: str, members: list[str]) -> list[Line]:
    lines = []
    for topic, count in (("orders", 7), ("orders-log", 7), ("audit", 3)):
        for partition in range(count if members else 0):
            role = rng.choice(["active"] * 4 + ["standby", "warmup"])
            row = {
                "table": "assignment",
                "group_id": group,
                "decision_id": decision,
                "topic": topic,
                "partition": partition,
                "role": role,
                "member_id": rng.choice([*members, "stranger"]),
                "prev_member_id": rng.choice([None, *members]),
                "moved": rng.random() < 0.4,
                "standby_hit": rng.random() < 0.3,
                "cold": rng.random() < 0.5,
            }
            lines.append(
                good(row if row["prev_member_id"] else without(row, "prev_member_id"), rule="kept")
            )
    return lines


def _recoveries(rng: random.Random, group: str, decision: str, at: datetime) -> list[Line]:
    lines = []
    for _ in range(rng.randrange(5)):
        started = at + timedelta(milliseconds=rng.randrange(90_000_000))
        lines.append(
            good(
                {
                    "table": "recovery",
                    "group_id": group,
                    "decision_id": decision,
                    "topic": "orders-log",
                    "partition": rng.randrange(7),
                    "member_id": "m0",
                    "source": rng.choice(SOURCES),
                    "started": started,
                    "ended": started + timedelta(milliseconds=rng.randrange(20_000)),
                    "start_offset": -1,
                    "end_offset": 100,
                    "records": rng.randrange(10_000),
                    "bytes": 5,
                }
            )
        )
    return lines


def _samples(rng: random.Random, group: str, at: datetime) -> list[Line]:
    quiet = rng.random() < 0.2
    return [
        good(
            {
                "table": "partition_sample",
                "group_id": group,
                "ts": at + timedelta(seconds=partition),
                "topic": topic,
                "partition": partition,
                "end_offset": 10,
                "committed_offset": -1,
                "bytes_in": rng.randrange(1000),
                "records_in": 0 if quiet else rng.randrange(100),
                "cpu_ms": rng.choice([0, 1.25]),
                "state_bytes": 0,
            }
        )
        for topic in ("orders", "audit")
        for partition in range(3)
    ]


@dataclass
class Ledger:
    """Files of lines on disk, and the model's expectation for all of them together."""

    folder: Path
    lines: list[Line] = field(default_factory=list)
    refused: set[tuple[str, int]] = field(default_factory=set)
    why: dict[tuple[str, int], str] = field(default_factory=dict)

    def write(
        self, name: str, lines: Iterable[Line], *, end: bytes = b"\n", newline: bytes = b"\n"
    ) -> Path:
        """Write a file of ``lines``; ``end`` follows the last line."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = list(lines)
        data = newline.join(line.data for line in kept) + end
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        for number, line in enumerate(kept, 1):
            if line.refused is not None:
                self.refused.add((str(path), number))
                self.why[str(path), number] = line.refused
        self.lines += kept
        return path


def expected(lines: Iterable[Line]) -> dict[str, list[dict[str, Any]]]:
    """Return the model: the history tables of ``lines`` without quarantine, rows in key order."""
    rows = [line.row for line in lines if line.row is not None]
    decisions = _decisions(rows)
    actives = _actives(rows)
    return {
        "movement": _movement(decisions, actives),
        "balance": _balance(decisions, actives, rows),
        "recovery": _recovery(rows),
        "skew": _skew(rows),
    }


def day(moment: datetime) -> str:
    """Return the UTC day of a time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


def _decisions(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row["table"] == "decision":
            key = (row["group_id"], row["decision_id"])
            if key not in found or row["ts"] < found[key]["ts"]:
                found[key] = row
    return found


def _actives(
    rows: list[dict[str, Any]],
) -> dict[tuple[str, str], dict[tuple[str, int], dict[str, Any]]]:
    found: dict[tuple[str, str], dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        if row["table"] == "assignment" and row["role"] == "active":
            found[row["group_id"], row["decision_id"]][row["topic"], row["partition"]] = row
    return found


def _movement(decisions: Any, actives: Any) -> list[dict[str, Any]]:
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for key, decision in decisions.items():
        placed = actives.get(key, {}).values()
        cold = sum(row["moved"] and row["cold"] for row in placed)
        hits = sum(row["standby_hit"] for row in placed)
        for i, number in enumerate(
            (1, len(placed), sum(row["moved"] for row in placed), cold, hits)
        ):
            sums[key[0], day(decision["ts"]), decision["policy"]][i] += number
    names = ("decisions", "assigned", "moved", "cold_moves", "standby_hits")
    return [
        {"group_id": g, "dt": dt, "policy": p, **dict(zip(names, numbers, strict=True))}
        for (g, dt, p), numbers in sorted(sums.items())
    ]


def _balance(decisions: Any, actives: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    spreads: dict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
    waits: dict[tuple[str, str, str], int] = defaultdict(int)
    warming = {(row["group_id"], row["decision_id"]) for row in rows if row.get("role") == "warmup"}
    for key, decision in decisions.items():
        place = (key[0], day(decision["ts"]), decision["policy"])
        waits[place] += key in warming
        spreads[place] += []
        if key in warming:
            continue
        loads = {m["member_id"]: 0 for m in decision["members"]}
        for row in actives.get(key, {}).values():
            if row["member_id"] in loads:
                loads[row["member_id"]] += 1
        spread = max(loads.values(), default=0) - min(loads.values(), default=0)
        idle = sum(load == 0 for load in loads.values())
        spreads[place].append((spread, idle))
    return [
        {
            "group_id": g,
            "dt": dt,
            "policy": p,
            "max_spread": float(max(s for s, _ in found)) if found else None,
            "mean_spread": sum(s for s, _ in found) / len(found) if found else None,
            "idle_members": sum(i for _, i in found),
            "warmup_rounds": waits[g, dt, p],
        }
        for (g, dt, p), found in sorted(spreads.items())
    ]


def _distinct(rows: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    found = {tuple(sorted(row.items())): row for row in rows if row["table"] == table}
    return list(found.values())


def _recovery(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    for row in _distinct(rows, "recovery"):
        seconds = (row["ended"] - row["started"]).total_seconds()
        found[row["group_id"], day(row["started"]), row["source"]].append((seconds, row["records"]))
    return [
        {
            "group_id": g,
            "dt": dt,
            "source": s,
            "recoveries": len(times),
            "records": sum(n for _, n in times),
            "p50_s": percentile([t for t, _ in times], 0.5),
            "p90_s": percentile([t for t, _ in times], 0.9),
            "max_s": max(t for t, _ in times),
        }
        for (g, dt, s), times in sorted(found.items())
    ]


def percentile(values: list[float], q: float) -> float:
    """Return the exact percentile, linear between the two nearest ranks."""
    ordered = sorted(values)
    rank = q * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def _skew(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    totals: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in _distinct(rows, "partition_sample"):
        key = (row["group_id"], day(row["ts"]), row["topic"])
        sums[*key, row["partition"]][0] += row["records_in"]
        sums[*key, row["partition"]][1] += row["bytes_in"]
        totals[key] += row["records_in"]
    return [
        {
            "group_id": g,
            "dt": dt,
            "topic": t,
            "partition": p,
            "records_in": records,
            "bytes_in": size,
            "share": records / totals[g, dt, t] if totals[g, dt, t] else 0.0,
        }
        for (g, dt, t, p), (records, size) in sorted(sums.items())
    ]
