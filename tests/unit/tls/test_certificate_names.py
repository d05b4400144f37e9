"""The subject of a certificate as Kafka writes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from headgate.model import ProtocolError
from headgate.wire.x509 import common_name, distinguished_name, read_subject
from tests.gateway.certificates import Authority, part


def der(file: Path) -> bytes:
    return x509.load_pem_x509_certificate(file.read_bytes()).public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


ORDINARY = (part(country_name="DE"), part(organization_name="Example"), part(common_name="alice"))
SUBJECTS: list[tuple[tuple[Any, ...], str, str | None]] = [
    (ORDINARY, "CN=alice,O=Example,C=DE", "alice"),
    ((part(common_name='a,b+c"d\\e<f>g;h'),), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h', 'a,b+c"d\\e<f>g;h'),
    ((part(common_name=" x "),), "CN=\\ x\\ ", " x "),
    ((part(common_name="#1"),), "CN=\\#1", "#1"),
    ((part(common_name="Grüße"),), "CN=Grüße", "Grüße"),
    ((part(common_name="a", user_id="7"),), "CN=a+UID=7", "a"),
    ((part(domain_component="org"), part(street_address="x 1")), "STREET=x 1,DC=org", None),
    ((part(common_name="a"), part(common_name="b")), "CN=b,CN=a", None),
    (
        (part(email_address="a@b.c"), part(common_name="a")),
        "CN=a,1.2.840.113549.1.9.1=#16056140622e63",
        "a",
    ),
    ((), "", None),
]


@pytest.mark.parametrize(("names", "written", "common"), SUBJECTS)
def test_names(authority: Authority, names: tuple[Any, ...], written: str, common: str | None) -> None:
    subject = read_subject(der(authority.client(*names)[0]))
    assert common_name(subject) == common
    assert distinguished_name(subject) == written


def test_openssl_writes_it_so_too(authority: Authority) -> None:
    file, _ = authority.client(*ORDINARY, part(organizational_unit_name="a,b"))
    command = ["openssl", "x509", "-in", str(file), "-noout", "-subject", "-nameopt", "RFC2253"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.strip().removeprefix("subject=").strip() == distinguished_name(read_subject(der(file)))


def test_a_common_name_of_an_unknown_kind_of_text_is_none(authority: Authority) -> None:
    name = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\x01", x509.name._ASN1Type.BitString)
    subject = read_subject(der(authority.client(x509.RelativeDistinguishedName([name]))[0]))
    assert distinguished_name(subject).startswith("2.5.4.45=#03")


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x00", b"\x31\x00"])
def test_what_is_no_certificate(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_subject(data)
