"""Apache Kafka's tools for rights and quotas against the gateway, and the calls of user interfaces, in Java.

Everything is done twice: by a superuser, who gets all of it, and by a user without any right, who gets nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

from conformance.gateways import gateway
from conformance.maven import jars

_VERSION = "4.1.0"
_TIMEOUT_S = 240
_PROGRAM = Path(__file__).with_name("Calls.java")
_PASSWORDS = {name: f"{name}-s3cret" for name in ("admin", "alice")}
_TOOLS = "org.apache.kafka.tools."
# What a client without rights may see: that there is a cluster, and lists in which nothing is.
_HARMLESS = {
    "describeCluster": "22 []",
    "describeFeatures": "true",
    "listTopics": "false",
    "listGroups": "0",
    "listConsumerGroups": "0",
    "listTransactions": "true",
    "describeReplicaLogDirs": "1",  # a replica of which nothing is known
}

Run = Callable[..., str]
Check = tuple[str, bool]


def run(work: Path) -> int:
    """Returns the exit code."""
    artifacts = (f"org.apache.kafka:{each}:{_VERSION}" for each in ("kafka-tools", "kafka_2.13"))
    classes = jars(work / "java-admin", *artifacts, "org.slf4j:slf4j-nop:1.7.36")
    users = ", ".join(f'{name} = "{password}"' for name, password in _PASSWORDS.items())
    settings = {"authorization": '"acls"', "superusers": '["User:admin"]', "users": f"{{ {users} }}"}
    place = work / "gateway-rights"
    place.mkdir(parents=True, exist_ok=True)
    failed = 0
    with gateway(place, **settings) as servers:

        def tool(*command: str) -> str:
            line = ["java", "-cp", f"{classes}/*", *command]
            done = subprocess.run(line, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            return done.stdout + done.stderr + f"\nexit code {done.returncode}"

        for name, passed in _checks(tool, servers, _logins(place)):
            sys.stdout.write(f"{name:60} {'passed' if passed else 'FAILED'}\n")
            sys.stdout.flush()
            failed += not passed
    return 1 if failed else 0


def _logins(place: Path) -> dict[str, str]:
    """Files with the settings of a client, by user."""
    files = {}
    for name, password in _PASSWORDS.items():
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        file = place / f"{name}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={module} required username="{name}" password="{password}";\n'
        )
        files[name] = str(file)
    return files


def _checks(tool: Run, servers: str, logins: dict[str, str]) -> Iterator[Check]:
    yield from _calls(tool, servers, logins)
    yield from _acls(tool, servers, logins)
    yield from _quotas(tool, servers, logins)


def _calls(tool: Run, servers: str, logins: dict[str, str]) -> Iterator[Check]:
    topic = f"calls-{token_hex(4)}"
    outcomes = _outcomes(tool(str(_PROGRAM), servers, logins["admin"], topic, "prepare"))
    yield "calls of user interfaces: there are all", len(outcomes) == 39
    for name, outcome in outcomes.items():
        yield f"superuser: {name}", outcome.startswith("ok ")
    for name, outcome in _outcomes(tool(str(_PROGRAM), servers, logins["alice"], topic)).items():
        is_refused = "AuthorizationException" in outcome
        yield f"without rights: {name}", is_refused or outcome == f"ok {_HARMLESS.get(name)}"


def _outcomes(text: str) -> dict[str, str]:
    found = re.findall(r"^CALL (.+?) ((?:ok|failed) .*)$", text, re.MULTILINE)
    if not found:
        sys.stdout.write(text[-3000:])
    return dict(found)


def _acls(tool: Run, servers: str, logins: dict[str, str]) -> Iterator[Check]:
    command = (f"{_TOOLS}AclCommand", "--bootstrap-server", servers, "--command-config", logins["admin"])
    pattern = ("--topic", "of-", "--resource-pattern-type", "prefixed")
    alice = (f"{_TOOLS}VerifiableProducer", "--bootstrap-server", servers, "--topic", "of-alice")
    producer = (*alice, "--max-messages", "10", "--producer.config", logins["alice"])
    yield "VerifiableProducer without a right", "TopicAuthorizationException" in tool(*producer)
    added = tool(*command, "--add", "--allow-principal", "User:alice", "--producer", *pattern)
    yield "AclCommand --add --producer", "Adding ACLs for resource" in added
    listed = tool(*command, "--list", "--topic", "of-alice", "--resource-pattern-type", "match")
    yield "AclCommand --list by match", "principal=User:alice" in listed and "operation=WRITE" in listed
    yield "VerifiableProducer with a right", '"acked":10' in tool(*producer)
    denied = tool(*command, "--add", "--deny-principal", "User:alice", "--operation", "Write", "--topic", "of-alice")
    yield "AclCommand --add --deny-principal", "Adding ACLs for resource" in denied
    yield "VerifiableProducer, denied", "TopicAuthorizationException" in tool(*producer)
    gone = tool(*command, "--remove", "--force", "--topic", "of-alice", "--resource-pattern-type", "match")
    yield "AclCommand --remove", "exit code 0" in gone and "of-" not in tool(*command, "--list", *pattern)
    other = tool(*command[:-1], logins["alice"], "--list")
    yield "AclCommand of somebody without a right", "ClusterAuthorizationException" in other


def _quotas(tool: Run, servers: str, logins: dict[str, str]) -> Iterator[Check]:
    command = ("kafka.admin.ConfigCommand", "--bootstrap-server", servers, "--command-config", logins["admin"])
    alice = ("--entity-type", "users", "--entity-name", "alice")
    everybody = ("--entity-type", "clients", "--entity-default")
    set_them = tool(*command, "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *alice)
    yield "ConfigCommand --add-config of a user", "exit code 0" in set_them
    shown = tool(*command, "--describe", *alice)
    yield (
        "ConfigCommand --describe of a user",
        "producer_byte_rate=1024.0" in shown and "request_percentage=50" in shown,
    )
    tool(*command, "--alter", "--add-config", "consumer_byte_rate=2048", *everybody)
    yield "ConfigCommand of default clients", "consumer_byte_rate=2048.0" in tool(*command, "--describe", *everybody)
    tool(*command, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *alice)
    yield "ConfigCommand --delete-config", "_rate" not in tool(*command, "--describe", *alice)
