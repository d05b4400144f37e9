"""The `console` destination: every row as one line on standard output."""

from __future__ import annotations

import sys
from typing import TextIO

import pyarrow as pa

from headgate.destinations.base import LocalDestination
from headgate.model import record

__all__ = ["ConsoleDestination"]


class ConsoleDestination(LocalDestination):
    """Prints `topic<TAB>payload`; payloads that are no text are shown in hexadecimal."""

    def __init__(self, name: str, max_rows_per_batch: int = 1000, output: TextIO | None = None) -> None:
        self.name = name
        self._max_rows = max_rows_per_batch
        self._output = output

    def accept(self, rows: pa.Table) -> None:
        output = self._output or sys.stdout
        shown = rows.slice(0, self._max_rows)
        topics = shown.column(record.TOPIC).to_pylist()
        payloads = shown.column(record.PAYLOAD).to_pylist()
        lines = [f"{topic}\t{_readable(payload)}\n" for topic, payload in zip(topics, payloads, strict=True)]
        if rows.num_rows > shown.num_rows:
            lines.append(f"... and {rows.num_rows - shown.num_rows} more rows in this batch\n")
        output.writelines(lines)
        output.flush()


def _readable(payload: bytes | None) -> str:
    if payload is None:
        return ""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload.hex()
    return text if text.isprintable() else payload.hex()
