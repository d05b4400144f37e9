"""Publishing with one acknowledgement per message: a window of messages, each with its own reply subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.nats.acks import AckScanner, Run
from headgate.destinations.nats.connection import INBOX_SID, Connection
from headgate.destinations.nats.errors import NO_RESPONDERS, api_error, no_stream_error
from headgate.destinations.nats.frames import Frames, Replies, build_frames
from headgate.destinations.nats.window import Window
from headgate.model import ConnectError, DeliveryError, ProtocolError, StateError
from headgate.model.record import TOPIC
from headgate.wire.nats import ApiError, Msg, PubAck, parse_pub_ack

if TYPE_CHECKING:
    from headgate.destinations.nats.fence import Fence
    from headgate.destinations.nats.options import NatsOptions
    from headgate.destinations.nats.receipt import Ledger

__all__ = ["EachAcked"]

# Answers that belong together come within this time of one another; if they do not, nothing is gained by waiting.
_PAUSE_S = 0.005

Ints = npt.NDArray[np.int64]


class EachAcked:
    """Sends blocks over one connection and books every answer in the ledger.

    After a failure the later rows of the same topic are held back: they would overtake the failed one when it is sent
    again. Those that were already in flight cannot be called back.
    """

    def __init__(self, connection: Connection, options: NatsOptions, max_rows: int) -> None:
        self.stalled: DeliveryError | None = None
        self._connection = connection
        self._options = options
        self._replies = Replies(connection.inbox, options.window, max_rows)
        self._scanner = AckScanner(connection.inbox, INBOX_SID, self._replies.width)
        self._window = Window(options.window, options.window_bytes)
        self._blocks: list[tuple[Ints, pa.Array]] = []  # rows and topics that may still be in flight
        self._arrived: list[bytes] = []  # not looked at yet
        self._partial = b""  # the beginning of an answer
        shortest = f'MSG {connection.inbox}.{0:0{self._replies.width}d} {INBOX_SID} 22{{"stream":"","seq":1}}'
        self._least_answer_bytes = len(shortest) + len(options.stream) + 2 * len(b"\r\n")
        self._held: set[str] = set()

    def send(self, block: pa.RecordBatch, rows: Ints, ledger: Ledger, fence: Fence | None) -> None:
        """Write the block's messages as the window allows; books what is answered meanwhile."""
        self._ledger = ledger
        while True:
            block, rows = self._without_held(block, rows, all_rows=fence is not None)
            if not block.num_rows:
                return
            self._note_topics(rows, block.column(TOPIC))
            replies = self._replies.column(self._window.sent, block.num_rows)
            lines = fence.lines(block) if fence else None
            sent = self._send_frames(build_frames(block, replies, lines), rows)
            block, rows = block.slice(sent), rows[sent:]

    def drain(self, ledger: Ledger) -> None:
        """Wait until everything is answered, or nothing comes for `ack_timeout_s`."""
        self._ledger = ledger
        while self._window.in_flight and not self.stalled:
            self._await_answers()
        self._blocks.clear()
        self._held.clear()

    def _send_frames(self, frames: Frames, rows: Ints) -> int:
        """Send frames until all are written or a failure calls for holding some back; returns how many were."""
        held, first = len(self._held), 0
        while first < len(frames) and len(self._held) == held and not self.stalled:
            count = self._window.room(frames.offsets, first)
            if not count:
                self._await_answers()
                continue
            stop = first + count
            self._window.take(rows[first:stop], frames.offsets[first + 1 : stop + 1] - frames.offsets[first])
            self._ledger.sent += count
            self._write(frames.between(first, stop))
            first = stop
        return first

    def _write(self, frames: memoryview) -> None:
        try:
            self._connection.send(frames, timeout_s=self._options.ack_timeout_s, on_data=self._arrived.append)
        except ConnectError:
            self._receive()  # the server's last words may say why
            raise

    def _await_answers(self) -> None:
        """Take in what has arrived; wait if it is too little to be worth a look.

        A server that stores message after message also answers so, and looking at each answer alone is expensive.
        """
        size = sum(map(len, self._arrived))
        enough = self._least_answer_bytes * min(self._window.in_flight, max(1, self._window.slots // 4))
        while size < enough and (data := self._connection.receive(_PAUSE_S if size else self._options.ack_timeout_s)):
            self._arrived.append(data)
            size += len(data)
        if size:
            self._receive()
        else:
            self._give_up()

    def _give_up(self) -> None:
        reason = f"no acknowledgement within {self._options.ack_timeout_s:g} s"
        self.stalled = DeliveryError(reason, remedy="delivery is tried again", where=self._connection.where)
        self._ledger.fail(self.stalled, 0, self._window.unanswered())

    def _receive(self) -> None:
        data = b"".join(self._arrived)
        self._arrived.clear()
        if self._connection.between_events:
            runs, data, self._partial = self._scanner.scan(self._partial + data)
            for run in runs:
                self._book(run)
        for message in self._connection.messages(data):
            self._book_message(message)

    def _book(self, run: Run) -> None:
        rows = self._window.answer(run.slots)
        if run.stream == self._options.stream:
            self._ledger.ack(run.stream, len(rows), run.last_sequence, duplicate=run.duplicate)
            return
        reason = f"stored in stream {run.stream!r}, not in {self._options.stream!r}"
        remedy = "let only one stream take the subject"
        self._ledger.fail(StateError(reason, remedy=remedy, where=self._connection.where), 0, rows)

    def _book_message(self, message: Msg) -> None:
        slots = np.array([self._slot(message.subject)])
        answer = ApiError(NO_RESPONDERS) if _nobody_listens(message) else parse_pub_ack(message.payload)
        match answer:
            case PubAck():
                self._book(Run(answer.stream, answer.duplicate, slots, answer.seq))
            case ApiError():
                self._book_failure(answer, int(self._window.answer(slots)[0]))

    def _book_failure(self, failure: ApiError, row: int) -> None:
        topic, where = self._topic(row), self._connection.where
        self._held.add(topic)
        nobody = failure == ApiError(NO_RESPONDERS)
        error = no_stream_error(topic, where) if nobody else api_error(failure, where)
        self._ledger.fail(error, failure.err_code or failure.code, [row])

    def _slot(self, subject: str) -> int:
        inbox, _, slot = subject.rpartition(".")
        if inbox != self._connection.inbox or not slot.isdecimal() or len(slot) != self._replies.width:
            raise ProtocolError(f"NATS answered to {subject[:80]!r}, which was not asked", where=self._connection.where)
        return int(slot)

    def _without_held(self, block: pa.RecordBatch, rows: Ints, *, all_rows: bool) -> tuple[pa.RecordBatch, Ints]:
        if not self._held and not self.stalled:
            return block, rows
        if all_rows or self.stalled:
            keep = np.zeros(len(rows), dtype=bool)
        else:
            held = pa.array([topic.encode() for topic in self._held], pa.binary())
            keep = ~pc.is_in(block.column(TOPIC), value_set=held).to_numpy(zero_copy_only=False)
        reason = "not sent, because an earlier message failed"
        error = DeliveryError(reason, remedy="see the other failures", where=self._connection.where)
        self._ledger.fail(error, 0, rows[~keep])
        return block.filter(pa.array(keep)), rows[keep]

    def _note_topics(self, rows: Ints, topics: pa.Array) -> None:
        unanswered = self._window.unanswered()
        oldest = unanswered[0] if len(unanswered) else rows[0]
        self._blocks = [entry for entry in self._blocks if entry[0][-1] >= oldest]
        self._blocks.append((rows, topics))

    def _topic(self, row: int) -> str:
        for rows, topics in self._blocks:
            index = int(np.searchsorted(rows, row))
            if index < len(rows) and rows[index] == row:
                return str(topics[index].as_py(), "utf-8")
        raise ProtocolError("NATS answered for a row that was not sent", where=self._connection.where)


def _nobody_listens(message: Msg) -> bool:
    return message.headers.status == NO_RESPONDERS and not message.payload
