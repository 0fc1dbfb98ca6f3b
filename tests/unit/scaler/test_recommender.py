"""Shared looks, repeated answers, and log lines."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

import pytest

from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.errors import TryAgain
from faust_assigner.scaler import recommender as under_test
from faust_assigner.scaler.case import HOLD, STAY
from faust_assigner.scaler.recommender import MOST_ASKERS, NoRecommendation, Recommender
from faust_assigner.scaler.settings import Settings
from faust_assigner.status.evidence import Evidence
from tests.support.status import group
from tests.unit.scaler.test_look import heard


@dataclass
class Shop:
    """A group that may be unreachable or slow; counts its looks."""

    now: float = 100.0
    error: BaseException | None = None
    is_slow: bool = False
    looks: int = 0
    members: int = 3
    evidence: Evidence = field(init=False)

    def __post_init__(self) -> None:
        made = group(self.members)
        self.evidence = made.evidence(heard=heard(made))

    async def look(self) -> Evidence:
        """Take a look in a turn of the loop."""
        self.looks += 1
        await asyncio.sleep(3600 if self.is_slow else 0)
        if self.error is not None:
            raise self.error
        return Evidence(**{**self.evidence.__dict__, "taken_at": self.now})

    def recommender(self) -> Recommender:
        """Return a recommender of the group with its clock."""
        return Recommender("shop", self.look, lambda: self.now)


async def test_callers_at_the_same_time_share_a_look() -> None:
    """Ten calls share a look; a look serves calls for a few seconds, not longer."""
    shop = Shop()
    one = shop.recommender()
    found = await asyncio.gather(*(one.recommendation("a", Settings()) for _ in range(10)))
    assert {answer.size for answer in found} == {3}
    assert shop.looks == 1
    shop.now += 2.9
    await one.recommendation("b", Settings())
    assert shop.looks == 1
    shop.now += 0.2
    await one.recommendation("a", Settings())
    assert shop.looks == 2


async def test_a_caller_that_gives_up_does_not_end_the_look_of_the_others() -> None:
    """KEDA's deadline may be shorter than ours."""
    shop = Shop()
    one = shop.recommender()
    first = asyncio.create_task(one.recommendation("a", Settings()))
    second = asyncio.create_task(one.recommendation("b", Settings()))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).size == 3
    assert shop.looks == 1


async def test_a_look_that_fails_repeats_the_last_answer_for_a_bounded_time() -> None:
    """The reason names the repeat; after hold_s there is no answer until the group returns."""
    shop = Shop()
    one = shop.recommender()
    assert (await one.recommendation("a", Settings())).decision == STAY
    shop.error = TryAgain("no broker answers")
    shop.now += 120
    held = await one.recommendation("a", Settings())
    assert (held.size, held.decision) == (3, HOLD)
    assert "no broker answers; repeating the answer of 120 s ago" in held.reasons[0]
    shop.now += 1
    with pytest.raises(NoRecommendation, match=r"no broker answers.*121 s old"):
        await one.recommendation("a", Settings())
    shop.error = None
    assert (await one.recommendation("a", Settings())).decision == STAY


async def test_without_an_answer_to_repeat_there_is_none() -> None:
    """Another ScaledObject's answer is not repeated."""
    shop = Shop()
    one = shop.recommender()
    await one.recommendation("a", Settings())
    shop.error, shop.now = ConnectionError("refused"), shop.now + 10
    with pytest.raises(NoRecommendation, match="none was given yet"):
        await one.recommendation("b", Settings())


async def test_a_look_that_takes_too_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last answer is repeated meanwhile, and closing ends the look."""
    monkeypatch.setattr(under_test, "WAIT_S", 0.05)
    shop = Shop()
    one = shop.recommender()
    await one.recommendation("a", Settings())
    shop.is_slow, shop.now = True, shop.now + 10
    assert (await one.recommendation("a", Settings())).decision == HOLD
    assert (await one.recommendation("a", Settings())).decision == HOLD
    assert shop.looks == 2
    await one.close()


async def test_a_bug_of_ours_is_no_silent_hold() -> None:
    """The call ends with the traceback."""
    shop = Shop(error=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await shop.recommender().recommendation("a", Settings())


async def test_each_changed_answer_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A repeated answer is not logged; a failure has one line."""
    caplog.set_level(logging.INFO)
    shop = Shop()
    one = shop.recommender()
    for _ in range(3):
        await one.recommendation("prod/shop", Settings())
        shop.now += 10
    shop.error = TryAgain("no broker answers")
    for _ in range(30):
        shop.now += 10
        try:
            await one.recommendation("prod/shop", Settings())
        except NoRecommendation:
            continue
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[0].startswith("prod/shop: group shop, 3 workers (stay, now 3): ")
    assert "repeating the answer" in lines[1]
    assert lines[2].startswith("prod/shop: no recommendation for shop")


