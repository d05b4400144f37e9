"""What the server's catalog says about published tables, read for the comparison with a stream."""

from __future__ import annotations

from headgate.wire.pgtypes import SESSION, Attribute, TypeCatalog, TypeInfo, TypeKind
from tests.cdc.fold import TableName
from tests.cdc.shop import Connection

__all__ = ["identities", "pin_session", "published_columns", "read_types"]

_IDENTITIES = """
    select p.schemaname, p.tablename,
           array(select a.attname::text
                 from pg_index i
                 cross join unnest(i.indkey) with ordinality k(attnum, place)
                 join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
                 where i.indrelid = c.oid and k.place <= i.indnkeyatts
                   and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident end
                 order by k.place)
    from pg_publication_tables p
    join pg_class c on c.relname = p.tablename
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = p.schemaname
    where p.pubname = %s
"""
_COLUMNS = """
    select a.attname::text, a.atttypid::int8
    from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    order by a.attnum
"""
_TYPES = """
    select oid::int8, typname::text,
           case when oid in (select typarray from pg_type) then 'A' else typtype::text end,
           typelem::int8, typbasetype::int8, typdelim::text,
           array(select attname::text from pg_attribute
                 where attrelid = typrelid and attnum > 0 and not attisdropped order by attnum),
           array(select atttypid::int8 from pg_attribute
                 where attrelid = typrelid and attnum > 0 and not attisdropped order by attnum)
    from pg_type where oid >= 16384 and typtype in ('b', 'e', 'd', 'c', 'r', 'm')
"""
_KINDS = {
    "A": TypeKind.ARRAY,
    "b": TypeKind.BASE,
    "e": TypeKind.ENUM,
    "d": TypeKind.DOMAIN,
    "c": TypeKind.COMPOSITE,
    "r": TypeKind.RANGE,
    "m": TypeKind.MULTIRANGE,
}


def identities(connection: Connection, publication: str) -> dict[TableName, tuple[str, ...]]:
    """The published tables and the columns that identify a row in each; none where only the whole row does."""
    rows = connection.execute(_IDENTITIES, [publication]).fetchall()
    return {(schema, table): tuple(key) for schema, table, key in rows}


def published_columns(connection: Connection, table: TableName) -> list[tuple[str, int]]:
    """Names and types of the columns that the server sends: generated ones it does not."""
    return connection.execute(_COLUMNS, table).fetchall()


def read_types(connection: Connection) -> TypeCatalog:
    """The types that are not built in."""
    return TypeCatalog(
        TypeInfo(oid, name, _KINDS[kind], element, base, tuple(map(Attribute, names, types)), delimiter)
        for oid, name, kind, element, base, delimiter, names, types in connection.execute(_TYPES)
    )


def pin_session(connection: Connection) -> None:
    """Make values print in their canonical form, until the end of the transaction."""
    for name, value in SESSION.items():
        connection.execute("select set_config(%s, %s, true)", [name, value])
