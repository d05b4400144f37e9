"""Signatures: what one side makes the other accepts, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ConfigError
from headgate.wire.webhook import SCHEMES, Scheme, Signing

schemes = st.sampled_from(SCHEMES)
secrets = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=8, max_size=30).filter(
    lambda text: not text.startswith("whsec_")
)
NOW = 1_790_000_000


def signed(signing: Signing, body: bytes, now_s: int = NOW) -> dict[str, str]:
    headers = signing.sign(body, message_id="msg-1", now_s=now_s)
    return {name.lower(): value for name, value in headers.items()}


@given(schemes, st.lists(secrets, min_size=1, max_size=3), st.binary(max_size=200), st.integers(-299, 299))
def test_what_was_signed_is_accepted(scheme: Scheme, keys: list[str], body: bytes, late_s: int) -> None:
    signing = Signing(scheme, tuple(keys))
    assert signing.verify(signed(signing, body), body, now_s=NOW + late_s)


@given(schemes, secrets, secrets, st.binary(max_size=50))
def test_secrets_are_rotated_without_a_gap(scheme: Scheme, old: str, new: str, body: bytes) -> None:
    receiver = Signing(scheme, (new, old))
    assert receiver.verify(signed(Signing(scheme, (old,)), body), body, now_s=NOW)
    assert receiver.verify(signed(Signing(scheme, (new,)), body), body, now_s=NOW)


@given(schemes, secrets, st.binary(max_size=50), st.binary(max_size=50), secrets)
def test_another_body_or_secret_is_refused(scheme: Scheme, secret: str, body: bytes, other: bytes, wrong: str) -> None:
    signing = Signing(scheme, (secret,))
    headers = signed(signing, body)
    assert signing.verify(headers, other, now_s=NOW) == (other == body)
    assert Signing(scheme, (wrong,)).verify(headers, body, now_s=NOW) == (wrong == secret)


@pytest.mark.parametrize("scheme", ["stripe", "standard"])
@pytest.mark.parametrize("late_s", [-301, 301, 10_000_000])
def test_an_old_request_cannot_be_replayed(scheme: Scheme, late_s: int) -> None:
    signing = Signing(scheme, ("secret-secret",))
    headers = signed(signing, b"{}")
    assert not signing.verify(headers, b"{}", now_s=NOW + late_s)
    renewed = {name: value.replace(str(NOW), str(NOW + late_s)) for name, value in headers.items()}
    assert not signing.verify(renewed, b"{}", now_s=NOW + late_s)


def test_an_id_is_signed_too() -> None:
    signing = Signing("standard", ("secret-secret",))
    assert not signing.verify(signed(signing, b"{}") | {"webhook-id": "msg-2"}, b"{}", now_s=NOW)


hostile = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["sha256=", "sha256=é", "t=,v1=", "t=1,t=2,v1=ab", "v1,", "v1,é v1", "v1=" * 500, "t=٣,v1=a"]),
)


@given(schemes, hostile, hostile, hostile, st.binary(max_size=20))
def test_hostile_headers_are_refused_quietly(scheme: Scheme, a: str, b: str, c: str, body: bytes) -> None:
    signing = Signing(scheme, ("secret-secret",))
    headers = {signing.header_name.lower(): a, "webhook-id": b, "webhook-timestamp": c}
    assert not signing.verify(headers, body, now_s=NOW)
    assert not signing.verify({}, body, now_s=NOW)


def test_the_forms_are_those_that_others_use() -> None:
    """Computed here by hand, as the services describe them."""
    body, key = b'{"a":1}', b"it is a secret"

    def mac(content: bytes) -> bytes:
        return hmac.new(key, content, hashlib.sha256).digest()

    github = {"x-hub-signature-256": f"sha256={mac(body).hex()}"}
    assert Signing("github", (key.decode(),)).verify(github, body, now_s=0)
    stripe = {"stripe-signature": f"t={NOW},v0=00,v1={mac(b'%d.' % NOW + body).hex()}"}
    assert Signing("stripe", (key.decode(),)).verify(stripe, body, now_s=NOW)
    secret = "whsec_" + base64.b64encode(key).decode()
    text = base64.b64encode(mac(b"m1.%d." % NOW + body)).decode()
    standard = {"webhook-id": "m1", "webhook-timestamp": str(NOW), "webhook-signature": f"v1a,xx v1,{text}"}
    assert Signing("standard", (secret,)).verify(standard, body, now_s=NOW)
    renamed = {"x-mine": github["x-hub-signature-256"]}
    assert Signing("github", (key.decode(),), header="X-Mine").verify(renamed, body, now_s=0)


def test_secrets_are_checked_and_never_shown() -> None:
    for wrong in ((), ("",), ("whsec_%%%",)):
        with pytest.raises(ConfigError) as caught:
            Signing("standard", wrong)
        assert "%%%" not in str(caught.value)
    assert "hidden" not in repr(Signing("github", ("hidden-secret",)))
