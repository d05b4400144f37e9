"""Authentication with a NATS server: user and password, token, nkey, or JWT with nkey from a credentials file.

An nkey is an Ed25519 key in base32 with a type prefix and a checksum. A seed decodes to two prefix bytes (kind "seed",
then the kind of key), 32 bytes of key and a little-endian CRC-16. The server sends a nonce in INFO; the client proves
possession of the key by signing it.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headgate.model import ConfigError

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions, Server

__all__ = ["connect_fields", "read_creds", "sign_nonce"]

_SEED_PREFIX = 18 << 3
_USER_PREFIX = 20 << 3
_SEED_BYTES = 36


def connect_fields(options: NatsOptions, server: Server, nonce: str) -> dict[str, str]:
    """The credential fields of CONNECT. What stands in the URL wins over the options, as it is the closer place."""
    if options.creds_file:
        jwt, seed = read_creds(options.creds_file)
        return {"jwt": jwt, "sig": sign_nonce(seed, nonce)[1]}
    if options.nkey_seed:
        public_key, signature = sign_nonce(options.nkey_seed, nonce)
        return {"nkey": public_key, "sig": signature}
    if server.token or options.token:
        return {"auth_token": server.token or options.token}
    if server.user or options.user:
        return {"user": server.user or options.user, "pass": server.password or options.password}
    return {}


def read_creds(path: str) -> tuple[str, str]:
    """The JWT and the nkey seed of a credentials file."""
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the NATS credentials file {path}: {type(error).__name__}", where="creds_file"
        ) from None
    jwt, seed = _section(lines, "NATS USER JWT"), _section(lines, "USER NKEY SEED")
    if not jwt or not seed:
        raise ConfigError(
            f"{path} is not a NATS credentials file",
            where="creds_file",
            remedy="it must hold a user JWT and an nkey seed, as written by `nsc generate creds`",
        )
    return jwt, seed


def sign_nonce(seed: str, nonce: str) -> tuple[str, str]:
    """The public key that belongs to the seed, and the signature of the nonce, both as CONNECT wants them."""
    prefix, key = _decode_seed(seed)
    private = Ed25519PrivateKey.from_private_bytes(key)
    public = bytes([prefix]) + private.public_key().public_bytes_raw()
    signature = base64.urlsafe_b64encode(private.sign(nonce.encode())).rstrip(b"=")
    return _base32(public + _checksum(public)), signature.decode()


def _decode_seed(seed: str) -> tuple[int, bytes]:
    text = seed.strip()
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _SEED_BYTES or raw[0] & 0xF8 != _SEED_PREFIX or _checksum(raw[:-2]) != raw[-2:]:
        raise ConfigError(
            "not an nkey seed", where="nkey_seed", remedy="a user seed starts with SU and has 58 characters"
        )
    prefix = (raw[0] & 0x07) << 5 | raw[1] >> 3
    if prefix != _USER_PREFIX:
        raise ConfigError("the nkey seed is not a user's", where="nkey_seed", remedy="a user seed starts with SU")
    return prefix, raw[2:-2]


def _checksum(raw: bytes) -> bytes:
    # binascii's CRC is the one nkeys use: polynomial 0x1021, initial value 0.
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).rstrip(b"=").decode()


def _section(lines: list[str], title: str) -> str:
    starts = [index for index, line in enumerate(lines) if line.startswith("-") and f"BEGIN {title}" in line]
    return lines[starts[0] + 1].strip() if starts and starts[0] + 1 < len(lines) else ""
