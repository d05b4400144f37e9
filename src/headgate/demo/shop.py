"""A small shop in PostgreSQL whose customers never sleep: what the demo captures changes from."""

from __future__ import annotations

import logging
import random
import threading
from importlib import resources

import psycopg

from headgate.broker import Message, install
from headgate.broker.transactions import publish_sync
from headgate.postgres import open_connection

__all__ = ["ORDER_PLACED", "Shop"]

_log = logging.getLogger(__name__)
_NAME = "headgate demo"

ORDER_PLACED = "order.placed"

_NAMES = ("Ada", "Grace", "Linus", "Barbara", "Edsger", "Radia", "Ken", "Frances")
_STATUSES = ("paid", "packed", "shipped", "delivered")

_ORDER = """
with buyer as (insert into shop.customers (name, email) values (%(name)s, %(email)s) returning id)
insert into shop.orders (customer_id, total, details)
select id, %(total)s, jsonb_build_object('product', %(product)s::text, 'gift', %(gift)s::boolean) from buyer
"""
_SELL = "update shop.stock set amount = case when amount <= 1 then 1000 else amount - 1 end where product = %(product)s"
_MOVE = """
update shop.orders set status = %(status)s, changed_at = now()
where id = (select max(id) - %(back)s from shop.orders)
"""
_FORGET = "delete from shop.orders where id = (select min(id) from shop.orders)"


class Shop:
    """Creates the tables, then sells, ships and forgets from a thread until it is closed."""

    def __init__(self, url: str, transactions_per_second: float = 40) -> None:
        self._url = url
        self._pause_s = 1 / transactions_per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._trade, name="shop", daemon=True)
        self._random = random.Random(1)

    def open(self) -> None:
        """Set up the tables (idempotent) and begin to trade."""
        script = resources.files("headgate.demo").joinpath("shop.sql").read_bytes()
        with open_connection(self._url, _NAME) as connection, connection.transaction():
            connection.execute(script)
            install(connection)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def _trade(self) -> None:
        while not self._stop.is_set():
            try:
                with open_connection(self._url, _NAME, timeout_s=5) as connection:
                    while not self._stop.wait(self._pause_s):
                        with connection.transaction():
                            self._one_deal(connection)
            except psycopg.Error as error:
                _log.info("the shop lost its database", extra={"reason": str(error)})
                self._stop.wait(1)

    def _one_deal(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        dice = self._random.random()
        if dice < 0.5:
            name = self._random.choice(_NAMES)
            deal = {
                "name": name,
                "email": f"{name.lower()}{self._random.randrange(10_000)}@example.com",
                "total": round(self._random.uniform(1, 500), 2),
                "product": f"product-{self._random.randint(1, 20)}",
                "gift": self._random.random() < 0.1,
            }
            connection.execute(_ORDER, deal)
            connection.execute(_SELL, deal)
            publish_sync(connection, Message(ORDER_PLACED, {key: deal[key] for key in ("name", "product", "total")}))
        elif dice < 0.95:
            move = {"status": self._random.choice(_STATUSES), "back": self._random.randrange(50)}
            connection.execute(_MOVE, move)
        else:
            connection.execute(_FORGET)