async def test_scaled_objects_are_remembered_apart_and_not_without_end() -> None:
    """Two ScaledObjects have their own settings; of a thousand, the newest are kept."""
    shop = Shop()
    one = shop.recommender()
    assert (await one.recommendation("a", Settings(least=6))).size == 6
    assert (await one.recommendation("b", Settings())).size == 3
    for n in range(1000):
        await one.recommendation(f"c{n}", Settings())
    assert len(one._askers) == MOST_ASKERS


async def test_other_settings_of_a_scaled_object_get_another_answer() -> None:
    """The new answer comes at once from the same look."""
    shop = Shop()
    one = shop.recommender()
    assert (await one.recommendation("a", Settings())).size == 3
    assert (await one.recommendation("a", Settings(least=6))).size == 6
    assert shop.looks == 1


async def test_a_scaled_object_that_still_asks_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ScaledObject with the oldest call is forgotten with its last answer."""
    monkeypatch.setattr(under_test, "MOST_ASKERS", 2)
    shop = Shop()
    one = shop.recommender()
    for name in ("a", "b", "a", "c"):
        await one.recommendation(name, Settings())
    shop.error, shop.now = TryAgain("no broker answers"), shop.now + 10
    assert (await one.recommendation("a", Settings())).decision == HOLD
    with pytest.raises(NoRecommendation, match="none was given yet"):
        await one.recommendation("b", Settings())


async def test_the_age_of_a_repeated_answer_counts_from_the_newest_answer() -> None:
    """A later look has already given an answer."""
    shop = Shop()
    one = shop.recommender()
    await one.recommendation("a", Settings())
    shop.now += 100
    await one.recommendation("a", Settings())
    shop.error, shop.now = TryAgain("no broker answers"), shop.now + 60
    held = await one.recommendation("a", Settings())
    assert "repeating the answer of 60 s ago" in held.reasons[0]


async def test_a_look_that_takes_too_long_serves_later_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller's timeout does not cancel the look; closing does."""
    monkeypatch.setattr(under_test, "WAIT_S", 0.02)
    shop = Shop(is_slow=True)
    one = shop.recommender()
    with pytest.raises(NoRecommendation, match="did not answer within"):
        await one.recommendation("a", Settings())
    looking = one._looking
    assert looking is not None
    assert not looking.done()
    await one.close()
    assert looking.cancelled()


async def test_three_seconds_after_a_look_a_call_looks_again() -> None:
    """A look is stale after exactly three seconds."""
    shop = Shop()
    one = shop.recommender()
    await one.recommendation("a", Settings())
    shop.now += 3.0
    await one.recommendation("a", Settings())
    assert shop.looks == 2


async def test_a_look_is_fresh_for_three_seconds_from_its_end() -> None:
    """A slow group is not asked again by the next call."""
    shop = Shop()

    async def look() -> Evidence:
        found = await shop.look()
        shop.now += 5.0
        return found

    one = Recommender("shop", look, lambda: shop.now)
    await one.recommendation("a", Settings())
    shop.now += 2.9
    await one.recommendation("b", Settings())
    assert shop.looks == 1
    shop.now += 0.2
    await one.recommendation("b", Settings())
    assert shop.looks == 2


async def test_repeated_answers_have_the_age_of_the_first_one() -> None:
    """A repeated answer is no new answer: its size, its age and the log's text follow the last look."""
    shop = Shop()
    one = shop.recommender()
    first = await one.recommendation("a", Settings())
    shop.error = TryAgain("no broker answers")
    ages = []
    for _ in range(2):
        shop.now += 20
        held = await one.recommendation("a", Settings())
        assert (held.decision, held.size) == (HOLD, first.size)
        ages.append(held.reasons[0].rpartition("answer of ")[2])
    assert ages == ["20 s ago", "40 s ago"]
    shop.error = None
    assert (await one.recommendation("a", Settings())).decision == first.decision


async def test_a_forgotten_group_gets_its_first_worker_if_it_may_sleep() -> None:
    """Kafka forgets a sleeping group with its offsets, and then nothing else would wake the group."""
    shop, sleepy = Shop(), Settings(least=0)
    one = shop.recommender()
    assert (await one.recommendation("a", sleepy)).size == 3
    shop.error = GroupNotFound("no group")
    shop.now += 120.0
    assert (
        (await one.recommendation("a", sleepy)).reasons[0].startswith("the group does not answer")
    )
    shop.now += 1.0
    found = await one.recommendation("a", sleepy)
    assert (found.size, found.decision, found.is_active, found.reasons) == (
        1 + one._askers["a"].memory.standbys,
        HOLD,
        True,
        ("no group",),
    )
    assert (await one.recommendation("new", replace(sleepy, most=1))).size == 1
    with pytest.raises(NoRecommendation, match="no group"):
        await one.recommendation("b", Settings())
    shop.error = None
    assert (await one.recommendation("new", sleepy)).decision == HOLD
