"""The dashboard in a real browser: Debian's chromium, on pages of pipelines that run.

One service, one browser and one login for all of them. Whatever a page says on its console fails the test that saw it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from pyspark.sql import SparkSession

from headgate.broker import install
from headgate.control.dashboard import Stores
from headgate.control.http import ControlServer
from headgate.destinations.nats import JetStream, NatsDestination
from headgate.embedded import Endpoints
from tests.gateway.servers import GatewayThread, new_database, running

from .conftest import Shop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TOKEN = "s3cret-of-the-browser"
EVIL = "<svg/onload=alert(1)>"
EVIL_SUBJECT = "<svg/onload=alert(1)//"  # NATS takes neither a blank nor >; a browser would take this, too
GROUP = "readers <svg/onload=alert(1)>"
EVIL_TABLE = '"><img src=x onerror=alert(1)>'
WAIT_MS = 60_000  # the machine may be busy
NARROW = 'mode = "allowlist"\nallowlist = [{ topic = "browser.orders" }]'
FILE = """
[project]
data_dir = "data"

[sources.rows]
type = "postgres-poll"
url = "{postgres}"
table = '''"{table}"'''
tracking_column = "id"

[sources.others]
type = "random"
rows_per_second = 0
rows = 10

[destinations.events]
type = "nats"
url = "{nats}"
stream = "BROWSER"
subjects = ["browser.>"]

[destinations.kept]
type = "memory"

[pipelines.shop]
source = "rows"
destinations = ["events", "kept"]

[pipelines.shop.routing]
topic_column = "topic"
default_topic = "browser.orders"

[pipelines.shop.routing.admission]
{admission}
on_admission_failure = "dlq"

