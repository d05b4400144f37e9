"""Which codec reads a column of a given type.

The built-in types are known. Everything else (enums, domains, composites, extensions) is known if somebody read its
`TypeInfo` from the server's catalog, and is text otherwise: lossless, only less convenient.

Specification: PostgreSQL manual, Data Types; System Catalogs, "pg_type".
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.wire.pgtypes.arrays import array_codec
from headgate.wire.pgtypes.builtin import BUILTIN
from headgate.wire.pgtypes.codec import Codec
from headgate.wire.pgtypes.hstore import HSTORE
from headgate.wire.pgtypes.records import composite_codec
from headgate.wire.pgtypes.scalars import BOOL, BYTEA, FLOAT, INT, JSON, TEXT
from headgate.wire.pgtypes.temporal import DATE, TIMESTAMP, TIMESTAMPTZ, TIMETZ
from headgate.wire.pgtypes.typeinfo import TypeInfo, TypeKind

__all__ = ["BUILTIN_TYPES", "TypeCatalog", "announced_type"]

_SCALARS: dict[str, Codec] = {
    "bool": BOOL,
    "bytea": BYTEA,
    "int2": INT,
    "int4": INT,
    "int8": INT,
    "oid": INT,
    "float4": FLOAT,
    "float8": FLOAT,
    "json": JSON,
    "jsonb": JSON,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
    "timetz": TIMETZ,
}


def _builtin_types() -> dict[int, TypeInfo]:
    types: dict[int, TypeInfo] = {}
    for oid, name, array_oid in BUILTIN:
        types[oid] = TypeInfo(oid, name, delimiter=";" if name == "box" else ",")
        types[array_oid] = TypeInfo(array_oid, f"_{name}", TypeKind.ARRAY, element=oid)
    return types


BUILTIN_TYPES = _builtin_types()
_BUILTIN_CODECS = {oid: _SCALARS[name] for oid, name, _ in BUILTIN if name in _SCALARS}
_BUILTIN_OIDS = {info.name: oid for oid, info in BUILTIN_TYPES.items()}


def announced_type(oid: int, schema: str, name: str) -> TypeInfo | None:
    """What a pgoutput Type message tells without a catalog: a domain over a built-in type.

    The server announces a domain by the name of its base type, so that a custom oid with a built-in name is one.
    """
    base = _BUILTIN_OIDS.get(name) if schema == "pg_catalog" else None
    return None if base is None else TypeInfo(oid, name, TypeKind.DOMAIN, base=base)


class TypeCatalog:
    """The types of one database. Immutable: a new type makes a new catalog (`with_types`). Can be pickled."""

    __slots__ = ("_codecs", "_types")

    def __init__(self, types: Iterable[TypeInfo] = ()) -> None:
        self._types = {info.oid: info for info in types}
        self._codecs: dict[int, Codec] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return TypeCatalog, (tuple(self._types.values()),)

    def with_types(self, types: Iterable[TypeInfo]) -> TypeCatalog:
        """This catalog and more types; a type that is already known is replaced."""
        return TypeCatalog([*self._types.values(), *types])

    def info(self, oid: int) -> TypeInfo | None:
        """What is known of a type."""
        return BUILTIN_TYPES.get(oid) or self._types.get(oid)

    def codec(self, oid: int) -> Codec:
        """The codec for a column of this type."""
        codec = self._codecs.get(oid)
        if codec is None:
            codec = self._codecs[oid] = self._build(oid, frozenset())
        return codec

    def _build(self, oid: int, inside: frozenset[int]) -> Codec:
        """`inside` are the types around this one: a circle in a broken catalog ends as text."""
        info = self.info(oid)
        if info is None or oid in inside:
            return TEXT
        within = inside | {oid}
        if info.kind is TypeKind.ARRAY:
            element = self.info(info.element)
            return array_codec(self._build(info.element, within), element.delimiter if element else ",")
        if info.kind is TypeKind.DOMAIN:
            return self._build(info.base, within)
        if info.kind is TypeKind.COMPOSITE and info.attributes:
            return composite_codec((each.name, self._build(each.type_id, within)) for each in info.attributes)
        if info.kind is TypeKind.BASE:
            return self._base(info)
        return TEXT

    def _base(self, info: TypeInfo) -> Codec:
        codec = _BUILTIN_CODECS.get(info.oid)
        # hstore is an extension: its oid differs from database to database, so its name must do.
        return codec or (HSTORE if info.name == "hstore" else TEXT)
