"""``faust-assigner service``: the connection, the columns of each list, and confirmations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.cli.service import operator_options
from faust_assigner.service.client import operator
from faust_assigner.service.client import operator as health_client
from faust_assigner.service.client.channel import Access
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

WARMING, READY = pb.HANDOFF_PHASE_WARMING, pb.HANDOFF_PHASE_READY
READY_NOW, DRAINING = pb.CONSUMER_STATUS_READY, pb.CONSUMER_STATUS_DRAINING


def at(partition: int, topic: str = "orders") -> dict[str, Any]:
    """The fields of a partition."""
    return {"topic": topic, "partition": partition}


STATE = pb.State(
    leader="node-1",
    revision=41,
    topics=[{"topic": "orders", "partition_count": 4}, {"topic": "rates", "partition_count": 2}],
    consumers=[
        {
            "consumer_name": "a",
            "status": READY_NOW,
            "topics": ["orders", "rates"],
            "rack": "az-1",
            "capacity": 1.5,
        },
        {"consumer_name": "b", "status": DRAINING, "capacity": 1.0},
        {"consumer_name": "c", "status": DRAINING, "capacity": 1.0},
    ],
    assignments=[
        {"partition": at(0), "owner": "a", "epoch": 7},
        {"partition": at(1, "rates"), "owner": "b", "epoch": 9, "absent": True},
        {"partition": at(2), "owner": "b", "epoch": 8},
    ],
    handoffs=[
        {
            "partition": at(3),
            "old_owner": "a",
            "new_owner": "b",
            "phase": WARMING,
            "progress": 0.12345,
            "age_s": 2.26,
            "handoff_id": 5,
        },
        {"partition": at(0), "old_owner": "b", "new_owner": "a", "phase": READY, "handoff_id": 6},
    ],
    pins=[
        {"partition": at(1), "consumer_name": "a"},
        {"partition": at(2), "consumer_name": "b", "once": True},
    ],
)


class Operator:
    """An operator of the group above that records its orders and its close."""

    told: ClassVar[list[Any]] = []
    state_now: ClassVar[pb.State] = STATE
    watched: ClassVar[list[pb.State]] = []
    has_partitions: ClassVar[bool] = False

    def __init__(self, target: str, access: Access, *, group: str = "") -> None:
        self.told.append((target, access, group))

    async def __aenter__(self) -> Operator:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.told.append("closed")

    async def state(self) -> pb.State:
        """Return the group."""
        return self.state_now

    async def watch(self) -> AsyncIterator[pb.State]:
        """Yield each state of the test."""
        for state in self.watched:
            yield state

    async def plan(self, **change: Any) -> list[pb.Move]:
        """Return a move between owners, and a move of a partition without an owner."""
        self.told.append(change)
        return [
            pb.Move(partition=at(1), from_owner="a", to_owner="b"),
            pb.Move(partition=at(2), to_owner="a"),
        ]

    async def drain(self, consumer: str) -> bool:
        """Record the order."""
        self.told.append(("drain", consumer))
        return self.has_partitions

    def __getattr__(self, order: str) -> Any:
        async def obey(*words: object) -> None:
            self.told.append((order, *words))

        return obey


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the connections and orders of the commands."""
    monkeypatch.setattr(Operator, "told", [])
    monkeypatch.setattr(operator, "Operator", Operator)
    monkeypatch.delenv("FAUST_ASSIGNER_AT", raising=False)
    monkeypatch.delenv("FAUST_ASSIGNER_TOKEN", raising=False)
    return Operator.told


def run(*arguments: str) -> Result:
    """Run a command in this process."""
    done = CliRunner().invoke(main, ["service", *arguments])
    assert done.exit_code == 0, done.output
    return done


def rows(*arguments: str) -> list[list[Any]]:
    """Return the values of a printed JSON list, without their keys."""
    return [list(row.values()) for row in json.loads(run(*arguments, "--json").stdout)]


@pytest.mark.parametrize("name", ["status", "topics", "plan", "resume"])
def test_a_command_asks_the_named_instance_for_the_named_group(name: str, told: list[Any]) -> None:
    """The connection is closed; by default it is the local instance and its only group."""
    run(name, "--at", "10.0.0.1:7", "--group", "g", "--token", "t")
    assert (told[0], told[-1]) == (("10.0.0.1:7", Access(token="t"), "g"), "closed")
    run(name)
    assert told[told.index("closed") + 1] == ("127.0.0.1:50051", Access(), "")


