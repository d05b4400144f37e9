"""Laws of bulk publishing: vectorised code gives what its readable counterpart gives, for any input."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.destinations.nats.acks import AckScanner
from headgate.destinations.nats.fence import Fence
from headgate.destinations.nats.frames import Replies, build_frames
from headgate.destinations.nats.rows import FIXED_HEADER_BYTES, bad_rows, blocks, delivery_table
from headgate.destinations.nats.window import Window
from headgate.model import DataError, ProtocolError
from headgate.wire.nats import (
    Msg,
    Parser,
    PubAck,
    check_publish_subject,
    encode_headers,
    encode_hpub,
    escape_token,
    parse_pub_ack,
)

INBOX = "_INBOX.abcdefghijk"

topics = st.lists(st.text(max_size=8).map(escape_token), min_size=1, max_size=3).map(".".join)
ids = st.text(
    st.characters(min_codepoint=33, exclude_categories=["Cs"], exclude_characters="\x7f"), min_size=1, max_size=12
)
rows = st.lists(st.tuples(topics, ids, st.binary(max_size=60)), min_size=1, max_size=12)
kinds = st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])


def columns(data: list[tuple[str, str, bytes]], kind: pa.DataType) -> tuple[pa.Array, pa.Array, pa.Array]:
    topic, message_id, payload = zip(*data, strict=True)
    return pa.array(topic, kind), pa.array(message_id, kind), pa.array(payload, pa.binary())


@given(
    rows,
    kinds,
    st.integers(1, 20),
    st.integers(0, 50),
    st.integers(1, 4),
    st.integers(1, 200),
    st.booleans(),
    st.none() | st.integers(0, 10**15),
)
def test_bulk_frames_are_the_scalar_frames(
    data: list[tuple[str, str, bytes]],
    kind: pa.DataType,
    slots: int,
    index: int,
    max_rows: int,
    max_bytes: int,
    with_headers: bool,
    expected: int | None,
) -> None:
    extra = pa.array([b"" if len(row[1]) % 2 else b"A: " + row[1].encode() + b"\r\n" for row in data], pa.binary())
    table = delivery_table(*columns(data, kind), extra if with_headers else None)
    replies = Replies(INBOX, slots, max_rows)
    built = b""
    fence, position = None if expected is None else Fence(expected), index
    for block in blocks(table, max_rows, max_bytes):
        frames = build_frames(block, replies.column(position, block.num_rows), fence and fence.lines(block))
        assert len(frames) == block.num_rows <= max_rows
        assert len(frames.data) == frames.offsets[-1]
        built += bytes(frames.between(0, len(frames)))
        position += block.num_rows
    wanted = b""
    for number, (topic, message_id, payload) in enumerate(data):
        fields = [("Nats-Msg-Id", message_id)]
        if expected is not None and number:
            fields.append(("Nats-Expected-Last-Msg-Id", data[number - 1][1]))
        elif expected is not None:
            fields.append(("Nats-Expected-Last-Sequence", str(expected + number)))
        fields += [("A", message_id)] if with_headers and len(message_id) % 2 == 0 else []
        reply = f"{INBOX}.{(index + number) % slots:0{len(str(slots - 1))}d}"
        wanted += encode_hpub(topic, encode_headers(fields), payload, reply)
    assert built == wanted


@given(rows, st.binary(min_size=1, max_size=9))
def test_one_header_for_all_rows_and_null_payloads(data: list[tuple[str, str, bytes]], value: bytes) -> None:
    line = b"B: " + value.hex().encode() + b"\r\n"
    topic, message_id, _ = columns(data, pa.string())
    table = delivery_table(topic, message_id, pa.nulls(len(data), pa.binary()), line)
    (block,) = blocks(table, 100, 1 << 20)
    frames = build_frames(block, Replies(INBOX, 99, 100).column(0, len(data)))
    for number, (subject, identity, _) in enumerate(data):
        headers = encode_headers([("Nats-Msg-Id", identity), ("B", value.hex())])
        wanted = encode_hpub(subject, headers, b"", f"{INBOX}.{number:02d}")
        assert bytes(frames.between(number, number + 1)) == wanted


odd_topics = st.one_of(
    topics, st.text(max_size=6), st.sampled_from(["$JS.API", "a..b", ".a", "a.", "*", "a.>", "a" * 4_001])
)
odd_ids = st.one_of(ids, st.text(max_size=4), st.just("x" * 65_600))


@given(
    st.lists(st.tuples(st.none() | odd_topics, st.none() | odd_ids, st.none() | st.binary(max_size=60)), max_size=8),
    st.integers(40, 120),
)
def test_bad_rows_are_those_that_the_scalar_rules_refuse(
    data: list[tuple[str | None, str | None, bytes | None]], max_payload: int
) -> None:
    def fine(topic: str | None, message_id: str | None, payload: bytes | None) -> bool:
        try:
            check_publish_subject(topic or "")
        except DataError:
            return False
        raw = (message_id or "").encode()
        header = len(raw) + FIXED_HEADER_BYTES
        clean = bool(raw) and not any(byte <= 32 or byte == 127 for byte in raw)
        return clean and header <= 65_535 and header + len(payload or b"") <= max_payload

    data = [row for row in data if all(not isinstance(text, str) or _is_unicode(text) for text in row[:2])]
    topic, message_id, payload = zip(*data, strict=True) if data else ((), (), ())
    table = delivery_table(
        pa.array(topic, pa.string()), pa.array(message_id, pa.string()), pa.array(payload, pa.binary())
    )
    found = bad_rows(table, max_payload)
    assert [bad.row for bad in found] == [number for number, row in enumerate(data) if not fine(*row)]
    assert all(bad.reason for bad in found)


def _is_unicode(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text


@st.composite
def acknowledgements(draw: st.DrawFn) -> bytes:
    """One message from the server to a publisher: mostly ordinary acknowledgements."""
    slot = draw(st.integers(0, 999))
    seq = draw(st.sampled_from([1, 9, 10, 99, 12345, 10**9]) | st.integers(0, 2**64 - 1))
    stream = draw(st.sampled_from(["S", "S", "S", "S1", "S2", "é"]))
    domain = draw(st.sampled_from(["", "", ',"domain":"hub"']))
    tail = draw(st.sampled_from(["", "", "", ',"duplicate": true', ',"duplicate":true', ',"batch":"b","count":3']))
    body = f'{{"stream":"{stream}"{domain},"seq":{seq}{tail}}}'.encode()
    ordinary = b"MSG %s.%03d 1 %d\r\n%s\r\n" % (INBOX.encode(), slot, len(body), body)
    strange = [
        b"PING\r\n",
        b"HMSG %s.%03d 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % (INBOX.encode(), slot),
        b"MSG %s.%03d 1 24\r\n" % (INBOX.encode(), slot) + b'{"error":{"code":4e2}}\r\n\r\n',
        b"MSG %s.%03d 1 30\r\n" % (INBOX.encode(), slot) + b'{"stream":"S","seq":1}\r\nPING\r\n\r\n',
    ]
    return draw(st.sampled_from([ordinary] * 9 + strange))


def strict(data: bytes) -> list[tuple[int, str, bool]]:
    """What the strict parser makes of acknowledgements: slot, stream, duplicate."""
    parser = Parser()
    parser.feed(data)
    found = []
    for event in parser.events():
        if isinstance(event, Msg) and not event.headers:
            try:
                ack = parse_pub_ack(event.payload)
            except ProtocolError:
                continue
            if isinstance(ack, PubAck):
                found.append((int(event.subject.rpartition(".")[2]), ack.stream, ack.duplicate))
    return found


@given(st.lists(acknowledgements(), max_size=30), st.integers(1, 30), st.lists(st.integers(0), max_size=4))
def test_scanning_finds_what_the_strict_parser_finds(messages: list[bytes], repeats: int, cuts: list[int]) -> None:
    data = b"".join(message * repeats for message in messages)
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    scanner, found, rest = AckScanner(INBOX, 1, 3), list[tuple[int, str, bool]](), b""
    for start, stop in itertools.pairwise(places):
        runs, strange, rest = scanner.scan(rest + data[start:stop])
        found += [(int(slot), run.stream, run.duplicate) for run in runs for slot in run.slots]
        if strange:
            # From here on it is the strict parser's business.
            found += strict(strange + rest + data[stop:])
            break
    else:
        assert not rest
    assert found == strict(data)


@given(st.binary(max_size=80), st.lists(acknowledgements(), max_size=3))
def test_scanning_garbage_loses_no_byte(garbage: bytes, messages: list[bytes]) -> None:
    data = b"".join(messages) + garbage
    runs, strange, rest = AckScanner(INBOX, 1, 3).scan(data)
    assert data.endswith(strange + rest)
    assert len(rest) < 1_024
    consumed = data[: len(data) - len(strange + rest)]
    assert len(strict(consumed)) == sum(len(run.slots) for run in runs)


def test_the_last_sequence_of_a_run() -> None:
    data = b"".join(b'MSG %s.%03d 1 24\r\n{"stream":"S","seq":%d}\r\n' % (INBOX.encode(), n, 100 + n) for n in range(9))
    ((run,), strange, rest) = AckScanner(INBOX, 1, 3).scan(data)
    assert (run.last_sequence, list(run.slots), strange, rest) == (108, list(range(9)), b"", b"")


class WindowMachine(RuleBasedStateMachine):
    """The window against a dictionary of what is in flight."""

    SLOTS, BYTES = 7, 40

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(self.SLOTS, self.BYTES)
        self.in_flight: dict[int, int] = {}  # message number -> row
        self.sizes: list[int] = []
        self.answered: set[int] = set()

    @rule(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=10))
    def send(self, sizes: list[int]) -> None:
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        count = self.window.room(offsets, 0)
        first = len(self.sizes)
        assert count <= len(sizes)
        if not self._unanswered():
            assert count >= 1
        if count:
            self.window.take(np.arange(1000 + first, 1000 + first + count), offsets[1 : count + 1])
            self.sizes += sizes[:count]

    @precondition(lambda self: self._unanswered())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self._unanswered()), min_size=1, unique=True))
        found = self.window.answer(np.array([number % self.SLOTS for number in chosen]))
        assert list(found) == [1000 + number for number in chosen]
        self.answered |= set(chosen)

    @rule(slot=st.integers(0, 9))
    def answer_nobody_waits_for(self, slot: int) -> None:
        if slot not in {number % self.SLOTS for number in self._unanswered()}:
            with pytest.raises(ProtocolError):
                self.window.answer(np.array([slot]))

    @invariant()
    def stays_within_its_limits(self) -> None:
        waiting = self._unanswered()
        assert list(self.window.unanswered()) == [1000 + number for number in waiting]
        if waiting:
            stretch = self.sizes[waiting[0] :]
            assert len(stretch) == self.window.in_flight <= self.SLOTS
            assert sum(stretch) <= self.BYTES or len(stretch) == 1
        else:
            assert self.window.in_flight == 0

    def _unanswered(self) -> list[int]:
        return [number for number in range(len(self.sizes)) if number not in self.answered]


TestWindow = WindowMachine.TestCase
