"""The partition of a key: by the producer, else by the consumer, else unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import NotReady
from faust.types import TP

from faust_assigner.app.queries.places import partition_of


def app_of(producer: Any, consumer: Any = None) -> Any:
    """An app whose producer and consumer answer with these values, or raise them."""

    def asked(answer: Any, who: str) -> Any:
        def key_partition(topic: str, key: bytes) -> Any:
            assert (topic, key) == ("log", b"k"), who
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(key_partition=key_partition)

    return SimpleNamespace(
        producer=asked(producer, "producer"), consumer=asked(consumer, "consumer")
    )


@pytest.mark.parametrize(
    ("producer", "consumer", "found"),
    [
        (TP("log", 5), NotReady(), TP("log", 5)),
        (("log", 0), 7, TP("log", 0)),
        (TypeError(), 3, TP("log", 3)),
        (TypeError(), 0, TP("log", 0)),
    ],
)
def test_the_producers_partition_comes_before_the_consumers(
    producer: Any, consumer: Any, found: TP
) -> None:
    """The consumer is asked only while the producer has no metadata; partition 0 is one, too."""
    partition = partition_of(app_of(producer, consumer), "log", b"k")
    assert (partition, type(partition)) == (found, TP)


@pytest.mark.parametrize(
    ("producer", "consumer"), [(NotReady(), 3), (None, 3), (TypeError(), None)]
)
def test_an_unknown_partition_is_a_key_error_of_the_topic(producer: Any, consumer: Any) -> None:
    """A producer that has not started, or knows no partition, is not replaced by the consumer."""
    with pytest.raises(KeyError) as caught:
        partition_of(app_of(producer, consumer), "log", b"k")
    assert caught.value.args == ("log",)