[pipelines.broken]
source = "others"
destinations = ["kept"]
topic = "t"
"""


# As a relay tells them that has met somebody who names things.
COUNTERS: dict[str, Any] = {
    "received": 5, "accepted": 3, "held": 0, "seq": 3, "unverified_fraction": 0.0, "hosts": {"active": 1},
    "dropped": {EVIL: 2}, "warnings": {EVIL_TABLE: 1}, "latest": [{"seq": 3, "did": EVIL, "says": EVIL_TABLE}],
}  # fmt: skip
OVERVIEW: dict[str, Any] = {
    "hosts": [{"hostname": EVIL_TABLE, "status": "active", "connected": True, "cursor": 9, "accounts": 2,
               "failures": 1, "last_seen": 1e9, "received": 5, "accepted": 3, "pending": 0, "dropped": {EVIL: 2}}],
    "host_count": 1,
    "consumers": [{"number": 1, "address": "127.0.0.1", "path": "/subscribe", "query": EVIL, "since": 1e9,
                   "waiting_bytes": 7}],
    "consumer_count": 1,
    "account_count": 2,
    "taken_down": [{"did": EVIL, "host": EVIL_TABLE, "status": "takendown"}],
    "drops": [{"at": 1e9, "did": EVIL, "host": EVIL, "seq": 1, "kind": "#commit", "reason": EVIL, "detail": EVIL}],
}  # fmt: skip


class LookedAt(Shop):
    """A shop with a gateway, a broker and a relay, and a snapshot; names in all of them are hostile."""

    found = Stores()

    def stores(self) -> Stores:
        return self.found

    def status(self) -> dict[str, Any]:
        server = {"status": "running", "url": "http://127.0.0.1:1", "advertised": "127.0.0.1:1", "connections": 1,
                  "restarts_total": 0, "error": None, "troubles": {}}  # fmt: skip
        return super().status() | {"gateway": server, "relay": server | {"counters": COUNTERS}}

    def relay_metrics(self) -> dict[str, Any] | None:
        return {"overview": OVERVIEW}

    def snapshots(self) -> list[dict[str, Any]]:
        return [
            {"pipeline": "shop", "id": "s1", "schema": "public", "table": EVIL_TABLE, "method": "export",
             "state": "running", "rows": 50, "chunks": 1, "percent": 50.0, "rows_per_second": 10.0,
             "requested_at": 1e9, "error": None},
        ]  # fmt: skip


@dataclass
class World:
    """The service, and what the tests do to it."""

    shop: Shop
    url: str
    database: str
    template: Callable[[str], str]
    said: list[str] = field(default_factory=list)  # on consoles

    def insert(self, count: int, topic: str = "browser.orders", note: str = "hello") -> None:
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(
                b"insert into %b (topic, note) select %%s, %%s from generate_series(1, %%s)" % _quoted(EVIL_TABLE),
                [topic, note, count],
            )

    def delivered(self) -> int:
        return self.shop.supervisor("shop").report.rows_total

    @property
    def letters(self) -> dict[str, int]:
        store = self.shop.supervisor("shop").spec.dead_letters
        assert store is not None
        return store.counts()


def _quoted(name: str) -> bytes:
    return b'"%b"' % name.replace('"', '""').encode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, endpoints: Endpoints, spark: SparkSession) -> Iterator[World]:
    if CHROMIUM is None:
        pytest.skip("there is no browser: apt-get install chromium")
    directory = tmp_path_factory.mktemp("browser")
    assert endpoints.postgres_url is not None
    with new_database(endpoints.postgres_url) as database:
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                b"create table %b (id bigint generated always as identity primary key, topic text, note text)"
                % _quoted(EVIL_TABLE)
            )

        def template(admission: str) -> str:
            table = EVIL_TABLE.replace('"', '""')
            return FILE.format(postgres=database, nats=endpoints.nats_url, table=table, admission=admission)

        (directory / "headgate.toml").write_text(template(NARROW))
        old = directory / "data" / "pipelines" / "broken"
        old.mkdir(parents=True)
        (old / "state.json").write_text('{"version": 99}')
        shop = LookedAt(directory / "headgate.toml", spark)
        shop.found = Stores(gateway_url=database, broker_url=database)
        with psycopg.connect(database, autocommit=True) as connection:
            install(connection)
            connection.execute("set search_path to headgate")
            connection.execute("select subscribe(%s)", [EVIL])
            connection.execute("select publish(%s, to_jsonb(%s::text)), poll_for_events()", [EVIL, EVIL_TABLE])
        server = ControlServer(shop, "127.0.0.1", 0, TOKEN)
        server.start()
        for supervisor in shop.supervisors:
            supervisor.start()
        world = World(shop, server.url, database, template)
        world.insert(3)
        yield world
        server.stop()
        for supervisor in shop.supervisors:
            supervisor.stop()
        assert all(supervisor.join(60) for supervisor in shop.supervisors)


@pytest.fixture(scope="module")
def gateway(world: World) -> Iterator[GatewayThread]:
    """A gateway with a topic whose messages are hostile, and a group that reads it."""
    with running(world.database) as started:
        servers = {"bootstrap.servers": started.bootstrap}
        admin = AdminClient({**servers})
        admin.create_topics([NewTopic("browsed", 2, 1)])["browsed"].result(60)
        producer = Producer({**servers})
        producer.produce("browsed", EVIL_TABLE, EVIL, 0, headers=[(EVIL, EVIL_TABLE.encode())])
        assert producer.flush(60) == 0
        consumer = Consumer(
            {**servers, "group.id": GROUP, "client.id": EVIL, "auto.offset.reset": "earliest",
             "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe(["browsed"])
        message = consumer.poll(60)
        assert message is not None
        consumer.commit(message=message, asynchronous=False)
        yield started
        consumer.close()


@pytest.fixture(scope="module")
def browser(world: World) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs what containers do not give; the pages are ours.
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module")
def logged_in(world: World, browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=world.url)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.goto("/dashboard/destinations")
    page.get_by_label("The token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/dashboard/destinations")  # where one wanted to go
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(world: World, logged_in: BrowserContext) -> Iterator[Page]:
    page = logged_in.new_page()
    page.on("console", lambda message: world.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: world.said.append(str(error)))
    page.on("dialog", lambda dialog: world.said.append(f"dialog: {dialog.message}"))
    yield page
    page.close()
    said = world.said[:]
    world.said.clear()
    assert said == []


def _row(page: Page, name: str) -> Any:
    return page.locator(f"#part-pipelines tr[data-key='{name}']")


def _shows_rows(page: Page, name: str, least: int) -> None:
    """Wait until the table says that so many rows were delivered, or more: other tests' rows may still be coming."""
    page.wait_for_function(
        """([name, least]) => {
            const cell = document.querySelector(`#part-pipelines tr[data-key='${name}'] td:nth-child(6)`);
            return Number(cell.firstChild.textContent.replaceAll(",", "")) >= least;
        }""",
        arg=[name, least],
    )


def test_numbers_move_when_rows_are_inserted(world: World, page: Page) -> None:
    page.goto("/")
    expect(page.locator("#state")).to_have_text("live", timeout=WAIT_MS)
    _shows_rows(page, "shop", 3)
    before = world.delivered()
    world.insert(1000)
    _shows_rows(page, "shop", before + 1000)
    expect(page.locator(".flow .box .name", has_text="events")).to_be_visible()
    broken = _row(page, "broken")
    expect(broken).to_contain_text("error")
    expect(broken).to_contain_text("Try:")


