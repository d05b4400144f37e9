"""Installs the built wheel into empty environments, each with one extra, and uses it there: `make package`.

    python -m tests.package [EXTRA ...]      none: core, gateway, registry and relay; `all` takes a gigabyte

PostgreSQL comes from the environment that runs this; what is tried runs in the empty one.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from headgate.embedded import Stack

ROOT = Path(__file__).parent.parent


class Environment:
    """A virtual environment with the wheel and an extra."""

    def __init__(self, directory: Path, wheel: Path, extra: str) -> None:
        self.directory = directory
        subprocess.run([sys.executable, "-m", "venv", directory], check=True)
        wanted = f"headgate[{extra}] @ {wheel.as_uri()}" if extra != "core" else f"headgate @ {wheel.as_uri()}"
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)

    def run(self, program: str, *arguments: str, status: int = 0) -> str:
        """What a program of the environment prints; it must end with this status."""
        command = [str(self.directory / "bin" / program), *arguments]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def size(self) -> tuple[int, int]:
        """How many distributions there are, and their megabytes."""
        packages = self.run("python", "-m", "pip", "list", "--format=freeze").count("==")
        return packages, sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file()) >> 20


def readme_program() -> str:
    found = re.search(r"```python\n(import asyncio, sys\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def try_core(environment: Environment, url: str) -> None:
    """The broker's program of the README, the consumer's library, and commands that need no more."""
    assert environment.run("headgate", "--version").startswith("headgate ")
    environment.run("headgate", "init")
    environment.run("headgate", "validate")
    program = environment.directory / "program.py"
    program.write_text(readme_program())
    assert "hello ann" in environment.run("python", str(program), url)
    environment.run("python", "-c", "import headgate.consume")
    environment.run("headgate", "broker", "groups", "--postgres", url)
    for command, extra in (("run", "spark"), ("gateway", "gateway"), ("relay", "relay"), ("registry", "registry")):
        assert f"pip install 'headgate[{extra}]'" in environment.run("headgate", command, "--help", status=4)


def try_gateway(environment: Environment, url: str) -> None:
    """A server that answers; its client is a socket."""
    file = environment.directory / "headgate.toml"
    file.write_text(f'[postgres]\nurl = "{url}"\n[gateway]\nport = 0\n')
    command = [str(environment.directory / "bin" / "headgate"), "gateway", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            host, _, port = process.stdout.readline().strip().partition("=")[2].rpartition(":")
            with socket.create_connection((host, int(port)), 60) as client:
                client.sendall(bytes.fromhex("0000000e 0012 0000 00000007 0004 74657374"))  # ApiVersions
                assert client.recv(8)[4:] == bytes.fromhex("00000007")
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def try_registry(environment: Environment, url: str) -> None:
    """A server that answers, and takes a schema of each kind."""
    file = environment.directory / "headgate.toml"
    file.write_text(f'[postgres]\nurl = "{url}"\n[registry]\nport = 0\n')
    command = [str(environment.directory / "bin" / "headgate"), "registry", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            server = process.stdout.readline().strip().partition("=")[2]
            texts = {"AVRO": '"int"', "JSON": "{}", "PROTOBUF": 'syntax = "proto3"; message M {}'}
            for kind, text in texts.items():
                body = json.dumps({"schema": text, "schemaType": kind}).encode()
                with urllib.request.urlopen(f"{server}/subjects/{kind}/versions", body, timeout=60) as answer:
                    assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def try_relay(environment: Environment, url: str) -> None:
    """A network with liars: it ends well only if every honest event came out, and no lie."""
    environment.run("headgate", "relay", "simulate", "--seconds", "5")


def try_all(environment: Environment, url: str) -> None:
    environment.run("headgate", "demo", "--seconds", "5")


TRIES: dict[str, Callable[[Environment, str], None]] = {
    "core": try_core,
    "gateway": try_gateway,
    "registry": try_registry,
    "relay": try_relay,
    "all": try_all,
}


def main(extras: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch, Stack(Path(scratch) / "stack", nats=False) as endpoints:
        built = Path(scratch) / "dist"
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(built)]
        subprocess.run([*build, str(ROOT)], check=True)
        (wheel,) = built.iterdir()
        for extra in extras or ["core", "gateway", "registry", "relay"]:
            environment = Environment(Path(scratch) / extra, wheel, extra)
            TRIES[extra](environment, endpoints.postgres_tcp_url or "")
            count, megabytes = environment.size()
            sys.stdout.write(f"headgate[{extra}]: works; {count} distributions, {megabytes} MB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
