"""Certificates and NATS accounts made on the spot."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority that writes PEM files into a directory."""

    def __init__(self, directory: Path, name: str = "test CA") -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = certificate.add_extension(usage, True)
        self.path = self._write(f"{name}.pem", certificate.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, *hosts: str) -> tuple[str, str]:
        """The paths of a certificate for the hosts and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), False)
        path = self._write(f"{name}.pem", builder.sign(self._key, hashes.SHA256()))
        key_path = self._directory / f"{name}.key"
        encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
        key_path.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no_password))
        return path, str(key_path)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - _DAY).not_valid_after(now + _DAY)
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
        )

    def _write(self, name: str, certificate: x509.Certificate) -> str:
        path = self._directory / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass
class Identity:
    """An nkey of a kind: 20 user, 0 account, 14 operator (the letters U, A, O)."""

    kind: int
    key: Ed25519PrivateKey

    @classmethod
    def new(cls, kind: int) -> Identity:
        return cls(kind, Ed25519PrivateKey.generate())

    @property
    def public(self) -> str:
        return _base32(bytes([self.kind << 3]) + self.key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        prefix = bytes([18 << 3 | self.kind >> 2, (self.kind << 3 & 0x1F) << 3])
        return _base32(prefix + self.key.private_bytes_raw())

    def sign_jwt(self, subject: Identity, kind: str, **nats: object) -> str:
        """A NATS JWT about `subject`, issued by this identity."""
        claims = {
            "iss": self.public,
            "sub": subject.public,
            "name": kind,
            "iat": 1,
            "nats": {"type": kind, "version": 2} | nats,
        }
        claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode().rstrip("=")
        body = f"{_base64({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_base64(claims)}"
        return f"{body}.{_url_safe(self.key.sign(body.encode()))}"


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _base64(value: object) -> str:
    return _url_safe(json.dumps(value).encode())


def _url_safe(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
