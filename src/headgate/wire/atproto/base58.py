"""Base58 with Bitcoin's letters, for keys: short texts only, since it takes quadratic time.

Specification: multibase (multiformats), `z`, base58btc, which the AT Protocol's "Cryptography" asks for.
"""

from __future__ import annotations

from typing import Final

__all__ = ["decode", "encode"]

_LETTERS: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_VALUES: Final = {letter: value for value, letter in enumerate(_LETTERS)}


def decode(text: str) -> bytes:
    """Raise ValueError for letters that are none."""
    number = 0
    try:
        for letter in text:
            number = number * 58 + _VALUES[letter]
    except KeyError as error:
        raise ValueError("not base58") from error
    zeros = len(text) - len(text.lstrip("1"))  # base58btc: one letter for each zero byte that leads
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")


def encode(raw: bytes) -> str:
    number = int.from_bytes(raw, "big")
    letters = []
    while number:
        number, value = divmod(number, 58)
        letters.append(_LETTERS[value])
    zeros = len(raw) - len(raw.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(letters))
