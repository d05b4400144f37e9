"""Whether a reader's Protobuf schema can read what was written with another one, by what is on the wire.

The rules are those that users of Confluent's registry know, with one difference: a required field counts in the
direction in which it hurts, that is where the reader needs what the writer may leave out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as _Field

from headgate.registry.schemas.assumed import Comparison
from headgate.registry.schemas.problems import Problem
from headgate.registry.schemas.protobuf import ProtobufSchema

__all__ = ["protobuf_problems"]

_VARINT = "varint"
# Numbers that look alike on the wire. An enum is such a number, too.
_FAMILIES = {
    **dict.fromkeys(
        (_Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT32, _Field.TYPE_UINT64, _Field.TYPE_BOOL), _VARINT
    ),
    _Field.TYPE_ENUM: _VARINT,
    _Field.TYPE_SINT32: "zigzag",
    _Field.TYPE_SINT64: "zigzag",
    _Field.TYPE_FIXED32: "fixed32",
    _Field.TYPE_SFIXED32: "fixed32",
    _Field.TYPE_FIXED64: "fixed64",
    _Field.TYPE_SFIXED64: "fixed64",
    _Field.TYPE_STRING: "text",
    _Field.TYPE_BYTES: "text",
    _Field.TYPE_MESSAGE: "message",
    _Field.TYPE_GROUP: "group",
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_DOUBLE: "double",
}
_DELIMITED = ("text", "message", "group")


def protobuf_problems(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Problem]:
    """Return why messages of `writer` cannot be read with `reader`; empty if they can."""
    return _Reading(_messages(reader), _messages(writer)).files(reader.file, writer.file)


def _messages(schema: ProtobufSchema) -> dict[str, DescriptorProto]:
    """All messages by their full names, as fields name them."""
    return {
        name: message
        for file in (schema.file, *schema.imported.values())
        for name, message in _named(file.message_type, f".{file.package}" if file.package else "")
    }


def _named(messages: list[DescriptorProto], space: str) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{space}.{message.name}"
        yield name, message
        yield from _named(list(message.nested_type), name)


@dataclass(slots=True)
class _Reading:
    reader: Mapping[str, DescriptorProto]
    writer: Mapping[str, DescriptorProto]
    comparison: Comparison = field(default_factory=Comparison)

    def files(self, reader: FileDescriptorProto, writer: FileDescriptorProto) -> list[Problem]:
        if reader.package != writer.package:
            text = f"the package is '{reader.package}' and was '{writer.package}'"
            return [Problem("PACKAGE_CHANGED", "/package", text)]
        known = {message.name for message in reader.message_type}
        space = f".{reader.package}" if reader.package else ""
        problems = [
            Problem("MESSAGE_REMOVED", f"/{message.name}", f"the reader has no message {message.name}")
            for message in writer.message_type
            if message.name not in known
        ]
        for message in writer.message_type:
            if message.name in known:
                problems += self._below(f"{space}.{message.name}", message)
        return problems

    def _below(self, name: str, message: DescriptorProto) -> list[Problem]:
        """A message and those in it: what no field uses may have been written on its own."""
        problems = self.message(name, name)
        for inner in message.nested_type:
            inner_name = f"{name}.{inner.name}"
            if inner_name in self.reader and not inner.options.map_entry:
                problems += self._below(inner_name, inner)
        return problems

    def message(self, reader: str, writer: str) -> list[Problem]:
        return self.comparison.once((reader, writer), lambda: self._compare(reader, writer))

    def _compare(self, reader: str, writer: str) -> list[Problem]:
        if reader not in self.reader or writer not in self.writer:
            return []  # a well-known one, whose name is the same
        mine, theirs = self.reader[reader], self.writer[writer]
        written = {each.number: each for each in theirs.field}
        problems = _oneofs(mine, theirs, reader)
        for wanted in mine.field:
            path = f"{reader.replace('.', '/')}/{wanted.number}"
            source = written.get(wanted.number)
            if wanted.label == _Field.LABEL_REQUIRED and (source is None or source.label != _Field.LABEL_REQUIRED):
                text = f"the reader requires {wanted.name}, which the writer may leave out"
                problems.append(Problem("REQUIRED_FIELD_ADDED", path, text))
            if source is not None:
                problems += self._field(wanted, source, path)
        return problems

    def _field(self, wanted: _Field, source: _Field, path: str) -> list[Problem]:
        kind, written = _FAMILIES[wanted.type], _FAMILIES[source.type]
        if kind != written:
            text = f"the reader of {wanted.name} wants {_said(wanted)} and the writer has {_said(source)}"
            is_scalar = kind not in _DELIMITED[1:] and written not in _DELIMITED[1:]
            return [Problem("FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED", path, text)]
        repeated = [each.label == _Field.LABEL_REPEATED for each in (wanted, source)]
        if repeated[0] != repeated[1] and kind not in _DELIMITED:
            return [Problem("FIELD_NUMERIC_LABEL_CHANGED", path, f"{wanted.name} is repeated in one of them only")]
        if kind not in ("message", "group"):
            return []
        return self._messages(wanted, source, path)

    def _messages(self, wanted: _Field, source: _Field, path: str) -> list[Problem]:
        names = wanted.type_name, source.type_name
        entries = [_is_entry(known.get(name)) for known, name in zip((self.reader, self.writer), names, strict=True)]
        if names[0] != names[1] and not all(entries):  # entries of maps are named after the field
            text = f"the reader of {wanted.name} wants {names[0]} and the writer has {names[1]}"
            return [Problem("FIELD_NAMED_TYPE_CHANGED", path, text)]
        return self.message(*names)


def _is_entry(message: DescriptorProto | None) -> bool:
    return message is not None and message.options.map_entry


def _said(each: _Field) -> str:
    return str(each.type_name) or str(_Field.Type.Name(each.type)).removeprefix("TYPE_").lower()


def _oneofs(mine: DescriptorProto, theirs: DescriptorProto, name: str) -> list[Problem]:
    """Of several fields in a oneof only the last is kept, so they must not have been apart before."""
    was_in = {each.number: _oneof(each, theirs) for each in theirs.field}
    problems = []
    for index, oneof in enumerate(mine.oneof_decl):
        path = f"{name.replace('.', '/')}/{oneof.name}"
        numbers = {each.number for each in mine.field if _oneof_index(each) == index}
        before = [was_in[number] for number in numbers if number in was_in]
        if len(before) > 1 and (len(set(before)) > 1 or before[0] is None):
            text = "fields that the writer may set together are in one oneof of the reader"
            problems.append(Problem("MULTIPLE_FIELDS_MOVED_TO_ONEOF", path, text))
        was = {number for number, other in was_in.items() if other == oneof.name}
        if gone := was - {each.number for each in mine.field}:
            text = f"the reader has no field {', '.join(map(str, sorted(gone)))} of it any more"
            problems.append(Problem("ONEOF_FIELD_REMOVED", path, text))
    return problems


def _oneof_index(each: _Field) -> int | None:
    """The oneof that a field is in; what makes a field optional in proto3 is none."""
    return each.oneof_index if each.HasField("oneof_index") and not each.proto3_optional else None


def _oneof(each: _Field, message: DescriptorProto) -> str | None:
    index = _oneof_index(each)
    return None if index is None else message.oneof_decl[index].name
