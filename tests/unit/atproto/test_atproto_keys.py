"""Keys, signatures and DID documents."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headgate.wire.atproto import (
    AtprotoError,
    Reason,
    SigningKey,
    base58,
    document_url,
    host_of,
    is_supported,
    parse_did_key,
    parse_document,
    parse_legacy_key,
    parse_multikey,
    web_host,
)
from headgate.wire.atproto.keys import K256_ORDER, P256_ORDER

MESSAGE = base64.b64decode("oWVoZWxsb2V3b3JsZA==")
P256_DID, P256_POINT = (
    "did:key:zDnaembgSGUhZULN2Caob4HLJPaxBh92N7rtH21TErzqf8HQo",
    "zxdM8dSstjrpZaRUwBmDvjGXweKuEMVN95A9oJBFjkWMh",
)
K256_DID, K256_POINT = (
    "did:key:zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc",
    "z25z9DTpsiYYJKGsWmSPJK2NFN8PcJtZig12K59UgW7q5t",
)
SUITES = {"k256": "EcdsaSecp256k1VerificationKey2019", "p256": "EcdsaSecp256r1VerificationKey2019"}

# Signatures of the public interoperability tests: key, signature, and what is to be said of it.
SIGNATURES = [
    (
        "p256",
        P256_DID,
        P256_POINT,
        "2vZNsG3UKvvO/CDlrdvyZRISOFylinBh0Jupc6KcWoJWExHptCfduPleDbG3rko3YZnn9Lw0IjpixVmexJDegg",
        None,
    ),
    (
        "k256",
        K256_DID,
        K256_POINT,
        "5WpdIuEUUfVUYaozsi8G0B3cWO09cgZbIIwg1t2YKdUn/FEznOndsz/qgiYb89zwxYCbB71f7yQK5Lr7NasfoA",
        None,
    ),
    (
        "p256",
        P256_DID,
        P256_POINT,
        "2vZNsG3UKvvO/CDlrdvyZRISOFylinBh0Jupc6KcWoKp7O4VS9giSAah8k5IUbXIW00SuOrjfEqQ9HEkN9JGzw",
        Reason.HIGH_S,
    ),
    (
        "k256",
        K256_DID,
        K256_POINT,
        "5WpdIuEUUfVUYaozsi8G0B3cWO09cgZbIIwg1t2YKdXYA67MYxYiTMAVfdnkDCMN9S5B3vHosRe07aORmoshoQ",
        Reason.HIGH_S,
    ),
    (
        "p256",
        "did:key:zDnaeT6hL2RnTdUhAPLij1QBkhYZnmuKyM7puQLW1tkF4Zkt8",
        "ze8N2PPxnu19hmBQ58t5P3E9Yj6CqakJmTVCaKvf9Byq2",
        "MEQCIFxYelWJ9lNcAVt+jK0y/T+DC/X4ohFZ+m8f9SEItkY1AiACX7eXz5sgtaRrz/SdPR8kprnbHMQVde0T2R8yOTBweA",
        Reason.BAD_SIGNATURE,
    ),
    (
        "k256",
        "did:key:zQ3shnriYMXc8wvkbJqfNWh5GXn2bVAeqTC92YuNbek4npqGF",
        "z22uZXWP8fdHXi4jyx8cCDiBf9qQTsAe6VcycoMQPfcMQX",
        "MEUCIQCWumUqJqOCqInXF7AzhIRg2MhwRz2rWZcOEsOjPmNItgIgXJH7RnqfYY6M0eg33wU0sFYDlprwdOcpRn78Sz5ePgk",
        Reason.BAD_SIGNATURE,
    ),
]


@pytest.mark.parametrize(
    ("curve", "did", "point", "signature", "reason"),
    SIGNATURES,
    ids=["p256", "k256", "p256 high-S", "k256 high-S", "p256 DER", "k256 DER"],
)
def test_signatures_of_which_the_answer_is_known(
    curve: str, did: str, point: str, signature: str, reason: Reason | None
) -> None:
    raw = base64.b64decode(signature + "=" * (-len(signature) % 4))
    for key in (parse_did_key(did), parse_legacy_key(SUITES[curve], point)):
        assert key.curve == curve
        if reason is None:
            key.verify(raw, MESSAGE)
            continue
        with pytest.raises(AtprotoError) as caught:
            key.verify(raw, MESSAGE)
        assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("secret", "did"),
    [
        (
            "9085d2bef69286a6cbb51623c8fa258629945cd55ca705cc4e66700396894e0c",
            "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
        ),
        (
            "f0f4df55a2b3ff13051ea814a8f24ad00f2e469af73c363ac7e9fb999a9072ed",
            "zQ3shtxV1FrJfhqE1dvxYRcCknWNjHc3c5X1y3ZSoPDi2aur2",
        ),
        (
            "6b0b91287ae3348f8c2f2552d766f30e3604867e34adc37ccbb74a8e6b893e02",
            "zQ3shZc2QzApp2oymGvQbzP8eKheVshBHbU4ZYjeXqwSKEn6N",
        ),
        (
            "c0a6a7c560d37d7ba81ecee9543721ff48fea3e0fb827d42c1868226540fac15",
            "zQ3shadCps5JLAHcZiuX5YUtWHHL8ysBJqFLWvjZDKAWUBGzy",
        ),
        (
            "175a232d440be1e0788f25488a73d9416c04b6f924bea6354bf05dd2f1a75133",
            "zQ3shptjE6JwdkeKN4fcpnYQY3m9Cet3NiHdAfpvSUZBFoKBj",
        ),
    ],
)
def test_k256_keys_of_which_the_did_is_known(secret: str, did: str) -> None:
    seed = (int(secret, 16) - 1).to_bytes(32, "big")
    assert SigningKey(seed).multikey == did


def test_the_p256_key_of_which_the_did_is_known() -> None:
    secret = int.from_bytes(base58.decode("9p4VRzdmhsnq869vQjVCTrRry7u4TtfRxhvBFJTGU2Cp"), "big")
    key = SigningKey((secret - 1).to_bytes(32, "big"), "p256")
    assert key.multikey == "zDnaeTiq1PdzvZXUaMdezchcMJQpBdH2VN4pgrrEhMCCbmwSb"


@pytest.mark.parametrize("curve", ["k256", "p256"])
class TestSigning:
    def test_what_was_signed_is_verified_and_nothing_else(self, curve: str) -> None:
        key = SigningKey(b"seed", curve)
        signature = key.sign(b"message")
        key.public.verify(signature, b"message")
        parse_multikey(key.multikey).verify(signature, b"message")
        for bad, message in (
            (signature, b"another message"),
            (SigningKey(b"other", curve).sign(b"message"), b"message"),
            (bytes(64), b"message"),
            (b"\xff" * 32 + signature[32:], b"message"),
            (signature[:63], b"message"),
            (signature + b"\0", b"message"),
            (b"", b"message"),
        ):
            with pytest.raises(AtprotoError) as caught:
                key.public.verify(bad, message)
            assert caught.value.reason is Reason.BAD_SIGNATURE

    def test_signatures_have_the_lower_s(self, curve: str) -> None:
        key, order = SigningKey(b"seed", curve), K256_ORDER if curve == "k256" else P256_ORDER
        for number in range(20):
            message = b"%d" % number
            signature = key.sign(message)
            key.public.verify(signature, message)
            high = order - int.from_bytes(signature[32:], "big")
            with pytest.raises(AtprotoError) as caught:
                key.public.verify(signature[:32] + high.to_bytes(32, "big"), message)
            assert caught.value.reason is Reason.HIGH_S


@pytest.mark.parametrize(
    "text",
    [
        "",
        "z",
        "Q3sh",
        "z0OIl",
        "z" + "1" * 1_000_000,
        "zQ3sh",
        "z" + base58.encode(b"\xe7\x01" + bytes(33)),
        "z" + base58.encode(b"\x80\x24" + bytes(33)),
        "z" + base58.encode(b"\xed\x01" + bytes(32)),
        "z" + base58.encode(b"\xe7\x01\x04" + bytes(64)),
    ],
    ids=["nothing", "empty", "base", "letters", "long", "short", "k256 zero", "p256 zero", "ed25519", "uncompressed"],
)
def test_what_is_no_key(text: str) -> None:
    for parse in (parse_multikey, parse_did_key, lambda text: parse_legacy_key(SUITES["k256"], text)):
        with pytest.raises(AtprotoError) as caught:
            parse(text)
        assert caught.value.reason is Reason.BAD_KEY


def test_base58_keeps_zeros() -> None:
    for raw in (b"", b"\0", b"\0\0a", b"hello"):
        assert base58.decode(base58.encode(raw)) == raw


DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
KEY = SigningKey(b"seed")


def method(**changes: Any) -> dict[str, Any]:
    fields = {"id": f"{DID}#atproto", "type": "Multikey", "controller": DID, "publicKeyMultibase": KEY.multikey}
    return fields | changes


def service(**changes: Any) -> dict[str, Any]:
    fields = {"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "https://pds.example"}
    return fields | changes


def document(**changes: Any) -> dict[str, Any]:
    fields = {"id": DID, "alsoKnownAs": ["at://alice.test"], "verificationMethod": [method()], "service": [service()]}
    return fields | changes


class TestDocument:
    def test_it_has_a_key_a_host_and_a_handle(self) -> None:
        for body in (document(), json.dumps(document()).encode()):
            found = parse_document(DID, body)
            assert found.key is not None
            assert found.key.compressed == KEY.public.compressed
            assert (found.pds, found.pds_url, found.handle) == ("pds.example", "https://pds.example", "alice.test")

    def test_names_may_be_written_both_ways(self) -> None:
        methods, services = [method(id="#atproto")], [service(id=f"{DID}#atproto_pds")]
        found = parse_document(DID, document(verificationMethod=methods, service=services))
        assert found.key is not None
        assert found.pds == "pds.example"

    @pytest.mark.parametrize("curve", ["k256", "p256"])
    def test_keys_of_before_multikey_are_read(self, curve: str) -> None:
        key = SigningKey(b"seed", curve)
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        curves: dict[str, ec.EllipticCurve] = {"k256": ec.SECP256K1(), "p256": ec.SECP256R1()}
        point = ec.EllipticCurvePublicKey.from_encoded_point(curves[curve], key.public.compressed)
        whole = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        assert len(whole) == 65
        legacy = method(type=SUITES[curve], publicKeyMultibase="z" + base58.encode(whole))
        found = parse_document(DID, document(verificationMethod=[legacy])).key
        assert found is not None
        found.verify(key.sign(b"message"), b"message")

    @pytest.mark.parametrize(
        "body",
        [document(id="did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"), {}, b"", b"[]", b"[" * 100_000, b" " * (1 << 20) + b"{}"],
        ids=["another", "no id", "nothing", "list", "deep", "long"],
    )
    def test_it_is_the_document_of_its_did(self, body: Any) -> None:
        with pytest.raises(AtprotoError) as caught:
            parse_document(DID, body)
        assert caught.value.reason is Reason.BAD_DOCUMENT

    @pytest.mark.parametrize(
        "methods",
        [
            None,
            [],
            "x",
            ["x"],
            [method(id="#other")],
            [method(controller="did:plc:bbbbbbbbbbbbbbbbbbbbbbbb")],
            [method(type="Ed25519VerificationKey2020")],
            [method(type=None)],
            [method(publicKeyMultibase=None)],
            [method(publicKeyMultibase="zQ3sh")],
        ],
    )
    def test_it_may_have_no_key(self, methods: Any) -> None:
        assert parse_document(DID, document(verificationMethod=methods)).key is None

    @pytest.mark.parametrize(
        "services",
        [
            None,
            [],
            [service(id="#other")],
            [service(type="Other")],
            [service(serviceEndpoint=None)],
            [service(serviceEndpoint="https://pds.example/path")],
            [service(serviceEndpoint="https://user@pds.example")],
            [service(serviceEndpoint="https://pds.example?x=1")],
            [service(serviceEndpoint="ftp://pds.example")],
            [service(serviceEndpoint="https://pds.example:port")],
            [service(serviceEndpoint="https://[::1")],
        ],
    )
    def test_it_may_have_no_host(self, services: Any) -> None:
        assert parse_document(DID, document(service=services)).pds is None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://pds.example", "pds.example"),
        ("https://PDS.Example/", "pds.example"),
        ("https://pds.example:443", "pds.example"),
        ("http://localhost:2583", "localhost:2583"),
        ("https://pds.example:8443", "pds.example:8443"),
        ("pds.example", None),
        ("https://", None),
    ],
)
def test_the_host_of_an_origin(url: str, host: str | None) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("did", "host", "url"),
    [
        ("did:web:example.com", "example.com", "https://example.com/.well-known/did.json"),
        ("did:web:localhost", "localhost", "http://localhost/.well-known/did.json"),
        ("did:web:localhost%3A1234", "localhost:1234", "http://localhost:1234/.well-known/did.json"),
        (DID, None, f"https://plc.directory/{DID}"),
    ],
)
def test_where_a_document_is(did: str, host: str | None, url: str) -> None:
    assert is_supported(did)
    assert web_host(did) == host
    assert document_url(did) == url


@pytest.mark.parametrize(
    "did",
    [
        "did:web:example.com:user",
        "did:web:example.com%3A8443",
        "did:web:example.com%2Fpath",
        "did:web:localhost:1234",
        "did:web:localhost%3A99999",
        "did:web:127.0.0.1",
        "did:web:example",
        "did:web:example.com%23x",
        "did:web:ex%61mple.com%00",
        "did:plc:short",
        "did:plc:AAAAAAAAAAAAAAAAAAAAAAAA",
        "did:plc:aaaaaaaaaaaaaaaaaaaaaaa1",
        "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
        "nonsense",
    ],
)
def test_dids_that_accounts_do_not_have(did: str) -> None:
    assert not is_supported(did)
    with pytest.raises(AtprotoError) as caught:
        document_url(did)
    assert caught.value.reason is Reason.BAD_SYNTAX


def test_another_directory_can_be_asked() -> None:
    assert document_url(DID, "http://localhost:2582/") == f"http://localhost:2582/{DID}"
