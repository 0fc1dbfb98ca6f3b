"""Compute rates from partition samples, in pure Python; the order of the samples has no effect.

A sample is a worker's measurement of one partition. ``records_in``, ``bytes_in`` and ``cpu_ms`` are amounts
since the worker's previous sample. The offsets and ``state_bytes`` are current values. Several workers write
samples; samples may be late or duplicate, and may have holes while no worker ran. A rate is therefore
relative to the time that its samples cover:

* of samples with equal (group, topic, partition, ts), only the one with the larger amounts counts;
* samples are sorted by ``ts``;
* a sample covers the time since the previous sample;
* the first sample of a partition, and a sample after a hole, cover the group's median interval; a hole is
  longer than ten median intervals;
* a negative amount (of a counter that was reset) counts as zero;
* the number of arrived records is the growth of the partition's end offset since the previous sample of any
  worker; ``records_in`` counts consumed records, which are fewer if the worker is overloaded;
* consumed records count as arrived records in the first sample of a partition, and in all samples if the
  topic's end offsets never grew (samples without offsets);
* the weight of a sample halves for each half-life that the sample is older than the group's newest sample, at
  most :data:`MOST_HALVED` times.

:mod:`faust_assigner.pipeline.weights.on_spark` has the same steps in SQL; a test compares both results.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from faust_assigner.pipeline.rows import CHANGELOG_SUFFIX, SampleRow
from faust_assigner.weights.document import millis

#: A gap of more than this many median intervals is a hole.
HOLE = 10.0
#: The default half-life in seconds. With half a day, samples of last week have almost no weight, but samples
#: of the previous day still count after a quiet night.
HALF_LIFE_S = 43_200.0
#: Without this limit the weights of old samples would be 0, and a partition with only such samples would have
#: no rate: a topic without samples for a year and a half, or a group with a sample from the future.
MOST_HALVED = 300.0
#: With this half-life all samples have the same weight.
NO_DECAY = math.inf
#: The assumed median interval if no partition of the group was sampled twice.
NOMINAL_INTERVAL_MS = 60_000.0
#: The assumed size of a record in bytes if no record was consumed.
NOMINAL_RECORD_BYTES = 100.0

#: The error is estimated from the differences between blocks of this length.
HOUR_MS = 3_600_000
#: Half the width of a 95% interval, in standard errors.
Z95 = 1.96

#: The fields of one sample: records_in, bytes_in, cpu_ms, state_bytes, end_offset.
Amounts: TypeAlias = tuple[int, int, float, int, int]


class PartitionRate(NamedTuple):
    """The measured load of a partition: sums over ``covered_ms`` milliseconds, and last values.

    The sums are weighted by the samples' age.
    """

    group_id: str
    topic: str
    partition: int
    samples: int
    covered_ms: float
    #: The consumed records, their bytes and their CPU time.
    records_in: float
    bytes_in: float
    cpu_ms: float
    state_bytes: int
    newest: dt.datetime
    #: The partition's end offset in the last sample; a replay of a changelog reads up to this offset.
    end_offset: int = 0
    #: The arrived records, from the end offsets; and the growth of the end offset over all samples.
    arrived: float = 0.0
    moved: int = 0
    #: The number of hours with samples, and the relative standard error of the partition's share of its
    #: group's records, estimated from the differences between these hours.
    hours: int = 0
    error: float = math.inf

    @property
    def confidence(self) -> float:
        """1 minus half the width of the share's 95% interval, relative to the share; at least 0."""
        return max(0.0, 1.0 - Z95 * self.error)

    @property
    def arrived_per_s(self) -> float:
        """The arrived records/s; the consumed records/s if the end offset never grew."""
        return (self.arrived if self.moved else self.records_in) * 1_000.0 / self.covered_ms


