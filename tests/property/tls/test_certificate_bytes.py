"""Bytes that claim to be a certificate."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.wire.x509 import common_name, distinguished_name, read_subject
from tests.gateway.certificates import Authority, part


def _certificate() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        file, _ = Authority(Path(directory)).client(part(country_name="DE"), part(common_name="alice", user_id="7"))
        return x509.load_pem_x509_certificate(file.read_bytes()).public_bytes(serialization.Encoding.DER)


CERTIFICATE = _certificate()


def look(data: bytes) -> None:
    """What comes out is text or the one error, whatever goes in."""
    try:
        subject = read_subject(data)
    except ProtocolError:
        return
    assert len(distinguished_name(subject)) >= len(common_name(subject) or "")


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    look(data)


@given(place=st.integers(0, len(CERTIFICATE) - 1), byte=st.integers(0, 255), end=st.integers(0, len(CERTIFICATE)))
def test_a_damaged_certificate(place: int, byte: int, end: int) -> None:
    look((CERTIFICATE[:place] + bytes((byte,)) + CERTIFICATE[place + 1 :])[:end])


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()))
def test_a_name_comes_back(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file, _ = Authority(Path(directory)).client(part(common_name=name))
        data = x509.load_pem_x509_certificate(file.read_bytes()).public_bytes(serialization.Encoding.DER)
    assert common_name(read_subject(data)) == name
