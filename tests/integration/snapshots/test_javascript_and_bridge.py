"""The JavaScript consumer against a real bridge: snapshot and stream, joined by code that is not ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.acceptance.test_javascript import example

from .conftest import Admin, Bridge, wait_until

__all__ = ["example"]  # its fixture is used here, too


def test_it_ends_with_the_table(bridge: Bridge, admin: Admin, example: Path) -> None:
    admin.execute('create table "odd name" (id int primary key, note text)')
    admin.execute("insert into \"odd name\" select g, 'n' || g from generate_series(1, 500) g")
    bridge.start(bucket="schemas", compression="zstd", chunk_rows=100)
    admin.execute("update \"odd name\" set note = 'changed' where id % 7 = 0")
    admin.execute('delete from "odd name" where id % 11 = 0')
    sequence = len(bridge.messages(500 // 7 + 500 // 11))
    command = ["node", "consumer.mjs", "--server", bridge.endpoints.nats_url or "", "--json"]
    command += ["--table", f"{bridge.name}.odd name", "--until-sequence", str(sequence + 2)]
    consumer = subprocess.Popen(command, cwd=example, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert bridge.served is not None
    wait_until(lambda: any(job.state == "done" for job in bridge.served.jobs()))  # type: ignore[union-attr]
    admin.execute("update \"odd name\" set note = 'later' where id = 1")
    admin.execute('delete from "odd name" where id = 2')
    output, errors = consumer.communicate(timeout=60)
    assert consumer.returncode == 0, errors
    rows = {row["id"]: row["note"] for row in json.loads(output)["rows"]}
    assert rows == dict(admin.execute('select id, note from "odd name"').fetchall())
