"""What is committed, by the coordinator's answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from faust_assigner.app.repairs.committed_offsets import committed

HERE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Coordinator:
    """Answers with an error for the whole question, or with offset 7 and one that was never committed."""

    group_id = "g"

    def __init__(self, error_code: int = 0) -> None:
        self.error_code, self.dead = error_code, 0

    def coordinator_dead(self) -> None:
        """Count."""
        self.dead += 1

    async def _send_req(self, request: Any) -> Any:
        rows = [(0, 7), (1, -1)]
        parts = [
            {"partition": number, "offset": offset, "metadata": "", "error_code": 0}
            for number, offset in rows
        ]
        said = {
            "error_code": self.error_code,
            "topics": [{"topic": "orders", "partitions": parts}],
        }
        return SimpleNamespace(to_object=lambda: said)


async def test_a_partition_that_was_never_committed_is_left_out() -> None:
    """The broker answers -1 for it, which is no offset to go on from."""
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
    """The same broker would be asked for ever; one that loads the group is the right one."""
    coordinator = Coordinator(error.errno)
    with pytest.raises(error):
        await committed(coordinator, [HERE])
    assert bool(coordinator.dead) == is_dead
