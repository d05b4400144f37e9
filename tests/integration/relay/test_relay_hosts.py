"""Hosts: who is crawled, who rests and comes back, and the incidents that other relays have had."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.demo.network.host import SimulatedHost
from headgate.demo.network.simulate import Network
from headgate.relay.crawl import CrawlError
from headgate.relay.ingest import Ingest
from headgate.relay.options import HoldLimits, RelayOptions
from headgate.relay.store import HostRow, HostStatus
from headgate.wire.atproto import Reason, info_frame
from tests.integration.relay.relay_follow import Sink, eventually, expected, following, run

DAY_S = 86_400


def status_of(ingest: Ingest, name: str) -> HostStatus | None:
    row = ingest.store.host(name)
    return row.status if row is not None else None


def saved(ingest: Ingest, name: str) -> HostStatus | None:
    ingest.hosts.save_cursors()
    return status_of(ingest, name)


@pytest.mark.parametrize(
    "name",
    ["", "localhost/x", "10.0.0.1", "pds", "pds.example:8080", "pds.example/x", "a b.example", "[::1]", "x.localhost"],
)
def test_what_is_no_name_of_a_host_is_refused(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=0) as network, following(network, tmp_path, Sink()) as ingest:
            with pytest.raises(CrawlError, match="no name of a host") as refused:
                await ingest.hosts.request_crawl(name)
            assert refused.value.name == "InvalidRequest"

    run(test())


def test_a_host_gets_a_row_only_after_it_has_described_itself(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=0) as network:
            host = network.hosts[0]
            async with following(network, tmp_path, Sink(), crawl=False) as ingest:
                host.described = False
                with pytest.raises(CrawlError, match="does not describe itself"):
                    await ingest.hosts.request_crawl(host.name)
                host.described, host.server_header = True, "atproto-relay/1.0"
                with pytest.raises(CrawlError, match="is a relay"):
                    await ingest.hosts.request_crawl(host.name)
                await host.stop()
                with pytest.raises(CrawlError, match="cannot be reached"):
                    await ingest.hosts.request_crawl(host.name)
                assert ingest.store.hosts() == []
                await host.start()
                host.server_header = "pds"
                await ingest.hosts.request_crawl(host.name)
                assert status_of(ingest, host.name) is HostStatus.ACTIVE

    run(test())


def test_many_who_ask_for_one_host_cause_one_check(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=0) as network:
            host = network.hosts[0]
            async with following(network, tmp_path, Sink(), crawl=False) as ingest:
                await asyncio.gather(*(ingest.hosts.request_crawl(host.name) for _ in range(50)))
                await ingest.hosts.request_crawl(host.name)
                assert sum("describeServer" in path for path in host.requests) == 1

    run(test())


def test_private_addresses_are_not_dialled(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=0) as network:
            options = network.options(allow_private=False)
            async with following(network, tmp_path, Sink(), options, crawl=False) as ingest:
                with pytest.raises(CrawlError, match="no name of a host"):
                    await ingest.hosts.request_crawl(network.hostnames[0])
                ingest.store.put_host(
                    HostRow(network.hostnames[0])
                )  # were it known by mistake, it would not be dialled
                ingest.hosts.wake_dormant()
                await eventually(lambda: saved(ingest, network.hostnames[0]) is HostStatus.IDLE)
                assert network.hosts[0].requests == []

    run(test())


def test_bans_by_suffix_and_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=0) as network, following(network, tmp_path, Sink()) as ingest:
            first, second = network.hostnames
            await ingest.hosts.ban_host(first)
            with pytest.raises(CrawlError) as refused:
                await ingest.hosts.request_crawl(first)
            assert refused.value.name == "HostBanned"
            await ingest.hosts.ban_domain("Bad.Example")
            for name, banned in {"bad.example": True, "x.y.bad.example": True, "notbad.example": False}.items():
                assert ingest.store.is_banned(name) is banned
            with pytest.raises(CrawlError, match="banned"):
                await ingest.hosts.request_crawl("pds.bad.example")
            ingest.hosts.wake_dormant()
            assert not ingest.hosts.connected(first)
            await ingest.hosts.unban_host(first)
            await eventually(lambda: ingest.hosts.connected(first))
            await ingest.hosts.ban_domain("localhost")
            assert not ingest.hosts.connected(first)
            assert not ingest.hosts.connected(second)

    run(test())


def test_new_hosts_have_a_limit_per_day_that_operators_may_exceed(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=3, accounts=0) as network:
            options = network.options(new_hosts_per_day=1)
            async with following(network, tmp_path, Sink(), options, crawl=False) as ingest:
                first, second, third = network.hostnames
                await ingest.hosts.request_crawl(first)
                with pytest.raises(CrawlError, match="for today"):
                    await ingest.hosts.request_crawl(second)
                await ingest.hosts.request_crawl(third, by_operator=True)
                for name in (first, third):
                    ingest.store.change_host(name, added_at=int(time.time()) - DAY_S - 1)
                await ingest.hosts.request_crawl(second)

    run(test())


class OtherRelay(SimulatedHost):
    """A relay that lists hosts, two on a page."""

    def __init__(self, names: list[object]) -> None:
        super().__init__()
        self._entries = [{"hostname": name, "status": "active"} for name in names]

    def get(self, path: str, query: dict[str, str]) -> tuple[int, object]:
        start = int(query.get("cursor", "0"))
        page = {"hosts": self._entries[start : start + 2]}
        return 200, page | ({"cursor": str(start + 2)} if start + 2 < len(self._entries) else {})


def test_a_relay_begins_with_the_hosts_of_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=0) as network:
            other = OtherRelay([network.hostnames[0], "nobody home", 7, network.hostnames[1], "localhost:1"])
            await other.start()
            async with following(network, tmp_path, Sink(), crawl=False) as ingest:
                assert await ingest.hosts.bootstrap(other.url) == 2
                assert sorted(row.hostname for row in ingest.store.hosts()) == sorted(network.hostnames)
            await other.stop()

    run(test())


def test_hosts_that_fail_go_offline_and_are_never_stranded(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network:
            options = network.options(failures_until_offline=3, dormant_retry_s=0.05, backoff_s=(0.001, 0.01))
            sink, host = Sink(), network.hosts[0]
            async with following(network, tmp_path, sink, options) as ingest:
                await sink.until(*network.honest)
                await host.stop()
                await eventually(lambda: status_of(ingest, host.name) is HostStatus.OFFLINE)
                told = network.commit()
                await host.start()
                await sink.until(told)
                await eventually(lambda: saved(ingest, host.name) is HostStatus.ACTIVE)
                assert sink.by_did() == expected(network)

    run(test())


def test_the_cursor_of_a_host_that_was_away_for_long_is_discarded(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=2) as network:
            sink = Sink()
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(*network.honest)
                await ingest.intake.settled()
            old = network.hostnames[0]
            async with following(network, tmp_path, sink, crawl=False) as ingest:
                row = ingest.store.host(old)
                assert row is not None
                dormant = replace(row, last_seen=int(time.time()) - 30 * DAY_S)
                await ingest.hosts.ban_host(old)
                ingest.store.put_host(dormant)
                ingest.intake.track(old).last = 0  # as after a restart
                ingest.hosts.wake_dormant()
                await eventually(lambda: ingest.hosts.connected(old))
            assert network.hosts[0].cursors[-1] is None
            assert network.hosts[1].cursors[-1] == "3"

    run(test())


def test_a_host_that_counts_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=2) as network:
            sink, host = Sink(), network.hosts[0]
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(*network.honest)
                await host.stop()
                host.reset()
                await host.start()
                told = network.commit()
                await sink.until(told)
                await eventually(lambda: ingest.intake.cursor(host.name) == 1)
                assert host.cursors == ["0", "6", "0"]

    run(test())


def test_a_frame_that_is_none_ends_the_connection_once_and_is_then_passed_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network:
            sink, host = Sink(), network.hosts[0]
            host.append(b"\xff no frame")
            host.append(info_frame("OutdatedCursor"))
            host.append(b"\xa2\x61t\x66#later\x62op\x01\xa0")
            told = network.commit()
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(told)
                await ingest.intake.settled()
                book = ingest.ledger.host(host.name)
                assert (book.dropped[Reason.BAD_CBOR], book.ignored, book.balanced) == (2, 2, True)
                assert len(host.cursors) == 2

    run(test())


def test_a_host_that_says_nothing_is_pinged_and_kept(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network:
            sink, host = Sink(), network.hosts[0]
            async with following(network, tmp_path, sink, network.options(idle_timeout_s=0.05)) as ingest:
                await sink.until(*network.honest)
                await asyncio.sleep(0.3)  # silence is what this is about
                await sink.until(network.commit())
                assert ingest.hosts.connected(host.name)
                assert len(host.cursors) == 1

    run(test())


def test_a_host_that_asks_to_be_crawled_is_not_kept_waiting(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network:
            sink, host = Sink(), network.hosts[0]
            async with following(network, tmp_path, sink, network.options(backoff_s=(0.01, 900.0))) as ingest:
                await sink.until(*network.honest)
                await host.stop()
                upstream = ingest.hosts._upstreams[host.name]
                upstream.failures = 12  # the next pause is half a minute
                await eventually(lambda: not ingest.hosts.connected(host.name))
                upstream.failures = 12
                await host.start()
                told = network.commit()
                while (told.host, told.seq) not in sink.numbers:
                    await ingest.hosts.request_crawl(host.name)
                    await asyncio.sleep(0.01)

    run(test())


def test_hosts_of_a_trusted_domain_are_trusted(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=0) as network:
            name = network.hostnames[0]
            async with following(network, tmp_path, Sink(), network.options(trusted_domains=(name,))) as ingest:
                row = ingest.store.host(name)
                assert row is not None
                assert ingest.hosts.is_trusted(row)
                assert ingest.intake.accounts.limit(name) == 10_000_000
            async with following(network, tmp_path, Sink(), crawl=False) as ingest:  # the settings have changed
                assert not ingest.hosts.is_trusted(row)
                assert ingest.intake.accounts.limit(name) == 1_000_000

    run(test())


def test_trust_is_looked_at_anew_at_every_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=3) as network:
            name = network.hostnames[0]
            async with following(network, tmp_path, Sink(), network.options(account_limit=2)) as ingest:
                await eventually(lambda: ingest.ledger.total.received == 9)
                await ingest.intake.settled()
                row = ingest.store.host(name)
                assert row is not None
                assert row.status is HostStatus.THROTTLED
            trusting = network.options(account_limit=2, trusted_domains=("localhost",))
            sink = Sink()
            async with following(network, tmp_path, sink, trusting, crawl=False) as ingest:
                await sink.until(network.commit(network.repos[2]))
                row = ingest.store.host(name)
                assert row is not None
                assert row.status is not HostStatus.THROTTLED

    run(test())


@pytest.mark.parametrize(
    ("domain", "trusted"),
    [
        ("*.host.example", {"a.host.example", "a.b.host.example"}),
        (".host.example", {"a.host.example", "a.b.host.example"}),
        ("host.example", {"a.host.example", "a.b.host.example", "host.example"}),
        ("HOST.example.", {"a.host.example", "a.b.host.example", "host.example"}),
        ("", set()),
        ("*", set()),
    ],
)
def test_both_ways_to_write_a_domain(domain: str, trusted: set[str]) -> None:
    names = {"a.host.example", "a.b.host.example", "host.example", "nothost.example", "example", "x.example"}
    assert {name for name in names if RelayOptions(trusted_domains=(domain,)).trusts(name)} == trusted
    assert RelayOptions().trusts("morel.us-east.host.bsky.network")


def test_a_reader_that_is_stopped_while_it_waits_loses_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=1) as network:
            sink, host = Sink(), network.hosts[0]
            network.directory.failing = 503
            options = network.options(hold=HoldLimits(host_events=2))
            async with following(network, tmp_path, sink, options) as ingest:
                book = ingest.ledger.host(host.name)
                await eventually(lambda: book.received == 3)  # two are held, the third waits at the door
                await ingest.hosts.change_limits(host.name, account_limit=10, trusted=False)
                network.directory.failing = None
                await sink.until(*network.honest)
                await ingest.intake.settled()
                assert sink.by_did() == expected(network)
                assert ingest.intake.cursor(host.name) == network.honest[-1].seq
                assert book.balanced

    run(test())
