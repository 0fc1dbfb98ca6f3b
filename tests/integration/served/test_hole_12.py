"""Hole 12 of an assigner, on real sockets and processes: plain-text tokens and abrupt ends.

Each test runs a scenario twice: the naive variant fails here, and ours does not.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.served.test_secure import CANARY, Keys
from tests.support.assigning.instances import (
    QUICK,
    ROOT,
    Consumer,
    Instance,
    consumers,
    instances,
    settled,
)
from tests.support.clients.tcp_proxy import proxy_to

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("naive", [False, True])
async def test_12_a_token_on_the_wire_is_read_by_nobody(tmp_path: Path, naive: bool) -> None:
    """The naive service has no TLS, so the token is readable in the traffic."""
    keys = Keys(tmp_path)
    (tmp_path / "tokens").write_text(f"a {CANARY}\n")
    flags: Sequence[str] = () if naive else keys.flags()
    with (
        instances(
            tmp_path, *QUICK, *flags, "--tokens", str(tmp_path / "tokens"), "--topic", "orders=2"
        ) as (service,),
        proxy_to(service.target) as wire,
    ):
        access = keys.access(token=CANARY)
        if naive:
            access = type(access)(token=CANARY)
        async with consumers(Consumer(wire.endpoint, "a", access=access)) as (one,):
            await settled([one], [2])
        assert len(wire.carried) > 100
        assert (CANARY.encode() in bytes(wire.carried)) is naive


#: An instance that handles only SIGINT.
_SIGINT_ONLY = """
import asyncio, signal, sys
class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, number, *rest):
        if number == signal.SIGINT:
            super().add_signal_handler(number, *rest)
class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self):
        return Loop()
asyncio.set_event_loop_policy(Policy())
from faust_assigner.cli import main
main(["serve", "--bind", "127.0.0.1:0", *sys.argv[1:]])
"""


class _Naive(Instance):
    """The first assigner's behaviour: only an interrupt is a clean stop."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "naive.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SIGINT_ONLY, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )


@pytest.mark.parametrize(("kind", "code"), [(Instance, 0), (_Naive, -signal.SIGTERM)])
async def test_12_sigterm_is_a_stop_and_no_accident(
    tmp_path: Path, kind: type[Instance], code: int
) -> None:
    """SIGTERM is the usual stop signal: consumers are informed, and the exit code is 0."""
    service = kind(tmp_path, *QUICK, "--topic", "orders=2")
    try:
        async with consumers(Consumer(service.target, "a")) as (one,):
            await settled([one], [2])
            assert await asyncio.to_thread(service.stop, signal.SIGTERM) == code
            assert ("stopping" in service.said) is (code == 0)
    finally:
        service.process.kill()
        service.process.wait()
