"""A case's figures and decisions where each number differs, and the edges of the scaler's server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.scaler import server
from faust_assigner.scaler.case import GROW, HOLD, STAY, Case, Recommendation
from faust_assigner.scaler.change import grown, shrunk
from faust_assigner.scaler.look import Source
from faust_assigner.scaler.memory import Memory, Sample, observed
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.recommender import Recommender
from faust_assigner.scaler.render import as_text
from faust_assigner.scaler.server import Listening
from faust_assigner.scaler.servicer import ExternalScaler
from faust_assigner.scaler.settings import Settings, read_settings
from tests.unit.scaler.test_decisions import NOW, USEFUL, known, look, told


def case(
    members: int, present: int, *loads: tuple[float, int, float], settings: Any = None, **more: Any
) -> Case:
    """Return a case of twelve tasks; ``present`` differs from the number of members."""
    backlog = loads[-1][1] if loads else 0
    return Case(
        look=look(members, backlog),
        settings=Settings(**(settings or {})),
        memory=known(*loads, **more),
        present=present,
    )


def test_the_allowed_backlog_and_the_unmeasured_rate_are_of_the_workers_that_are_there() -> None:
    """The recommended size does not process records yet."""
    asked = case(3, 6, (60.0, 900, 20.0), (0.0, 800, 25.0), settings={"target_lag": 200.0})
    assert asked.target(asked.memory.samples[-1]) == 600.0
    samples = tuple(
        replace(one, processed=done)
        for one, done in zip(asked.memory.samples, (100, 1_300), strict=True)
    )
    behind = Case(
        look=asked.look,
        settings=asked.settings,
        memory=Memory(tasks=12, samples=samples),
        present=6,
    )
    # 20 records/s by three workers with four of twelve tasks each
    assert behind.rate == pytest.approx(20.0 * 4 / 12)
    wanted = told(7, 6, STAY, "why", arrival=25.0, backlog=800, worker_rate=None)
    assert behind.answer(7, STAY, "why") == wanted
    asleep = behind.answer(7, HOLD, "one", "two", is_active=False)
    assert (asleep.is_active, asleep.reasons) == (False, ("one", "two"))


def test_the_size_grows_for_the_last_look_if_each_look_needs_more() -> None:
    """The window is the time to grow, not the time to shrink; the reasons name the chosen size."""
    loads = ((40.0, 0, 10.0), (30.0, 0, 1_000.0), (15.0, 0, 900.0), (0.0, 0, 420.0))
    settings = {"worker_rate": 100.0, "up_s": 30.0, "down_s": 60.0}
    made = grown(case(4, 4, *loads, settings=settings))
    assert made == told(
        6,
        4,
        GROW,
        "420 records/s arrive; 4 workers process at most 400",
        "6 workers have at most 2 tasks each and process 600 records/s",
        arrival=420.0,
        worker_rate=100.0,
    )
    some = ((30.0, 0, 500.0), (15.0, 0, 10.0), (0.0, 0, 500.0))
    assert grown(case(4, 4, *some, settings=settings)) is None


def test_a_size_with_just_the_needed_rate_is_no_shortage() -> None:
    """The reasons count the recommended size's workers, and end with the new size."""
    backlog = 60_000
    loads = ((30.0, backlog, 1_000.0), (0.0, backlog, 1_000.0))
    settings = {"worker_rate": 100.0, "grow_at": 0.9, "catch_up_s": 300.0}
    made = grown(case(5, 6, *loads, settings=settings))
    assert made is not None
    assert made.reasons == (
        "1,000 records/s arrive; 6 workers process at most 600",
        "60,000 records wait, the limit is 30,000; they must be processed within 300 s",
        "12 workers have at most 1 task each and process 1,200 records/s",
    )


def test_two_looks_show_a_backlog_that_does_not_shrink() -> None:
    """One look is not enough."""
    settings = {"worker_rate": 100.0}
    two = ((120.0, 9_000, 200.0), (0.0, 9_000, 200.0))
    made = grown(case(4, 4, *two, settings=settings))
    assert made is not None
    assert (made.decision, made.size) == (GROW, 6)
    early = Sample(at=NOW - 121.0)
    one = case(4, 4, (0.0, 9_000, 200.0), settings=settings)
    memory = Memory(tasks=12, samples=(early, *one.memory.samples))
    assert grown(Case(look=one.look, settings=one.settings, memory=memory, present=4)) is None


@pytest.mark.parametrize(("peak", "size"), [(155.0, 3), (156.0, 4)])
def test_the_peak_is_compared_with_the_smaller_sizes_own_limit(peak: float, size: int) -> None:
    """With a spare worker two of three workers process 200, of which 7/9 may be used."""
    settings = {"worker_rate": 100.0, "down_s": 600.0, "spare": 1}
    assert shrunk(case(4, 4, (600.0, 0, peak), (0.0, 0, 1.0), settings=settings)).size == size


