"""The process that validates: `python -m headgate.relay.worker`, which gets its policy as a line of JSON.

Then it reads batches from standard input and writes one answer for each to standard output, both as four bytes of
length and MessagePack. It ends with its input. It opens nothing and keeps nothing but parsed keys.
"""

from __future__ import annotations

import enum
import sys
import time
from functools import lru_cache
from typing import BinaryIO

import msgspec

from headgate.relay.validate import validate
from headgate.relay.verdict import Accepted, NeedsDocument, Policy, Rejected, RepoState, Verdict
from headgate.wire.atproto import AtprotoError, DidDocument, PublicKey, Reason, read_frame
from headgate.wire.atproto.keys import K256Key, P256Key

__all__ = ["Ask", "Reply", "Said", "answer", "main", "size_head"]


class Reply(enum.StrEnum):
    """What became of a question."""

    YES = "y"
    NO = "n"
    WAIT = "w"


class Ask(msgspec.Struct, array_like=True, frozen=True):
    """A frame, and what is known about its account."""

    message: bytes
    host: str
    rev: str | None
    data: bytes | None
    active: bool
    status: str | None
    known: bool
    curve: str
    key: bytes
    pds: str | None
    handle: str | None
    fresh: bool
    now_us: int


class Said(msgspec.Struct, array_like=True, frozen=True):
    """A verdict, without what the asker has already."""

    reply: Reply
    reason: str | None = None
    detail: str = ""
    refresh: bool = False
    rev: str | None = None
    data: bytes | None = None
    active: bool = True
    status: str | None = None
    without_handle: bool = False
    warnings: tuple[str, ...] = ()
    spent_s: float = 0.0


def size_head(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big")


def answer(ask: Ask, policy: Policy) -> Said:
    try:
        frame = read_frame(ask.message)
    except AtprotoError as error:
        return Said(Reply.NO, error.reason.value, error.message)
    document = None
    if ask.known:
        key = _key(ask.curve, ask.key) if ask.key else None
        document = DidDocument(frame.did, key, ask.pds, None, ask.handle)
    state = RepoState(ask.rev, ask.data, ask.active, ask.status)
    verdict = validate(
        frame, host=ask.host, state=state, document=document, now_us=ask.now_us, fresh=ask.fresh, policy=policy
    )
    return _said(verdict, frame.raw)


def _said(verdict: Verdict, raw: bytes) -> Said:
    if isinstance(verdict, Rejected):
        return Said(Reply.NO, verdict.reason.value, verdict.detail)
    if isinstance(verdict, NeedsDocument):
        return Said(Reply.WAIT, verdict.because.value if verdict.because else None, refresh=verdict.refresh)
    assert isinstance(verdict, Accepted)
    state = verdict.state
    return Said(
        Reply.YES,
        rev=state.rev,
        data=state.data,
        active=state.active,
        status=state.status,
        without_handle=verdict.frame.raw is not raw,
        warnings=tuple(reason.value for reason in verdict.warnings),
    )


@lru_cache(100_000)
def _key(curve: str, compressed: bytes) -> PublicKey | None:
    try:
        return K256Key(compressed) if curve == "k256" else P256Key(compressed)
    except AtprotoError:
        return None


def serve(source: BinaryIO, sink: BinaryIO, policy: Policy) -> None:
    decoder, encoder = msgspec.msgpack.Decoder(list[Ask]), msgspec.msgpack.Encoder()
    while len(head := source.read(4)) == 4:
        batch = decoder.decode(source.read(int.from_bytes(head, "big")))
        body = encoder.encode([_guarded(ask, policy) for ask in batch])
        sink.write(size_head(body) + body)
        sink.flush()


def _guarded(ask: Ask, policy: Policy) -> Said:
    began = time.perf_counter()
    try:
        said = answer(ask, policy)
    except (RecursionError, MemoryError):
        said = Said(Reply.NO, Reason.BAD_EVENT.value, "too much for the validator")
    return msgspec.structs.replace(said, spent_s=time.perf_counter() - began)


def main() -> None:
    policy = msgspec.json.decode(sys.stdin.buffer.readline(), type=Policy)
    serve(sys.stdin.buffer, sys.stdout.buffer, policy)


if __name__ == "__main__":
    main()
