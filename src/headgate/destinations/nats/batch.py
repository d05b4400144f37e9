"""Publishing in batches (ADR-50, "fast ingest"; nats-server 2.14+): few acknowledgements, and nothing after a failure.

The reply subject of every message carries the state of the batch:

    <inbox>.<batch id>.<flow>.fail.<sequence>.<operation>.$FI

The server confirms after every so many messages how far the batch is stored. In the mode `fail` it stores no message
after one that was lost or refused, so what is stored is always the beginning of what was sent, in order, whatever
happens; other publishers may write to the stream at the same time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.nats.errors import NO_RESPONDERS, api_error, no_stream_error
from headgate.destinations.nats.frames import Frames, build_frames
from headgate.model import DeliveryError, HeadgateError, StateError
from headgate.model.record import TOPIC
from headgate.wire.nats import ApiError, BatchFlow, BatchGap, Msg, PubAck, encode_pub, parse_pub_ack

if TYPE_CHECKING:
    from headgate.destinations.nats.connection import Connection
    from headgate.destinations.nats.fence import Fence
    from headgate.destinations.nats.options import NatsOptions
    from headgate.destinations.nats.receipt import Ledger

__all__ = ["BatchAcked"]

_MAX_FLOW = 500  # the server grants no more
_OUTSTANDING_CONFIRMATIONS = 2  # the server works on one stretch while the next one travels
_START, _APPEND, _END = 0, 1, 3

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Batch:
    """An open batch. Its message number n is row `first_row + n - 1`."""

    id: str
    first_row: int
    topic: str  # of the first message; the end of the batch is sent there as well
    sent: int = 0
    stored: int = 0
    flow: int = 0  # messages between two confirmations; 0 until the server has answered the first message
    sizes: deque[tuple[int, int]] = field(default_factory=deque)  # last message and bytes of each piece in flight
    failed_at: int = 0
    error: HeadgateError | None = None
    code: int = 0
    final: PubAck | None = None
    closed: bool = False

    @property
    def bytes_in_flight(self) -> int:
        return sum(size for _, size in self.sizes)

    def confirm(self, stored: int) -> None:
        self.stored = max(self.stored, min(stored, self.sent))
        while self.sizes and self.sizes[0][0] <= self.stored:
            self.sizes.popleft()


class BatchAcked:
    """Sends blocks as parts of a batch; a batch ends at a flush."""

    def __init__(self, connection: Connection, options: NatsOptions) -> None:
        self.stalled: DeliveryError | None = None
        self._connection = connection
        self._options = options
        self._flow = max(1, min(_MAX_FLOW, options.window // _OUTSTANDING_CONFIRMATIONS))
        self._batch: _Batch | None = None
        self._batches = 0
        self._failed = False

    def send(self, block: pa.RecordBatch, rows: Ints, ledger: Ledger, fence: Fence | None) -> None:
        """Write the block's messages as far as the server confirms them; stops at the first failure."""
        ledger.duplicates = None
        lines = fence.lines(block) if fence else None
        sent = 0
        while sent < len(rows) and not self._failed:
            batch = self._batch or self._begin(int(rows[sent]), block.column(TOPIC)[sent])
            rest = block.slice(sent)
            rest_lines = None if lines is None else lines.slice(sent)
            frames = build_frames(rest, self._replies(batch, rest.num_rows), rest_lines)
            sent += self._send_frames(batch, frames, ledger)
            if not batch.error and sent < len(rows):
                self._finish(batch, ledger)  # too many bytes wait for a confirmation
            self._failed = self._failed or batch.error is not None
        ledger.fail(self._error("not sent, because an earlier message failed"), 0, rows[sent:])

    def drain(self, ledger: Ledger) -> None:
        """End the batch and book what was stored."""
        if self._batch:
            self._finish(self._batch, ledger)
        self._failed = False

    def _begin(self, first_row: int, topic: pa.Scalar) -> _Batch:
        self._batches += 1
        batch_id = f"{self._connection.inbox.rpartition('.')[2]}{self._batches}"
        self._batch = _Batch(batch_id, first_row, str(topic.as_py(), "utf-8"))
        return self._batch

    def _replies(self, batch: _Batch, count: int) -> pa.Array:
        numbers = pa.array(np.arange(batch.sent + 1, batch.sent + count + 1)).cast(pa.string())
        before, start, after = f" {self._reply_prefix(batch)}", f".{_START}.$FI ", f".{_APPEND}.$FI "
        replies = pc.binary_join_element_wise(before, numbers, after, "")
        if batch.sent == 0:
            replies = pa.concat_arrays([pa.array([f"{before}1{start}"]), replies.slice(1)])
        return replies.cast(pa.binary())

    def _reply_prefix(self, batch: _Batch) -> str:
        return f"{self._connection.inbox}.{batch.id}.{self._flow}.fail."

    def _send_frames(self, batch: _Batch, frames: Frames, ledger: Ledger) -> int:
        """Send frames until all are written, one failed, or the bytes in flight reach their bound."""
        first = 0
        while first < len(frames) and not batch.error:
            count = self._room(batch, len(frames) - first)
            if not count:
                self._await_answers(batch)
                continue
            if batch.bytes_in_flight >= self._options.window_bytes:
                break
            count = min(count, self._fitting(frames, first))
            piece = frames.between(first, first + count)
            batch.sent += count
            batch.sizes.append((batch.sent, len(piece)))
            ledger.sent += count
            timeout_s = self._options.ack_timeout_s
            self._connection.send(piece, timeout_s=timeout_s, on_data=lambda data: self._receive(batch, data))
            first += count
        return first

    def _room(self, batch: _Batch, remaining: int) -> int:
        if not batch.sent:
            return 1  # the server answers the first message before it takes more
        allowed = min(self._options.window, batch.flow * _OUTSTANDING_CONFIRMATIONS)
        return max(0, min(remaining, batch.stored + allowed - batch.sent))

    def _fitting(self, frames: Frames, first: int) -> int:
        """Frames that make up a quarter of the byte window, one at least."""
        limit = frames.offsets[first] + self._options.window_bytes // 4
        return max(1, int(np.searchsorted(frames.offsets, limit, side="right")) - 1 - first)

    def _finish(self, batch: _Batch, ledger: Ledger) -> None:
        end = encode_pub(batch.topic, b"", f"{self._reply_prefix(batch)}{batch.sent + 1}.{_END}.$FI")
        timeout_s = self._options.ack_timeout_s
        if not batch.closed and not self.stalled:
            self._connection.send(memoryview(end), timeout_s=timeout_s, on_data=lambda data: self._receive(batch, data))
        while not batch.closed and not self.stalled:
            self._await_answers(batch)
        self._batch = None
        self._book(batch, ledger)

    def _book(self, batch: _Batch, ledger: Ledger) -> None:
        rows = np.arange(batch.first_row, batch.first_row + batch.sent)
        stored, stream = batch.stored, batch.final.stream if batch.final else self._options.stream
        if stream == self._options.stream:
            ledger.ack(stream, stored, batch.final.seq if batch.final else 0, duplicate=False)
        else:
            reason = f"stored in stream {stream!r}, not in {self._options.stream!r}"
            error = StateError(reason, remedy="let only one stream take the subject", where=self._connection.where)
            ledger.fail(error, 0, rows[:stored])
        if stored < batch.sent:
            self._failed = True
            self._book_failure(batch, rows[stored:], ledger)

    def _book_failure(self, batch: _Batch, rows: Ints, ledger: Ledger) -> None:
        error = self.stalled or batch.error or self._error("the server ended the batch early")
        if self.stalled or not batch.failed_at:
            ledger.fail(error, batch.code, rows)
            return
        culprit = batch.first_row + batch.failed_at - 1
        ledger.fail(error, batch.code, rows[rows == culprit])
        ledger.fail(self._error("not confirmed, because the batch ended early"), 0, rows[rows != culprit])

    def _await_answers(self, batch: _Batch) -> None:
        data = self._connection.receive(self._options.ack_timeout_s)
        if data:
            self._receive(batch, data)
            return
        self.stalled = self._error(f"no acknowledgement within {self._options.ack_timeout_s:g} s")
        batch.error = batch.error or self.stalled

    def _receive(self, batch: _Batch, data: bytes) -> None:
        for message in self._connection.messages(data):
            prefix, _, rest = message.subject.rpartition(".fail.")
            number = rest.partition(".")[0]
            if number.isdecimal() and prefix.endswith(f".{batch.id}.{self._flow}"):
                self._note(batch, int(number), message)

    def _note(self, batch: _Batch, number: int, message: Msg) -> None:
        """Take in an answer to the batch's message `number`."""
        if message.headers.status == NO_RESPONDERS and not message.payload:
            subject = message.headers.get("Nats-Subject", batch.topic)
            self._note_failure(batch, number, no_stream_error(subject, self._connection.where), NO_RESPONDERS)
            return
        match parse_pub_ack(message.payload):
            case BatchFlow(stored, every):
                batch.flow = every
                batch.confirm(stored)
            case BatchGap(expected, _):
                self._note_failure(batch, expected, self._error("the server missed a message"), 0)
            case PubAck() as final:
                batch.final, batch.closed = final, True
                batch.confirm(final.count)
            case ApiError() as refusal:
                error = api_error(refusal, self._connection.where)
                self._note_failure(batch, refusal.batch_seq or number, error, refusal.err_code or refusal.code)

    def _note_failure(self, batch: _Batch, number: int, error: HeadgateError, code: int) -> None:
        if number > batch.sent:
            # The answer to the end of the batch: the server knows the batch no more.
            batch.closed = True
        if batch.error is None or (number == batch.failed_at and not batch.code):
            batch.failed_at, batch.error, batch.code = min(number, batch.sent), error, code

    def _error(self, reason: str) -> DeliveryError:
        return DeliveryError(reason, remedy="delivery is tried again", where=self._connection.where)
