"""A ledger in a topic, read without Spark: each wanted line once, and a report of omissions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from click.testing import CliRunner

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Row, parse
from faust_assigner.pipeline.ledgers.progress import news
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.rows import accepted_rows, read_here
from faust_assigner.pipeline.ledgers.topic_source import (
    TopicSource,
    offsets_since,
    read_lines_of,
    read_span,
    read_story_lines,
    topic_now,
)
from faust_assigner.snapshots.changelog import UnknownTopicError
from tests.unit.app.ledger.test_pages import line, sample
from tests.unit.story.ledgers import told

LINES = [line(0), sample(), line(1, "other"), line(2), b"no row", line(3)]


async def _send(bootstrap: str, lines: list[bytes | None], partitions: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number, each in enumerate(lines):
            value = None if each is None else each.rstrip(b"\n")
            await producer.send_and_wait("ledger", value, b"w", partition=number % partitions)


@pytest.fixture
def broker() -> EmbeddedBroker:
    """A broker with topics of two partitions."""
    return EmbeddedBroker(settings={"num.partitions": 2})


def fill(broker: EmbeddedBroker, *lines: bytes | None) -> str:
    """Fill the topic with a ledger's lines."""
    asyncio.run(_send(broker.bootstrap, list(lines), 2))
    return f"kafka://{broker.bootstrap}/ledger"


def test_rows_of_a_topic_are_those_of_a_file(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Refused lines have a partition and an offset; a tombstone does not count."""
    (tmp_path / "w.jsonl").write_bytes(line(7))
    refused = Refused(keep=9)
    with broker:
        ledger = fill(broker, *LINES, None)
        found = list(accepted_rows([ledger, str(tmp_path)], refused))
        assert len(read_here([ledger], Tolerance())[0]) == 5
    wanted = [parse(each) for each in [*LINES[0::2], *LINES[1::2], line(7)]]
    assert found == [row for row in wanted if isinstance(row, Row)]
    assert (refused.accepted, refused.lines) == (6, 1)
    [(place, offset, reason)] = refused.kept
    assert (place, offset) == (f"{ledger}/0", 2)
    assert "not JSON" in reason


def test_the_counts_of_several_ledgers_are_added(broker: EmbeddedBroker) -> None:
    """A tolerance by share judges the lines of all of them."""
    refused = Refused(keep=9)
    with broker:
        ledger = fill(broker, *LINES)
        for _ in range(2):
            assert len(list(accepted_rows([ledger], refused))) == 5
    assert (refused.accepted, refused.lines) == (10, 2)


def test_lines_of_a_transaction_that_was_given_up_are_not_read(broker: EmbeddedBroker) -> None:
    """Only lines of committed transactions become rows or story lines."""

    async def send() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="w"
        ) as producer:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send_and_wait("ledger", line(number).rstrip(), b"w", partition=0)
                await (producer.abort_transaction if number % 2 else producer.commit_transaction)()

    with broker:
        asyncio.run(send())
        rows = list(accepted_rows([f"kafka://{broker.bootstrap}/ledger"], Refused(keep=9)))
        where = {"bootstrap_servers": [broker.bootstrap]}
        told_lines, _ = asyncio.run(read_story_lines(where, "ledger", "shop"))
    assert rows == [parse(line(0)), parse(line(2))]
    assert told_lines == [line(0).rstrip(), line(2).rstrip()]


def test_a_story_has_the_lines_of_its_group_without_samples(broker: EmbeddedBroker) -> None:
    """Without a group, the lines of all groups are returned."""
    with broker:
        fill(broker, *LINES)
        where = {"bootstrap_servers": [broker.bootstrap]}
        lines, left_out = asyncio.run(read_story_lines(where, "ledger", "shop"))
        everyone, _ = asyncio.run(read_story_lines(where, "ledger", None))
    assert (sorted(lines), left_out) == (
        sorted(one.rstrip() for one in (line(0), line(2), line(3))),
        "",
    )
    assert len(everyone) == 5


def test_of_a_long_topic_the_newest_records_are_read_and_it_is_said(broker: EmbeddedBroker) -> None:
    """The limit is shared by all partitions; a read ends after its time."""
    with broker:
        fill(broker, *(line(number) for number in range(40)))
        where = {"bootstrap_servers": [broker.bootstrap]}
        taken: list[bytes] = []
        left_out = asyncio.run(
            read_lines_of(where, "ledger", lambda p, o, v: taken.append(v), most_records=10)
        )
        late = asyncio.run(read_lines_of(where, "ledger", lambda p, o, v: None, seconds=-1.0))
    assert sorted(taken) == sorted(line(number).rstrip() for number in range(30, 40))
    assert left_out == "topic ledger has older rows that were not read"
    assert "was not read to its end" in late


def test_one_partition_that_is_not_read_whole_is_reported(broker: EmbeddedBroker) -> None:
    """The other partition is empty, so only this partition can be incomplete."""
    with broker:
        asyncio.run(_send(broker.bootstrap, [line(number) for number in range(3)], 1))
        where = {"bootstrap_servers": [broker.bootstrap]}
        reading = partial(read_lines_of, where, "ledger", lambda p, o, v: None)
        assert asyncio.run(reading()) == ""
        assert "was not read to its end" in asyncio.run(reading(seconds=-1.0))
        assert "has older rows" in asyncio.run(reading(most_records=4))


def test_a_topic_that_is_not_there_is_an_error(broker: EmbeddedBroker) -> None:
    """The request does not create the topic."""
    with broker:
        ledger = f"kafka://{broker.bootstrap}/nothing"
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="no topic 'nothing'"):
                list(accepted_rows([ledger]))
        done = CliRunner().invoke(main, ["why", "orders/2", "--ledger", ledger])
    assert done.exit_code == 2
    assert "no topic 'nothing'" in done.output


def test_why_tells_from_a_topic_as_from_files(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two leaders; the client's properties come from --config."""
    found = told()
    found.leave("m1").round()
    for name, lines in found.ledgers.items():
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(lines))
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\n")
    with broker:
        ledger = fill(broker, *(each for lines in found.ledgers.values() for each in lines))
        of_topic = CliRunner().invoke(
            main, ["why", "orders/2", "--ledger", ledger, "--config", str(config)]
        )
        config.write_text("security.protocol=NONSENSE\n")
        wrong = CliRunner().invoke(
            main, ["why", "orders/2", "--ledger", ledger, "--config", str(config)]
        )
    of_files = CliRunner().invoke(main, ["why", "orders/2", "--ledger", str(tmp_path)])
    assert of_files.output.startswith("orders/2 moved from w1 to ")
    assert of_topic.output == of_files.output
    assert "NONSENSE" in wrong.output


