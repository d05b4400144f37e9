"""Keys and signatures: secp256k1 (k256) through libsecp256k1, NIST P-256 (p256) through OpenSSL.

    key = parse_multikey("zQ3sh...")     # 10-50 us; keep the key
    key.verify(signature, message)       # 45 us (k256), 95 us (p256); raises BAD_SIGNATURE or HIGH_S

A signature is 64 bytes, r and s. Of the two s that are valid only the lower is taken, on both curves, and DER never.
`SigningKey` is for a simulated network; a relay signs nothing.

Specification: AT Protocol, "Cryptography".
"""

from __future__ import annotations

from hashlib import sha256
from typing import ClassVar, Final, Protocol

import coincurve
from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.wire.atproto import base58
from headgate.wire.atproto.errors import AtprotoError, Reason

__all__ = [
    "K256Key",
    "P256Key",
    "PublicKey",
    "SigningKey",
    "parse_did_key",
    "parse_legacy_key",
    "parse_multikey",
]

K256_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_K256_CODEC, _P256_CODEC = b"\xe7\x01", b"\x80\x24"  # multicodec, as varints: "Cryptography", Public Key Encoding
_PREHASHED = ec.ECDSA(Prehashed(SHA256()))
_MAX_TEXT = 200
# "DID", Legacy Representation.
_LEGACY = {"EcdsaSecp256k1VerificationKey2019": "k256", "EcdsaSecp256r1VerificationKey2019": "p256"}


class PublicKey(Protocol):
    """A parsed key. `compressed` is its 33 bytes, enough to store it."""

    @property
    def curve(self) -> str: ...

    @property
    def compressed(self) -> bytes: ...

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raise unless this key signed the message."""
        ...


class K256Key:
    """A key on secp256k1, the curve of nearly every account."""

    __slots__ = ("_point", "compressed")

    curve: ClassVar[str] = "k256"
    _half: ClassVar[bytes] = (K256_ORDER // 2).to_bytes(32, "big")

    def __init__(self, point: bytes) -> None:
        """From 33 bytes (compressed) or 65."""
        try:
            key = coincurve.PublicKey(point)
        except ValueError as error:
            raise _bad_key("its bytes are no point of the curve") from error
        self._point = key.public_key
        self.compressed: bytes = key.format()

    def verify(self, signature: bytes, message: bytes) -> None:
        _check_shape(signature, self._half)
        parsed = ffi.new("secp256k1_ecdsa_signature *")
        context = GLOBAL_CONTEXT.ctx
        if not lib.secp256k1_ecdsa_signature_parse_compact(context, parsed, signature):
            raise _bad_signature()
        if not lib.secp256k1_ecdsa_verify(context, parsed, sha256(message).digest(), self._point):
            raise _bad_signature()


class P256Key:
    """A key on NIST P-256."""

    __slots__ = ("_point", "compressed")

    curve: ClassVar[str] = "p256"
    _half: ClassVar[bytes] = (P256_ORDER // 2).to_bytes(32, "big")

    def __init__(self, point: bytes) -> None:
        """From 33 bytes (compressed) or 65."""
        try:
            self._point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        except ValueError as error:
            raise _bad_key("its bytes are no point of the curve") from error
        self.compressed = self._point.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)

    def verify(self, signature: bytes, message: bytes) -> None:
        _check_shape(signature, self._half)
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            self._point.verify(encode_dss_signature(r, s), sha256(message).digest(), _PREHASHED)
        except InvalidSignature as error:
            raise _bad_signature() from error


_CURVES: Final[dict[str, type[K256Key] | type[P256Key]]] = {"k256": K256Key, "p256": P256Key}


def parse_multikey(text: str) -> PublicKey:
    """A `Multikey`: `z`, then base58 of two bytes for the curve and 33 for the point.

    Specification: "Cryptography", Public Key Encoding.
    """
    raw = _multibase(text)
    codec, point = raw[:2], raw[2:]
    if len(point) != 33 or codec not in (_K256_CODEC, _P256_CODEC):
        raise _bad_key("it is of no known curve, or not compressed")
    return K256Key(point) if codec == _K256_CODEC else P256Key(point)


def parse_legacy_key(kind: str, text: str) -> PublicKey:
    """A key of the types before `Multikey`, where the type names the curve; also those with a compressed point."""
    point = _multibase(text)
    if kind not in _LEGACY or len(point) not in (33, 65):
        raise _bad_key("it is of no known type")
    return _CURVES[_LEGACY[kind]](point)


def parse_did_key(did: str) -> PublicKey:
    prefix, _, text = did.rpartition(":")
    if prefix != "did:key":
        raise _bad_key("it is no did:key")
    return parse_multikey(text)


class SigningKey:
    """A private key, for a simulated host; the same seed gives the same key."""

    __slots__ = ("_k256", "_p256", "public")

    def __init__(self, seed: bytes, curve: str = "k256") -> None:
        order = K256_ORDER if curve == "k256" else P256_ORDER
        secret = int.from_bytes(seed, "big") % (order - 1) + 1
        self._k256: coincurve.PrivateKey | None = None
        self._p256: ec.EllipticCurvePrivateKey | None = None
        self.public: PublicKey
        if curve == "k256":
            self._k256 = coincurve.PrivateKey.from_int(secret)
            self.public = K256Key(self._k256.public_key.format())
        else:
            self._p256 = ec.derive_private_key(secret, ec.SECP256R1())
            point = self._p256.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
            self.public = P256Key(point)

    def sign(self, message: bytes) -> bytes:
        digest = sha256(message).digest()
        if self._k256 is not None:
            return bytes(self._k256.sign_recoverable(digest, hasher=None)[:64])
        assert self._p256 is not None
        r, s = decode_dss_signature(self._p256.sign(digest, _PREHASHED))
        return r.to_bytes(32, "big") + min(s, P256_ORDER - s).to_bytes(32, "big")

    @property
    def multikey(self) -> str:
        codec = _K256_CODEC if self.public.curve == "k256" else _P256_CODEC
        return "z" + base58.encode(codec + self.public.compressed)


def _multibase(text: str) -> bytes:
    if not text.startswith("z") or len(text) > _MAX_TEXT:
        raise _bad_key("it is not in base58btc")
    try:
        return base58.decode(text[1:])
    except ValueError as error:
        raise _bad_key("it is not in base58btc") from error


def _check_shape(signature: bytes, half: bytes) -> None:
    if len(signature) != 64:
        raise AtprotoError(Reason.BAD_SIGNATURE, f"a signature has 64 bytes, not {len(signature)}")
    if signature[32:] > half:  # "Cryptography", ECDSA Signature Malleability
        raise AtprotoError(Reason.HIGH_S, "the signature has the higher of the two valid s")


def _bad_key(what: str) -> AtprotoError:
    return AtprotoError(Reason.BAD_KEY, f"not a signing key: {what}")


def _bad_signature() -> AtprotoError:
    return AtprotoError(Reason.BAD_SIGNATURE, "the key did not sign this")
