"""Single rules, with many values each: a whole column of them in one range."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.wire.pgoutput import (
    PG_EPOCH_UNIX_US,
    Begin,
    Insert,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    encode_message,
)
from headgate.wire.pgtypes import TypeCatalog
from tests.property.cdc_decode.decode_strategies import CATALOG, GOOD, ODD_VALUES, decimals, pg_float
from tests.property.cdc_decode.spooled import fast_batches, fast_rows, reference_rows, spooled
from tests.property.pgoutput.pgoutput_strategies import i64, u64

TYPES = TypeCatalog()


def column(oid: int) -> Relation:
    return Relation(1, "s", "t", ReplicaIdentity.FULL, (RelationColumn(True, "v", oid, -1),))


def payloads(oid: int, texts: Sequence[str], form: str = "msgpack") -> list[bytes]:
    """The payload of a row for each value."""
    buffer = spooled([Begin(1, 1, 1), *(Insert(1, (text.encode(),)) for text in texts)])
    relations = [encode_message(column(oid))]
    rows = fast_rows(fast_batches([buffer], relations, types=TYPES, form=form))
    wanted = reference_rows([buffer], relations, types=TYPES, form=form)
    found = [row["_payload"] for row in rows]
    assert found == [row["_payload"] for row in wanted]
    return found


def bits_of(payload: bytes) -> bytes:
    assert payload[-9] == 0xCB
    return payload[-8:]


def check_floats(texts: Sequence[str]) -> None:
    assert [bits_of(payload) for payload in payloads(701, texts)] == [struct.pack("!d", float(text)) for text in texts]
    payloads(701, texts, "json")


@given(st.lists(u64, min_size=1, max_size=200))
def test_floats_of_any_bits(bits: list[int]) -> None:
    floats = [struct.unpack("!d", struct.pack("!Q", each))[0] for each in bits]
    check_floats([pg_float(each) for each in floats if abs(each) < float("inf")])


@given(st.lists(decimals.filter(lambda text: abs(float(text)) < 1e308), max_size=50))
def test_floats_of_any_digits(texts: list[str]) -> None:
    check_floats(texts)


def test_floats_of_many_digits() -> None:
    """Digits that a 64-bit number cannot hold: what comes round to zero is not zero."""
    wholes = [2**64, 5 * 2**64, 10**19 - 1, 10**19, 10**20, 2**128, 10**40]
    texts = [
        f"{whole + off}{end}" for whole in wholes for off in (-1, 0, 1) for end in ("", "00", ".5", "e-5", "e+200")
    ]
    check_floats(
        [*texts, *(f"0.{'0' * zeros}{text}" for zeros in (0, 3, 30) for text in ("18446744073709551616", "1"))]
    )


@given(st.lists(st.tuples(st.integers(2**53, 2**54 - 1), st.integers(0, 9), st.sampled_from([-1, 0, 1])), max_size=50))
def test_floats_in_the_middle_of_two(middles: list[tuple[int, int, int]]) -> None:
    """Whole numbers that are as far from one float as from the next, and their neighbours."""
    check_floats([str(((2 * mantissa + 1) << shift) + off) for mantissa, shift, off in middles])


@given(st.lists(st.tuples(st.integers(2**52, 2**53 - 1), st.integers(1, 4)), max_size=50))
def test_fractions_in_the_middle_of_two(middles: list[tuple[int, int]]) -> None:
    """The same behind the point: an odd number over a power of two has an end in decimal, too."""
    texts = []
    for mantissa, shift in middles:
        digits = str((2 * mantissa + 1) * 5**shift).rjust(shift + 1, "0")
        texts.append(f"{digits[:-shift]}.{digits[-shift:]}")
    check_floats(texts)


@given(st.lists(i64 | st.integers(-(2**33), 2**33) | st.integers(-(2**16), 2**16), max_size=200))
def test_integers(numbers: list[int]) -> None:
    edges = [sign * 2**power + off for power in (5, 7, 8, 15, 16, 31, 32, 62) for off in (-1, 0, 1) for sign in (1, -1)]
    for form in ("msgpack", "json"):
        payloads(20, [str(number) for number in [*numbers, *edges, 2**63 - 1, -(2**63)]], form)


@pytest.mark.parametrize("form", ["msgpack", "json"])
@pytest.mark.parametrize("oid", sorted(GOOD))
def test_odd_values(oid: int, form: str) -> None:
    """Each of them alone: what the reference takes is the same here, what it refuses is refused."""
    relations = [encode_message(column(oid))]
    for value in ODD_VALUES:
        buffer = spooled([Begin(1, 1, 1), Insert(1, (value,))])
        arguments: dict[str, Any] = {"types": CATALOG, "form": form}
        wanted = outcome(partial(reference_rows, [buffer], relations, **arguments))
        assert outcome(partial(fast, [buffer], relations, **arguments)) == wanted


def fast(buffers: list[bytes], relations: list[bytes], **arguments: Any) -> list[dict[str, Any]]:
    return fast_rows(fast_batches(buffers, relations, images=True, **arguments), images=True)


def outcome(decode: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]] | tuple[str, str]:
    """The rows, or what was said against them."""
    try:
        return decode()
    except ProtocolError as error:
        return error.message, error.where


@pytest.mark.parametrize("form", ["msgpack", "json"])
@pytest.mark.parametrize("oid", [25, 114])
def test_texts_of_every_length(oid: int, form: str) -> None:
    """Copies by words must be right at every remainder, with something to escape at every place."""
    plain = ["x" * size for size in [*range(70), 254, 255, 256, 257, 65535, 65536]]
    marked = [
        "a" * at + mark + "b" * (size - at) for mark in '"\\\n\x1fé' for size in range(20) for at in range(size + 1)
    ]
    payloads(oid, plain + marked, form)


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_bytea_of_every_length(form: str) -> None:
    raws = [bytes(range(size)) for size in range(256)] + [b"\xa5" * size for size in (256, 65535, 65536)]
    payloads(17, ["\\x" + raw.hex() for raw in raws], form)


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_every_character(form: str) -> None:
    characters = [chr(point) for point in range(1, 0x110000, 7) if not 0xD800 <= point < 0xE000]
    payloads(25, ["".join(characters[at : at + 500]) for at in range(0, len(characters), 500)], form)


def commit_times(times: list[int]) -> list[str]:
    """Commit times as they come out, in column and payload as the reference has them."""
    buffer = spooled(message for time in times for message in (Begin(1, time, 1), Insert(1, (b"1",))))
    relations = [encode_message(column(20))]
    wanted = reference_rows([buffer], relations, types=TYPES)
    rows = fast_rows(fast_batches([buffer], relations, types=TYPES))
    assert [row["_payload"] for row in rows] == [row["_payload"] for row in wanted]
    assert [row["_commit_time"] for row in rows] == [row["_commit_time"] for row in wanted]
    return [msgspec.msgpack.decode(row["_payload"])["commit_time"] for row in rows]


@given(st.lists(st.integers(-63082281600000000, 252455615999999999).filter(bool), min_size=1, max_size=50))
def test_commit_times(times: list[int]) -> None:
    commit_times([*times, -63082281600000000, 252455615999999999, -1, 1, -PG_EPOCH_UNIX_US])


def test_commit_times_of_every_day() -> None:
    """All days of years around every kind of leap year."""
    years = [year for middle in (3, 100, 400, 2000, 2100, 2400, 9997) for year in range(middle - 2, middle + 3)]
    days = [day for year in years for day in range(date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal() + 1)]
    epoch = date(2000, 1, 1).toordinal()
    found = commit_times([(day - epoch) * 86_400_000_000 + 1 for day in days])
    assert found == [f"{date.fromordinal(day).isoformat()}T00:00:00.000001Z" for day in days]
