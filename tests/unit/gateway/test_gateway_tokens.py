"""Tokens without a gateway: which count as a login, and which never do."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, RSAKey

from headgate.gateway.health import Health
from headgate.gateway.login.bearer import Bearer
from headgate.gateway.login.jwks import _tls, read_keys
from headgate.gateway.login.tokens import Claimed, TokenRefusedError, Tokens
from headgate.gateway.options import OAuthOptions
from headgate.wire.kafka.refusal import Refused
from tests.gateway.certificates import write_certificate
from tests.gateway.tokens import AUDIENCE, ISSUER, Issuer, served

ISSUED_BY = Issuer()
RSA = Issuer("two", kind="RSA")


def tokens(jwks: str, **more: Any) -> Tokens:
    return Tokens(OAuthOptions(jwks=jwks, issuer=ISSUER, audience=AUDIENCE, **more), Health())


@pytest.fixture(scope="module")
def jwks(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("jwks") / "jwks.json"
    file.write_bytes(ISSUED_BY.key_set(RSA.public()))
    return str(file)


def check(jwks: str, token: str, **more: Any) -> Claimed:
    return asyncio.run(tokens(jwks, **more).check(token))


@pytest.mark.parametrize("issuer", [ISSUED_BY, RSA], ids=["ES256", "RS256"])
def test_a_token_names_its_client_for_as_long_as_it_counts(jwks: str, issuer: Issuer) -> None:
    claimed = check(jwks, issuer.token())
    assert claimed.name == "alice"
    assert 290 < claimed.lifetime_s <= 300


def test_the_audience_may_be_one_of_many_and_the_name_another_claim(jwks: str) -> None:
    token = ISSUED_BY.token(aud=["other", AUDIENCE], azp="service-7")
    assert check(jwks, token, principal_claim="azp").name == "service-7"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"aud": "other"},
        {"aud": ["other"]},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "2999-01-01"},
        {"exp": True},
        {"exp": float("nan")},
        {"nbf": 4_000_000_000},
        {"iat": 4_000_000_000},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"sub": "line\nbreak"},
        {"sub": ["alice"]},
    ],
    ids=str,
)
def test_claims_that_are_refused(jwks: str, claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefusedError):
        check(jwks, ISSUED_BY.token(**claims))


def test_clocks_may_differ_a_little(jwks: str) -> None:
    assert check(jwks, ISSUED_BY.token(lifetime_s=-10)).lifetime_s == 1.0
    with pytest.raises(TokenRefusedError):
        check(jwks, ISSUED_BY.token(lifetime_s=-10), clock_skew_s=0)


def test_a_lifetime_without_end_ends(jwks: str) -> None:
    assert check(jwks, ISSUED_BY.token(exp=1e300)).lifetime_s <= 366 * 86_400


def encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def forged(header: dict[str, Any], signature: bytes = b"") -> str:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "exp": int(time.time()) + 300}
    return f"{encoded(header)}.{encoded(claims)}." + base64.urlsafe_b64encode(signature).decode().rstrip("=")


def test_nobody_chooses_how_a_token_is_checked(jwks: str) -> None:
    """Without a signature; with a public key taken for a secret; with a key of the token's own."""
    mallory = ECKey.generate_key("P-256")
    own = {"jwk": mallory.as_dict(private=False)}
    for header in ({"alg": "none"}, {"alg": "None", "kid": "one"}, {"alg": "ES256", "kid": "one", **own}):
        with pytest.raises(TokenRefusedError):
            check(jwks, forged(header))
    header = {"alg": "HS256", "kid": "two"}
    unsigned = forged(header).rpartition(".")[0]
    for secret in (RSA.key.as_pem(private=False), RSA.key.as_der(private=False)):
        signature = hmac.digest(secret, unsigned.encode(), hashlib.sha256)
        with pytest.raises(TokenRefusedError):
            check(jwks, forged(header, signature))
    with pytest.raises(TokenRefusedError):
        check(jwks, ISSUED_BY.token(), algorithms=("RS256",))
    impostor = Issuer(ISSUED_BY.kid)
    with pytest.raises(TokenRefusedError):
        check(jwks, impostor.token())


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "a.b.c", "a.b.c.d.e", "ä.b.c", "x" * 20_000 + "..", "[" * 5000 + ".b.c", encoded({}) + ".b.c"],
    ids=["empty", "dot", "dots", "letters", "encrypted", "unicode", "huge", "deep", "empty-header"],
)
def test_what_is_no_token(jwks: str, token: str) -> None:
    with pytest.raises(TokenRefusedError):
        check(jwks, token)


def test_deep_json_is_refused(jwks: str) -> None:
    deep = base64.urlsafe_b64encode(b"[" * 8000).decode()
    with pytest.raises(TokenRefusedError):
        check(jwks, f"{deep}.{deep[:4000]}.x")


def test_keys_that_cannot_be_used_are_left_out() -> None:
    others: list[Any] = [
        OctKey.generate_key(256).as_dict(private=True),
        {"kty": "RSA", "n": "AQAB"},
        {"kty": "EC", "crv": "P-0", "x": "a", "y": "b"},
        {"kty": "AKP"},
        {**RSA.public(), "use": "enc"},
        "nonsense",
        None,
    ]
    assert [key.kid for key in read_keys(ISSUED_BY.key_set(*others)).keys] == ["one"]


