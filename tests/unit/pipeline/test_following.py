"""What a task that follows tells, and what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.control.spark import with_slots
from headgate.destinations.base import SendResult
from headgate.pipeline import following as module
from headgate.pipeline.acks import Moments
from headgate.pipeline.following import NOTHING, Following, Progress, Tracker
from headgate.sources.base import Stretch


@pytest.fixture
def following(tmp_path: Path) -> Following:
    found = Following(tmp_path / "following")
    found.allow()
    return found


def sent(rows: int, duplicates: int = 0, *reports: dict[str, str]) -> list[SendResult]:
    return [SendResult("d", rows, rows * 10, duplicates, reports)]


@pytest.fixture(autouse=True)
def _tell_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TELL_S", 0.0)


def test_the_driver_hears_of_what_is_acknowledged(following: Following) -> None:
    track = Tracker(following, batch_id=7, attempt=3)
    assert track.goes_on()
    assert following.progress(7) is None  # nothing is acknowledged yet
    track.add(2, sent(2), Stretch(iter(()), {"lsn": 5}))
    track.add(3, sent(3, 1), Stretch(iter(()), {"lsn": 9}))
    assert track.goes_on()
    told = following.progress(7)
    assert told is not None
    assert (told.rows, told.payload_bytes, told.duplicates, told.end, told.attempt) == (5, 50, 1, {"lsn": 9}, 3)


def test_what_another_batch_or_run_told_says_nothing(following: Following, tmp_path: Path) -> None:
    track = Tracker(following, batch_id=7, attempt=3)
    track.add(2, sent(2), Stretch(iter(()), {"lsn": 5}))
    track.goes_on()
    assert following.progress(8) is None
    assert Following(tmp_path / "following").progress(7) is None


def test_a_halt_ends_it_and_the_next_batch_may_follow_again(following: Following) -> None:
    track = Tracker(following, batch_id=7, attempt=3)
    following.halt()
    assert not track.goes_on()
    following.allow()
    assert Tracker(following, batch_id=8, attempt=4).goes_on()


def test_a_task_that_outlived_its_driver_ends(following: Following, tmp_path: Path) -> None:
    track = Tracker(following, batch_id=7, attempt=3)
    Following(tmp_path / "following").allow()  # of the next run
    assert not track.goes_on()


def test_a_task_sleeps_until_something_is_due(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_TELL_S", 20.0), ("_LOOK_S", 600.0), ("_TURN_S", 6000.0)):
        monkeypatch.setattr(module, name, seconds)
    track = Tracker(following, batch_id=7, attempt=3)
    assert track.goes_on() == 600, "nothing but its driver's death"
    track.add(1, sent(1), Stretch(iter(()), {"lsn": 5}))
    assert track.goes_on() == 600, "the first is told at once"
    track.add(1, sent(1), Stretch(iter(()), {"lsn": 6}))
    assert track.goes_on() == 20, "the driver waits for what is untold"


def test_a_file_is_read_again_only_when_it_was_replaced(following: Following) -> None:
    track = Tracker(following, batch_id=7, attempt=3)
    track.add(1, sent(1), Stretch(iter(()), {"lsn": 5}))
    track.goes_on()
    first = following.progress(7)
    assert following.progress(7) is first
    following.tell(7, 3, track.sums, {"lsn": 6})
    second = following.progress(7)
    assert second is not None
    assert second.end == {"lsn": 6}


def test_half_a_file_is_no_progress(following: Following, tmp_path: Path) -> None:
    (tmp_path / "following" / "progress").write_bytes(b'{"run": "')
    assert following.progress(7) is None


def test_an_idle_batch_goes_on_and_one_with_rows_ends_in_time(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TURN_S", 0.0)
    track = Tracker(following, batch_id=7, attempt=3)
    assert track.goes_on()
    track.add(1, sent(1), Stretch(iter(()), {"lsn": 5}))
    assert not track.goes_on()


def test_what_the_driver_must_see_soon_makes_a_batch_short(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SHORT_TURN_S", 0.0)
    assert not Tracker(following, batch_id=7, attempt=3, is_short=True).goes_on()
    track = Tracker(following, batch_id=7, attempt=3)
    track.add(1, sent(1), Stretch(iter(()), {"lsn": 5}))
    assert track.goes_on()
    track.add(1, sent(1, 0, {"table": "t"}), Stretch(iter(()), {"lsn": 6}))  # its destination learns from it
    assert not track.goes_on()


def test_the_driver_is_told_when_the_last_rows_were_sent(following: Following) -> None:
    following.allow()
    track = Tracker(following, batch_id=7, attempt=3)
    track.add(1, sent(1), Stretch(iter(()), {"lsn": 5}, committed_at=90.0), Moments(100.0, 101.0, 102.0))
    track.add(0, sent(0), Stretch(iter(()), {"lsn": 6}, committed_at=95.0))  # nothing of it was anybody's
    assert track.goes_on()
    told = following.progress(7)
    assert told is not None
    assert (told.committed_at, told.moments) == (90.0, Moments(100.0, 101.0, 102.0))


def test_progress_since_an_earlier_one_counts_what_is_new() -> None:
    first = Progress("r", 7, 3, 5, 50, 1, {"lsn": 9})
    second = Progress("r", 7, 3, 8, 80, 1, {"lsn": 12})
    assert (second.since(first).rows, second.since(first).payload_bytes) == (3, 30)
    assert second.since(NOTHING) == second
    again = Progress("r", 7, 4, 2, 20, 2, {"lsn": 5})  # another attempt, which counts anew
    assert again.since(second) == again


@pytest.mark.parametrize(
    ("master", "following_tasks", "expected"),
    [
        ("local[4]", 3, "local[7]"),
        ("local", 1, "local[2]"),
        ("local[2,5]", 1, "local[3,5]"),
        ("local[4]", 0, "local[4]"),
        ("spark://host:7077", 3, "spark://host:7077"),
    ],
)
def test_each_task_that_follows_has_a_slot_of_its_own(master: str, following_tasks: int, expected: str) -> None:
    assert with_slots(master, following_tasks) == expected
