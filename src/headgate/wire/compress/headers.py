"""The headers of a compressed message, as the lines that a publisher puts into its frames."""

from __future__ import annotations

from headgate.wire.compress.dictionary import Dictionary

__all__ = ["DICTIONARY_HEADER", "ENCODING_HEADER", "ZSTD", "header_line"]

ENCODING_HEADER = "Headgate-Encoding"
DICTIONARY_HEADER = "Headgate-Dictionary"
ZSTD = "zstd"


def header_line(dictionary: Dictionary | None) -> bytes:
    """The lines of one compressed message, each with its end."""
    named = f"{DICTIONARY_HEADER}: {dictionary.id}\r\n" if dictionary else ""
    return f"{ENCODING_HEADER}: {ZSTD}\r\n{named}".encode()
