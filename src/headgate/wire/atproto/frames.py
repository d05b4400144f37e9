"""Frames of the event stream: one WebSocket message, two DAG-CBOR maps, the header and the body.

    frame = read_frame(message)          # 2-3 us: kind, seq and did, enough for a reader
    event = read_event(frame)            # the typed event, its limits checked
    message = resequence(frame, seq)     # the same event under our own number, unknown fields kept

`read_frame` raises BAD_FRAME, BAD_CBOR or FRAME_TOO_BIG for what should end the connection; a frame of a later version
of the protocol is `Kind.UNKNOWN`, to be passed over. `read_event` raises what is wrong with this one event.

Specification: AT Protocol, "Event Stream" and "Sync"; the lexicon `com.atproto.sync.subscribeRepos`. Limits without a
source are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headgate.wire.atproto import cbor
from headgate.wire.atproto.cid import is_cid
from headgate.wire.atproto.errors import AtprotoError, Reason
from headgate.wire.atproto.events import Account, Action, Commit, ErrorNote, Event, Identity, Info, Kind, Op, Sync
from headgate.wire.atproto.syntax import check_datetime, check_did, check_path, check_tid

__all__ = [
    "MAX_BLOBS",
    "MAX_BLOCKS_BYTES",
    "MAX_ENVELOPE_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_OPS",
    "MAX_RECORD_BYTES",
    "MAX_SEQ",
    "MAX_SMALL_BYTES",
    "MAX_SYNC_BYTES",
    "MAX_UNKNOWN_BYTES",
    "MAX_UNKNOWN_FIELDS",
    "Frame",
    "error_frame",
    "info_frame",
    "read_event",
    "read_frame",
    "resequence",
    "without_handle",
    "write_frame",
]

MAX_FRAME_BYTES: Final = 5_000_000  # "Sync", Repository Event Stream
MAX_SMALL_BYTES: Final = 100_000  # of every kind but #commit
MAX_ENVELOPE_BYTES: Final = 500_000  # of a #commit without its blocks: twice what 200 ops can need
MAX_ENVELOPE_ITEMS: Final = 8_000  # values in it: more than 200 ops and all blobs can need
# "Sync", `#commit` Events; of a #sync: the lexicon's maxLength of `blocks`.
MAX_BLOCKS_BYTES: Final = 2_000_000
MAX_RECORD_BYTES: Final = 1_000_000
MAX_SYNC_BYTES: Final = 10_000
MAX_OPS: Final = 200
MAX_BLOBS: Final = 2_000
MAX_UNKNOWN_FIELDS: Final = 16  # of a later version of the protocol, in an event or an op
MAX_UNKNOWN_BYTES: Final = 4_096  # of them together
MAX_STATUS: Final = 128
MAX_SEQ: Final = 2**53 - 1  # "Event Stream", Sequence Numbers

_ERROR_HEADER: Final = cbor.encode({"op": -1})
_EVENTS = (Kind.COMMIT, Kind.SYNC, Kind.IDENTITY, Kind.ACCOUNT, Kind.INFO)
_HEADERS: Final = {kind: cbor.encode({"t": kind.value, "op": 1}) for kind in _EVENTS}
_HEADER_LIST: Final = tuple((header, len(header), kind) for kind, header in _HEADERS.items())
_UNCOUNTED_BYTES = 16 << 10  # a body this small is decoded without counting its values first: at worst a millisecond
_BLOCKS_KEY: Final = b"\x66blocks\x5a"  # with the head of a byte string of 64 KiB or more
_SEQ_KEY: Final = b"\x63seq"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was read: what a reader must know, and the body both decoded and as it came.

    `seq` is 0 and `did` empty where the kind has none.
    """

    kind: Kind
    seq: int
    did: str
    body: dict[str, Any]
    raw: bytes


