"""Options of every operator's command: each reaches the connection that the command uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from faust_assigner.cli.service import asking
from faust_assigner.service.client.channel import Access


@click.command()
@asking.shared
async def probe(operator: Any, *, as_json: bool) -> None:
    """A command."""
    click.echo(f"{operator} {as_json}")


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("--ca", "ca"),
        ("--cert", "cert"),
        ("--key", "key"),
        ("--token", "token"),
        ("--token-file", "token_file"),
        ("--server-name", "server_name"),
    ],
)
def test_each_option_of_a_channel_reaches_it_alone(
    option: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others keep their defaults."""
    asked: list[Any] = []

    async def with_operator(at: str, access: Access, group: str, work: Any) -> None:
        asked.append((at, group, access))
        await work("operator")

    monkeypatch.setattr(asking, "_with_operator", with_operator)
    file = tmp_path / "file"
    file.write_text("said")
    is_text = field in ("token", "server_name")
    said: Any = "said" if is_text else file
    more = ["--at", "127.0.0.1:7", "--group", "g", "--json"]
    found = CliRunner().invoke(probe, [option, str(said), *more])
    assert (found.exit_code, found.output) == (0, "operator True\n")
    assert asked == [("127.0.0.1:7", "g", Access(**{field: said}))]