def test_an_update_leaves_what_somebody_has_opened_and_typed(world: World, page: Page) -> None:
    page.goto("/dashboard/events?destination=events")
    first = page.locator(".messages details").first
    first.locator("summary").click()
    opened = page.locator(".messages details[open]")
    expect(opened.locator("pre")).to_contain_text("hello")
    kept = page.locator(".messages li:has(details[open])").get_attribute("data-key")
    page.get_by_label("Containing").fill("half typed")
    updates = int(page.locator("body").get_attribute("data-updates") or 0)
    world.insert(5)
    page.wait_for_function("n => Number(document.body.dataset.updates || 0) > n", arg=updates)
    page.wait_for_function("k => document.querySelector('.messages li').dataset.key !== k", arg=kept)
    expect(opened).to_have_count(1)
    assert page.locator(".messages li:has(details[open])").get_attribute("data-key") == kept
    expect(page.get_by_label("Containing")).to_have_value("half typed")


def test_a_pipeline_is_paused_and_resumed(world: World, page: Page) -> None:
    page.goto("/")
    row = _row(page, "shop")
    row.get_by_role("button", name="Pause").click()
    expect(page.locator(".told")).to_contain_text("pause of shop was ordered")
    expect(row.locator(".pill")).to_contain_text("paused", timeout=WAIT_MS)
    before = world.delivered()
    world.insert(1)
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".pill")).to_contain_text("running", timeout=WAIT_MS)
    _shows_rows(page, "shop", before + 1)
    row.get_by_role("link", name="shop").click()
    expect(page.locator("#part-states")).to_contain_text("paused")
    expect(page.locator("#part-batches svg.phases").first).to_be_visible()


def test_dead_letters_are_looked_at_replayed_and_purged_and_stay_text(world: World, page: Page) -> None:
    world.insert(2, f"browser.{EVIL}", EVIL_TABLE)
    world.insert(1, "browser.unwanted")
    page.goto("/dashboard/dead-letters")
    expect(page.locator("#part-letters tr[data-key=shop] .n")).to_have_text("3", timeout=WAIT_MS)
    page.get_by_role("link", name="shop").click()
    expect(page.get_by_role("table")).to_contain_text(EVIL)
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.locator("pre")).to_contain_text("<img src=x")
    page.get_by_role("link", name="Explain where").click()
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".explained")).to_contain_text("refused: invalid_name", timeout=WAIT_MS)
    expect(page.locator(".explained")).to_contain_text(EVIL)

    world.shop.path.write_text(world.template('mode = "open"'))
    world.shop.control().reload()
    page.goto("/dashboard/dead-letters/shop?topic=browser.unwanted")
    page.locator("tbody a").click()
    page.get_by_role("button", name="Send it on").click()
    expect(page.locator(".told")).to_contain_text("1 dead letters of shop were sent on", timeout=WAIT_MS)
    page.get_by_text("Throw away …").click()
    page.get_by_role("button", name="Throw away all of shop: 2").click()
    expect(page.locator(".told")).to_contain_text("2 dead letters of shop were thrown away")
    assert world.letters == {}


def test_hostile_names_headers_and_values_stay_text(world: World, page: Page) -> None:
    destination = world.shop.control().destination("events")
    assert isinstance(destination, NatsDestination)
    with JetStream.open(destination.options) as jetstream:
        jetstream.publish(f"browser.{EVIL_SUBJECT}", EVIL_TABLE.encode(), (("X-Evil", EVIL),))
        jetstream.publish("browser.bytes", b"\xff\xfe\x00" * 9)
    page.goto("/dashboard/events?destination=events")
    message = page.locator(".messages li", has_text="onload").first
    message.locator("summary").click()
    expect(message.locator("dl")).to_contain_text(EVIL)
    expect(message.locator("pre")).to_have_text(re.compile(re.escape(EVIL_TABLE)))
    expect(page.locator(".messages")).to_contain_text("ff fe 00")
    page.goto("/dashboard/snapshots")
    expect(page.locator("th[scope=row]")).to_contain_text(EVIL_TABLE)
    for path in ("/", "/dashboard/pipelines/shop", "/dashboard/destinations"):
        page.goto(path)
        expect(page.locator("#state")).to_have_text("live", timeout=WAIT_MS)
    assert page.locator("main img, svg[onload]").count() == 0


