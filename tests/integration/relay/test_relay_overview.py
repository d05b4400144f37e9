"""What the dashboard shows of a relay that follows a network with a liar: hosts, consumers, accounts and drops."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from headgate.demo.network.simulate import Network
from headgate.relay.ledger import Ledger
from headgate.relay.metrics import counters
from headgate.relay.overview import Overview
from headgate.relay.store import HostRow
from headgate.runtime.ending import end
from tests.integration.relay.relay_follow import eventually, run
from tests.integration.relay.relay_serving import Served, serving
from tests.integration.relay.test_relay_control import page

EVIL = "<svg/onload=alert(1)>"


def shown(served: Served, overview: Overview) -> tuple[dict[str, Any], str]:
    """What is told, as it comes out of the process; and the page that is made of it."""
    told = json.loads(json.dumps(overview.as_dict()))
    status = {"status": "running", "url": served.relay.url, "connections": 1,
              "counters": counters(served.relay.parts, served.relay.front.fanout.stats())}  # fmt: skip
    return told, page(status, {"overview": told})


def test_hosts_consumers_accounts_and_drops_are_shown(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=4) as network, serving(tmp_path, network) as served:
            overview = Overview(served.relay.parts, served.relay.front.consumers)
            liar, gone = network.repos[0], network.repos[1]
            network.lie("flipped_bit", liar)
            (lie,) = network.lies
            book = served.relay.parts.ledger.total
            await eventually(lambda: book.accepted >= len(network.honest) and book.pending == 0)
            await served.post("/admin/accounts/takedown", did=gone.did)
            reading = asyncio.create_task(overview.keep_reading())
            async with served.subscribe(f"?cursor=0&x={EVIL}"):
                await eventually(lambda: len(overview.as_dict()["consumers"]) == 1)
                await eventually(lambda: bool(overview.as_dict()["taken_down"]))
                await eventually(lambda: all(each["cursor"] for each in overview.as_dict()["hosts"]))
                told, html = shown(served, overview)
            await end(reading)
        by_name = {each["hostname"]: each for each in told["hosts"]}
        assert set(by_name) == set(network.hostnames)
        assert sum(each["dropped"].get(lie.reason, 0) for each in by_name.values()) == 1
        assert sum(each["accepted"] for each in by_name.values()) == len(network.honest)
        assert all(each["connected"] for each in by_name.values())
        assert told["account_count"] == 4
        assert told["taken_down"] == [{"did": gone.did, "host": gone.host, "status": "takendown"}]
        assert [(each["did"], each["reason"]) for each in told["drops"]] == [(liar.did, lie.reason)]
        assert lie.reason is not None
        for text in (*network.hostnames, lie.reason, "subscribeRepos?cursor=0", gone.did, "takendown", liar.did):
            assert text in html, text
        assert EVIL not in html

    run(test())


def test_of_thousands_of_hosts_the_busiest_are_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as served:
            for number in range(3000):
                served.relay.parts.store.put_host(HostRow(f"host{number}.example"))
            for _ in range(5):
                served.relay.parts.ledger.received(f"host{2999}.example")
            told = Overview(served.relay.parts, served.relay.front.consumers).as_dict()
        assert told["hosts"][0]["hostname"] == "host2999.example"
        assert (len(told["hosts"]), told["host_count"]) == (50, 3000)
        assert len(json.dumps(told)) < 50_000

    run(test())


def test_the_last_drop_of_each_account_comes_first() -> None:
    ledger = Ledger()
    for number, did in enumerate(("did:plc:a", "did:plc:b", "did:plc:a")):
        ledger.received("h")
        ledger.dropped("h", "bad", did=did, seq=number)
    assert [(each.did, each.seq) for each in ledger.newest_drops(5)] == [("did:plc:a", 2), ("did:plc:b", 1)]
    assert len(ledger.newest_drops(1)) == 1
