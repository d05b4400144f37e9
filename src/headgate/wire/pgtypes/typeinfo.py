"""What a PostgreSQL type is, as far as its values' text form needs to know.

Whoever reads the catalog (`pg_type`, `pg_attribute`, `pg_range`) builds these; the built-in types need no catalog.

Specification: PostgreSQL manual, System Catalogs, "pg_type".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Attribute", "TypeInfo", "TypeKind"]


class TypeKind(enum.StrEnum):
    """How a type is made. Anything else, and anything unknown, is text.

    From the catalog: `typtype` b, e, d, c, r or m; ARRAY is what another type names as its `typarray` (int2vector,
    point and name have a `typelem`, too, but are no arrays; a domain over an array is a DOMAIN).
    """

    BASE = "base"
    ARRAY = "array"
    ENUM = "enum"
    DOMAIN = "domain"
    COMPOSITE = "composite"
    RANGE = "range"
    MULTIRANGE = "multirange"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One live attribute of a composite type, in its order."""

    name: str
    type_id: int


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """One row of `pg_type`, with what its kind needs.

    `element` is an array's element type, `base` a domain's underlying type (another domain is fine), `attributes`
    a composite's columns without dropped ones. `delimiter` is `typdelim`, which matters to arrays of this type.
    """

    oid: int
    name: str
    kind: TypeKind = TypeKind.BASE
    element: int = 0
    base: int = 0
    attributes: tuple[Attribute, ...] = ()
    delimiter: str = ","
