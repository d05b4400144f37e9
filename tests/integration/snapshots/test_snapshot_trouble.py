"""Snapshots in trouble: connections that are cut in their middle, and a disk on which nothing can be written down."""

from __future__ import annotations

import msgspec

from tests.streams import read_stream

from .conftest import Admin, Bridge, wait_until

ROWS = 200_000


def test_connections_that_are_cut_in_the_middle(bridge: Bridge, admin: Admin) -> None:
    admin.execute("create table t (id int primary key, note text)")
    admin.execute(f"insert into t select g, repeat('x', 100) from generate_series(1, {ROWS}) g".encode())
    bridge.start()
    assert bridge.served is not None
    jobs = bridge.served.jobs
    asked = bridge.ask(f"{bridge.name}.t", b'{"chunk_rows": 500}')["snapshot_id"]
    wait_until(lambda: any(job.rows > 0 for job in jobs()))
    cut = admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'headgate snapshot%'"
    ).fetchall()
    wait_until(lambda: bridge.ended(asked))
    (job,) = jobs()
    assert (job.state, job.rows) == ("done", ROWS)
    # It may have been read to its end in that moment; then it needed no second try.
    assert job.replaces == ([asked] if job.id != asked else [])
    assert cut or not job.replaces
    messages = [m for m in read_stream(bridge.endpoints.nats_url, "INIT", 0) if f".{bridge.name}.t." in m.subject]
    assert {message.subject.split(".")[4] for message in messages} == {job.id}
    rows = [row["id"] for message in messages for row in msgspec.msgpack.decode(message.data)["data"]]
    assert sorted(rows) == list(range(1, ROWS + 1))


def test_a_disk_that_fails_ends_no_later_snapshot(bridge: Bridge, admin: Admin) -> None:
    """What cannot be written down is refused, in words; once the disk is well again, so are snapshots."""
    admin.execute("create table t (id int primary key); insert into t values (1)")
    bridge.start()
    assert bridge.served is not None
    journal = bridge.served._options.journal
    asked = bridge.ask(f"{bridge.name}.t")
    journal.unlink()
    journal.mkdir()  # where a file belongs: writing fails, as it would on a full disk
    wait_until(lambda: bridge.ended(asked["snapshot_id"]))
    refused = bridge.ask(f"{bridge.name}.t")
    assert not refused["accepted"]
    assert "the path cannot be used" in refused["error"]["message"]
    journal.rmdir()
    end, _ = bridge.snapshot(f"{bridge.name}.t")
    assert end["row_count"] == 1, end
