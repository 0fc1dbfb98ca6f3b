"""``faust-assigner service``: whole outputs, and every option of the connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.service.client import operator
from faust_assigner.service.client import operator as health_client
from faust_assigner.service.client.channel import Access
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.unit.cli.test_service_commands import STATE, Operator


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the connections and orders of the commands."""
    monkeypatch.setattr(Operator, "told", [])
    monkeypatch.setattr(operator, "Operator", Operator)
    monkeypatch.delenv("FAUST_ASSIGNER_AT", raising=False)
    monkeypatch.delenv("FAUST_ASSIGNER_TOKEN", raising=False)
    return Operator.told


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A file for each option that names one."""
    found = {name: tmp_path / name for name in ("ca", "cert", "key", "token-file")}
    for path in found.values():
        path.write_text("")
    return found


def run(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, ["service", *arguments])


def options(files: dict[str, Path]) -> list[str]:
    """Every file as an option, and the name in the certificate."""
    said = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    return [*said, "--server-name", "shop"]


@pytest.mark.parametrize("command", [["status"], ["drain", "c"], ["plan"], ["pins"]])
def test_every_option_of_the_connection_reaches_it(
    told: list[Any], files: dict[str, Path], command: list[str]
) -> None:
    """No file takes another one's place."""
    given = ["--at", "10.0.0.1:7", "--token", "t", "--group", "g", *options(files)]
    done = run(*command, *given)
    assert done.exit_code == 0, done.output
    assert told[0] == (
        "10.0.0.1:7",
        Access(
            ca=files["ca"],
            cert=files["cert"],
            key=files["key"],
            token="t",
            token_file=files["token-file"],
            server_name="shop",
        ),
        "g",
    )


def test_a_probe_has_the_files_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, Path]
) -> None:
    """The instance comes from the environment, too."""
    asked: list[Any] = []

    async def find(*said: Any) -> None:
        asked.append(said)

    monkeypatch.setattr(health_client, "health_problem", find)
    monkeypatch.setenv("FAUST_ASSIGNER_AT", "10.0.0.3:9")
    del files["token-file"]
    done = run("health", "--role", "leader", *options(files))
    access = Access(ca=files["ca"], cert=files["cert"], key=files["key"], server_name="shop")
    assert asked == [("10.0.0.3:9", "leader", access)]
    assert (done.output, done.exit_code) == ("10.0.0.3:9: the check leader passed\n", 0)


def test_an_unknown_role_and_a_missing_file_are_usage_errors(files: dict[str, Path]) -> None:
    """No call is made."""
    assert run("health", "--role", "wellness").exit_code == 2
    assert run("topics", "--ca", str(files["ca"]) + ".old").exit_code == 2


OBJECTS: list[tuple[str, list[dict[str, Any]]]] = [
    ("topics", [{"topic": "orders", "partitions": 4}, {"topic": "rates", "partitions": 2}]),
    (
        "pins",
        [
            {"topic": "orders", "partition": 1, "consumer": "a", "once": ""},
            {"topic": "orders", "partition": 2, "consumer": "b", "once": "once"},
        ],
    ),
    (
        "assignments",
        [
            {"topic": "orders", "partition": 0, "owner": "a", "epoch": 7, "absent": ""},
            {"topic": "rates", "partition": 1, "owner": "b", "epoch": 9, "absent": "absent"},
            {"topic": "orders", "partition": 2, "owner": "b", "epoch": 8, "absent": ""},
        ],
    ),
    (
        "plan",
        [
            {"topic": "orders", "partition": 1, "from": "a", "to": "b"},
            {"topic": "orders", "partition": 2, "from": "", "to": "a"},
        ],
    ),
]


@pytest.mark.parametrize(("name", "found"), OBJECTS)
def test_a_list_as_json_has_a_key_for_each_column(name: str, found: list[dict[str, Any]]) -> None:
    """The keys are the heads of the table, in their order."""
    objects = json.loads(run(name, "--json").stdout)
    assert [list(one.items()) for one in objects] == [list(one.items()) for one in found]
    assert run(name).stdout.splitlines()[0].split() == list(found[0])


def test_consumers_and_hand_offs_are_printed_whole() -> None:
    """Columns are as wide as their widest cell."""
    assert run("consumers").stdout.splitlines() == [
        "consumer  status    topics        rack  capacity",
        "a         Ready     orders,rates  az-1  1.5",
        "b         Draining  -             -     1",
        "c         Draining  -             -     1",
    ]
    assert run("handoffs").stdout.splitlines() == [
        "topic   partition  from  to  phase    progress  age_s  handoff_id",
        "orders  3          a     b   Warming  0.123     2.3    5",
        "orders  0          b     a   Ready    0         0      6",
    ]
    objects = json.loads(run("handoffs", "--json").stdout)
    assert list(objects[0].items()) == [
        ("topic", "orders"),
        ("partition", 3),
        ("from", "a"),
        ("to", "b"),
        ("phase", "Warming"),
        ("progress", 0.123),
        ("age_s", 2.3),
        ("handoff_id", 5),
    ]
    assert list(json.loads(run("consumers", "--json").stdout)[0].items()) == [
        ("consumer", "a"),
        ("status", "Ready"),
        ("topics", ["orders", "rates"]),
        ("rack", "az-1"),
        ("capacity", 1.5),
    ]


