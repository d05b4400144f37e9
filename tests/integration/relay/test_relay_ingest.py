"""From hosts to accepted events: what is honest comes through once and in order, what is a lie does not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from headgate.demo.network.liars import LIES
from headgate.demo.network.simulate import Network
from headgate.model import DeliveryError
from headgate.relay.options import HoldLimits
from headgate.relay.store import HostStatus
from headgate.relay.workers import ProcessJudge
from headgate.wire.atproto import Account, Kind, Reason, Sync
from tests.integration.relay.relay_follow import Sink, eventually, expected, following, run


@pytest.mark.parametrize("workers", [0, 2])
def test_the_honest_arrive_once_and_in_order_and_every_lie_is_dropped_for_its_reason(
    tmp_path: Path, workers: int
) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=3, accounts=9, seed=7, lies=0.05) as network:
            for name, lie in LIES.items():
                if lie.host is None:
                    network.lie(name)
            for _ in range(300):
                network.commit()
            async with following(network, tmp_path, sink, network.options(workers=workers)) as ingest:
                await sink.until(*network.honest)
                await ingest.intake.settled()
                assert sink.by_did() == expected(network)
                books = ingest.ledger.total
                assert books.balanced
                assert books.pending == books.held == 0
                dropped = Counter(
                    {reason: count for reason, count in books.dropped.items() if reason != "repeated_seq"}
                )
                wanted = Counter(str(told.reason) for told in network.lies)
                wanted["bad_cbor"] *= 2  # no frame at all: each ended a connection, and was passed over after that
                assert dropped == wanted
                assert all(book.balanced for book in ingest.ledger.hosts().values())
                assert all(accepted.blocks for accepted, _, _ in sink.events if accepted.frame.kind is Kind.COMMIT)

    run(test())


def test_an_event_of_another_host_is_dropped_and_the_account_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=2, accounts=2) as network, following(network, tmp_path, sink) as ingest:
            repo = network.repos[0]
            await sink.until(*network.honest)
            liar = network.hosts[1]
            network.hosts[0].hold()  # the lie comes first
            truth = network.lie("wrong_host", repo)
            await eventually(lambda: ingest.ledger.host(liar.name).dropped[Reason.WRONG_HOST] == 1)
            network.release()
            await sink.until(truth)
            drop = ingest.ledger.why(repo.did)[0]
            assert (drop.host, drop.seq, drop.reason, drop.kind) == (
                liar.name,
                liar.next_seq - 1,
                "wrong_host",
                "#commit",
            )

    run(test())


def test_a_host_that_restarts_is_resumed_where_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=3) as network, following(network, tmp_path, sink):
            host = network.hosts[0]
            await sink.until(*network.honest)
            for _ in range(3):
                await host.stop()
                for _ in range(5):
                    network.commit()
                await host.start()
                await sink.until(*network.honest)
            assert sink.by_did() == expected(network)
            assert host.cursors == ["0", "9", "14", "19"]

    run(test())


def test_a_relay_that_restarts_goes_on_after_the_last_event_that_was_safe(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=2, accounts=4) as network:
            first = Sink()
            async with following(network, tmp_path, first):
                await first.until(*network.honest)
            told = [network.commit() for _ in range(20)]
            second = Sink()
            async with following(network, tmp_path, second, crawl=False):
                await second.until(*told)
            assert sorted(second.numbers) == sorted((one.host, one.seq) for one in told)
            assert [len(host.cursors) for host in network.hosts] == [2, 2]

    run(test())


def test_no_cursor_and_no_row_is_kept_for_what_is_not_safe(tmp_path: Path) -> None:
    async def test() -> None:
        async with Network(hosts=1, accounts=2) as network:
            sink = Sink()
            host = network.hostnames[0]
            sink.error = DeliveryError("the disk is gone", remedy="")
            sink.gate.clear()
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(*network.honest)
                assert ingest.intake.cursor(host) == 0
                sink.gate.set()
                with pytest.raises(DeliveryError):
                    await ingest.intake.failed
                assert ingest.intake.cursor(host) == 0
            again = Sink()
            async with following(network, tmp_path, again, crawl=False) as ingest:
                await again.until(*network.honest)
                assert again.by_did() == expected(network)
                await ingest.intake.settled()
                assert ingest.intake.cursor(host) == network.honest[-1].seq

    run(test())


def test_events_are_held_while_the_directory_fails_and_come_out_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=2) as network:
            for _ in range(10):
                network.commit()
            network.directory.failing = 503
            async with following(network, tmp_path, sink) as ingest:
                host = ingest.ledger.host(network.hostnames[0])
                await eventually(lambda: host.held == len(network.honest))
                assert (sink.events, host.pending, host.balanced) == ([], host.received, True)
                assert ingest.intake.cursor(network.hostnames[0]) == 0
                network.directory.failing = None
                await sink.until(*network.honest)
                assert sink.by_did() == expected(network)
                assert host.held == 0

    run(test())


def test_events_of_an_account_that_nobody_knows_are_dropped(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=2) as network:
            lost, found = network.repos
            del network.directory.documents[lost.did]
            async with following(network, tmp_path, sink) as ingest:
                await sink.until(*(told for told in network.honest if told.did == found.did))
                await ingest.intake.settled()
                assert [drop.reason for drop in ingest.ledger.why(lost.did)] == ["unresolved"] * 3
                assert len(network.directory.requests) <= 5  # one answer serves the lane

    run(test())


def test_a_directory_that_never_answers_costs_the_event_not_the_host(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=1) as network:
            network.directory.failing = 503
            async with following(network, tmp_path, sink, network.options(hold_s=0.3)) as ingest:
                await eventually(lambda: ingest.ledger.total.dropped[Reason.UNRESOLVED] == 3)
                network.directory.failing = None
                await sink.until(network.commit())

    run(test())


def test_a_host_waits_when_too_much_of_it_is_held_and_others_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=2, accounts=2) as network:
            stuck, free = network.repos
            for _ in range(30):
                network.commit(stuck)
                network.commit(free)
            network.directory.failing_dids = {stuck.did}
            options = network.options(hold=HoldLimits(host_events=5, events=8))
            async with following(network, tmp_path, sink, options) as ingest:
                await sink.until(*(told for told in network.honest if told.did == free.did))
                book = ingest.ledger.host(stuck.host)
                await eventually(lambda: book.held == 5)
                assert book.received == 6  # five are held, and one waits at the door
                network.directory.failing_dids = set()
                await sink.until(*network.honest)
                assert sink.by_did() == expected(network)

    run(test())


def test_an_account_that_moves_is_followed_to_its_new_host(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=2, accounts=2) as network, following(network, tmp_path, sink) as ingest:
            repo, (old, new) = network.repos[0], network.hosts
            await sink.until(*network.honest)
            network.migrate(repo, new)
            moved = network.commit(repo)
            await sink.until(moved)
            await ingest.intake.settled()
            row = await ingest.store.get(repo.did)
            assert row is not None
            assert (row.host, row.rev) == (new.name, repo.rev)
            counts = {row.hostname: row.account_count for row in ingest.store.hosts()}
            assert counts == {old.name: 0, new.name: 2}
            old.append(repo.commit([], seq=old.next_seq, now_us=0))
            await eventually(lambda: ingest.ledger.host(old.name).dropped[Reason.WRONG_HOST] == 1)

    run(test())


def test_a_new_key_is_found_when_the_old_one_does_not_fit(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=2) as network, following(network, tmp_path, sink):
            repo, other = network.repos
            await sink.until(*network.honest)
            repo.key = other.key
            network.directory.documents[repo.did] = repo.document()
            await sink.until(network.commit(repo))

    run(test())


def test_a_gap_goes_out_as_sync_and_the_account_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=1) as network, following(network, tmp_path, sink) as ingest:
            repo = network.repos[0]
            await sink.until(*network.honest)
            network.lose(repo)
            gap = network.commit(repo)
            after = network.commit(repo)
            await sink.until(gap, after)
            kinds = [accepted.frame.kind for accepted, _, _ in sink.events[-2:]]
            assert kinds == [Kind.SYNC, Kind.COMMIT]
            sync = sink.events[-2][0].event
            assert isinstance(sync, Sync)
            await ingest.intake.settled()
            assert (ingest.ledger.total.resynced, ingest.ledger.total.dropped.total()) == (1, 0)

    run(test())


def test_without_resync_only_a_sync_of_the_host_mends_a_broken_chain(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with (
            Network(hosts=1, accounts=1) as network,
            following(network, tmp_path, sink, network.options(resync=False)) as ingest,
        ):
            repo = network.repos[0]
            await sink.until(*network.honest)
            network.lose(repo)
            broken = network.commit(repo)
            sync, after = network.sync(repo), network.commit(repo)
            await sink.until(sync, after)
            assert (broken.host, broken.seq) not in sink.numbers
            assert [drop.reason for drop in ingest.ledger.why(repo.did)] == ["chain_break"]

    run(test())


def test_an_account_that_is_not_active_is_silent(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=1) as network, following(network, tmp_path, sink) as ingest:
            repo = network.repos[0]
            network.account(repo, active=False, status="deactivated")
            silent = network.commit(repo)
            network.account(repo)
            back = network.sync(repo)
            await sink.until(back, network.commit(repo))
            assert (silent.host, silent.seq) not in sink.numbers
            assert [drop.reason for drop in ingest.ledger.why(repo.did)] == ["inactive"]

    run(test())


def test_a_takedown_silences_an_account_and_outlives_what_its_host_says(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=1) as network, following(network, tmp_path, sink) as ingest:
            repo = network.repos[0]
            await sink.until(*network.honest)
            assert await ingest.intake.set_local_status(repo.did, "takendown")
            network.commit(repo)
            said = network.account(repo)
            await sink.until(said)
            notes = [accepted.event for accepted, _, _ in sink.events if isinstance(accepted.event, Account)][1:]
            assert [(note.active, note.status) for note in notes] == [(False, "takendown")] * 2
            assert sink.numbers[-2] == ("", 0)
            assert await ingest.intake.set_local_status(repo.did, None)
            await sink.until(network.commit(repo))  # after a gap, so as #sync
            assert [drop.reason for drop in ingest.ledger.why(repo.did)] == ["taken_down"]
            assert not await ingest.intake.set_local_status("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "takendown")
            assert len(await ingest.store.list_accounts(taken_down=True)) == 1

    run(test())


def test_accounts_beyond_the_limit_of_their_host_are_not_taken(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with (
            Network(hosts=1, accounts=3) as network,
            following(network, tmp_path, sink, network.options(account_limit=2)) as ingest,
        ):
            host = network.hostnames[0]
            await eventually(lambda: ingest.ledger.total.received == 9)
            await ingest.intake.settled()
            assert ingest.ledger.total.dropped == {"host_throttled": 3}
            row = ingest.store.host(host)
            assert row is not None
            assert (row.status, row.account_count) == (HostStatus.THROTTLED, 2)
            row = await ingest.hosts.change_limits(host, account_limit=3, trusted=False)
            assert row.status is HostStatus.ACTIVE
            await sink.until(network.commit(network.repos[2]))

    run(test())


def test_a_worker_that_dies_is_replaced_and_asked_again(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with (
            Network(hosts=1, accounts=2) as network,
            following(network, tmp_path, sink, network.options(workers=1)) as ingest,
        ):
            await sink.until(*network.honest)
            judge = ingest.intake._judges[0]
            assert isinstance(judge, ProcessJudge)
            assert judge.pid is not None
            os.kill(judge.pid, signal.SIGKILL)
            for _ in range(50):
                network.commit()
            await sink.until(*network.honest)
            assert judge.restarts == 1
            assert sink.by_did() == expected(network)

    run(test())


def test_a_rate_waits_and_drops_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        sink = Sink()
        async with Network(hosts=1, accounts=1) as network:
            for _ in range(27):
                network.commit()
            loop = asyncio.get_running_loop()
            began = loop.time()
            async with following(network, tmp_path, sink, network.options(total_per_s=20.0)) as ingest:
                await sink.until(*network.honest)
                assert loop.time() - began >= 0.5  # twenty at once, ten more at twenty a second
                assert ingest.ledger.total.dropped.total() == 0

    run(test())