def test_a_group_that_lost_its_workers_is_held_even_if_it_may_sleep() -> None:
    """Its recommended size stays, with no records waiting."""
    made, memory = recommend(look(0), Settings(least=0), known(size=4, changed_at=7.0))
    assert made == told(4, 4, HOLD, "the group has no members; 0 records wait")
    assert (memory.size, memory.changed_at) == (4, 7.0)


def sources(*rows: tuple[int | None, int]) -> Mapping[Any, Source]:
    """Return partitions with (committed, end)."""
    return {
        ("orders", n): Source(owner=f"w{n}", committed=committed, end=end)
        for n, (committed, end) in enumerate(rows)
    }


def test_a_look_counts_from_the_look_before_it_and_never_backwards() -> None:
    """A reset offset or a recreated topic counts as no records; new partitions do not count."""
    memory = Memory()
    looks = (
        (100.0, sources((10, 50), (None, 5))),
        (110.0, sources((25, 70), (3, 9))),
        (130.0, sources((20, 80), (8, 2), (7, 900))),
    )
    for at, some in looks:
        memory = observed(memory, replace(look(2), taken_at=at, sources=some), Settings())
    found = [(one.at, one.arrived, one.processed, one.backlog) for one in memory.samples]
    assert found == [(100.0, 0, 0, 40), (110.0, 24, 15, 51), (130.0, 34, 20, 953)]
    assert [one.arrival for one in memory.samples] == pytest.approx([None, 2.4, 34 / 30])


# -- answers --------------------------------------------------------------------------------------


async def test_a_hold_and_its_repetition_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """A further repetition is not logged; a new answer of the same kind is."""
    caplog.set_level(logging.INFO)

    async def never() -> Any:
        raise AssertionError

    made = Recommender("shop", never, lambda: 0.0)
    one = made._asker("prod/shop")
    held = Recommendation(size=3, present=3, decision=HOLD, reasons=("it restores",))
    for is_repeated in (False, True, True, False):
        made._log("prod/shop", one, held, is_repeated=is_repeated)
    line = "prod/shop: group shop, 3 workers (hold, now 3): it restores"
    assert [record.getMessage() for record in caplog.records] == [line] * 3


async def test_a_scaled_object_is_named_by_the_beginning_of_its_name() -> None:
    """Unprintable characters are replaced after the cut."""
    asked: list[Any] = []

    async def recommendation(name: str, settings: Any) -> str:
        asked.append((name, settings))
        return "found"

    maker: Any = SimpleNamespace(group_id="shop", recommendation=recommendation)
    ref = SimpleNamespace(
        namespace="prod", name="s\nhop" + "x" * 400, scalerMetadata={"group": "shop"}
    )
    scaler: Any = ExternalScaler(maker, {"min": "2"})
    assert await scaler._ask(ref) == "found"
    assert asked == [(("prod/s?hop" + "x" * 400)[:253], Settings(least=2))]


@pytest.mark.parametrize("error", [OSError("no file"), ValueError("a null byte")])
def test_the_files_of_tls_are_read_without_asking_for_a_password(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An unreadable file of either kind is an error of the configuration."""
    calls: list[Any] = []

    class Context:
        def __init__(self, protocol: Any) -> None:
            self.error: Exception | None = None

        def load_cert_chain(self, *files: Path, password: str | None) -> None:
            calls.append(("pair", *files, password))

        def load_verify_locations(self, file: Path) -> None:
            calls.append(("authority", file))
            raise error

    monkeypatch.setattr(server.ssl, "SSLContext", Context)
    cert, key, authority = Path("/cert"), Path("/key"), Path("/ca")
    listening = Listening(host="10.0.0.1", port=1, cert=cert, key=key, client_ca=authority)
    with pytest.raises(ConfigError, match=f"the TLS files cannot be read as PEM: {error}"):
        listening.check_options()
    assert calls == [("pair", cert, key, ""), ("authority", authority)]


def test_the_bounds_of_the_sizes() -> None:
    """Six digits are a size; a maximum of no workers is none."""
    assert read_settings({"max": "999999", "min": "100000"}).least == 100_000
    with pytest.raises(ConfigError, match="max: 0 is below min, which is 0"):
        Settings(least=0, most=0)


def test_a_rate_of_zero_is_a_rate() -> None:
    """Only an unknown figure is called unknown."""
    made = Recommendation(
        size=1, present=2, decision=STAY, reasons=("why",), tasks=3, useful=USEFUL[:2],
        arrival=0.0, worker_rate=0.0, backlog=1_234, notes=("a note",),
    )  # fmt: skip
    assert as_text("shop", made).splitlines() == [
        "shop: 1 worker (stay; 2 now)",
        "  why          why",
        "  tasks        3; sizes that help: 1, 2",
        "  load         0 records/s arrive, 1,234 records wait",
        "  one worker   processes at most 0 records/s",
        "  not known    a note",
    ]
