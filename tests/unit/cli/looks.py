"""Fake looks at a group with prepared answers, and a helper that runs a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.status.collect import Where

BROKER = {"bootstrap_servers": ["a:1"], "security_protocol": "PLAINTEXT"}
WHERE = Where(connection=BROKER, group_id="g")
REACH = ("--bootstrap", "a:1", "--group", "g")
#: The properties of the file ``client.properties``.
KAFKA = {"client.id": "me", "request.timeout.ms": "700"}


def run(*arguments: str, code: int = 0) -> Result:
    """Run the command in this process; check its exit code."""
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == code, done.output
    return done


class Looks:
    """Looks at a group that return or raise prepared answers in order."""

    made: list[tuple[Any, Any]]
    answers: list[Any]
    ledger: tuple[list[bytes], tuple[str, ...]]
    asked: list[Any]

    def __init__(self, where: Any, clock: Callable[[], float]) -> None:
        self.made.append((where, clock))

    async def __aenter__(self) -> Looks:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.asked.append("closed")

    async def look(self) -> Any:
        """Return the next answer."""
        found = self.answers.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    async def ledgers(self, evidence: Any, **more: Any) -> Any:
        """Return the ledgers of the workers."""
        self.asked.append((evidence, more))
        return self.ledger
