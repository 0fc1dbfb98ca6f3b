"""Decode the decisions and recoveries of a group from the rows of ledgers. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.wire.plan_input import PlanInput, decode_plan_input, of_runs

#: (topic, partition).
Place = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Active:
    """A decision's owner of a partition, and the planner's rule (None if the ledger has no rule).

    ``rejected`` are the members that the rule passed over.
    """

    member_id: str
    moved: bool
    cold: bool
    standby_hit: bool
    rule: str | None
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The leader's decision in one rebalance (round).

    ``at``: seconds since 1970, 0 if unknown. ``names``: member id -> name. ``leaving``: members that
    announced their stop and gave up their partitions. ``follows``: whether the leader announced a second
    round. ``completes``: the trigger of the earlier round that this round completes. ``asked``: the
    planner's input.
    """

    decision_id: str
    generation: int
    session_timeout_s: float | None
    names: Mapping[str, str]
    static: frozenset[str]
    at: float = 0.0
    trigger: str = ""
    leaving: frozenset[str] = frozenset()
    follows: bool = False
    completes: str = ""
    asked: PlanInput | None = None
    actives: Mapping[Place, Active] = field(default_factory=dict)
    standbys: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)
    #: The previous round, from this decision's row; None if this leader led the previous round too, or
    #: if unknown.
    before: Decision | None = None

    @property
    def all_names(self) -> Mapping[str, str]:
        """The names in this round and, for other members, in the previous round."""
        return self.names if self.before is None else {**self.before.names, **self.names}


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The restore of a partition's state on a member; times are seconds since 1970."""

    decision_id: str
    place: Place
    member_id: str
    source: str
    started: float
    ended: float
    records: int


@dataclass
class Placed:
    """The owner and the standbys of each partition in one decision."""

    actives: dict[Place, Active] = field(default_factory=dict)
    standbys: dict[Place, tuple[str, ...]] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row of the table ``assignment``; a repeated standby counts once."""
        place = row["topic"], row["partition"]
        if row["role"] == "active":
            self.actives[place] = Active(
                member_id=row["member_id"],
                moved=row["moved"],
                cold=row["cold"],
                standby_hit=row["standby_hit"],
                rule=row.get("rule") if isinstance(row.get("rule"), str) else None,
                rejected=tuple(_text_list(row.get("rejected"))),
            )
        else:
            held = self.standbys.get(place, ())
            if row["member_id"] not in held:
                self.standbys[place] = (*held, row["member_id"])


def decision_of(row: Mapping[str, Any], placed: Placed, shared: Collection[str]) -> Decision:
    """Decode a row of the table ``decision``; ``shared`` are the hosts that run several workers."""
    cause = row.get("cause")
    cause = cause if isinstance(cause, dict) else {}
    names = names_of(row, shared)
    return Decision(
        decision_id=row["decision_id"],
        at=row["ts"].timestamp(),
        generation=row["generation"],
        trigger=row["trigger"],
        session_timeout_s=row.get("session_timeout_s"),
        names=names,
        static=frozenset(one["member_id"] for one in row["members"] if one.get("instance_id")),
        leaving=frozenset(_text_list(cause.get("leaving"))),
        follows=bool(cause.get("follows")),
        completes=str(cause.get("completes") or ""),
        asked=decode_plan_input(row.get("asked")),
        actives=placed.actives,
        standbys=placed.standbys,
        before=_previous_round(row, names, shared),
    )


def _previous_round(
    row: Mapping[str, Any], names: Mapping[str, str], shared: Collection[str]
) -> Decision | None:
    """Return the previous round, of which the row has only the owners; None if the row cannot be decoded.

    The row has no id of a member that has departed since; the member's name then serves as its id. A row of
    the assigner service, or of a later version, may have values that cannot be decoded.
    """
    told = row.get("before")
    if not isinstance(told, dict):
        return None
    now = {origin: member_id for member_id, origin in _member_origins(row).items()}
    by_instance = {name: member_id for member_id, name in names.items()}
    try:
        urls, instances = _previous_urls(row), told["instances"] or [""] * len(told["urls"])
        known = [str(i) or _member_name(u, shared) for u, i in zip(urls, instances, strict=True)]
        ids = [
            (by_instance.get(name) if instance else now.get(url)) or name
            for url, name, instance in zip(urls, known, instances, strict=True)
        ]
        return Decision(
            decision_id=f"before {row['decision_id']}",
            generation=int(told["generation"]),
            session_timeout_s=row.get("session_timeout_s"),
            names=dict(zip(ids, known, strict=True)),
            static=frozenset(m for m, instance in zip(ids, instances, strict=True) if instance),
            actives=_actives_before(told, ids),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def _actives_before(told: Mapping[str, Any], ids: Sequence[str]) -> dict[Place, Active]:
    return {
        (str(topic), number): Active(
            member_id=ids[rank], moved=False, cold=False, standby_hit=False, rule=None
        )
        for group in told["owners"]
        for rank, runs in enumerate(group["partitions"])
        for number in of_runs(runs)
        for topic in group["topics"]
    }


def recovery_of(values: Mapping[str, Any]) -> Recovery:
    """Decode the checked values of a row of the table ``recovery``."""
    return Recovery(
        decision_id=values["decision_id"],
        place=(values["topic"], values["partition"]),
        member_id=values["member_id"],
        source=values["source"],
        started=values["started"].timestamp(),
        ended=values["ended"].timestamp(),
        records=values["records"],
    )


def _text_list(value: object) -> list[str]:
    """Return a list's values as texts; empty if ``value`` is not a list."""
    return [str(one) for one in value] if isinstance(value, list) else []


def _member_origins(row: Mapping[str, Any]) -> dict[str, str]:
    """Return member id -> host:port, for members with a URL in the decision."""
    cause = row.get("cause")
    urls = cause.get("urls") if isinstance(cause, dict) else None
    return (
        {str(m): _url_origin(str(url)) for m, url in urls.items()} if isinstance(urls, dict) else {}
    )


def _previous_urls(row: Mapping[str, Any]) -> list[str]:
    """Return the URLs of the previous round, if the decision names them."""
    told = row.get("before")
    urls = told.get("urls") if isinstance(told, dict) else None
    return [_url_origin(str(url)) for url in urls] if isinstance(urls, list) else []


def shared_hosts(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the hosts with several workers in any of ``rows``, so that a member's name never changes."""
    origins = {
        origin for row in rows for origin in (*_member_origins(row).values(), *_previous_urls(row))
    }
    counted = Counter(origin.rpartition(":")[0] for origin in origins)
    return frozenset(host for host, count in counted.items() if count > 1)


def names_of(row: Mapping[str, Any], shared: Collection[str]) -> dict[str, str]:
    """Return member id -> name: instance id, else the URL's host (with port on shared hosts), else the id."""
    found = {one["member_id"]: one["member_id"] for one in row["members"]}
    for member_id, origin in _member_origins(row).items():
        found[member_id] = _member_name(origin, shared) or member_id
    return found | {
        o["member_id"]: o["instance_id"] for o in row["members"] if o.get("instance_id")
    }


def _member_name(origin: str, shared: Collection[str]) -> str:
    host = origin.rpartition(":")[0]
    return origin if host in shared else host


def _url_origin(url: str) -> str:
    """Return host:port of a URL.

    >>> _url_origin("http://shop-1:6066/"), _url_origin("http://shop-1")
    ('shop-1:6066', 'shop-1:')
    """
    where = url.partition("://")[2].partition("/")[0]
    return where if ":" in where else f"{where}:" * bool(where)
