"""The relay's doors: the event stream of the protocol, and Jetstream's JSON.

/xrpc/com.atproto.sync.subscribeRepos?cursor=123
/subscribe?wantedCollections=app.bsky.feed.*&wantedDids=did:plc:...&cursor=1700000000000000
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import zstandard

from headgate.eventlog import LogReader, Record
from headgate.eventlog.doors import Door, Entrance, Message, Refusal
from headgate.wire.atproto import (
    MAX_SEQ,
    Account,
    Commit,
    Identity,
    account_json,
    commit_json,
    error_frame,
    identity_json,
    info_frame,
    is_did,
    is_nsid,
    read_car,
    read_event,
    read_frame,
)
from headgate.wire.atproto.logged import frame_of, time_of

__all__ = [
    "JETSTREAM",
    "JETSTREAM_ZSTD",
    "LEVEL",
    "SUBSCRIBE_REPOS",
    "JetstreamDoor",
    "Subject",
    "SubscribeReposDoor",
    "Wanted",
    "relay_doors",
]

SUBSCRIBE_REPOS = "/xrpc/com.atproto.sync.subscribeRepos"
JETSTREAM = "/subscribe"
JETSTREAM_ZSTD = "/subscribe.zst"
LEVEL = 3  # of compression

_MOST_COLLECTIONS = 100
_MOST_DIDS = 10_000
_MOST_TIME_US = 2**63


class SubscribeReposDoor:
    """Frames as they are in the log."""

    is_text = False

    def enter(self, query: Mapping[str, Sequence[str]]) -> Entrance:
        cursor = _number(query, "cursor", MAX_SEQ)
        return Entrance(cursor if cursor is None else max(0, cursor))

    def messages(self, record: Record) -> Sequence[Message]:
        return (Message(None, frame_of(record.payload)),)

    def wants(self, subject: Any, wanted: Any) -> bool:
        return True

    def info(self, name: str, message: str) -> bytes | None:
        return info_frame(name, message)

    def error(self, name: str, message: str) -> bytes | None:
        return error_frame(name, message)


class Subject(NamedTuple):
    """What filters look at. Only an op has a collection."""

    did: str
    collection: str | None
    time_us: int
    size: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter. Events that are no ops pass whatever collections are wanted."""

    collections: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    dids: frozenset[str] = frozenset()
    max_bytes: int = 0
    since_us: int = 0

    def takes(self, subject: Subject) -> bool:
        if subject.time_us < self.since_us or (self.dids and subject.did not in self.dids):
            return False
        if self.max_bytes and subject.size > self.max_bytes:
            return False
        collection = subject.collection
        if collection is None or not (self.collections or self.prefixes):
            return True
        return collection in self.collections or collection.startswith(self.prefixes or "/")


