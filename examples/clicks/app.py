"""Clicks on pages: the clicks on each page in ten seconds, and the clicks of each visitor in all.

A page's count is sent to the topic ``counted`` when its window closes, ten seconds after the window's end.
Every minute the worker sends the number of its visitors to the topic ``visitors``.
"""

from __future__ import annotations

from collections.abc import AsyncIterable

import faust

app = faust.App(
    "clicks",
    broker="kafka://127.0.0.1:9092",
    PartitionAssignor="faust_assigner:PartitionAssignor",
    store="rocksdb://",
    topic_partitions=6,
    table_standby_replicas=1,
)


class Click(faust.Record, serializer="json"):
    """A click of a visitor; the record's key is the page."""

    visitor: str


clicks_topic = app.topic("clicks", key_type=str, value_type=Click)
visits_topic = app.topic("visits", key_type=str, value_type=int)
counted_topic = app.topic("counted", key_type=str, value_serializer="json")
visitors_topic = app.topic("visitors", key_type=str, value_serializer="json")


async def send_count(key: tuple[str, tuple[float, float]], clicks: int) -> None:
    """Send the page's count in the closed window."""
    page, (begin, _) = key
    await counted_topic.send(key=page, value={"clicks": clicks, "begin": begin})


recent = app.Table(
    "recent", key_type=str, value_type=int, default=int, on_window_close=send_count
).tumbling(10.0, expires=10.0)
totals = app.Table("totals", key_type=str, value_type=int, default=int)


@app.agent(clicks_topic)
async def count_clicks(clicks: AsyncIterable[Click]) -> None:
    """Count each click for its page, and send it on, keyed by visitor."""
    async for page, click in clicks.items():  # type: ignore[attr-defined]
        recent[page] += 1
        await visits_topic.send(key=click.visitor, value=1)


@app.agent(visits_topic)
async def count_visits(visits: AsyncIterable[int]) -> None:
    """Count each visitor's clicks."""
    async for visitor, count in visits.items():  # type: ignore[attr-defined]
        totals[visitor] += count


@app.timer(60.0)
async def send_visitors() -> None:
    """Send the number of visitors in this worker's table."""
    await visitors_topic.send(key="visitors", value=len(list(totals.keys())))


if __name__ == "__main__":
    app.main()
