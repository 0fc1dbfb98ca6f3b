"""Kafka's client properties: their sources, and the options of each client."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline import cluster
from faust_assigner.pipeline.cluster import Cluster, client_properties, cluster_of

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "worker",
    "sasl.password": 'pa"ss\\word',
}


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    """The environment's password replaces the file's; the file's name is no property."""
    path = tmp_path / "client.properties"
    path.write_text("sasl.username=of the file\nsasl.password=of the file\n")
    environment = {
        "FAUST_ASSIGNER_KAFKA_CONFIG": str(path),
        "FAUST_ASSIGNER_KAFKA_SASL_PASSWORD": "of the environment",
        "SASL_USERNAME": "of nobody",
    }
    assert client_properties(None, environment) == {
        "sasl.username": "of the file", "sasl.password": "of the environment"
    }  # fmt: skip


def test_the_option_goes_before_the_file_that_the_environment_names(tmp_path: Path) -> None:
    """The option is --config FILE."""
    for name in ("mine", "other"):
        (tmp_path / name).write_text(f"client.id={name}\n")
    environment = {"FAUST_ASSIGNER_KAFKA_CONFIG": str(tmp_path / "other")}
    assert client_properties(str(tmp_path / "mine"), environment) == {"client.id": "mine"}


def test_brokers_that_are_named_go_before_the_propertys() -> None:
    """The brokers are then no property of the cluster."""
    properties = {"bootstrap.servers": "a:1", "client.id": "me"}
    assert cluster_of(None, properties) == Cluster("a:1", {"client.id": "me"})
    assert cluster_of("b:2", properties).bootstrap == "b:2"
    with pytest.raises(ConfigError, match="no brokers"):
        cluster_of(None, {})


def test_spark_is_told_a_login_once_and_escaped() -> None:
    """Spark's connector reads only sasl.jaas.config; our two names are not passed on."""
    told = Cluster("a:1", SASL).spark_options()
    assert told["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="worker" password="pa\"ss\\word";'
    )
    assert told["kafka.bootstrap.servers"] == "a:1"
    assert not {"kafka.sasl.username", "kafka.sasl.password"} & told.keys()


def test_a_login_in_jaas_is_read_as_kafka_reads_it() -> None:
    """A value is quoted with escapes, in single quotes, or bare."""
    for jaas in (
        r'x required username="worker" password="pa\"ss\\word";',
        """x required username='worker' password='pa"ss\\word';""",
        r'x required username=worker password=pa"ss\word;',
    ):
        given = {**SASL, "sasl.jaas.config": jaas}
        del given["sasl.username"], given["sasl.password"]
        found = Cluster("a:1", given).connection()
        assert (found["sasl_plain_username"], found["sasl_plain_password"]) == (
            "worker",
            'pa"ss\\word',
        )


@pytest.mark.parametrize("missing", ["sasl.username", "sasl.password"])
def test_a_login_without_a_user_or_a_password_is_refused(missing: str) -> None:
    """A login needs both the user and the password."""
    given = {name: value for name, value in SASL.items() if name != missing}
    with pytest.raises(ConfigError, match="no user and password"):
        Cluster("a:1", given).connection()


def test_an_unknown_protocol_is_refused_by_name() -> None:
    """The check precedes any unencrypted request."""
    with pytest.raises(ConfigError, match=r"security\.protocol .*'SASL_TLS'"):
        Cluster("a:1", {"security.protocol": "sasl_tls"}).connection()


def test_a_hosts_name_is_checked_unless_that_is_switched_off() -> None:
    """The algorithm is https by default, and empty to switch the check off, as in Kafka."""
    checked = Cluster("a:1", {"security.protocol": "SSL"}).connection()["ssl_context"]
    assert checked.check_hostname
    name = "ssl.endpoint.identification.algorithm"
    free = Cluster("a:1", {"security.protocol": "SSL", name: ""}).connection()["ssl_context"]
    assert not free.check_hostname


def test_secrets_are_in_no_repr() -> None:
    """Logs and tracebacks show only the brokers."""
    assert repr(Cluster("a:1", SASL)) == "Cluster(bootstrap='a:1')"


