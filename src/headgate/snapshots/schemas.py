"""The bucket of descriptions: one key per published table, with history."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from headgate.destinations.nats import Bucket, JetStream, NatsOptions
from headgate.postgres.describe import Description
from headgate.sources.postgres_cdc.schemas import BookReader, TableEntry
from headgate.wire.envelope import encode_fields, key_token

__all__ = ["SchemaPublisher"]

_log = logging.getLogger(__name__)
_HISTORY = 64  # the most that a bucket keeps


class SchemaPublisher:
    """Puts what the reader's book says now into the bucket, whenever the book has changed."""

    def __init__(self, spool: Path, options: NatsOptions, bucket: str, *, subject: str, is_json: bool) -> None:
        self._book = BookReader(spool)
        self._options = options
        self._bucket = bucket
        self._subject = subject
        self._is_json = is_json
        self._waiting: dict[int, TableEntry] = {}  # changed, and not yet in the bucket
        self._put: dict[int, bytes] = {}  # what is in the bucket of each relation
        self._names: dict[int, tuple[str, str]] = {}  # and under which name
        self._lock = threading.Lock()
        self.tables: dict[tuple[str, str], Description] = {}

    def publish(self) -> None:
        """Called often: before each batch, and now and then while nothing happens."""
        with self._lock:
            self._waiting |= self._book.changes()
            if self._waiting:
                self._publish()

    def _publish(self) -> None:
        with JetStream.open(self._options) as jetstream:
            bucket = Bucket(jetstream, self._bucket)
            bucket.ensure(history=_HISTORY, replicas=self._options.replicas)
            # What is gone, or has another name now, makes room first: its name may be another table's.
            for relation_id, entry in self._waiting.items():
                self._remove(bucket, relation_id, entry)
            for relation_id, entry in list(self._waiting.items()):
                if entry.current is not None:
                    self._put_one(bucket, relation_id, entry.current)
                del self._waiting[relation_id]

    def _put_one(self, bucket: Bucket, relation_id: int, description: Description) -> None:
        name = _name(description)
        value = encode_fields({**description, "subject": self._subject}, is_json=self._is_json)
        is_known = self.tables.get(name, {}).get("relation_id") == relation_id
        self.tables[name] = description  # first: whoever finds it in the bucket may ask for it at once
        if self._put.get(relation_id) != value or not is_known:
            key = _key(name)
            found = bucket.get(key)
            if found is None or found.value != value:
                bucket.put(key, value)
                _log.info("schema published", extra={"table": key, "schema_version": description["version"]})
        self._put[relation_id], self._names[relation_id] = value, name

    def _remove(self, bucket: Bucket, relation_id: int, entry: TableEntry) -> None:
        """The names that a relation has no more, unless another one has them now."""
        names = {_name(each.description) for each in entry.announced}
        if relation_id in self._names:
            names.add(self._names[relation_id])
        if entry.current is not None:
            names.discard(_name(entry.current))
        for name in names:
            known = self.tables.get(name)
            if self._is_awaited(name) or (known is not None and known["relation_id"] != relation_id):
                continue
            self.tables.pop(name, None)
            if bucket.get(_key(name)) is not None:
                bucket.delete(_key(name))

    def _is_awaited(self, name: tuple[str, str]) -> bool:
        return any(each.current is not None and _name(each.current) == name for each in self._waiting.values())


def _name(description: Description) -> tuple[str, str]:
    return description["schema"], description["table"]


def _key(name: tuple[str, str]) -> str:
    return ".".join(map(key_token, name))
