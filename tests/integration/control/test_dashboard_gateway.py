"""The pages of a real gateway: its topics, groups and messages, and one message written by hand."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.control.dashboard import Stores
from headgate.control.dashboard.gateway import find_group, find_messages, find_topic, produce, read_gateway
from headgate.embedded import Endpoints
from headgate.model import UsageError
from tests.gateway.servers import GatewayThread, new_database, running
from tests.stock import stock_url

from .conftest import ROUTED, Shop, serving

__all__ = ["stock_url"]

TOKEN = "s3cret-of-the-gateway"
EVIL = '"><img src=x onerror=alert(1)>'
WAIT_S = 60.0


@pytest.fixture(scope="module")
def database(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture(scope="module")
def gateway(database: str) -> Iterator[GatewayThread]:
    with running(database) as started:
        yield started


def create(gateway: GatewayThread, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for made in admin.create_topics(list(topics)).values():
        made.result(WAIT_S)


@pytest.fixture(scope="module")
def orders(gateway: GatewayThread, database: str) -> Stores:
    """A topic of three partitions with messages of many sorts, and a group that has read a part of it."""
    servers = {"bootstrap.servers": gateway.bootstrap}
    create(gateway, NewTopic("orders", 3, 1, config={"retention.ms": "3600000"}))
    producer = Producer(servers | {"linger.ms": 0})
    for number in range(30):
        producer.produce("orders", f'{{"n": {number}}}', f"k{number}", number % 3)
        producer.flush(WAIT_S)
    producer.produce("orders", EVIL, EVIL, 0, headers=[("X-Evil", EVIL.encode()), ("raw", b"\x00\xff")])
    producer.produce("orders", b"\xff\xfe\x00", None, 1)
    producer.produce("orders", None, "gone", 2)
    producer.produce("orders", b"x" * 900_000, "long", 2)
    producer.flush(WAIT_S)
    return Stores(gateway_url=database)


@pytest.fixture(scope="module")
def member(gateway: GatewayThread, orders: Stores) -> Iterator[Consumer]:
    """A member of a group, which has committed four messages of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": gateway.bootstrap, "group.id": f"readers {EVIL}", "client.id": "a-client",
         "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    with closing(consumer):
        consumer.subscribe(["orders"])
        read = [_message(consumer) for _ in range(34)]
        consumer.commit(message=_at(read, 0, 3), asynchronous=False)
        yield consumer


def _message(consumer: Consumer) -> Message:
    found = consumer.poll(WAIT_S)
    assert found is not None
    assert found.error() is None
    return found


def _at(messages: list[Message], partition: int, offset: int) -> Message:
    return next(each for each in messages if (each.partition(), each.offset()) == (partition, offset))


class GatewayShop(Shop):
    found = Stores()

    def status(self) -> dict[str, Any]:
        running = {"status": "running", "advertised": "here:9092", "connections": 1, "error": None, "troubles": {}}
        return super().status() | {"gateway": running}

    def stores(self) -> Stores:
        return self.found


@pytest.fixture
def client(tmp_path: Path, orders: Stores) -> Iterator[httpx.Client]:
    (tmp_path / "headgate.toml").write_text(ROUTED)
    shop = GatewayShop(tmp_path / "headgate.toml")
    shop.found = orders
    for each in serving(shop, TOKEN):
        each.post("/login", data={"token": TOKEN})
        yield each


def browse(orders: Stores, **arguments: str) -> dict[str, Any]:
    return find_messages(orders, {"name": "orders"} | arguments)


@pytest.fixture
def letters(gateway: GatewayThread) -> str:
    """A topic of its own to write to: the messages of `orders` are counted."""
    name = f"letters-{secrets.token_hex(4)}"
    create(gateway, NewTopic(name, 3, 1))
    return name


def positions(found: dict[str, Any]) -> list[str]:
    return [each.position for each in found["messages"]]


def test_the_newest_messages_of_all_partitions_or_of_one(orders: Stores) -> None:
    everything = browse(orders)
    assert len(everything["messages"]) == 20
    assert everything["of"] == "all partitions"
    assert positions(browse(orders, partition="1"))[:2] == ["1:10", "1:9"]
    assert browse(orders, partition="3")["note"] == "There is no partition 3: the topic has 3."