@pytest.mark.parametrize(
    "servers",
    [
        "a:b",
        "a:0",
        "a:65536",
        "a:",
        ":9092",
        "a:1,",
        "a:1,b:²",
        "[::1]:x",
        "[::1",
        "[::1]9",
        "::::",
        "[a]",
    ],
)
def test_what_is_no_address_is_refused_before_anybody_is_asked(servers: str) -> None:
    """The usage error has a single line with the address, for any source of the brokers."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        cluster_of(servers, {})
    with pytest.raises(ConfigError, match="HOST:PORT"):
        cluster_of(None, {"bootstrap.servers": servers})


@pytest.mark.parametrize(
    "servers", ["a", "a:1", "a:1,b:65535", "a:1, b:2", "::1", "[::1]:9092", "[::1]"]
)
def test_addresses_as_kafkas_clients_take_them_pass(servers: str) -> None:
    """An address may have a port or none, and may be IPv6."""
    assert cluster_of(servers, {}).bootstrap == servers


@pytest.mark.parametrize("kind", ["JKS", "PEM"])
def test_a_truststore_that_is_not_there_is_named(tmp_path: Path, kind: str) -> None:
    """The check precedes the call of Java's tool."""
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(tmp_path / "none"),
    }
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location: there is no file"):
        cluster_of("h:9", given).connection()


