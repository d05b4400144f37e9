"""The dashboard over real HTTP: what it shows, to whom, and that it does nothing else."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from headgate.broker import install
from headgate.control.dashboard import Stores
from headgate.control.dashboard.sessions import LIFETIME_S, Attempts, Sessions
from headgate.control.dashboard.views import PAGES
from headgate.control.http import ControlServer
from headgate.embedded import Endpoints
from headgate.model import DeliveryError, Status
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter
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
    assert re.search(r'<span class="pill bad">.* error</span>', page)
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "mend it" in page
    assert re.search(r'<span class="bad">1<small> error', page)
    assert page.index(">plain</a>") < page.index(">p</a>")  # trouble comes first
    assert 'class="box bad"' in page
    assert "What to do next" in page


def test_the_page_runs_nothing_but_its_own_script(client: httpx.Client) -> None:
    for page in PAGES:
        answer = client.get(f"/dashboard{page.path.format(name='p')}" if page.path != "/" else "/")
        assert answer.status_code == 200, page.name
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "://" not in answer.text
        assert re.findall(r"<script[^>]*>[^<]", answer.text) == []
        assert " style=" not in answer.text
        assert " onclick=" not in answer.text
        assert "this cannot be shown" not in answer.text, page.name
    for name, kind in (("dashboard.js", "text/javascript"), ("dashboard.css", "text/css"), ("icon.svg", "image/svg")):
        assert client.get(f"/dashboard/static/{name}").headers["content-type"].startswith(kind)
    for name in ("pages.py", "..%2fpages.py", "%2e%2e/broker.sql"):
        assert client.get(f"/dashboard/static/{name}").status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/dashboard/pipelines/none", 404),
        ("/dashboard/live/pipelines/none", 404),
        ("/dashboard/dead-letters/none", 404),
        ("/dashboard/dead-letters/p/7", 404),
        ("/dashboard/dead-letters/p/x", 400),
        ("/dashboard/dead-letters/p?resaon=cap", 400),
        ("/dashboard/destinations?filtre=x", 400),
        ("/dashboard/destinations?page=99", 200),
        ("/dashboard/events?destination=none", 200),
    ],
)
def test_what_is_not_there_is_a_page_that_says_so(client: httpx.Client, path: str, status: int) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "</html>" in answer.text


def test_changes_are_told_once_and_streams_end_with_the_server(shop: BrokerShop) -> None:
    server = ControlServer(shop, "127.0.0.1", 0, None)
    server.start()
    reporter = shop.supervisor("plain").reporter
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("GET", "/dashboard/live/") as stream,
        client.stream("GET", "/dashboard/live/") as other,
    ):
        events, others = _events(stream), _events(other)
        first = next(events)
        assert set(first) == {part.name for part in PAGES[0].parts}
        assert next(others) == first
        assert server.dashboard.viewers == 2
        reporter.batch(rows=1234567, payload_bytes=5, duplicates=0, seconds=1.0)
        told = next(each for each in events if "pipelines" in each)
        assert "1,234,567" in told["pipelines"]
        assert "servers" not in told  # which has not changed
        other.close()
        _until(lambda: server.dashboard.viewers == 1)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 4


def _events(stream: httpx.Response) -> Iterator[dict[str, str]]:
    return (json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data: "))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_broker_is_shown(shop: BrokerShop, client: httpx.Client, database: str) -> None:
    shop.found = Stores(broker_url=database)
    assert "headgate broker install" in client.get("/dashboard/broker").text
    with psycopg.connect(database, autocommit=True, options="-c search_path=headgate") as db:
        install(db)
        db.execute("select subscribe('mailer'), subscribe('odd', '(e.payload ->> ''v'')::int > 3')")
        db.execute("select publish('user.<b>', '{\"v\": \"abc\"}'), publish('later', '1', due_at => now() + '1 hour')")
        db.execute("select poll_for_events()")
        db.execute("select bury_v1(1, 'h', array[(select max(id) from events)], 3, 'no <i>good</i>')")
        secret = "whsec_bm90IGZvciBleWVz"
        db.execute("select register_webhook_v1('crm', 'true', '{}', 'https://crm.example/t0ken', %s)", [secret])
    page = _fresh(shop)
    for text in ("mailer", "user.&lt;b&gt;", "no &lt;i&gt;good", "https://crm.example", "parked", "next in",
                 "Subscriptions", "(e.payload -&gt;&gt; &#39;v&#39;)::int &gt; 3", "matched"):  # fmt: skip
        assert text in page, text
    for text in (secret, "t0ken", "<b>abc"):
        assert text not in page, text


def _fresh(shop: BrokerShop) -> str:
    for client in serving(shop):
        return client.get("/dashboard/broker").text
    raise AssertionError


def test_a_database_that_is_away_takes_only_its_panel(shop: BrokerShop, client: httpx.Client) -> None:
    shop.found = Stores(broker_url="postgres://me:s3cret@127.0.0.1:1/x")
    page = client.get("/dashboard/broker").text
    assert "this cannot be shown now" in page
    assert "s3cret" not in page
    assert "plain" in client.get("/").text


def test_pages_that_wait_hold_up_no_one_but_pages(shop: BrokerShop, client: httpx.Client) -> None:
    release, entered = threading.Event(), threading.Event()

    def wait() -> Stores:
        entered.set()
        assert release.wait(60)
        return Stores()

    shop.stores = wait  # type: ignore[method-assign]
    with ThreadPoolExecutor(50) as pool:
        try:
            waiting = [pool.submit(httpx.get, f"{client.base_url}/dashboard/broker", timeout=60) for _ in range(50)]
            assert entered.wait(60)
            for _ in range(3):
                assert client.get("/pipelines/p").status_code == 200  # which needs a thread, too
            assert not any(each.done() for each in waiting)
        finally:
            release.set()
        assert {each.result().status_code for each in waiting} == {200}


def test_a_gateway_tells_its_trouble_when_its_tables_cannot_be_read(shop: BrokerShop, client: httpx.Client) -> None:
    shop.found = Stores(gateway_url="postgres://me:s3cret@127.0.0.1:1/x")
    shop.servers["gateway"] = {
        "status": "degraded", "advertised": "here:9092", "connections": 3, "error": None,
        "troubles": {"writer": "the connection <is> lost"},
    }  # fmt: skip
    page = client.get("/dashboard/gateway").text
    assert "writer does not work: the connection &lt;is&gt; lost" in page
    assert "this cannot be shown now" in page
    assert "There is no topic" not in page
    assert "s3cret" not in page


def test_the_token_is_traded_for_a_cookie_that_only_shows(guarded: httpx.Client) -> None:
    assert guarded.get("/").headers["location"] == "/login"
    assert guarded.get("/dashboard/live/").status_code == 401
    assert guarded.get("/dashboard/events?text=a").headers["location"] == "/login?back=%2Fdashboard%2Fevents%3Ftext%3Da"
    assert guarded.post("/dashboard/pipelines/p/pause").status_code == 401
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
    assert guarded.get("/dashboard/broker").status_code == 200
    assert guarded.get("/status").status_code == 401
    assert guarded.post("/shutdown").status_code == 401
    [(name, kept)] = guarded.cookies.items()
    assert guarded.post("/dashboard/logout").status_code == 403  # as a form of another page would
    guarded.post("/dashboard/logout", data={"form_secret": _secret(guarded)})
    assert guarded.get("/").status_code == 303
    guarded.cookies.set(name, kept)  # as somebody who had copied it
    assert guarded.get("/").status_code == 303
    guarded.cookies.clear()
    assert guarded.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def _secret(client: httpx.Client) -> str:
    found = re.search(r'name="form_secret" value="([^"]+)"', client.get("/").text)
    assert found is not None
    return found[1]


def test_buttons_need_the_session_and_its_secret(shop: BrokerShop, guarded: httpx.Client) -> None:
    paused = shop.supervisor("p")._pause
    guarded.post("/login", data={"token": TOKEN})
    secret, url = _secret(guarded), "/dashboard/pipelines/p/pause"
    assert guarded.get(url).status_code in (404, 405)
    for form in ({}, {"form_secret": "wrong"}, {"form_secret": ""}):
        assert guarded.post(url, data=form).status_code == 403
    good = {"form_secret": secret, "back": "/dashboard/pipelines/p"}
    assert guarded.post(url, data=good, headers={"origin": "http://evil.example"}).status_code == 403
    assert guarded.post(url, data=good | {"al": "yes"}).status_code == 400
    assert not paused.is_set()
    answer = guarded.post(url, data=good)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/pipelines/p")
    assert paused.is_set()
    assert "pause of p was ordered" in guarded.get("/").text
    assert "pause of p was ordered" not in guarded.get("/").text  # told once
    for back in ("//evil.example", "https://evil.example/", "/\\evil.example", "/dashboard/\r\nx: y"):
        assert guarded.post(url, data=good | {"back": back}).headers["location"] == "/"
    assert guarded.post("/dashboard/pipelines/p/explode", data=good).status_code == 404
    guarded.cookies.clear()
    assert guarded.post(url, data=good).status_code == 401
    own = {"authorization": f"Bearer {TOKEN}"}  # which opens the HTTP interface; a form it has none
    assert guarded.post(url, data=good, headers=own).status_code == 403


def test_without_a_token_the_pages_only_show(shop: BrokerShop, client: httpx.Client) -> None:
    page = client.get("/dashboard/explain").text
    assert "read-only" in page
    found = re.search(r'name="form_secret" value="([^"]+)"', page)
    assert found is not None
    answer = client.post("/dashboard/pipelines/p/pause", data={"form_secret": found[1]})
    assert answer.status_code == 403
    assert "set control.token" in answer.text
    assert not shop.supervisor("p")._pause.is_set()
    assert "<button>Pause" not in client.get("/").text


def test_a_purge_that_names_nothing_purges_nothing(shop: BrokerShop, guarded: httpx.Client) -> None:
    store = shop.supervisor("p").spec.dead_letters
    assert store is not None
    letters = [
        DeadLetter(f"id-{n}", "memory", Address("", "<i>t</i>"), "cap", str(n), b'{"a": "\\ud800<b>"}')
        for n in range(3)
    ]
    store.add(letters)
    guarded.post("/login", data={"token": TOKEN})
    listed = guarded.get("/dashboard/dead-letters/p?reason=cap").text
    assert "&lt;i&gt;t" in listed
    assert guarded.get("/dashboard/dead-letters/p?reason=other").text.count("<tr>") == 0
    assert "&lt;b&gt;" in guarded.get("/dashboard/dead-letters/p/1").text
    url, good = "/dashboard/pipelines/p/purge", {"form_secret": _secret(guarded), "back": "/dashboard/dead-letters"}
    for nothing in ({}, {"reason": ""}, {"number": ""}, {"all": "no"}, {"number": "1", "reason": "cap"}):
        guarded.post(url, data=good | nothing)
        assert store.counts() == {"cap": 3}
        assert "which dead letters?" in guarded.get("/").text
    guarded.post(url, data=good | {"number": "1"})
    assert store.counts() == {"cap": 2}
    guarded.post(url, data=good | {"reason": "cap"})
    assert store.counts() == {}


def test_who_guesses_has_to_wait(guarded: httpx.Client) -> None:
    """Whether at the login or with a header; until then not even the right token is looked at. Sessions go on."""
    guarded.post("/login", data={"token": TOKEN})
    [(name, session)] = guarded.cookies.items()
    guarded.cookies.clear()
    wrong = [guarded.post("/login", data={"token": "wrong"}).status_code for _ in range(5)]
    wrong += [guarded.get("/status", headers={"authorization": "Bearer wrong"}).status_code for _ in range(5)]
    assert wrong == [401] * 10
    answer = guarded.get("/status", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert guarded.post("/login", data={"token": TOKEN}).status_code == 429
    assert guarded.get("/health").status_code == 200
    guarded.cookies.set(name, session)
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
