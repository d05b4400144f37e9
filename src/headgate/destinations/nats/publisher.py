"""The publisher: Arrow columns in, a receipt out.

    publisher = Publisher(options)
    publisher.publish(topics, message_ids, payloads)   # writes as the window allows
    receipt = publisher.flush()                        # waits for every acknowledgement

Messages of one publisher reach the stream in the order given. What cannot be sent at all (a topic with blanks, a
payload over the server's limit) raises `DataError` before anything of the call is sent. What the server refuses is
named, row by row, in the receipt. A lost connection raises `ConnectError`: the caller publishes everything since the
last flush again, and the server drops by message id what it already has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import numpy as np

from headgate.destinations.nats.connection import Connection
from headgate.destinations.nats.each import EachAcked
from headgate.destinations.nats.fence import Fence
from headgate.destinations.nats.jetstream import JetStream
from headgate.destinations.nats.receipt import Ledger, Receipt
from headgate.destinations.nats.rows import bad_rows, blocks, delivery_table
from headgate.model import DataError, HeadgateError, UsageError
from headgate.model.record import MESSAGE_ID

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.destinations.nats.options import NatsOptions

__all__ = ["Publisher"]

_BLOCK_ROWS = 8_192
_BLOCK_BYTES = 4 * 1024 * 1024


class Publisher:
    """Publishes to one JetStream stream over one connection, which it opens when needed and again when it broke.

    Use it from one thread. Close it in the end, or borrow one with `borrow_publisher`.
    """

    def __init__(self, options: NatsOptions) -> None:
        self.options = options
        self._connection: Connection | None = None
        self._sending: EachAcked | None = None
        self._fence: Fence | None = None
        self._ledger = Ledger()

    @property
    def max_payload(self) -> int:
        """The server's limit for headers and payload together."""
        return self._connected().info.max_payload

    def jetstream(self) -> JetStream:
        """Administration over the same connection, for use while nothing is in flight."""
        if self._ledger.rows:
            # It would take acknowledgements for its own answers and drop them.
            raise UsageError("the publisher is busy", remedy="flush it first")
        return JetStream(self._connected(), domain=self.options.domain)

    def publish(
        self,
        topics: pa.Array,
        message_ids: pa.Array,
        payloads: pa.Array,
        *,
        headers: pa.Array | bytes | None = None,
        expected_last_sequence: int | None = None,
    ) -> None:
        """Send one message per row; returns when all are written, some may still be unacknowledged.

        `headers` are further header lines, each with its line end: one value for all rows or one per row.
        `expected_last_sequence` fences off other writers: the first row is stored only if the stream ends there, each
        other row only if it ends with the row before, and nothing is stored after the first row that does not fit.
        """
        table = delivery_table(topics, message_ids, payloads, headers)
        fence = self._fence_at(expected_last_sequence)
        self._reject_bad_rows(table, fence.max_line_bytes(table.column(MESSAGE_ID)) if fence else 0)
        for block in blocks(table, _BLOCK_ROWS, _BLOCK_BYTES):
            self._send(block, fence)

    def flush(self) -> Receipt:
        """Wait until every row since the last flush is acknowledged, refused or given up, and report."""
        if self._sending:
            with self._closing_on_error():
                self._sending.drain(self._ledger)
        ledger, self._ledger, self._fence = self._ledger, Ledger(), None
        if self._sending and self._sending.stalled:
            # A late acknowledgement must not be taken for that of a later message.
            self.close()
        return ledger.receipt()

    @property
    def reusable(self) -> bool:
        """Whether it is connected and nothing waits to be flushed."""
        return self._connection is not None and not self._ledger.rows

    def check(self) -> None:
        """Make sure that an idle connection still works; a broken one is closed and opened again when needed."""
        if self._connection and self.reusable:
            try:
                self._connection.ping(self.options.connect_timeout_s)
            except HeadgateError:
                self.close()

    def close(self) -> None:
        """Close the connection and forget what was not flushed; publishing again opens a new one."""
        self._ledger = Ledger()
        self._sending = self._fence = None
        if self._connection:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fence_at(self, expected_last_sequence: int | None) -> Fence | None:
        """The fence of the rows before, if these ones follow them; so the chain is whole from flush to flush."""
        if expected_last_sequence is None:
            self._fence = None
        elif self._fence is None or self._fence.sequence != expected_last_sequence:
            self._fence = Fence(expected_last_sequence)
        return self._fence

    def _send(self, block: pa.RecordBatch, fence: Fence | None) -> None:
        rows = np.arange(self._ledger.rows, self._ledger.rows + block.num_rows)
        self._ledger.rows += block.num_rows
        assert self._sending is not None
        with self._closing_on_error():
            self._sending.send(block, rows, self._ledger, fence)

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        """Half a frame may be written and answers may be lost: only a new connection is in a known state."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, HeadgateError) and self._connection:
                error.at(self._connection.where)
            self.close()
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection.open(self.options)
            self._sending = EachAcked(self._connection, self.options, _BLOCK_ROWS)
        return self._connection

    def _reject_bad_rows(self, table: pa.Table, extra_header_bytes: int) -> None:
        connection = self._connected()
        bad = bad_rows(table, connection.info.max_payload, extra_header_bytes)
        if bad:
            more = f" (and {len(bad) - 1} more rows)" if len(bad) > 1 else ""
            raise DataError(
                f"message {bad[0].message_id!r} {bad[0].reason}{more}",
                remedy="send it to a dead-letter destination, or correct the route or the server's limits",
                where=connection.where,
            )
