"""Log sequence numbers: a byte position in the WAL, and the text PostgreSQL writes for it.

Specification: PostgreSQL manual, Data Types, "pg_lsn Type".
"""

from __future__ import annotations

import re

from headgate.model import ProtocolError

__all__ = ["format_lsn", "parse_lsn"]

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """`16/B374D848` for 0x16B374D848: both halves in hexadecimal without leading zeros, as `pg_lsn` prints them."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The number behind `16/B374D848`."""
    match = _LSN.fullmatch(text)
    if match is None:
        raise ProtocolError(
            f"not an LSN: {text[:40]!r}", remedy="Write it as PostgreSQL does, for example 16/B374D848."
        )
    return int(match[1], 16) << 32 | int(match[2], 16)
