"""A server that speaks S3's protocol, for tests that read or write snapshots."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator

import pytest

from tests.support import leaks


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of an in-memory server that speaks S3's protocol."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # s3fs keeps its connections until the end of a test's fixture.
    leaks.excuse(lambda kind, thing: (kind, thing) == ("port", port))
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def s3_folder(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty ``s3://bucket/folder``; this process and its children find it by their environment.

    At the end s3fs closes its clients. A client that the garbage collector finds later is closed by a
    task of whichever event loop runs then: a leak of an unrelated test.
    """
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3fs.S3FileSystem().mkdir(bucket)
    yield f"s3://{bucket}/snapshots"
    s3fs.S3FileSystem.clear_instance_cache()
    gc.collect()
