"""Scenarios of consumer groups as readable scripts with the expected answers.

A file has scenarios. Each starts with a line ``== title``; commands follow at the margin, with the
expected answers indented below. ``python -m tests.support.coordination.consumer_script FILE``
writes the current answers into the file. Read them before you keep them.

    topics a=4 b=2            limits max_size=2 policy=upgrade interval=1000 session=45000
    join m1 reads=a,b         beat m1 1 owns=a:0,1        leave m1 epoch=-2 instance=i1
    cjoin - new=c1 reads=a    csync c1 2                  cbeat c1 2              cleave c1 /i2
    commit m1 3 parts=a:0     fetch m1 3                  delete                  wait 45000
    restart                   disk fails                  group                   now session=60000
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    TimersDue,
)
from faust_assigner.coordinator.protocol import read_assignment, write_assignment
from faust_assigner.coordinator.settings import ConsumerLimits, MigrationPolicy
from faust_assigner.coordinator.states import GroupLimits
from tests.property.consumer_sim.clients import subscription
from tests.support.coordination.consumer_bench import Bench, topic_id

Words = Mapping[str, str]


@dataclass(frozen=True)
class Scenario:
    """A scenario: its title, and each command with its expected answers."""

    title: str
    steps: tuple[tuple[str, tuple[str, ...]], ...]


def scenarios(text: str) -> Iterator[Scenario]:
    """Return the scenarios of a file; lines that begin with # are comments."""
    for part in (
        text.split("\n== ")[1:] if not text.startswith("== ") else ("\n" + text).split("\n== ")[1:]
    ):
        title, *lines = [
            line for line in part.splitlines() if line.strip() and not line.startswith("#")
        ]
        steps: list[tuple[str, tuple[str, ...]]] = []
        for line in lines:
            if line.startswith(" "):
                steps[-1] = steps[-1][0], (*steps[-1][1], line.strip())
            else:
                steps.append((line.strip(), ()))
        yield Scenario(title.strip(), tuple(steps))


