"""A task that follows the spool: what commits comes at once and in order, and what needs more than it ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import msgspec
import pytest

from headgate.model import record
from headgate.postgres.continuity import WalPosition, position_of
from headgate.sources.base import Stretch
from headgate.sources.postgres_cdc.control import SpoolControl
from headgate.sources.postgres_cdc.follow import follow_located
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import Range, located
from headgate.sources.postgres_cdc.spool import SpoolIndex
from tests.integration.cdc.conftest import Admin, every_version
from tests.integration.cdc.watching import Start, rows, wait_until

pytestmark = pytest.mark.timeout(180)

_ENDED = None


class Followed:
    """A follower in a thread: `next` is what it sent, stretch by stretch; None when it has ended."""

    def __init__(self, options: CdcOptions, planned: Range) -> None:
        self.halted = threading.Event()
        self._stretches: Queue[list[int] | None] = Queue()
        self.end: dict[str, int] = {}
        self._planned = planned
        self._thread = threading.Thread(target=self._run, args=(options,), daemon=True)
        self._thread.start()

    def _run(self, options: CdcOptions) -> None:
        batches = iter([located(self._planned)])
        try:
            for stretch in follow_located(batches, lambda: not self.halted.is_set(), options):
                found = _ids(stretch)
                self.end = stretch.end
                self._stretches.put(found)
        finally:
            self._stretches.put(_ENDED)

    def next(self) -> list[int] | None:
        return self._stretches.get(timeout=60)

    def all_until(self, last: int) -> list[int]:
        """Ids of whatever stretches, up to this one."""
        found: list[int] = []
        while not found or found[-1] != last:
            some = self.next()
            assert some is not None, f"ended after {found}"
            found += some
        return found

    def join(self) -> None:
        self.halted.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def _ids(stretch: Stretch) -> list[int]:
    payloads = [payload for batch in stretch.rows for payload in batch[record.PAYLOAD].to_pylist()]
    events = map(msgspec.msgpack.decode, payloads)
    return [event["data"]["id"] for event in events if "data" in event]


@pytest.fixture
def options(url: str, spool: Path) -> CdcOptions:
    return CdcOptions(url, "s", "p", str(spool))


@contextmanager
def following(process: ReaderProcess, options: CdcOptions, planned_rows: int = 0) -> Iterator[Followed]:
    """From the beginning of the reader's run, with so many rows planned."""
    state = process.ensure()
    index = SpoolIndex(options.spool_dir)
    wait_until(lambda: rows(options.spool_dir) >= planned_rows)
    index.refresh()
    end_lsn = index.end_within(state.start_lsn, planned_rows, None) if planned_rows else state.start_lsn
    slices = index.slices(state.start_lsn, end_lsn) if planned_rows else []
    followed = Followed(
        options, Range.of(options.spool_dir, state.start_lsn, end_lsn, state.origin, state.timeline, state.run, slices)
    )
    yield followed
    followed.join()


def described(admin: Admin) -> None:
    """A first transaction: before it, its table is described."""
    admin.execute("insert into t values (0, 'first')")


@every_version
def test_what_commits_is_handed_out_as_it_commits(admin: Admin, reader: Start, options: CdcOptions) -> None:
    process = reader()
    process.ensure()
    described(admin)
    with following(process, options, 1) as followed:
        assert followed.next() == [0]
        for number in range(1, 50):
            admin.execute("insert into t values (%s, 'x')", [number])
            assert followed.next() == [number]
        with admin.transaction():
            admin.execute("insert into t select g, 'y' from generate_series(50, 20000) g")
        assert followed.all_until(20000) == list(range(50, 20001))


def test_it_ends_when_told_to_and_the_next_one_goes_on_where_it_was(
    admin: Admin, reader: Start, options: CdcOptions
) -> None:
    process = reader()
    process.ensure()
    described(admin)
    with following(process, options, 1) as followed:
        assert followed.next() == [0]
        admin.execute("insert into t values (1, 'x')")
        assert followed.next() == [1]
        followed.halted.set()
        assert followed.next() is _ENDED
    end = position_of(followed.end)
    admin.execute("insert into t values (2, 'x')")
    state = process.state()
    again = Followed(
        options, Range.of(options.spool_dir, end.lsn, end.lsn, state.origin, state.timeline, state.run, [])
    )
    assert again.next() == []
    assert again.next() == [2]
    again.join()


def test_a_table_of_another_shape_ends_it_before_its_first_row(
    admin: Admin, reader: Start, options: CdcOptions
) -> None:
    """Descriptions are published before the rows that need them, and that is the driver's to do."""
    process = reader()
    process.ensure()
    described(admin)
    with following(process, options, 1) as followed:
        assert followed.next() == [0]
        admin.execute("insert into t values (1, 'x')")
        assert followed.next() == [1]
        admin.execute("alter table t add column more int")
        admin.execute("insert into t values (2, 'x', 7)")
        assert followed.next() is _ENDED
        index = SpoolIndex(options.spool_dir)
        wait_until(lambda: rows(options.spool_dir) >= 3)
        index.refresh()
        assert followed.end["lsn"] < index.end_lsn


def test_a_reader_that_died_ends_it(admin: Admin, reader: Start, options: CdcOptions) -> None:
    process = reader()
    process.ensure()
    described(admin)
    with following(process, options, 1) as followed:
        assert followed.next() == [0]
        os.kill(process.state().pid, signal.SIGKILL)
        assert followed.next() is _ENDED


def test_a_reader_that_began_anew_ends_it_before_anything_of_the_new_run(
    admin: Admin, reader: Start, options: CdcOptions
) -> None:
    """The server may be another one by then, with other transactions at the same places."""
    process = reader()
    process.ensure()
    described(admin)
    with following(process, options, 1) as followed:
        assert followed.next() == [0]
        admin.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
        admin.execute("insert into t values (1, 'x')")
        assert followed.next() is _ENDED


def test_a_planned_range_that_is_recorded_already_is_not_sent_again(
    admin: Admin, reader: Start, options: CdcOptions
) -> None:
    """Of an attempt before this one, whose progress was recorded while it followed: the spool has let go of it."""
    process = reader()
    state = process.ensure()
    described(admin)
    wait_until(lambda: rows(options.spool_dir) >= 1)
    index = SpoolIndex(options.spool_dir)
    index.refresh()
    SpoolControl(options.spool_dir).confirm(WalPosition(state.timeline, index.end_lsn))
    gone = index.slices(state.start_lsn, index.end_lsn)
    planned = Range.of(options.spool_dir, state.start_lsn, index.end_lsn, state.origin, state.timeline, state.run, gone)
    wait_until(lambda: rows(options.spool_dir) == 0)
    followed = Followed(options, planned)
    assert followed.next() == []
    admin.execute("insert into t values (1, 'x')")
    assert followed.next() == [1]
    followed.join()
