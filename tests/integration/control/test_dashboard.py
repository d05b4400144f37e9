"""The dashboard over real HTTP: what it shows, to whom, and that it does nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headgate.broker import install
from headgate.control.dashboard import Stores
from headgate.control.dashboard.panels import PANELS
from headgate.control.dashboard.sessions import LIFETIME_S, Attempts, Sessions
from headgate.embedded import Endpoints
from headgate.model import DeliveryError, Status
from tests.gateway.servers import new_database

from .conftest import ROUTED, Shop, serving

TOKEN = "s3cret-of-the-test"


class BrokerShop(Shop):
    """A shop with a broker in a database."""

    found = Stores()

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.servers: dict[str, Any] = {}

    def status(self) -> dict[str, Any]:
        return super().status() | self.servers

    def stores(self) -> Stores:
        return self.found


@pytest.fixture(scope="module")
def database(endpoints: Endpoints) -> Iterator[str]:
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as url:
        yield url


@pytest.fixture
def shop(tmp_path: Path) -> BrokerShop:
    path = tmp_path / "headgate.toml"
    path.write_text(ROUTED)
    return BrokerShop(path)


@pytest.fixture
def client(shop: BrokerShop) -> Iterator[httpx.Client]:
    yield from serving(shop)


@pytest.fixture
def guarded(shop: BrokerShop) -> Iterator[httpx.Client]:
    yield from serving(shop, TOKEN)


def test_pipelines_have_their_health(shop: BrokerShop, client: httpx.Client) -> None:
    reporter = shop.supervisor("plain").reporter
    reporter.status(Status.ERROR, DeliveryError("<script>alert(1)</script>", remedy="mend it"))
    page = client.get("/").text
    assert '<span class="pill bad">error</span>' in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert re.search(r'<b class="bad">1</b> errors', page)
    assert "headgate gateway" in page  # what to type next


def test_the_page_runs_nothing_but_its_own_script(client: httpx.Client) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "://" not in answer.text
    assert re.findall(r"<script[^>]*>[^<]", answer.text) == []
    assert " style=" not in answer.text
    assert " onclick=" not in answer.text
    for name, kind in (("dashboard.js", "text/javascript"), ("dashboard.css", "text/css")):
        assert client.get(f"/dashboard/static/{name}").headers["content-type"].startswith(kind)
    for name in ("pages.py", "..%2fpages.py", "%2e%2e/broker.sql"):
        assert client.get(f"/dashboard/static/{name}").status_code == 404


def test_every_panel_is_there_and_fetched_by_itself(client: httpx.Client) -> None:
    fragment = client.get("/dashboard/panels").text
    assert re.findall(r'data-panel="(\w+)"', fragment) == [panel.name for panel in PANELS]
    assert "<html" not in fragment


def test_the_broker_is_shown(shop: BrokerShop, client: httpx.Client, database: str) -> None:
    shop.found = Stores(broker_url=database)
    assert "headgate broker install" in client.get("/").text
    with psycopg.connect(database, autocommit=True, options="-c search_path=headgate") as db:
        install(db)
        db.execute("select subscribe('mailer'), subscribe('odd', '(e.payload ->> ''v'')::int > 3')")
        db.execute("select publish('user.<b>', '{\"v\": \"abc\"}'), publish('later', '1', due_at => now() + '1 hour')")
        db.execute("select poll_for_events()")
        db.execute("select bury_v1(1, 'h', array[(select max(id) from events)], 3, 'no <i>good</i>')")
        secret = "whsec_bm90IGZvciBleWVz"
        db.execute("select register_webhook_v1('crm', 'true', '{}', 'https://crm.example/t0ken', %s)", [secret])
    page = _fresh(shop)
    for text in ("mailer", "user.&lt;b&gt;", "no &lt;i&gt;good", "https://crm.example", "parked", "next in"):
        assert text in page, text
    for text in (secret, "t0ken", "<b>abc"):
        assert text not in page, text


def _fresh(shop: BrokerShop) -> str:
    for client in serving(shop):
        return client.get("/dashboard/panels").text
    raise AssertionError


def test_a_database_that_is_away_takes_only_its_panel(shop: BrokerShop, client: httpx.Client) -> None:
    shop.found = Stores(broker_url="postgres://me:s3cret@127.0.0.1:1/x")
    page = client.get("/").text
    assert "this cannot be shown now" in page
    assert "s3cret" not in page
    assert "plain" in page


def test_a_gateway_tells_its_trouble_when_its_tables_cannot_be_read(shop: BrokerShop, client: httpx.Client) -> None:
    shop.found = Stores(gateway_url="postgres://me:s3cret@127.0.0.1:1/x")
    shop.servers["gateway"] = {
        "status": "degraded", "advertised": "here:9092", "connections": 3, "error": None,
        "troubles": {"writer": "the connection <is> lost"},
    }  # fmt: skip
    page = client.get("/").text
    assert "writer does not work: the connection &lt;is&gt; lost" in page
    assert "this cannot be shown now" in page
    assert "There is no topic" not in page
    assert "s3cret" not in page


def test_the_token_is_traded_for_a_cookie_that_only_shows(guarded: httpx.Client) -> None:
    assert guarded.get("/").headers["location"] == "/login"
    assert guarded.get("/dashboard/panels").status_code == 401
    assert guarded.get("/dashboard/static/dashboard.css").status_code == 200
    assert "password" in guarded.get("/login").text
    for wrong in ({"token": "wrong"}, {}, {"token": "x" * 20_000}):
        assert guarded.post("/login", data=wrong).status_code == 401
    assert guarded.post("/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code == 403
    answer = guarded.post("/login", data={"token": TOKEN}, headers={"origin": str(guarded.base_url).rstrip("/")})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/").status_code == 200  # the client keeps the cookie
    assert guarded.get("/dashboard/panels").status_code == 200
    assert guarded.get("/status").status_code == 401
    assert guarded.post("/shutdown").status_code == 401
    kept = guarded.cookies["headgate"]
    guarded.post("/dashboard/logout")
    assert guarded.get("/").status_code == 303
    guarded.cookies.set("headgate", kept)  # as somebody who had copied it
    assert guarded.get("/").status_code == 303
    guarded.cookies.clear()
    assert guarded.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_who_guesses_has_to_wait(guarded: httpx.Client) -> None:
    """Whether at the login or with a header; until then not even the right token is looked at. Sessions go on."""
    guarded.post("/login", data={"token": TOKEN})
    session = guarded.cookies["headgate"]
    guarded.cookies.clear()
    wrong = [guarded.post("/login", data={"token": "wrong"}).status_code for _ in range(5)]
    wrong += [guarded.get("/status", headers={"authorization": "Bearer wrong"}).status_code for _ in range(5)]
    assert wrong == [401] * 10
    answer = guarded.get("/status", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert guarded.post("/login", data={"token": TOKEN}).status_code == 429
    assert guarded.get("/health").status_code == 200
    guarded.cookies.set("headgate", session)
    assert guarded.get("/").status_code == 200


def test_sessions_and_failures_end() -> None:
    now = 0.0
    sessions, attempts = Sessions(lambda: now), Attempts(lambda: now)
    first = sessions.begin()
    now = LIFETIME_S - 1.0
    others = [sessions.begin() for _ in range(999)]
    assert sessions.is_open(first)
    sessions.begin()
    assert not sessions.is_open(first)  # the oldest of too many
    now = 3.0 * LIFETIME_S
    assert not any(map(sessions.is_open, others))
    for _ in range(10):
        attempts.fail("a")
    assert attempts.wait_s("a") > 0
    assert attempts.wait_s("b") == 0
    now += 61
    assert attempts.wait_s("a") == 0
