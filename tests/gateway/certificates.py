"""Certificates: one for 127.0.0.1 that signs itself, and those of clients that an authority signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "part", "write_certificate"]


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """The files of a certificate and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / "gateway.crt", directory / "gateway.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(_pem(key))
    return cert_file, key_file


class Authority:
    """Signs certificates of clients."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = directory / f"{name}.crt".replace(" ", "-")
        self.file.write_bytes(self._sign(self._name, self._key, is_authority=True))

    def client(self, *names: x509.RelativeDistinguishedName, file: str = "client") -> tuple[Path, Path]:
        """The files of a client's certificate with this subject, the most general part first, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert_file, key_file = self._directory / f"{file}.crt", self._directory / f"{file}.key"
        cert_file.write_bytes(self._sign(x509.Name(names), key))
        key_file.write_bytes(_pem(key))
        return cert_file, key_file

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False) -> bytes:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )


def part(**names: str) -> x509.RelativeDistinguishedName:
    """A part of a subject: `part(common_name="alice")`."""
    return x509.RelativeDistinguishedName(
        [x509.NameAttribute(getattr(NameOID, name.upper()), value) for name, value in names.items()]
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