def test_the_environment_names_the_instance_and_the_token(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ps`` does not show the token; an option has priority over the environment."""
    monkeypatch.setenv("FAUST_ASSIGNER_AT", "10.0.0.1:7")
    monkeypatch.setenv("FAUST_ASSIGNER_TOKEN", "secret")
    run("topics")
    run("topics", "--at", "10.0.0.2:8", "--token", "other")
    assert told[0] == ("10.0.0.1:7", Access(token="secret"), "")
    assert told[2] == ("10.0.0.2:8", Access(token="other"), "")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("topics", [["orders", 4], ["rates", 2]]),
        (
            "consumers",
            [
                ["a", "Ready", ["orders", "rates"], "az-1", 1.5],
                ["b", "Draining", [], "", 1.0],
                ["c", "Draining", [], "", 1.0],
            ],
        ),
        (
            "assignments",
            [["orders", 0, "a", 7, ""], ["rates", 1, "b", 9, "absent"], ["orders", 2, "b", 8, ""]],
        ),
        (
            "handoffs",
            [
                ["orders", 3, "a", "b", "Warming", 0.123, 2.3, 5],
                ["orders", 0, "b", "a", "Ready", 0.0, 0.0, 6],
            ],
        ),
        ("pins", [["orders", 1, "a", ""], ["orders", 2, "b", "once"]]),
    ],
)
def test_each_list_has_its_columns(name: str, found: list[list[Any]]) -> None:
    """All entries are listed in the order of the service."""
    assert rows(name) == found


@pytest.mark.parametrize(
    ("paused", "shown"),
    [
        (None, (False, "", "")),
        (pb.Paused(reason="a deploy", since=1_795_230_120.9), (True, "a deploy", "2026-11-21")),
        (pb.Paused(), (True, "", "1970-01-01")),
    ],
)
def test_the_status_counts_the_group(
    monkeypatch: pytest.MonkeyPatch, paused: pb.Paused | None, shown: tuple[bool, str, str]
) -> None:
    """Partitions of all topics count, absent owners own none, and a pause may have no reason."""
    state = pb.State()
    state.CopyFrom(STATE)
    if paused is not None:
        state.paused.CopyFrom(paused)
    monkeypatch.setattr(Operator, "state_now", state)
    found = json.loads(run("status", "--json").stdout)
    is_paused, reason, day = shown
    assert found.pop("paused_since")[:10] == day
    assert found == {
        "leader": "node-1",
        "revision": 41,
        "age_s": 0.0,
        "paused": is_paused,
        "reason": reason,
        "consumers": 3,
        "draining": 2,
        "partitions": 6,
        "owned": 2,
        "handoffs": 2,
        "pins": 2,
    }
    lines = [line.split() for line in run("status").stdout.splitlines()]
    assert lines[:3] == [["what", "value"], ["leader", "node-1"], ["revision", "41"]]


def test_a_time_is_shown_in_utc_and_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format is that of all commands."""
    state = pb.State(paused={"since": 1_795_230_120.9})
    monkeypatch.setattr(Operator, "state_now", state)
    assert json.loads(run("status", "--json").stdout)["paused_since"] == "2026-11-21T03:02:00+00:00"


def test_a_dry_run_passes_on_both_changes(told: list[Any]) -> None:
    """Leaving and joining consumers keep their roles, and a move lists the old owner first."""
    found = rows("plan", "--without", "a", "--without", "b", "--add", "c")
    assert told[1] == {"without": ("a", "b"), "extra": ("c",)}
    assert found == [["orders", 1, "a", "b"], ["orders", 2, "", "a"]]
    assert run("plan").stdout.splitlines()[2].split() == ["orders", "2", "-", "a"]


@pytest.mark.parametrize("name", ["topics", "consumers", "assignments", "handoffs", "pins"])
def test_an_empty_list_is_a_sentence(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A table without rows looks like an unfinished output; JSON stays a list."""
    monkeypatch.setattr(Operator, "watched", [pb.State()])
    assert run(name, "--watch").stdout == f"no {name}\n"
    assert json.loads(run(name, "--watch", "--json").stdout) == []


@pytest.mark.parametrize("name", ["topics", "handoffs"])
def test_a_watch_prints_the_list_after_a_change_of_it_alone(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A change of a different list prints no line; a returning entry is printed again."""
    kinds = {"topics": {"topics": STATE.topics}, "handoffs": {"handoffs": STATE.handoffs}}
    full = pb.State(**kinds[name])
    other = pb.State(**kinds[name], leader="node-2", pins=STATE.pins)
    states = [full, other, pb.State(), pb.State(leader="node-3"), full]
    monkeypatch.setattr(Operator, "watched", states)
    lines = run(name, "--watch", "--json").stdout.splitlines()
    assert [len(json.loads(line)) for line in lines] == [2, 0, 2]


@pytest.mark.parametrize(
    ("has_partitions", "action", "words"),
    [
        (True, "WAIT_FOR_DRAIN", "c: hands its partitions over; its stream ends after the last"),
        (False, "SHUTDOWN_NOW", "c: has no partitions that another consumer can take"),
    ],
)
def test_a_drain_reports_whether_the_consumer_has_to_wait(
    told: list[Any], monkeypatch: pytest.MonkeyPatch, has_partitions: bool, action: str, words: str
) -> None:
    """The answer comes from the service."""
    monkeypatch.setattr(Operator, "has_partitions", has_partitions)
    found = json.loads(run("drain", "c", "--json").stdout)
    assert (found, told[1]) == ({"consumer": "c", "action": action}, ("drain", "c"))
    assert run("drain", "c").stdout.startswith(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["undrain", "c"], "c: not drained any more"),
        (["pause"], "paused"),
        (["resume"], "not paused"),
        (["move", "t/3", "c"], "t/3: goes to c"),
        (["pin", "t/3", "c"], "t/3: pinned to c"),
        (["unpin", "t/3"], "t/3: not pinned"),
        (["abort", "t/3"], "t/3: the hand-off is aborted"),
        (["set-topic", "t", "4"], "t: 4 partitions"),
        (["remove-topic", "t"], "t: removed"),
    ],
)
def test_an_order_is_confirmed_in_one_line(words: list[str], said: str) -> None:
    """The line repeats the names of the order."""
    assert run(*words).stdout == f"{said}\n"


