"""The server's side of SASL, without a server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.login import Users
from headgate.gateway.login.sasl import MECHANISMS, Dialogue, begin
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

USERS = Users({"user": "pencil", "other": "rubber!!"})
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Talk:
    """An exchange, without a loop of its own."""

    def __init__(self, mechanism: str, users: Users = USERS) -> None:
        self.dialogue: Dialogue = begin(users, mechanism, "127.0.0.1")

    @property
    def user(self) -> str | None:
        return self.dialogue.user

    def step(self, message: bytes) -> bytes:
        return asyncio.run(self.dialogue.step(message))


class Client:
    """The client's side of SCRAM, written from the RFC."""

    def __init__(self, mechanism: str, user: str, password: str, *, gs2: str = "n,,") -> None:
        self.algorithm, self.user, self.password, self.gs2 = SCRAM[mechanism], user, password, gs2
        self.bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r=fyko"

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, server_first: str, **changed: str) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self.algorithm, self.password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self.algorithm)
        binding = changed.get("c", base64.b64encode(self.gs2.encode()).decode())
        bare = f"c={binding},r={changed.get('r', fields['r'])}"
        self.signed = f"{self.bare},{server_first},{bare}".encode()
        signature = hmac.digest(hashlib.new(self.algorithm, client_key).digest(), self.signed, self.algorithm)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.server_key = hmac.digest(salted, b"Server Key", self.algorithm)
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def verifier(self) -> bytes:
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, self.signed, self.algorithm))


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_proves_both_sides(mechanism: str) -> None:
    client, dialogue = Client(mechanism, "user", "pencil"), Talk(mechanism)
    final = client.final(dialogue.step(client.first()).decode())
    assert dialogue.user is None
    assert dialogue.step(final) == client.verifier()
    assert dialogue.user == "user"


def test_scram_of_an_older_librdkafka() -> None:
    """It repeats its own nonce in front of the one that both made."""
    client, dialogue = Client("SCRAM-SHA-256", "user", "pencil"), Talk("SCRAM-SHA-256")
    server_first = dialogue.step(client.first()).decode()
    nonce = server_first.partition(",")[0].removeprefix("r=")
    dialogue.step(client.final(server_first, r=f"fyko{nonce}"))
    assert dialogue.user == "user"


@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize(
    ("user", "password", "changed"),
    [
        ("user", "pen", {}),
        ("nobody", "pencil", {}),
        ("user", "rubber!!", {}),
        ("user", "pencil", {"r": "fyko"}),
        ("user", "pencil", {"c": "eSws"}),
    ],
    ids=["password", "user", "of-another", "nonce", "binding"],
)
def test_scram_refuses(mechanism: str, user: str, password: str, changed: dict[str, str]) -> None:
    client, dialogue = Client(mechanism, user, password), Talk(mechanism)
    final = client.final(dialogue.step(client.first()).decode(), **changed)
    with pytest.raises(Refused) as refused:
        dialogue.step(final)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert dialogue.user is None


def test_an_unknown_user_looks_like_a_known_one() -> None:
    """Its salt stays the same from one try to the next, and another name has another one."""

    def salt(user: str) -> str:
        client = Client("SCRAM-SHA-256", user, "x")
        return Talk("SCRAM-SHA-256").step(client.first()).decode().split(",")[1]

    assert salt("ghost") == salt("ghost")
    assert salt("ghost") != salt("spirit")
    assert len(salt("ghost")) == len(salt("user"))


@pytest.mark.parametrize(
    "first", [b"p=tls-unique,,n=user,r=a", b"n,,r=a,n=user", b"n,a=other,n=user,r=a", b"n,,n=user,r="]
)
def test_scram_openings_that_are_refused(first: bytes) -> None:
    with pytest.raises(Refused):
        Talk("SCRAM-SHA-256").step(first)


def test_scram_lets_nobody_reuse_a_dialogue() -> None:
    client, dialogue = Client("SCRAM-SHA-256", "user", "pencil"), Talk("SCRAM-SHA-256")
    final = client.final(dialogue.step(client.first()).decode())
    other = Talk("SCRAM-SHA-256")
    other.step(client.first())
    with pytest.raises(Refused):
        other.step(final)


@pytest.mark.parametrize("message", [b"\0user\0pencil", b"user\0user\0pencil"], ids=["plain", "authorization"])
def test_plain(message: bytes) -> None:
    dialogue = Talk("PLAIN")
    assert dialogue.step(message) == b""
    assert dialogue.user == "user"


@pytest.mark.parametrize(
    "message",
    [
        b"\0user\0pencil2",
        b"\0nobody\0pencil",
        b"other\0user\0pencil",
        b"\0user\0",
        b"\0\0",
        b"user",
        b"\xff\0a\0b",
        b"",
    ],
)
def test_plain_refuses(message: bytes) -> None:
    dialogue = Talk("PLAIN")
    with pytest.raises(Refused):
        dialogue.step(message)
    assert dialogue.user is None


@given(mechanism=st.sampled_from(MECHANISMS), messages=st.lists(st.binary(max_size=60), max_size=3))
def test_no_bytes_open_the_door(mechanism: str, messages: list[bytes]) -> None:
    dialogue = Talk(mechanism)
    for message in messages:
        try:
            dialogue.step(message)
        except Refused:
            break
    assert dialogue.user is None


def test_nobody_is_let_in_without_users() -> None:
    dialogue = Talk("PLAIN", Users({}))
    with pytest.raises(Refused):
        dialogue.step(b"\0\0")
