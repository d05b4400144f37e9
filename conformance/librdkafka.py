"""librdkafka's own test suite, which its npm package carries, one test after the other.

`librdkafka_passing.txt` names the tests that pass; one of them failing fails the run, and the list may only grow.
`librdkafka_failing.txt` says of every other test why it does not pass.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from conformance import kafka_topics
from conformance.gateways import gateway

PACKAGE = "@confluentinc/kafka-javascript"
BROKER_VERSION = "4.0.0.0"
HERE = Path(__file__).parent
PASSING, FAILING = HERE / "librdkafka_passing.txt", HERE / "librdkafka_failing.txt"
# A test for the share groups of Kafka 4.2, or one that people run by hand, is not started.
_TEST = re.compile(r"_TEST\((\w+),\s*([^)]*?)[,)]([^;]*?)(?=_TEST\(|\{NULL)", re.DOTALL)
_HEADERS = ("openssl/ssl.h", "zlib.h", "rapidjson/document.h")
_INCLUDED = (Path("/usr/include"), Path("/usr/local/include"))
_TIMEOUT_S = 180.0
_FULL = {"0082_fetch_max_bytes"}  # has no quick form
_MAKE_ACLS = {"0081_admin", "0109_auto_create_topics", "0115_producer_auth", "0119_consumer_auth"}
_TRIES = 2  # several tests depend on the machine's pace


@dataclass(frozen=True, slots=True)
class Test:
    name: str
    is_local: bool  # needs no server: it judges the client alone
    scenario: str = "default"


@dataclass(frozen=True, slots=True)
class Outcome:
    test: Test
    passed: bool
    why: str = ""
    seconds: float = 0.0


def run(work: Path, *, only: str | None, update: bool) -> int:
    """Returns the exit code: 0 unless a test that once passed fails."""
    suite = _built(work)
    chosen = [test for test in _tests(suite) if not test.is_local and (only is None or only in test.name)]
    outcomes = list(_outcomes(suite, work, chosen))
    passing, known = _names(PASSING), _reasons(FAILING)
    passed = {outcome.test.name for outcome in outcomes if outcome.passed}
    ran = {outcome.test.name for outcome in outcomes}
    broken = sorted((passing & ran) - passed)
    _say(f"{len(passed)} of {len(outcomes)} tests passed; {len(passing)} are on the list")
    for name in sorted(passed - passing):
        _say(f"new: {name} passes")
    for name in sorted(ran - passed - passing - known.keys()):
        _say(f"not explained in {FAILING.name}: {name}")
    for name in broken:
        _say(f"BROKEN: {name} was passing")
    if update:
        _write_names(PASSING, passing | passed)
    return 1 if broken else 0


def _check_tools() -> None:
    """The suite is built without a header that is missing, and two of its tests fail then."""
    missing = [tool for tool in ("npm", "make", "g++") if shutil.which(tool) is None]
    missing += [header for header in _HEADERS if not any((root / header).exists() for root in _INCLUDED)]
    if missing:
        wanted = "npm make g++ libssl-dev zlib1g-dev rapidjson-dev"
        raise SystemExit(f"{', '.join(missing)} is missing: apt-get install {wanted}")


def _built(work: Path) -> Path:
    """The directory of the suite, fetched and built if it is not there yet."""
    root = work / "librdkafka"
    suite = root / "package" / "deps" / "librdkafka"
    if (suite / "tests" / "test-runner").exists():
        return suite
    root.mkdir(parents=True, exist_ok=True)
    _check_tools()
    _say(f"fetching {PACKAGE}")
    packed = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=root, check=True, capture_output=True, text=True)  # noqa: S607
    with tarfile.open(root / packed.stdout.strip().splitlines()[-1]) as archive:
        archive.extractall(root, filter="data")
    _say("building the suite, which takes about ten minutes")
    for program in ("configure", "lds-gen.py"):
        (suite / program).chmod(0o755)
    with (root / "build.log").open("wb") as log:
        for command in (
            ["./configure", "--disable-curl", "--disable-gssapi"],
            ["make", "libs"],
            ["make", "-C", "tests", "build"],
        ):
            subprocess.run(command, cwd=suite, check=True, stdout=log, stderr=log)
    return suite


def _tests(suite: Path) -> list[Test]:
    """What the suite's own table says there is."""
    source = (suite / "tests" / "test.c").read_text()
    table = source[source.index("struct test tests[] = {") :]
    table = re.sub(r"/\*.*?\*/", "", table[: table.index("{NULL}") + 5], flags=re.DOTALL)
    return [
        Test(name, is_local="TEST_F_LOCAL" in flags, scenario=_scenario(rest))
        for name, flags, rest in _TEST.findall(table)
        if "TEST_F_MANUAL" not in flags and "share" not in name
    ]


