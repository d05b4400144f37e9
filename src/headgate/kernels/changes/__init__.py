"""A range of the spool -> Arrow record batches, without Python per row.

    RangeDecoder(origin=..., relations=..., types=..., format="msgpack").decode(buffers) -> pa.RecordBatch ...
    compile_ahead("msgpack")     the first use on a machine takes seconds, which this lets one spend earlier

One row per change, in the order of the stream: `_topic`, `_position`, `_op`, `_schema`, `_table`, `_xid`,
`_commit_time`, `_payload`, and with `images` also `_key`, `_before`, `_after` as JSON text. Payloads are byte for byte
those of `headgate.wire.envelope`, which remains the reference: whatever compiled code cannot do exactly, it leaves to
the reference, value by value.

The way of a range:

    decoder        hands buffers to the kernel until a batch is full, and makes it a record batch
    walk           the kernel: message after message; knows transactions, stops at what it cannot go on with
    changes        one message becomes rows of the batch
    tuples         the rows inside a message, checked
    shares         which of several tasks sends a change
    events         an event's bytes, in terms of a format ...
    msgpack_form, json_form                  ... which is one of these; they know the rules of values
    debezium_form                            Debezium's events, which are made of other parts
    text, numerals, floats, clock, memory    what those are made of
    gaps           puts in what was left to the reference
    columns, image_columns                   Arrow

and the way of a table's rows in a snapshot: `copy_text` makes messages of COPY's text, `row_encoder` rows of those.

What all need: `shapes`, `tables` and `debezium_tables` turn relations into the tables that kernels read (`layout`
describes them), `wording` has the constant bytes of events, `reference` is the slow way, `jit` and `symbols` compile.

Left to the reference, some microseconds each: values of arrays, composites, hstore and timetz; NaN and infinite or
subnormal floats; dates and times that are infinite, BC, beyond the year 9999 or not in UTC; decimals of more than 18
digits, intervals, bit strings, points and money for Debezium; whole events for TRUNCATE and logical messages. So is
everything malformed, for the sake of its error.

Two things differ from reading the stream itself. The spool has no LSN of single rows, so an event's `lsn` is that of
its commit (a logical message carries its own). And a commit time or xid of 0 in a Begin message means that there is
none: so the spool writes a message that belongs to no transaction.
"""

from __future__ import annotations

from headgate.kernels.changes.columns import record_schema
from headgate.kernels.changes.decoder import Buffer, RangeDecoder, compile_ahead
from headgate.kernels.changes.reference import Format
from headgate.kernels.changes.shares import ALL, Share, needs_one_task

__all__ = ["ALL", "Buffer", "Format", "RangeDecoder", "Share", "compile_ahead", "needs_one_task", "record_schema"]
