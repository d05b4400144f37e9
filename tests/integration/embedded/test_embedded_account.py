"""Running as root, as an ordinary user, and where neither can write. Only root can set these scenes."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.embedded import PostgresServer, Stack
from headgate.embedded.cluster import find_postgres

from .clients import announced, owner, query

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv"),
]

NOBODY = pwd.getpwnam("nobody")
PLAIN_NOBODY = ("setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups")
READ_SEARCH = 1 << 2  # CAP_DAC_READ_SEARCH and nothing else
# The tests' own Python may lie where only root can go, so the ordinary user may look everywhere.
AS_NOBODY = (
    *PLAIN_NOBODY,
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
    "--securebits=+no_setuid_fixup",
)
START = "import sys; from headgate.embedded import Stack; Stack(sys.argv[1], nats=False).start()"


def server_status(data_dir: Path) -> dict[str, str]:
    pid = (data_dir / "postgres-18" / "postmaster.pid").read_text().partition("\n")[0]
    lines = Path("/proc", pid, "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that everybody can reach, unlike pytest's own."""
    path = Path("/tmp", f"headgate-test-{os.getpid()}")
    path.mkdir()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_root_gives_up_all_privileges_where_it_can(open_dir: Path) -> None:
    with Stack(open_dir / "stack", nats=False, durable=False) as endpoints:
        status = server_status(endpoints.data_dir)
        assert status["Uid"].split() == [str(NOBODY.pw_uid)] * 4
        assert status["Groups"] == ""
        postgres = find_postgres(18) / "bin" / "postgres"
        can_reach_it = subprocess.run([*PLAIN_NOBODY, postgres, "-V"], capture_output=True, check=False).returncode == 0
        assert int(status["CapEff"], 16) == (0 if can_reach_it else READ_SEARCH)


def test_below_a_directory_of_root_alone(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with Stack(closed / "stack", nats=False, durable=False) as endpoints:
        assert int(server_status(endpoints.data_dir)["CapEff"], 16) == READ_SEARCH
        query(endpoints.postgres_url, "create table t as select 1 as x")
        assert query(endpoints.postgres_tcp_url, "select x from t") == [(1,)]


def test_programs_below_a_directory_of_root_alone(tmp_path: Path, open_dir: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    wheel = find_postgres(18).parent
    shutil.copytree(wheel / "pginstall18", closed / wheel.name / "pginstall18")
    shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), closed / f"{wheel.name}.libs")
    (open_dir / "run").mkdir()
    installation = closed / wheel.name / "pginstall18"
    server = PostgresServer(open_dir / "postgres-18", open_dir / "run", installation=installation, durable=False)
    server.start()
    try:
        assert query(server.url, "select 1") == [(1,)]
    finally:
        server.stop()


def test_an_ordinary_user(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY.pw_uid, NOBODY.pw_gid)
    with owner(tmp_path / "stack", prefix=AS_NOBODY) as process:
        endpoints = announced(process)
        query(endpoints.postgres_url, "create table kept as select 42 as x")
        assert (tmp_path / "stack" / "lock").stat().st_uid == NOBODY.pw_uid
    assert process.returncode == 0


def test_root_goes_on_with_the_data_of_an_ordinary_user(tmp_path: Path) -> None:
    user = pwd.getpwnam("daemon")
    os.chown(tmp_path, user.pw_uid, user.pw_gid)
    as_user = [part.replace(str(NOBODY.pw_uid), str(user.pw_uid)) for part in AS_NOBODY]
    as_user[2] = f"--regid={user.pw_gid}"
    data_dir = tmp_path / "stack"
    with owner(data_dir, prefix=as_user) as process:
        query(announced(process).postgres_url, "create table kept as select 42 as x")
    with Stack(data_dir, nats=False, durable=False) as endpoints:
        assert query(endpoints.postgres_url, "select x from kept") == [(42,)]
        assert server_status(data_dir)["Uid"].split()[0] == str(user.pw_uid)


def test_data_that_root_copied_is_given_back(tmp_path: Path) -> None:
    with Stack(tmp_path / "a", nats=False, durable=False) as endpoints:
        query(endpoints.postgres_url, "create table kept as select 42 as x")
    shutil.copytree(tmp_path / "a" / "postgres-18", tmp_path / "b" / "postgres-18")
    assert (tmp_path / "b" / "postgres-18" / "base").stat().st_uid == 0
    with Stack(tmp_path / "b", nats=False, durable=False) as endpoints:
        assert query(endpoints.postgres_url, "select x from kept") == [(42,)]


def start_in(data_dir: Path, *prefix: str) -> str:
    """Try to start a stack by another process; the last lines of its complaint."""
    command = [*prefix, sys.executable, "-c", START, str(data_dir)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended
    return ended.stderr


def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    complaint = start_in(tmp_path / "stack", *AS_NOBODY)
    assert "StateError" in complaint
    assert "Permission denied" in complaint


def test_a_read_only_file_system(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
    complaint = start_in(tmp_path / "stack", "unshare", "--mount", "sh", "-c", mount, str(tmp_path))
    assert "StateError" in complaint
    assert "Read-only file system" in complaint


def test_root_of_a_container_with_no_other_user(tmp_path: Path) -> None:
    complaint = start_in(tmp_path / "stack", "unshare", "--user", "--map-root-user")
    assert "DependencyError" in complaint
    assert "refuses to run as root" in complaint
