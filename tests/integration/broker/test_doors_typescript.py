"""The client in TypeScript, which knows SQL and nothing of headgate."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import conninfo_to_dict

from headgate.embedded import Endpoints

EXAMPLE = Path(__file__).parents[3] / "examples" / "broker-ts"
MODULES = EXAMPLE / "node_modules"


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None or not (MODULES / "tsx").is_dir():
        pytest.skip("needs Node.js 20 and the packages of the example: (cd examples/broker-ts && npm install)")
    return found


def test_its_types_are_right(node: str) -> None:
    done = subprocess.run(
        [node, str(MODULES / "typescript" / "bin" / "tsc")], cwd=EXAMPLE, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_it_publishes_handles_and_tries_again(node: str, endpoints: Endpoints, database: str) -> None:
    assert endpoints.postgres_url is not None
    name = conninfo_to_dict(database)["dbname"]
    url = urlsplit(endpoints.postgres_url)._replace(path=f"/{name}").geturl()
    command = [node, "--import", "tsx", "demo.ts", url]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((each["hello"], each["attempt"]) for each in said) == [("ann", 1), ("bob", 2), ("cid", 1)]
