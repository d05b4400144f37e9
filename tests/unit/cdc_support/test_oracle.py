"""The subscription follows the source, tells every difference, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headgate.embedded import Endpoints
from tests.cdc import Connection, Oracle, Shop


def test_it_tells_what_differs(cdc: Endpoints, shop: Shop, connect: Callable[[], Connection]) -> None:
    assert cdc.postgres_url is not None
    with Oracle(cdc.postgres_url, shop) as oracle:
        connect().execute(
            shop.fill("insert into {base}.account (id, balance) values (1, '1.10'), (2, null), (3, 'NaN')")
        )
        oracle.wait_for()
        assert oracle.compare() == []
        with psycopg.connect(make_conninfo(cdc.postgres_url, dbname=f"{shop.name}_oracle")) as replica:
            replica.execute(shop.fill("delete from {base}.account where id = 2"))
            replica.execute(shop.fill("update {base}.account set balance = '1.1' where id = 1"))
        missing, changed, instead = sorted(oracle.compare(), key=lambda line: "(1," in line)
        assert "only in the source: (2," in missing
        assert {"only in the source" in changed, "only in the source" in instead} == {True, False}
        with pytest.raises(TimeoutError, match="bytes behind"):
            oracle.wait_for(1 << 62, timeout_s=0.1)
    left = """select slot_name::text from pg_replication_slots where slot_name = %(name)s
              union all select datname::text from pg_database where datname = %(name)s"""
    assert connect().execute(left, {"name": f"{shop.name}_oracle"}).fetchall() == []


def test_what_was_made_is_removed_when_the_rest_cannot_be_made(
    cdc: Endpoints, shop: Shop, connect: Callable[[], Connection]
) -> None:
    assert cdc.postgres_url is not None
    connection = connect()
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [f"{shop.name}_oracle"])
    with pytest.raises(psycopg.errors.DuplicateObject):
        Oracle(cdc.postgres_url, shop).__enter__()
    query = "select from pg_database where datname = %s"
    assert connection.execute(query, [f"{shop.name}_oracle"]).rowcount == 0
