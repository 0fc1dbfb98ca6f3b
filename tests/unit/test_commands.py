"""The ``faust-assigner`` command: a missing extra, a misspelled variable, and how a table shows values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.service.client import operator

WITHOUT_GRPC = "import sys; sys.modules['grpc'] = None; from faust_assigner.cli import main; main()"


@pytest.mark.parametrize(
    "said", [("serve",), ("service", "consumers"), ("service", "health", "--at", "127.0.0.1:1")]
)
def test_a_package_that_is_missing_is_one_line_with_its_extra(said: tuple[str, ...]) -> None:
    """The command prints no traceback."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_GRPC, *said], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        ended.stderr
        == "faust-assigner: grpc is not installed: pip install 'faust-assigner[service]'\n"
    )


def test_a_misspelled_variable_ends_a_command_with_the_nearest_name() -> None:
    """An ignored misspelling would start ``serve`` with the default bind address."""
    ended = subprocess.run(
        [sys.executable, "-m", "faust_assigner.cli", "serve"],
        capture_output=True,
        text=True,
        env={**os.environ, "FAUST_ASSIGNER_BINDS": "127.0.0.1:x"},
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "FAUST_ASSIGNER_BINDS: did you mean FAUST_ASSIGNER_BIND?" in ended.stderr


class Operator:
    """A fake service: partition 1 has no owner; the owner of partition 2 is absent."""

    def __init__(self, *_: object, group: str = "") -> None:
        pass

    async def __aenter__(self) -> Operator:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def state(self) -> Any:
        """Return three assignments."""
        return SimpleNamespace(
            age_s=0.0,
            assignments=[
                SimpleNamespace(
                    partition=SimpleNamespace(topic="t", partition=n),
                    owner=owner,
                    epoch=n,
                    absent=owner == "b",
                )
                for n, owner in enumerate(("a", "", "b"))
            ],
        )


def test_a_table_shows_a_number_0_and_marks_what_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number 0 is printed as 0; a missing owner is printed as a dash."""
    monkeypatch.setattr(operator, "Operator", Operator)
    shown = CliRunner().invoke(main, ["service", "assignments"]).output.splitlines()
    assert [line.split() for line in shown] == [
        ["topic", "partition", "owner", "epoch", "absent"],
        ["t", "0", "a", "0", "-"],
        ["t", "1", "-", "1", "-"],
        ["t", "2", "b", "2", "absent"],
    ]


@pytest.mark.parametrize(
    "name", ["assignments", "consumers", "drain", "handoffs", "health", "plan"]
)
def test_an_old_spelling_of_an_operators_command_names_the_new_one(name: str) -> None:
    """The old ``faust-assigner drain w3`` looked like a command for a Faust worker."""
    done = CliRunner().invoke(main, [name, "w3", "--at", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert f"'{name}' is a command of the service: faust-assigner service {name}\n" in done.output
    helped = CliRunner().invoke(main, ["service", name, "--help"])
    assert helped.exit_code == 0, helped.output
    assert name not in CliRunner().invoke(main, ["--help"]).output.split()


class Ordered:
    """Record the calls of the command."""

    told: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, at: str, access: object, *, group: str = "") -> None:
        """Accept any address."""

    async def __aenter__(self) -> Ordered:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close no connection."""

    def __getattr__(self, order: str) -> Callable[..., Awaitable[None]]:
        async def obey(*words: object) -> None:
            self.told.append((order, *words))

        return obey


@pytest.mark.parametrize(
    ("words", "told", "said"),
    [
        (["set-topic", "t", "1"], ("set_topic", "t", 1), {"topic": "t", "partition_count": 1}),
        (["remove-topic", "t"], ("remove_topic", "t"), {"topic": "t", "removed": True}),
        (["undrain", "c"], ("undrain", "c"), {"consumer": "c", "drained": False}),
        (["pause", "--reason", "r"], ("pause", "r"), {"paused": True, "reason": "r"}),
        (["resume"], ("resume",), {"paused": False}),
        (
            ["move", "a/b/0", "c"],
            ("move", ("a/b", 0), "c"),
            {"topic": "a/b", "partition": 0, "consumer": "c"},
        ),
        (
            ["pin", "t/0", "c"],
            ("pin", ("t", 0), "c"),
            {"topic": "t", "partition": 0, "consumer": "c", "pinned": True},
        ),
        (["unpin", "t/0"], ("unpin", ("t", 0)), {"topic": "t", "partition": 0, "pinned": False}),
        (
            ["abort", "a/b/0"],
            ("abort", ("a/b", 0)),
            {"topic": "a/b", "partition": 0, "aborted": True},
        ),
    ],
)
def test_an_order_is_given_and_told(
    monkeypatch: pytest.MonkeyPatch, words: list[str], told: tuple[object, ...], said: object
) -> None:
    """The last slash separates topic and partition."""
    monkeypatch.setattr(operator, "Operator", Ordered)
    monkeypatch.setattr(Ordered, "told", [])
    done = CliRunner().invoke(main, ["service", *words, "--json"])
    assert (done.exit_code, Ordered.told, json.loads(done.output)) == (0, [told], said)


@pytest.mark.parametrize(
    "words", [["set-topic", "t", "0"], *(["abort", no] for no in ("t", "t/", "/0", "t/-1", "t/x"))]
)
def test_an_order_that_names_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """The command refuses the arguments without a request to the service."""
    monkeypatch.setattr(operator, "Operator", Ordered)
    monkeypatch.setattr(Ordered, "told", [])
    assert CliRunner().invoke(main, ["service", *words]).exit_code == 2
    assert not Ordered.told
