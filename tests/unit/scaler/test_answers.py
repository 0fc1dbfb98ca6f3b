"""KEDA's calls, the bounds of each setting, and repeated answers, without a server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import grpc
import pytest

from faust_assigner.errors import ConfigError, TryAgain
from faust_assigner.scaler import servicer
from faust_assigner.scaler.case import GROW, HOLD, Recommendation
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.recommender import NoRecommendation
from faust_assigner.scaler.render import as_json, as_text
from faust_assigner.scaler.servicer import ExternalScaler
from faust_assigner.scaler.settings import KEYS, Settings, read_metadata, read_settings
from faust_assigner.scaler.sizes import capacity, is_within_tolerance, most_tasks, useful_sizes
from tests.unit.scaler.test_recommender import Shop

FOUND = Recommendation(size=5, present=4, decision=GROW, reasons=("why",))


class Aborted(Exception):
    """The end of a call with a status."""


class Context:
    """The context of a call."""

    def __init__(self) -> None:
        self.status: Any = None

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        """End the call."""
        self.status = code, text
        raise Aborted


class Recommender:
    """A recommender with scripted answers that records the askers and their settings."""

    group_id = "shop"

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []

    async def recommendation(self, asker: str, settings: Settings) -> Any:
        """Return the next answer; repeat the last answer."""
        self.asked.append((asker, settings))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return found


def ref(**metadata: str) -> Any:
    """Return a ScaledObject of the group."""
    given = {"group": "shop", **metadata}
    return pb.ScaledObjectRef(name="app", namespace="prod", scalerMetadata=given)


def scaler(*answers: Any, **defaults: str) -> tuple[ExternalScaler, Recommender]:
    """Return a servicer with these answers."""
    recommender: Any = Recommender(*answers)
    return ExternalScaler(recommender, defaults), recommender


async def test_each_call_answers_by_the_size_and_the_settings_of_its_scaled_object() -> None:
    """A key of the ScaledObject precedes the default; the metric is the size."""
    made, recommender = scaler(replace(FOUND, is_active=False), FOUND, min="2", spare="1")
    assert (await made.IsActive(ref(min="3"), Context())).result is False
    asked = pb.GetMetricsRequest(scaledObjectRef=ref(), metricName="workers")
    [value] = (await made.GetMetrics(asked, Context())).metricValues
    assert (value.metricName, value.metricValue, value.metricValueFloat) == ("workers", 5, 5.0)
    assert recommender.asked == [
        ("prod/app", Settings(least=3, spare=1)),
        ("prod/app", Settings(least=2, spare=1)),
    ]
    [spec] = (await made.GetMetricSpec(ref(), Context())).metricSpecs
    assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("workers", 1, 1.0)
    assert len(recommender.asked) == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("min: bad"), grpc.StatusCode.INVALID_ARGUMENT),
        (TryAgain("away"), grpc.StatusCode.UNAVAILABLE),
        (NoRecommendation("away"), grpc.StatusCode.UNAVAILABLE),
    ],
)
async def test_an_error_is_the_status_of_its_call(error: Exception, code: Any) -> None:
    """The status has the error's text; another metric's name has its own text."""
    made, _ = scaler(error)
    context = Context()
    with pytest.raises(Aborted):
        await made.IsActive(ref(), context)
    assert context.status == (code, str(error))
    other = pb.GetMetricsRequest(scaledObjectRef=ref(), metricName="x" * 300)
    with pytest.raises(Aborted):
        await made.GetMetrics(other, context)
    text = f"metricName: must be workers, got {'x' * 253!r}"
    assert context.status == (grpc.StatusCode.INVALID_ARGUMENT, text)


async def test_a_stream_sends_each_change_and_frees_its_place_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place is free after an error or the caller's end; a full server refuses a stream."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(servicer, "asyncio", type("Fake", (), {"sleep": staticmethod(sleep)}))
    monkeypatch.setattr(servicer, "MOST_STREAMS", 1)
    on, off = replace(FOUND, is_active=True), replace(FOUND, is_active=False)
    made, _ = scaler(on, on, off, off, on, TryAgain("away"))
    context = Context()
    sent: list[bool] = []

    async def listen() -> None:
        async for answer in made.StreamIsActive(ref(), context):
            sent.append(answer.result)

    with pytest.raises(Aborted):
        await listen()
    assert sent == [True, False, True]
    assert slept == [10.0] * 5
    assert context.status == (grpc.StatusCode.UNAVAILABLE, "away")
    made, _ = scaler(off)
    open_one = made.StreamIsActive(ref(), Context())
    assert (await anext(open_one)).result is False
    with pytest.raises(Aborted):
        await anext(made.StreamIsActive(ref(), context))
    assert context.status == (grpc.StatusCode.RESOURCE_EXHAUSTED, "1 streams are open already")
    await open_one.aclose()  # type: ignore[attr-defined]
    again = made.StreamIsActive(ref(), Context())
    assert (await anext(again)).result is False
    await again.aclose()  # type: ignore[attr-defined]


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "least", "below", "most", "above"),
    [
        ("min", "0", "-1", "999999", "1000000"),
        ("max", "1", "0", "999999", "1000000"),
        ("spare", "0", "-1", "999999", "1000000"),
        ("targetLag", "1", "0.99", "1e12", "1.1e12"),
        ("targetLagSeconds", "1", "0.99", "86400", "86400.1"),
        ("catchUpSeconds", "1", "0.99", "86400", "86400.1"),
        ("workerRate", "0.001", "0.0009", "1e12", "1.1e12"),
        ("growAt", "0.75", "0.04", "1", "1.01"),
        ("shrinkAt", "0.05", "0.049", "0.89", "1.01"),
        ("upSeconds", "0", "-0.1", "86400", "86400.1"),
        ("downSeconds", "0", "-0.1", "86400", "86400.1"),
        ("settleSeconds", "0", "-0.1", "86400", "86400.1"),
        ("holdSeconds", "0", "-0.1", "86400", "86400.1"),
    ],
)
def test_each_setting_has_its_own_bounds(
    key: str, least: str, below: str, most: str, above: str
) -> None:
    """The bounds are valid values; only the key's own setting changes."""
    name = KEYS[key]
    for text in (least, most):
        found = read_settings({key: text})
        assert found == replace(Settings(), **{name: float(text)})
    for text in (below, above):
        with pytest.raises(ConfigError, match=f"^{key}: must be "):
            read_settings({key: text})