def read_frame(message: bytes) -> Frame:
    if len(message) > MAX_FRAME_BYTES:
        raise AtprotoError(Reason.FRAME_TOO_BIG, f"a frame of {len(message)} bytes is more than {MAX_FRAME_BYTES}")
    kind, raw = _split(message)
    if kind is not Kind.COMMIT and len(raw) > MAX_SMALL_BYTES:
        raise AtprotoError(Reason.FRAME_TOO_BIG, f"{len(raw)} bytes are more than any {kind} needs")
    body = cbor.decode_map(raw) if len(raw) <= _UNCOUNTED_BYTES else _decode_big(raw)
    if kind in (Kind.INFO, Kind.ERROR, Kind.UNKNOWN):
        return Frame(kind, 0, "", body, raw)
    seq = body.get("seq")
    did = body.get("repo" if kind is Kind.COMMIT else "did")
    if seq.__class__ is not int or not 0 < seq <= MAX_SEQ or did.__class__ is not str:
        raise AtprotoError(Reason.BAD_FRAME, "a frame has no seq or no DID")
    return Frame(kind, seq, did, body, raw)


def _split(message: bytes) -> tuple[Kind, bytes]:
    """The kind and the bytes of the body. Nearly every header is one of five, known by its bytes.

    "Event Stream", Framing: `op` is 1 or -1, with 1 goes `t`; frames with others are passed over.
    """
    for header, size, kind in _HEADER_LIST:
        if message.startswith(header):
            return kind, message[size:]
    fields, start = cbor.decode_from(message, 0)
    if not isinstance(fields, dict) or fields.get("op").__class__ is not int:
        raise AtprotoError(Reason.BAD_FRAME, "a frame begins with no header")
    if fields["op"] == -1:
        return Kind.ERROR, message[start:]
    known = fields["op"] == 1 and isinstance(fields.get("t"), str)
    return (_kind(fields["t"]) if known else Kind.UNKNOWN), message[start:]


def _decode_big(raw: bytes) -> dict[str, Any]:
    """A body that is big must be so by its blocks or its ops; half a million empty maps would become 30 MB.

    Values are counted before any is made. Blocks are taken out first, and put back in: nothing in them is a value.
    """
    if len(raw) <= MAX_ENVELOPE_BYTES:
        cbor.check_count(raw, MAX_ENVELOPE_ITEMS)
        return cbor.decode_map(raw)
    start = _blocks_head(raw)
    end = start + 5 + int.from_bytes(raw[start + 1 : start + 5], "big")
    rest = raw[:start] + b"\x40" + raw[end:]
    cbor.check_count(rest, MAX_ENVELOPE_ITEMS)
    body = cbor.decode_map(rest)
    if cbor.find_field(rest, "blocks") != (start, start + 1):
        raise AtprotoError(Reason.FRAME_TOO_BIG, "a frame is big by something else than its blocks")
    body["blocks"] = raw[start + 5 : end]
    return body


def _blocks_head(raw: bytes) -> int:
    """Where the length of the blocks is. The same letters in a path are followed by a length that cannot be."""
    found = raw.find(_BLOCKS_KEY)
    while found >= 0:
        start = found + len(_BLOCKS_KEY) - 1
        size = int.from_bytes(raw[start + 1 : start + 5], "big")
        if 1 << 16 <= size <= len(raw) - start - 5 and len(raw) - size <= MAX_ENVELOPE_BYTES:
            return start
        found = raw.find(_BLOCKS_KEY, found + 1)
    raise AtprotoError(Reason.FRAME_TOO_BIG, "a frame is big by something else than its blocks")


def _kind(name: str) -> Kind:
    return Kind(name) if name in _HEADERS else Kind.UNKNOWN


def read_event(frame: Frame) -> Event:
    """The event of a frame, every field of it as the lexicon of subscribeRepos says.

    Consumers decode whole frames into typed values: one field of another type, in one frame, ends their connection,
    and ends it again at every resume.
    """
    read = _READERS.get(frame.kind)
    if read is None:
        raise AtprotoError(Reason.BAD_EVENT, "a frame of an unknown kind has no event")
    if frame.did:
        check_did(frame.did)
    known = _FIELDS.get(frame.kind)
    if known is not None and not frame.body.keys() <= known:
        _check_unknown(frame.body, known)
    return read(frame)


