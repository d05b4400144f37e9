"""zstd for payloads: many small messages at once, with a dictionary per table that learns and is replaced.

A small message repeats little of itself and much of its neighbours. Measured on events of 400 bytes, payloads shrink
1.2 times alone and 4.6 times with a dictionary made of their neighbours (2.6 times with the 64 bytes that the headers
take). Snapshot chunks hold their neighbours already and gain nothing from one. A message is compressed by itself, so
that a consumer can read any of them:

    Headgate-Encoding: zstd                     one zstd frame, which tells its content's size and has no checksum
    Headgate-Dictionary: 0123456789abcdef       only with a dictionary: its id, the key in the bucket of dictionaries

A message without `Headgate-Encoding` is as it is. That is so for every row that would not save more bytes than its
headers cost; rows of one batch differ in this.

**Cut first, then compress.** A payload too large for a message is cut (`Headgate-Chunk`), and each part is compressed
like a message of its own; a consumer decompresses a part, then joins. The other order would lose rows: a replay that
goes on in the middle of a row must cut it at the same bytes, but compresses it with whatever dictionary is there now.

**Who does what.** Batches are compressed in worker processes that may live for one task only; what is learnt is kept
by the driver. Between them lie the key-value bucket of dictionaries and the results that tasks return anyway:

    bucket   <id>       the dictionary's bytes; written once, never changed or deleted while messages name it
             current    which table has which dictionary: `Current`, as JSON
    worker   ids = Current.parse(bucket["current"]).ids             once per task; what it has already, it need not get
             TableCompressor({table: Dictionary.of(bucket[id])})    one may serve many tasks, while `ids` stay the same
             .compress(tables, payloads) -> payloads, header lines
             .reports() -> [Report]                                 counts and samples, some KB; `as_dict()` is JSON
    driver   DictionaryBook(current=Current.parse(bucket["current"]))
             .take(report)                                          for every report of every task of a batch
             .due() -> [table], then .train(table) -> dictionary    in any thread that has the book for itself
             put the dictionary, then .adopt(table, dictionary), then put .current.dump()

The order of the last line matters: what `current` names is in the bucket. Nothing else has to be in step. A worker
that has not seen the newest `current` uses an older dictionary, which stays in the bucket, and its report says which
one it was. A driver that starts anew reads `current` back and goes on.
"""

from __future__ import annotations

from headgate.wire.compress.dictionary import Dictionary
from headgate.wire.compress.headers import DICTIONARY_HEADER, ENCODING_HEADER, ZSTD, header_line
from headgate.wire.compress.reading import Decompressor, decompress
from headgate.wire.compress.report import CURRENT_KEY, Current, Report

# What compresses columns is imported from its own modules: it needs Arrow, which a consumer does not.
__all__ = [
    "CURRENT_KEY",
    "DICTIONARY_HEADER",
    "ENCODING_HEADER",
    "ZSTD",
    "Current",
    "Decompressor",
    "Dictionary",
    "Report",
    "decompress",
    "header_line",
]
