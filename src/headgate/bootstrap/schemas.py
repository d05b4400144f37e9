"""The bucket of descriptions: one key per published table, with history."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from headgate.destinations.nats import Bucket, JetStream, NatsOptions
from headgate.sources.postgres_cdc.describe import Description
from headgate.sources.postgres_cdc.schemas import book_stamp, read_book
from headgate.wire.envelope import encode_fields, key_token

__all__ = ["SchemaPublisher"]

_log = logging.getLogger(__name__)
_HISTORY = 64  # the most that a bucket keeps


class SchemaPublisher:
    """Puts what the reader's book says now into the bucket, whenever the book has changed."""

    def __init__(self, spool: Path, options: NatsOptions, bucket: str, *, is_json: bool) -> None:
        self._spool = spool
        self._options = options
        self._bucket = bucket
        self._is_json = is_json
        self._stamp: object = None
        self._put: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self.tables: dict[tuple[str, str], Description] = {}

    def publish(self) -> None:
        """Called often: before each batch, and now and then while nothing happens."""
        stamp = book_stamp(self._spool)
        with self._lock:
            if stamp is None or stamp == self._stamp:
                return
            self._publish()
            self._stamp = stamp

    def _publish(self) -> None:
        book = read_book(self._spool)
        if book is None:
            return
        with JetStream.open(self._options) as jetstream:
            bucket = Bucket(jetstream, self._bucket)
            bucket.ensure(history=_HISTORY, replicas=self._options.replicas)
            for relation_id, entry in book.tables.items():
                if entry.current is not None:
                    self._put_one(bucket, relation_id, entry.current)
                elif entry.announced:
                    self._remove(bucket, entry.announced[-1].description)
        current = [entry.current for entry in book.tables.values() if entry.current is not None]
        self.tables = {(each["schema"], each["table"]): each for each in current}

    def _put_one(self, bucket: Bucket, relation_id: int, description: Description) -> None:
        value = encode_fields(description, is_json=self._is_json)
        if self._put.get(relation_id) == value:
            return
        key = _key(description)
        found = bucket.get(key)
        if found is None or found.value != value:
            bucket.put(key, value)
            _log.info("schema published", extra={"table": key, "schema_version": description["version"]})
        self._put[relation_id] = value

    def _remove(self, bucket: Bucket, description: Description) -> None:
        """A table that is published no more, unless another one has its name now."""
        key = _key(description)
        taken = any(_key(each) == key for each in self.tables.values())
        if not taken and bucket.get(key) is not None:
            bucket.delete(key)


def _key(description: Description) -> str:
    return f"{key_token(description['schema'])}.{key_token(description['table'])}"
