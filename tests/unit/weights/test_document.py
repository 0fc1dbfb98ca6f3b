"""The weights document: accepted and refused content, and the limits of a weight."""

from __future__ import annotations

import datetime as dt
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faust_assigner.errors import ConfigError
from faust_assigner.weights import document as weights_document
from faust_assigner.weights.document import (
    MAX_AGE_S,
    WeightRow,
    WeightsRefused,
    compress,
    decode,
    encode,
    millis,
)
from faust_assigner.weights.limits import Limits, clamp_to_median

NOON = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def weight_row(topic: str, partition: int, weight: float, group_id: str = "shop") -> WeightRow:
    """Return a table row with unused rates."""
    return WeightRow(
        group_id, "2026-11-21", 5, NOON, topic, partition, weight, 1.0, 1.0, 1.0, 1, 1.0, 3
    )


def document(**changes: Any) -> bytes:
    """Return a valid document with a single row, with ``changes`` at the top level."""
    found = json.loads(encode([weight_row("orders", 0, 1.5)], version=5, computed_at=NOON))
    return json.dumps({**found, **changes}).encode()


@given(st.lists(st.one_of(st.floats(0, 1e12), st.just(float("nan"))), min_size=1, max_size=40))
def test_every_weight_lies_between_a_quarter_and_four(costs: list[float]) -> None:
    """An unknown cost weighs 1.0, and the median partition weighs about 1."""
    weights = clamp_to_median(costs)
    assert ((weights >= 0.25) & (weights <= 4.0)).all()
    assert (weights[np.isnan(costs)] == 1.0).all()


def test_partitions_without_load_do_not_lower_the_median() -> None:
    """Half of the partitions are idle; the weights of the busy partitions keep their ratios."""
    assert clamp_to_median([1.0, 2.0, 3.0, 0.0, 0.0, 0.0]).tolist() == [0.5, 1.0, 1.5, *[0.25] * 3]


def test_a_document_comes_back_as_it_was_written_plain_or_compressed() -> None:
    """The version, time and weights survive both forms."""
    data = encode(
        [weight_row("orders", 0, 0.5), weight_row("orders", 1, 1.0), weight_row("orders", 2, 2.0)],
        version=7,
        computed_at=NOON,
    )
    for form in (data, compress(data)):
        found = decode(form).for_group("shop", now=NOON)
        assert (found.version, found.reason) == (7, None)
        assert found.weights == {("orders", 0): 0.5, ("orders", 1): 1.0, ("orders", 2): 2.0}


def test_a_group_gets_its_own_rows_clamped_around_their_median() -> None:
    """A manual weight of 1000 counts as 4; rows of another group have no effect."""
    rows = [
        weight_row("orders", number, weight)
        for number, weight in enumerate([2.0, 2.0, 1000.0, 0.001])
    ]
    found = decode(encode([*rows, weight_row("x", 0, 9.0, "bank")], version=1, computed_at=NOON))
    assert sorted(found.for_group("shop", now=NOON).weights.values()) == [0.25, 1.0, 1.0, 4.0]


def test_the_limits_can_be_widened_where_a_load_is_steep() -> None:
    """A Zipf law over 100 partitions: 4 medians hide the heaviest partitions, 64 do not."""
    load = [1 / (rank + 1) for rank in range(100)]
    assert clamp_to_median(load).max() == 4.0
    assert clamp_to_median(load, Limits.parse("0.01:64")).max() == pytest.approx(50.5, rel=0.02)


@pytest.mark.parametrize(
    "text", ["4", "0:4", "2:4", "0.25:0.5", "a:b", "0.25:inf", "nan:4", "4:0.25", ""]
)
def test_impossible_limits_are_refused(text: str) -> None:
    """The default weight, 1, must lie within the limits."""
    with pytest.raises(ConfigError, match="LOWEST:HIGHEST"):
        Limits.parse(text)


@pytest.mark.parametrize(
    ("text", "limits"),
    [("0.25:4", (0.25, 4)), ("1:4", (1, 4)), ("0.5:1", (0.5, 1)), ("1:1", (1, 1))],
)
def test_limits_reach_to_one_and_from_it(text: str, limits: tuple[float, float]) -> None:
    """A limit of 1 permits no weight below or above 1."""
    assert Limits.parse(text) == limits


def test_a_weight_that_is_no_number_is_not_written() -> None:
    """JSON has no NaN, and readers would refuse the whole document."""
    with pytest.raises(ValueError, match="JSON"):
        encode([weight_row("orders", 0, float("nan"))], version=1, computed_at=NOON)


@pytest.mark.parametrize(
    ("group_id", "later_s", "code"),
    [("shop", MAX_AGE_S + 1, "stale"), ("shop", -7_200, "future"), ("nobody", 0, "unnamed")],
)
def test_unusable_weights_are_one_with_the_reason(group_id: str, later_s: float, code: str) -> None:
    """Weights that are stale, from the future or of other groups are not in force."""
    found = decode(document()).for_group(group_id, now=NOON + dt.timedelta(seconds=later_s))
    assert (found.in_force, found.version, found.code) == (False, None, code)
    assert found.reason


