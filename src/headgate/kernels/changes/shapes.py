"""Relations as they are at each moment of a range, and the shapes of those that have been met."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from headgate.kernels.changes.debezium_tables import DebeziumTables
from headgate.kernels.changes.layout import Tables
from headgate.kernels.changes.reference import Reference
from headgate.kernels.changes.tables import FormTables
from headgate.model import Position, ProtocolError
from headgate.wire.envelope import Event, Operation
from headgate.wire.pgoutput import Decoder, Relation

__all__ = ["SUBJECT_COUNT", "Shape", "Shapes"]

_HEAD = struct.Struct("!cI")
_ROW_OPERATIONS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
_TABLE_OPERATIONS = (*_ROW_OPERATIONS, Operation.TRUNCATE)
SUBJECT_COUNT = len(_TABLE_OPERATIONS)


class Shape(NamedTuple):
    """One version of a relation, and the subjects of its events, by the numbers of their operations."""

    relation: Relation
    subjects: tuple[str, ...]


class Shapes:
    """A relation gets its shape when the first change to it comes: most of a database is not in most ranges."""

    def __init__(
        self, reference: Reference, forms: Mapping[int, FormTables | DebeziumTables], relations: Iterable[bytes]
    ) -> None:
        self._reference = reference
        self._forms = forms
        self._described: dict[int, bytes] = {}
        # Relation ids in order, and the shape in force of each. Thousands may come in one range, one by one.
        self._current = np.empty((0, 2), dtype=np.int64)
        self._tables: dict[int, Tables] = {}
        self.shapes: list[Shape] = []
        for message in relations:
            self._describe(message)

    @property
    def described(self) -> list[bytes]:
        """The Relation messages that are in force."""
        return list(self._described.values())

    def learn(self, message: bytes) -> None:
        """A Relation message in the stream: from here on the relation is as it says."""
        _parsed(message)
        self._describe(message)

    def use(self, relation_id: int) -> None:
        """Give a relation its shape."""
        message = self._described.get(relation_id)
        if message is None:
            raise ProtocolError(
                f"a change to relation {relation_id}, which was never described",
                where="pgoutput",
                remedy="Restart the replication connection; report it if it comes back.",
            )
        relation = _parsed(message)
        samples = [Event(each, Position(0), 0, None, None, relation) for each in _TABLE_OPERATIONS]
        for form in self._forms.values():
            form.add(relation, [self._reference.head(sample) for sample in samples[: len(_ROW_OPERATIONS)]])
        at = int(np.searchsorted(self._current[:, 0], relation_id))
        self._current = np.insert(self._current, at, (relation_id, len(self.shapes)), axis=0)
        self.shapes.append(Shape(relation, tuple(map(self._reference.subject, samples))))
        self._tables.clear()

    def tables(self, form: int) -> Tables:
        """The tables for a format's kernel."""
        tables = self._tables.get(form)
        if tables is None:
            tables = self._tables[form] = self._forms[form].arrays(self._current)
        return tables

    def _describe(self, message: bytes) -> None:
        kind, relation_id = _HEAD.unpack_from(message) if len(message) >= _HEAD.size else (b"", 0)
        if kind != b"R":
            raise ProtocolError("not a Relation message", where="pgoutput")
        if self._described.get(relation_id) != message:
            self._described[relation_id] = message
            self._forget(relation_id)

    def _forget(self, relation_id: int) -> None:
        """Its shape is not in force any more."""
        at = int(np.searchsorted(self._current[:, 0], relation_id))
        if at < len(self._current) and self._current[at, 0] == relation_id:
            self._current = np.delete(self._current, at, axis=0)
            self._tables.clear()


def _parsed(message: bytes) -> Relation:
    relation = Decoder(1).decode(message)
    assert isinstance(relation, Relation)  # since it begins with R
    return relation
