"""The demo's script under our assignor: own or given broker, with and without transactions."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.pipeline.simulate.facts import facts_of
from faust_assigner.pipeline.simulate.measured import calibrated
from faust_assigner.pipeline.simulate.policies import arms, load
from faust_assigner.pipeline.simulate.recorded import week
from faust_assigner.simulation.fleet import Costs, Kind
from faust_assigner.simulation.simulator import simulate
from faust_assigner.testing.broker import broker_process
from tests.support.browser import chromium, tab
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
#: A fourth of the demo's own orders: each partition still has five in a second.
FEW_ORDERS = ("--orders-per-s", "60")


def run_demo(*arguments: str, timeout_s: float = 380) -> str:
    """Return the demo's output; the demo must exit with 0 even on a busy machine."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "examples.orders.demo"),
            *("--assignor", "ours", *FEW_ORDERS, *arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def records_equal(said: str) -> int:
    """Return the number of records equal to the model's."""
    found = re.search(r"equal, (\d+) records", said)
    assert found is not None, said
    return int(found[1])


def commands_of(said: str) -> list[str]:
    """Return the commands printed at the demo's end."""
    program = shlex.quote(str(Path(sys.executable).with_name("faust-assigner").relative_to(ROOT)))
    return [line.strip() for line in said.splitlines() if line.startswith(f"    {program} ")]


@dataclass(frozen=True)
class Ended:
    """A finished demo: its whole output and the path of its ledger."""

    said: str
    ledger: Path


@pytest.fixture(scope="module")
def runs() -> list[Ended]:
    """The demos that have run."""
    return []


@pytest.fixture
def ended(
    request: pytest.FixtureRequest, runs: list[Ended], tmp_path_factory: pytest.TempPathFactory
) -> Ended:
    """One run on the embedded broker that several tests share; a retried test has its own run."""
    if not runs or getattr(request.node, "execution_count", 1) > 1:
        ledger = tmp_path_factory.mktemp("demo") / "ledger"
        runs.append(Ended(run_demo("--ledger", str(ledger)), ledger))
    return runs[-1]


def children_of(pid: int) -> list[int]:
    """Return the processes that threads of ``pid`` started."""
    listings = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for listing in listings for child in listing.read_text().split()]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.processes
