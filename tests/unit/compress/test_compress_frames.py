"""Frames, dictionaries and their headers."""

from __future__ import annotations

import hashlib
import pickle
import random

import msgspec
import pyarrow as pa
import pytest
import zstandard

from headgate.model import ProtocolError
from headgate.wire.compress import Decompressor, Dictionary, decompress
from headgate.wire.compress.frames import Compressor, header_lines
from headgate.wire.compress.training import train

MAX = 1 << 20


def event(number: int, chance: random.Random) -> bytes:
    note = f"user{chance.randrange(10**7)}@example.com"
    fields = {"schema": "public", "table": "orders", "operation": "INSERT", "subject": "cdc.public.orders.insert"}
    place = {"commit_lsn": f"0/{number:08X}", "commit_time": f"2026-01-01T00:00:00.{chance.randrange(10**6):06d}Z"}
    return msgspec.msgpack.encode({**fields, **place, "data": {"id": number, "note": note, "status": "new"}})


@pytest.fixture(scope="module")
def events() -> list[bytes]:
    chance = random.Random(1)
    return [event(number, chance) for number in range(600)]


@pytest.fixture(scope="module")
def dictionary(events: list[bytes]) -> Dictionary:
    found = train(events[:300])
    assert found is not None
    return found


def test_a_dictionary_is_named_by_its_content(dictionary: Dictionary) -> None:
    assert dictionary.id == hashlib.sha256(dictionary.data).hexdigest()[:16]
    assert pickle.loads(pickle.dumps(dictionary)) == dictionary
    assert "orders" not in repr(dictionary)


def test_the_same_samples_make_the_same_dictionary(events: list[bytes], dictionary: Dictionary) -> None:
    assert train(events[:300]) == dictionary


def test_a_dictionary_makes_small_messages_much_smaller(events: list[bytes], dictionary: Dictionary) -> None:
    fresh = events[300:]
    with_one = [Compressor(dictionary=dictionary).compress(event) for event in fresh]
    without = [Compressor().compress(event) for event in fresh]
    assert 3 * sum(map(len, with_one)) < sum(map(len, without))


@pytest.mark.parametrize("samples", [[], [b"same"] * 5, [b""] * 500])
def test_too_few_samples_make_no_dictionary(samples: list[bytes]) -> None:
    assert train(samples) is None


def test_samples_that_have_nothing_in_common_make_no_dictionary() -> None:
    chance = random.Random(1)
    assert train([chance.randbytes(400) for _ in range(500)]) is None


def test_the_frame_tells_size_and_dictionary_and_has_no_checksum(events: list[bytes], dictionary: Dictionary) -> None:
    frame = Compressor(dictionary=dictionary).compress(events[400])
    about = zstandard.get_frame_parameters(frame)
    assert about.content_size == len(events[400])
    assert about.dict_id == zstandard.ZstdCompressionDict(dictionary.data).dict_id() != 0
    assert not about.has_checksum


def test_a_row_that_saves_less_than_its_headers_cost_is_sent_as_it_is() -> None:
    assert Compressor().compress(b"a" * 40) == b"a" * 40  # 17 bytes as a frame, and 25 of headers
    assert Compressor().compress(b"a" * 60) != b"a" * 60


def test_header_lines_are_those_of_compressed_rows(events: list[bytes], dictionary: Dictionary) -> None:
    before = pa.array([events[0], b"", b"short", events[1]], pa.binary())
    after = Compressor(dictionary=dictionary).compress_column(before)
    line = f"Headgate-Encoding: zstd\r\nHeadgate-Dictionary: {dictionary.id}\r\n".encode()
    assert header_lines(before, after, dictionary).to_pylist() == [line, b"", b"", line]
    plain = pa.array([b"a" * 99], pa.binary())
    lines = header_lines(plain, Compressor().compress_column(plain), None)
    assert lines.to_pylist() == [b"Headgate-Encoding: zstd\r\n"]


def test_a_bomb_is_refused_before_it_takes_memory() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(100 << 20))
    with pytest.raises(ProtocolError, match="at most"):
        decompress(bomb, None, max_bytes=MAX)


def test_a_frame_without_its_size_is_refused() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * 1000)
    with pytest.raises(ProtocolError, match="at most"):
        decompress(frame, None, max_bytes=MAX)


def test_a_size_that_lies_is_refused() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(b"a" * 200))
    assert frame[5] == 200
    frame[5] = 100
    with pytest.raises(ProtocolError):
        decompress(bytes(frame), None, max_bytes=MAX)


def test_the_wrong_dictionary_and_no_dictionary_are_refused(events: list[bytes], dictionary: Dictionary) -> None:
    other = train([event.replace(b"orders", b"albums") for event in events[:200]])
    assert other is not None
    frame = Compressor(dictionary=dictionary).compress(events[0])
    for wrong in (None, other.data):
        with pytest.raises(ProtocolError):
            decompress(frame, wrong, max_bytes=MAX)
    with pytest.raises(ProtocolError, match="not a zstd dictionary"):
        decompress(frame, b"not a dictionary at all", max_bytes=MAX)
    with pytest.raises(ProtocolError, match="not a zstd dictionary"):
        Compressor(dictionary=Dictionary.of(dictionary.data[:40]))


def test_a_decompressor_goes_by_the_headers(events: list[bytes], dictionary: Dictionary) -> None:
    reader = Decompressor(max_bytes=MAX)
    assert not reader.knows(dictionary.id)
    reader.learn(dictionary.id, dictionary.data)
    assert reader.knows(dictionary.id)
    frame = Compressor(dictionary=dictionary).compress(events[5])
    assert reader.decompress(frame, "zstd", dictionary.id) == events[5]
    assert reader.decompress(Compressor().compress(events[5] * 3), "zstd") == events[5] * 3
    assert reader.decompress(b"as it is", "") == b"as it is"
    with pytest.raises(ProtocolError, match="unknown encoding"):
        reader.decompress(frame, "br")


def test_dictionaries_that_are_not_in_use_are_forgotten(events: list[bytes], dictionary: Dictionary) -> None:
    reader, frame = Decompressor(max_bytes=MAX), Compressor(dictionary=dictionary).compress(events[0])
    with pytest.raises(ProtocolError, match="is not known"):
        reader.decompress(frame, "zstd", dictionary.id)
    others = [Dictionary.of(dictionary.data + bytes([number])) for number in range(70)]
    reader.learn(dictionary.id, dictionary.data)
    for other in others:
        assert reader.decompress(frame, "zstd", dictionary.id) == events[0]
        reader.learn(other.id, other.data)
    assert [reader.knows(other.id) for other in others] == [False] * 7 + [True] * 63


def test_a_dictionary_that_is_not_what_its_id_says(dictionary: Dictionary) -> None:
    with pytest.raises(ProtocolError, match="not what its id says"):
        Decompressor(max_bytes=MAX).learn("0" * 16, dictionary.data)
