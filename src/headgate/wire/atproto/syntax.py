"""The names of the AT Protocol: DID, handle, NSID, record key, path, TID, AT-URI, datetime, CID text.

`is_...` answers; `check_...` raises `AtprotoError(BAD_SYNTAX)`. TIDs are the clock of a repository: 53 bits of
microseconds and 10 bits of a clock id in 13 letters, so that the order of the text is the order of time.

Specification: the AT Protocol's page of each, "DID", "Handle", "NSID", "Record Key", "TID" and "AT URI Scheme", where
the expressions below and the lengths are; "Lexicon", String Formats, for datetimes.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from headgate.wire.atproto.errors import AtprotoError, Reason

__all__ = [
    "check_datetime",
    "check_did",
    "check_path",
    "check_tid",
    "is_at_uri",
    "is_cid_text",
    "is_datetime",
    "is_did",
    "is_handle",
    "is_nsid",
    "is_path",
    "is_plc",
    "is_record_key",
    "is_tid",
    "next_tid",
    "tid_of",
    "tid_us",
]

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_NSID_TEXT = rf"[a-zA-Z](?:[a-zA-Z0-9-]{{0,61}}[a-zA-Z0-9])?(?:\.{_LABEL})+\.[a-zA-Z][a-zA-Z0-9]{{0,62}}"
_KEY_TEXT = r"(?!\.{1,2}\Z)[a-zA-Z0-9_~.:-]{1,512}"

_DID = re.compile(r"did:[a-z]+:[a-zA-Z0-9._:%-]*[a-zA-Z0-9._-]")
_PLC = re.compile(r"did:plc:[a-z2-7]{24}")
_HANDLE = re.compile(rf"(?:{_LABEL}\.)+[a-zA-Z](?:[a-zA-Z0-9-]{{0,61}}[a-zA-Z0-9])?")
_NSID = re.compile(_NSID_TEXT)
_RECORD_KEY = re.compile(_KEY_TEXT)
_PATH = re.compile(rf"({_NSID_TEXT})/{_KEY_TEXT}")
_TID = re.compile(r"[234567abcdefghij][234567abcdefghijklmnopqrstuvwxyz]{12}")
_CID = re.compile(r"[a-zA-Z0-9+=]{8,256}")
_DATETIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,20})?(Z|[+-][0-9]{2}:[0-9]{2})"
)

_MAX_DID = 2048
_MAX_HANDLE = 253
_MAX_NSID = 317
_MAX_AT_URI = 8192
_MAX_DATETIME = 64

_TID_LETTERS: Final = "234567abcdefghijklmnopqrstuvwxyz"
_TID_VALUES = {letter: value for value, letter in enumerate(_TID_LETTERS)}
_CLOCK_BITS = 10
_MAX_TID_US = 2**53 - 1  # "TID", TID Structure; the top bit is 0


def is_did(text: str) -> bool:
    return len(text) <= _MAX_DID and _DID.fullmatch(text) is not None


def is_plc(text: str) -> bool:
    """Is it a did:plc in its only form: 24 letters of base32?"""
    return _PLC.fullmatch(text) is not None


def is_handle(text: str) -> bool:
    return len(text) <= _MAX_HANDLE and _HANDLE.fullmatch(text) is not None


def is_nsid(text: str) -> bool:
    return len(text) <= _MAX_NSID and _NSID.fullmatch(text) is not None


def is_record_key(text: str) -> bool:
    return _RECORD_KEY.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Is it `collection/rkey`, the key of a record in its repository ("Repository", Repository Paths)?"""
    found = _PATH.fullmatch(text)
    return found is not None and found.end(1) <= _MAX_NSID


def is_tid(text: str) -> bool:
    return _TID.fullmatch(text) is not None


def is_cid_text(text: str) -> bool:
    """Could it be a CID in any base? CIDv0 (`Qm...`) is not used. For those of repositories see `parse_cid`."""
    return _CID.fullmatch(text) is not None and not text.startswith("Qm")


def is_at_uri(text: str) -> bool:
    """Is it `at://authority[/collection[/rkey]]`, without query and fragment (Restricted AT URI Syntax)?"""
    if len(text) > _MAX_AT_URI or not text.startswith("at://"):
        return False
    authority, *rest = text[5:].split("/")
    if len(rest) > 2 or not (is_did(authority) or is_handle(authority)):
        return False
    return all(check(part) for check, part in zip((is_nsid, is_record_key), rest, strict=False))


def is_datetime(text: str) -> bool:
    """Is it a date and time with a zone, as RFC 3339 and ISO 8601 both allow, and one that the calendar has?"""
    found = _DATETIME.fullmatch(text) if len(text) <= _MAX_DATETIME else None
    if found is None or found[1] == "-00:00":  # RFC 3339 section 4.3 has it, ISO 8601 has not
        return False
    return _in_calendar(text[:19], found[1])


def _in_calendar(text: str, zone: str) -> bool:
    year, rest = text[:4], text[4:]
    if year == "0000":  # datetime begins with year 1; year 0 is a leap year as 2000 is
        return not zone.startswith("+") and _in_calendar(f"2000{rest}", "Z")
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return zone == "Z" or (int(zone[1:3]) < 24 and int(zone[4:]) < 60)


def check_datetime(text: str) -> None:
    if not is_datetime(text):
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no date and time")


def check_did(text: str) -> None:
    if not is_did(text):
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no DID")


def check_path(text: str) -> None:
    if not is_path(text):
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no path of a record")


def check_tid(text: str) -> None:
    if not is_tid(text):
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no TID")


def tid_of(us: int, clock_id: int = 0) -> str:
    """The TID of a moment, in microseconds since 1970."""
    if not (0 <= us <= _MAX_TID_US and 0 <= clock_id < 1 << _CLOCK_BITS):
        raise ValueError("a TID has 53 bits of time and 10 bits of clock id")
    value = us << _CLOCK_BITS | clock_id
    return "".join(_TID_LETTERS[value >> shift & 31] for shift in range(60, -1, -5))


def tid_us(tid: str) -> int:
    """The moment of a TID, in microseconds since 1970."""
    check_tid(tid)
    value = 0
    for letter in tid:
        value = value << 5 | _TID_VALUES[letter]
    return value >> _CLOCK_BITS


def next_tid(previous: str | None, us: int, clock_id: int = 0) -> str:
    """A TID for now that is behind `previous`, whatever the clock says."""
    earliest = tid_us(previous) + 1 if previous is not None else 0
    return tid_of(max(us, earliest), clock_id)