def test_messages_from_an_offset_on_are_read_page_by_page(orders: Stores) -> None:
    first = browse(orders, partition="0", offset="4")
    assert positions(first) == [f"0:{offset}" for offset in range(4, 11)]
    assert first["following"] == (0, 11)
    assert browse(orders, partition="0", offset="11")["note"] == "There is no message from this offset on."
    found = browse(orders, partition="0", offset="0", text='"n": 27')
    assert (positions(found), found["scanned"]) == (["0:9"], 11)


def test_a_message_is_shown_as_what_it_is_or_in_the_form_that_is_wanted(orders: Stores) -> None:
    evil, *_ = browse(orders, partition="0")["messages"]
    assert (evil.key, evil.value.text) == (EVIL, EVIL)
    assert dict(evil.headers) == {"X-Evil": EVIL, "raw": '{"base64": "AP8="}'}
    assert browse(orders, partition="1")["messages"][0].value.text == "ff fe 00"
    long, gone, one, *_ = browse(orders, partition="2")["messages"]
    assert (long.value.bytes, long.value.is_cut, len(long.value.text) <= 4000) == (900_000, True, True)
    assert (gone.value.form, one.value.form) == ("nothing", "JSON")
    assert browse(orders, partition="2", form="hex")["messages"][2].value.text.startswith("7b 22 6e")
    assert browse(orders, partition="2", form="text")["messages"][2].value.form == "text"


def test_a_topic_has_its_partitions_settings_and_readers(orders: Stores, member: Consumer) -> None:
    topic = find_topic(orders, "orders")
    assert topic is not None
    assert [(each["partition"], each["first"], each["next"]) for each in topic["partitions"]] == [
        (0, 0, 11), (1, 0, 11), (2, 0, 12)
    ]  # fmt: skip
    assert topic["configs"][0][:3] == ("retention.ms", "3600000", True)
    assert {each[0] for each in topic["configs"]} >= {"cleanup.policy", "max.message.bytes"}
    assert f"readers {EVIL}" in [each["group_id"] for each in topic["groups"]]
    assert find_topic(orders, "none") is None
    assert find_topic(orders, "nul\0\ud800") is None
    assert find_topic(Stores(), "orders") is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_has_its_members_and_the_lag_of_each_partition(
    gateway: GatewayThread, orders: Stores, protocol: str
) -> None:
    settings = {"bootstrap.servers": gateway.bootstrap, "group.id": protocol, "group.protocol": protocol,
                "client.id": "a-client", "enable.auto.commit": False, "auto.offset.reset": "earliest"}  # fmt: skip
    consumer = Consumer(settings)
    with closing(consumer):
        consumer.subscribe(["orders"])
        read = [_message(consumer) for _ in range(34)]
        consumer.commit(message=_at(read, 0, 3), asynchronous=False)
        found = find_group(orders, protocol)
        assert found is not None
        [one] = found["members"]
        assert (one["client_id"], one["owned"]) == ("a-client", ["orders:0", "orders:1", "orders:2"])
        [committed] = found["partitions"]
        assert (committed["partition"], committed["committed"], committed["next"], committed["lag"]) == (0, 4, 11, 7)
        assert (committed["owner"], found["lag"], found["kind"]) == (one["member_id"], 7, protocol)
    assert find_group(orders, "none") is None


def test_lists_are_bounded_and_can_be_searched(orders: Stores, gateway: GatewayThread) -> None:
    create(gateway, NewTopic("wide", 300, 1), *(NewTopic(f"many-{n:03}", 1, 1) for n in range(110)))
    everything = read_gateway(orders)
    assert len(everything["topics"]) == 100
    assert everything["topic_count"] >= 112, "and those of other tests"
    assert [each["name"] for each in read_gateway(orders, "MANY-04")["topics"]] == [f"many-04{n}" for n in range(10)]
    assert read_gateway(orders, "%")["topics"] == []  # a text, not a pattern
    wide = find_topic(orders, "wide")
    assert wide is not None
    assert (len(wide["partitions"]), wide["partition_count"]) == (200, 300)
    assert find_messages(orders, {"name": "wide"})["of"] == "partition 0"  # never of hundreds at once


