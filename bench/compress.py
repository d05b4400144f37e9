"""Compression: ratio and CPU time per message, with and without a dictionary, for events and for snapshot chunks.

Ratios are of payloads; `..._with_headers` counts the header lines of compressed messages as well.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from bench.harness import Bench
from headgate.wire.compress import Decompressor, Dictionary
from headgate.wire.compress.frames import Compressor, header_lines
from headgate.wire.compress.training import train
from headgate.wire.envelope import packb
from headgate.wire.pgtypes.codec import Value

_TURNS = 5
_CHUNK_ROWS = 10_000


def measure(bench: Bench) -> None:
    chance = random.Random(1)
    events = [_event(number, chance) for number in range(5_000 if bench.quick else 20_000)]
    # Samples are the past, what is measured is the future.
    dictionary = train([_event(number, chance) for number in range(-2_000, 0)])
    assert dictionary is not None
    bench.figure("event_bytes", statistics.mean(map(len, events)))
    bench.figure("dictionary_bytes", len(dictionary.data))
    _messages(bench, "event", events, None)
    with_dictionary = _messages(bench, "event_dictionary", events, dictionary)
    chunks = [_chunk(first, chance) for first in range(0, 4 * _CHUNK_ROWS, _CHUNK_ROWS)]
    bench.figure("chunk_bytes", statistics.mean(map(len, chunks)))
    _messages(bench, "chunk", chunks, None)
    _messages(bench, "chunk_dictionary", chunks, dictionary)
    bench.check("event_dictionary_ratio", with_dictionary, 3.0, "higher")


def _messages(bench: Bench, name: str, payloads: list[bytes], dictionary: Dictionary | None) -> float:
    """Compress and decompress all of them; returns the ratio."""
    column = pa.array(payloads, pa.binary())
    compressor, reader = Compressor(dictionary=dictionary), Decompressor(max_bytes=1 << 26)
    if dictionary:
        reader.learn(dictionary.id, dictionary.data)
    made = compressor.compress_column(column)
    lines = header_lines(column, made, dictionary)
    before, after, headers = (pc.sum(pc.binary_length(array)).as_py() for array in (column, made, lines))
    bench.figure(f"{name}_ratio", before / after)
    bench.figure(f"{name}_ratio_with_headers", before / (after + headers))
    seconds = _median_seconds(lambda: compressor.compress_column(column))
    bench.figure(f"{name}_compress_us", seconds / len(payloads) * 1e6)
    encodings = ["zstd" if line else "" for line in lines.to_pylist()]
    frames, used = made.to_pylist(), dictionary.id if dictionary else ""
    seconds = _median_seconds(lambda: [reader.decompress(f, e, used) for f, e in zip(frames, encodings, strict=True)])
    bench.figure(f"{name}_decompress_us", seconds / len(payloads) * 1e6)
    return float(before / after)


def _median_seconds(run: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_TURNS):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def _row(number: int, chance: random.Random) -> dict[str, Value]:
    return {
        "id": number,
        "customer_id": chance.randrange(10**6),
        "email": f"user{chance.randrange(10**7)}@example.com",
        "status": chance.choice(["new", "paid", "sent", "returned"]),
        "amount": f"{chance.randrange(1_000)}.{chance.randrange(100):02d}",
        "created_at": f"2026-01-01T12:{chance.randrange(60):02d}:00.{chance.randrange(10**6):06d}Z",
        "note": None,
    }


def _event(number: int, chance: random.Random) -> bytes:
    lsn = (1 << 33) + number * 312
    place = f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
    return packb(
        {
            "schema": "public",
            "table": "orders",
            "operation": "INSERT",
            "relation_id": 16_384,
            "subject": "cdc.public.orders.insert",
            "schema_version": "0f3a9c2d4e5b6a71",
            "commit_lsn": place,
            "commit_time": f"2026-01-01T12:00:00.{chance.randrange(10**6):06d}Z",
            "xid": 5_000_000 + number // 10,
            "lsn": place,
            "ordinal": number % 10,
            "msg_id": f"7391234567890123456-{lsn:016X}-{number % 10:08X}",
            "data": _row(number, chance),
        }
    )


def _chunk(first: int, chance: random.Random) -> bytes:
    about = {"table": "orders", "schema": "public", "operation": "snapshot", "snapshot_id": "s0001f3a9c2d4e"}
    return packb({**about, "chunk": first, "data": [_row(first + n, chance) for n in range(_CHUNK_ROWS)]})
