"""franz-go's own tests of groups and transactions, in Go, against the gateway.

Each of its members reads what the one before has written, commits and writes on, while members come and go; every
message must arrive once, whatever assignor, protocol of groups or transactions is in use.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.gateways import gateway

__all__ = ["run"]

_MODULE, _VERSION = "github.com/twmb/franz-go", "v1.22.2"
_TESTS = ("TestGroupETL", "TestTxnEtl")
_RECORDS = 20_000
_PARTITIONS = 3
_TIMEOUT_S = 1500


def run(work: Path) -> int:
    """Run the tests one after the other; return the exit code."""
    if shutil.which("go") is None:
        raise SystemExit("go is missing: apt-get install golang")
    sources = _sources(work / "franz")
    failed = 0
    with gateway(work / "gateway-franz", default_partitions=_PARTITIONS) as servers:
        for name in _TESTS:
            failed |= _judge(sources, servers, name, work / "franz")
    return failed


def _sources(directory: Path) -> Path:
    """Where Go keeps the module, which has its tests."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text("module headgate/franz\n\ngo 1.24\n", encoding="utf-8")
    command = ["go", "mod", "download", "-json", f"{_MODULE}@{_VERSION}"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(f"Go cannot fetch {_MODULE}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return Path(json.loads(done.stdout)["Dir"])


def _judge(sources: Path, servers: str, name: str, directory: Path) -> int:
    environment = {
        **os.environ,
        "KGO_SEEDS": servers,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(_RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    command = ["go", "test", "./pkg/kgo", "-count=1", "-v", "-run", f"^{name}$", f"-timeout={_TIMEOUT_S}s"]
    with (directory / f"{name}.log").open("w", encoding="utf-8") as log:
        done = subprocess.run(command, cwd=sources, env=environment, stdout=log, stderr=log, check=False)
    found = re.findall(rf"--- (\w+): ({name}[^ ]*)", (directory / f"{name}.log").read_text(errors="replace"))
    for verdict, test in found or [("FAIL", name)]:
        sys.stdout.write(f"{test:60} {'passed' if verdict == 'PASS' else verdict}\n")
    sys.stdout.flush()
    return int(done.returncode != 0)