def bad_row(**changes: Any) -> dict[str, Any]:
    """Return the parameters of a document with a faulty row."""
    row = {"group_id": "shop", "topic": "orders", "partition": 0, "weight": 1.0}
    return {"partition_weight": [{**row, **changes}]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a weights document"),
        (b"\x78\x9c broken", "not zlib"),
        (compress(document())[:-9], "truncated"),
        (zlib.compress(b" " * (65 * 1024 * 1024), 1), "more than"),
        (document(format="x"), "not a weights document"),
        (document(format_version=2), "format_version 2"),
        (document(version=-1), "version"),
        (document(version=True), "version"),
        (document(version=2**63), "version"),
        (document(computed_at="yesterday"), "computed_at"),
        (document(computed_at=3), "computed_at"),
        (document(partition_weight={}), "not a list"),
        (document(partition_weight=[3]), "row 0 is not an object"),
        (document(**bad_row(weight=0)), "not a positive number"),
        (document(**bad_row(weight=-1)), "not a positive"),
        (document(**bad_row(weight="1")), "not a positive"),
        (document(**bad_row(weight=True)), "not a positive"),
        (document(**bad_row(weight=float("inf"))), "not a positive"),
        (document(**bad_row(weight=10**400)), "not a positive"),
        (document(**bad_row(partition=-1)), "partition"),
        (document(**bad_row(topic=None)), "must be strings"),
        (document(partition_weight=bad_row()["partition_weight"] * 2), "is a duplicate"),
    ],
)
def test_an_invalid_document_is_refused_with_the_reason(data: bytes, said: str) -> None:
    """A fault refuses the whole document: half a document would overload other partitions."""
    with pytest.raises(WeightsRefused, match=said):
        decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    """A stranger's document raises no other exception."""
    with pytest.raises(WeightsRefused):
        decode(data)


def test_a_row_a_line_so_that_versions_can_be_compared() -> None:
    """Two documents with one different weight differ in a single line."""
    before, after = (
        encode(
            [weight_row("t", 0, 1.0), weight_row("t", 1, last)], version=1, computed_at=NOON
        ).splitlines()
        for last in (1.0, 2.0)
    )
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


@pytest.mark.parametrize(("ahead_s", "code"), [(60, None), (3_599, None), (3_601, "future")])
def test_clocks_may_differ_by_an_hour(ahead_s: int, code: str | None) -> None:
    """The clock of the computing machine is ahead of the worker's clock."""
    now = NOON - dt.timedelta(seconds=ahead_s)
    assert decode(document()).for_group("shop", now=now).code == code


@pytest.mark.parametrize(
    ("sampled_s", "later_s", "code"),
    [
        (-MAX_AGE_S, 0, None),
        (-MAX_AGE_S, 1, "stale"),
        (3_600, MAX_AGE_S, None),
        (3_600, MAX_AGE_S + 1, "stale"),
    ],
)
def test_weights_are_as_old_as_their_newest_sample(
    sampled_s: float, later_s: float, code: str | None
) -> None:
    """Old samples stay old after a new computation; later samples do not change the age."""
    data = encode(
        [weight_row("orders", 0, 1.0), weight_row("orders", 0, 1.0, "bank")],
        version=1,
        computed_at=NOON,
        sampled_at={"shop": NOON + dt.timedelta(seconds=sampled_s)},
    )
    found, now = decode(data), NOON + dt.timedelta(seconds=later_s)
    assert found.for_group("shop", now=now).code == code
    bank = "stale" if later_s > MAX_AGE_S else None
    assert found.for_group("bank", now=now).code == bank


def test_a_time_without_a_zone_is_utc() -> None:
    """A hand-written document may omit the zone."""
    found = decode(document(computed_at="2026-11-21T12:00:00"))
    assert found.computed_at == NOON
    assert decode(document()).sampled_at == {}


def test_a_time_with_a_zone_is_the_same_moment_in_utc() -> None:
    """A writer with local time writes UTC, and a reader reads any zone."""
    local = NOON.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    row = weight_row("t", 0, 1.0)._replace(computed_at=local, sampled_at=local)
    written = json.loads(encode([row], version=1, computed_at=local, sampled_at={"shop": local}))
    noon = "2026-11-21T12:00:00.000Z"
    found = written["partition_weight"][0]
    assert (written["computed_at"], written["sampled_at"]) == (noon, {"shop": noon})
    assert (found["computed_at"], found["sampled_at"]) == (noon, noon)
    read = decode(document(computed_at="2026-11-21T17:30:00+05:30"))
    assert read.computed_at == NOON
    assert read.for_group("shop", now=NOON - dt.timedelta(seconds=3_601)).code == "future"


def test_equal_documents_are_written_with_equal_bytes() -> None:
    """The order in which the groups were sampled has no effect."""
    groups = ["shop", "bank", "mail"]
    one, other = (
        encode([], version=1, computed_at=NOON, sampled_at=dict.fromkeys(order, NOON))
        for order in (groups, groups[::-1])
    )
    assert one == other