class Stage:
    """A bench that runs commands."""

    def __init__(self) -> None:
        self.bench = Bench(a=4)
        self.tokens = 0
        self.labels: dict[int, str] = {}

    def play(self, command: str) -> tuple[str, ...]:
        """Run a command; return the answers, one per line."""
        verb, *rest = command.split()
        words = dict(word.split("=", 1) for word in rest if "=" in word)
        plain = [word for word in rest if "=" not in word]
        told: list[str] = COMMANDS[verb](self, plain, words)
        return tuple(told)

    # -- the surroundings ------------------------------------------------------------------------

    def _topics(self, plain: list[str], words: Words) -> list[str]:
        self.bench.change_topics(**{name: int(count) for name, count in words.items()})
        return []

    def _limits(self, plain: list[str], words: Words) -> list[str]:
        names = {
            "session": "session_timeout_ms",
            "interval": "assignment_interval_ms",
            "max_size": "max_size",
        }
        numbers = {names[k]: int(v) for k, v in words.items() if k in names}
        policy = MigrationPolicy(words.get("policy", "bidirectional"))
        fresh = Bench(
            ConsumerLimits(**{"assignment_interval_ms": 0, **numbers}, migration_policy=policy)
        )
        fresh.classic_limits = GroupLimits(
            initial_rebalance_delay_ms=0, max_size=int(words.get("classic_max", 100))
        )
        fresh.group.classic_limits = fresh.classic_limits  # type: ignore[attr-defined]
        fresh.catalogue = self.bench.catalogue
        self.bench = fresh
        return []

    def _now(self, plain: list[str], words: Words) -> list[str]:
        limits = replace(self.bench.limits, session_timeout_ms=int(words["session"]))
        self.bench.limits = self.bench.group.limits = limits  # type: ignore[attr-defined]
        return []

    def _disk(self, plain: list[str], words: Words) -> list[str]:
        self.bench.disk_fails = plain == ["fails"]
        return []

    def _restart(self, plain: list[str], words: Words) -> list[str]:
        self.bench.restart()
        return []

    def _wait(self, plain: list[str], words: Words) -> list[str]:
        end, told = self.bench.now + int(plain[0]), list[str]()
        while (due := self.bench.group.next_deadline_ms) is not None and due <= end:
            self.bench.now = max(self.bench.now, due)
            told += self._tell(self.bench.step(TimersDue()))
        self.bench.now = end
        return told

    def _group(self, plain: list[str], words: Words) -> list[str]:
        view = self.bench.group.describe()
        epochs = f"epoch {view.epoch} target {view.target_epoch}"
        lines = [f"{view.group_type} {view.state} {epochs} {view.protocol_name}".strip()]
        for m in sorted(view.members, key=lambda m: m.member_id):
            parts = [
                f"{m.member_id} {m.epoch} {m.state or m.protocol} has {self._names(m.assigned)}"
            ]
            parts += [f"gives up {self._names(m.revoking)}"] if m.revoking else []
            parts += [f"waits for {self._names(m.pending)}"] if m.pending else []
            lines.append(" ".join(parts))
        return lines

    # -- requests --------------------------------------------------------------------------------

    def _ask(self, label: str, event: Any) -> list[str]:
        self.tokens += 1
        self.labels[self.tokens] = label
        return self._tell(self.bench.step(replace(event, token=self.tokens)))

    def _heartbeat(self, plain: list[str], words: Words) -> list[str]:
        owned = None if "owns" not in words else _owned(words["owns"])
        reads = words.get("reads")
        event = ConsumerGroupHeartbeat(
            0,
            "" if plain[0] == "-" else plain[0],
            int(plain[1]),
            words.get("instance"),
            words.get("rack"),
            int(words.get("timeout", -1)),
            None if reads is None else tuple(n for n in reads.split(",") if n),
            words.get("regex"),
            words.get("assignor"),
            None if owned is None else {topic_id(n): parts for n, parts in owned.items()},
            api_version=int(words.get("version", 1)),
            new_member_id=words.get("new", ""),
        )
        return self._ask(plain[0], event)

    def _join(self, plain: list[str], words: Words) -> list[str]:
        given = {"owns": "nothing", "timeout": "60000", **words}
        if "regex" not in given:
            given.setdefault("reads", "a")
        return self._heartbeat([plain[0], "0"], {k: v for k, v in given.items() if v != "none"})

    def _leave(self, plain: list[str], words: Words) -> list[str]:
        return self._heartbeat([plain[0], words.get("epoch", "-1")], words)

    def _cjoin(self, plain: list[str], words: Words) -> list[str]:
        owned = _owned(words.get("owns", "nothing"))
        metadata = subscription(
            words.get("reads", "a").split(","), owned, int(words.get("version", 1))
        )
        metadata = b"junk" if "junk" in plain else metadata
        offers = tuple(
            Protocol(name, metadata) for name in words.get("protocols", "range").split(",")
        )
        event = JoinGroup(
            0,
            "" if plain[0] == "-" else plain[0],
            words.get("new", ""),
            offers,
            words.get("type", "consumer"),
            int(words.get("session", 45_000)),
            int(words.get("timeout", 60_000)),
            words.get("instance"),
            needs_known_id=words.get("known") == "needed",
        )
        return self._ask(plain[0] if plain[0] != "-" else words.get("new", "-"), event)

    def _csync(self, plain: list[str], words: Words) -> list[str]:
        given = {
            m: write_assignment(0, _owned(parts)) for m, parts in words.items() if m.startswith("c")
        }
        event = SyncGroup(
            0,
            plain[0],
            int(plain[1]),
            words.get("instance"),
            words.get("type"),
            words.get("protocol"),
            given,
        )
        return self._ask(plain[0], event)

    def _cbeat(self, plain: list[str], words: Words) -> list[str]:
        return self._ask(plain[0], Heartbeat(0, plain[0], int(plain[1]), words.get("instance")))

    def _cleave(self, plain: list[str], words: Words) -> list[str]:
        split = [word.partition("/") for word in plain]
        return self._ask("leave", LeaveGroup(0, tuple(Leaver(m, i or None) for m, _, i in split)))

    def _commit(self, plain: list[str], words: Words) -> list[str]:
        places = tuple(
            (n, p) for n, parts in _owned(words.get("parts", "nothing")).items() for p in parts
        )
        event = CommitOffsets(
            0, plain[0] if plain[0] != "-" else "", int(plain[1]), None, int(words.get("version", 9)),
            words.get("txn") == "yes", places,
        )  # fmt: skip
        return self._ask(plain[0], event)

    def _fetch(self, plain: list[str], words: Words) -> list[str]:
        return self._ask(
            plain[0], FetchOffsets(0, plain[0] if plain[0] != "-" else None, int(plain[1]))
        )

    def _delete(self, plain: list[str], words: Words) -> list[str]:
        return self._ask("delete", DeleteGroup())

    # -- answers ---------------------------------------------------------------------------------

    def _names(self, partitions: Mapping[bytes, tuple[int, ...]]) -> str:
        return _shown(self.bench.catalogue.names_of(partitions))

    def _tell(self, effects: list[fx.Effect]) -> list[str]:
        return [line for line in map(self._line, effects) if line]

    def _line(self, effect: fx.Effect) -> str:
        who = self.labels.get(getattr(effect, "token", 0), "")
        error = getattr(effect, "error", None)
        match effect:
            case fx.LeaveReply():
                return "left: " + ", ".join(
                    f"{m or '-'}{'/' + i if i else ''} {e.name}" for m, i, e in effect.results
                )
            case fx.Happened(what, member_id) if what in LOUD:
                return f"! {what} {member_id}".rstrip()
            case fx.Happened() | fx.SaveGroup() | fx.DropGroup():
                return ""
            case _ if error:
                return f"{who}: {error.name}" + (
                    f" {effect.member_id}" if error.name == "MEMBER_ID_REQUIRED" else ""
                )
            case fx.ConsumerHeartbeatReply():
                has = "" if effect.assignment is None else f" has {self._names(effect.assignment)}"
                return f"{effect.member_id}: epoch {effect.member_epoch}{has}"
            case fx.JoinReply():
                leads = " leads" if effect.members else ""
                return f"{effect.member_id}: generation {effect.generation} {effect.protocol_name}{leads}"
            case fx.SyncReply():
                return f"{who}: synced {_shown(read_assignment(effect.assignment) or {})}"
        return f"{who}: ok"


