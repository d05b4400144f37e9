"""Compression in a NATS destination: what senders take from the bucket, and what the driver puts there.

See `headgate.wire.compress` for how the two keep in step. A table is recognised by its topic without the last token,
which is the operation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.nats.jetstream import JetStream
from headgate.destinations.nats.keyvalue import Bucket
from headgate.model import HeadgateError
from headgate.model.places import dictionary_bucket
from headgate.wire.compress import CURRENT_KEY, Current, Dictionary, Report
from headgate.wire.compress.book import DictionaryBook
from headgate.wire.compress.tables import TableCompressor

if TYPE_CHECKING:
    from headgate.destinations.nats.options import NatsOptions

__all__ = ["DictionaryKeeper", "keeper_of", "table_compressor", "tables_of"]

_log = logging.getLogger(__name__)

_compressors: dict[NatsOptions, tuple[dict[str, str], TableCompressor]] = {}
_keepers: dict[NatsOptions, DictionaryKeeper] = {}


def tables_of(topics: pa.Array) -> pa.Array:
    """`cdc.public.users.insert` -> `cdc.public.users`."""
    encoded = topics.dictionary_encode()
    tables = pc.replace_substring_regex(encoded.dictionary, pattern=r"\.[^.]*$", replacement="")
    return tables.take(encoded.indices)


def table_compressor(options: NatsOptions, jetstream: JetStream) -> TableCompressor:
    """The compressor of this process, with the dictionaries of a destination that are current now."""
    bucket = Bucket(jetstream, dictionary_bucket(options.stream))
    entry = bucket.get(CURRENT_KEY)
    ids = dict(Current.parse(entry.value).ids) if entry else {}
    known = _compressors.get(options)
    if known is None or known[0] != ids:
        found = {table: bucket.get(dictionary_id) for table, dictionary_id in ids.items()}
        dictionaries = {table: Dictionary.of(entry.value) for table, entry in found.items() if entry is not None}
        known = _compressors[options] = (ids, TableCompressor(dictionaries))
    return known[1]


def keeper_of(options: NatsOptions) -> DictionaryKeeper:
    """The driver's, one for each destination."""
    if options not in _keepers:
        _keepers[options] = DictionaryKeeper(options)
    return _keepers[options]


class DictionaryKeeper:
    """Learns from the senders' reports, and trains in a thread of its own: no batch waits for that."""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._bucket = dictionary_bucket(options.stream)
        self._lock = threading.Lock()
        self._book: DictionaryBook | None = None
        self._training: threading.Thread | None = None

    def ensure(self, jetstream: JetStream) -> None:
        """Create the bucket, and go on where an earlier run ended."""
        bucket = Bucket(jetstream, self._bucket)
        bucket.ensure(replicas=self._options.replicas)
        entry = bucket.get(CURRENT_KEY)
        with self._lock:
            self._book = DictionaryBook(current=Current.parse(entry.value) if entry else None)

    def take(self, reports: Sequence[dict[str, Any]]) -> None:
        with self._lock:
            if self._book is None:
                return
            for report in reports:
                self._book.take(Report.from_dict(report))
            busy = self._training is not None and self._training.is_alive()
            if self._book.due() and not busy:
                self._training = threading.Thread(target=self._train, name="dictionaries", daemon=True)
                self._training.start()

    def ratios(self) -> dict[str, float]:
        """Bytes before and after, for each table."""
        with self._lock:
            return self._book.ratios() if self._book else {}

    def _train(self) -> None:
        try:
            with JetStream.open(self._options) as jetstream, self._lock:
                assert self._book is not None
                for table in self._book.due():
                    self._train_one(self._book, table, Bucket(jetstream, self._bucket))
        except HeadgateError as error:
            _log.info("no new dictionary: %s", error)

    def _train_one(self, book: DictionaryBook, table: str, bucket: Bucket) -> None:
        dictionary = book.train(table)
        if dictionary is None:
            return
        bucket.put(dictionary.id, dictionary.data)
        book.adopt(table, dictionary)
        bucket.put(CURRENT_KEY, book.current.dump())
        _log.info("new dictionary", extra={"table": table, "dictionary": dictionary.id, "bytes": len(dictionary.data)})
