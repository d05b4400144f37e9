"""Relations as they are at each moment of a range, and the shapes of those that have been met."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from headgate.model import Position, ProtocolError
from headgate.sources.postgres_cdc.decode.layout import Tables
from headgate.sources.postgres_cdc.decode.reference import Reference
from headgate.sources.postgres_cdc.decode.tables import FormTables
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

    def __init__(self, reference: Reference, forms: Mapping[int, FormTables], relations: Iterable[bytes]) -> None:
        self._reference = reference
        self._forms = forms
        self._described: dict[int, bytes] = {}
        self._current: dict[int, int] = {}  # the shapes in force, by relation id
        self._tables: dict[int, Tables] = {}
        self.shapes: list[Shape] = []
        for message in relations:
            self._describe(message)

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
        self._current[relation_id] = len(self.shapes)
        self.shapes.append(Shape(relation, tuple(map(self._reference.subject, samples))))
        self._tables.clear()

    def tables(self, form: int) -> Tables:
        """The tables for a format's kernel."""
        tables = self._tables.get(form)
        if tables is None:
            relations = np.array(sorted(self._current.items()), dtype=np.int64).reshape(-1, 2)
            tables = self._tables[form] = self._forms[form].arrays(relations)
        return tables

    def _describe(self, message: bytes) -> None:
        kind, relation_id = _HEAD.unpack_from(message) if len(message) >= _HEAD.size else (b"", 0)
        if kind != b"R":
            raise ProtocolError("not a Relation message", where="pgoutput")
        if self._described.get(relation_id) != message:
            self._described[relation_id] = message
            self._current.pop(relation_id, None)
            self._tables.clear()


def _parsed(message: bytes) -> Relation:
    relation = Decoder(1).decode(message)
    assert isinstance(relation, Relation)  # since it begins with R
    return relation