LOUD = (
    "member_expired",
    "member_missed_revocation",
    "member_missed_join",
    "member_missed_sync",
    "downgraded",
)
COMMANDS: Mapping[str, Callable[[Stage, list[str], Words], list[str]]] = {
    "topics": Stage._topics,
    "limits": Stage._limits,
    "now": Stage._now,
    "disk": Stage._disk,
    "restart": Stage._restart,
    "wait": Stage._wait,
    "group": Stage._group,
    "join": Stage._join,
    "beat": Stage._heartbeat,
    "leave": Stage._leave,
    "cjoin": Stage._cjoin,
    "csync": Stage._csync,
    "cbeat": Stage._cbeat,
    "cleave": Stage._cleave,
    "commit": Stage._commit,
    "fetch": Stage._fetch,
    "delete": Stage._delete,
}


def _owned(said: str) -> dict[str, tuple[int, ...]]:
    """Return ``a:0,1;b:2`` as a mapping; ``nothing`` is empty."""
    if said == "nothing":
        return {}
    split = (part.split(":") for part in said.split(";"))
    return {name: tuple(int(n) for n in numbers.split(",")) for name, numbers in split}


def _shown(partitions: Mapping[str, tuple[int, ...]]) -> str:
    return (
        ";".join(f"{n}:{','.join(map(str, parts))}" for n, parts in sorted(partitions.items()))
        or "nothing"
    )


def played(scenario: Scenario) -> list[tuple[str, tuple[str, ...]]]:
    """Return each command with its answers."""
    stage = Stage()
    return [(command, stage.play(command)) for command, _ in scenario.steps]


def main(path: Path) -> None:
    """Write the current answers into a file of scenarios."""
    lines = []
    for line in path.read_text().splitlines():
        if line.startswith("== "):
            stage = Stage()
            lines.append(line)
        elif not line.strip() or line.startswith("#"):
            lines.append(line)
        elif not line.startswith(" "):
            lines += [line, *(f"    {answer}" for answer in stage.play(line))]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