_FIELDS: Final = {
    Kind.COMMIT: frozenset(
        ("ops", "rev", "seq", "repo", "time", "blobs", "since", "blocks", "commit", "rebase", "tooBig", "prevData")
    ),
    Kind.SYNC: frozenset(("did", "rev", "seq", "time", "blocks")),
    Kind.IDENTITY: frozenset(("did", "seq", "time", "handle")),
    Kind.ACCOUNT: frozenset(("did", "seq", "time", "active", "status")),
}
_OP_FIELDS: Final = frozenset(("cid", "path", "prev", "action"))


def _check_unknown(fields: dict[str, Any], known: frozenset[str]) -> None:
    """Fields of a later version of the protocol are passed on, as long as they are few, small and flat enough."""
    unknown = {name: value for name, value in fields.items() if name not in known}
    if len(unknown) > MAX_UNKNOWN_FIELDS or len(cbor.encode(unknown)) > MAX_UNKNOWN_BYTES:
        raise AtprotoError(Reason.BAD_EVENT, "fields that no lexicon has are too many, or too big")
    cbor.check_depth(unknown)


def _commit(frame: Frame) -> Commit:
    body = frame.body
    ops, blobs = _field(body, "ops", list), _field(body, "blobs", list)
    if len(ops) > MAX_OPS:
        raise AtprotoError(Reason.TOO_MANY_OPS, f"{len(ops)} ops are more than {MAX_OPS}")
    if len(blobs) > MAX_BLOBS or not all(blob.__class__ is bytes and is_cid(blob) for blob in blobs):
        raise AtprotoError(Reason.BAD_EVENT, f"`blobs` is no list of at most {MAX_BLOBS} links")
    flags = _field(body, "tooBig", bool), _field(body, "rebase", bool)
    rev, since = _field(body, "rev", str), _nullable(body, "since", str)
    check_tid(rev)
    if since is not None:
        check_tid(since)
    return Commit(
        did=frame.did,
        seq=frame.seq,
        rev=rev,
        since=since,
        time=_time(body),
        commit=_link(body, "commit"),
        ops=tuple([_op(op) for op in ops]),
        blocks=_blocks(body, MAX_BLOCKS_BYTES),
        prev_data=_link(body, "prevData") if "prevData" in body else None,
        flagged=any(flags),
    )


_ACTIONS = {action.value: action for action in Action}


def _op(op: object) -> Op:
    if not isinstance(op, dict):
        raise AtprotoError(Reason.BAD_EVENT, "an op is no map")
    if not op.keys() <= _OP_FIELDS:
        _check_unknown(op, _OP_FIELDS)
    action = _ACTIONS.get(_field(op, "action", str))
    if action is None:
        raise AtprotoError(Reason.BAD_OPS, f"an op's action is {op['action'][:20]!r}")
    path = _field(op, "path", str)
    check_path(path)
    cid = None if _nullable(op, "cid", bytes) is None else _link(op, "cid")
    return Op(action, path, cid, _link(op, "prev") if "prev" in op else None)


def _sync(frame: Frame) -> Sync:
    rev = _field(frame.body, "rev", str)
    check_tid(rev)
    return Sync(frame.did, frame.seq, rev, _time(frame.body), _blocks(frame.body, MAX_SYNC_BYTES))


def _identity(frame: Frame) -> Identity:
    """A handle may be none: whoever decides on the event takes it out, since the rest is news all the same."""
    return Identity(frame.did, frame.seq, _time(frame.body), _optional(frame.body, "handle", str))


# What a host says of an account that is not active. Under other words, such as `throttled`, it may be:
# AT Protocol, "Account Hosting", Hosting Status.
_INACTIVE: Final = frozenset(("takendown", "suspended", "deleted", "deactivated"))


