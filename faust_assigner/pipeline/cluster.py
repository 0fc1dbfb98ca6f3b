"""The connection to a Kafka cluster: Kafka's client properties, for aiokafka and for Spark's connector.

    --config FILE                   a file in the format of Kafka's own tools (client.properties)
    FAUST_ASSIGNER_KAFKA_CONFIG     the path of such a file, without the option
    FAUST_ASSIGNER_KAFKA_X_Y        property ``x.y``; overrides the file (FAUST_ASSIGNER_KAFKA_SASL_PASSWORD)

``sasl.username`` and ``sasl.password`` may replace the user and the password in ``sasl.jaas.config``.
Certificates are files in PEM, or truststores that ``keytool`` can read.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.kafka_properties import check_names
from faust_assigner.settings.known import is_of_kubernetes
from faust_assigner.wire.documents import whole_number

ENVIRONMENT = "FAUST_ASSIGNER_KAFKA_"
_CONFIG = f"{ENVIRONMENT}CONFIG"
_LOGIN_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    }
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_KEYTOOL_TIMEOUT_S = 60
#: Properties of this package, not of Kafka; Spark's connector gets them as ``sasl.jaas.config``.
_OURS = ("sasl.username", "sasl.password")


@dataclass(frozen=True)
class Cluster:
    """The brokers and the properties of a client connection; picklable, for Spark's executors."""

    bootstrap: str
    #: Kafka's client properties by name; the repr omits them because they include passwords.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def connection(self) -> dict[str, object]:
        """Read the certificate files, and return the keyword arguments for aiokafka's clients.

        Raises ConfigError, whose message names the property and contains no secret.
        """
        given = self.properties
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                f"security.protocol must be one of {', '.join(_PROTOCOLS)}, got {protocol!r}"
            )
        found: dict[str, object] = {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            found["ssl_context"] = _ssl_context(given)
        if protocol.startswith("SASL"):
            mechanism, user, password = _login(given)
            found |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        if "request.timeout.ms" in given:
            found["request_timeout_ms"] = _milliseconds(given["request.timeout.ms"])
        return found

    def spark_options(self) -> dict[str, str]:
        """Return the options for Spark's Kafka connector."""
        told = {name: value for name, value in self.properties.items() if name not in _OURS}
        if "sasl.jaas.config" not in told and told.get("security.protocol", "").upper().startswith(
            "SASL"
        ):
            mechanism, user, password = _login(self.properties)
            told["sasl.jaas.config"] = (
                f'{_LOGIN_MODULES[mechanism]} required username="{_escaped(user)}" '
                f'password="{_escaped(password)}";'
            )
            told["sasl.mechanism"] = mechanism
        return {
            f"kafka.{name}": value
            for name, value in {**told, "bootstrap.servers": self.bootstrap}.items()
        }


def client_properties(config: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties of the file ``config`` and of the environment.

    The environment overrides the file. Without ``config``, FAUST_ASSIGNER_KAFKA_CONFIG names the file.

    Raises ConfigError for a file that cannot be read, and for a misspelled name.
    """
    path = config or environment.get(_CONFIG)
    found: dict[str, str] = {}
    if path:
        try:
            found = parse_properties(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--config {path}: {error}") from None
        check_names(found, f"--config {path}")
    given = {
        name.removeprefix(ENVIRONMENT).lower().replace("_", "."): value
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT) and name != _CONFIG and not is_of_kubernetes(name)
    }
    check_names(given, f"{ENVIRONMENT}... in the environment")
    return found | given


def cluster_of(bootstrap: str | None, properties: Mapping[str, str]) -> Cluster:
    """Return the cluster; ``bootstrap`` overrides the property ``bootstrap.servers``.

    Raises ConfigError if neither is given or if an address is invalid.
    """
    servers = bootstrap or properties.get("bootstrap.servers")
    if not servers:
        raise ConfigError(
            "no brokers are given: use --bootstrap, bootstrap.servers in --config, or "
            f"{ENVIRONMENT}BOOTSTRAP_SERVERS in the environment"
        )
    for server in servers.split(","):
        if not _is_address(server.strip()):
            raise ConfigError(f"brokers must be HOST:PORT[,...], got {server!r}")
    return Cluster(
        servers, {name: value for name, value in properties.items() if name != "bootstrap.servers"}
    )


def _is_address(server: str) -> bool:
    """Whether ``server`` is a host, with or without a port; with a port, an IPv6 address needs brackets."""
    if server.startswith("["):
        host, end, rest = server[1:].partition("]")
        return (
            bool(end) and _is_ipv6(host) and (not rest or (rest[0] == ":" and _is_port(rest[1:])))
        )
    host, colon, port = server.rpartition(":")
    if ":" in host:
        return _is_ipv6(server)
    return bool(host) and _is_port(port) if colon else bool(server)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and 0 < (whole_number(text) or 0) < 2**16


def parse_properties(text: str) -> dict[str, str]:
    r"""Parse a Java properties file: ``name=value`` or ``name: value``, comments, continuations with ``\``.

    >>> parse_properties("# mine\nsecurity.protocol = SASL_SSL\nsasl.mechanism:\\\n  PLAIN\n")
    {'security.protocol': 'SASL_SSL', 'sasl.mechanism': 'PLAIN'}
    """
    # A line that ends with an odd number of backslashes continues; the next line's indent is dropped.
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text)
    found = {}
    for line in joined.splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, _, value = re.sub(r"\s*[=:\s]\s*", "\0", line, count=1).partition("\0")
        found[name] = re.sub(r"\\(.)", r"\1", value)
    return found


def _login(given: Mapping[str, str]) -> tuple[str, str, str]:
    """Return (SASL mechanism, user, password); raise ConfigError if one of the three is missing."""
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in _LOGIN_MODULES:
        raise ConfigError(
            f"sasl.mechanism must be one of {', '.join(_LOGIN_MODULES)}, got {mechanism!r}"
        )
    jaas = given.get("sasl.jaas.config", "")
    user = given.get("sasl.username") or _jaas_option(jaas, "username")
    password = given.get("sasl.password") or _jaas_option(jaas, "password")
    if user is None or password is None:
        raise ConfigError(
            'no user and password: sasl.jaas.config with username="…" password="…", or '
            "sasl.username and sasl.password"
        )
    return mechanism, user, password


def _jaas_option(jaas: str, name: str) -> str | None:
    found = re.search(rf"""\b{name}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""", jaas)
    if found is None:
        return None
    quoted, single, bare = found.groups()
    return (
        re.sub(r"\\(.)", r"\1", quoted)
        if quoted is not None
        else single
        if single is not None
        else bare
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _milliseconds(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ConfigError(f"request.timeout.ms must be a number, got {text[:40]!r}")
    return number


def _ssl_context(given: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities := _authorities(given):
        try:
            context = ssl.create_default_context(cadata=authorities)
        except ssl.SSLError as error:
            raise ConfigError(
                f"ssl.truststore: no certificate in it can be used: {error}"
            ) from None
    # By default Kafka checks the host name; an empty value disables the check, as in Kafka itself.
    context.check_hostname = given.get("ssl.endpoint.identification.algorithm", "https") != ""
    chain, key = given.get("ssl.keystore.certificate.chain"), given.get("ssl.keystore.key")
    location = given.get("ssl.keystore.location")
    if location and given.get("ssl.keystore.type", "JKS").upper() != "PEM":
        raise ConfigError(
            "ssl.keystore.type must be PEM (one file with the key and its certificates): "
            "openssl pkcs12 -in STORE.p12 -out STORE.pem makes one"
        )
    try:
        if location:
            context.load_cert_chain(location, password=given.get("ssl.key.password"))
        elif chain and key:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
                # only its owner can read the file, which holds the key
                both.write(f"{key}\n{chain}\n")
                both.flush()
                context.load_cert_chain(both.name, password=given.get("ssl.key.password"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl.keystore: {error}") from None
    return context


def _authorities(given: Mapping[str, str]) -> str | None:
    """Return the trusted certificates in PEM, or None to trust the system's certificates."""
    if "ssl.truststore.certificates" in given:
        return given["ssl.truststore.certificates"]
    location = given.get("ssl.truststore.location")
    if location is None:
        return None
    if not Path(location).is_file():
        raise ConfigError(f"ssl.truststore.location: there is no file {location}")
    if given.get("ssl.truststore.type", "JKS").upper() == "PEM":
        return Path(location).read_text(encoding="utf-8")
    return _from_keytool(location, given.get("ssl.truststore.password", ""))


def _from_keytool(location: str, password: str) -> str:
    # The password is passed in the environment: all users of the machine can read a command line.
    command = ["keytool", "-list", "-rfc", "-keystore", location, "-storepass:env", "STOREPASS"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_KEYTOOL_TIMEOUT_S,
            env={**os.environ, "STOREPASS": password},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"ssl.truststore.location {location} is not a PEM file (ssl.truststore.type=PEM), and "
            f"Java's keytool cannot read it: {error}"
        ) from None
    found = re.findall(
        r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", done.stdout, re.S
    )
    if done.returncode != 0 or not found:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise ConfigError(
            f"ssl.truststore.location {location}: {said[0] if said else 'no certificate'}"
        )
    return "\n".join(found)
