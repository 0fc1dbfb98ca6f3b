"""docs/how-to/at-3-am.md on a fleet of five with four faults: each command and each answer.

The test runs the page's commands verbatim. It looks for the stable words of the page's answers in
the commands' output, and checks that the page has them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from tests.support.pages import ALL, ROOT
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

PAGE = "docs/how-to/at-3-am.md"
WHERE = "--bootstrap kafka:9092 --group shop"
STATUS = f"faust-assigner status {WHERE}"
PARTITIONS, SESSION_S, ACCEPTABLE = 10, 20.0, 500
#: Seconds for a command (one waits for 60), and the exit code of a slower command.
COMMAND_S, TIMED_OUT = 150, 124
#: The file of ``held_copies.py``.
HOLD = "hold-copies"
#: For each block of the page, in order: its exit code and the stable words of its answer. None:
#: both codes are right, because the hold of shop-1's copies matters only for a copy of a task of
#: shop-0.
ANSWERS: tuple[tuple[int | None, tuple[str, ...]], ...] = (
    (0, ("group shop: Stable, 4 members", "of shop-customers, shop-orders, tables rates, totals")),
    (0, ("shop-totals-changelog", "shop-1: ")),
    (1, ("FA002", "shop-3", "FA007", "shop-2: broker_heartbeat_interval (7 s)", "FA018", "set aside since its start")),
    (0, ('"lag":', '"waits":')),
    (0, ("moved from", "rule:")),
    (1, ("NOT SAFE: restart every worker", "to shop-1, whose copy is", "records behind")),
    (0, ("not processed", "shop-1: ")),
    (None, ("longest pause", "new copies")),
    (0, ("SAFE: stop shop-1",)),
    (0, ("shop-1",)),
    (0, ("FA018 (warning): Table files were corrupt",)),
)


@dataclass
class Shop(Measured):
    """Five static workers: shop-2 has a slow heartbeat, shop-4 has the instance id of shop-3."""

    module: str = "tests.support.workers.held_copies"
    static: bool = True
    _supervised: frozenset[str] = frozenset()
    _supervising: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Event = field(default_factory=threading.Event)

    def launch(
        self, name: str, module: str, environment: Mapping[str, str], *, level: str
    ) -> subprocess.Popen[bytes]:
        """Add this worker's wrong settings."""
        more = {"FAUST_ASSIGNER_ACCEPTABLE_RECOVERY_LAG": str(ACCEPTABLE)}
        if name == "shop-2":
            more["FLEET_SETTINGS"] = '{"broker_heartbeat_interval": 7.0}'
        if name == "shop-4":
            more["FLEET_INSTANCE"] = "shop-3"
        return super().launch(name, module, {**environment, **more}, level=level)

    def supervise(self, *names: str) -> None:
        """Restart workers that end, as systemd or a StatefulSet does."""
        self._supervised = frozenset(names)
        threading.Thread(target=self._restart_those_that_end, daemon=True).start()

    def _restart_those_that_end(self) -> None:
        while not self._ending.wait(0.3):
            with self._supervising:
                for name in self._supervised:
                    if not self.workers[name].alive:
                        self.start(name)

    def give_up(self, name: str) -> None:
        """End a supervised worker for good."""
        with self._supervising:
            self._supervised -= {name}
            if self.workers[name].alive:
                self.workers[name].kill()

    def stop(self) -> None:
        """End the supervisor first, then the workers."""
        with self._supervising:
            self._supervised = frozenset()
        self._ending.set()
        super().stop()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """The fleet at rest, under load, with no fault except the settings."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(broker_process())
        fleet = Shop("shop", broker.bootstrap, PARTITIONS, tmp_path, session_s=SESSION_S)
        stack.callback(fleet.stop)
        load = Load(broker.bootstrap, "shop", PARTITIONS, orders_per_s=30.0)
        load.prepare(waiting=5)
        stack.callback(load.stop)
        load.start()
        for number in range(4):
            fleet.start(f"shop-{number}")
        yield fleet


def ran(shop: Shop, command: str) -> tuple[int, str]:
    """Run a line of the page; return the exit code and the output without line breaks."""
    program, *words = shlex.split(command.replace("kafka:9092", shop.bootstrap))
    try:
        done = subprocess.run(
            [Path(sys.executable).with_name(program), *words],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT, f"no answer within {COMMAND_S} s"
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def until(shop: Shop, command: str, code: int | None, facts: tuple[str, ...], seconds: float = 120) -> str:
    """Return the output once it has these facts and this exit code (None: 0 or 1)."""
    last: list[tuple[int, str]] = []

    def is_so() -> bool:
        last[:] = [ran(shop, command)]
        codes = (0, 1) if code is None else (code,)
        return last[0][0] in codes and all(fact in last[0][1] for fact in facts)

    wait_until(is_so, lambda: f"{command}: {code} {facts} in {last[0]}", seconds=seconds)
    return last[0][1]


def damage(shop: Shop, name: str) -> int:
    """Kill a worker and damage the table's folders; return a partition that it owned."""
    worker = shop.workers[name]
    worker.read_journal()
    owned = min(worker.actives)
    worker.kill()
    for manifest in worker.folder.glob("data/**/totals-*.db/MANIFEST-*"):
        manifest.write_bytes(b"no manifest")
    return owned


def retire(shop: Shop, command: str, facts: tuple[str, ...]) -> None:
    """Stop shop-1 and retire it within its session; repeat on a machine that is too slow."""
    last: list[tuple[int, str]] = []

    def is_retired() -> bool:
        shop.workers["shop-1"].kill()
        last[:] = [ran(shop, command)]
        if last[0][0] == 0 and all(fact in last[0][1] for fact in facts):
            return True
        shop.start("shop-1")
        until(shop, STATUS, 0, ("group shop: Stable, 4 members",))
        return False

    wait_until(is_retired, lambda: f"{command}: {last}", seconds=300)


def test_the_page_shows_what_is_looked_for() -> None:
    """Otherwise the test would check words that no reader sees."""
    text = " ".join((ROOT / PAGE).read_text().split())
    missing = [fact for _, facts in ANSWERS for fact in facts if fact not in text and fact[0] != '"']
    assert not missing


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(1500)
def test_each_question_is_answered_by_its_command_alone(shop: Shop) -> None:
    """Five workers, a stalled copy, a wrong interval, a corrupt folder, a shared instance id."""
    safe = f"faust-assigner deploy-check --rolling --members 4 --restart 5 {WHERE}"
    until(shop, safe, 0, (), seconds=200)
    moved = damage(shop, "shop-0")
    until(shop, STATUS, 0, ("group shop: Stable, 3 members",))
    shop.start("shop-0")
    until(shop, safe, 0, (), seconds=200)
    (shop.folder / "shop-1" / HOLD).touch()
    shop.start("shop-4")
    shop.supervise("shop-3", "shop-4")
    blocks = [block for block in ALL if block.page == PAGE and block.language == "sh"]
    assert len(blocks) == len(ANSWERS)
    for block, (code, facts) in zip(blocks, ANSWERS, strict=True):
        (command,) = block.commands
        if "groups retire" in command:
            retire(shop, command, facts)
            continue
        until(shop, command.replace("shop-orders/4", f"shop-orders/{moved}"), code, facts, seconds=400)
        if "FA002" in facts:
            shop.give_up("shop-4")  # the fix of FA002, with which question 3 ends
