"""Further listeners for a test's Kafka: SASL_SSL with SCRAM-SHA-512, and PLAIN without TLS."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LISTENER = "SECURED"
USERS_LISTENER = "USERS"
MECHANISM = "SCRAM-SHA-512"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def plain_settings(users: Mapping[str, str]) -> Mapping[str, str]:
    """Return a broker's settings for a listener with log-ins of ``users`` by PLAIN, without TLS."""
    listed = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    prefix = f"listener.name.{USERS_LISTENER.lower()}"
    protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{USERS_LISTENER}:SASL_PLAINTEXT"
    return {
        "listener.security.protocol.map": protocols,
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN",
        f"{prefix}.plain.sasl.jaas.config": f"{module} required {listed};",
    }


@dataclass(frozen=True)
class SecuredListener:
    """A listener with TLS and SCRAM: its address, user, and certificate (PEM and JKS)."""

    bootstrap: str
    folder: Path
    user: str = "shop"
    #: The password contains every character that a properties file or JAAS must escape.
    password: str = field(default_factory=lambda: f'{secrets.token_hex(8)}"= \\#', repr=False)
    store_password: str = field(default_factory=lambda: secrets.token_hex(8), repr=False)

    @property
    def certificate(self) -> Path:
        """The server's self-signed certificate, in PEM."""
        return self.folder / "server.pem"

    @property
    def truststore(self) -> Path:
        """The certificate in a JKS truststore, for Java's clients."""
        return self.folder / "truststore.jks"

    @property
    def login(self) -> str:
        """The value of a client's ``sasl.jaas.config``."""
        password = self.password.replace("\\", "\\\\").replace('"', '\\"')
        return f'{_MODULE} required username="{self.user}" password="{password}";'

    def properties(self, *, jks: bool = False) -> dict[str, str]:
        """Return Kafka's client properties, with the certificate in PEM or in the truststore."""
        trust = {"ssl.truststore.location": str(self.certificate), "ssl.truststore.type": "PEM"}
        if jks:
            trust = {
                "ssl.truststore.location": str(self.truststore),
                "ssl.truststore.password": self.store_password,
            }
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": self.login,
            **trust,
        }

    def write_properties(self, path: Path, *, jks: bool = False) -> Path:
        """Write the properties as a file for ``--config``."""
        path.write_text(
            "".join(
                f"{name}={_escaped(value)}\n" for name, value in self.properties(jks=jks).items()
            )
        )
        return path

    def server_settings(self) -> Mapping[str, str]:
        """Return the broker's settings for this listener, without the listeners' addresses."""
        mechanism = MECHANISM.lower()
        return {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{LISTENER}:SASL_SSL",
            f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.{LISTENER.lower()}.{mechanism}.sasl.jaas.config": f"{_MODULE} required;",
            f"listener.name.{LISTENER.lower()}.ssl.keystore.location": str(
                self.folder / "server.p12"
            ),
            f"listener.name.{LISTENER.lower()}.ssl.keystore.type": "PKCS12",
            f"listener.name.{LISTENER.lower()}.ssl.keystore.password": self.store_password,
            f"listener.name.{LISTENER.lower()}.ssl.key.password": self.store_password,
        }

    def add_user(self) -> str:
        """Return the argument of ``StorageTool format --add-scram`` that adds the user."""
        return f"{MECHANISM}=[name={self.user},password={self.password}]"

    def make_certificate(self) -> None:
        """Create the server's key and certificate with Java's keytool.

        The certificate is valid for loopback and for seven days.
        """
        store = (
            "-keystore",
            str(self.folder / "server.p12"),
            "-storetype",
            "PKCS12",
            "-storepass",
            self.store_password,
            "-alias",
            "server",
        )
        _keytool(
            "-genkeypair",
            *store,
            "-keyalg",
            "RSA",
            "-keysize",
            "2048",
            "-validity",
            "7",
            "-dname",
            "CN=127.0.0.1",
            "-ext",
            "SAN=IP:127.0.0.1,DNS:localhost",
        )
        _keytool("-exportcert", "-rfc", *store, "-file", str(self.certificate))
        _keytool(
            "-importcert",
            "-noprompt",
            "-keystore",
            str(self.truststore),
            "-storetype",
            "JKS",
            "-storepass",
            self.store_password,
            "-alias",
            "server",
            "-file",
            str(self.certificate),
        )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _keytool(*arguments: str) -> None:
    done = subprocess.run(["keytool", *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"keytool {arguments[0]}: {done.stdout}{done.stderr}")
