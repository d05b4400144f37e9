"""Frames that could stop a consumer: every field of every event with every wrong kind of value, and more of that sort.

    for case in poison(Repository("alice", host="pds.example"), now_us=...):
        case.name, case.message, case.is_sound

Each frame is signed and sound but for the one thing that its name says. Those that `is_sound` are the controls: odd,
but allowed. What a relay accepts of these, programs that others wrote must be able to read; `make conformance
ARGS=atproto` asks some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.demo.network.repository import Repository, create
from headgate.wire.atproto import Kind, cbor, cid_of, read_car, read_frame, write_car, write_frame
from headgate.wire.atproto.cid import RAW_PREFIX
from headgate.wire.atproto.frames import MAX_BLOBS, MAX_UNKNOWN_FIELDS

__all__ = ["PoisonCase", "poison"]

_MISSING: Final = object()
_LINK: Final = cid_of(b"anything")
# A value of every kind; a field is tried with all that it may not be.
_VALUES: Final[dict[str, Any]] = {
    "missing": _MISSING,
    "null": None,
    "true": True,
    "number": 5,
    "negative": -5,
    "float": 1.5,
    "text": "text",
    "long text": "x" * 9000,
    "bytes": b"bytes",
    "link": _LINK,
    "list": [1],
    "empty list": [],
    "map": {"a": 1},
}
_DATETIMES: Final = {
    "without zone": "2026-01-01T00:00:00.000",
    "a date": "2026-01-01",
    "no such day": "2026-02-30T00:00:00.000Z",
    "no such zone": "2026-01-01T00:00:00.000-00:00",
    "words": "now",
    "empty": "",
}
# What each field may be after all, of the values above.
_ALLOWED: Final[dict[Kind, dict[str, set[str]]]] = {
    Kind.COMMIT: {
        "ops": set(),
        "rev": set(),
        "repo": set(),
        "time": set(),
        "blobs": {"empty list"},
        "since": set(),
        "blocks": set(),
        "commit": set(),
        "rebase": set(),
        "tooBig": set(),
        "prevData": set(),
    },
    Kind.SYNC: {"did": set(), "rev": set(), "time": set(), "blocks": set()},
    # A handle that is none is taken out, and the event goes on.
    Kind.IDENTITY: {"did": set(), "time": set(), "handle": {"missing", "text", "long text"}},
    Kind.ACCOUNT: {"did": set(), "time": set(), "active": {"true"}, "status": {"missing", "text"}},
}
_OP_FIELDS: Final[dict[str, set[str]]] = {
    "action": set(),
    "path": set(),
    "cid": set(),
    "prev": {"missing"},
    "later": {"missing", "null", "true", "number", "negative", "float", "text", "bytes", "link", "list", "empty list"}
    | {"map"},
}
_RECORDS: Final[dict[str, tuple[bytes, bool]]] = {
    "an empty map": (b"\xa0", True),
    "text in any language": (cbor.encode({"text": "\u6c34\U0001f30a"}), True),
    "a float": (cbor.encode({"x": 0.5}), True),
    "100 maps deep": (b"\xa1\x61a" * 100 + b"\xa0", True),
    "129 maps deep": (b"\xa1\x61a" * 128 + b"\xa0", False),
    "5,000 lists deep": (b"\xa1\x61a" + b"\x81" * 5_000 + b"\x80", False),
    "a list": (b"\x80", False),
    "a text": (b"\x61a", False),
    "null": (b"\xf6", False),
    "nothing": (b"", False),
    "more behind it": (b"\xa0\x00", False),
    "cut off": (b"\xa1\x61a", False),
    "a number that is too long": (b"\xa1\x61a\x18\x01", False),
    "a map that is too long": (b"\xb8\x01\x61a\x01", False),
    "keys out of order": (b"\xa2\x61b\x01\x61a\x02", False),
    "a key twice": (b"\xa2\x61a\x01\x61a\x02", False),
    "a key that is a number": (b"\xa1\x01\x02", False),
    "a list without an end": (b"\xa1\x61a\x9f\xff", False),
    "not UTF-8": (b"\xa1\x61a\x62\xc3\x28", False),
    "a short float": (b"\xa1\x61a\xf9\x3c\x00", False),
    "a float that is no number": (b"\xa1\x61a\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00", False),
    "undefined": (b"\xa1\x61a\xf7", False),
    "another tag": (b"\xa1\x61a\xc1\x01", False),
}


@dataclass(frozen=True, slots=True)
class PoisonCase:
    """A frame, and whether it may be sent on."""

    name: str
    message: bytes
    is_sound: bool = False


def poison(repo: Repository, *, now_us: int) -> Iterator[PoisonCase]:
    """All cases for an account whose first commit is yet to come. They do not follow one another: each is judged from
    the state that the account has after `repo.commit([])`, which is made here first.
    """
    repo.commit([], seq=1, now_us=now_us)
    yield from _fields(repo, now_us)
    yield from _texts(repo, now_us)
    yield from _lists(repo, now_us)
    yield from _roots(repo, now_us)
    yield from _records(repo, now_us)


def _bodies(repo: Repository, now_us: int) -> dict[Kind, dict[str, Any]]:
    copy = repo.copy()
    frames = {
        Kind.IDENTITY: repo.identity(seq=2, now_us=now_us),
        Kind.ACCOUNT: repo.account(seq=2, now_us=now_us, active=True),
        Kind.SYNC: repo.sync(seq=2, now_us=now_us),
        Kind.COMMIT: copy.commit([create("app.test.note/a", {"n": 1})], seq=2, now_us=now_us),
    }
    return {kind: read_frame(frame).body for kind, frame in frames.items()}


def _with(body: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    rest = {name: inner for name, inner in body.items() if name != field}
    return rest if value is _MISSING else rest | {field: value}


def _fields(repo: Repository, now_us: int) -> Iterator[PoisonCase]:
    for kind, body in _bodies(repo, now_us).items():
        yield PoisonCase(f"{kind} as it should be", write_frame(kind, body), is_sound=True)
        for field, allowed in _ALLOWED[kind].items():
            for name, value in _VALUES.items():
                message = write_frame(kind, _with(body, field, value))
                yield PoisonCase(f"{kind} {field}: {name}", message, name in allowed)
    body = _bodies(repo, now_us)[Kind.COMMIT]
    for field, allowed in _OP_FIELDS.items():
        for name, value in _VALUES.items():
            ops = [_with(body["ops"][0], field, value)]
            message = write_frame(Kind.COMMIT, body | {"ops": ops})
            yield PoisonCase(f"#commit ops[].{field}: {name}", message, name in allowed)


def _texts(repo: Repository, now_us: int) -> Iterator[PoisonCase]:
    bodies = _bodies(repo, now_us)
    for kind, body in bodies.items():
        for name, time in _DATETIMES.items():
            yield PoisonCase(f"{kind} time: {name}", write_frame(kind, body | {"time": time}))
    account = bodies[Kind.ACCOUNT]
    for status in ("takendown", "suspended", "deleted", "deactivated"):
        for active in (True, False):
            message = write_frame(Kind.ACCOUNT, account | {"active": active, "status": status})
            yield PoisonCase(f"#account active {active}, {status}", message, not active)
    commit = bodies[Kind.COMMIT]
    for flag in ("tooBig", "rebase"):
        yield PoisonCase(f"#commit {flag} is set", write_frame(Kind.COMMIT, commit | {flag: True}))


def _lists(repo: Repository, now_us: int) -> Iterator[PoisonCase]:
    """Lists and fields that nobody knows, in number, size and depth."""
    body = _bodies(repo, now_us)[Kind.COMMIT]
    blob = RAW_PREFIX + _LINK[4:]
    for name, blobs, is_sound in (
        ("one", [blob], True),
        ("as many as may be", [blob] * MAX_BLOBS, True),
        ("too many", [blob] * (MAX_BLOBS + 1), False),
        ("text among them", [blob, "text"], False),
        ("bytes among them", [blob, b"bytes"], False),
    ):
        yield PoisonCase(f"#commit blobs: {name}", write_frame(Kind.COMMIT, body | {"blobs": blobs}), is_sound)
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    few = {f"later{number}": {"x": [number, None]} for number in range(MAX_UNKNOWN_FIELDS)}
    for name, fields, is_sound in (
        ("some", few, True),
        ("too many", few | {"later": 1}, False),
        ("a big one", {"later": "x" * 5000}, False),
        ("many empty maps", {"later": [{}] * 5000}, False),
        ("a deep one", {"later": deep}, False),
    ):
        yield PoisonCase(f"#commit unknown fields: {name}", write_frame(Kind.COMMIT, body | fields), is_sound)


def _roots(repo: Repository, now_us: int) -> Iterator[PoisonCase]:
    bodies = _bodies(repo, now_us)
    for kind in (Kind.COMMIT, Kind.SYNC):
        body = bodies[kind]
        car = read_car(body["blocks"])
        [root] = car.roots
        parts = body["blocks"][len(write_car(root, ())) :]
        other = next((cid for cid in car.blocks if cid != root), _LINK)
        for name, roots in (("none", []), ("two", [root, other]), ("the same twice", [root] * 2), ("another", [other])):
            header = cbor.encode({"roots": roots, "version": 1})
            blocks = bytes((len(header),)) if len(header) < 128 else bytes((len(header) & 127 | 128, len(header) >> 7))
            message = write_frame(kind, body | {"blocks": blocks + header + parts})
            yield PoisonCase(f"{kind} roots: {name}", message)
        for version in (2, 0, "1"):
            header = cbor.encode({"roots": [root], "version": version})
            message = write_frame(kind, body | {"blocks": bytes((len(header),)) + header + parts})
            yield PoisonCase(f"{kind} CAR of version {version!r}", message)


def _records(repo: Repository, now_us: int) -> Iterator[PoisonCase]:
    for name, (record, is_sound) in _RECORDS.items():
        message = repo.copy().commit([create("app.test.note/a", record)], seq=2, now_us=now_us)
        yield PoisonCase(f"#commit record: {name}", message, is_sound)
