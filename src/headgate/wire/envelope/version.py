"""The version of a table's shape: a fingerprint of all that decides what its rows look like."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from headgate.wire.pgoutput import Relation

__all__ = ["schema_version"]


@lru_cache(maxsize=4096)  # a database has few tables and many events
def schema_version(relation: Relation) -> str:
    """16 hexadecimal digits: names, the replica identity, and each column's name, type and modifier, in order.

    It needs no memory and no number that somebody counts, so every reader, replay and snapshot agrees on it. PostgreSQL
    does not give a table another oid when its columns change, so that is no part of it.
    """
    digest = hashlib.sha256()
    for text in (relation.schema, relation.name, relation.identity.value):
        digest.update(text.encode() + b"\0")
    for column in relation.columns:
        digest.update(f"{column.name}\0{column.type_id} {column.type_modifier} {int(column.is_key)}\0".encode())
    return digest.hexdigest()[:16]
