"""Protobuf schemas: text goes through protoc, and what Python's clients send, a descriptor in base64, into a pool.

Both end as the same descriptor, so a schema has one identity however it is written: without comments, the name of its
file and what protoc adds to it. The compiler is a C++ program that gets text from strangers, so it runs in a process
of its own, with a limit of time and of memory, and sees nothing but the files that it is given.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from headgate.registry.schemas.problems import invalid

__all__ = ["ProtobufSchema", "parse_protobuf"]

_COMPILE_S = 20.0
_PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from grpc_tools import protoc
sys.exit(protoc.main(sys.argv))
"""
_PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")  # no secrets that the environment may have
_MAIN = "headgate_registered.proto"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_LOGGED = re.compile(r"WARNING: All log messages|[IWEF]\d{4} ")
_WELL_KNOWN = (
    "any", "source_context", "type", "api", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp",
    "wrappers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A file with those that it imports, by the names it imports them by."""

    file: FileDescriptorProto
    imported: Mapping[str, FileDescriptorProto]

    def identity(self, *, is_normalized: bool) -> bytes:
        """Return what two texts of the same schema have in common."""
        file = FileDescriptorProto.FromString(self.file.SerializeToString())
        file.name = ""
        file.ClearField("source_code_info")
        for message in file.message_type:
            _forget_json_names(message)
        for field in file.extension:
            _forget_json_name(field)
        if file.syntax == "proto2":
            file.ClearField("syntax")
        if is_normalized and not file.public_dependency and not file.weak_dependency:
            names = sorted(file.dependency)
            del file.dependency[:]
            file.dependency.extend(names)
        return bytes(file.SerializeToString(deterministic=True))

    def serialized(self) -> str:
        """Return the descriptor in base64, as Python's clients want it."""
        return base64.b64encode(self.file.SerializeToString()).decode()


def parse_protobuf(text: str, references: Sequence[tuple[str, str]] = ()) -> ProtobufSchema:
    """Parse a `.proto` file, or a descriptor in base64, with those that it imports, as names and texts in order.

    Raises InvalidSchemaError.
    """
    imported: dict[str, FileDescriptorProto] = {}
    for name, other in references:
        if not _NAME.fullmatch(name) or name.startswith("google/protobuf/") or ".." in name:
            invalid(f"{name[:100]} is no name that a file can be imported by", "use names such as shop/order.proto")
        imported[name] = _parse(name, other, imported)
    return ProtobufSchema(_parse(_MAIN, text, imported), imported)


def _parse(name: str, text: str, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    given = _decoded(text)
    file = _compiled(name, text, imported) if given is None else given
    if given is not None:
        if name != _MAIN:
            file.name = name
        _check(file, imported)
    return file


def _decoded(text: str) -> FileDescriptorProto | None:
    """The descriptor; None if this is the text of a file."""
    if not _BASE64.fullmatch(text):
        return None
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text))
    except (binascii.Error, DecodeError):
        invalid("the text is neither a .proto file nor a descriptor in base64")


def _check(file: FileDescriptorProto, imported: Mapping[str, FileDescriptorProto]) -> None:
    """A pool refuses what cannot be: names twice, numbers twice, types that are nowhere."""
    if any(name not in imported and not _is_well_known(name) for name in file.dependency):
        missing = [name for name in file.dependency if name not in imported and not _is_well_known(name)]
        invalid(f"{', '.join(missing)[:200]} is imported and not known", "add it to references")
    pool = DescriptorPool()
    try:
        for each in (*_well_known(), *imported.values(), file):
            pool.AddSerializedFile(each.SerializeToString())
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        invalid(f"this is no Protobuf schema: {error}")


def _is_well_known(name: str) -> bool:
    return name.removeprefix("google/protobuf/").removesuffix(".proto") in _WELL_KNOWN


@cache
def _well_known() -> tuple[FileDescriptorProto, ...]:
    modules = [import_module(f"google.protobuf.{name}_pb2") for name in _WELL_KNOWN]
    return tuple(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in modules)


def _compiled(name: str, text: str, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptorProto:
    with tempfile.TemporaryDirectory(prefix="headgate-registry-") as directory:
        place = Path(directory)
        known = FileDescriptorSet(file=[*_well_known(), *imported.values()])
        (place / "known").write_bytes(known.SerializeToString())
        source = place / "source" / name
        source.parent.mkdir(parents=True)
        source.write_text(text, encoding="utf-8")
        _run_protoc(place, name)
        found = FileDescriptorSet.FromString((place / "out").read_bytes())
    return found.file[0]


def _run_protoc(place: Path, name: str) -> None:
    options = [
        f"--descriptor_set_in={place / 'known'}",
        f"--descriptor_set_out={place / 'out'}",
        f"-I{place / 'source'}",
    ]
    command = [sys.executable, "-c", _PROGRAM, *options, name]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMPILE_S, env=environment
        )
    except subprocess.TimeoutExpired:
        invalid(f"protoc did not come to an end within {_COMPILE_S:.0f} s", "make the schema smaller")
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").replace(_MAIN, "schema").splitlines()
        said = "; ".join(line for line in lines if line and not _LOGGED.match(line))
        invalid(f"protoc refuses it: {said[:500] or 'it ended by itself'}")


def _forget_json_names(message: DescriptorProto) -> None:
    for field in (*message.field, *message.extension):
        _forget_json_name(field)
    for inner in message.nested_type:
        _forget_json_names(inner)


def _forget_json_name(field: FieldDescriptorProto) -> None:
    """protoc always writes it, Python's clients only if it is not the one that follows from the name."""
    words = field.name.split("_")
    usual = words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])
    if field.json_name == usual:
        field.ClearField("json_name")
