"""headgate's own envelope, as MessagePack and as JSON. The rules of its bytes are in the package's docstring."""

from __future__ import annotations

import json

from headgate.wire.envelope.event import Event
from headgate.wire.envelope.layout import Rows, Subject, head, json_detail
from headgate.wire.envelope.msgpack import packb
from headgate.wire.envelope.subject import subject_of
from headgate.wire.pgtypes import TypeCatalog, Value

__all__ = ["JsonEncoder", "MessagePackEncoder"]


class MessagePackEncoder:
    """Events as MessagePack maps."""

    def __init__(self, origin: int | str, types: TypeCatalog, subject: Subject = subject_of) -> None:
        self._origin = origin
        self._subject = subject
        self._rows = Rows(types)

    def encode(self, event: Event) -> bytes:
        """The event's bytes."""
        fields: dict[str, Value] = {**head(event, self._origin, self._subject)}
        if event.relation is None or event.detail is not None:
            fields["data"] = dict(event.detail or {})
        else:
            fields["data"] = self._rows.values(event.relation, event.data)
            if event.old is not None:
                fields["old"] = self._rows.values(event.relation, event.old)
        return packb(fields)


class JsonEncoder:
    """Events as JSON objects in UTF-8, each on one line."""

    def __init__(self, origin: int | str, types: TypeCatalog, subject: Subject = subject_of) -> None:
        self._origin = origin
        self._subject = subject
        self._rows = Rows(types)

    def encode(self, event: Event) -> bytes:
        """The event's bytes."""
        fields = json.dumps(head(event, self._origin, self._subject), ensure_ascii=False, separators=(",", ":"))
        if event.relation is None or event.detail is not None:
            rest = f'"data":{json_detail(event.detail or {})}'
        else:
            rest = f'"data":{self._rows.json(event.relation, event.data)}'
            if event.old is not None:
                rest += f',"old":{self._rows.json(event.relation, event.old)}'
        return f"{fields[:-1]},{rest}}}".encode()
