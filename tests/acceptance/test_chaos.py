"""Random transactions while all around the bridge is killed, restarted and cut: nothing lost, nothing repeated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import psycopg
import pytest

from headgate.embedded import Stack
from tests.acceptance.conftest import HEADGATE
from tests.cdc import (
    SERVER_SETTINGS,
    Chaos,
    Fold,
    Oracle,
    Proxy,
    Shop,
    Victim,
    Workload,
    WorkloadOptions,
    compare,
    crash,
    cut,
    end_walsender,
    identities,
    kill,
    restart,
)
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SLOT = "chaos"


def test_the_stream_folds_to_the_tables(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", postgres_settings=SERVER_SETTINGS, durable=False)
    with stack as endpoints:
        assert stack.postgres is not None
        assert stack.nats is not None
        url, nats_url = endpoints.postgres_url, endpoints.nats_url
        assert url is not None
        assert nats_url is not None
        shop = Shop("chaos")
        with psycopg.connect(url, autocommit=True) as admin:
            shop.create(admin)
            shop.publish(admin)
            shop.grant(admin)
            admin.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
        with Oracle(url, shop) as oracle, Proxy(stack.postgres.port) as proxy:
            reader_url = shop.reader_url(url, proxy.port)

            def start(*more: str) -> subprocess.Popen[bytes]:
                command = [HEADGATE, "bridge", "--slot", SLOT, "--pub", shop.publication, "--port", "0"]
                command += ["--postgres", reader_url, "--nats", nats_url, *more]
                with (tmp_path / "bridge.log").open("ab") as log:
                    return subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)

            options = WorkloadOptions(seed=3, workers=3, transactions=120, seconds=50, big_rows=100_000)
            with Victim(start) as bridge, Workload(url, shop, options) as work:
                faults = [
                    kill(bridge, weight=1),
                    end_walsender(url, SLOT, weight=2),
                    cut(proxy, weight=2),
                    restart(stack.postgres),
                    crash(stack.postgres),
                    crash(stack.nats),
                ]
                strikes = Chaos(seed=11, faults=faults, count=6, seconds=50, pause_s=(3, 7)).run()
                tally = work.wait()
                assert len(strikes) >= 4, strikes
                assert bridge.alive(), (tmp_path / "bridge.log").read_text()[-3000:]
            last = start("--once")
            assert last.wait(200) == 0, (tmp_path / "bridge.log").read_text()[-3000:]
            oracle.wait_for()
            assert oracle.compare() == []
        events = [msgspec.msgpack.decode(message.data) for message in read_stream(nats_url, "CDC", 1, 60)]
        with psycopg.connect(url, autocommit=True) as source:
            assert tally.unknown_to(source, shop) == set()
            fold = Fold(identities(source, shop.publication))
            fold.feed_all(events)
            assert compare(fold, source) == []
        assert fold.transactions >= len(tally.committed)
