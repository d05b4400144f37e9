"""What we call compatible, Protobuf itself reads, and no value of a field that has stayed is another."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headgate.registry.schemas import Kind, Schema, parse, read_problems

_Field = descriptor_pb2.FieldDescriptorProto
_VALUES: dict[int, Any] = {
    _Field.TYPE_INT32: 5, _Field.TYPE_INT64: 1 << 40, _Field.TYPE_UINT32: 6, _Field.TYPE_BOOL: True,
    _Field.TYPE_SINT32: -7, _Field.TYPE_FIXED32: 8, _Field.TYPE_SFIXED64: -9, _Field.TYPE_DOUBLE: 0.5,
    _Field.TYPE_FLOAT: 0.25, _Field.TYPE_STRING: "text", _Field.TYPE_BYTES: b"bytes",
}  # fmt: skip

Spec = dict[int, tuple[int, bool, int | None]]  # by number: type, repeated, and the oneof it is in

specs: st.SearchStrategy[Spec] = st.dictionaries(
    st.integers(1, 4),
    st.tuples(st.sampled_from(sorted(_VALUES)), st.booleans(), st.none() | st.integers(0, 1)).map(
        lambda each: (each[0], False, each[2]) if each[2] is not None else each
    ),
    min_size=1,
)


def file_of(spec: Spec) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3", package="p")
    message = file.message_type.add(name="M")
    oneofs = sorted({oneof for _, _, oneof in spec.values() if oneof is not None})
    for each in oneofs:
        message.oneof_decl.add(name=f"o{each}")
    for number, (type_, repeated, oneof) in sorted(spec.items()):
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        field = message.field.add(name=f"f{number}", number=number, type=type_, label=label)
        if oneof is not None:
            field.oneof_index = oneofs.index(oneof)
    return file


def schema_of(spec: Spec) -> Schema:
    return parse(Kind.PROTOBUF, base64.b64encode(file_of(spec).SerializeToString()).decode())


def class_of(spec: Spec) -> Any:
    pool = DescriptorPool()
    pool.AddSerializedFile(file_of(spec).SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


def written(spec: Spec) -> Any:
    """A message with all fields set that can be set together."""
    message = class_of(spec)()
    for number, (type_, repeated, _) in spec.items():
        value = _VALUES[type_]
        if repeated:
            getattr(message, f"f{number}").extend([value, value])
        else:
            setattr(message, f"f{number}", value)
    return message


def is_kept(writer: Spec, reader: Spec) -> bool:
    """Whether what was written is there after reading, in every field of the same type and label."""
    message = written(writer)
    try:
        read = class_of(reader).FromString(message.SerializeToString())
    except DecodeError:
        return False
    same = [number for number in writer.keys() & reader.keys() if writer[number][:2] == reader[number][:2]]
    return all(getattr(read, f"f{n}") == getattr(message, f"f{n}") for n in same)


@given(specs, specs)
def test_what_is_compatible_is_read_and_kept(writer: Spec, reader: Spec) -> None:
    if not read_problems(schema_of(reader), schema_of(writer)):
        assert is_kept(writer, reader)


@given(specs, st.data())
def test_a_changed_type_is_told_unless_it_looks_alike_on_the_wire(spec: Spec, data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(sorted(spec)))
    type_ = data.draw(st.sampled_from(sorted(_VALUES)))
    changed = spec | {number: (type_, *spec[number][1:])}
    families = [{_Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT32, _Field.TYPE_BOOL}]
    families.append({_Field.TYPE_STRING, _Field.TYPE_BYTES})
    is_alike = type_ == spec[number][0] or any({type_, spec[number][0]} <= family for family in families)
    assert (read_problems(schema_of(changed), schema_of(spec)) == []) == is_alike


@given(specs, specs)
def test_fields_may_come_and_those_outside_of_oneofs_may_go(one: Spec, other: Spec) -> None:
    plain: Spec = {number: (type_, repeated, None) for number, (type_, repeated, _) in one.items()}
    more = plain | {number + 10: (type_, repeated, None) for number, (type_, repeated, _) in other.items()}
    assert read_problems(schema_of(more), schema_of(plain)) == []
    assert read_problems(schema_of(plain), schema_of(more)) == []
