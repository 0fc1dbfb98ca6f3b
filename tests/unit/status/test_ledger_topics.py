"""Ledgers of a group whose workers write them to a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.clients.groups import NoBrokerAnswers
from faust_assigner.errors import TryAgain
from faust_assigner.status import collect, ledgers
from faust_assigner.status.collect import Looks, Where
from faust_assigner.status.evidence import Evidence
from faust_assigner.status.ledgers import ledger_topics
from tests.support.status import AT, group
from tests.unit.app.ledger.test_pages import line, sample


def evidence(*places: str, **more: Any) -> Evidence:
    """Evidence with one worker per ledger location."""
    made = group(len(places))
    heard = made.evidence(**more).heard
    told = {}
    for (url, one), place in zip(sorted(heard.items()), places, strict=True):
        if one.status is not None:
            settings = {**one.status.settings, "FAUST_ASSIGNER_LEDGER": place}
            one = replace(one, status=replace(one.status, settings=settings))
        told[url] = one
    return made.evidence(heard=told)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[list[bytes], str]]:
    """The ledger lines that each URL returns."""
    found: dict[str, tuple[list[bytes], str]] = {}

    async def ask_ledgers(*_: Any, **__: Any) -> dict[str, tuple[list[bytes], str]]:
        return found

    monkeypatch.setattr(ledgers, "ask_ledgers", ask_ledgers)
    return found


def looks(bootstrap: str) -> Looks:
    """Looks at the group through these brokers."""
    where = Where(connection={"bootstrap_servers": [bootstrap]}, group_id="shop")
    return Looks(where, lambda: AT)


def test_the_topics_are_those_that_workers_name() -> None:
    """Each topic is named once; folders, disabled ledgers and silent workers name no topic."""
    found = evidence("topic:b", "/var/ledger", "", "topic:a", "topic:b", "topic:c", silent=["m5"])
    assert ledger_topics(found) == ("a", "b")


def test_a_worker_whose_version_does_not_know_the_setting_names_no_topic() -> None:
    """In a rolling deploy the other workers' topic is still named."""
    found = evidence("topic:a", "topic:b")
    url, one = min(found.heard.items())
    assert one.status is not None
    older = replace(one, status=replace(one.status, settings={}))
    assert ledger_topics(replace(found, heard={**found.heard, url: older})) == ("b",)


async def test_lines_of_workers_and_of_their_topic_are_each_told_once(
    embedded_broker: EmbeddedBroker, shown: dict[str, tuple[list[bytes], str]]
) -> None:
    """The topic has the lines of departed workers, a worker the lines that no broker accepted."""
    shown["http://m0"] = [line(2).rstrip(), line(3).rstrip()], ""
    async with AIOKafkaProducer(bootstrap_servers=embedded_broker.bootstrap) as producer:
        for each in (line(1), line(2), sample(), line(9, "other")):
            await producer.send_and_wait("ledger", each.rstrip())
    found = evidence("topic:ledger", "topic:ledger")
    lines, missing = await looks(embedded_broker.bootstrap).ledgers(found)
    assert lines == [line(n).rstrip() for n in (2, 3, 1)]
    assert missing == ()


async def test_of_a_long_topic_as_much_is_read_as_of_pages(
    embedded_broker: EmbeddedBroker,
    shown: dict[str, tuple[list[bytes], str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest rows are returned, and a sentence mentions the older rows."""
    monkeypatch.setattr(ledgers, "RECORDS_A_PAGE", 2)
    async with AIOKafkaProducer(bootstrap_servers=embedded_broker.bootstrap) as producer:
        for number in range(9):
            await producer.send_and_wait("ledger", line(number).rstrip())
    lines, missing = await looks(embedded_broker.bootstrap).ledgers(
        evidence("topic:ledger"), most_pages=2
    )
    assert lines == [line(number).rstrip() for number in range(5, 9)]
    assert missing == ("topic ledger has older rows that were not read",)


async def test_a_topic_that_cannot_be_read_is_named_and_the_workers_lines_are_told(
    embedded_broker: EmbeddedBroker, shown: dict[str, tuple[list[bytes], str]]
) -> None:
    """The cases: a missing right, a deleted topic, a name with a terminal escape sequence."""
    shown["http://m0"] = [line(2).rstrip()], ""
    lines, missing = await looks(embedded_broker.bootstrap).ledgers(evidence("topic:no\x1b[2J"))
    assert lines == [line(2).rstrip()]
    assert len(missing) == 1
    assert missing[0].startswith("the ledger topic no?[2J is unreadable: ")
    assert missing[0].isprintable()


@pytest.mark.parametrize("failures", [0, 1, collect.TRIES])
async def test_a_group_that_is_not_ready_is_described_again_after_a_pause(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is repeated up to TRIES times; the last error is raised."""
    group_looks, pauses = looks("127.0.0.1:1"), list[float]()
    answers: list[Any] = [TryAgain("loading")] * failures + ["described"]

    async def describe() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(group_looks, "_describe", describe)
    monkeypatch.setattr(collect.asyncio, "sleep", sleep)
    if failures < collect.TRIES:
        assert await group_looks._group() == "described"
    else:
        with pytest.raises(TryAgain):
            await group_looks._group()
    assert pauses == [collect.BETWEEN_S] * min(failures, collect.TRIES - 1)


async def test_a_cluster_that_does_not_answer_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client has already tried every address."""
    group_looks, asked = looks("127.0.0.1:1"), list[int]()

    async def describe() -> Any:
        asked.append(1)
        raise NoBrokerAnswers("none")

    monkeypatch.setattr(group_looks, "_describe", describe)
    with pytest.raises(NoBrokerAnswers):
        await group_looks._group()
    assert len(asked) == 1
