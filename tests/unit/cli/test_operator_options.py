"""Options of every operator's command: each reaches the connection that the command uses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from faust_assigner.cli.service import looks, operator_options
from faust_assigner.service.client.channel import Access
from faust_assigner.service.proto import kafka_assigner_pb2 as pb


@click.command()
@operator_options.shared
async def probe(operator: Any, *, as_json: bool) -> None:
    """A command."""
    click.echo(f"{operator} {as_json}")


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--ca", "ca"),
        ("--token", "token"),
        ("--token-file", "token_file"),
        ("--server-name", "server_name"),
    ],
)
def test_each_option_of_a_channel_reaches_it_alone(
    option: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remaining options keep their defaults."""
    asked: list[Any] = []

    async def with_operator(at: str, access: Access, group: str, work: Any) -> None:
        asked.append((at, group, access))
        await work("operator")

    monkeypatch.setattr(operator_options, "_with_operator", with_operator)
    file = tmp_path / "file"
    file.write_text("said")
    is_text = field in ("token", "server_name")
    said: Any = "said" if is_text else file
    more = ["--at", "127.0.0.1:7", "--group", "g", "--json"]
    found = CliRunner().invoke(probe, [option, str(said), *more])
    assert (found.exit_code, found.output) == (0, "operator True\n")
    assert asked == [("127.0.0.1:7", "g", Access(**{field: said}))]


def test_a_certificate_reaches_the_channel_with_its_key_and_the_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate alone is an error of the options."""
    asked: list[Access] = []

    async def with_operator(at: str, access: Access, group: str, work: Any) -> None:
        asked.append(access)

    monkeypatch.setattr(operator_options, "_with_operator", with_operator)
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    options = []
    for name, file in files.items():
        file.write_text(name)
        options += [f"--{name}", str(file)]
    assert CliRunner().invoke(probe, options).exit_code == 0
    assert asked == [Access(**files)]
    found = CliRunner().invoke(probe, options[:4])
    assert (found.exit_code, len(asked)) == (2, 1)
    assert "require each other" in found.output


AT = {"topic": "orders", "partition": 3}
#: One entry for each list of the state.
ENTRIES: dict[str, dict[str, Any]] = {
    "topics": {"topic": "orders", "partition_count": 4},
    "consumers": {"consumer_name": "a"},
    "assignments": {"partition": AT, "owner": "a"},
    "handoffs": {"partition": AT, "old_owner": "a", "new_owner": "b"},
    "pins": {"partition": AT, "consumer_name": "a"},
}


class Telling:
    """An operator of a group whose lists are empty at first, and later have one entry each."""

    first = pb.State()
    later = pb.State(**{kind: [entry] for kind, entry in ENTRIES.items()})

    async def state(self) -> pb.State:
        """Return the first state."""
        return self.first

    async def watch(self) -> AsyncIterator[pb.State]:
        """Yield the first and the later state."""
        yield self.first
        yield self.later


@pytest.mark.parametrize("kind", sorted(ENTRIES))
@pytest.mark.parametrize("watches", [False, True])
@pytest.mark.parametrize("is_json", [False, True])
def test_a_list_is_watched_or_written_as_json_only_on_demand(
    kind: str, watches: bool, is_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first state has no entry; a watching command also prints the later entry."""

    async def with_operator(at: str, access: Access, group: str, work: Any) -> None:
        await work(Telling())

    monkeypatch.setattr(operator_options, "_with_operator", with_operator)
    options = ["--watch"] * watches + ["--json"] * is_json
    found = CliRunner().invoke(getattr(looks, kind), options)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    if is_json:
        assert [len(json.loads(line)) for line in lines] == [0, 1][: 1 + watches]
    else:
        assert lines[0] == f"no {kind}"
        assert len(lines) == (3 if watches else 1)


@pytest.mark.parametrize(("age_s", "is_old"), [(14.9, False), (15.0, True), (412.34, True)])
@pytest.mark.parametrize("command", ["assignments", "status"])
def test_a_command_warns_if_the_instance_has_not_heard_from_its_store(
    command: str, age_s: float, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning is on stderr, so scripts can parse stdout. ``status`` also shows the age."""

    class Silent(Telling):
        first = pb.State(age_s=age_s)

    async def with_operator(at: str, access: Access, group: str, work: Any) -> None:
        await work(Silent())

    monkeypatch.setattr(operator_options, "_with_operator", with_operator)
    found = CliRunner().invoke(getattr(looks, command), ["--json"])
    warned = f"has not answered this instance for {age_s:.0f} s" in found.stderr
    assert (found.exit_code, warned, bool(found.stderr)) == (0, is_old, is_old)
    if command == "assignments":
        watched = CliRunner().invoke(looks.assignments, ["--watch"])
        assert watched.stderr == found.stderr
    said = json.loads(found.stdout)
    if command == "status":
        assert said["age_s"] == round(age_s, 1)
        table = CliRunner().invoke(looks.status, []).stdout
        [row] = [line.split() for line in table.splitlines() if line.startswith("age_s")]
        assert float(row[1]) == round(age_s, 1)
