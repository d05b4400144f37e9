"""When a dictionary is made and replaced; the worker's and the driver's half together, as processes would use them."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from headgate.model import ProtocolError
from headgate.wire.compress import Current, Decompressor, Dictionary, Report
from headgate.wire.compress.book import DictionaryBook, Policy
from headgate.wire.compress.tables import TableCompressor

POLICY = Policy(max_samples=100, max_sample_bytes=50_000, enough_samples=64, window_messages=1_000, drop=0.2)


def report(table: str = "t", dictionary: str = "", *, ratio: float = 2.0, messages: int = 1_000) -> Report:
    return Report(table, dictionary, messages, int(400 * messages * ratio), 400 * messages)


def rows(word: str, count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    common = " ".join(f"{word}{number}" for number in range(40))
    return [f"{common} {chance.randrange(10**9)}".encode() for _ in range(count)]


class Bucket(dict[str, bytes]):
    """Stands for the key-value bucket: what a driver puts there is all that a worker knows."""

    def run_task(self, tables: list[str], payloads: list[bytes]) -> tuple[list[bytes], list[bytes], list[str]]:
        """One task in a process of its own; reports come back as JSON text."""
        ids = Current.parse(self["current"]).ids if "current" in self else {}
        worker = TableCompressor({table: Dictionary.of(self[id_]) for table, id_ in ids.items()})
        made, lines = worker.compress(pa.array(tables), pa.array(payloads, pa.binary()))
        return made.to_pylist(), lines.to_pylist(), [json.dumps(r.as_dict()) for r in worker.reports()]

    def learn(self, book: DictionaryBook, reports: list[str]) -> list[str]:
        """The driver between two batches; the tables that got a dictionary."""
        for text in reports:
            book.take(Report.from_dict(json.loads(text)))
        learnt = []
        for table in book.due():
            dictionary = book.train(table)
            if dictionary is not None:
                self[dictionary.id] = dictionary.data
                book.adopt(table, dictionary)
                learnt.append(table)
        self["current"] = book.current.dump()
        return learnt


def test_tables_learn_and_every_message_can_be_read() -> None:
    bucket, book, reader = Bucket(), DictionaryBook(POLICY), Decompressor(max_bytes=1 << 20)
    learnt: list[str] = []
    for batch in range(4):
        payloads = [row for pair in zip(rows("a", 64, batch), rows("b", 64, -batch), strict=True) for row in pair]
        made, lines, reports = bucket.run_task(["a", "b"] * 64, payloads)
        for id_ in book.current.ids.values():
            reader.learn(id_, bucket[id_])
        fields = [dict(line.split(": ") for line in text.decode().split("\r\n")[:-1]) for text in lines]
        read = [
            reader.decompress(frame, header.get("Headgate-Encoding", ""), header.get("Headgate-Dictionary", ""))
            for frame, header in zip(made, fields, strict=True)
        ]
        assert read == payloads
        assert [header.get("Headgate-Dictionary") for header in fields[:2]] == [
            book.current.ids.get("a"),
            book.current.ids.get("b"),
        ]
        learnt += bucket.learn(book, reports)
    assert sorted(learnt) == ["a", "b"]
    assert min(book.ratios().values()) > 1.5  # with 64 bytes of headers for 160 of payload


def test_a_report_is_small_and_names_what_it_counts() -> None:
    payloads = [b"x" * 1_000] * 5_000
    _, _, (text,) = Bucket().run_task(["t"] * 5_000, payloads)
    assert len(text) < 100_000
    found = Report.from_dict(json.loads(text))
    assert (found.table, found.message_count, found.bytes_in) == ("t", 5_000, 5_000_000)
    assert 0 < found.bytes_out < 1_000_000
    assert set(found.samples) == {payloads[0]}


def test_samples_are_bounded_and_the_latest() -> None:
    book = DictionaryBook(POLICY)
    for number in range(50):
        book.take(Report("t", "", 10, 10, 10, tuple(rows(f"of{number}x", 10, number))))
    assert book.due() == ["t"]
    dictionary = book.train("t")
    assert dictionary is not None
    found = [number for number in range(50) if f"of{number}x".encode() in dictionary.data]
    assert found
    assert min(found) >= 40  # the latest hundred


def test_no_dictionary_while_samples_are_few() -> None:
    book = DictionaryBook(POLICY)
    book.take(Report("t", "", 63, 1, 1, tuple(rows("a", 63, 1))))
    assert book.due() == []


def test_samples_without_gain_are_not_tried_again_at_once() -> None:
    book, chance = DictionaryBook(POLICY), random.Random(1)
    noise = tuple(chance.randbytes(200) for _ in range(64))
    book.take(Report("t", "", 64, 1, 1, noise))
    assert book.due() == ["t"]
    assert book.train("t") is None
    assert book.due() == []
    book.take(report(messages=1_000))
    assert book.due() == ["t"]
    assert book.train("t") is None
    book.take(report(messages=1_999))  # twice as long
    assert book.due() == []
    book.take(report(messages=1))
    assert book.due() == ["t"]


@pytest.fixture
def trained() -> tuple[DictionaryBook, str]:
    book = DictionaryBook(POLICY)
    book.take(Report("t", "", 64, 1, 1, tuple(rows("a", 64, 1))))
    dictionary = book.train("t")
    assert dictionary is not None
    book.adopt("t", dictionary)
    return book, dictionary.id


def test_a_ratio_that_falls_asks_for_another_dictionary(trained: tuple[DictionaryBook, str]) -> None:
    book, first = trained
    book.take(report(dictionary=first, ratio=4.0))
    assert book.ratios() == {"t": 4.0}
    for _ in range(10):
        book.take(report(dictionary=first, ratio=3.6))
    book.take(Report("t", first, 1, 1, 1, tuple(rows("a", 64, 2))))
    assert book.due() == []  # a tenth is not a fifth
    for _ in range(10):
        book.take(report(dictionary=first, ratio=2.0))
    assert book.due() == []  # what was collected before is of the old kind
    book.take(Report("t", first, 1, 1, 1, tuple(rows("changed", 64, 3))))
    assert book.due() == ["t"]
    second = book.train("t")
    assert second is not None
    book.adopt("t", second)
    assert book.current.ids == {"t": second.id}
    assert book.due() == []


def test_workers_that_still_use_another_dictionary_do_not_count(trained: tuple[DictionaryBook, str]) -> None:
    book, first = trained
    book.take(report(dictionary=first, ratio=4.0))
    for _ in range(20):
        book.take(report(dictionary="", ratio=1.1))
    book.take(Report("t", first, 1, 1, 1, tuple(rows("a", 64, 2))))
    assert book.due() == []
    assert book.ratios()["t"] == pytest.approx(4.0, rel=0.01)


def test_a_driver_that_starts_anew_goes_on(trained: tuple[DictionaryBook, str]) -> None:
    book, first = trained
    again = DictionaryBook(POLICY, Current.parse(book.current.dump()))
    again.take(Report("t", first, 64, 1, 1, tuple(rows("a", 64, 1))))
    assert again.current.ids == {"t": first}
    assert again.due() == []


@pytest.mark.parametrize("value", [b"", b"[]", b'{"t": 1}', b'{"t": "../x"}', b"[" * 100_000])
def test_a_damaged_list_of_dictionaries(value: bytes) -> None:
    with pytest.raises(ProtocolError, match="holds something else"):
        Current.parse(value)


def test_nothing_is_nothing() -> None:
    made, lines, reports = Bucket().run_task([], [])
    assert (made, lines, reports) == ([], [], [])
