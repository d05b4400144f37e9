"""Every type with its special values, through every format that a bridge has: the consumer gives the same values.

What they should be comes from PostgreSQL's own text, read by the type's codec.
"""

from __future__ import annotations

import asyncio

import pytest

from headgate.consume import CaughtUp, Changes, Consumer, SnapshotRows
from tests.cdc import read_types
from tests.integration.pgoutput.test_pgoutput_types import TYPES
from tests.integration.replica.test_replica_types import ALL, MORE_TYPES
from tests.snapshots import Origin, fresh_database

TABLES = {f"v{number}": name for number, name in enumerate(ALL)}


def start() -> str:
    tables = [
        f"create table {table} (id int primary key, v {name}); alter table {table} replica identity full"
        for table, name in TABLES.items()
    ]
    return f"create extension if not exists vector schema pg_catalog; {TYPES}; {MORE_TYPES}; {';'.join(tables)}"


def expected(origin: Origin) -> dict[tuple[str, int], str]:
    """By table and row. As text, in which NaN is itself, and -0 and 0 differ."""
    catalog = read_types(origin.connection)
    found = {}
    for table in TABLES:
        [[oid]] = origin.sql("select atttypid from pg_attribute where attrelid = %s::regclass and attname = 'v'", table)
        codec = catalog.codec(oid)  # a result would have the type below a domain
        result = origin.connection.pgconn.exec_(f"select id, v from {table}".encode())
        for row in range(result.ntuples):
            number, text = result.get_value(row, 0), result.get_value(row, 1)
            found[table, int(number or b"0")] = repr(None if text is None else codec.decode(text.decode()))
    return found


def fill(origin: Origin) -> None:
    for table, name in TABLES.items():
        origin.sql(f"insert into {table} values (0, null)")
        for number, text in enumerate(ALL[name], 1):
            origin.sql(f"insert into {table} values (%s, %s::text::{name})", number, text)


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("is_json", [False, True])
def test_every_type_in_every_format(is_json: bool, zstd: bool) -> None:
    async def test() -> None:
        with fresh_database() as database:
            origin = await Origin.open(database, start(), is_json=is_json, zstd=zstd)
            origin.chunk_rows = 100
            fill(origin)
            whole = expected(origin)
            read: dict[tuple[str, int], str] = {}
            new: dict[tuple[str, int], str] = {}
            old: dict[tuple[str, int], str] = {}
            async with Consumer(database.nats_url, "*") as consumer:
                async for step in consumer.steps():
                    if isinstance(step, SnapshotRows):
                        read |= {(step.schema.table, row["id"]): repr(row["v"]) for row in step.rows}
                    elif isinstance(step, Changes):
                        for change in step.changes:
                            place = str(change.table)
                            if change.operation == "UPDATE":
                                assert change.old is not None
                                new[place, change.data["id"] - 100] = repr(change.data["v"])
                                old[place, change.old["id"]] = repr(change.old["v"])
                    elif isinstance(step, CaughtUp):
                        if new:
                            break
                        for table in TABLES:
                            origin.sql(f"update {table} set id = id + 100")
                        await origin.pump()
            await origin.close()
            for given in (read, new, old):
                assert differences(given, whole) == ""

    async def within_time() -> None:
        async with asyncio.timeout(120):
            await test()

    asyncio.run(within_time())


def differences(given: dict[tuple[str, int], str], whole: dict[tuple[str, int], str]) -> str:
    return "\n".join(
        f"{TABLES[table]}: {given.get((table, number))}, not {whole.get((table, number))}"
        for table, number in sorted(given.keys() | whole.keys())
        if given.get((table, number)) != whole.get((table, number))
    )
