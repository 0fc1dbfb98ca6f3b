"""The committed offsets of partitions, as the group coordinator answers them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from faust_assigner.app.consumer.committed_offsets import (
    UNSTABLE_OFFSET_COMMIT,
    UnstableOffsetsError,
    _OffsetFetch,
    committed,
    replace_offset_fetch,
)

HERE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Coordinator:
    """Answer with an error for all, or with offset 7 and a never committed partition."""

    group_id = "g"

    def __init__(self, error_code: int = 0) -> None:
        self.error_code, self.dead = error_code, 0
        self.rows = [(0, 7), (1, -1)]
        #: Partition -> its own error; the errors of the next whole requests.
        self.errors: dict[int, int] = {}
        self.refusals: list[Exception] = []
        self.requests: list[Any] = []

    def coordinator_dead(self) -> None:
        """Count the call."""
        self.dead += 1

    async def _send_req(self, request: Any) -> Any:
        self.requests.append(request)
        if self.refusals:
            raise self.refusals.pop(0)
        parts = [
            {
                "partition": number,
                "offset": offset,
                "metadata": "",
                "error_code": self.errors.get(number, 0),
            }
            for number, offset in self.rows
        ]
        said: dict[str, Any] = {"topics": [{"topic": "orders", "partitions": parts}]}
        if isinstance(request, _OffsetFetch):  # older versions lack this field
            said["error_code"] = self.error_code
        return SimpleNamespace(to_object=lambda: said)


async def test_a_partition_that_was_never_committed_is_left_out() -> None:
    """The broker answers -1 for the partition, and -1 is no start offset."""
    assert await committed(Coordinator(), [HERE, OTHER]) == {HERE: OffsetAndMetadata(7, "")}


@pytest.mark.parametrize(
    ("error", "is_dead"),
    [
        (errors.NotCoordinatorForGroupError, True),
        (errors.GroupCoordinatorNotAvailableError, True),
        (errors.GroupLoadInProgressError, False),
    ],
)
async def test_a_coordinator_that_is_none_any_more_is_looked_for_anew(
    error: type[errors.KafkaError], is_dead: bool
) -> None:
    """A broker without the coordinator is replaced; a broker that loads the group is kept."""
    coordinator = Coordinator(error.errno)
    with pytest.raises(error):
        await committed(coordinator, [HERE])
    assert bool(coordinator.dead) == is_dead


async def test_offsets_that_a_transaction_is_about_to_commit_are_asked_for_again() -> None:
    """The request asks for stable offsets, grouped by topic; the error is retriable."""
    with pytest.raises(errors.KafkaError) as found:
        await committed(Coordinator(UNSTABLE_OFFSET_COMMIT), [HERE])
    assert found.value.retriable
    payments = TopicPartition("payments", 0)
    built = _OffsetFetch("g", [OTHER, payments, HERE]).build(lambda *fields: fields)
    assert built == ("g", [("orders", [0, 1], {}), ("payments", [0], {})], True, {})


@pytest.mark.parametrize(
    "refusal", [errors.IncompatibleBrokerVersion("no version 7"), NotImplementedError()]
)
async def test_a_broker_before_stable_offsets_is_asked_in_its_own_version(
    refusal: Exception,
) -> None:
    """The older request names the same partitions, grouped by topic."""
    coordinator = Coordinator()
    coordinator.refusals = [refusal]
    assert await committed(coordinator, [OTHER, HERE]) == {HERE: OffsetAndMetadata(7, "")}
    _, older = coordinator.requests
    assert isinstance(older, OffsetFetchRequest)
    assert (older._consumer_group, older._partitions) == ("g", [("orders", [0, 1])])


async def test_a_partition_that_the_coordinator_does_not_know_costs_no_other(caplog: Any) -> None:
    """A partition of a deleted topic counts as never committed, and the log names the partition."""
    coordinator = Coordinator()
    coordinator.errors = {1: 3}
    assert await committed(coordinator, [HERE, OTHER]) == {HERE: OffsetAndMetadata(7, "")}
    assert "Offsets of TopicPartition(topic='orders', partition=1) are not committed" in caplog.text


@pytest.mark.parametrize(
    ("code", "error"), [(29, errors.TopicAuthorizationFailedError), (88, UnstableOffsetsError)]
)
async def test_an_error_of_one_partition_is_one_of_the_request(
    code: int, error: type[errors.KafkaError]
) -> None:
    """The committed offset is unknown, which differs from "never committed"."""
    coordinator = Coordinator()
    coordinator.errors = {1: code}
    with pytest.raises(error, match="partition=1"):
        await committed(coordinator, [HERE, OTHER])


async def test_an_offset_of_zero_is_committed() -> None:
    """Offset 0 is a valid start position of the group."""
    coordinator = Coordinator()
    coordinator.rows = [(0, 0)]
    assert await committed(coordinator, [HERE]) == {HERE: OffsetAndMetadata(0, "")}


@pytest.mark.parametrize(
    ("error", "lines"),
    [(errors.GroupLoadInProgressError, 1), (errors.GroupAuthorizationFailedError, 0)],
)
async def test_a_refusal_that_passes_is_logged_once(
    error: type[errors.KafkaError], lines: int, caplog: Any
) -> None:
    """aiokafka retries at once; the caller logs any other error."""
    caplog.set_level("INFO")
    coordinator: Any = Coordinator(error.errno)
    replace_offset_fetch(coordinator)
    asks = coordinator._do_fetch_commit_offsets
    replace_offset_fetch(coordinator)
    assert coordinator._do_fetch_commit_offsets is asks, "each seek calls it"
    for _ in range(3):
        with pytest.raises(error):
            await coordinator._do_fetch_commit_offsets([HERE])
    assert len(caplog.records) == lines


async def test_an_answer_has_each_partition_with_its_offset_and_metadata() -> None:
    """The result covers every topic; the request carries the group id."""
    coordinator: Any = Coordinator()

    def part(number: int, offset: int, metadata: str) -> dict[str, Any]:
        return {"partition": number, "offset": offset, "metadata": metadata, "error_code": 0}

    topics = [
        {"topic": "orders", "partitions": [part(1, 8, "b"), part(0, -1, "")]},
        {"topic": "bills", "partitions": [part(3, 4, "c"), part(2, 5, "d")]},
    ]
    answer = SimpleNamespace(to_object=lambda: {"error_code": 0, "topics": topics})

    async def send(request: Any) -> Any:
        coordinator.requests.append(request)
        return answer

    coordinator._send_req = send
    bills = [TopicPartition("bills", number) for number in (3, 2)]
    assert await committed(coordinator, [HERE, OTHER, *bills]) == {
        OTHER: OffsetAndMetadata(8, "b"),
        bills[0]: OffsetAndMetadata(4, "c"),
        bills[1]: OffsetAndMetadata(5, "d"),
    }
    (request,) = coordinator.requests
    assert request.build(lambda *fields: fields) == (
        "g",
        [("bills", [2, 3], {}), ("orders", [0, 1], {})],
        True,
        {},
    )


async def test_each_kind_of_refusal_is_logged_and_an_answer_is_passed_on(caplog: Any) -> None:
    """The first refusal of each kind is logged; the request names aiokafka's partitions."""
    caplog.set_level("INFO")
    coordinator: Any = Coordinator()
    replace_offset_fetch(coordinator)
    assert await coordinator._do_fetch_commit_offsets([HERE]) == {HERE: OffsetAndMetadata(7, "")}
    for code in (14, 88, 14, 88):
        coordinator.error_code = code
        with pytest.raises(errors.KafkaError):
            await coordinator._do_fetch_commit_offsets([HERE, OTHER])
    assert len(caplog.records) == 2
    assert [[*request._tps] for request in coordinator.requests] == [[HERE]] + [[HERE, OTHER]] * 4


@pytest.mark.parametrize(
    ("error", "is_dead"),
    [(errors.NotCoordinatorForGroupError, True), (errors.TopicAuthorizationFailedError, False)],
)
async def test_a_partitions_error_may_be_that_of_a_former_coordinator(
    error: type[errors.KafkaError], is_dead: bool
) -> None:
    """Brokers before Kafka 0.10.2 answer so; the next request looks up the coordinator again."""
    coordinator = Coordinator()
    coordinator.errors = {0: error.errno}
    with pytest.raises(error):
        await committed(coordinator, [HERE, OTHER])
    assert bool(coordinator.dead) is is_dead
