"""COPY's text -> rows, each byte for byte what `data` of an event for the same row is.

The text becomes Insert messages, and those go through the kernels of the stream: there is one way to write a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from headgate.kernels.changes import layout
from headgate.kernels.changes.columns import bytes_column
from headgate.kernels.changes.copy_data import receive_kernel
from headgate.kernels.changes.copy_text import CopyText, Inserts, copy_text_kernel
from headgate.kernels.changes.gaps import RowSource, message_at
from headgate.kernels.changes.image_columns import ImageWriter
from headgate.kernels.changes.images import image_kernel
from headgate.kernels.changes.layout import Bytes
from headgate.kernels.changes.reference import Reference
from headgate.kernels.changes.shapes import Shapes
from headgate.kernels.changes.tables import FormTables
from headgate.kernels.changes.wording import wording_of
from headgate.model import ProtocolError
from headgate.wire.envelope import DEFAULT_SUBJECT, packb
from headgate.wire.envelope.layout import Rows
from headgate.wire.pgoutput import Decoder, Insert, Relation, encode_message
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["RowEncoder", "RowFormat", "compile_rows_ahead"]

RowFormat: TypeAlias = Literal["msgpack", "json"]

_FORMS: dict[RowFormat, int] = {"msgpack": layout.MSGPACK, "json": layout.JSON}
_NO_SYSTEM = ""  # rows have no message id
_NO_POSITIONS: Bytes = np.empty(0, dtype=np.uint8)


class RowEncoder:
    """Encodes rows of one relation. Text may come in pieces of any size; what is half a line waits for the next."""

    def __init__(self, relation: Relation, types: TypeCatalog, format: RowFormat, batch_rows: int = 8192) -> None:  # noqa: A002
        self._relation = relation
        self._is_json = format == "json"
        self._rows = Rows(types)
        self._reference = Reference(_NO_SYSTEM, types, format, DEFAULT_SUBJECT)
        form = FormTables(wording_of(_FORMS[format], _NO_SYSTEM), types)
        self._shapes = Shapes(self._reference, {_FORMS[format]: form}, [encode_message(relation)])
        self._shapes.use(relation.relation_id)
        self._writer = ImageWriter(_FORMS[format], form, self._shapes)
        self._text = CopyText(relation.relation_id, len(relation.columns), batch_rows)
        self._rest = b""

    def encode(self, text: memoryview | bytes) -> Iterator[pa.Array]:
        """The rows that are complete by now, as binary columns of up to `batch_rows`. The text is not kept."""
        text = b"".join((self._rest, text)) if self._rest else text
        at = 0
        while True:
            inserts = self._text.inserts(text[at:])
            if not len(inserts.rows):
                break
            at += inserts.taken
            yield self._column(inserts)
        self._rest = bytes(text[at:])

    def finish(self) -> None:
        """Nothing more comes: it must not have stopped in the middle of a line."""
        if self._rest:
            raise ProtocolError(
                "the last row is cut off", where="COPY", remedy="Read the table again; report it if it comes back."
            )

    def _column(self, inserts: Inserts) -> pa.Array:
        source = RowSource(inserts.messages, inserts.rows, _NO_POSITIONS, self._shapes.shapes, self._reference)

        def whole(row: int) -> bytes:
            """A row beyond what kernels take."""
            insert = Decoder(1).decode(message_at(inserts.messages, int(inserts.rows[row, layout.SOURCE])))
            assert isinstance(insert, Insert)
            if self._is_json:
                return self._rows.json(self._relation, insert.new).encode()
            return packb(self._rows.values(self._relation, insert.new))

        images, _ = self._writer.write(source, layout.AFTER, whole)
        return bytes_column(pa.binary(), images.text, images.ends)


def compile_rows_ahead(format: RowFormat) -> None:  # noqa: A002
    """Compile what an encoder will need. It takes seconds once per machine; later calls load it from disk."""
    copy_text_kernel()
    receive_kernel()
    image_kernel(_FORMS[format])