def test_a_long_value_is_cut_in_its_error_and_its_group_is_named() -> None:
    """The value is cut after 40 characters."""
    with pytest.raises(ConfigError) as refused:
        read_settings({"min": "x" * 41})
    assert str(refused.value).endswith(f"got {'x' * 40 + '...'!r}")
    with pytest.raises(ConfigError) as refused:
        read_settings({"min": "x" * 40})
    assert str(refused.value).endswith(f"got {'x' * 40!r}")
    with pytest.raises(
        ConfigError, match=r"^group: this scaler serves the group shop, got 'other'$"
    ):
        read_metadata({"group": "other"}, "shop", {})
    with pytest.raises(ConfigError, match=r"^group: missing; this scaler serves the group shop$"):
        read_metadata({}, "shop", {})
    with pytest.raises(ConfigError, match=r"^group: missing; this scaler serves the group shop$"):
        read_metadata({"group": ""}, "shop", {})


def test_contradictions_name_both_values() -> None:
    """A largest size equal to the least size is valid."""
    with pytest.raises(ConfigError, match=r"^max: 3 is below min, which is 4$"):
        Settings(least=4, most=3)
    with pytest.raises(ConfigError, match=r"^shrinkAt: 0.8 must be below growAt, which is 0.8$"):
        Settings(shrink_at=0.8, grow_at=0.8)
    assert Settings(least=4, most=4).most == 4
    assert Settings(least=0, most=1).most == 1


# -- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 12, 30, 97])
def test_useful_sizes_are_those_with_a_smaller_largest_share(tasks: int) -> None:
    """The expected sizes come from a trial of each size; a size in between gains no share."""
    wanted = [
        size
        for size in range(1, tasks + 1)
        if size == 1 or most_tasks(tasks, size) < most_tasks(tasks, size - 1)
    ]
    assert useful_sizes(tasks, 1, max(1, tasks)) == (tuple(wanted) or (1,))
    for least, most in ((2, 9), (5, 5), (9, 2)):
        inside = tuple(size for size in wanted if least <= size <= most)
        assert useful_sizes(tasks, least, most) == (inside or (least,))


