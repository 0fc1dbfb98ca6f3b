"""A server that speaks S3's protocol, for tests that read or write snapshots."""

from __future__ import annotations

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
    # s3fs keeps its connections for later tests.
    leaks.excuse(lambda kind, thing: (kind, thing) == ("port", port))
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def s3_folder(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty ``s3://bucket/folder``; this process and its children find it by their environment."""
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
    return f"s3://{bucket}/snapshots"
