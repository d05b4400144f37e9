"""The types of the database that are not built in, as its catalog has them now."""

from __future__ import annotations

from collections.abc import Collection
from importlib import resources

from headgate.postgres.connect import Connection
from headgate.wire.pgtypes import Attribute, TypeInfo, TypeKind

__all__ = ["FIRST_CUSTOM_TYPE", "load_types"]

FIRST_CUSTOM_TYPE = 16384  # PostgreSQL gives lower oids to what is built in


def load_types(connection: Connection, wanted: Collection[int] | None = None) -> list[TypeInfo]:
    """What the catalog says now: of these types and what they are made of, or of all. Any role may read it."""
    query = resources.files("headgate.postgres").joinpath("catalog.sql").read_bytes()
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
        for row in connection.execute(query, {"types": None if wanted is None else sorted(wanted)})
    ]