def test_demo_with_exactly_once_processes_each_order_once_on_a_given_broker(tmp_path: Path) -> None:
    """A join, a bounce, a SIGKILL and a return lose no order and process none twice."""
    with broker_process(tmp_path, "group.initial.rebalance.delay.ms=500") as broker:
        said = run_demo("--exactly-once", "--bootstrap", broker.bootstrap, timeout_s=580)
    assert "static members, exactly_once" in said
    assert records_equal(said) > 6_000
    assert re.search(r"orders repeated\D+0\D", said), said


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(120)
def test_a_demo_that_is_told_to_stop_leaves_nothing_running() -> None:
    """SIGTERM ends the demo, its broker and its workers; the exit code has the reason."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.orders.demo", "--assignor", "ours"], cwd=ROOT
    )
    try:
        began = time.monotonic()
        while len(started := children_of(demo.pid)) < 4:
            assert time.monotonic() - began < 60
            time.sleep(0.1)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(timeout=50) == 128 + signal.SIGTERM
    finally:
        demo.kill()
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("one demo")
def test_demo_ends_with_equal_tables_on_the_embedded_broker(ended: Ended) -> None:
    """The demo starts and stops the embedded broker itself; its ledger replays the run."""
    said, ledger = ended.said, ended.ledger
    assert records_equal(said) > 6_000
    assert re.search(r"a fourth worker joins\n.* moves 3 \(minimum 3\), cold 0;", said), said
    facts = facts_of(accepted_rows([str(ledger)]))
    began = next(n for n, decision in enumerate(facts.decisions) if len(decision["members"]) == 3)
    facts = replace(facts, decisions=facts.decisions[began:])
    costs, measured = calibrated(Costs(), facts.recoveries, facts.decisions)
    assert (costs.session_timeout_s, "session_timeout_s" in measured) == (6.0, True)
    scenario = week(facts).scenario(0, 1)
    assert scenario.start == ("worker-1", "worker-2", "worker-3")
    happened = [(event.kind, event.member_id) for event in scenario.events]
    # A bounce that a slow machine ends after the session is in the ledger, a quick bounce is not.
    assert [each for each in happened if each[1] != "worker-2"] == [
        (Kind.JOIN, "worker-4"),
        (Kind.BOUNCE, "worker-1"),
    ]
    outcome = simulate(scenario, arms(("ours+static",), (1,))[0], load("ours"), costs=costs)
    ids = {decision["decision_id"] for decision in facts.decisions[1:]}
    placed = [row.values for row in accepted_rows([str(ledger)]) if row.table == "assignment"]
    moved = [
        row
        for row in placed
        if row["decision_id"] in ids and row["topic"] == "orders" and row["moved"]
    ]
    # Each change has one round, a second one if owners revoke, and as many once copies are warm.
    assert 3 <= outcome.rebalances <= len(ids) <= 4 * outcome.rebalances
    # Faust's leader topic is its own task; a task promoted off its target moves once more.
    assert abs(outcome.moved - len(moved)) <= 4
    assert (outcome.cold_moves, sum(row["cold"] for row in moved)) == (0, 0)


def typed(command: str) -> str:
    """Return the output of a printed command, typed in the clone's folder."""
    columns = {"COLUMNS": "200"}  # the width of a pipe
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=os.environ | columns,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("one demo")
def test_the_commands_that_the_demo_ends_with_answer_when_all_is_over(ended: Ended) -> None:
    """The last commands are ``status``, ``why``, ``ui``; the others need the extra ``ledger``."""
    *further, status, why, page = commands_of(ended.said)
    assert [command.split()[1] for command in further] == ["history", "simulate", "weights"]
    assert ended.said.endswith(f"    {page}\n")
    assert all(map(typed, further))
    lines = typed(status).splitlines()
    assert re.fullmatch(
        rf"saved at .* UTC in {ended.ledger.parent}/demo-status.jsonl; .*", lines[0]
    )
    assert lines[1].startswith("group shop-ours: Stable, 4 members, 4 answered, 4 ready;")
    for name in ("worker-1", "worker-2", "worker-3", "worker-4"):
        (line,) = [line for line in lines if line.startswith(name)]
        assert re.search(r" ready .* of customers, orders, tables rates, totals ", line), line
    story = typed(why)
    assert re.match(r"orders/\d+ moved from worker-\d to worker-\d, warm", story), story
    assert "\navoided by: " in story


@pytest.fixture
def page(ended: Ended, tmp_path: Path) -> Iterator[str]:
    """Run the last command on a free port; yield the page's address."""
    command = f"exec {commands_of(ended.said)[-1]} --port 0"
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    try:
        wait_until(lambda: "Ctrl-C" in log.read_text(), log.read_text, seconds=90)
        found = re.search(r"http://\S+", log.read_text())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("one demo")
def test_the_page_of_an_ended_demo_has_its_last_state_and_its_rounds(page: str) -> None:
    """The page states that it is saved and never claims to refresh."""
    with urllib.request.urlopen(page, timeout=30) as answer:
        shown = answer.read().decode()
    assert "A saved status" in shown
    assert "looks every" not in shown
    assert all(f"worker-{number}" in shown for number in (1, 2, 3, 4))
    assert "was not back within its session timeout" in shown or "members left" in shown


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("one demo")
@pytest.mark.browser
async def test_a_browser_shows_the_page_of_an_ended_demo(page: str, tmp_path: Path) -> None:
    """The grid, the rounds, and on a click a task's story; the folder keeps a screenshot."""
    with chromium(tmp_path) as port:
        async with tab(port) as found:
            await found.look()
            await found.open(page)
            await found.until("document.querySelectorAll('.grid tbody tr').length == 4")
            await found.until("document.body.innerText.includes('seen last')")
            await found.picture(tmp_path / "demo.png", whole=True)
            await found.click(".grid tbody a")
            await found.until("!document.getElementById('story').hidden")
            await found.picture(tmp_path / "story.png")
            assert found.complaints == []