def _account(frame: Frame) -> Account:
    body = frame.body
    active, status = _field(body, "active", bool), _optional(body, "status", str)
    if status is not None and len(status) > MAX_STATUS:
        raise AtprotoError(Reason.BAD_EVENT, "`status` is too long")
    if active and status in _INACTIVE:
        raise AtprotoError(Reason.BAD_EVENT, f"an account cannot be active and {status}")
    return Account(frame.did, frame.seq, _time(body), active, status)


def _info(frame: Frame) -> Info:
    return Info(_field(frame.body, "name", str), _message(frame.body))


def _error(frame: Frame) -> ErrorNote:
    return ErrorNote(_field(frame.body, "error", str), _message(frame.body))


def _message(body: dict[str, Any]) -> str | None:
    """What a host says for people to read. It is not sent on, so a null does no harm."""
    return None if body.get("message") is None else _field(body, "message", str)


_READERS: dict[Kind, Callable[[Frame], Event]] = {
    Kind.COMMIT: _commit,
    Kind.SYNC: _sync,
    Kind.IDENTITY: _identity,
    Kind.ACCOUNT: _account,
    Kind.INFO: _info,
    Kind.ERROR: _error,
}


def _field(body: dict[str, Any], name: str, kind: type[T]) -> T:
    value = body.get(name)
    if value.__class__ is not kind:
        raise AtprotoError(Reason.BAD_EVENT, f"`{name}` is missing or of the wrong type")
    return value


def _optional(body: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """A field that may be left out. It may not be null: no lexicon says so, and consumers go by it.

    Specification: AT Protocol, "Data Model", Nullable and False-y.
    """
    return _field(body, name, kind) if name in body else None


def _nullable(body: dict[str, Any], name: str, kind: type[T]) -> T | None:
    """A field that must be there, and may be null."""
    return None if name in body and body[name] is None else _field(body, name, kind)


def _time(body: dict[str, Any]) -> str:
    time = _field(body, "time", str)
    check_datetime(time)
    return time


def _link(body: dict[str, Any], name: str) -> bytes:
    value = body.get(name)
    if value.__class__ is not bytes or not is_cid(value):
        raise AtprotoError(Reason.BAD_EVENT, f"`{name}` is no link to a block of a repository")
    return value


def _blocks(body: dict[str, Any], limit: int) -> bytes:
    blocks = _field(body, "blocks", bytes)
    if len(blocks) > limit:
        raise AtprotoError(Reason.BLOCKS_TOO_BIG, f"{len(blocks)} bytes of blocks are more than {limit}")
    return blocks


def resequence(frame: Frame, seq: int) -> bytes:
    """The frame's event under another number; every other byte of its body stays as it came."""
    raw, new = frame.raw, cbor.head(0, seq)
    old = _SEQ_KEY + cbor.head(0, frame.seq)
    if raw.count(old) == 1:
        return _HEADERS[frame.kind] + raw.replace(old, _SEQ_KEY + new, 1)
    span = cbor.find_field(raw, "seq")  # the same bytes are somewhere else, too: look where the field really is
    if span is None:
        raise AtprotoError(Reason.BAD_EVENT, "a frame without seq cannot be numbered")
    return b"".join((_HEADERS[frame.kind], raw[: span[0]], new, raw[span[1] :]))


def without_handle(frame: Frame) -> Frame:
    """An #identity frame without the handle that it claims."""
    body = {name: value for name, value in frame.body.items() if name != "handle"}
    return Frame(frame.kind, frame.seq, frame.did, body, cbor.encode(body))


def write_frame(kind: Kind, body: dict[str, Any]) -> bytes:
    """A frame of our own. Links are the 36 bytes of their CID."""
    return _HEADERS[kind] + cbor.encode(body)


def info_frame(name: str, message: str | None = None) -> bytes:
    return _HEADERS[Kind.INFO] + _note("name", name, message)


def error_frame(name: str, message: str | None = None) -> bytes:
    """The last frame of a stream that ends with an error ("Event Stream", Framing)."""
    return _ERROR_HEADER + _note("error", name, message)


def _note(field: str, name: str, message: str | None) -> bytes:
    return cbor.encode({field: name} if message is None else {field: name, "message": message})