def test_messages_of_a_topic_are_browsed_and_one_is_produced(world: World, page: Page, gateway: GatewayThread) -> None:
    page.goto("/dashboard/gateway")
    page.get_by_role("link", name="browsed").click()
    message = page.locator(".messages li").first
    message.locator("summary").click()
    expect(message.locator("pre")).to_have_text(EVIL_TABLE)
    expect(message.locator("dl")).to_contain_text(EVIL)
    page.get_by_text("Produce a message …").click()
    page.get_by_label("Key", exact=True).fill("by hand")
    page.get_by_label("Headers").fill(f"note: {EVIL}")
    page.get_by_label("Value", exact=True).fill('{"made": "here"}')
    page.get_by_role("button", name="Produce to browsed").click()
    expect(page.locator(".told")).to_contain_text("one message was written to browsed")
    made = page.locator(".messages li", has_text="by hand")  # the page brings it by itself
    expect(made).to_have_count(1, timeout=WAIT_MS)
    made.locator("summary").click()
    expect(made.locator("pre")).to_contain_text('"made": "here"')
    page.get_by_label("Shown as").select_option("hex")
    page.get_by_label("Containing").fill("7b 22 6d")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".messages li")).to_have_count(1, timeout=WAIT_MS)
    page.get_by_text("Settings, 0 of them set").click()
    expect(page.locator("#part-topic")).to_contain_text("retention.ms")


def test_a_group_shows_its_members_and_the_lag_of_each_partition(
    world: World, page: Page, gateway: GatewayThread
) -> None:
    page.goto("/dashboard/gateway")
    page.get_by_role("link", name=GROUP).click()
    members = page.get_by_role("group", name="Table: members")
    expect(members).to_contain_text(EVIL)
    expect(members).to_contain_text("browsed:0, browsed:1")
    lag = page.get_by_role("group", name="Table: lag by partition").locator("tbody tr")
    expect(lag.locator("td").nth(1)).to_have_text("1")  # committed


def test_what_servers_tell_stays_text(world: World, page: Page, gateway: GatewayThread) -> None:
    for path, texts in (
        ("gateway", (GROUP,)),
        (f"gateway/group?name={quote(GROUP)}", (EVIL,)),
        (f"gateway/topic?name=browsed&text={quote(EVIL)}", (EVIL,)),
        (f"gateway/topic?name={quote(EVIL_TABLE)}", ("There is no such topic",)),
        ("broker", (EVIL, EVIL_TABLE)),
        ("relay", (EVIL, EVIL_TABLE)),
    ):
        page.goto(f"/dashboard/{path}")
        for text in texts:
            expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("#state")).to_have_text("live", timeout=WAIT_MS)
        assert page.locator("main img, main svg[onload]").count() == 0, path
    assert "this cannot be shown" not in page.content()


def test_a_wrong_token_and_a_foreign_host_are_refused(world: World, browser: Browser) -> None:
    context = browser.new_context(base_url=world.url)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("The token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.goto("/dashboard/dead-letters/shop")
    assert "/login?back=" in page.url
    assert (
        httpx.post(f"{world.url}/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code
        == 403
    )
    server = ControlServer(world.shop, "127.0.0.1", 0, None)  # without a token a name may be anybody's
    server.start()
    try:
        for path in ("/", "/dashboard/live/", "/dashboard/events"):
            answer = page.goto(server.url.replace("127.0.0.1", "evil.example") + path)
            assert answer is not None
            assert (answer.status, "not to names" in page.content()) == (403, True)
    finally:
        server.stop()
        context.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, which looks for what people with other needs stumble over."""
    if not shutil.which("npm"):
        pytest.skip("axe-core cannot be had: npm is not on the PATH")
    directory = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "axe-core@4"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        pytest.skip(f"axe-core cannot be had: {done.stderr[-300:]}")
    return (directory / "node_modules" / "axe-core" / "axe.min.js").read_text()


PATHS = (
    "/", "/dashboard/pipelines/shop", "/dashboard/pipelines/broken", "/dashboard/destinations", "/dashboard/events",
    "/dashboard/dead-letters", "/dashboard/dead-letters/shop", "/dashboard/snapshots", "/dashboard/explain",
    "/dashboard/gateway", "/dashboard/gateway/topic?name=browsed", f"/dashboard/gateway/group?name={quote(GROUP)}",
    "/dashboard/gateway/topic?name=none", "/dashboard/broker", "/dashboard/relay", "/dashboard/pipelines/none",
)  # fmt: skip


def test_everybody_can_use_every_page(
    world: World, logged_in: BrowserContext, gateway: GatewayThread, axe: str
) -> None:
    page = logged_in.new_page()
    found = []
    for path in PATHS:
        page.goto(path)
        page.evaluate(axe)
        for scheme, width in (("light", 1280), ("dark", 360)):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
            page.set_viewport_size({"width": width, "height": 800})
            said = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [
                (path, scheme, each["id"], each["nodes"][0]["html"][:200])
                for each in said["violations"]
                if each["impact"] in ("serious", "critical")
            ]
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found += [(path, scheme, "wider than the screen", str(wide))] if wide > 0 else []
    page.close()
    assert "\n".join(map(str, found)) == ""
