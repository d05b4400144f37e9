"""PostgreSQL values: from text format to neutral Python values and JSON, and back, without losing anything.

    TypeCatalog(types).codec(oid)  -> Codec
    codec.decode(text)             -> None | bool | int | float | str | bytes | list | dict
    codec.json(text)               -> JSON text
    codec.encode(value)            -> text that PostgreSQL reads as the same value

`docs/types.md` lists what each type becomes.
"""

from __future__ import annotations

from headgate.wire.pgtypes.catalog import BUILTIN_TYPES, TypeCatalog, announced_type
from headgate.wire.pgtypes.codec import SESSION, Codec, Rule, Value, quote
from headgate.wire.pgtypes.scalars import json_base64, spliced_text
from headgate.wire.pgtypes.typeinfo import Attribute, TypeInfo, TypeKind

__all__ = [
    "BUILTIN_TYPES",
    "SESSION",
    "Attribute",
    "Codec",
    "Rule",
    "TypeCatalog",
    "TypeInfo",
    "TypeKind",
    "Value",
    "announced_type",
    "json_base64",
    "quote",
    "spliced_text",
]
