"""Kafka's partitioner for columns equals the rule written down for one value."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.kernels.log.partitioner import murmur2

_MASK = 0xFFFFFFFF
_MIX = 0x5BD1E995


def reference(data: bytes) -> int:
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        word = (word ^ word >> 24) * _MIX & _MASK
        value = (value * _MIX & _MASK) ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _MIX & _MASK
    value = (value ^ value >> 13) * _MIX & _MASK
    return value ^ value >> 15


@given(st.lists(st.binary(max_size=40)), st.integers(0, 5))
def test_columns_hash_as_single_values(values: list[bytes], skipped: int) -> None:
    column = pa.array(values, pa.binary()).slice(skipped)
    assert murmur2(column).tolist() == [reference(value) for value in values[skipped:]]


def test_the_hash_is_the_one_that_kafka_publishes() -> None:
    published = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert murmur2(pa.array(list(published), pa.binary())).astype("int32").tolist() == list(published.values())
