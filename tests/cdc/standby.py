"""A PostgreSQL server that follows another one, and can take over from it; and one that was restored from a copy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from headgate.embedded.postgres import PostgresServer
from tests.stock import STOCK_VERSION, StockPostgres

__all__ = ["copy_of", "cut_off", "promote", "standby_of", "two_hosts", "wait_for_replay"]


def standby_of(primary: PostgresServer, directory: Path, *, slot: str | None = None, **settings: str) -> PostgresServer:
    """A running standby. With `slot`, a physical slot on the primary, it also keeps the primary's failover slots."""
    directory.mkdir(parents=True, exist_ok=True)
    data, run = directory / "postgres", directory / "run"
    run.mkdir()
    program = primary.cluster.program("pg_basebackup")
    command = [str(program), "-d", primary.url, "-D", str(data), "-X", "stream", "-c", "fast"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (data / "standby.signal").touch()
    shutil.copy2(primary.passfile, data.with_name(f"{data.name}.passfile"))
    wanted = {"primary_conninfo": f"{_conninfo(primary.url)} application_name=standby"}
    if slot is not None:
        wanted |= {"primary_slot_name": slot, "hot_standby_feedback": "on", "sync_replication_slots": "on"}
    with (data / "postgresql.auto.conf").open("a") as file:  # where ALTER SYSTEM can change it
        file.writelines(f"{name} = '{value}'\n" for name, value in wanted.items())
    standby = _server(primary, data, run, settings)
    standby.start()
    return standby


def copy_of(server: PostgresServer, directory: Path) -> Path:
    """A copy of the data of a server that does not run: what somebody may restore later."""
    shutil.copytree(server.data, directory, symlinks=True)
    return directory


def promote(standby: PostgresServer) -> None:
    """Make it the primary; returns when it takes writes."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("select pg_promote(true, 60)")


def cut_off(standby: PostgresServer) -> None:
    """The standby hears no more of its primary."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("alter system set primary_conninfo = 'host=/nowhere'")
        connection.execute("select pg_reload_conf()")


def wait_for_replay(primary: psycopg.Connection[Any], timeout_s: int = 60) -> None:
    """Until every standby has replayed what the primary has written by now."""
    primary.execute(
        f"""do $$ begin
          for i in 1 .. {timeout_s * 20} loop
            if not exists (select from pg_stat_replication
                           where application_name = 'standby' and replay_lsn is distinct from pg_current_wal_lsn())
               and exists (select from pg_stat_replication where application_name = 'standby') then return; end if;
            perform pg_sleep(0.05);
            perform pg_stat_clear_snapshot();
          end loop;
          raise exception 'the standby does not follow';
        end $$""".encode()
    )


def two_hosts(first: PostgresServer, second: PostgresServer, user: str) -> str:
    """A connection string that leads to whichever of the two is the primary."""
    hosts, ports = zip(*(_place(server.url) for server in (first, second)), strict=True)
    return f"host={','.join(hosts)} port={','.join(ports)} dbname=headgate user={user}"


def _place(url: str) -> tuple[str, str]:
    given = psycopg.conninfo.conninfo_to_dict(url)
    return str(given["host"]), str(given["port"])


def _conninfo(url: str) -> str:
    host, port = _place(url)
    return f"host={host} port={port} user=headgate dbname=headgate"


def _server(primary: PostgresServer, data: Path, run: Path, settings: dict[str, str]) -> PostgresServer:
    if isinstance(primary, StockPostgres):
        return StockPostgres(data, run, settings=settings)
    assert primary.cluster.version != STOCK_VERSION
    return PostgresServer(data, run, version=primary.cluster.version, durable=False, settings=settings)