def test_a_private_key_in_a_key_set_is_kept_as_a_public_one() -> None:
    private = RSAKey.generate_key(2048, {"kid": "secret"}).as_dict(private=True)
    (key, _) = read_keys(ISSUED_BY.key_set(private)).keys
    assert not key.is_private


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b"[" * 100_000, json.dumps({"keys": [{}] * 101}).encode()],
)
def test_what_is_no_key_set(data: bytes) -> None:
    with pytest.raises(ValueError, match="JWK set"):
        read_keys(data)


def fetch(jwks: str, **more: Any) -> Tokens:
    checker = tokens(jwks, **more)
    asyncio.run(checker.keyring.know("one"))
    return checker


def told(checker: Tokens) -> str:
    return checker.keyring._health.troubles["oauth keys"].why


def test_keys_come_over_http_only_when_told_so() -> None:
    with served({"/keys": ISSUED_BY.key_set()}) as (url, asked):
        assert "https" in told(fetch(f"{url}/keys"))
        assert "not a public address" in told(fetch(f"{url}/keys".replace("http:", "https:")))
        assert asked == []
        assert [key.kid for key in fetch(f"{url}/keys", allow_private=True).keyring.keys.keys] == ["one"]


def test_keys_come_over_https_from_who_proves_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is not to be trusted is a failure; a name that resolves is checked against it."""
    _tls.cache_clear()
    files = write_certificate(tmp_path)
    with served({"/keys": ISSUED_BY.key_set()}, certificate=files) as (url, asked):
        assert "CERTIFICATE_VERIFY_FAILED" in told(fetch(f"{url}/keys", allow_private=True))
        assert asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        _tls.cache_clear()
        assert fetch(f"{url}/keys", allow_private=True).keyring.keys.keys
        other_name = f"{url}/keys".replace("127.0.0.1", "localhost")
        assert "localhost" in told(fetch(other_name, allow_private=True))
        assert asked == ["/keys"]
    _tls.cache_clear()


def test_redirects_are_not_followed() -> None:
    with served({"/keys": b"", "/other": ISSUED_BY.key_set()}, status=302) as (url, asked):
        assert "302" in told(fetch(f"{url}/keys", allow_private=True))
        assert asked == ["/keys"]


def test_an_answer_has_a_size() -> None:
    with served({"/keys": b" " * 300_000 + ISSUED_BY.key_set()}) as (url, _):
        assert "at most" in told(fetch(f"{url}/keys", allow_private=True))


def test_without_keys_a_client_tries_again(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        check(str(tmp_path / "missing.json"), ISSUED_BY.token())


def test_many_tokens_with_unknown_keys_ask_once(jwks: str) -> None:
    with served({"/keys": ISSUED_BY.key_set()}) as (url, asked):
        checker = tokens(f"{url}/keys", allow_private=True)

        async def storm() -> None:
            stranger = Issuer("unknown")
            await asyncio.gather(*(checker.check(stranger.token()) for _ in range(50)), return_exceptions=True)
            assert (await checker.check(ISSUED_BY.token())).name == "alice"

        asyncio.run(storm())
        assert asked == ["/keys"]


def message(token: str, name: str = "") -> bytes:
    return f"n,{f'a={name}' if name else ''},\x01auth=Bearer {token}\x01host=h\x01\x01".encode()


def test_the_dialogue(jwks: str) -> None:
    bearer = Bearer(tokens(jwks))
    assert asyncio.run(bearer.step(message(ISSUED_BY.token(), "alice"))) == b""
    assert (bearer.user, bearer.claimed) == ("alice", "alice")


def test_a_refused_token_is_answered_as_the_rfc_says(jwks: str) -> None:
    bearer = Bearer(tokens(jwks))
    token = ISSUED_BY.token(aud="other")
    assert json.loads(asyncio.run(bearer.step(message(token)))) == {"status": "invalid_token"}
    with pytest.raises(Refused) as caught:
        asyncio.run(bearer.step(b"\x01"))
    assert bearer.user is None
    assert "aud" in str(caught.value)
    assert token.rpartition(".")[2] not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"p=x,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,b=x,\x01auth=Bearer a.b.c\x01\x01",
        b"\xff,,\x01\x01",
        b"n" * 70_000,
    ],
)
def test_messages_that_are_none(jwks: str, text: bytes) -> None:
    with pytest.raises(Refused):
        asyncio.run(Bearer(tokens(jwks)).step(text))


def test_nobody_acts_for_somebody_else(jwks: str) -> None:
    bearer = Bearer(tokens(jwks))
    with pytest.raises(Refused):
        asyncio.run(bearer.step(message(ISSUED_BY.token(), "root")))
    assert bearer.user is None


@given(parts=st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_no_bytes_are_a_login(jwks: str, parts: list[bytes]) -> None:
    bearer = Bearer(tokens(jwks))
    try:
        for part in parts:
            asyncio.run(bearer.step(b"n,,\x01auth=Bearer " + part + b"\x01\x01"))
    except Refused:
        pass
    assert bearer.user is None
