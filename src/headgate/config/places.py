"""Finds the line on which a key of a TOML file stands, so that an error can point at it.

The standard parser keeps no positions. This scanner reads the shape of the file (tables, keys, brackets, long
strings) and nothing of its values; it only ever sees text that the real parser has accepted.
"""

from __future__ import annotations

import re

__all__ = ["key_lines"]

KeyPath = tuple[str, ...]

_KEY_PART = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*')"
_DOTTED = rf"{_KEY_PART}(?:\s*\.\s*{_KEY_PART})*"
_TABLE = re.compile(rf"^\s*\[\s*({_DOTTED})\s*\]")
_ARRAY_TABLE = re.compile(rf"^\s*\[\[\s*({_DOTTED})\s*\]\]")
_ASSIGNMENT = re.compile(rf"^\s*({_DOTTED})\s*=")
_INLINE_KEY = re.compile(rf"[{{,]\s*({_KEY_PART})\s*=")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line number (from 1) of every table and key. Elements of an array of tables carry their index as text."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    depth = 0
    shape = zip(_blank(text, short=False).split("\n"), _blank(text, short=True).split("\n"), strict=True)
    for number, (line, bare) in enumerate(shape, 1):
        if depth == 0:
            if match := _ARRAY_TABLE.match(line):
                path = _split(match[1])
                table = (*path, str(counts.get(path, 0)))
                counts[path] = counts.get(path, 0) + 1
                lines.setdefault(path, number)
                lines[table] = number
                continue
            if match := _TABLE.match(line):
                table = _split(match[1])
                lines.setdefault(table, number)
                continue
            if match := _ASSIGNMENT.match(line):
                path = (*table, *_split(match[1]))
                lines.setdefault(path, number)
                for inner in _INLINE_KEY.finditer(line, match.end()):
                    lines.setdefault((*path, *_split(inner[1])), number)
        depth += sum(bare.count(c) for c in "[{") - sum(bare.count(c) for c in "]}")
    return lines


def _split(dotted: str) -> KeyPath:
    parts = re.findall(_KEY_PART, dotted)
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in parts)


def _blank(text: str, *, short: bool) -> str:
    """The text with comments and long strings blanked (short strings too, if asked), line breaks kept."""

    def replace(match: re.Match[str]) -> str:
        long = match[0].startswith(('"""', "'''", "#"))
        return re.sub(r"[^\n]", " ", match[0]) if long or short else match[0]

    return _STRING.sub(replace, text)
