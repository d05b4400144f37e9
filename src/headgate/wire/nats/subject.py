"""Subjects: which are legal, which cover which, and how any text becomes one token.

The grammar is ADR-6's: tokens separated by dots, `*` stands for one token, `>` for one or more at the end. A subject
to publish to has no wildcards. Names that start with `$` belong to the server (`$JS.API...` deletes streams,
`$SYS...`), so text from a row must never become one: `check_publish_subject` refuses them.
"""

from __future__ import annotations

import re

from headgate.model import DataError

__all__ = ["MAX_SUBJECT_BYTES", "check_publish_subject", "check_subject", "covers", "escape_token", "unescape_token"]

# The server cuts a connection whose control line exceeds 4,096 bytes (NATS documentation, Configuration,
# `max_control_line`); the rest of an HPUB line fits into 96.
MAX_SUBJECT_BYTES = 4_000

_EMPTY_TOKEN = "%"  # noqa: S105  # a lone escape sign cannot be produced by any other text
_SAFE_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")
_ESCAPED_TEXT = re.compile(rb"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+")
_ILLEGAL = re.compile(r"[\x00-\x20\x7f]")


def escape_token(text: str) -> str:
    """Make any text one legal subject token: `a.b c` becomes `a%2Eb%20c`, the empty text becomes `%`.

    Everything but ASCII letters, digits, `_` and `-` is escaped byte by byte, so the token is also a legal file name
    and is safe as the first token of a subject.
    """
    if not text:
        return _EMPTY_TOKEN
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if byte in _SAFE_BYTES else f"%{byte:02X}" for byte in raw)


def unescape_token(token: str) -> str:
    """Undo `escape_token`. A token that it cannot have made raises `DataError`."""
    if token == _EMPTY_TOKEN:
        return ""
    raw = token.encode("utf-8", "replace")
    if not _ESCAPED_TEXT.fullmatch(raw):
        raise DataError(f"not an escaped subject token: {token[:80]!r}")
    try:
        return _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), raw).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise DataError(f"not an escaped subject token: {token[:80]!r}") from None


def check_subject(subject: str) -> str:
    """Return a legal subject, which may have wildcards; raise `DataError` otherwise."""
    reason = _fault(subject, subject.split("."))
    if reason:
        raise DataError(f"not a subject: {subject[:80]!r}: {reason}", remedy="escape names with escape_token")
    return subject


def check_publish_subject(subject: str) -> str:
    """Return a subject that a row may be published to: legal, no wildcard, not reserved; else `DataError`."""
    check_subject(subject)
    if "*" in subject or ">" in subject:
        reason = "wildcards cannot be published to"
    elif subject.startswith("$"):
        reason = "names that start with $ are the server's own"
    else:
        return subject
    raise DataError(f"not a subject to publish to: {subject[:80]!r}: {reason}", remedy="escape names with escape_token")


def covers(pattern: str, subject: str) -> bool:
    """Whether every subject that `subject` stands for is also matched by `pattern` (both may have wildcards)."""
    wide, narrow = pattern.split("."), subject.split(".")
    for index, word in enumerate(wide):
        if word == ">":
            return len(narrow) > index
        if index >= len(narrow) or narrow[index] == ">":
            return False
        if word not in ("*", narrow[index]):
            return False
    return len(wide) == len(narrow)


def _fault(subject: str, tokens: list[str]) -> str:
    if not subject:
        return "empty"
    if len(subject.encode("utf-8", "replace")) > MAX_SUBJECT_BYTES:
        return f"longer than {MAX_SUBJECT_BYTES} bytes"
    if _ILLEGAL.search(subject):
        return "white space and control characters are not allowed"
    if "" in tokens:
        return "empty token"
    if ">" in tokens[:-1]:  # this and the next: NATS documentation, "Subject-Based Messaging", Wildcards
        return "> is allowed only at the end"
    if any(len(token) > 1 and ("*" in token or ">" in token) for token in tokens):
        return "wildcards must be whole tokens"
    return "" if _encodable(subject) else "not valid Unicode"


def _encodable(subject: str) -> bool:
    try:
        subject.encode()
    except UnicodeEncodeError:
        return False
    return True
