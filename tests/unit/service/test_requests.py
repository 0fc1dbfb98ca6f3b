"""The requests of one process as whole messages, and the headers of its calls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.client import Registration, Release, TopicPartition, Warm
from faust_assigner.service.client import channel as channel_module
from faust_assigner.service.client.channel import MESSAGE_BYTES, Access
from faust_assigner.service.client.requests import MOST_SAID, Requests
from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

REQUESTS = Requests("c", "i", "g")
WHO: dict[str, Any] = {"consumer_name": "c", "incarnation": "i", "group": "g"}
AT: dict[str, Any] = {"partition": pb.TopicPartition(topic="t", partition=3), "handoff_id": 7}
WARM, RELEASE = Warm(TopicPartition("t", 3), "b", 7), Release(TopicPartition("t", 3), "b", 7)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (None, None),
        (digest_of(()), pb.Held()),
        (Held(0, 5), pb.Held(digest=5)),
        (Held(4, 0), pb.Held(count=4)),
        (Held(4, 9), pb.Held(count=4, digest=9)),
    ],
)
def test_a_heartbeat_tells_nothing_held_from_nothing_said(
    said: Held | None, message: pb.Held | None
) -> None:
    """The service compares a digest of nothing, and no digest not at all."""
    found = REQUESTS.heartbeat("s1", said)
    assert found.HasField("held") is (message is not None)
    assert found == pb.HeartbeatRequest(**WHO, session_id="s1", held=message)


def test_every_request_says_who_asks_and_what() -> None:
    """All fields of all requests."""
    assert [
        REQUESTS.ready(WARM),
        REQUESTS.released(RELEASE, 0),
        REQUESTS.released(RELEASE, None),
        REQUESTS.release_failed(RELEASE, 5, "full"),
        REQUESTS.failed(WARM, "cold"),
        REQUESTS.progress(WARM, 0.25),
        REQUESTS.replicas([("u", 2), ("t", 9), ("u", 1), ("t", 10)]),
        REQUESTS.farewell(),
    ] == [
        pb.PartitionReadyRequest(**WHO, **AT),
        pb.PartitionReleasedRequest(**WHO, **AT, final_offset=0),
        pb.PartitionReleasedRequest(**WHO, **AT),
        pb.ReleaseFailedRequest(**WHO, **AT, epoch=5, reason="full"),
        pb.WarmFailedRequest(**WHO, **AT, reason="cold"),
        pb.ReportProgressRequest(**WHO, **AT, progress=0.25),
        pb.ReportReplicasRequest(
            **WHO,
            replicas_by_topic=[
                pb.TopicPartitions(topic="t", partitions=[9, 10]),
                pb.TopicPartitions(topic="u", partitions=[1, 2]),
            ],
        ),
        pb.DeregisterRequest(**WHO),
    ]


def test_a_long_reason_is_cut_to_its_beginning() -> None:
    """A reason of the most characters is whole."""
    long = "ab" * (MOST_SAID // 2)
    for said in (long, long + "c"):
        assert REQUESTS.failed(WARM, said).reason == long
        assert REQUESTS.release_failed(RELEASE, 5, said).reason == long


def test_a_registration_has_the_process_its_group_and_its_highest_epoch() -> None:
    """The other fields are the registration's."""
    registration = Registration(topics=["u", "t"], rack="r", former=lambda: [("t", 1)])
    found = REQUESTS.register(registration, returns=True, former=[("t", 8), ("t", 2)], epoch=41)
    former = [pb.TopicPartitions(topic="t", partitions=[2, 8])]
    assert found == pb.RegisterRequest(
        **WHO,
        topics=["t", "u"],
        rack="r",
        capacity=1.0,
        heartbeats=True,
        returns=True,
        epoch=41,
        former=former,
    )
    first = REQUESTS.register(registration, returns=False, former=(), epoch=0)
    assert (first.returns, first.epoch, first.former[0].partitions) == (False, 0, [1])


@pytest.mark.parametrize(
    ("token", "text", "sent"),
    [
        ("", None, None),
        ("said", None, "said"),
        (" said ", None, " said "),
        ("said", " of the file\n", "of the file"),
        ("", "of the file", "of the file"),
        ("said", " \n", None),
        ("", "", None),
    ],
)
def test_a_call_sends_the_token_of_the_file_else_the_given_one(
    tmp_path: Path, token: str, text: str | None, sent: str | None
) -> None:
    """A file goes first, also an empty one: it may be in the middle of a replacement."""
    path = None if text is None else tmp_path / "token"
    if path is not None:
        path.write_text(text or "")
    found = Access(token=token, token_file=path).metadata()
    assert found == (() if sent is None else (("authorization", f"Bearer {sent}"),))


def test_the_file_of_the_token_is_read_for_each_call(tmp_path: Path) -> None:
    """A file that is gone is an error, also beside a given token."""
    path = tmp_path / "token"
    access = Access(token="said", token_file=path)
    for text in ("one", "two"):
        path.write_text(text)
        assert access.metadata() == (("authorization", f"Bearer {text}"),)
    path.unlink()
    with pytest.raises(OSError, match="token"):
        access.metadata()


def test_no_token_is_shown(tmp_path: Path) -> None:
    """The files are."""
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    shown = f"ca={files['ca']}, cert={files['cert']}"
    assert repr(Access(token="secret", **files)) == f"Access({shown}, token=...)"
    assert repr(Access(**files)) == f"Access({shown}, token=None)"
    path = tmp_path / "token"
    assert (
        repr(Access(token="secret", token_file=path, **files)) == f"Access({shown}, token={path})"
    )


BASE: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
NAMED = ("grpc.ssl_target_name_override", "shop")


@pytest.mark.parametrize(("ca", "pair"), [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("server_name", ["", "shop"])
def test_a_channel_gets_all_files_options_and_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ca: bool, server_name: str, pair: bool
) -> None:
    """Only an authority encrypts the channel; a caller may have no certificate."""
    told: list[Any] = []
    fake = SimpleNamespace(
        aio=SimpleNamespace(
            insecure_channel=lambda *said: told.append(said) or "plain",
            secure_channel=lambda *said: told.append(said) or "tls",
        ),
        ssl_channel_credentials=lambda *said: said,
    )
    monkeypatch.setattr(channel_module, "grpc", fake)
    names = [*(["ca"] if ca else []), *(["cert", "key"] if pair else [])]
    files = {name: tmp_path / name for name in names}
    for name, path in files.items():
        path.write_text(name)
    more = [("grpc.one", 1), ("grpc.two", 2)]
    found = Access(server_name=server_name, **files).open("h:7", more)
    options = [*BASE, *more, *([NAMED] if server_name else [])]
    credentials = (b"ca", *((b"key", b"cert") if pair else (None, None)))
    if ca:
        assert (found, told) == ("tls", [("h:7", credentials, options)])
    else:
        assert (found, told) == ("plain", [("h:7", options)])


def test_a_reason_that_utf_8_cannot_express_is_sent_all_the_same() -> None:
    """A message may contain the name of a file that is not UTF-8."""
    reason = "no file \udcff" + "x" * MOST_SAID
    shown = ("no file ?" + "x" * MOST_SAID)[:MOST_SAID]
    assert REQUESTS.failed(WARM, reason).reason == shown
    assert REQUESTS.release_failed(RELEASE, 4, reason).reason == shown
