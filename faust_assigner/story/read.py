"""Ledger lines of several workers -> the distinct decisions and recoveries of a group, by time. No I/O."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.errors import FaustAssignerError
from faust_assigner.ledger import Row, parse
from faust_assigner.wire.plan_input import PlanInput, decode_plan_input, of_runs

#: (topic, partition).
Place = tuple[str, int]


class NothingKnown(FaustAssignerError):
    """The ledgers lack the requested data; the message names the available data."""


@dataclass(frozen=True, kw_only=True)
class Active:
    """A decision's owner of a partition, and the rule (None if the writer named no rule)."""

    member_id: str
    moved: bool
    cold: bool
    standby_hit: bool
    rule: str | None
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One round. ``at`` is in seconds since 1970, ``names`` are by member id.

    ``leaving`` members announced their stop and gave up their partitions; ``follows``: a second round was to
    follow; ``completes`` is the trigger of the round completed by this round. ``asked`` is the plan's input.
    """

    decision_id: str
    at: float
    generation: int
    trigger: str
    config: Mapping[str, str]
    solve_ms: float
    session_timeout_s: float | None
    names: Mapping[str, str]
    static: frozenset[str]
    leaving: frozenset[str]
    follows: bool
    completes: str
    asked: PlanInput | None
    digest: str
    actives: Mapping[Place, Active] = field(default_factory=dict)
    standbys: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)
    #: The previous round, as its leader reported it; None if this leader led it, or if unknown.
    before: Decision | None = None

    @property
    def all_names(self) -> Mapping[str, str]:
        """``names``, and the names of the previous round."""
        return self.names if self.before is None else {**self.before.names, **self.names}


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The restore of a partition's state on a member."""

    decision_id: str
    place: Place
    member_id: str
    source: str
    started: float
    ended: float
    records: int


@dataclass(frozen=True, kw_only=True)
class Story:
    """All decisions of a group by time, and all recoveries."""

    group: str
    decisions: tuple[Decision, ...]
    recoveries: tuple[Recovery, ...]

    def name(self, member_id: str) -> str:
        """Return the member's name from the newest decision that names the member."""
        for decision in reversed(self.decisions):
            if member_id in decision.all_names:
                return decision.all_names[member_id]
        return member_id


def read(lines: Iterable[bytes], group: str | None = None) -> Story:
    """Read the history of ``group``, or of the only group; invalid lines are left out.

    Raises :class:`NothingKnown` without a decision, or if there are several groups and none is named.
    """
    decided: dict[str, dict[str, dict[str, Any]]] = {}
    placed: dict[tuple[str, str], dict[str, Any]] = {}
    recovered: dict[str, set[Recovery]] = {}
    for line in lines:
        row = parse(line)
        if not isinstance(row, Row):
            continue
        values = row.values
        here = values["group_id"]
        if group is not None and here != group:
            continue
        if row.table == "decision":
            decided.setdefault(here, {}).setdefault(
                values["decision_id"], {**json.loads(line), "ts": values["ts"]}
            )
        elif row.table == "assignment":
            both = placed.setdefault((here, values["decision_id"]), {"active": {}, "standby": {}})
            _place(both, json.loads(line))
        elif row.table == "recovery":
            recovered.setdefault(here, set()).add(_recovery(values))
    if len(decided) > 1:
        raise NothingKnown(
            f"ledgers of several groups, choose one with --group: {', '.join(sorted(decided))}"
        )
    if not decided:
        raise NothingKnown(
            "no decision in the ledger"
            + (f" of the group {group}" if group else "")
            + ": only leaders "
            "write decisions, so name the ledgers of all workers"
        )
    ((name, rows),) = decided.items()
    shared = _shared_hosts(rows.values())
    decisions = [
        _decision(row, placed.get((name, row["decision_id"]), {}), shared) for row in rows.values()
    ]
    return Story(
        group=name,
        decisions=tuple(sorted(decisions, key=lambda one: (one.at, one.generation))),
        recoveries=tuple(sorted(recovered.get(name, ()), key=lambda one: (one.started, one.place))),
    )


def _place(both: dict[str, Any], row: Mapping[str, Any]) -> None:
    place = row["topic"], row["partition"]
    if row["role"] == "active":
        both["active"][place] = Active(
            member_id=row["member_id"],
            moved=row["moved"],
            cold=row["cold"],
            standby_hit=row["standby_hit"],
            rule=row.get("rule") if isinstance(row.get("rule"), str) else None,
            rejected=tuple(_texts(row.get("rejected"))),
        )
    else:
        held = both["standby"].get(place, ())
        if row["member_id"] not in held:
            both["standby"][place] = (*held, row["member_id"])


def _texts(value: object) -> list[str]:
    """Return an optional list of texts; empty if the value is no list."""
    return [str(one) for one in value] if isinstance(value, list) else []