def test_a_document_has_every_column_of_every_row() -> None:
    """The document has the times of all groups, and distinct values stay distinct."""
    row = WeightRow(
        "shop", "2026-11-20", 41, NOON, "orders", 7, 1.5, 2.5, 3.5, 4.5, 55, 6.5, 77,
        NOON + dt.timedelta(seconds=1.5), 0.875,
    )  # fmt: skip
    bare = WeightRow("bank", "2026-11-19", 42, NOON, "sums", 8, 0.5, 1.0, 2.0, 3.0, 4, 5.0, 6)
    sampled = {"shop": NOON - dt.timedelta(hours=1), "bank": NOON - dt.timedelta(hours=2)}
    data = encode([row, bare], version=43, computed_at=NOON, sampled_at=sampled)
    assert json.loads(data) == {
        "format": "faust-assigner-weights",
        "format_version": 1,
        "version": 43,
        "computed_at": "2026-11-21T12:00:00.000Z",
        "sampled_at": {"bank": "2026-11-21T10:00:00.000Z", "shop": "2026-11-21T11:00:00.000Z"},
        "partition_weight": [
            {
                "group_id": "shop",
                "dt": "2026-11-20",
                "version": 41,
                "computed_at": "2026-11-21T12:00:00.000Z",
                "topic": "orders",
                "partition": 7,
                "weight": 1.5,
                "bytes_rate": 2.5,
                "record_rate": 3.5,
                "cpu_rate": 4.5,
                "state_bytes": 55,
                "recovery_s_est": 6.5,
                "samples": 77,
                "sampled_at": "2026-11-21T12:00:01.500Z",
                "confidence": 0.875,
            },
            {
                "group_id": "bank",
                "dt": "2026-11-19",
                "version": 42,
                "computed_at": "2026-11-21T12:00:00.000Z",
                "topic": "sums",
                "partition": 8,
                "weight": 0.5,
                "bytes_rate": 1.0,
                "record_rate": 2.0,
                "cpu_rate": 3.0,
                "state_bytes": 4,
                "recovery_s_est": 5.0,
                "samples": 6,
                "sampled_at": None,
                "confidence": 0.0,
            },
        ],
    }
    found = decode(data)
    assert (found.version, found.computed_at, found.sampled_at) == (43, NOON, sampled)
    assert [found.for_group(g, now=NOON).weights for g in ("shop", "bank", "none")] == [
        {("orders", 7): 1.0},
        {("sums", 8): 1.0},
        {},
    ]


def test_the_greatest_version_partition_and_size_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next larger value of each is refused."""
    row = bad_row(partition=2**31 - 1)
    data = document(version=2**63 - 1, **row)
    assert decode(data).rows[0]["partition"] == 2**31 - 1
    with pytest.raises(WeightsRefused, match="'partition'"):
        decode(document(**bad_row(partition=2**31)))
    for form in (data, compress(data)):
        monkeypatch.setattr(weights_document, "MAX_BYTES", len(data))
        assert decode(form).version == 2**63 - 1
        monkeypatch.setattr(weights_document, "MAX_BYTES", len(data) - 1)
        with pytest.raises(WeightsRefused, match=f"the limit is {len(data) - 1}|more than"):
            decode(form)


def test_equal_partitions_of_different_topics_or_groups_are_no_duplicates() -> None:
    """The error names the number of the repeated row."""
    keys = [("shop", "t", 0), ("bank", "t", 0), ("shop", "u", 0), ("shop", "t", 1)]
    rows = [{"group_id": g, "topic": t, "partition": p, "weight": 2.0} for g, t, p in keys]
    assert len(decode(document(partition_weight=rows)).rows) == 4
    with pytest.raises(WeightsRefused, match="row 4: u/0 of shop is a duplicate"):
        decode(document(partition_weight=[*rows, rows[2]]))


def test_the_version_of_weights_is_in_whole_milliseconds() -> None:
    """The version counts milliseconds since 1970, cut and not rounded."""
    moment = dt.datetime(1970, 1, 2, 0, 0, 1, 234_999, tzinfo=dt.UTC)
    assert millis(moment) == 86_401_234


@pytest.mark.parametrize(
    ("computed_s", "sampled_s", "code"),
    [(0, 7_200, None), (7_200, 0, "future"), (7_200, 7_200, "future"), (3_600, -3_600, None)],
)
def test_only_the_time_of_the_computation_may_be_in_the_future(
    computed_s: float, sampled_s: float, code: str | None
) -> None:
    """A worker with a fast clock may date a sample later."""
    data = encode(
        [weight_row("orders", 0, 1.0)],
        version=1,
        computed_at=NOON + dt.timedelta(seconds=computed_s),
        sampled_at={"shop": NOON + dt.timedelta(seconds=sampled_s)},
    )
    assert decode(data).for_group("shop", now=NOON).code == code
