"""The headers of a compressed message, as the lines that a publisher puts into its frames."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.wire.compress.dictionary import Dictionary

__all__ = ["DICTIONARY_HEADER", "ENCODING_HEADER", "ZSTD", "header_line", "header_lines"]

ENCODING_HEADER = "Headgate-Encoding"
DICTIONARY_HEADER = "Headgate-Dictionary"
ZSTD = "zstd"


def header_line(dictionary: Dictionary | None) -> bytes:
    """The lines of one compressed message, each with its end."""
    named = f"{DICTIONARY_HEADER}: {dictionary.id}\r\n" if dictionary else ""
    return f"{ENCODING_HEADER}: {ZSTD}\r\n{named}".encode()


def header_lines(before: pa.Array, after: pa.Array, dictionary: Dictionary | None) -> pa.Array:
    """A column of header lines for a column that `Compressor` was given and what it made; empty where nothing changed.

    A compressed row is shorter than it was, and a row that is not compressed is the same: lengths tell them apart.
    """
    is_compressed = pc.less(pc.binary_length(after), pc.binary_length(before))
    return pc.if_else(is_compressed, pa.scalar(header_line(dictionary), pa.binary()), pa.scalar(b"", pa.binary()))