def test_the_whole_status_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All numbers are different, and the warning of an old state is on stderr alone."""
    state = pb.State()
    state.CopyFrom(STATE)
    state.age_s = 15.04
    state.paused.CopyFrom(pb.Paused(reason="a deploy", since=1_795_230_120.9))
    state.pins.add(consumer_name="c")
    del state.assignments[2]
    monkeypatch.setattr(Operator, "state_now", state)
    done = run("status")
    assert done.stdout.splitlines() == [
        "what          value",
        "leader        node-1",
        "revision      41",
        "age_s         15",
        "paused        True",
        "reason        a deploy",
        "paused_since  2026-11-21T03:02:00+00:00",
        "consumers     3",
        "draining      2",
        "partitions    6",
        "owned         1",
        "handoffs      2",
        "pins          3",
    ]
    assert done.stderr == (
        "Warning: the store has not answered this instance for 15 s; the last known state is "
        "shown. Ask a different instance, or see whether etcd runs\n"
    )
    assert json.loads(run("status", "--json").stdout)["age_s"] == 15.0


@pytest.mark.parametrize(
    ("age_s", "watch", "warns"),
    [(14.9, [], 0), (15.0, [], 1), (14.9, ["--watch"], 0), (15.0, ["--watch"], 2)],
)
def test_an_old_state_is_warned_of_in_lists_too(
    monkeypatch: pytest.MonkeyPatch, age_s: float, watch: list[str], warns: int
) -> None:
    """A watch warns with every state that it gets."""
    state = pb.State(topics=STATE.topics, age_s=age_s)
    monkeypatch.setattr(Operator, "state_now", state)
    monkeypatch.setattr(Operator, "watched", [state, state])
    done = run("topics", *watch)
    assert done.stdout.splitlines() == ["topic   partitions", "orders  4", "rates   2"]
    assert done.stderr.count("Warning: ") == warns


def test_a_watch_prints_each_change_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of rows may stay; a return to an earlier list is a change, too."""
    two, three = (pb.State(topics=[{"topic": "t", "partition_count": n}]) for n in (2, 3))
    monkeypatch.setattr(Operator, "watched", [two, two, three, three, two])
    lines = run("topics", "--watch", "--json").stdout.splitlines()
    assert [json.loads(line)[0]["partitions"] for line in lines] == [2, 3, 2]


T3 = {"topic": "t", "partition": 3}
ORDERS: list[tuple[list[str], Any, dict[str, Any]]] = [
    (["undrain", "c"], ("undrain", "c"), {"consumer": "c", "drained": False}),
    (["pause"], ("pause", ""), {"paused": True, "reason": ""}),
    (
        ["pause", "--reason", "a deploy"],
        ("pause", "a deploy"),
        {"paused": True, "reason": "a deploy"},
    ),
    (["resume"], ("resume",), {"paused": False}),
    (["move", "t/3", "c"], ("move", ("t", 3), "c"), {**T3, "consumer": "c"}),
    (["pin", "t/3", "c"], ("pin", ("t", 3), "c"), {**T3, "consumer": "c", "pinned": True}),
    (["unpin", "t/3"], ("unpin", ("t", 3)), {**T3, "pinned": False}),
    (["abort", "t/3"], ("abort", ("t", 3)), {**T3, "aborted": True}),
    (["set-topic", "t", "4"], ("set_topic", "t", 4), {"topic": "t", "partition_count": 4}),
    (["remove-topic", "t"], ("remove_topic", "t"), {"topic": "t", "removed": True}),
]


@pytest.mark.parametrize(("words", "order", "found"), ORDERS)
def test_an_order_is_given_once_and_confirmed_as_json(
    told: list[Any], words: list[str], order: Any, found: dict[str, Any]
) -> None:
    """The JSON repeats the order's names and its effect."""
    done = run(*words, "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, found)
    assert told[1:] == [order, "closed"]


@pytest.mark.parametrize("count", ["0", "-1", "many", "2147483648"])
def test_a_topic_has_a_partition_at_least_and_a_number_that_a_request_can_hold(
    told: list[Any], count: str
) -> None:
    """The service gets no order."""
    assert run("set-topic", "t", "--", count).exit_code == 2
    assert told == []
