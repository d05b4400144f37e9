"""Dead letters are kept once, durably, within limits, and are never taken for something else."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.model import CapacityError, StateError
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter, Selection
from headgate.spool.dead_letters import DeadLetters


def letter(number: int, topic: str = "t", reason: str = "cap", payload: bytes = b"1234567890") -> DeadLetter:
    return DeadLetter(f"m-{number}", "", Address("s", topic), reason, f"{number:04}", payload, at=1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "dead_letters.sqlite"


def test_a_batch_that_comes_again_adds_nothing(path: Path) -> None:
    store = DeadLetters(path)
    letters = [letter(1), letter(2), letter(2, topic="u")]
    assert store.add(letters) == 3
    assert store.add([*letters, letter(3)]) == 1
    found = store.list()
    assert [(each.message_id, each.wanted.topic) for each in found] == [
        ("m-1", "t"), ("m-2", "t"), ("m-2", "u"), ("m-3", "t"),
    ]  # fmt: skip
    assert [each.number for each in found][:3] == [1, 2, 3]


def test_everything_comes_back(path: Path) -> None:
    full = DeadLetter(
        "m", "bus", Address("s", "t"), "circuit_open", "p", b"\x00\xff", "why", b"k", 3, epoch=2, batch_id=9, at=1.5
    )
    store = DeadLetters(path)
    store.add([full])
    found = store.get(1)
    assert found is not None
    assert replace(found, number=0) == full
    assert found.as_dict(payload=True)["payload"] == "00ff"
    assert "payload" not in found.as_dict()
    store.add([replace(full, message_id="n", payload=None)])
    assert store.list()[1].payload is None


def test_looking_at_nothing_makes_nothing(path: Path) -> None:
    store = DeadLetters(path)
    assert (store.list(), store.counts(), store.get(1), store.purge(Selection(all=True)), store.remove([1])) == (
        [],
        {},
        None,
        0,
        0,
    )
    assert not path.exists()


def test_listing_and_throwing_away(path: Path) -> None:
    store = DeadLetters(path)
    store.add(
        [letter(n, topic="even" if n % 2 == 0 else "odd", reason="cap" if n < 5 else "denylist") for n in range(10)]
    )
    assert [each.message_id for each in store.list(reason="denylist", topic="even")] == ["m-6", "m-8"]
    assert [each.number for each in store.list(after=7, limit=2)] == [8, 9]
    assert store.counts() == {"cap": 5, "denylist": 5}
    assert store.remove([1, 2, 99]) == 2
    assert store.purge(Selection(reason="denylist")) == 5
    assert store.purge(Selection((3,))) == 1
    assert store.purge(Selection(all=True)) == 2
    store.add([letter(100)])
    assert store.list()[0].number == 11, "a number is never given twice"


@pytest.mark.parametrize("limits", [{"max_rows": 3}, {"max_bytes": 35}])
def test_what_does_not_fit_is_not_kept_in_part(path: Path, limits: dict[str, int]) -> None:
    store = DeadLetters(path, **limits)
    store.add([letter(1), letter(2)])
    with pytest.raises(CapacityError, match="2 more do not fit") as caught:
        store.add([letter(3), letter(4)])
    assert "dead_letters.max_rows" in caught.value.remedy
    assert caught.value.where == str(path)
    assert len(store.list()) == 2
    assert store.add([letter(3)]) == 1


def test_a_full_disk_is_told_from_a_broken_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeadLetters(path)
    store.add([letter(1)])
    connect = sqlite3.connect

    def connect_to_a_small_disk(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        (pages,) = db.execute("pragma page_count").fetchone()
        db.execute(f"pragma max_page_count = {pages + 2}")
        return db

    monkeypatch.setattr("headgate.spool.dead_letters.sqlite3.connect", connect_to_a_small_disk)
    with pytest.raises(CapacityError, match="full") as caught:
        store.add([letter(2, payload=b"x" * 100_000)])
    assert "free disk space" in (caught.value.remedy or "")
    monkeypatch.undo()
    assert len(store.list()) == 1


def test_a_batch_that_comes_again_fits_into_a_full_store(path: Path) -> None:
    store = DeadLetters(path, max_rows=3)
    letters = [letter(1), letter(2), letter(3)]
    assert store.add(letters) == 3
    assert store.add(letters) == 0
    assert DeadLetters(path, max_rows=1).add(letters) == 0, "also if the limit is lower now"


def test_a_reader_is_never_in_the_way(path: Path) -> None:
    """A reader in the middle of a transaction keeps its view, and writers go on."""
    store = DeadLetters(path)
    store.add([letter(1)])
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM dead_letters").fetchone() == (1,)
    store.add([letter(2)])
    assert reader.execute("SELECT count(*) FROM dead_letters").fetchone() == (1,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM dead_letters").fetchone() == (2,)
    reader.close()


@pytest.mark.parametrize("attempt", range(20))
def test_threads_may_add_the_same_rows(path: Path, attempt: int) -> None:
    store = DeadLetters(path)
    new: list[int] = []
    threads = [threading.Thread(target=lambda: new.append(store.add([letter(n) for n in range(50)]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(new), len(store.list(limit=1000))) == (50, 50)


def test_a_newer_version_is_refused(path: Path) -> None:
    DeadLetters(path).add([letter(1)])
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 7")
    db.close()
    for use in (DeadLetters(path).list, DeadLetters(path).counts, lambda: DeadLetters(path).add([letter(2)])):
        with pytest.raises(StateError, match="version 7, this headgate reads version 1"):
            use()


@pytest.mark.parametrize("damage", [b"not a database" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_damaged_file_is_an_error_and_stays(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)
    with pytest.raises(StateError, match="cannot be read or written") as caught:
        DeadLetters(path).add([letter(1)])
    assert "not delivered" in caught.value.remedy
    assert path.read_bytes() == damage


def test_a_truncated_file(path: Path) -> None:
    store = DeadLetters(path)
    store.add([letter(n, payload=b"x" * 1000) for n in range(50)])
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StateError):
        store.list(limit=1000)


CHILD = """
import os, signal, sqlite3, sys
from pathlib import Path
from headgate.model.address import Address
from headgate.spool import dead_letters
real = dead_letters._row
def row(letter):
    if letter.message_id == "m-30":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(letter)
store = dead_letters.DeadLetters(Path(sys.argv[1]))
make = lambda n: dead_letters.DeadLetter(f"m-{n}", "", Address("s", "t"), "cap", "p", b"x" * 100_000)
store.add([make(n) for n in range(10)])
dead_letters._row = row
store.add([make(n) for n in range(10, 50)])
"""


def test_kill_in_the_middle_of_an_add_keeps_what_was_there_and_nothing_of_the_rest(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    store = DeadLetters(path)
    assert len(store.list(limit=1000)) == 10
    assert store.add([letter(n) for n in range(50)]) == 40