def rates_of(
    samples: Iterable[SampleRow], *, half_life_s: float = HALF_LIFE_S
) -> list[PartitionRate]:
    """Compute rates from rows of the table ``partition_sample``, in order of (group, topic, partition).

    Cost: one dict entry per distinct sample. If the samples do not fit in memory, use ``on_spark.py``.
    """
    kept: dict[tuple[str, str, int], dict[dt.datetime, Amounts]] = {}
    for sample in samples:
        key = (sample["group_id"], sample["topic"], sample["partition"])
        amounts = (
            max(0, sample["records_in"]),
            max(0, sample["bytes_in"]),
            max(0.0, sample["cpu_ms"]),
            max(0, sample["state_bytes"]),
            max(0, sample["end_offset"]),
        )
        mine = kept.setdefault(key, {})
        mine[sample["ts"]] = max(amounts, mine.get(sample["ts"], amounts))
    gaps: dict[str, list[int]] = {}
    for (group_id, _, _), mine in kept.items():
        gaps.setdefault(group_id, []).extend(_gaps_ms(sorted(mine)))
    typical = {
        group_id: float(np.median(found)) if found else NOMINAL_INTERVAL_MS
        for group_id, found in gaps.items()
    }
    newest: dict[str, dt.datetime] = {}
    for (group_id, _, _), mine in kept.items():
        newest[group_id] = max(newest.get(group_id, max(mine)), max(mine))
    found = []
    hours: dict[str, dict[int, float]] = {}
    for key in sorted(kept):
        rate, by_hour = _rate(key, kept[key], typical[key[0]], newest[key[0]], half_life_s)
        found.append((rate, by_hour))
        total = hours.setdefault(key[0], {})
        for hour, records in by_hour.items():
            total[hour] = total.get(hour, 0.0) + records
    return [
        rate._replace(hours=len(by_hour), error=_standard_error(by_hour, hours[rate.group_id]))
        for rate, by_hour in found
    ]


def _standard_error(mine: Mapping[int, float], group: Mapping[int, float]) -> float:
    """Return the relative standard error of the partition's share of its group's records, by hours.

    A change of load that all partitions share adds no error. With fewer than two hours the error is infinite.
    """
    if len(mine) < 2:
        return math.inf
    total = math.fsum(mine.values())
    if not total:
        return 0.0
    ratio = total / math.fsum(group[hour] for hour in mine)
    squares = math.fsum((records - ratio * group[hour]) ** 2 for hour, records in mine.items())
    return math.sqrt(squares * len(mine) / (len(mine) - 1)) / total


def records_kept(rate: PartitionRate) -> float:
    """Return the number of records that a replay of the partition's state reads; 0 without state.

    The number is the changelog's end offset, which also counts records that compaction removed. Without an
    offset, the number is estimated from the size on disk.
    """
    if not (rate.state_bytes or rate.topic.endswith(CHANGELOG_SUFFIX)):
        return 0.0
    return float(rate.end_offset) or rate.state_bytes / bytes_per_record(rate)


def bytes_per_record(rate: PartitionRate) -> float:
    """Return the mean size of the partition's consumed records; NOMINAL_RECORD_BYTES without records."""
    return (
        rate.bytes_in / rate.records_in
        if rate.records_in and rate.bytes_in
        else NOMINAL_RECORD_BYTES
    )


def _gaps_ms(moments: Sequence[dt.datetime]) -> list[int]:
    return [millis(later) - millis(earlier) for earlier, later in itertools.pairwise(moments)]


def _rate(
    key: tuple[str, str, int],
    mine: Mapping[dt.datetime, Amounts],
    typical: float,
    newest: dt.datetime,
    half_life_s: float,
) -> tuple[PartitionRate, dict[int, float]]:
    """Return the rate without its error, and the partition's records by hour, weighted by age."""
    moments = sorted(mine)
    gaps = [None, *_gaps_ms(moments)]
    covered = [typical if gap is None or gap > HOLE * typical else float(gap) for gap in gaps]
    ages = [(millis(newest) - millis(at)) / (1000.0 * half_life_s) for at in moments]
    counts = [0.5 ** min(age, MOST_HALVED) for age in ages]
    amounts = [mine[at] for at in moments]
    ends = [amount[4] for amount in amounts]
    arrived = [float(amounts[0][0])]
    for at in range(1, len(moments)):
        gap = gaps[at] or 0
        # Records that arrived during a hole are spread evenly over the hole; only the covered share counts.
        share = covered[at] / gap if gap else 0.0
        arrived.append(max(0, ends[at] - ends[at - 1]) * share)

    def total(values: Iterable[float]) -> float:
        return math.fsum(count * value for count, value in zip(counts, values, strict=True))

    hours: dict[int, float] = {}
    for moment, count, came, amount in zip(moments, counts, arrived, amounts, strict=True):
        hour = millis(moment) // HOUR_MS
        hours[hour] = hours.get(hour, 0.0) + count * max(came, float(amount[0]))
    rate = PartitionRate(
        *key,
        len(moments),
        total(covered),
        total(float(amount[0]) for amount in amounts),
        total(float(amount[1]) for amount in amounts),
        total(amount[2] for amount in amounts),
        amounts[-1][3],
        moments[-1],
        ends[-1],
        total(arrived),
        max(ends) - min(ends),
    )
    return rate, hours
