"""Which of two similar values counts: the log end or the stable offset, the address or the shown host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker.security.acls import ALLOW, DESCRIBE, LITERAL, TOPIC, Acl, Acls
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.storage.store import MemoryStore
from tests.support.asking import ask, to_topic, wanting
from tests.support.clients.raw_client import batch, one_record
from tests.support.hall import Hall, in_hall
from tests.unit.broker.api.test_consumer_groups import beats
from tests.unit.broker.api.test_fetch import AT_ONCE, values

PRODUCE, FETCH, METADATA, FETCH_OFFSETS, LOG_DIRS = 0, 1, 3, 9, 35


@pytest.mark.parametrize(
    ("offset", "level", "found"),
    [(0, 0, 3), (1, 0, 2), (2, 0, 1), (3, 0, 0), (0, 1, 1), (1, 1, 0), (2, 1, 0), (3, 1, 0)],
)
def test_records_of_an_open_transaction_are_read_by_consumers_of_uncommitted_records(
    offset: int, level: int, found: int
) -> None:
    """Any offset up to the end is valid for both; a reader of committed records stops before the second."""

    async def story(hall: Hall) -> tuple[int, int, int, int]:
        hall.node.catalogue.create("t", 1, {})
        data = [batch(one_record(text)) for text in (b"first", b"second", b"third")]
        for one in data:
            await ask(hall, PRODUCE, 9, **to_topic(one))
        log = hall.node.catalogue.partition("t", 0)
        assert log is not None
        log.transactions.open[7] = 1
        asked: dict[str, Any] = {"topics": wanting(1, offset), "max_bytes": 10_000}
        answer = await ask(
            hall, FETCH, 11, max_wait=AT_ONCE, min_bytes=1, isolation_level=level, **asked
        )
        (part,) = answer.responses[0].partitions
        read = b"".join(one[21:] if n == 0 else one[:0] for n, one in enumerate(data[offset:]))
        assert values(part).startswith(read if found else b"")
        size = sum(map(len, data[offset : offset + found]))
        assert len(bytes(part.records or b"")) == size
        return int(part.error_code), part.high_watermark, part.last_stable_offset, found

    assert in_hall(story) == (0, 3, 1, found)


@pytest.mark.parametrize(("host", "sees"), [("127.0.0.1", True), ("/127.0.0.1", False)])
def test_a_rule_names_the_address_of_a_client_without_a_slash(host: str, sees: bool) -> None:
    """Groups show the address with a slash, as Kafka does; rules have it without."""

    async def story(hall: Hall) -> list[str]:
        hall.node.catalogue.create("t", 1, {})
        acls = Acls(MemoryStore())
        acls.add([Acl(TOPIC, "t", LITERAL, ANONYMOUS, host, DESCRIBE, ALLOW)])
        hall.node.authorizer = Authorizer(acls, frozenset())
        answer = await ask(hall, METADATA, 9, topics=None, allow_auto_topic_creation=False)
        return [topic.name for topic in answer.topics]

    assert in_hall(story) == (["t"] if sees else [])


@pytest.mark.parametrize(("last", "error"), [("member", 0), ("stranger", 25)])
def test_of_two_readers_of_one_group_in_a_request_the_last_is_checked(
    last: str, error: int
) -> None:
    """The group is answered once, with the topics of both."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 3, {})
        epoch = await beats(hall, "member", 0)
        first = "stranger" if last == "member" else "member"
        groups = [
            {
                "group_id": "g", "member_id": who, "member_epoch": epoch,
                "topics": [{"name": "t", "partition_indexes": (number,)}],
            }
            for who, number in ((first, 0), (last, 2))
        ]  # fmt: skip
        answer = await ask(hall, FETCH_OFFSETS, 9, groups=groups, require_stable=False)
        return [
            (
                g.group_id,
                int(g.error_code),
                [[p.partition_index for p in t.partitions] for t in g.topics],
            )
            for g in answer.groups
        ]

    assert in_hall(story) == [("g", error, [] if error else [[0, 2]])]


def test_a_relative_log_directory_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client has a different working directory."""
    monkeypatch.chdir(tmp_path)

    async def story(hall: Hall) -> str:
        old, hall.node.folder = hall.node.folder, Path("data")
        Path("data").mkdir()
        try:
            (result,) = (await ask(hall, LOG_DIRS, 4, topics=None)).results
            return str(result.log_dir)
        finally:
            hall.node.folder = old

    assert in_hall(story) == str(tmp_path / "data")
