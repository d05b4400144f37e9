"""Which accounts have records of a collection, in both directions, in RocksDB.

    index.add(did, ["app.bsky.feed.post"])
    index.dids("app.bsky.feed.post", after="", count=500)
    index.remove(did)

Nearly every commit repeats a pair that is known, so a bounded set of known pairs answers before the database is asked.
A pair stays when the last record of a collection goes: the index says where to look, not what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocksdict import Options, Rdict, ReadOptions, WriteBatch

from headgate.model import OccupiedError
from headgate.relay.net import Fetcher
from headgate.wire.atproto import Account, Action, AtprotoError, Commit, Event, Reason, is_nsid

__all__ = ["CollectionIndex", "collections_of"]

_BY_COLLECTION, _BY_DID = b"c", b"d"
_END = b"\x00"  # neither a DID nor an NSID has it, so that no name is the beginning of another
_MAX_DESCRIPTION_BYTES = 1 << 20
_MAX_COLLECTIONS = 10_000
_GONE = ("deleted", "takendown")


class CollectionIndex:
    """The index in a directory. All methods are short; long scans are cut into pages by their caller."""

    def __init__(self, path: Path, *, known: int = 1_000_000) -> None:
        path.mkdir(parents=True, exist_ok=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        try:
            self._db = Rdict(str(path), options)
        except Exception as error:  # rocksdict has no type for it
            raise OccupiedError(
                f"the collection index at {path} cannot be opened: {error}", remedy="is another relay running there?"
            ) from error
        self._known: set[tuple[str, str]] = set()
        self._known_limit = known

    def add(self, did: str, collections: Iterable[str]) -> int:
        """Note that an account has these collections; how many were new to the database."""
        new = [name for name in set(collections) if (did, name) not in self._known]
        if not new:
            return 0
        batch = WriteBatch(raw_mode=True)
        written = 0
        for name in new:
            forward, backward = _keys(did, name)
            if self._db.get(backward) is None:
                batch.put(forward, b"")
                batch.put(backward, b"")
                written += 1
            self._learn(did, name)
        if written:
            self._db.write(batch)
        return written

    def track(self, event: Event) -> None:
        """Follow the stream: a commit brings collections, an account that is deleted or taken down goes."""
        if isinstance(event, Commit):
            self.add(event.did, {op.collection for op in event.ops if op.action is not Action.DELETE})
        elif isinstance(event, Account) and not event.active and event.status in _GONE:
            self.remove(event.did)

    def dids(self, collection: str, after: str = "", count: int = 500) -> list[str]:
        """Accounts with the collection, in the order of their DIDs, behind `after`."""
        return list(self._scan(_BY_COLLECTION + collection.encode() + _END, after, count))

    def collections(self, did: str, after: str = "", count: int = _MAX_COLLECTIONS) -> list[str]:
        return list(self._scan(_BY_DID + did.encode() + _END, after, count))

    def remove(self, did: str) -> None:
        """Forget an account, as when it is deleted or taken down."""
        while names := self.collections(did):
            batch = WriteBatch(raw_mode=True)
            for name in names:
                for key in _keys(did, name):
                    batch.delete(key)
                self._known.discard((did, name))
            self._db.write(batch)

    async def backfill(self, fetcher: Fetcher, origin: str, did: str) -> int:
        """Add what an account's host says that it has."""
        return self.add(did, await collections_of(fetcher, origin, did))

    def close(self) -> None:
        self._db.close()

    def _learn(self, did: str, name: str) -> None:
        if len(self._known) >= self._known_limit:
            self._known.pop()  # any will do: it costs one lookup to learn it again
        self._known.add((did, name))

    def _scan(self, prefix: bytes, after: str, count: int) -> Iterator[str]:
        options = ReadOptions()
        options.set_iterate_upper_bound(prefix[:-1] + b"\x01")
        start = prefix + (after.encode() + _END if after else b"")
        for key in self._db.keys(from_key=start, read_opt=options):
            if count <= 0:
                return
            count -= 1
            assert isinstance(key, bytes)  # raw mode has no other
            yield key[len(prefix) :].decode()


def _keys(did: str, collection: str) -> tuple[bytes, bytes]:
    first, second = did.encode(), collection.encode()
    return _BY_COLLECTION + second + _END + first, _BY_DID + first + _END + second


async def collections_of(fetcher: Fetcher, origin: str, did: str) -> list[str]:
    """The collections of an account, by `describeRepo` of its host; names that are none are left out."""
    answer = await fetcher.get(
        f"{origin}/xrpc/com.atproto.repo.describeRepo", limit=_MAX_DESCRIPTION_BYTES, query={"repo": did}
    )
    if answer.status != 200:
        raise AtprotoError(Reason.UNRESOLVED, f"the host does not describe {did[:80]}: {answer.status}")
    return _read_description(answer.body)[:_MAX_COLLECTIONS]


def _read_description(body: bytes) -> list[str]:
    try:
        names = json.loads(body)["collections"]
        return [name for name in names if isinstance(name, str) and is_nsid(name)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AtprotoError(Reason.BAD_EVENT, "the description of a repository is none") from error
