"""End offsets by a librdkafka client, for which a topic just created may not have a leader yet."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition


def end_offset(reader: Consumer, topic: str, partition: int, *, seconds: float = 30.0) -> int:
    """Return the end offset; repeat a refused request until the deadline, then raise its error."""
    deadline = time.monotonic() + seconds
    end: int
    while True:
        try:
            _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=seconds)
            return end
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
