"""``faust-assigner broker`` and ``serve``: options reach the server; an address in use is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from faust_assigner.broker import serve as broker_serve
from faust_assigner.cli import main
from faust_assigner.service.server import serve as service_serve


def run(*arguments: str, code: int = 0) -> Result:
    """Run the command in this process; check its exit code."""
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the brokers instead of starting them."""
    found: list[Any] = []
    monkeypatch.setattr(
        broker_serve, "serve", lambda *given, metrics_port: found.append([*given, metrics_port])
    )
    return found


@pytest.mark.parametrize(
    ("options", "place", "value"),
    [
        ([], 0, None),
        (["--data", "d"], 0, Path("d")),
        (["--host", "::1"], 1, "::1"),
        (["--port", "0"], 2, 0),
        (
            ["--set", "num.partitions=12", "--set", "a = b=c"],
            3,
            {"num.partitions": "12", "a": "b=c"},
        ),
        (["--metrics-port", "0"], 5, 0),
    ],
)
def test_each_option_of_a_broker_reaches_it_alone(
    brokers: list[Any], options: list[str], place: int, value: Any
) -> None:
    """The defaults are data in memory, Kafka's port on loopback, and no metrics."""
    run("broker", *options)
    wanted = [None, "127.0.0.1", 9092, {}, click.echo, None]
    wanted[place] = value
    assert brokers == [wanted]


def test_the_list_of_settings_starts_no_broker(brokers: list[Any]) -> None:
    """Each setting has a line, followed by its meaning."""
    lines = run("broker", "--settings").stdout.splitlines()
    assert brokers == []
    assert all("=" in line for line in lines[::2])
    assert all(line.startswith("    ") for line in lines[1::2])


@pytest.mark.parametrize("command", ["broker", "serve"])
def test_an_address_that_is_taken_is_one_line(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The exit code is 1."""

    def serve(*_: object, **__: object) -> None:
        raise OSError("the address is in use")

    monkeypatch.setattr(broker_serve, "serve", serve)
    monkeypatch.setattr(service_serve, "serve", serve)
    assert run(command, code=1).stderr == "faust-assigner: the address is in use\n"


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (["--topic", "a=1", "--topic", "b=2"], "topic", (("a", 1), ("b", 2))),
        (["--topic", "a=1,b=2", "--topic", "c=3"], "topic", (("a", 1), ("b", 2), ("c", 3))),
        (["--etcd", "http://a:1", "--etcd", "http://b:2"], "etcd", ("http://a:1", "http://b:2")),
        (["--groups", "a", "--groups", "b"], "groups", ("a", "b")),
        (["--admins", "a,b"], "admins", ("a", "b")),
        (["--bind", "[::1]:7"], "bind", ("::1", 7)),
        (["--debounce-s", "0"], "debounce_s", 0.0),
        (["--insecure"], "insecure", True),
        ([], "insecure", False),
        ([], "prefix", "/of the environment/"),
        (["--prefix", "/x/"], "prefix", "/x/"),
    ],
)
def test_a_flag_of_the_service_reaches_its_options(
    monkeypatch: pytest.MonkeyPatch, options: list[str], name: str, value: Any
) -> None:
    """A flag that is not given leaves the environment; a repeated flag adds its values."""
    monkeypatch.setenv("FAUST_ASSIGNER_PREFIX", "/of the environment/")
    seen: list[Any] = []
    monkeypatch.setattr(service_serve, "serve", lambda options, say: seen.append((options, say)))
    run("serve", *options)
    ((found, say),) = seen
    settings = found.settings if hasattr(found.settings, name) else found.server
    assert (getattr(settings, name), say) == (value, click.echo)
