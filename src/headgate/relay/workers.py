"""Validation, here or in processes of its own: questions in, verdicts out.

    async with open_judges(workers=2, policy=STRICT) as judges:
        judged = await judges[host_shard].judge(questions)     # verdicts, and the seconds that each took

A worker knows nothing: each question brings the state and the document to decide by, so a worker that dies is replaced
and asked again. A frame that kills its worker twice is rejected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from headgate.model import ConnectError
from headgate.relay.validate import validate
from headgate.relay.verdict import Accepted, NeedsDocument, Policy, Rejected, RepoState, Verdict
from headgate.relay.worker import Ask, Reply, Said, size_head
from headgate.runtime.child import end_async_child, start_async_child
from headgate.wire.atproto import Commit, DidDocument, Frame, Reason, read_car, read_event, without_handle
from headgate.wire.atproto.events import Event

__all__ = ["Judge", "Judged", "ProcessJudge", "Question", "decide", "open_judges"]

logger = logging.getLogger(__name__)

_LONG_S = 0.002  # after a verdict that took longer, others have their turn
_STOP_S = 2.0
_DEADLY_S = 1.0  # what a frame is charged that ended a validator


@dataclass(frozen=True, slots=True)
class Question:
    """All that a verdict depends on."""

    message: bytes
    frame: Frame
    host: str
    state: RepoState | None
    document: DidDocument | None
    fresh: bool
    now_us: int


class Judged(NamedTuple):
    """A verdict, and the seconds that it took."""

    verdict: Verdict
    spent_s: float


class Judge(Protocol):
    """Decides on questions, of which no two are of the same account and host."""

    async def judge(self, questions: Sequence[Question]) -> list[Judged]: ...


@asynccontextmanager
async def open_judges(workers: int, policy: Policy) -> AsyncIterator[list[Judge]]:
    """One judge per worker; with no worker, one that decides in this process."""
    if workers == 0:
        yield [LocalJudge(policy)]
        return
    judges = [ProcessJudge(policy) for _ in range(workers)]
    try:
        await asyncio.gather(*(judge.start() for judge in judges))
        yield list(judges)
    finally:
        await asyncio.gather(*(judge.stop() for judge in judges))


def decide(question: Question, policy: Policy) -> Verdict:
    return validate(
        question.frame,
        host=question.host,
        state=question.state,
        document=question.document,
        now_us=question.now_us,
        fresh=question.fresh,
        policy=policy,
    )


class LocalJudge:
    """Decides in this process, and lets others have their turn between batches."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def judge(self, questions: Sequence[Question]) -> list[Judged]:
        await asyncio.sleep(0)
        judged = []
        for question in questions:
            began = time.perf_counter()
            verdict = self._decide(question)
            judged.append(Judged(verdict, time.perf_counter() - began))
            if judged[-1].spent_s > _LONG_S:
                await asyncio.sleep(0)
        return judged

    def _decide(self, question: Question) -> Verdict:
        try:
            return decide(question, self._policy)
        except Exception:  # one frame that nobody thought of must not stop the relay
            logger.exception("an event of %s is too much for the validator", question.host)
            return Rejected(Reason.BAD_EVENT, "too much for the validator")


class ProcessJudge:
    """Asks a process. Batches are answered in the order they were asked in, so several may be on their way."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: deque[asyncio.Future[list[Said]]] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self.restarts = -1

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def judge(self, questions: Sequence[Question]) -> list[Judged]:
        for _ in range(2):
            with suppress(ConnectError):
                return await self._ask(questions)
        if len(questions) > 1:  # one of them is too much for a worker: find out which
            return [(await self.judge([question]))[0] for question in questions]
        return [Judged(Rejected(Reason.BAD_EVENT, "a validator died of it"), _DEADLY_S)]

    async def start(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.returncode is None and self._reader is not None:
                return
            await self.stop()
            self.restarts += 1
            self._process = await start_async_child("headgate.relay.worker", self._policy)
            self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        process, self._process = self._process, None
        reader, self._reader = self._reader, None
        if process is not None:
            await end_async_child(process, _STOP_S)
        if reader is not None:
            await asyncio.gather(reader, return_exceptions=True)

    async def _ask(self, questions: Sequence[Question]) -> list[Judged]:
        if self._reader is None or self._reader.done() or self._process is None:
            self._reader = None
            await self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        body = self._encoder.encode([_ask(question) for question in questions])
        answered: asyncio.Future[list[Said]] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        try:
            self._process.stdin.write(size_head(body) + body)
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):
            pass  # the reader sees the end of it, too, and says so
        replies = await answered
        return [
            Judged(_verdict(question, said), said.spent_s) for question, said in zip(questions, replies, strict=True)
        ]

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        stream, decoder = self._process.stdout, msgspec.msgpack.Decoder(list[Said])
        try:
            while True:
                size = int.from_bytes(await stream.readexactly(4), "big")
                replies = decoder.decode(await stream.readexactly(size))
                answered = self._waiting.popleft()
                if not answered.done():
                    answered.set_result(replies)
        except (asyncio.IncompleteReadError, msgspec.DecodeError, ConnectionError):
            logger.info("a validator has ended")
        finally:
            while self._waiting:
                answered = self._waiting.popleft()
                if not answered.done():
                    answered.set_exception(ConnectError("a validator has ended", remedy="it is started again"))


def _ask(question: Question) -> Ask:
    document, state = question.document, question.state or RepoState()
    known = document is not None
    key = document.key if document is not None else None
    return Ask(
        message=question.message,
        host=question.host,
        rev=state.rev,
        data=state.data,
        active=state.active,
        status=state.status,
        known=known,
        curve=key.curve if key is not None else "",
        key=key.compressed if key is not None else b"",
        pds=document.pds if document is not None else None,
        handle=document.handle if document is not None else None,
        fresh=question.fresh,
        now_us=question.now_us,
    )


def _verdict(question: Question, said: Said) -> Verdict:
    reason = Reason(said.reason) if said.reason is not None else None
    if said.reply is Reply.WAIT:
        return NeedsDocument(question.frame.did, said.refresh, reason)
    if said.reply is Reply.NO:
        return Rejected(reason or Reason.BAD_EVENT, said.detail)
    frame = without_handle(question.frame) if said.without_handle else question.frame
    event = read_event(frame)
    state = RepoState(said.rev, said.data, said.active, said.status)
    return Accepted(frame, event, state, _Blocks(event), tuple(Reason(name) for name in said.warnings))


class _Blocks(Mapping[bytes, bytes]):
    """The blocks of an event that a worker has checked, split when somebody looks."""

    def __init__(self, event: Event) -> None:
        self._event: Event | None = event
        self._blocks: dict[bytes, bytes] = {}

    def _split(self) -> dict[bytes, bytes]:
        if isinstance(self._event, Commit):
            self._blocks = read_car(self._event.blocks).blocks
        self._event = None
        return self._blocks

    def __getitem__(self, cid: bytes) -> bytes:
        return self._split()[cid] if self._event is not None else self._blocks[cid]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._split() if self._event is not None else self._blocks)

    def __len__(self) -> int:
        return len(self._split() if self._event is not None else self._blocks)