def _recovery(values: Mapping[str, Any]) -> Recovery:
    return Recovery(
        decision_id=values["decision_id"],
        place=(values["topic"], values["partition"]),
        member_id=values["member_id"],
        source=values["source"],
        started=values["started"].timestamp(),
        ended=values["ended"].timestamp(),
        records=values["records"],
    )


def _decision(
    row: Mapping[str, Any], placed: Mapping[str, Any], shared: Collection[str]
) -> Decision:
    cause = row.get("cause")
    cause = cause if isinstance(cause, dict) else {}
    names = _names(row, shared)
    return Decision(
        decision_id=row["decision_id"],
        at=row["ts"].timestamp(),
        generation=row["generation"],
        trigger=row["trigger"],
        config=row["config"],
        solve_ms=row["solve_ms"],
        session_timeout_s=row.get("session_timeout_s"),
        names=names,
        static=frozenset(one["member_id"] for one in row["members"] if one.get("instance_id")),
        leaving=frozenset(_texts(cause.get("leaving"))),
        follows=bool(cause.get("follows")),
        completes=str(cause.get("completes") or ""),
        asked=decode_plan_input(row.get("asked")),
        digest=str(row.get("inputs_digest") or ""),
        actives=placed.get("active", {}),
        standbys=placed.get("standby", {}),
        before=_before(row, names, shared),
    )


def _before(
    row: Mapping[str, Any], names: Mapping[str, str], shared: Collection[str]
) -> Decision | None:
    """Return the previous round, of which the leader knew owners only; a departed member's id is its name.

    Values of a service's writer, or of a later version, are skipped.
    """
    told = row.get("before")
    if not isinstance(told, dict):
        return None
    now = {origin: member_id for member_id, origin in _urls(row).items()}
    try:
        instances = told["instances"] or [""] * len(told["urls"])
        by_instance = {name: member_id for member_id, name in names.items()}
        known = [
            str(i) or _named(u, shared) for u, i in zip(_urls_before(row), instances, strict=True)
        ]
        ids = [
            (by_instance.get(name) if instance else now.get(url)) or name
            for url, name, instance in zip(_urls_before(row), known, instances, strict=True)
        ]
        actives = {
            (str(topic), number): Active(
                member_id=ids[rank], moved=False, cold=False, standby_hit=False, rule=None
            )
            for group in told["owners"]
            for rank, runs in enumerate(group["partitions"])
            for number in of_runs(runs)
            for topic in group["topics"]
        }
        generation = int(told["generation"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    return Decision(
        decision_id=f"before {row['decision_id']}",
        at=0.0,
        generation=generation,
        trigger="",
        config={},
        solve_ms=0.0,
        session_timeout_s=row.get("session_timeout_s"),
        names=dict(zip(ids, known, strict=True)),
        static=frozenset(m for m, instance in zip(ids, instances, strict=True) if instance),
        leaving=frozenset(),
        follows=False,
        completes="",
        asked=None,
        digest="",
        actives=actives,
    )


def _urls(row: Mapping[str, Any]) -> dict[str, str]:
    """Return member id -> host:port, for members with a URL in the decision."""
    cause = row.get("cause")
    urls = cause.get("urls") if isinstance(cause, dict) else None
    return {str(m): _origin(str(url)) for m, url in urls.items()} if isinstance(urls, dict) else {}


def _urls_before(row: Mapping[str, Any]) -> list[str]:
    """Return the URLs of the previous round, if the decision names them."""
    told = row.get("before")
    urls = told.get("urls") if isinstance(told, dict) else None
    return [_origin(str(url)) for url in urls] if isinstance(urls, list) else []


def _shared_hosts(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return hosts with several workers in any decision, so that names are stable over all decisions."""
    origins = {origin for row in rows for origin in (*_urls(row).values(), *_urls_before(row))}
    counted = Counter(origin.rpartition(":")[0] for origin in origins)
    return frozenset(host for host, count in counted.items() if count > 1)


def _names(row: Mapping[str, Any], shared: Collection[str]) -> dict[str, str]:
    """Return member id -> instance id, else the host of its URL, with the port on shared hosts."""
    found = {one["member_id"]: one["member_id"] for one in row["members"]}
    for member_id, origin in _urls(row).items():
        found[member_id] = _named(origin, shared) or member_id
    return found | {
        o["member_id"]: o["instance_id"] for o in row["members"] if o.get("instance_id")
    }


def _named(origin: str, shared: Collection[str]) -> str:
    host = origin.rpartition(":")[0]
    return origin if host in shared else host


def _origin(url: str) -> str:
    """host:port.

    >>> _origin("http://shop-1:6066/"), _origin("http://shop-1")
    ('shop-1:6066', 'shop-1:')
    """
    where = url.partition("://")[2].partition("/")[0]
    return where if ":" in where else f"{where}:" * bool(where)
