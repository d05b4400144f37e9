"""The worker's half: compresses rows of many tables, each with its table's dictionary, and remembers what to report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.wire.compress.dictionary import Dictionary
from headgate.wire.compress.frames import Compressor, header_lines
from headgate.wire.compress.report import Report

__all__ = ["TableCompressor"]

# A report goes through the driver's memory once per task: some KB per table, more only while there is no dictionary.
_SAMPLES_TO_LEARN = 64
_SAMPLES_TO_WATCH = 8
_SAMPLE_BYTES = 64 << 10
_LARGE_SAMPLE_BYTES = 16 << 10  # a larger message gains nothing from a dictionary


@dataclass(slots=True)
class _Tally:
    message_count: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    samples: list[bytes] = field(default_factory=list)


class TableCompressor:
    """For one task, or for many in a row with the same dictionaries."""

    def __init__(self, dictionaries: Mapping[str, Dictionary] | None = None, level: int = 3) -> None:
        self._dictionaries = dict(dictionaries or {})
        self._level = level
        self._plain = Compressor(level)
        self._compressors: dict[str, Compressor] = {}
        self._tallies: dict[str, _Tally] = {}

    def compress(self, tables: pa.Array, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Payloads and header lines, in the order of the rows. `tables` names the table of each row.

        Any text that tells tables apart will do. The columns have no nulls.
        """
        named = tables.dictionary_encode()
        names = named.dictionary.to_pylist()
        if len(names) <= 1:
            return self._of_table(names[0], payloads) if names else (payloads, payloads)
        # Rows of a table are put together, compressed, and put back.
        order = np.argsort(named.indices.to_numpy(), kind="stable")
        numbers = named.indices.to_numpy()[order]
        grouped = payloads.take(pa.array(order))
        bounds = np.searchsorted(numbers, np.arange(len(names) + 1))
        parts = [
            self._of_table(name, grouped.slice(first, stop - first))
            for name, first, stop in zip(names, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]
        back = pa.array(np.argsort(order, kind="stable"))
        made, lines = (pa.concat_arrays(pieces).take(back) for pieces in zip(*parts, strict=True))
        return made, lines

    def reports(self) -> list[Report]:
        """What was done since the last time, one report per table."""
        reports = [
            Report(table, self._id(table), tally.message_count, tally.bytes_in, tally.bytes_out, tuple(tally.samples))
            for table, tally in self._tallies.items()
        ]
        self._tallies.clear()
        return reports

    def _of_table(self, table: str, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        compressor = self._compressor(table)
        made = compressor.compress_column(payloads)
        lines = header_lines(payloads, made, compressor.dictionary)
        tally = self._tallies.setdefault(table, _Tally())
        tally.message_count += len(payloads)
        tally.bytes_in += _total(payloads)
        tally.bytes_out += _total(made) + _total(lines)
        self._sample(table, tally, payloads)
        return made, lines

    def _compressor(self, table: str) -> Compressor:
        dictionary = self._dictionaries.get(table)
        if dictionary is None:
            return self._plain
        if table not in self._compressors:
            self._compressors[table] = Compressor(self._level, dictionary)
        return self._compressors[table]

    def _sample(self, table: str, tally: _Tally, payloads: pa.Array) -> None:
        """Keep some rows, spread over the batch."""
        wanted = (_SAMPLES_TO_WATCH if table in self._dictionaries else _SAMPLES_TO_LEARN) - len(tally.samples)
        room = _SAMPLE_BYTES - sum(map(len, tally.samples))
        if wanted <= 0 or not len(payloads):
            return
        for row in np.unique(np.linspace(0, len(payloads) - 1, wanted, dtype=np.int64)).tolist():
            sample = payloads[row].as_py()
            if 0 < len(sample) <= min(room, _LARGE_SAMPLE_BYTES):
                tally.samples.append(sample)
                room -= len(sample)

    def _id(self, table: str) -> str:
        dictionary = self._dictionaries.get(table)
        return dictionary.id if dictionary else ""


def _total(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
