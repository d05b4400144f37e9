"""Each message names the one before it of its table, so that a reader of some tables sees when one is missing.

The header `Headgate-Previous` is the sequence of that message, 0 if there is none. Only who has a stream for itself
knows the sequences of what it sends, and so can write it. A table is recognised by its topic without the last token,
which is the operation.

What the stream ends with is remembered from send to send, and looked up for tables that are not known. If messages were
deleted from the stream, the last one of a table may be among them: then the last one deleted stands in its place, and
readers that have come so far by then know that they lack nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.nats.dictionaries import tables_of

if TYPE_CHECKING:
    from headgate.destinations.nats.jetstream import JetStream
    from headgate.destinations.nats.options import NatsOptions
    from headgate.destinations.nats.streams import StreamInfo

__all__ = ["PREVIOUS_HEADER", "Chains", "keep_chains", "last_chains", "last_sequences", "take_chains"]

PREVIOUS_HEADER = b"Headgate-Previous"

_MOST_STREAMS = 64
_NAME, _END = b"%s: " % PREVIOUS_HEADER, b"\r\n"

LookUp: TypeAlias = Callable[[Sequence[str]], Mapping[str, int]]


class Chains:
    """The last sequence of each table in a stream that ends with `end`: its creation, last sequence and message id."""

    def __init__(self, end: tuple[str, int, str]) -> None:
        self.end = end
        self._last: dict[str, int] = {}

    def lines(self, topics: pa.Array, first_sequence: int, look_up: LookUp) -> pa.Array:
        """One header line per row; the rows become the stream's next messages, and the chains' new ends."""
        codes, tables = _coded(topics)
        unknown = [table for table in tables if table not in self._last]
        if unknown:
            self._last |= look_up(unknown)
        order = np.argsort(codes, kind="stable")  # the rows of each table together, in their order
        in_order = codes[order]
        begins = np.flatnonzero(np.diff(in_order, prepend=-1))
        ends = np.append(begins[1:], len(order)) - 1
        previous = np.empty(len(order), np.int64)
        previous[order[1:]] = first_sequence + order[:-1]
        previous[order[begins]] = [self._last[tables[code]] for code in in_order[begins]]
        for code, row in zip(in_order[ends].tolist(), order[ends].tolist(), strict=True):
            self._last[tables[code]] = first_sequence + row
        values = pa.array(previous).cast(pa.string()).cast(pa.binary())
        name, end, between = (pa.scalar(text, pa.binary()) for text in (_NAME, _END, b""))
        return pc.binary_join_element_wise(name, values, end, between)


def _coded(topics: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], list[str]]:
    """A number for each row's table, and the tables."""
    encoded = topics.dictionary_encode()
    tables = tables_of(encoded.dictionary).dictionary_encode()
    codes = tables.indices.to_numpy().astype(np.int32)[encoded.indices.to_numpy()]
    return codes, tables.dictionary.to_pylist()


def last_sequences(jetstream: JetStream, info: StreamInfo, tables: Sequence[str]) -> dict[str, int]:
    """Where the last message of each table stands, as far as the stream can tell."""
    if not info.last_sequence:
        return dict.fromkeys(tables, 0)
    deleted = jetstream.last_deleted(info.name) if info.deleted_count else 0
    found = {table: jetstream.last_message(info.name, f"{table}.*") for table in tables}
    return {table: max(message.sequence if message else 0, deleted) for table, message in found.items()}


_kept: dict[NatsOptions, Chains] = {}


def take_chains(options: NatsOptions, end: tuple[str, int, str]) -> Chains:
    """What this process remembers of a stream, if the stream ends as it did then."""
    kept = _kept.pop(options, None)
    return kept if kept is not None and kept.end == end else Chains(end)


def last_chains(options: NatsOptions) -> Chains | None:
    """What this process remembers of a stream, taken at its word: a fence refuses what does not follow on it."""
    return _kept.pop(options, None)


def keep_chains(options: NatsOptions, chains: Chains) -> None:
    """After everything was stored."""
    while len(_kept) >= _MOST_STREAMS:
        del _kept[next(iter(_kept))]
    _kept[options] = chains