def test_a_server_as_debian_has_it_answers(stock_url: str) -> None:
    with new_database(stock_url) as url, running(url) as gateway:
        create(gateway, NewTopic("orders", 2, 1))
        stores = Stores(gateway_url=url)
        assert produce(stores, {"topic": "orders", "partition": "1", "value": "v", "headers": "a: b"})
        _until(lambda: bool(browse(stores)["messages"]))
        assert positions(browse(stores)) == positions(browse(stores, partition="1", offset="0")) == ["1:0"]
        consumer = Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "g", "enable.auto.commit": False,
                             "auto.offset.reset": "earliest"})  # fmt: skip
        with closing(consumer):
            consumer.subscribe(["orders"])
            consumer.commit(message=_message(consumer), asynchronous=False)
            group = find_group(stores, "g")
        assert group is not None
        assert [(each["partition"], each["lag"], bool(each["owner"])) for each in group["partitions"]] == [(1, 0, True)]
        assert [each["name"] for each in read_gateway(stores)["topics"]] == ["orders"]


def test_one_message_is_written_by_hand(client: httpx.Client, letters: str, orders: Stores) -> None:
    back = f"/dashboard/gateway/topic?name={letters}"
    page = client.get(back).text
    assert f"Produce to {letters}" in page
    form = {"form_secret": _secret(page), "back": back, "topic": letters, "partition": "1", "key": "00ff",
            "key_form": "hex", "value": '{"by": "hand"}', "value_form": "text",
            "headers": f"traceparent: 00-abc\nnote: {EVIL}"}  # fmt: skip
    answer = client.post("/dashboard/gateway/produce", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, back)
    assert f"one message was written to {letters}" in client.get(back).text
    _until(lambda: len(browse(orders, name=letters)["messages"]) == 1)
    [written] = browse(orders, name=letters, partition="1", text='"hand"')["messages"]
    assert written.key == "00 ff"
    assert dict(written.headers) == {"traceparent": "00-abc", "note": EVIL}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"topic": "none"}, "there is no topic none"),
        ({"partition": "7"}, "there is no partition 7"),
        ({"partition": "-1"}, "is not a number"),
        ({"partition": str(10**17)}, "there is no partition 1000"),
        ({"key": "xyz", "key_form": "hex"}, "the key is not in hex"),
        ({"value_form": "avro"}, "the value is text, hex or none"),
        ({"headers": "no colon"}, "a name, a colon and a value"),
        ({"headers": "a: b\n" * 51}, "more than 50 headers"),
        ({"value": "x" * 1_048_600}, "too large"),
    ],
)
def test_what_cannot_be_written_says_why(orders: Stores, change: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        produce(orders, {"topic": "orders", "value": "v"} | change)


def test_only_who_has_logged_in_may_write(client: httpx.Client, orders: Stores, tmp_path: Path) -> None:
    form = {"topic": "orders", "value": "forged", "form_secret": "wrong"}
    assert client.post("/dashboard/gateway/produce", data=form).status_code == 403
    shop = GatewayShop(tmp_path / "headgate.toml")
    shop.found = orders
    for guest in serving(shop):
        page = guest.get("/dashboard/gateway/topic?name=orders").text
        assert "Produce to" not in page
        secret = _secret(guest.get("/dashboard/explain").text)
        assert guest.post("/dashboard/gateway/produce", data=form | {"form_secret": secret}).status_code == 403
    assert client.get("/dashboard/gateway/produce").status_code in (404, 405)
    assert browse(orders, text="forged")["messages"] == []


def test_hostile_texts_stay_text(client: httpx.Client, member: Consumer, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("insert into kafka.topics (name) values (%s) on conflict do nothing", [EVIL])
    for path, query in (
        ("gateway", {}),
        ("gateway/topic", {"name": "orders", "partition": "0"}),
        ("gateway/topic", {"name": EVIL, "text": EVIL, "form": EVIL, "partition": "0"}),
        ("gateway/group", {"name": f"readers {EVIL}"}),
    ):
        page = client.get(f"/dashboard/{path}", params=query).text
        assert "&gt;&lt;img src=x" in page, (path, query)
        assert "<img src=x" not in page
        assert "this cannot be shown" not in page
    assert client.get("/dashboard/gateway/topic?nmae=orders").status_code == 400
    assert "this cannot be shown" in client.get("/dashboard/gateway/topic?name=orders&offset=-1").text


def _secret(page: str) -> str:
    found = re.search(r'name="form_secret" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
