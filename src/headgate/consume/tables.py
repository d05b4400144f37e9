"""A table's name, and what it is called in subjects and keys."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from headgate.model import UsageError
from headgate.wire.envelope import key_token, subject_token

__all__ = ["TableName"]

_NAME = r'(?:[^".]+|"(?:[^"]|"")+")'
_TABLE = re.compile(rf"(?:({_NAME})\.)?({_NAME})")


class TableName(NamedTuple):
    """`users` is `public.users`. A name with a dot in it is written with quotes: `shop."odd.name"`."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _TABLE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"not a table: {text!r}", remedy='write users, shop.users or shop."odd.name"')
        return cls(_plain(match[1] or "public"), _plain(match[2]))

    @property
    def key(self) -> str:
        """Its key in the bucket of schemas."""
        return f"{key_token(self.schema)}.{key_token(self.table)}"

    @property
    def token(self) -> str:
        """Its place in subjects of snapshots, where the schema `public` is left out."""
        table = subject_token(self.table)
        return table if self.schema == "public" else f"{subject_token(self.schema)}.{table}"

    def __str__(self) -> str:
        return f"{_quoted(self.schema)}.{_quoted(self.table)}"


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if "." in name or '"' in name or name != name.strip() else name