def _scenario(rest: str) -> str:
    found = re.search(r'\.scenario\s*=\s*"([^",]+)', rest)
    return found.group(1) if found else "default"


def _outcomes(suite: Path, work: Path, tests: Iterable[Test]) -> Iterator[Outcome]:
    """Tests that want topics made by hand get a gateway that makes none by itself."""
    addresses: dict[str, str] = {}
    with ExitStack() as gateways:
        for test in tests:
            place = f"{test.scenario}-acls" if test.name in _MAKE_ACLS else test.scenario
            if place not in addresses:
                data = work / f"gateway-{place}"
                shutil.rmtree(data, ignore_errors=True)
                addresses[place] = gateways.enter_context(_gateway(data, test))
            outcome = _run_one(suite, work, test, addresses[place])
            mark = "passed" if outcome.passed else f"FAILED {outcome.why}"
            _say(f"{test.name:45} {outcome.seconds:6.1f} s  {mark}")
            yield outcome


def _gateway(data: Path, test: Test) -> AbstractContextManager[str]:
    creates = test.scenario != "noautocreate"
    if test.name not in _MAKE_ACLS:
        return gateway(data, auto_create_topics=creates, default_partitions=4)
    # As the suite's own tools set clusters up.
    return gateway(
        data,
        auto_create_topics=creates,
        default_partitions=4,
        authorization='"acls"',
        allow_everyone_if_no_acl=True,
    )


def _run_one(suite: Path, work: Path, test: Test, address: str) -> Outcome:
    outcome = Outcome(test, passed=False)
    for _ in range(_TRIES):
        outcome = _try_one(suite, work, test, address)
        if outcome.passed:
            break
    return outcome


def _try_one(suite: Path, work: Path, test: Test, address: str) -> Outcome:
    report, log = work / "report.json", work / "logs" / f"{test.name}.log"
    report.unlink(missing_ok=True)
    log.parent.mkdir(exist_ok=True)
    conf = work / f"{test.scenario}.conf"
    conf.write_text(f"bootstrap.servers={address}\ntest.topic.random=true\n")
    settings = {
        "TESTS": test.name,
        "TEST_REPORT": str(report),
        "RDKAFKA_TEST_CONF": str(conf),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "TEST_SCENARIO": test.scenario,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "BROKERS": address,
        "KAFKA_PATH": str(kafka_topics.install(work / "kafka")),
    }
    command = ["./test-runner", "-p1", *(["-Q"] if test.name not in _FULL else [])]
    with log.open("wb") as output:
        try:
            subprocess.run(
                command,
                cwd=suite / "tests",
                env=os.environ | settings,
                stdout=output,
                stderr=output,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(test, passed=False, why=f"no end after {_TIMEOUT_S:.0f} s", seconds=_TIMEOUT_S)
    return _read(test, report, log)


def _read(test: Test, report: Path, log: Path) -> Outcome:
    if not report.exists():
        return Outcome(test, passed=False, why="it crashed")
    found = json.loads(report.read_text())["tests"].get(test.name)
    if found is None:
        return Outcome(test, passed=False, why="not in the report")
    seconds = float(found["duration"])
    if found["state"] == "PASSED":
        return Outcome(test, passed=True, seconds=seconds)
    return Outcome(test, passed=False, why=_reason(log) or found["state"], seconds=seconds)


def _reason(log: Path) -> str:
    lines = [re.sub(r"\x1b\[\d*m", "", line).strip() for line in log.read_text(errors="replace").splitlines()]
    at = next((number for number, line in enumerate(lines) if line.endswith("TEST FAILURE")), None)
    skipped = next((line.partition("SKIPPING TEST:")[2] for line in lines if "SKIPPING TEST:" in line), "")
    return skipped.strip() if at is None else " ".join(lines[at + 1 : at + 3])[:300]


def _names(path: Path) -> set[str]:
    return {line.split("#")[0].strip() for line in path.read_text().splitlines()} - {""}


def _reasons(path: Path) -> dict[str, str]:
    lines = (
        [line for line in path.read_text().splitlines() if line and not line.startswith("#")] if path.exists() else []
    )
    return {name.strip(): reason.strip() for name, _, reason in (line.partition(":") for line in lines)}


def _write_names(path: Path, names: set[str]) -> None:
    path.write_text("\n".join(["# Tests of librdkafka's suite that pass; may only grow.", *sorted(names), ""]))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
