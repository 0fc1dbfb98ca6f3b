"""The certificates of a connection to Kafka: their sources, and the messages about unusable ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline import cluster
from faust_assigner.pipeline.cluster import Cluster, client_properties, cluster_of
from tests.unit.pipeline.test_cluster import SASL


class Context:
    """A TLS context that records its certificates; a file is read while the context loads it."""

    def __init__(self, loaded: list[Any], **authorities: str) -> None:
        self.loaded = loaded
        loaded.append(authorities)

    def load_cert_chain(self, path: str, password: str | None = None) -> None:
        """Record the file's text and the password of its key."""
        self.loaded.append((Path(path).read_text(), password))


@pytest.mark.parametrize(
    ("given", "loaded"),
    [
        ({}, []),
        ({"ssl.keystore.key": "k"}, []),
        ({"ssl.keystore.certificate.chain": "c"}, []),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, [("k\nc\n", None)]),
        (
            {
                "ssl.keystore.key": "k",
                "ssl.keystore.certificate.chain": "c",
                "ssl.key.password": "p",
            },
            [("k\nc\n", "p")],
        ),
        ({"ssl.keystore.location": "store", "ssl.keystore.type": "pem"}, [("of the file", None)]),
        (
            {
                "ssl.keystore.location": "store",
                "ssl.keystore.type": "PEM",
                "ssl.key.password": "q",
                "ssl.keystore.key": "k",
                "ssl.keystore.certificate.chain": "c",
            },
            [("of the file", "q")],
        ),
    ],
)
def test_a_clients_own_certificate_comes_from_a_file_or_else_from_key_and_chain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], loaded: list[Any]
) -> None:
    """The key is loaded with its password, from a file that only its owner reads and that is gone."""
    seen: list[Any] = []
    monkeypatch.setattr(cluster.ssl, "create_default_context", lambda **how: Context(seen, **how))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster.tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "store").write_text("of the file")
    found: Any = cluster._ssl_context(given)
    assert seen == [{}, *loaded]
    assert (found.check_hostname, list((tmp_path / "scratch").iterdir())) == (True, [])
    seen.clear()
    cluster._ssl_context({**given, "ssl.truststore.certificates": "ca"})
    assert seen == [{}, {"cadata": "ca"}, *loaded]


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("no key")])
def test_a_keystore_that_cannot_be_loaded_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An ssl.SSLError is an OSError; a wrong password is a ValueError in some versions."""

    def fail(self: Context, path: str, password: str | None = None) -> None:
        raise error

    monkeypatch.setattr(Context, "load_cert_chain", fail)
    monkeypatch.setattr(cluster.ssl, "create_default_context", lambda **how: Context([], **how))
    given = {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}
    with pytest.raises(ConfigError) as refused:
        cluster._ssl_context(given)
    assert str(refused.value) == f"ssl.keystore: {error}"


def test_a_truststore_without_a_usable_certificate_is_named() -> None:
    """The text is no certificate."""
    given = {
        "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
    }
    with pytest.raises(ConfigError, match=r"^ssl\.truststore: no certificate in it can be used"):
        cluster._ssl_context(given)


@pytest.mark.parametrize(
    "error", [OSError("no keytool"), cluster.subprocess.TimeoutExpired(["keytool"], 60)]
)
def test_a_truststore_that_javas_tool_cannot_read_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The tool is not installed, or does not end; the message contains no password."""
    seen: list[Any] = []

    def run(command: list[str], **how: Any) -> None:
        seen.append((command, how["env"]["STOREPASS"], how["env"]["ELSE"]))
        raise error

    monkeypatch.setenv("ELSE", "kept")
    monkeypatch.setattr(cluster.subprocess, "run", run)
    with pytest.raises(ConfigError) as refused:
        cluster._from_keytool("/store", "secret")
    assert str(refused.value) == (
        "ssl.truststore.location /store is not a PEM file (ssl.truststore.type=PEM), and "
        f"Java's keytool cannot read it: {error}"
    )
    command = ["keytool", "-list", "-rfc", "-keystore", "/store", "-storepass:env", "STOREPASS"]
    assert seen == [(command, "secret", "kept")]


def test_a_truststore_of_java_that_is_refused_has_the_first_line_of_either_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tool prints its errors to stdout, and those of Java itself to stderr."""
    answers = iter([(1, "", "no JVM\nmore"), (1, "", ""), (1, "one\ntwo", "three")])

    def run(command: list[str], **_: Any) -> Any:
        code, out, err = next(answers)
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    monkeypatch.setattr(cluster.subprocess, "run", run)
    for said in ("no JVM", "no certificate", "one"):
        with pytest.raises(ConfigError) as refused:
            cluster._from_keytool("/store", "")
        assert str(refused.value) == f"ssl.truststore.location /store: {said}"


@pytest.mark.parametrize("content", [None, b"client.id=\xff"])
def test_a_config_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    """The file is missing, or is not UTF-8."""
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^--config {path}: "):
        client_properties(str(path), {})


def test_a_login_needs_a_known_mechanism() -> None:
    """The message names all of them and the one that was given."""
    with pytest.raises(ConfigError) as refused:
        Cluster("a:1", {**SASL, "sasl.mechanism": "GSSAPI"}).connection()
    known = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
    assert str(refused.value) == f"sasl.mechanism must be one of {known}, got 'GSSAPI'"


@pytest.mark.parametrize("server", ["[::1]x92", "[::1]", " [::1]:9", "[::1]:9 "])
def test_a_port_after_brackets_follows_a_colon(server: str) -> None:
    """Blanks around an address do not count."""
    if "x" in server:
        with pytest.raises(ConfigError, match="HOST:PORT"):
            cluster_of(server, {})
    else:
        assert cluster_of(server, {}).bootstrap == server


def test_the_brokers_of_a_cluster_go_before_a_property() -> None:
    """Spark's connector gets the brokers of the command line."""
    found = Cluster("a:1", {"bootstrap.servers": "b:2", "client.id": "me"}).spark_options()
    assert found == {"kafka.bootstrap.servers": "a:1", "kafka.client.id": "me"}