@pytest.mark.parametrize("order", [["move"], ["pin"], ["unpin"], ["abort"]])
@pytest.mark.parametrize(
    "said",
    [
        "orders/\u00b2",
        "orders/-1",
        "orders/",
        "orders",
        "/3",
        "orders/+1",
        "orders/2147483648",
        "o/" + "9" * 5_000,
    ],
)
def test_a_partition_is_a_topic_and_a_number(told: list[Any], order: list[str], said: str) -> None:
    """Other arguments are usage errors, and the service gets no order."""
    consumer = ["c"] if order[0] in ("move", "pin") else []
    done = CliRunner().invoke(main, ["service", *order, "--", said, *consumer])
    assert done.exit_code == 2
    assert f"must be TOPIC/PARTITION, as orders/7, got {said!r}" in done.output
    assert told == []


def test_a_topic_may_have_slashes_and_a_number_leading_zeros(told: list[Any]) -> None:
    """The last slash divides the topic from the number."""
    run("abort", "a/b/007")
    assert told[1] == ("abort", ("a/b", 7))


def test_a_table_is_as_wide_as_its_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """Lists, fractions, zeros and missing values look different; lines have no trailing blanks."""
    found = [(["a", "b"], 0, 1234567.891), ([], None, 0.5), ("", False, "x")]
    operator_options.print_rows(found, ("names", "n", "a long head"), False)
    assert capsys.readouterr().out.splitlines() == [
        "names  n      a long head",
        "a,b    0      1.23457e+06",
        "-      -      0.5",
        "-      False  x",
    ]
    operator_options.print_rows([], ("a", "b"), False)
    assert capsys.readouterr().out == "a  b\n"


@pytest.mark.parametrize("problem", [None, "the instance answered NOT_SERVING"])
@pytest.mark.parametrize("role", ["serving", "readiness", "liveness", "leader", "process"])
def test_a_probe_asks_for_its_role_and_ends_with_0_or_1(
    monkeypatch: pytest.MonkeyPatch, told: list[Any], role: str, problem: str | None
) -> None:
    """A probe needs no token; its line names the instance, the role and the problem."""

    async def find(*asked: Any) -> str | None:
        told.append(asked)
        return problem

    monkeypatch.setattr(health_client, "health_problem", find)
    chosen = [] if role == "serving" else ["--role", role]
    options = ["--at", "10.0.0.1:7", "--server-name", "n", *chosen]
    done = CliRunner().invoke(main, ["service", "health", *options])
    assert (done.exit_code, told) == (
        1 if problem else 0,
        [("10.0.0.1:7", role, Access(server_name="n"))],
    )
    result = f"failed: {problem}" if problem else "passed"
    assert done.stdout == f"10.0.0.1:7: the check {role} {result}\n"


def test_a_connection_is_closed_after_an_error(told: list[Any]) -> None:
    """The same holds for an error in the command's own work."""

    async def work(_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(operator_options._with_operator("a:1", Access(), "", work))
    assert told[-1] == "closed"