@pytest.mark.parametrize("kind", [None, "JKS", "PKCS12"])
def test_a_keystore_that_is_not_pem_is_refused_with_the_way_to_one(
    tmp_path: Path, kind: str | None
) -> None:
    """Java's formats cannot be read here; Kafka's default is such a format."""
    named = {} if kind is None else {"ssl.keystore.type": kind}
    given = {"ssl.keystore.location": str(tmp_path / "store"), **named}
    with pytest.raises(ConfigError, match="openssl pkcs12"):
        cluster._ssl_context(given)
    with pytest.raises(ConfigError, match="No such file"):
        cluster._ssl_context({**given, "ssl.keystore.type": "pem"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("security.protocal", "security.protocol"),
        ("sasl.user", "sasl.username"),
        ("boostrap.servers", "bootstrap.servers"),
        ("Security.Protocol", "security.protocol"),
        ("security_protocol", "security.protocol"),
        ("sasl_plain_password", "sasl.password"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("ssl.ca.location", "ssl.truststore.location"),
    ],
)
def test_a_misspelled_property_is_refused_with_the_nearest_name(
    tmp_path: Path, name: str, meant: str
) -> None:
    """If ignored, security.protocal would mean a connection without TLS."""
    path = tmp_path / "client.properties"
    path.write_text(f"{name}=x\n")
    with pytest.raises(ConfigError, match=f"client.properties: .*'{name}'; did you mean {meant}"):
        client_properties(str(path), {})


def test_a_misspelled_property_in_the_environment_is_refused() -> None:
    """The rule is that of the file, and the error has the property's name."""
    with pytest.raises(ConfigError, match=r"KAFKA_.*'sasl\.pasword'.*sasl\.password"):
        client_properties(None, {"FAUST_ASSIGNER_KAFKA_SASL_PASWORD": "x"})


def test_a_vendors_property_is_logged_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Names defined by Kafka are not logged, even if unused by a command."""
    known = {"client.id": "me", "sasl.oauthbearer.scope": "x", "acks": "all"}
    vendors = {"schema.registry.ssl.truststore.location": "/x", "schema.registry.url": "http://x"}
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in (known | vendors).items()))
    assert client_properties(str(path), {}) == known | vendors
    assert [one.args[1] for one in caplog.records if isinstance(one.args, tuple)] == sorted(vendors)


def test_variables_of_kubernetes_are_no_properties(caplog: pytest.LogCaptureFixture) -> None:
    """Every pod beside a Service faust-assigner-kafka has them; Spark must not get them."""
    environment = {
        "FAUST_ASSIGNER_KAFKA_SERVICE_HOST": "10.0.0.1",
        "FAUST_ASSIGNER_KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "FAUST_ASSIGNER_KAFKA_CLIENT_ID": "me",
    }
    assert client_properties(None, environment) == {"client.id": "me"}
    assert not caplog.records


def test_a_connection_has_only_what_its_protocol_needs() -> None:
    """The connection has each broker, a login only with SASL, and a numeric time limit."""
    plain = Cluster("a:1,b:2", {"sasl.mechanism": "PLAIN", "request.timeout.ms": "700"})
    assert plain.connection() == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "PLAINTEXT",
        "request_timeout_ms": 700,
    }
    found = Cluster("a:1", {**SASL, "security.protocol": "sasl_plaintext"}).connection()
    assert found == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "worker",
        "sasl_plain_password": 'pa"ss\\word',
    }
    both = Cluster("a:1", {**SASL, "security.protocol": "SASL_SSL"}).connection()
    assert {"ssl_context", "sasl_mechanism"} <= both.keys()
    with pytest.raises(ConfigError, match=r"request\.timeout\.ms must be a number, got 'soon'"):
        Cluster("a:1", {"request.timeout.ms": "soon"}).connection()


@pytest.mark.parametrize(
    ("given", "mechanism", "has_login"),
    [
        ({"client.id": "me"}, None, False),
        ({**SASL, "sasl.jaas.config": "own;"}, "SCRAM-SHA-256", False),
        ({**SASL, "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}, "PLAIN", True),
    ],
)
def test_spark_is_told_a_login_only_if_it_needs_one(
    given: dict[str, str], mechanism: str | None, has_login: bool
) -> None:
    """The user's own login stays; other properties are passed on."""
    told = Cluster("a:1", given).spark_options()
    assert told.get("kafka.sasl.mechanism") == mechanism
    login = told.get("kafka.sasl.jaas.config", "")
    assert login.startswith("org.apache.kafka.common.security.plain.PlainLoginModule ") is has_login
    assert has_login or login == given.get("sasl.jaas.config", "")
    assert told.get("kafka.client.id") == given.get("client.id")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b=c", {"a": "b=c"}),
        ("a: b:c", {"a": "b:c"}),
        ("a b c", {"a": "b c"}),
        ("! no\n  # no\n\n a = b ", {"a": "b"}),
        ("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nd=e", {"a": "b\\", "d": "e"}),
        ("a=", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, found: dict[str, str]) -> None:
    """The format has continued lines, comments and escapes."""
    assert cluster.parse_properties(text) == found


@pytest.mark.parametrize(
    ("jaas", "user"),
    [
        ("x required myusername=a username=b;", "b"),
        ('x required username = "a b";', "a b"),
        ("x required username='';", ""),
        ("x required password=b;", None),
    ],
)
def test_an_option_of_a_login_is_found_by_its_whole_name(jaas: str, user: str | None) -> None:
    """An empty value counts as a value."""
    assert cluster._jaas_option(jaas, "username") == user


def test_a_truststore_of_java_is_read_by_its_tool_without_a_password_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All certificates are read; the tool's first line is the reason of a failure."""
    (tmp_path / "store").touch()
    given = {"ssl.truststore.location": str(tmp_path / "store"), "ssl.truststore.password": "p"}
    pem = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----"
    asked: list[Any] = []

    def run(command: list[str], **how: Any) -> Any:
        asked.append((command, how["env"]["STOREPASS"], how["timeout"]))
        return SimpleNamespace(returncode=code, stdout=said, stderr="")

    monkeypatch.setattr(cluster.subprocess, "run", run)
    code, said = 0, f"words\n{pem.format('a')}\nwords\n{pem.format('b')}\n"
    assert cluster._authorities(given) == f"{pem.format('a')}\n{pem.format('b')}"
    [(command, password, timeout)] = asked
    assert ("p" in command, password, timeout) == (False, "p", 60)
    code, said = 1, f"keytool error: wrong password\n{pem.format('a')}"
    with pytest.raises(ConfigError, match=r"keytool error: wrong password$"):
        cluster._authorities(given)
    code, said = 0, ""
    with pytest.raises(ConfigError, match="no certificate"):
        cluster._authorities(given)
    assert cluster._authorities({}) is None
    assert cluster._authorities({**given, "ssl.truststore.certificates": "inline"}) == "inline"
