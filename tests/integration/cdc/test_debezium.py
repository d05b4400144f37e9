"""Debezium's events of a real server: what the catalog knows of tables is in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.model import UsageError
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import Range
from headgate.sources.postgres_cdc.spool import SpoolIndex
from tests.integration.cdc.conftest import Admin, every_version
from tests.integration.cdc.watching import rows, wait_until

pytestmark = pytest.mark.timeout(120)

Start = Callable[..., ReaderProcess]


def decoded(url: str, spool: Path, **debezium: Any) -> list[dict[str, Any]]:
    """Every message of the spool: its place, and its event; a tombstone has none."""
    options = CdcOptions(
        url=url, slot="s", publication="p", spool=str(spool), format="debezium", debezium=json.dumps(debezium)
    )
    index = SpoolIndex(spool)
    index.refresh()
    batches = Range.of(options.spool_dir, 0, index.end_lsn, "1", 1, (), index.slices(0, index.end_lsn)).decode(options)
    return [
        {
            "position": row["_position"],
            "topic": row["_topic"],
            "event": json.loads(row["_payload"]) if row["_payload"] else None,
        }
        for batch in batches
        for row in batch.to_pylist()
    ]


@every_version
def test_keys_defaults_and_names_come_from_the_catalog(admin: Admin, reader: Start, url: str, tmp_path: Path) -> None:
    admin.execute(
        """create type mood as enum ('sad', 'ok');
           create table item (id int primary key, note text not null default 'none', at timestamptz not null,
                              price numeric(10, 2), mood mood);
           alter table item replica identity full;
           create table plain (id int primary key, n int not null, note text);
           alter publication p add table item, plain"""
    )
    reader().ensure()
    admin.execute("insert into item values (1, 'x', '2024-01-01 00:00+00', 1.50, 'ok')")
    admin.execute("update item set price = 2 where id = 1")
    admin.execute("update item set id = 2")
    admin.execute("insert into plain values (1, 5, 'x')")
    admin.execute("delete from plain")
    admin.execute("truncate plain")
    spool = tmp_path / "spool"
    wait_until(lambda: rows(spool) == 6)
    found = decoded(url, spool, topic_prefix="shop", schemas_enable=True)
    events = [each["event"] and each["event"]["payload"] for each in found]
    assert [event and event["op"] for event in events] == ["c", "u", "d", None, "c", "c", "d", None]
    first = events[0]
    assert first["after"] == {"id": 1, "note": "x", "at": "2024-01-01T00:00:00.000000Z", "price": "AJY=", "mood": "ok"}
    source = first["source"]
    assert (source["name"], source["db"], source["schema"], source["table"]) == ("shop", "headgate", "public", "item")
    assert events[2]["before"]["id"] == 1
    assert events[4]["after"]["id"] == 2
    assert events[6]["before"] == {"id": 1, "n": 0, "note": None}
    fields = {field["field"]: field for field in found[0]["event"]["schema"]["fields"][1]["fields"]}
    assert (fields["note"]["optional"], fields["note"]["default"]) == (False, "none")
    assert fields["mood"]["parameters"] == {"allowed": "sad,ok"}
    positions = [each["position"] for each in found]
    assert positions == sorted(set(positions))
    assert first["ts_us"] >= source["ts_us"]
    assert decoded(url, spool)[0]["event"]["source"]["name"] == "s"  # the slot's, unless told


def test_unknown_options_are_refused() -> None:
    given = {"url": "", "slot": "s", "publication": "p", "spool": "x", "format": "debezium"}
    for text in ('{"tombstone": true}', '{"decimal_handling_mode": "exact"}', "{", '{"schemas_enable": "yes"}'):
        with pytest.raises(UsageError, match="debezium"):
            CdcOptions.from_spark({**given, "debezium": text})


@every_version
def test_heartbeats_are_those_of_the_own_slot(admin: Admin, reader: Start, url: str, spool: Path) -> None:
    foreign = "select pg_logical_emit_message({}, 'headgate.heartbeat', 'another')"
    quiet = reader()
    quiet.ensure()
    for transactional in ("true", "false"):
        admin.execute(foreign.format(transactional).encode())
    admin.execute("insert into t values (1, 'x')")
    wait_until(lambda: rows(spool) == 1)
    assert [each["event"]["op"] for each in decoded(url, spool)] == ["c"]
    quiet.stop()
    reader(heartbeat_ms=100).ensure()
    admin.execute(foreign.format("true").encode())
    wait_until(lambda: len(decoded(url, spool)) > 3)
    *_, last = decoded(url, spool, topic_prefix="shop")
    assert last["event"].keys() == {"ts_ms"}
    assert last["topic"] == "__debezium-heartbeat.shop"
    admin.execute("insert into t values (2, 'y')")
    wait_until(lambda: any("op" in each["event"] and each["event"]["after"]["id"] == 2 for each in decoded(url, spool)))
