"""The types of the database that are not built in, read from its catalog and kept beside the spool."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import msgspec

from headgate.sources.postgres_cdc.slot import Connection
from headgate.wire.pgtypes import Attribute, TypeCatalog, TypeInfo, TypeKind

__all__ = ["load_types", "read_types", "write_types"]

_FILE = "types.json"


def load_types(connection: Connection) -> list[TypeInfo]:
    """What the catalog says now. Any role may read it."""
    query = resources.files("headgate.sources.postgres_cdc").joinpath("catalog.sql").read_bytes()
    return [
        TypeInfo(
            row["oid"],
            row["name"],
            TypeKind(row["kind"]),
            element=row["element"],
            base=row["base"],
            attributes=tuple(map(Attribute, row["attribute_names"], row["attribute_types"])),
            delimiter=row["delimiter"],
        )
        for row in connection.execute(query)
    ]


def write_types(directory: Path, types: list[TypeInfo]) -> None:
    temporary = directory / f".{_FILE}.{os.getpid()}"
    temporary.write_bytes(msgspec.json.encode(types))
    temporary.replace(directory / _FILE)


def read_types(directory: Path) -> TypeCatalog:
    """The catalog as the reader last saw it; without one, unknown types are text."""
    try:
        return TypeCatalog(msgspec.json.decode((directory / _FILE).read_bytes(), type=list[TypeInfo]))
    except FileNotFoundError:
        return TypeCatalog()
