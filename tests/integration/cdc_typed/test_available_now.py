"""All there is means all there is, also if the spool cannot hold it at once."""

from __future__ import annotations

from tests.integration.cdc_typed.conftest import Shop


def test_a_backlog_larger_than_the_spool_is_delivered_whole(shop: Shop) -> None:
    shop.execute("create table orders (id int primary key, note text)")
    changes = shop.open(maxSpoolBytes=str(256 << 10))
    for batch in range(20):  # transactions of some 100 KB each: the spool holds three of them
        shop.admin.execute(
            "insert into orders select %s + n, repeat('x', 1000) from generate_series(1, 100) as n", [batch * 100]
        )
    found = shop.drain(changes)
    assert [row["id"] for row in found] == list(range(1, 2001))
    assert shop.drain(changes) == []