@pytest.mark.parametrize(
    "url", ["kafka:///ledger", "kafka://a:1", "kafka://a:1/", "kafka://a:1/b/c"]
)
def test_a_url_without_its_parts_or_with_further_parts_is_an_error(url: str) -> None:
    """A topic's name has no slash."""
    with pytest.raises(ConfigError, match="is not kafka://"):
        TopicSource.from_url(url)


def test_the_client_properties_of_a_topic_reach_its_connection() -> None:
    """Without them a secured cluster does not answer."""
    source = TopicSource.from_url("kafka://a:1/ledger", {"security.protocol": "SSL"})
    assert source.cluster.connection()["security_protocol"] == "SSL"


def test_a_story_ends_with_its_time(broker: EmbeddedBroker) -> None:
    """The limit reaches the reader."""
    with broker:
        fill(broker, line(0))
        where = {"bootstrap_servers": [broker.bootstrap]}
        _, left_out = asyncio.run(read_story_lines(where, "ledger", None, seconds=-1.0))
    assert "was not read to its end" in left_out


def test_a_span_has_its_records_and_a_period_the_offsets_of_its_time(
    broker: EmbeddedBroker,
) -> None:
    """The end is exclusive; a partition without a later record begins at its end."""
    begun = datetime.now(UTC)
    with broker:
        source = TopicSource.from_url(fill(broker, *(line(number) for number in range(6))))
        spans = [(0, 3), (1, 2), (1, 1)]
        found = [
            [offset for batch in read_span(source, 0, *span) for offset in batch[1].to_pylist()]
            for span in spans
        ]
        log = topic_now(source)
        offsets = [offsets_since(source, log, begun + timedelta(hours=hours)) for hours in (-1, 1)]
    assert found == [[0, 1, 2], [1], []]
    assert offsets == [{0: 0, 1: 0}, {0: 3, 1: 3}]


@pytest.mark.parametrize("lines", [2, 6], ids=["shorter", "longer"])
def test_a_recreated_topic_is_read_from_its_start(broker: EmbeddedBroker, lines: int) -> None:
    """The new topic has the old name, and ends before or after the offsets of the last visit."""
    with broker:
        ledger = fill(broker, *(line(number) for number in range(4)))
        before = news([ledger], {}, {}).state({})
        assert not news([ledger], before, {})
        broker.call(lambda node: node.catalogue.delete(node.catalogue.get("ledger")))
        fill(broker, *(line(number) for number in range(lines)))
        found = news([ledger], before, {})
        again = news([ledger], found.state({}), {})
    assert [(span.start, span.end) for span in found.spans] == [(0, lines // 2)] * 2
    assert not again


def test_an_empty_span_needs_no_broker() -> None:
    """No broker listens at the address."""
    source = TopicSource.from_url("kafka://127.0.0.1:1/ledger")
    assert list(read_span(source, 0, 5, 5)) == []
