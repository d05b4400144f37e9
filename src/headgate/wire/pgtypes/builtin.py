"""PostgreSQL's built-in types: their object ids are part of its interface and never change.

Only what can be a column's type is here. Types that are missing, such as the row types of catalog tables, are text.

Specification: PostgreSQL's source, src/include/catalog/pg_type.dat.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BUILTIN", "BuiltinType"]


class BuiltinType(NamedTuple):
    """A built-in type and the array type over it."""

    oid: int
    name: str
    array_oid: int


BUILTIN: tuple[BuiltinType, ...] = (
    BuiltinType(16, "bool", 1000),
    BuiltinType(17, "bytea", 1001),
    BuiltinType(18, "char", 1002),
    BuiltinType(19, "name", 1003),
    BuiltinType(20, "int8", 1016),
    BuiltinType(21, "int2", 1005),
    BuiltinType(22, "int2vector", 1006),
    BuiltinType(23, "int4", 1007),
    BuiltinType(24, "regproc", 1008),
    BuiltinType(25, "text", 1009),
    BuiltinType(26, "oid", 1028),
    BuiltinType(27, "tid", 1010),
    BuiltinType(28, "xid", 1011),
    BuiltinType(29, "cid", 1012),
    BuiltinType(30, "oidvector", 1013),
    BuiltinType(114, "json", 199),
    BuiltinType(142, "xml", 143),
    BuiltinType(600, "point", 1017),
    BuiltinType(601, "lseg", 1018),
    BuiltinType(602, "path", 1019),
    BuiltinType(603, "box", 1020),
    BuiltinType(604, "polygon", 1027),
    BuiltinType(628, "line", 629),
    BuiltinType(650, "cidr", 651),
    BuiltinType(700, "float4", 1021),
    BuiltinType(701, "float8", 1022),
    BuiltinType(718, "circle", 719),
    BuiltinType(774, "macaddr8", 775),
    BuiltinType(790, "money", 791),
    BuiltinType(829, "macaddr", 1040),
    BuiltinType(869, "inet", 1041),
    BuiltinType(1033, "aclitem", 1034),
    BuiltinType(1042, "bpchar", 1014),
    BuiltinType(1043, "varchar", 1015),
    BuiltinType(1082, "date", 1182),
    BuiltinType(1083, "time", 1183),
    BuiltinType(1114, "timestamp", 1115),
    BuiltinType(1184, "timestamptz", 1185),
    BuiltinType(1186, "interval", 1187),
    BuiltinType(1266, "timetz", 1270),
    BuiltinType(1560, "bit", 1561),
    BuiltinType(1562, "varbit", 1563),
    BuiltinType(1700, "numeric", 1231),
    BuiltinType(1790, "refcursor", 2201),
    BuiltinType(2202, "regprocedure", 2207),
    BuiltinType(2203, "regoper", 2208),
    BuiltinType(2204, "regoperator", 2209),
    BuiltinType(2205, "regclass", 2210),
    BuiltinType(2206, "regtype", 2211),
    BuiltinType(2950, "uuid", 2951),
    BuiltinType(2970, "txid_snapshot", 2949),
    BuiltinType(3220, "pg_lsn", 3221),
    BuiltinType(3614, "tsvector", 3643),
    BuiltinType(3615, "tsquery", 3645),
    BuiltinType(3642, "gtsvector", 3644),
    BuiltinType(3734, "regconfig", 3735),
    BuiltinType(3769, "regdictionary", 3770),
    BuiltinType(3802, "jsonb", 3807),
    BuiltinType(3904, "int4range", 3905),
    BuiltinType(3906, "numrange", 3907),
    BuiltinType(3908, "tsrange", 3909),
    BuiltinType(3910, "tstzrange", 3911),
    BuiltinType(3912, "daterange", 3913),
    BuiltinType(3926, "int8range", 3927),
    BuiltinType(4072, "jsonpath", 4073),
    BuiltinType(4089, "regnamespace", 4090),
    BuiltinType(4096, "regrole", 4097),
    BuiltinType(4191, "regcollation", 4192),
    BuiltinType(4451, "int4multirange", 6150),
    BuiltinType(4532, "nummultirange", 6151),
    BuiltinType(4533, "tsmultirange", 6152),
    BuiltinType(4534, "tstzmultirange", 6153),
    BuiltinType(4535, "datemultirange", 6155),
    BuiltinType(4536, "int8multirange", 6157),
    BuiltinType(5038, "pg_snapshot", 5039),
    BuiltinType(5069, "xid8", 271),
)
