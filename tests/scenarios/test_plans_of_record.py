"""The plans of seeded lives of groups, as last reviewed: ``plans.txt``.

The property tests judge a plan by its terms. This record also shows a change of a tie-break, a
figure or an explanation without a broken property. For an intended change, rewrite the record with
``python -m tests.scenarios.test_plans_of_record`` and review the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.model import NOBODY
from faust_assigner.warmup import WarmupPolicy

RECORD = Path(__file__).with_name("plans.txt")
LOGS = ("orders-log", "rates-log", "users-log")
TOPICS: Mapping[str, int] = {
    "clicks": 7, "lead": 1, "orders": 9, "orders-log": 9, "rates-log": 9, "users": 5,
    "users-log": 5,
}  # fmt: skip
RULES = "kpPmMofrw"


@dataclass
class Life:
    """A group between two rounds; all random choices come from ``rng``."""

    rng: Random
    size: int = 1
    replicas: int = 1
    racks: int = 0
    warmups: bool = False
    weights: bool = False
    is_mixed: bool = False
    is_uneven: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    last: Plan | None = None
    generation: int = 0
    born: int = 0

    def pick(self, most: int) -> int:
        """Return a number below ``most``."""
        return int(self.rng.random() * most)

    def join(self) -> None:
        """Add a member; in a mixed group every third member subscribes to fewer topics."""
        n, self.born = self.born, self.born + 1
        topics = [t for t in TOPICS if not self.is_mixed or n % 3 or t[0] != "our"[n // 3 % 3]]
        self.members[f"m{n:02}"] = Member(
            f"m{n:02}",
            topics,
            rack_id=f"r{n % self.racks}" if self.racks and n % 5 != 4 else None,
            capacity=(1.0, 2.0, 0.5)[n % 3] if self.is_uneven else 1.0,
        )

    def leave(self) -> None:
        """Remove a member from a group of four or more."""
        if len(self.members) > 3:
            del self.members[sorted(self.members)[self.pick(len(self.members))]]

    def lose_half(self) -> None:
        """Remove every second member from a group of five or more."""
        for name in sorted(self.members)[1::2] if len(self.members) > 4 else ():
            del self.members[name]

    def stop(self) -> None:
        """Restart all members with their files and former partitions."""
        self.members = {
            name: replace(
                member,
                actives={},
                standbys=_joined(member.actives, member.standbys),
                former_actives=member.actives,
                former_generation=member.generation,
                awaited={},
            )
            for name, member in self.members.items()
        }

    def wait(self) -> None:
        """Report the first member's warm-ups as overdue."""
        name = min(self.members)
        self.members[name] = replace(self.members[name], overdue=self.members[name].awaited)

    def lie(self) -> None:
        """Let the last member claim some partitions of the first member."""
        first, last = min(self.members), max(self.members)
        claims = {t: n[: 1 + len(n) // 2] for t, n in _lists(self.members[first].actives).items()}
        self.members[last] = replace(self.members[last], actives=claims)

    def round(self) -> Plan:
        """Plan; each member gets its part and some of the state of its copies."""
        partitions = {t: n if t == "lead" else n * self.size for t, n in TOPICS.items()}
        weights = {
            (t, p): 0.25 + (p * 7 + len(t)) % 11
            for t, count in partitions.items()
            for p in range(count)
            if self.weights and (p + len(t)) % 3
        }
        members = [replace(one, positions=self._positions(one)) for one in self.members.values()]
        made = plan(
            members,
            partitions,
            replicas=self.replicas,
            changelogs=LOGS,
            weightless=["lead"],
            weights=weights,
            warmups=WarmupPolicy(acceptable_recovery_lag=300, max_per_member=2, max_per_group=5)
            if self.warmups
            else None,
        )
        self.generation += 1
        self.members = {
            name: replace(
                member,
                actives=made.actives(name),
                standbys=made.standbys(name),
                awaited=made.awaited(name),
                overdue={},
                generation=self.generation,
            )
            for name, member in self.members.items()
        }
        self.last = made
        return made

    def _positions(self, member: Member) -> Any:
        """Return positions: logs end at 100 to 2,000; owners are at the end, copies at a part."""
        n = int(member.member_id[1:])
        if n % 6 == 5:
            return None
        found: dict[str, dict[int, int]] = {}
        for log in LOGS:
            ends = {p: 100 + (p * 389 + len(log) * 97) % 1900 for p in range(TOPICS[log])}
            copies = _lists(member.standbys).get(log, [])
            found[log] = {
                p: ends[p % TOPICS[log]] * ((p + n + self.generation) % 5) // 4 for p in copies
            }
            found[log] |= {p: ends[p % TOPICS[log]] for p in _lists(member.actives).get(log, [])}
        return found


def _lists(claims: Any) -> dict[str, list[int]]:
    return {topic: list(numbers) for topic, numbers in claims.items()}


def _joined(actives: Any, standbys: Any) -> dict[str, list[int]]:
    one, other = _lists(actives), _lists(standbys)
    return {t: sorted({*one.get(t, []), *other.get(t, [])}) for t in LOGS}


EVENTS: tuple[Callable[[Life], None], ...] = (
    Life.join, Life.join, Life.leave, Life.leave, Life.lose_half, Life.stop, Life.wait, Life.lie,
)  # fmt: skip
LIVES: Mapping[str, dict[str, Any]] = {
    "plain": {"replicas": 0},
    "standbys": {},
    "two copies, racks": {"replicas": 2, "racks": 3},
    "three copies, two racks": {"replicas": 3, "racks": 2},
    "warm-ups": {"warmups": True},
    "warm-ups, mixed": {"warmups": True, "is_mixed": True},
    "warm-ups, weights": {"warmups": True, "weights": True, "is_uneven": True},
    "mixed": {"is_mixed": True, "replicas": 2},
    "mixed, uneven, racks": {"is_mixed": True, "is_uneven": True, "racks": 3},
    "weights": {"weights": True},
    "weights, mixed": {"weights": True, "is_mixed": True, "is_uneven": True},
    "everything": {
        "replicas": 2, "racks": 3, "warmups": True, "weights": True, "is_mixed": True,
        "is_uneven": True,
    },
}  # fmt: skip
LARGE: Mapping[str, dict[str, Any]] = {
    "large": {"size": 30, "replicas": 2},
    "large, racks": {"size": 30, "replicas": 2, "racks": 3},
    "large, mixed, uneven": {"size": 12, "is_mixed": True, "is_uneven": True},
    "large, weights": {"size": 12, "weights": True, "warmups": True},
}


def letters(indexes: Any) -> str:
    """Return members as letters, with a dot for none."""
    return "".join("." if m == NOBODY else "abcdefghijklmnopqrstuvwxyz"[m] for m in indexes)


def told(made: Plan) -> Iterator[str]:
    """Yield a plan in lines: its figures, then owners, rules, copies and next moves by group."""
    figures = {k: v for k, v in made.report().items() if k != "groups" and v is not None}
    yield " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in figures.values())
    for g, group in enumerate(made.groups):
        parts = {
            "of": letters(group.members),
            "was": letters(made.previous_owner[g]),
            "is": letters(made.owner[g]),
            "why": "".join(RULES[r] for r in made.rule[g]),
            "cold": "".join("-!"[int(cold)] for cold in made.cold[g]),
            "to": letters(made.target[g]),
            "copies": "/".join(letters(column) for column in made.standby[g].T),
            "warm-up": letters(made.warmup[g]),
            "home": letters(made.layout.of(g, made.previous.home)),
        }
        follows = "" if group.follows is None else f" follows {group.follows}"
        yield f"{group.group_id} {','.join(group.topics)}{follows}"
        shown = [f"{k} {v}" for k, v in parts.items() if v.strip(".-/") and v != parts["is"]]
        yield "  " + " ".join(shown)
        yield "  = " + parts["is"]
    awaited = {name: made.awaited(name) for name in made.member_ids if made.awaited(name)}
    if awaited:
        yield f"awaited {awaited}"
    for topic in ("orders", "users-log"):
        if made.partitions[topic] and any(topic in group.topics for group in made.groups):
            explained = str(made.explain(topic, len(made.member_ids) % made.partitions[topic]))
            yield "; ".join(line.strip() for line in explained.splitlines())


def short(made: Plan) -> Iterator[str]:
    """Yield a large plan in two lines: figures, and a digest of owners, copies and warm-ups."""
    figures = {k: v for k, v in made.report().items() if k != "groups" and v is not None}
    yield " ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in figures.values())
    digest = sha256()
    for flat in (made.flat_owner, made.flat_target, made.flat_standby, made.flat_warmup):
        digest.update(flat.astype("<i8").tobytes())
    yield digest.hexdigest()[:16]


def life(name: str) -> list[str]:
    """Return the record of a life: five joins, then eight rounds after one or two events each."""
    is_large = name in LARGE
    made = Life(Random(name), **{**LARGE, **LIVES}[name])
    for _ in range(20 if is_large else 5):
        made.join()
    lines = [f"## {name}"]
    for turn in range(5 if is_large else 8):
        happened = []
        for _ in range(0 if not turn else 1 + made.pick(2)):
            event = EVENTS[made.pick(len(EVENTS))]
            event(made)
            happened.append(event.__name__)
        found = made.round()
        lines.append(f"# {' '.join(happened) or 'start'}: {' '.join(found.member_ids)}")
        lines += (short if is_large else told)(found)
    return lines


@cache
def record() -> Mapping[str, list[str]]:
    """Return the lives in the file."""
    lives = RECORD.read_text(encoding="utf-8").split("## ")[1:]
    return {one.partition("\n")[0]: f"## {one}".splitlines() for one in lives}


@pytest.mark.parametrize("name", [*LIVES, *LARGE])
def test_the_plans_of_a_life_are_those_of_the_record(name: str) -> None:
    """The record has figures, owners, rules, copies, warm-ups and reasons, line by line."""
    assert life(name) == record()[name]


if __name__ == "__main__":
    lines = [line for name in (*LIVES, *LARGE) for line in life(name)]
    RECORD.write_text("\n".join([*lines, ""]), encoding="utf-8")
