"""Whether a reader's Avro schema can read what was written with another one.

The rules are those of "Schema Resolution" in Avro's specification, with what its Java library does where that is less
strict: names are compared without their namespace, as all implementations do in practice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.registry.schemas.assumed import Comparison
from headgate.registry.schemas.avro import AvroSchema
from headgate.registry.schemas.problems import Problem

__all__ = ["avro_problems"]

_PROMOTED = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_RECORDS = ("record", "error")


def avro_problems(reader: AvroSchema, writer: AvroSchema) -> list[Problem]:
    """Return why data of `writer` cannot be read with `reader`; empty if it can."""
    return _Reading(reader.named, writer.named).check(reader.root, writer.root, "")


@dataclass(slots=True)
class _Reading:
    reader_names: Mapping[str, Any]
    writer_names: Mapping[str, Any]
    comparison: Comparison = field(default_factory=Comparison)

    def check(self, reader: Any, writer: Any, path: str) -> list[Problem]:
        reader, writer = _named(reader, self.reader_names), _named(writer, self.writer_names)
        # Names and what they stand for live as long as the schemas, so their identity is theirs alone.
        return self.comparison.once((_key(reader), _key(writer)), lambda: self._compare(reader, writer, path))

    def _compare(self, reader: Any, writer: Any, path: str) -> list[Problem]:
        if isinstance(writer, list):
            return [each for branch in writer for each in self.check(reader, branch, path)]
        if isinstance(reader, list):
            return self._any_branch(reader, writer, path)
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            if kind in _PROMOTED.get(written, ()) or (kind in _RECORDS and written in _RECORDS):
                return self._record(reader, writer, path) if kind in _RECORDS else []
            return [Problem("TYPE_MISMATCH", path, f"a reader of {kind} cannot read {written}")]
        if kind == "array":
            return self.check(reader["items"], writer["items"], f"{path}/items")
        if kind == "map":
            return self.check(reader["values"], writer["values"], f"{path}/values")
        if kind in ("fixed", "enum", *_RECORDS):
            return _name(reader, writer, path) or self._definition(kind, reader, writer, path)
        return []

    def _definition(self, kind: str, reader: Any, writer: Any, path: str) -> list[Problem]:
        if kind == "fixed":
            sizes = reader["size"], writer["size"]
            text = "the sizes are {} and {}".format(*sizes)
            return [] if sizes[0] == sizes[1] else [Problem("FIXED_SIZE_MISMATCH", f"{path}/size", text)]
        return _symbols(reader, writer, path) if kind == "enum" else self._fields(reader, writer, path)

    def _record(self, reader: Any, writer: Any, path: str) -> list[Problem]:
        return _name(reader, writer, path) or self._fields(reader, writer, path)

    def _any_branch(self, reader: list[Any], writer: Any, path: str) -> list[Problem]:
        if any(not self.check(branch, writer, f"{path}/{number}") for number, branch in enumerate(reader)):
            return []
        text = f"no type of the reader's union can read {_kind(writer)}"
        return [Problem("MISSING_UNION_BRANCH", path, text)]

    def _fields(self, reader: Any, writer: Any, path: str) -> list[Problem]:
        # A field that the reader calls otherwise is not there under its old name any more.
        renamed = {alias: each["name"] for each in reader["fields"] for alias in each.get("aliases", ())}
        written = {renamed.get(each["name"], each["name"]): each for each in writer["fields"]}
        problems: list[Problem] = []
        for number, wanted in enumerate(reader["fields"]):
            place = f"{path}/fields/{number}"
            source = written.get(wanted["name"])
            if source is not None:
                problems += self.check(wanted["type"], source["type"], f"{place}/type")
            elif "default" not in wanted:
                text = f"the field '{wanted['name']}' has no default and the writer does not write it"
                problems.append(Problem("READER_FIELD_MISSING_DEFAULT_VALUE", place, text))
        return problems


def _named(schema: Any, names: Mapping[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _key(schema: Any) -> object:
    return schema if isinstance(schema, str) else id(schema)


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _name(reader: Any, writer: Any, path: str) -> list[Problem]:
    space, _, name = reader["name"].rpartition(".")
    if name == writer["name"].rpartition(".")[2] or writer["name"] in _aliases(reader.get("aliases", ()), space):
        return []
    text = f"the reader's name is {reader['name']} and the writer's is {writer['name']}"
    return [Problem("NAME_MISMATCH", f"{path}/name", text)]


def _aliases(aliases: Sequence[str], space: str) -> set[str]:
    return {alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases}


def _symbols(reader: Any, writer: Any, path: str) -> list[Problem]:
    missing = [symbol for symbol in writer["symbols"] if symbol not in set(reader["symbols"])]
    if not missing or "default" in reader:
        return []
    text = f"the reader has neither the symbols {', '.join(missing)} nor a default"
    return [Problem("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text)]