class JetstreamDoor:
    """One JSON object per op, #identity and #account; a cursor is a time."""

    most_message_bytes = 1 << 19  # ten thousand did:plc, and as much again

    def __init__(
        self,
        reader: LogReader,
        *,
        compressed: bool = False,
        dictionary: zstandard.ZstdCompressionDict | None = None,
    ) -> None:
        self._reader = reader
        self.is_text = not compressed
        self._dictionary = dictionary
        self._local = threading.local()  # a compressor is not for several threads

    def enter(self, query: Mapping[str, Sequence[str]]) -> Entrance:
        wanted = _wanted(
            _several(query, "wantedCollections"),
            _several(query, "wantedDids"),
            _number(query, "maxMessageSizeBytes", 1 << 31) or 0,
        )
        since_us = _number(query, "cursor", _MOST_TIME_US)
        seq = None if since_us is None else self._seq(since_us)
        wanted = replace(wanted, since_us=0 if seq is None else max(0, since_us or 0))
        waits = (query.get("requireHello") or [""])[-1] == "true"
        return Entrance(seq, wanted=_or_none(wanted), waits=waits)

    def heard(self, message: bytes, wanted: Any) -> Hashable:
        """An update of the options. The cursor and the compression stay."""
        try:
            said = json.loads(message)
            payload = said["payload"] if said["type"] == "options_update" else None
        except (ValueError, KeyError, TypeError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            raise Refusal("InvalidRequest", 'a message is {"type": "options_update", "payload": {...}}')
        size = payload.get("maxMessageSizeBytes") or 0
        if size.__class__ is not int:
            raise Refusal("InvalidRequest", "maxMessageSizeBytes is a number")
        new = _wanted(_texts(payload, "wantedCollections"), _texts(payload, "wantedDids"), min(size, 1 << 31))
        return _or_none(replace(new, since_us=wanted.since_us if wanted is not None else 0))

    def _seq(self, time_us: int) -> int | None:
        """Where to begin to look for a time; a time to come is live."""
        if time_us > time.time_ns() // 1000:
            return None
        seq = self._reader.seq_at(max(0, time_us) / 1e6)
        return None if seq > self._reader.head_seq else max(seq, self._reader.oldest_seq)

    def messages(self, record: Record) -> Sequence[Message]:
        time_us = time_of(record.payload)
        event = read_event(read_frame(frame_of(record.payload)))
        if isinstance(event, Commit):
            texts = commit_json(event, read_car(event.blocks).blocks, time_us)
            collections: list[str | None] = [op.collection for op in event.ops]
        elif isinstance(event, Identity | Account):
            texts = [identity_json(event, time_us) if isinstance(event, Identity) else account_json(event, time_us)]
            collections = [None]
        else:
            return ()
        return [
            Message(Subject(event.did, collection, time_us, len(text)), self._packed(text))
            for text, collection in zip(texts, collections, strict=True)
        ]

    def _packed(self, text: bytes) -> bytes:
        if self.is_text:
            return text
        compressor: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if compressor is None:
            compressor = self._local.compressor = zstandard.ZstdCompressor(LEVEL, dict_data=self._dictionary)
        return compressor.compress(text)

    def wants(self, subject: Any, wanted: Any) -> bool:
        return bool(wanted.takes(subject))

    def info(self, name: str, message: str) -> bytes | None:
        return None

    def error(self, name: str, message: str) -> bytes | None:
        return self._packed(json.dumps({"error": name, "message": message}).encode())


def relay_doors(reader: LogReader, dictionary: zstandard.ZstdCompressionDict | None = None) -> dict[str, Door]:
    """Every stream of a relay by its path. Compressed ones use the dictionary if there is one."""
    return {
        SUBSCRIBE_REPOS: SubscribeReposDoor(),
        JETSTREAM: JetstreamDoor(reader),
        JETSTREAM_ZSTD: JetstreamDoor(reader, compressed=True, dictionary=dictionary),
    }


def _is_prefix(prefix: str) -> bool:
    """`app.bsky.`: an NSID as soon as something follows."""
    return is_nsid(f"{prefix}a.a")


def _wanted(names: list[str], dids: list[str], size: int) -> Wanted:
    """A filter from what a listener says, in its request or later."""
    if len(names) > _MOST_COLLECTIONS or len(dids) > _MOST_DIDS:
        raise Refusal("InvalidRequest", f"at most {_MOST_COLLECTIONS} wantedCollections and {_MOST_DIDS} wantedDids")
    prefixes = tuple(sorted(name[:-1] for name in names if name.endswith(".*")))
    exact = frozenset(name for name in names if not name.endswith(".*"))
    if not all(map(is_nsid, exact)) or not all(_is_prefix(prefix) for prefix in prefixes):
        raise Refusal("InvalidRequest", "wantedCollections are NSIDs, or prefixes of them such as app.bsky.*")
    if not all(map(is_did, dids)):
        raise Refusal("InvalidRequest", "wantedDids are DIDs")
    return Wanted(exact, prefixes, frozenset(dids), max(0, size))


def _or_none(wanted: Wanted) -> Wanted | None:
    return None if wanted == Wanted() else wanted


def _texts(payload: dict[str, Any], name: str) -> list[str]:
    given = payload.get(name) or []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise Refusal("InvalidRequest", f"{name} is a list of texts")
    return given


def _several(query: Mapping[str, Sequence[str]], name: str) -> list[str]:
    return [value for text in query.get(name, ()) for value in text.split(",") if value]


def _number(query: Mapping[str, Sequence[str]], name: str, most: int) -> int | None:
    given = query.get(name)
    if not given or given[-1] == "":
        return None
    text = given[-1].removeprefix("-")
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise Refusal("InvalidRequest", f"{name} is no number")
    return -int(text) if given[-1].startswith("-") else min(int(text), most)