def test_a_change_of_a_tenth_is_within_the_tolerance() -> None:
    """The tolerance holds in both directions; any change from zero exceeds it."""
    told = [
        is_within_tolerance(*pair) for pair in ((20, 22), (20, 18), (20, 23), (20, 17), (9, 10))
    ]
    assert told == [True, True, False, False, False]
    assert (is_within_tolerance(0, 0), is_within_tolerance(0, 1)) == (True, False)
    assert capacity(10.0, 7, 3) == pytest.approx(70 / 3)


# -- repeated answers -----------------------------------------------------------------------------


async def test_a_repeated_answer_keeps_its_figures_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The repeated decision is HOLD; a missing answer is logged as a warning once."""
    caplog.set_level(logging.INFO)
    shop = Shop()
    made = shop.recommender()
    first = await made.recommendation("prod/app", Settings(hold_s=50.0))
    shop.error, shop.now = TryAgain("no broker answers"), shop.now + 50
    told = "the group does not answer: no broker answers; repeating the answer of 50 s ago"
    for _ in range(2):
        held = await made.recommendation("prod/app", Settings(hold_s=50.0))
        assert held == replace(first, decision=HOLD, reasons=(told,))
    shop.now += 1
    missing = "no recommendation for shop: no broker answers (the last is 51 s old)"
    for _ in range(2):
        with pytest.raises(NoRecommendation) as failure:
            await made.recommendation("prod/app", Settings(hold_s=50.0))
        assert str(failure.value) == missing
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        ("INFO", f"prod/app: group shop, 3 workers (stay, now 3): {first.reasons[0]}"),
        ("INFO", f"prod/app: group shop, 3 workers (hold, now 3): {told}"),
        ("WARNING", f"prod/app: {missing}"),
    ]


async def test_after_a_failed_look_the_next_call_looks_again() -> None:
    """A failure is not stored; each asker has its own last answer with its age."""
    shop = Shop(error=TryAgain("away"))
    made = shop.recommender()
    for name in ("a", "b"):
        with pytest.raises(NoRecommendation, match="none was given yet"):
            await made.recommendation(name, Settings())
    assert shop.looks == 2
    shop.error = None
    await made.recommendation("a", Settings())
    shop.now += 20
    await made.recommendation("b", Settings())
    shop.error, shop.now = TryAgain("away"), shop.now + 5
    ages = [(await made.recommendation(name, Settings())).reasons[0] for name in ("a", "b")]
    assert [age.rpartition("of ")[2] for age in ages] == ["25 s ago", "5 s ago"]
    await asyncio.sleep(0)


async def test_the_age_of_an_answer_counts_from_the_answer_and_not_from_its_look() -> None:
    """A look serves answers for several seconds."""
    shop = Shop()
    made = shop.recommender()
    await made.recommendation("a", Settings())
    shop.now += 2.5
    await made.recommendation("b", Settings())
    assert shop.looks == 1
    shop.error, shop.now = TryAgain("away"), shop.now + 10
    ages = [(await made.recommendation(name, Settings())).reasons[0] for name in ("a", "b")]
    assert [age.rpartition("of ")[2] for age in ages] == ["12 s ago", "10 s ago"]


# -- texts ----------------------------------------------------------------------------------------


def test_the_whole_json_of_a_recommendation() -> None:
    """Each field has its name, after the version and the group."""
    found = replace(FOUND, useful=(1, 5), tasks=5, arrival=2.5, backlog=7, notes=("note",))
    told = json.loads(as_json("shop", found))
    assert told == {"version": 1, "group": "shop", **json.loads(json.dumps(asdict(found)))}
    assert "\n" not in as_json("shop", found)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ("hold", "hold: the size must not change now"),
        ("grow", "grow"),
        ("shrink", "shrink"),
        ("stay", "stay"),
        ("sleep", "sleep: no worker is needed"),
    ],
)
def test_the_words_of_each_decision(decision: str, words: str) -> None:
    """Zero takes the plural "workers"."""
    found = replace(FOUND, size=0, decision=decision, worker_rate=1_234.5, arrival=0.0)
    lines: Sequence[str] = as_text("shop", found).splitlines()
    assert lines == [
        f"shop: 0 workers ({words}; 4 now)",
        "  why          why",
        "  load         0 records/s arrive, 0 records wait",
        "  one worker   processes at most 1,234 records/s",
    ]
