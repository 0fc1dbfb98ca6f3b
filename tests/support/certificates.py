"""Certificates for a test: an authority and the certificates it signs, as PEM files."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and of its key."""

    cert: Path
    key: Path


class Authority:
    """A signing authority; ``ca`` is the file of its own certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.ca = folder / f"{name}.ca.pem"
        self.ca.write_bytes(
            _pem(self._certificate(self._name, self._key.public_key(), is_authority=True))
        )

    def sign(self, name: str) -> Pair:
        """A certificate for ``name``, valid for loopback, for servers and clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(
            _pem(self._certificate(_name(name), key.public_key(), alternative=name))
        )
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _certificate(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        *,
        alternative: str = "",
        is_authority: bool = False,
    ) -> x509.Certificate:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if alternative:
            names = [x509.DNSName(alternative), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(self._key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
